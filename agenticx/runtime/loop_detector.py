"""Find loops: rounds of calls that repeat, alternate, or bring nothing new.

Differences from seed 002:

1. Calls are judged between rounds, not after each call. All calls of a round are recorded, then there is one verdict;
   identical calls within a round count once, and so do calls that fail or repeat side by side.
2. A round in which the person (or the mode) denied a call is no part of a loop: counting starts anew behind it.
3. A read-only call whose unchanged result says that something is pending, running or queued has three times the
   thresholds (`result_text.says_pending`; the runtime also waits before it repeats such a call: `polling`).
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Literal, cast

from agenticx.messages import ToolOutcome
from agenticx.runtime.result_text import (
    exit_code,
    mask_counts,
    mask_echo,
    mask_times,
    reports_nothing_found,
    reports_pending,
    reports_success,
    reports_verdict,
)

__all__ = ["Detector", "LoopDetector", "LoopVerdict", "RecordedCall", "call_signature"]

Detector = Literal["generic_repeat", "ping_pong", "no_progress"]

PENDING_FACTOR = 3
_REMEMBERED = 4_096
_CANONICAL_CHARS = 8_192
_ECHO_CHARS = 300
_ECHOES = 32
_COMPARED_CHARS = 8_192

# How much a round counts towards the thresholds, in sixths.
_WHOLE, _HALF, _CHANGED, _NONE = 6, 3, 2, 0
_PENDING = _WHOLE // PENDING_FACTOR

_DIGITS = re.compile(r"[0-9]+")


@dataclass(frozen=True, slots=True)
class LoopVerdict:
    """A pattern of `detector` over the last `count` rounds."""

    level: Literal["warning", "critical"]
    detector: Detector
    count: int

    @property
    def text(self) -> str:
        """A sentence that the model and the person can both use."""
        what = {
            "generic_repeat": f"the same call gave the same result {self.count} times in a row",
            "ping_pong": f"the last {self.count} rounds alternate between the same two calls with the same results",
            "no_progress": f"the last {self.count} rounds of calls failed or brought nothing that was not seen before",
        }
        return what[self.detector]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedCall:
    """One answered call. `arguments` is the model's JSON text, or any other text that is the same for equal calls."""

    tool: str
    arguments: str
    result: str = ""
    outcome: ToolOutcome = "ok"
    read_only: bool = False


class LoopDetector:
    """Judge the rounds of one turn.

    - `generic_repeat`: the same calls with the same results, round after round.
    - `ping_pong`: two rounds of different calls in turn, each with unchanged results.
    - `no_progress`: rounds none of which brought anything new. New are a result or a write that was not seen before,
      an artifact, and a change of the scratchpad or the to-do list. Not new are a failure, a repetition, and a result
      that says that nothing was found.

    For `no_progress` some rounds count in part, because they may be honest work: a half, if a read with other arguments
    gave the text that is already known (unless that is a verdict: a check that passed, a yes or no, warnings), or if a
    failure has a text of its own; a third, if the result of a read changed back to one that was known.

    `warning_threshold` and `critical_threshold` are numbers of rounds. Texts are kept as digests, the last 4,096 of
    each kind. Times of day and durations in a result, and the order of keys in the arguments, make no difference.
    """

    def __init__(self, warning_threshold: int = 4, critical_threshold: int = 8) -> None:
        if not 2 <= warning_threshold <= critical_threshold:
            raise ValueError(
                f"loop thresholds must be 2 <= warning <= critical, not {warning_threshold} and {critical_threshold}"
            )
        self._warning = warning_threshold
        self._critical = critical_threshold
        self._rounds: deque[_RoundDigest] = deque(maxlen=PENDING_FACTOR * critical_threshold)
        self._seen: dict[bytes, bytes] = {}
        self._latest: dict[bytes, bytes] = {}
        self._known_changes: dict[bytes, bytes] = {}
        self._state: bytes | None = None
        self._has_progress = False
        self._stale = 0
        self._stale_sixths = 0
        self._since_pending = warning_threshold
        self._warned: set[Detector] = set()

    # --- recording ----------------------------------------------------------------------------------------------------

    def record_call(
        self,
        tool_name: str,
        args_signature: str,
        result_signature: str = "",
        *,
        failed: bool = False,
        read_only: bool = False,
    ) -> None:
        """Record a round of one call; the signatures may be the arguments and the result themselves."""
        outcome: ToolOutcome = "error" if failed else "ok"
        self.record_round(
            [
                RecordedCall(
                    tool=tool_name,
                    arguments=args_signature,
                    result=result_signature,
                    outcome=outcome,
                    read_only=read_only,
                )
            ]
        )

    def record_state(self, *parts: str) -> None:
        """Record the scratchpad and the to-do list as they are; a change is progress of the round under way.

        What is recorded first is where the turn begins.
        """
        state = _digest("state", *parts)
        first, self._state = self._state is None, state
        if _remember(self._known_changes, state) and not first:
            self._has_progress = True

    def record_artifact(self, *parts: str) -> None:
        """Record an artifact; one that was not there before is progress of the round under way."""
        if _remember(self._known_changes, _digest("artifact", *parts)):
            self._has_progress = True

    def record_round(self, calls: Sequence[RecordedCall]) -> None:
        """Record the calls of one round together."""
        if not calls:
            return
        brought, self._has_progress = self._has_progress, False
        if any(call.outcome == "denied" for call in calls):
            self._reset()
            return
        marks = [_CallDigest.from_call(call) for call in calls]
        pending = any(mark.pending for mark in marks)
        weight = min(self._weight(mark) for mark in marks)
        for mark in marks:
            _remember(self._seen, mark.whole)
            _remember(self._seen, mark.text)
            _remember(self._latest, mark.call, mark.whole)
        self._since_pending = 0 if pending else self._since_pending + 1
        if brought:
            self._reset()
            return
        self._rounds.append(_RoundDigest.from_calls(marks))
        self._count(weight)

    def _count(self, weight: int) -> None:
        if weight == _NONE:
            self._stale = self._stale_sixths = 0
            return
        near_pending = self._since_pending < self._warning  # what is done between two polls of something pending
        self._stale += 1
        self._stale_sixths += min(weight, _PENDING) if near_pending else weight

    def _weight(self, mark: _CallDigest) -> int:
        """How much a call speaks for a loop, in sixths of a round; `_NONE` is progress."""
        if mark.pending:
            known = mark.failed or mark.whole in self._seen or mark.text in self._seen
            return _PENDING if known else _NONE
        if mark.failed:
            of_its_own = mark.ran and self._stale and mark.text not in self._seen
            return _HALF if of_its_own else _WHOLE
        if mark.whole in self._seen:
            changed = mark.read_only and self._latest.get(mark.call) not in {None, mark.whole}
            return _CHANGED if changed else _WHOLE
        if mark.found_nothing:
            return _WHOLE
        return _HALF if mark.is_repeat_suspect and mark.text in self._seen else _NONE

    def _reset(self) -> None:
        self._rounds.clear()
        self._stale = self._stale_sixths = 0

    # --- judging ------------------------------------------------------------------------------------------------------

    def check(self) -> LoopVerdict | None:
        """Return a critical pattern at the tail, or a new warning; a streak is warned of once, until it breaks."""
        streaks: dict[Detector, tuple[int, int]] = {
            "generic_repeat": self._repetition(period=1),
            "ping_pong": self._repetition(period=2),
            "no_progress": (self._stale, self._stale_sixths),
        }
        warning, critical = self._warning * _WHOLE, self._critical * _WHOLE
        self._warned = {detector for detector in self._warned if streaks[detector][1] >= warning}
        for detector, (count, sixths) in streaks.items():
            if sixths >= critical:
                return LoopVerdict("critical", detector, count)
        if self._warned:
            return None
        for detector, (count, sixths) in streaks.items():
            if sixths >= warning:
                self._warned.add(detector)
                return LoopVerdict("warning", detector, count)
        return None

    def _repetition(self, *, period: int) -> tuple[int, int]:
        """How many rounds at the tail repeat with `period`, and what they count for; zeros if the tail does not."""
        rounds = list(self._rounds)
        if len(rounds) <= period or (period == 2 and rounds[-1].calls == rounds[-2].calls):
            return 0, 0
        count = period
        while count < len(rounds) and rounds[-1 - count] == rounds[-1 - count + period]:
            count += 1
        if count == period:
            return 0, 0
        pending = any(one.pending for one in rounds[-period:])
        return count, count * (_PENDING if pending else _WHOLE)


@dataclass(frozen=True, slots=True)
class _CallDigest:
    """A call as the detector compares it: digests of the call, of it with its result, and of the result alone.

    `ran` is false for a call that was refused before its tool could run; `comparable` says that a text that is known
    from other arguments brings little.
    """

    call: bytes
    whole: bytes
    text: bytes
    read_only: bool
    pending: bool
    failed: bool
    ran: bool
    found_nothing: bool
    is_repeat_suspect: bool

    @classmethod
    def from_call(cls, call: RecordedCall) -> _CallDigest:
        arguments, given = _canonical(call.arguments)
        echo = _echo(call.tool, given)
        failed = call.outcome != "ok"
        result = mask_times(call.result)
        text = mask_echo(result, echo)
        passed = not failed and reports_success(result)
        full = _digest(result)
        key = _digest(call.tool, arguments)
        if len(text) > _COMPARED_CHARS:
            text = result
        elif failed:
            text = _DIGITS.sub("0", text)
        elif call.read_only:
            text = mask_counts(text)
        fruitless = not passed and reports_nothing_found(result, echo, read_only=call.read_only)
        own_words = text if fruitless else result  # a search for what is pending, in vain, is no poll
        news = passed or reports_verdict(result)
        return cls(
            call=key,
            whole=_digest_of(key, _digest(call.outcome), full),
            text=_digest_of(_digest(call.tool), full if text is result else _digest(text)),
            read_only=call.read_only,
            pending=call.read_only and reports_pending(own_words),
            failed=failed,
            ran=call.outcome in {"error", "timed_out"},
            found_nothing=fruitless,
            is_repeat_suspect=not news and (call.read_only or bool(exit_code(result))),
        )


@dataclass(frozen=True, slots=True)
class _RoundDigest:
    """Digests of a round's calls, without and with their results."""

    calls: bytes
    whole: bytes
    pending: bool

    @classmethod
    def from_calls(cls, marks: Sequence[_CallDigest]) -> _RoundDigest:
        return cls(
            calls=_digest_of(*sorted({mark.call for mark in marks})),
            whole=_digest_of(*sorted({mark.whole for mark in marks})),
            pending=any(mark.pending for mark in marks),
        )


def _remember(store: dict[bytes, bytes], key: bytes, value: bytes = b"") -> bool:
    """Put `key` behind all others, forget the oldest if there are too many, and return whether it is new."""
    new = store.pop(key, None) is None
    store[key] = value
    if len(store) > _REMEMBERED:
        del store[next(iter(store))]
    return new


def call_signature(tool: str, arguments: str) -> bytes:
    """Return the same 16 bytes for the same call, however its JSON is written."""
    return _digest(tool, _canonical(arguments)[0])


def _canonical(arguments: str) -> tuple[str, list[str]]:
    """The arguments with sorted keys and without spare blanks, and the strings among them; long ones as they are."""
    if len(arguments) > _CANONICAL_CHARS:
        return arguments, []
    try:
        value: Any = json.loads(arguments)
        text = json.dumps(value, sort_keys=True)
    except (ValueError, RecursionError):  # not JSON, or too deep: compared as it is written
        return arguments, []
    fields = cast("dict[str, Any]", value).values() if isinstance(value, dict) else ()
    return text, [field for field in fields if isinstance(field, str) and len(field) <= _ECHO_CHARS]


def _echo(tool: str, given: Sequence[str]) -> list[str]:
    """The strings that a result may merely repeat, long ones first: the tool's name, the given ones and their words."""
    words = (word for text in given for word in text.split() if len(word) >= 4)
    said = {text for text in (tool, *given, *islice(words, _ECHOES)) if len(text) >= 3}
    return sorted(said, key=len, reverse=True)[:_ECHOES]


def _digest(*parts: str) -> bytes:
    sum_ = hashlib.blake2b(digest_size=16)
    for part in parts:
        data = part.encode("utf-8", "surrogatepass")
        sum_.update(len(data).to_bytes(8))
        sum_.update(data)
    return sum_.digest()


def _digest_of(*digests: bytes) -> bytes:
    return hashlib.blake2b(b"".join(digests), digest_size=16).digest()

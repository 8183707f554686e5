"""Loop detection: rounds of calls that repeat, alternate, or make no progress.

Differences from the originally specified detector:

1. Calls are judged between rounds, not after each call. All calls of a round are recorded, then there is one verdict;
   identical calls within a round count once, and so do calls that fail or repeat in the same round.
2. A round in which the user (or the mode) denied a call is no part of a loop: counting restarts after it.
3. A round of read-only calls with unchanged results counts a third, whatever the results say: the model may be
   waiting for something. The runtime also waits before it repeats such a call (`polling`).
4. A handoff is recorded as one call from agent to agent with its result, whatever its tool and its reason are. A new
   text in the reply with the handoff, new arguments other than the reason, and new context variables are progress.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any, Literal, cast

from agenticx.argument_types import check_int
from agenticx.messages import ToolOutcome
from agenticx.runtime.tool_result_text import (
    exit_code,
    is_empty,
    mask_counts,
    mask_echo,
    mask_times,
    reports_success,
    reports_verdict,
)

__all__ = ["Detector", "LoopDetector", "LoopVerdict", "RecordedCall", "call_signature"]

Detector = Literal["generic_repeat", "ping_pong", "no_progress"]

UNCHANGED_FACTOR = 3
_REMEMBERED = 4_096
_CANONICAL_CHARS = 8_192
_ECHO_CHARS = 300
_ECHOES = 32
_COMPARED_CHARS = 8_192
_VARIABLE_ITEMS = 1_000
_CONTAINERS = frozenset({list, tuple, set, frozenset})
_SCALARS = frozenset({type(None), bool, float, str, bytes})

# The weight of a round towards the thresholds, in sixths.
_WHOLE, _HALF, _CHANGED, _NONE = 6, 3, 2, 0
_UNCHANGED = _WHOLE // UNCHANGED_FACTOR

_DIGITS = re.compile(r"[0-9]+")


@dataclass(frozen=True, slots=True)
class LoopVerdict:
    """A pattern that `detector` found in the last `count` rounds."""

    level: Literal["warning", "critical"]
    detector: Detector
    count: int

    @property
    def text(self) -> str:
        """A sentence for both the model and the user."""
        texts = {
            "generic_repeat": f"the same call gave the same result {self.count} times in a row",
            "ping_pong": f"the last {self.count} rounds alternate between the same two calls with the same results",
            "no_progress": f"the last {self.count} rounds of calls failed or had no new result",
        }
        return texts[self.detector]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedCall:
    """One answered call. `arguments` is the model's JSON text, or any other text that is the same for equal calls."""

    tool: str
    arguments: str
    result: str = ""
    outcome: ToolOutcome = "ok"
    read_only: bool = False


class LoopDetector:
    """A detector of loops in the rounds of one turn.

    - `generic_repeat`: the same calls with the same results, round after round.
    - `ping_pong`: two rounds of different calls in turn, each with unchanged results.
    - `no_progress`: rounds without a new outcome. New are a result or a write that was not seen before, an artifact,
      the text of a handoff, and a change of the scratchpad, the to-do list or the context variables. Not new are a
      failure, a repetition, and an empty result.

    For `no_progress` some rounds count in part, because they may be legitimate work: a half, if a read with other
    arguments returned a text that is already known (unless that is a verdict: a check that passed, a yes or no,
    warnings), or if a failure has a text of its own; a third, if the result of a read changed back to a known one.

    `warning_threshold` and `critical_threshold` are numbers of rounds. Texts are kept as digests, the last 4,096 of
    each kind. Times of day and durations in a result, and the order of keys in the arguments, make no difference.
    """

    def __init__(self, warning_threshold: int = 4, critical_threshold: int = 8) -> None:
        check_int("loop_warning_threshold", warning_threshold)
        check_int("loop_critical_threshold", critical_threshold)
        if not 2 <= warning_threshold <= critical_threshold:
            raise ValueError(
                f"loop thresholds must be 2 <= warning <= critical, not {warning_threshold} and {critical_threshold}"
            )
        self._warning = warning_threshold
        self._critical = critical_threshold
        self._rounds: deque[_RoundDigest] = deque(maxlen=UNCHANGED_FACTOR * critical_threshold)
        self._seen: dict[bytes, bytes] = {}
        self._latest: dict[bytes, bytes] = {}
        self._known_changes: dict[bytes, bytes] = {}
        self._state: bytes | None = None
        self._variables: bytes | None = None
        self._variable_texts = _VariableTexts()
        self._has_progress = False
        self._stale = 0  # the number of rounds without progress at the tail
        self._stale_sixths = 0  # the weight of those rounds, in sixths of a round
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
        """Record the scratchpad and the to-do list; a change is progress of the current round.

        The first recorded state is that of the turn's beginning.
        """
        state = _digest("state", *parts)
        first, self._state = self._state is None, state
        if _remember(self._known_changes, state) and not first:
            self._has_progress = True

    def record_artifact(self, *parts: str) -> None:
        """Record an artifact; a new one is progress of the current round."""
        if _remember(self._known_changes, _digest("artifact", *parts)):
            self._has_progress = True

    def record_text(self, text: str) -> None:
        """Record the text of a handoff; a new one, whatever its case and blanks, is progress of the current round."""
        if (words := " ".join(text.casefold().split())) and _remember(self._known_changes, _digest("text", words)):
            self._has_progress = True

    def record_variables(self, variables: Mapping[str, Any]) -> None:
        """Record the context variables; a combination of values that is new is progress of the current round.

        The first recorded variables are those of the turn's beginning. The first 1,000 items at any depth count; an
        object that is no text, number or container is compared by identity.
        """
        values = _digest("variables", *self._variable_texts.of(variables))
        first, self._variables = self._variables is None, values
        if _remember(self._known_changes, values) and not first:
            self._has_progress = True

    def record_user_message(self) -> None:
        """Record a message of the user, which ends all streaks."""
        self._reset()

    def record_round(self, calls: Sequence[RecordedCall]) -> None:
        """Record the calls of one round together."""
        if not calls:
            return
        has_progress, self._has_progress = self._has_progress, False
        if any(call.outcome == "denied" for call in calls):
            self._reset()
            return
        digests = [_CallDigest.from_call(call) for call in calls]
        weight = min(self._weight(digest) for digest in digests)
        for digest in digests:
            _remember(self._seen, digest.call_and_result)
            _remember(self._seen, digest.text)
            _remember(self._latest, digest.call, digest.call_and_result)
        if has_progress:
            self._reset()
            return
        self._rounds.append(_RoundDigest.from_calls(digests))
        self._count(weight)

    def _count(self, weight: int) -> None:
        if weight == _NONE:
            self._stale = self._stale_sixths = 0
            return
        self._stale += 1
        self._stale_sixths += weight

    def _weight(self, digest: _CallDigest) -> int:
        """Return how much a call counts towards a loop, in sixths of a round; `_NONE` is progress."""
        if digest.is_read and self._latest.get(digest.call) == digest.call_and_result:
            return _UNCHANGED
        if digest.failed:
            is_new_failure = digest.ran and self._stale and digest.text not in self._seen
            return _HALF if is_new_failure else _WHOLE
        if digest.call_and_result in self._seen:
            changed = digest.read_only and self._latest.get(digest.call) not in {None, digest.call_and_result}
            return _CHANGED if changed else _WHOLE
        if digest.is_empty:
            return _WHOLE
        return _HALF if digest.is_repeat_suspect and digest.text in self._seen else _NONE

    def _reset(self) -> None:
        self._rounds.clear()
        self._stale = self._stale_sixths = 0

    # --- judging ------------------------------------------------------------------------------------------------------

    def check(self) -> LoopVerdict | None:
        """Return a critical pattern at the tail, or a new warning; a streak causes one warning until it breaks.

        A returned warning is recorded: the next call returns None for the same streak.
        """
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
        """Return how many rounds at the tail repeat with `period`, and their weight in sixths; zeros if none do."""
        rounds = list(self._rounds)
        if len(rounds) <= period or (period == 2 and rounds[-1].calls == rounds[-2].calls):
            return 0, 0
        count = period
        while count < len(rounds) and rounds[-1 - count] == rounds[-1 - count + period]:
            count += 1
        if count == period:
            return 0, 0
        only_reads = all(round_.only_reads for round_ in rounds[-period:])
        return count, count * (_UNCHANGED if only_reads else _WHOLE)


class _VariableTexts:
    """Context variables as texts for comparison; objects that have none are numbered."""

    def __init__(self) -> None:
        self._numbered: dict[int, tuple[object, int]] = {}  # the objects of the last variables, by id: it keeps theirs
        self._count = 0

    def of(self, variables: Mapping[str, Any]) -> list[str]:
        """Return texts that differ from those of other variables."""
        texts: list[str] = []
        numbered: dict[int, tuple[object, int]] = {}
        left: list[Any] = [variables]
        while left and len(texts) < _VARIABLE_ITEMS:
            value = left.pop()
            if type(value) is dict:
                items = cast("dict[Any, Any]", value).items()
                texts.append(f"dict {len(items)}")
                left += chain.from_iterable(islice(items, _VARIABLE_ITEMS))
            elif type(value) in _CONTAINERS:
                texts.append(f"{type(value).__name__} {len(value)}")
                left += islice(value, _VARIABLE_ITEMS)
            elif type(value) is int:
                texts.append(f"int {value:x}")  # -1 and -2 have the same hash
            elif type(value) in _SCALARS:
                texts.append(f"{type(value).__name__} {hash(value)}")
            else:
                known, number = self._numbered.get(id(value), (None, 0))
                if known is not value:
                    self._count += 1
                    number = self._count
                numbered[id(value)] = value, number
                texts.append(f"object {number}")
        self._numbered = numbered
        return texts


@dataclass(frozen=True, slots=True)
class _CallDigest:
    """A call as the detector compares it: digests of the call, of the call with its result, and of the result alone.

    `ran` is false for a call that was refused before its tool could run, `is_read` is true for a read-only call that
    succeeded. `is_repeat_suspect` means that a result that is known from other arguments counts as half progress.
    """

    call: bytes
    call_and_result: bytes
    text: bytes
    read_only: bool
    failed: bool
    ran: bool
    is_empty: bool
    is_repeat_suspect: bool

    @property
    def is_read(self) -> bool:
        return self.read_only and not self.failed

    @classmethod
    def from_call(cls, call: RecordedCall) -> _CallDigest:
        arguments, argument_strings = _canonical(call.arguments)
        echo = _echo(call.tool, argument_strings)
        failed = call.outcome != "ok"
        result = mask_times(call.result)
        text = mask_echo(result, echo)
        passed = not failed and reports_success(result)
        result_digest = _digest(result)
        call_digest = _digest(call.tool, arguments)
        if len(text) > _COMPARED_CHARS:
            text = result
        elif failed:
            text = _DIGITS.sub("0", text)
        elif call.read_only:
            text = mask_counts(text)
        is_new_for_each_subject = passed or reports_verdict(result)
        return cls(
            call=call_digest,
            call_and_result=_digest_of(call_digest, _digest(call.outcome), result_digest),
            text=_digest_of(_digest(call.tool), result_digest if text is result else _digest(text)),
            read_only=call.read_only,
            failed=failed,
            ran=call.outcome in {"error", "timed_out"},
            is_empty=is_empty(result, read_only=call.read_only),
            is_repeat_suspect=not is_new_for_each_subject and (call.read_only or bool(exit_code(result))),
        )


@dataclass(frozen=True, slots=True)
class _RoundDigest:
    """The digests of a round's calls, without and with their results."""

    calls: bytes
    call_and_result: bytes
    only_reads: bool

    @classmethod
    def from_calls(cls, digests: Sequence[_CallDigest]) -> _RoundDigest:
        return cls(
            calls=_digest_of(*sorted({digest.call for digest in digests})),
            call_and_result=_digest_of(*sorted({digest.call_and_result for digest in digests})),
            only_reads=all(digest.is_read for digest in digests),
        )


def _remember(store: dict[bytes, bytes], key: bytes, value: bytes = b"") -> bool:
    """Add `key` as the newest, drop the oldest if there are too many, and return whether it is new."""
    new = store.pop(key, None) is None
    store[key] = value
    if len(store) > _REMEMBERED:
        del store[next(iter(store))]
    return new


def call_signature(tool: str, arguments: str) -> bytes:
    """Return the same 16 bytes for the same call, however its JSON is written."""
    return _digest(tool, _canonical(arguments)[0])


def _canonical(arguments: str) -> tuple[str, list[str]]:
    """Return the arguments with sorted keys and without extra blanks, and the strings among them.

    Arguments that are too long are returned as they are.
    """
    if len(arguments) > _CANONICAL_CHARS:
        return arguments, []
    try:
        value: Any = json.loads(arguments)
        text = json.dumps(value, sort_keys=True)
    except (ValueError, RecursionError):  # not JSON, or too deep: compared as it is written
        return arguments, []
    fields = cast("dict[str, Any]", value).values() if isinstance(value, dict) else ()
    return text, [field for field in fields if isinstance(field, str) and len(field) <= _ECHO_CHARS]


def _echo(tool: str, argument_strings: Sequence[str]) -> list[str]:
    """Return the strings that a result may merely repeat, long ones first.

    They are the tool's name, the `argument_strings` and their words.
    """
    words = (word for text in argument_strings for word in text.split() if len(word) >= 4)
    strings = {text for text in (tool, *argument_strings, *islice(words, _ECHOES)) if len(text) >= 3}
    return sorted(strings, key=len, reverse=True)[:_ECHOES]


def _digest(*parts: str) -> bytes:
    sum_ = hashlib.blake2b(digest_size=16)
    for part in parts:
        data = part.encode("utf-8", "surrogatepass")
        sum_.update(len(data).to_bytes(8))
        sum_.update(data)
    return sum_.digest()


def _digest_of(*digests: bytes) -> bytes:
    return hashlib.blake2b(b"".join(digests), digest_size=16).digest()

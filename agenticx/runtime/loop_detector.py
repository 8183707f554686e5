"""Notices a model that goes round in circles: the same calls with the same results, again and again."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Literal

__all__ = ["Detector", "LoopDetector", "LoopVerdict"]

Detector = Literal["generic_repeat", "ping_pong", "no_progress"]

_Mark = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class LoopVerdict:
    """What `check` found: `count` calls in a row that show the pattern of `detector`."""

    level: Literal["warning", "critical"]
    detector: Detector
    count: int

    @property
    def text(self) -> str:
        """A sentence that the model and the person can both use."""
        what = {
            "generic_repeat": f"the same call gave the same result {self.count} times in a row",
            "ping_pong": f"the last {self.count} calls alternate between the same two calls with the same results",
            "no_progress": f"the last {self.count} rounds of calls failed or brought nothing that was not seen before",
        }
        return what[self.detector]


class LoopDetector:
    """Counts over (tool, arguments, result): the same call with a new result is progress, so polling is no loop.

    - `generic_repeat`: one call with one result, repeated.
    - `ping_pong`: two different calls in turn, each with its own unchanged result.
    - `no_progress`: rounds of calls none of which brought anything new; a failing call never does.
    """

    def __init__(self, warning_threshold: int = 4, critical_threshold: int = 8) -> None:
        if not 2 <= warning_threshold <= critical_threshold:
            raise ValueError(
                f"loop thresholds must be 2 <= warning <= critical, not {warning_threshold} and {critical_threshold}"
            )
        self._warning = warning_threshold
        self._critical = critical_threshold
        self._recent: deque[_Mark] = deque(maxlen=critical_threshold)
        self._seen: set[_Mark] = set()
        self._stale = 0
        self._warned: set[Detector] = set()

    def record_call(
        self,
        tool_name: str,
        args_signature: str,
        result_signature: str = "",
        *,
        failed: bool = False,
        same_round: bool = False,
    ) -> None:
        """Note one executed call; the signatures are compared for equality only.

        `same_round` says that it stands beside the call before it: together they count once for `no_progress`.
        """
        mark = (tool_name, args_signature, result_signature)
        if not failed and mark not in self._seen:
            self._stale = 0
        elif not same_round or not self._stale:
            self._stale += 1
        self._seen.add(mark)
        self._recent.append(mark)

    def check(self) -> LoopVerdict | None:
        """The worst pattern at the tail, if it is new or critical: a streak is warned of once, until it breaks."""
        counts: dict[Detector, int] = {
            "generic_repeat": self._tail(period=1),
            "ping_pong": self._tail(period=2),
            "no_progress": self._stale,
        }
        self._warned = {detector for detector in self._warned if counts[detector] >= self._warning}
        for detector, count in counts.items():
            if count >= self._critical:
                return LoopVerdict("critical", detector, count)
        if self._warned:
            return None
        for detector, count in counts.items():
            if count >= self._warning:
                self._warned.add(detector)
                return LoopVerdict("warning", detector, count)
        return None

    def _tail(self, *, period: int) -> int:
        """How many marks at the tail repeat with `period`; 0 if the tail does not repeat."""
        recent = list(self._recent)
        if len(recent) <= period or (period == 2 and recent[-1] == recent[-2]):
            return 0
        count = period
        while count < len(recent) and recent[-1 - count] == recent[-1 - count + period]:
            count += 1
        return count if count > period else 0

"""The result of code that takes the place of a turn's model calls."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["WorkResult"]


@dataclass(frozen=True, slots=True)
class WorkResult:
    """The text of the answer, and for the run of a team why it stopped, which `final` has as `stop_reason`."""

    text: str
    stop_reason: str | None = None

"""One line of the table: a figure, its floor, and the budgets of the project."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["Row", "Scale", "table"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """The size of a run; figures are medians of `repeats`.

    So many paced streams pass through the real server, each for `stream_tokens` while all run: `further_streams` while
    it is in time with fewer, and `stock_streams` with stock readers. So many `workers` share
    a PostgreSQL server, and write for `job_seconds` at a time.
    """

    repeats: int = 5
    tokens: int = 4_000
    paced_tokens: int = 200
    turns: int = 40
    rounds: int = 25
    messages: int = 2_000
    team_messages: int = 1_000
    readers: int = 500
    sessions: int = 1_000
    notes: int = 10_000
    streams: Sequence[int] = (1, 20, 60, 100, 150, 200)
    further_streams: Sequence[int] = (250, 300, 400, 500, 600, 800)
    stock_streams: Sequence[int] = (1, 20, 60, 100)
    stream_tokens: int = 400
    workers: Sequence[int] = (1, 2, 4, 8)
    job_seconds: float = 3
    snapshot_seconds: float = 60
    page_events: int = 10_000
    page_tokens: int = 6_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A figure in `unit`. With a `floor` in the same unit the budgets are ratios to it, else they are in `unit`."""

    name: str
    value: float
    unit: str
    floor: float | None = None
    first_light: float | None = None
    goal: float | None = None
    at_least: bool = False

    @property
    def judged(self) -> float:
        """The number that the budgets are compared with."""
        return self.value if self.floor is None else self.value / self.floor

    def verdict(self, budget: float | None) -> str:
        """Return the budget and whether it is met."""
        if budget is None:
            return "–"
        met = self.judged >= budget if self.at_least else self.judged <= budget
        return f"{'≥' if self.at_least else '≤'} {budget:g}{'×' if self.floor else ''} {'met' if met else 'MISSED'}"

    def cells(self) -> tuple[str, ...]:
        ratio = "" if self.floor is None else f"{self.judged:.1f}×"
        figure = f"{self.value:.3g}" if self.value < 1_000 else f"{self.value:.0f}"
        return (self.name, f"{figure} {self.unit}", ratio, self.verdict(self.first_light), self.verdict(self.goal))


def table(rows: Sequence[Row]) -> str:
    """Return the rows formatted in columns."""
    lines = [("", "measured", "× floor", "first light", "goal"), *(row.cells() for row in rows)]
    widths = [max(len(cells[column]) for cells in lines) for column in range(5)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip() for cells in lines
    )

"""The usage of model calls as `agx sessions usage` prints it: sums by model, and a total."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

from agenticx.sessions.store.usage import DailyUsage, UsageCounts
from agenticx.tools.plurals import pluralize
from agenticx.tools.visible import visible_line

__all__ = ["usage_to_json", "usage_to_text"]

_HEADINGS = ("model", "calls", "input", "cached", "output", "reasoning", "cost (USD)")
_NAME_CHARS = 60


def usage_to_json(rows: Sequence[DailyUsage]) -> dict[str, Any]:
    """Return the total, the sums by model and agent, and the rows, with the keys of `GET /api/usage`."""
    return {
        "total": DailyUsage.total(rows).to_json(),
        "models": [{"model": model, **counts.to_json()} for model, counts in _sums(rows, "model").items()],
        "agents": [{"agent_id": agent, **counts.to_json()} for agent, counts in _sums(rows, "agent_id").items()],
        "rows": [
            {
                "day": row.day,
                "session_id": row.session_id,
                "model": row.model,
                "agent_id": row.agent_id,
                **row.counts.to_json(),
            }
            for row in rows
        ],
    }


def usage_to_text(rows: Sequence[DailyUsage]) -> str:
    """Return a table with a line for each model and, for several, a total."""
    models = _sums(rows, "model")
    lines = [(visible_line(model, _NAME_CHARS), *_cells(counts)) for model, counts in models.items()]
    if len(models) > 1:
        lines.append(("total", *_cells(DailyUsage.total(rows))))
    table = [_HEADINGS, *lines]
    widths = [max(len(line[column]) for line in table) for column in range(len(_HEADINGS))]
    text = [
        "  ".join(cell.rjust(width) if column else cell.ljust(width) for column, (cell, width) in enumerate(cells))
        for cells in (list(zip(line, widths, strict=True)) for line in table)
    ]
    return "\n".join([*text, *_notes(DailyUsage.total(rows))])


def _notes(total: UsageCounts) -> Iterator[str]:
    if total.uncounted:
        yield f"{total.uncounted} calls reported no token counts"
    if total.unpriced:
        yield f"the cost of {pluralize(total.unpriced, 'call')} is not known"


def _cells(counts: UsageCounts) -> tuple[str, ...]:
    numbers = (
        counts.calls,
        counts.input_tokens,
        counts.cached_tokens,
        counts.output_tokens,
        counts.reasoning_tokens,
    )
    cost = "-" if counts.cost_usd is None else f"{counts.cost_usd:.4f}"
    return (*(f"{number:,}" for number in numbers), cost)


def _sums(rows: Sequence[DailyUsage], name: Literal["model", "agent_id"]) -> Mapping[str, UsageCounts]:
    """Return the sums of the rows by the value of that field."""
    sums: dict[str, UsageCounts] = {}
    for row in rows:
        value: str = getattr(row, name)
        sums[value] = sums.get(value, UsageCounts()) + row.counts
    return sums

"""The usage of model calls as `agx sessions` prints it: sums by model, by agent, and in total."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

from agenticx.llms.providers.resolve import is_offline
from agenticx.messages import MAIN_AGENT
from agenticx.sessions.log.usage import DailyUsage, UsageCounts
from agenticx.tools.plurals import pluralize
from agenticx.tools.visible import visible_line

__all__ = ["usage_lines", "usage_sums_to_json", "usage_to_json", "usage_to_text"]

_HEADINGS = ("calls", "input", "cached", "output", "reasoning", "cost (USD)")
_NAME_CHARS = 60


def usage_sums_to_json(rows: Sequence[DailyUsage]) -> dict[str, Any]:
    """Return the total and the sums by model and agent, with the keys of `GET /api/usage`."""
    return {
        "total": DailyUsage.total(rows).to_json(),
        "models": [{"model": model, **counts.to_json()} for model, counts in _sums(rows, "model").items()],
        "agents": [{"agent_id": agent, **counts.to_json()} for agent, counts in _sums(rows, "agent_id").items()],
    }


def usage_to_json(rows: Sequence[DailyUsage]) -> dict[str, Any]:
    """Return the sums and the rows, with the keys of `GET /api/usage`."""
    keys = [
        {"day": row.day, "session_id": row.session_id, "model": row.model, "agent_id": row.agent_id} for row in rows
    ]
    items = [{**key, **row.counts.to_json()} for key, row in zip(keys, rows, strict=True)]
    return {**usage_sums_to_json(rows), "rows": items}


def usage_lines(rows: Sequence[DailyUsage]) -> list[str]:
    """Return the usage of a session in one line, none without calls, and a line for each agent.

    The main agent has none if it made all calls.
    """
    if not rows:
        return []
    agents = _sums(rows, "agent_id")
    lines = [f"{visible_line(agent, _NAME_CHARS)}: {_summary(counts)}" for agent, counts in agents.items()]
    return [_summary(DailyUsage.total(rows)), *(lines if set(agents) != {MAIN_AGENT} else [])]


def usage_to_text(rows: Sequence[DailyUsage]) -> str:
    """Return a table with a line for each model and, for several, a total; then one of the agents.

    There is none of the agents if the main one made all calls.
    """
    total, agents = DailyUsage.total(rows), _sums(rows, "agent_id")
    tables = [*_table("model", models := _sums(rows, "model"), total), *_notes(total, models)]
    return "\n".join([*tables, "", *_table("agent", agents, total)] if set(agents) != {MAIN_AGENT} else tables)


def _table(heading: str, sums: Mapping[str, UsageCounts], total: UsageCounts) -> Iterator[str]:
    """Yield the lines of a table of sums, with the `total` of several."""
    lines = [(visible_line(name, _NAME_CHARS), *_cells(counts)) for name, counts in sums.items()]
    if len(sums) > 1:
        lines.append(("total", *_cells(total)))
    table = [(heading, *_HEADINGS), *lines]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for first, *cells in table:
        rest = [cell.rjust(width) for cell, width in zip(cells, widths[1:], strict=True)]
        yield "  ".join([first.ljust(widths[0]), *rest])


def _summary(counts: UsageCounts) -> str:
    """Return counts in words, such as `2 calls, 1,200 tokens in, 80 out, $0.0042`."""
    cost = "" if counts.cost_usd is None else f", ${counts.cost_usd:.4f}"
    tokens = f"{counts.input_tokens:,} tokens in, {counts.output_tokens:,} out"
    if counts.uncounted:
        tokens = f"at least {tokens}" if counts.has_tokens else "tokens not reported"
    return f"{pluralize(counts.calls, 'call')}, {tokens}{cost}"


def _notes(total: UsageCounts, models: Iterable[str]) -> Iterator[str]:
    yield from (f"{model} is a script and costs nothing" for model in models if is_offline(model))
    if total.uncounted:
        yield f"{pluralize(total.uncounted, 'call')} reported no token counts"
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
    if counts.calls and not counts.has_tokens:
        return (f"{counts.calls:,}", *["-"] * (len(numbers) - 1), cost)
    return (*(f"{number:,}" for number in numbers), cost)


def _sums(rows: Sequence[DailyUsage], name: Literal["model", "agent_id"]) -> Mapping[str, UsageCounts]:
    """Return the sums of the rows by the value of that field."""
    sums: dict[str, UsageCounts] = {}
    for row in rows:
        value: str = getattr(row, name)
        sums[value] = sums.get(value, UsageCounts()) + row.counts
    return sums

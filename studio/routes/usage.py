"""What was used, over HTTP: totals, by session and by day."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from datetime import date
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from agenticx.sessions.usage import Counts, Spent
from studio.problems import Problem
from studio.services import services

__all__ = ["index"]


async def index(request: Request) -> Response:
    asked = request.query_params
    rows = await services(request).store.usage(
        session_id=asked.get("session_id"), since=_day(request, "since"), until=_day(request, "until")
    )
    return JSONResponse(
        {
            "total": _json(_sum(rows)),
            "days": _by("day", rows, lambda row: row.day),
            "sessions": _by("session_id", rows, lambda row: row.session_id),
            "models": _by("model", rows, lambda row: row.model),
            "rows": [
                {"day": row.day, "session_id": row.session_id, "model": row.model} | _json(row.counts) for row in rows
            ],
        }
    )


def _by(name: str, rows: Iterable[Spent], key: Callable[[Spent], str]) -> list[dict[str, Any]]:
    groups: dict[str, list[Spent]] = {}
    for row in rows:
        groups.setdefault(key(row), []).append(row)
    return [{name: value} | _json(_sum(group)) for value, group in groups.items()]


def _sum(rows: Iterable[Spent]) -> Counts:
    return sum((row.counts for row in rows), Counts())


def _json(counts: Counts) -> dict[str, Any]:
    return {
        "calls": counts.calls,
        "input_tokens": counts.input_tokens,
        "output_tokens": counts.output_tokens,
        "cached_tokens": counts.cached_tokens,
        "reasoning_tokens": counts.reasoning_tokens,
        "cost_usd": None if counts.cost_usd is None else f"{counts.cost_usd:f}",
        "calls_without_counts": counts.uncounted,
        "calls_without_cost": counts.unpriced,
    }


def _day(request: Request, name: str) -> str | None:
    text = request.query_params.get(name)
    try:
        if text is None or (re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", text) and date.fromisoformat(text)):
            return text
    except ValueError:
        pass
    raise Problem(422, "bad_day", f"{name!r} must be a day of the calendar, such as '2026-11-21'.", field=name)

"""Token usage and cost over HTTP: totals, by day, session and model."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from datetime import date
from typing import Annotated, Any, cast

from pydantic import AfterValidator, Field
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from typing_extensions import TypedDict

from agenticx.sessions.log.usage import DailyUsage, UsageItem
from studio.http.queries import ErrorCode, RequestQuery, read_query
from studio.services import services

__all__ = ["UsageQuery", "UsageResponse", "index"]


def _validate_day(text: str) -> str:
    if re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", text) is None:
        raise ValueError("not in the form YYYY-MM-DD")
    return date.fromisoformat(text).isoformat()


_Day = Annotated[str, AfterValidator(_validate_day), Field(json_schema_extra={"format": "date"})]
_DayParameter = Annotated[_Day | None, ErrorCode("bad_day")]


class UsageQuery(RequestQuery):
    """The query of the usage report."""

    session_id: str | None = Field(None, description="Only the usage of this session.")
    since: _DayParameter = Field(None, description="The first day that is included, in UTC.")
    until: _DayParameter = Field(None, description="The last day that is included, in UTC.")


class UsageByDay(UsageItem):
    day: Annotated[str, Field(description="The day, in UTC.")]


class UsageBySession(UsageItem):
    session_id: Annotated[str, Field(description="The session.")]


class UsageByModel(UsageItem):
    model: Annotated[str, Field(description="The model.")]


class UsageByAgent(UsageItem):
    agent_id: Annotated[str, Field(description="The agent.")]


class UsageRow(UsageItem):
    day: Annotated[str, Field(description="The day, in UTC.")]
    session_id: Annotated[str, Field(description="The session.")]
    model: Annotated[str, Field(description="The model.")]
    agent_id: Annotated[str, Field(description="The agent.")]


class UsageResponse(TypedDict):
    total: Annotated[UsageItem, Field(description="The sum of all rows.")]
    days: Annotated[list[UsageByDay], Field(description="The sums by day.")]
    sessions: Annotated[list[UsageBySession], Field(description="The sums by session.")]
    models: Annotated[list[UsageByModel], Field(description="The sums by model.")]
    agents: Annotated[list[UsageByAgent], Field(description="The sums by agent.")]
    rows: Annotated[list[UsageRow], Field(description="The usage by day, session, model and agent.")]


async def index(request: Request) -> Response:
    """Sum the tokens and costs of all model calls, in total and by day, session, model and agent."""
    query = read_query(request, UsageQuery)
    catalog = services(request).store.catalog
    rows = await catalog.usage(session_id=query.session_id, since=query.since, until=query.until)
    report: UsageResponse = {
        "total": DailyUsage.total(rows).to_json(),
        "days": cast("list[UsageByDay]", _group_by("day", rows, lambda row: row.day)),
        "sessions": cast("list[UsageBySession]", _group_by("session_id", rows, lambda row: row.session_id)),
        "models": cast("list[UsageByModel]", _group_by("model", rows, lambda row: row.model)),
        "agents": cast("list[UsageByAgent]", _group_by("agent_id", rows, lambda row: row.agent_id)),
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
    return JSONResponse(report)


def _group_by(name: str, rows: Iterable[DailyUsage], key: Callable[[DailyUsage], str]) -> list[dict[str, Any]]:
    groups: dict[str, list[DailyUsage]] = {}
    for row in rows:
        groups.setdefault(key(row), []).append(row)
    return [{name: value, **DailyUsage.total(group).to_json()} for value, group in groups.items()]

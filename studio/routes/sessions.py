"""Sessions over HTTP: create, list, show, change, forget, and what was said in them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import Field
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from agenticx.clocks import rfc3339
from agenticx.errors import AgenticXError, SessionNotFound, ToolError
from agenticx.sessions.base import SessionRecord
from agenticx.sessions.transcript import transcript
from agenticx.tools.permissions import PermissionMode
from studio.bodies import Body, read_body
from studio.problems import Problem
from studio.services import Services, services

__all__ = [
    "NewSession",
    "SessionChanges",
    "change",
    "check_model",
    "create",
    "delete",
    "index",
    "messages",
    "show",
]

_PAGE = 50
_LARGEST_PAGE = 200
_EVENTS_AT_ONCE = 10_000
_TOOLS = 500


class NewSession(Body):
    """All optional: the settings say what is missing."""

    name: str | None = Field(None, max_length=200)
    model: str | None = Field(None, max_length=200)
    permission_mode: PermissionMode | None = None
    workspace: str | None = Field(None, max_length=4096)
    tools: list[str] | None = Field(None, max_length=_TOOLS)


class SessionChanges(Body):
    """What is given is changed; null sets name, model and tools back to their defaults."""

    name: str | None = Field(None, max_length=200)
    model: str | None = Field(None, max_length=200)
    permission_mode: PermissionMode = "default"
    tools: list[str] | None = Field(None, max_length=_TOOLS)
    pinned: bool = False
    archived: bool = False


async def create(request: Request) -> Response:
    studio, body = services(request), await read_body(request, NewSession)
    check_model(studio, body.model)
    record = SessionRecord(
        name=body.name,
        model=body.model,
        permission_mode=body.permission_mode or studio.settings.permission_mode,
        workspace=str(_workspace(studio, body.workspace)),
        tools=_tools(studio, body.tools) if body.tools is not None else studio.settings.enabled_tools,
        created_at=rfc3339(studio.clock.now()),
    )
    await studio.store.create(record)
    return JSONResponse(_json(studio, record), 201, headers={"Location": f"/api/sessions/{record.id}"})


async def index(request: Request) -> Response:
    studio, asked = services(request), request.query_params
    limit, before = _limit(asked.get("limit")), asked.get("before")
    await _check_before(studio, before)
    records = await studio.store.sessions(query=asked.get("q"), limit=limit, before=before)
    return JSONResponse({"sessions": [_json(studio, record) for record in records]})


async def show(request: Request) -> Response:
    studio = services(request)
    return JSONResponse(_json(studio, await studio.store.get(request.path_params["session_id"])))


async def change(request: Request) -> Response:
    studio, session_id = services(request), request.path_params["session_id"]
    body = await read_body(request, SessionChanges)
    check_model(studio, body.model)
    changes = body.model_dump(exclude_unset=True)
    if body.tools is not None:
        changes["tools"] = _tools(studio, body.tools)
    record = await (studio.hub.change(session_id, changes) if changes else studio.store.get(session_id))
    return JSONResponse(_json(studio, record))


async def delete(request: Request) -> Response:
    await services(request).hub.delete(request.path_params["session_id"])
    return Response(status_code=204)


async def messages(request: Request) -> Response:
    studio, session_id = services(request), request.path_params["session_id"]
    events = list(await studio.store.read(session_id, 0, _EVENTS_AT_ONCE))
    while more := await studio.store.read(session_id, events[-1].seq if events else 0, _EVENTS_AT_ONCE):
        events += more
    return JSONResponse({"messages": transcript(events)})


# --- what a field may hold --------------------------------------------------------------------------------------------


def check_model(studio: Services, name: str | None) -> None:
    """Raises `Problem` when no model has that name."""
    try:
        studio.models.named(name)
    except AgenticXError as exc:
        raise Problem(422, "unknown_model", str(exc), field="model") from exc


def _tools(studio: Services, names: list[str]) -> tuple[str, ...]:
    try:
        return studio.toolbox.only(names).names
    except ToolError as exc:
        raise Problem(422, "unknown_tool", str(exc), field="tools") from exc


def _workspace(studio: Services, given: str | None) -> Path:
    path = studio.workspace if given is None else Path(given)
    resolved = _folder(path)
    if resolved is None:
        sentence = f"{str(path)!r} is not a folder; give the absolute path of one that exists and may be entered."
        raise Problem(422, "bad_workspace", sentence, field="workspace")
    if resolved.is_relative_to(studio.settings.home.resolve()):
        sentence = f"{str(path)!r} lies in AGX_HOME, where the server keeps its token; choose another folder."
        raise Problem(422, "bad_workspace", sentence, field="workspace")
    return resolved


def _folder(path: Path) -> Path | None:
    """The folder that an absolute path leads to, if it does and we may look."""
    if "\0" in str(path) or not path.is_absolute():
        return None
    try:
        resolved = path.resolve()
        return resolved if resolved.is_dir() else None
    except (OSError, RuntimeError):  # forbidden, too long; links that go in circles
        return None


def _limit(text: str | None) -> int:
    if text is None:
        return _PAGE
    if not (text.isascii() and text.isdigit() and len(text) < 4 and 1 <= int(text) <= _LARGEST_PAGE):
        sentence = f"'limit' must be a whole number from 1 to {_LARGEST_PAGE}."
        raise Problem(422, "bad_limit", sentence, field="limit")
    return int(text)


async def _check_before(studio: Services, session_id: str | None) -> None:
    try:
        if session_id is not None:
            await studio.store.get(session_id)
    except SessionNotFound:
        sentence = "'before' must be the id of a session that there is."
        raise Problem(422, "bad_before", sentence, field="before") from None


def _json(studio: Services, record: SessionRecord) -> dict[str, Any]:
    return {
        "id": record.id,
        "name": record.name,
        "model": record.model,
        "permission_mode": record.permission_mode,
        "workspace": record.workspace,
        "tools": None if record.tools is None else list(record.tools),
        "pinned": record.pinned,
        "archived": record.archived,
        "created_at": record.created_at,
        "running_turn_id": studio.hub.running_turn(record.id),
    }

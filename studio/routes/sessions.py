"""Sessions over HTTP: create, list, search, show, change, delete."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, fields, replace
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal, NotRequired, cast

from pydantic import AfterValidator, BeforeValidator, Field
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from typing_extensions import TypedDict

from agenticx.errors import (
    AgentConfigError,
    AgenticXError,
    ResourcesExhausted,
    SessionNotFound,
    ToolError,
    UnknownAgent,
)
from agenticx.messages import clean_text
from agenticx.permissions.verdict import PermissionMode
from agenticx.resource_exhaustion import raise_if_exhausted
from agenticx.sessions.history.turn_list import read_last_outcomes
from agenticx.sessions.hub.session_fields import (
    MAX_NAME_CHARS,
    MAX_PROMPT_BYTES,
    check_agent_name,
    check_model_name,
    check_name,
    check_system_prompt,
)
from agenticx.sessions.log.damage import DamagedData
from agenticx.sessions.log.events import StoredEvent, decode
from agenticx.sessions.log.session_record import SessionRecord
from agenticx.sessions.store.base import ArchivedFilter, ListedSession, SessionLog
from agenticx.teams.configured.errors import TeamConfigError, UnknownTeam
from agenticx.threads import run_in_thread
from agenticx.tools.agents_files import agents_file_names
from studio.http.bodies import RequestBody, read_body
from studio.http.problems import Problem
from studio.http.queries import ErrorCode, RequestQuery, WholeNumber, read_query
from studio.services import Services, services

__all__ = [
    "ChangeSessionBody",
    "CreateSessionBody",
    "FolderListResponse",
    "InstructionsResponse",
    "ModelName",
    "SessionListQuery",
    "SessionListResponse",
    "SessionResponse",
    "change",
    "check_model",
    "create",
    "delete",
    "folders",
    "index",
    "instructions",
    "session_json",
    "session_status",
    "show",
    "vault_ids",
    "workspace_folder",
]

_MAX_TOOLS = 500
_MAX_VAULTS = 100
_MAX_BODY_BYTES = 512 * 1024  # a system prompt with each character escaped
_ARCHIVED: dict[str, ArchivedFilter] = {"false": "without", "true": "only", "all": "with"}

_SearchWords = Annotated[str, BeforeValidator(str.strip), Field(max_length=500)]


class SessionListQuery(RequestQuery):
    """The query of the list of sessions."""

    q: Annotated[_SearchWords | None, ErrorCode("bad_query")] = Field(
        None, description="Words that the name or a message must contain."
    )
    limit: WholeNumber = Field(50, ge=1, le=200, description="The maximum number of sessions.")
    before: str | None = Field(
        None, description="Continue after the session with this id, the last one of the previous page."
    )
    archived: Literal["true", "false", "all"] = Field(
        "false", description="Archived sessions: left out (`false`), included (`all`), or they alone (`true`)."
    )


_SystemPrompt = Annotated[str, Field(max_length=MAX_PROMPT_BYTES), AfterValidator(check_system_prompt)]
_Name = Annotated[str, Field(max_length=MAX_NAME_CHARS), AfterValidator(check_name)]
_AgentName = Annotated[str, Field(min_length=1, max_length=MAX_NAME_CHARS), AfterValidator(check_agent_name)]
ModelName = Annotated[str, Field(min_length=1, max_length=MAX_NAME_CHARS), AfterValidator(check_model_name)]


class CreateSessionBody(RequestBody):
    """The fields of a new session; the settings supply those that are missing.

    With a `client_session_id` the request can be repeated without a second session.
    """

    max_bytes = _MAX_BODY_BYTES

    name: _Name | None = Field(None, description="The name; null: the first message supplies it.")
    model: ModelName | None = Field(None, description="The model; null: the default.")
    permission_mode: PermissionMode | None = Field(None, description="The permission mode; null: that of the settings.")
    workspace: str | None = Field(
        None, max_length=4096, description="The absolute path of a folder, or one in `~`; null: that of the settings."
    )
    tools: list[str] | None = Field(
        None, max_length=_MAX_TOOLS, description="The names of tools; null: those of the settings, or all."
    )
    vaults: list[str] | None = Field(None, max_length=_MAX_VAULTS, description="Ids or names; null: all vaults.")
    system_prompt: _SystemPrompt | None = Field(None, description="The system prompt; null: the usual one.")
    team: str | None = Field(None, max_length=64, description="The configured team that the session's turns run.")
    agent: _AgentName | None = Field(
        None, description="The agent that answers: one of the application, else one of a file (`GET /api/agents`)."
    )
    client_session_id: str | None = Field(
        None, min_length=1, max_length=200, description="An id that the client makes for the session."
    )


class ChangeSessionBody(RequestBody):
    """The fields to change; null resets name, model, tools, vaults, prompt and agent to their defaults.

    A workspace is changed while no turn runs or waits, and ends what was allowed for the session.
    """

    max_bytes = _MAX_BODY_BYTES

    name: _Name | None = Field(None, description="The name.")
    model: ModelName | None = Field(None, description="The model.")
    permission_mode: PermissionMode = Field("default", description="The permission mode.")
    tools: list[str] | None = Field(None, max_length=_MAX_TOOLS, description="The names of tools; null: all.")
    vaults: list[str] | None = Field(None, max_length=_MAX_VAULTS, description="Ids or names; null: all vaults.")
    system_prompt: _SystemPrompt | None = Field(None, description="The system prompt; null: the usual one.")
    agent: _AgentName | None = Field(None, description="The agent that answers; null: the main one.")
    workspace: str = Field("", max_length=4096, description="The absolute path of a folder, or one in `~`.")
    pinned: bool = Field(False, description="true: the session is listed before others.")
    archived: bool = Field(False, description="true: the session is not listed unless it is asked for.")


class _SessionFields(TypedDict):
    """The fields of a session, wherever it is returned."""

    id: Annotated[str, Field(description="The id of the session.")]
    name: Annotated[str | None, Field(description="The name; null if it has none yet.")]
    model: Annotated[str | None, Field(description="The model; null: the default.")]
    permission_mode: Annotated[PermissionMode, Field(description="The permission mode.")]
    workspace: Annotated[str, Field(description="The absolute path of the workspace.")]
    tools: Annotated[list[str] | None, Field(description="The names of its tools; null: all.")]
    vaults: Annotated[list[str] | None, Field(description="The ids of its vaults; null: all.")]
    team: Annotated[str | None, Field(description="The team that its turns run; null: none.")]
    agent: Annotated[str | None, Field(description="The agent that answers; null: the main one.")]
    pinned: Annotated[bool, Field(description="true: the session is listed before others.")]
    archived: Annotated[bool, Field(description="true: the session is archived.")]
    forked_from: Annotated[str | None, Field(description="The session that it is a fork of; null: none.")]
    created_at: Annotated[str, Field(description="The time at which it was made, in RFC 3339, UTC.")]
    updated_at: Annotated[str, Field(description="The time of its last event, in RFC 3339, UTC.")]
    state: Annotated[
        Literal["idle", "running", "waiting"],
        Field(description="`waiting`: a turn has asked the user something; `running`: one has not ended."),
    ]
    waiting: Annotated[int, Field(description="The number of confirmations and questions without an answer.")]
    running_turn_id: Annotated[str | None, Field(description="The turn that runs; null: none.")]
    running_since: Annotated[
        str | None,
        Field(
            description="The time at which that turn began, or the oldest one of its sub-agents if only these work, in "
            "RFC 3339, UTC; null: none runs."
        ),
    ]
    last_outcome: Annotated[
        str | None,
        Field(description="The reason or code with which its last turn ended; null: none has, or it is long ago."),
    ]
    cost_usd: Annotated[str | None, Field(description="What its model calls cost in USD; null if that is not known.")]


class SessionResponse(_SessionFields):
    """A session; `updated_at` is the time of its last event (RFC 3339, UTC).

    Its `state` is `waiting` while a turn of it, also one of a sub-agent, has asked the user something, and `running`
    while one has not ended. A sub-agent can work on after the turn that began it: `running_turn_id` is null then, and
    `POST …/stop` stops it. Null means: no name yet, the default model, all tools, all vaults, the main agent, no team,
    the usual system prompt, not forked from another session, no running turn.
    """

    system_prompt: Annotated[str | None, Field(description="The system prompt; null: the usual one.")]


class InstructionsResponse(TypedDict):
    """The AGENTS.md files whose text is in the system prompt, relative to the workspace, the nearest last.

    ` (cut)` follows the name of one that is too long to be used whole, ` (left out: …)` that of one that is not used.
    """

    files: Annotated[list[str], Field(description="The paths of the files.")]


class SearchMatchItem(TypedDict):
    """A line with a match, split at the found text; `message_id` is null for the session's name.

    `GET /api/sessions/{session_id}/turns?message_id=` has the turn of the message, with its cursors.
    """

    message_id: Annotated[
        str | None, Field(description="The message with the line; null: the line is the name of the session.")
    ]
    role: Annotated[str, Field(description="Who wrote the message; `name` for the name of the session.")]
    before: Annotated[str, Field(description="The text before the found one.")]
    found: Annotated[str, Field(description="The found text.")]
    after: Annotated[str, Field(description="The text after the found one.")]


class SessionItem(_SessionFields):
    """A session in a list, without its system prompt; with `q` it has the matches of the search."""

    matches: NotRequired[Annotated[list[SearchMatchItem], Field(description="The places that the search has found.")]]


class FolderItem(TypedDict):
    """A folder that is the workspace of sessions."""

    path: Annotated[str, Field(description="The absolute path of the folder.")]
    sessions: Annotated[int, Field(description="The number of these sessions, among the newest 200.")]


class FolderListResponse(TypedDict):
    default: Annotated[str, Field(description="The folder of a session that is created without one.")]
    home: Annotated[str, Field(description="The home folder of the user who runs the server.")]
    folders: Annotated[list[FolderItem], Field(description="The folders, that of the newest session first.")]


class SessionListResponse(TypedDict):
    sessions: Annotated[list[SessionItem], Field(description="The sessions, the pinned ones first, then the newest.")]


async def create(request: Request) -> Response:
    """Create a session; each message to one with a `team` is the task of a run of that configured team.

    One with an `agent` of a file has its prompt, and its model and tools unless the body names others. A request that
    repeats a `client_session_id` is answered with the session that the first one made, as it is now, until that is
    deleted.
    """
    studio, body = services(request), await read_body(request, CreateSessionBody)
    await check_model(studio, body.model)
    workspace = workspace_folder(studio, body.workspace)
    tools = None if body.tools is None else _tool_names(studio, body.tools)
    vaults = None if body.vaults is None else await vault_ids(studio, body.vaults)
    try:
        record = await studio.hub.create(
            name=body.name,
            model=body.model,
            permission_mode=body.permission_mode,
            workspace=workspace,
            tools=tools,
            vaults=vaults,
            system_prompt=body.system_prompt,
            agent=body.agent,
            team=body.team,
            client_session_id=body.client_session_id,
        )
    except UnknownTeam as exc:
        raise Problem("unknown_team", str(exc), field="team") from exc
    except TeamConfigError as exc:
        raise Problem("bad_team", str(exc), field="team") from exc
    except UnknownAgent as exc:
        raise Problem("unknown_agent", str(exc), field="agent") from exc
    except AgentConfigError as exc:
        raise Problem("bad_agent", str(exc), field="agent") from exc
    status = None if body.client_session_id is None else await session_status(studio, record)
    return JSONResponse(session_json(record, status), 201, headers={"Location": f"/api/sessions/{record.id}"})


async def index(request: Request) -> Response:
    """List the sessions, the pinned ones first; with `q`, those that mention it, with the places found.

    Names and messages are searched, with the questions of the agent and their answers, in Chinese and Japanese for
    words from one character on.
    """
    studio, query = services(request), read_query(request, SessionListQuery)
    limit, before, archived = query.limit, query.before, _ARCHIVED[query.archived]
    await _check_before(studio, before)
    listed = await studio.hub.sessions(query=query.q or None, limit=limit, before=before, archived=archived)
    running = {one.id: one.running_turn_id for one in listed}
    statuses = await _statuses(studio, running, await studio.store.catalog.open_requests())
    return JSONResponse(SessionListResponse(sessions=[_item(one, statuses[one.id]) for one in listed]))


def _item(listed: ListedSession, status: _SessionStatus) -> SessionItem:
    item: SessionItem = {**_fields_json(_encodable(listed.record), status)}
    if listed.matches:
        item["matches"] = [cast("SearchMatchItem", asdict(excerpt)) for excerpt in listed.matches]
    return item


async def show(request: Request) -> Response:
    studio = services(request)
    return await _session_response(studio, await studio.store.catalog.get(request.path_params["session_id"]))


async def _session_response(studio: Services, record: SessionRecord) -> Response:
    return JSONResponse(session_json(record, await session_status(studio, record)))


async def change(request: Request) -> Response:
    """Change fields of a session; a running turn asks by the new mode at once, model and agent are the next turn's.

    The event `session_changed` has the new values.
    """
    studio, session_id = services(request), request.path_params["session_id"]
    body = await read_body(request, ChangeSessionBody)
    await check_model(studio, body.model)
    changes = body.model_dump(exclude_unset=True)
    if body.tools is not None:
        changes["tools"] = _tool_names(studio, body.tools)
    if "workspace" in changes:
        changes["workspace"] = str(workspace_folder(studio, body.workspace))
    if body.vaults is not None:
        changes["vaults"] = await vault_ids(studio, body.vaults)
    record = await (studio.hub.change(session_id, changes) if changes else studio.store.catalog.get(session_id))
    return await _session_response(studio, record)


async def instructions(request: Request) -> Response:
    studio = services(request)
    workspace = Path((await studio.store.catalog.get(request.path_params["session_id"])).workspace)
    files = await run_in_thread(agents_file_names, workspace, studio.settings.private_paths, name="agx instructions")
    return JSONResponse(InstructionsResponse(files=files))


async def folders(request: Request) -> Response:
    """List the folders of the newest 200 sessions that exist on this machine, to choose one for a new session."""
    studio = services(request)
    listed = await studio.hub.sessions(limit=200, archived="with")
    records = sorted((one.record for one in listed), key=lambda record: record.created_at, reverse=True)
    counts = Counter(record.workspace for record in records)  # in the order of their newest sessions
    existing = await run_in_thread(_existing_folders, list(counts), name="agx folders")
    items: list[FolderItem] = [{"path": clean_text(path), "sessions": counts[path]} for path in existing]
    home = await run_in_thread(_home_folder, name="agx folders")
    default = clean_text(str(studio.workspace))
    return JSONResponse(FolderListResponse(default=default, home=home, folders=items))


def _home_folder() -> str:
    return clean_text(os.path.realpath(os.path.expanduser("~")))


def _existing_folders(paths: Sequence[str]) -> list[str]:
    return [path for path in paths if Path(path).is_dir()]


async def delete(request: Request) -> Response:
    """Stop the session's turn and erase the session, with its usage records."""
    await services(request).hub.delete(request.path_params["session_id"])
    return Response(status_code=204)


# --- validation of fields ---------------------------------------------------------------------------------------------


async def check_model(studio: Services, name: str | None, *, field: str = "model") -> None:
    """Raise `Problem` for `field` if no model has that name or its key is missing; keys stored until now count."""
    await studio.models.refresh()
    try:
        studio.models.get(name)
    except ResourcesExhausted:
        raise
    except AgenticXError as exc:
        raise Problem("unknown_model", str(exc), field=field) from exc


def _tool_names(studio: Services, names: list[str]) -> tuple[str, ...]:
    try:
        return studio.notes.with_tools(studio.toolbox).only(names).names
    except ToolError as exc:
        raise Problem("unknown_tool", str(exc), field="tools") from exc


async def vault_ids(studio: Services, names: list[str]) -> tuple[str, ...]:
    """Return the ids of vaults by their ids or names; raises `UnknownVault`."""
    return tuple([(await studio.vaults.find(name)).record.id for name in names])


def workspace_folder(studio: Services, folder: str | None) -> Path:
    """Return a folder with `~` and all links resolved, by default that of new sessions; raise `Problem` for none."""
    path = studio.workspace if folder is None else Path(os.path.expanduser(folder))
    resolved = _resolve_folder(path)
    if resolved is None:
        sentence = f"{str(path)!r} is not a folder; give the absolute path of one that exists and can be read."
        raise Problem("bad_workspace", sentence, field="workspace")
    if resolved.is_relative_to(studio.settings.home.resolve()):
        sentence = f"{str(path)!r} lies in AGX_HOME, where the server keeps its token; choose another folder."
        raise Problem("bad_workspace", sentence, field="workspace")
    return resolved


def _resolve_folder(path: Path) -> Path | None:
    """Return the folder that an absolute path resolves to, or None if there is none or it cannot be read."""
    if "\0" in str(path) or not path.is_absolute():
        return None
    try:
        resolved = path.resolve()
        return resolved if resolved.is_dir() else None
    except (OSError, RuntimeError) as exc:  # forbidden, too long; a loop of symbolic links
        raise_if_exhausted(exc)
        return None


async def _check_before(studio: Services, session_id: str | None) -> None:
    try:
        if session_id is not None:
            await studio.store.catalog.get(session_id)
    except SessionNotFound:
        sentence = "'before' must be the id of an existing session."
        raise Problem("bad_before", sentence, field="before") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class _SessionStatus:
    """The fields of a session that change with its turns."""

    updated_at: str = ""
    running_turn_id: str | None = None
    running_since: str | None = None
    is_working: bool = False
    waiting: int = 0
    last_outcome: str | None = None
    cost: Decimal | None = None

    @property
    def state(self) -> Literal["idle", "running", "waiting"]:
        if self.waiting:  # perhaps by a sub-agent whose turn goes on after the session's turn
            return "waiting"
        return "running" if self.running_turn_id is not None or self.is_working else "idle"


async def session_status(studio: Services, record: SessionRecord) -> _SessionStatus:
    """Return the status of a session as it is stored now."""
    running = {record.id: await studio.hub.current_turn_id(record.id)}
    statuses = await _statuses(studio, running, await studio.store.catalog.open_requests(record.id))
    return statuses[record.id]


async def _statuses(
    studio: Services, running: Mapping[str, str | None], open_requests: Sequence[StoredEvent]
) -> dict[str, _SessionStatus]:
    """Return the statuses of sessions, by their ids, as `running` has their running turns."""
    log = studio.store.log
    waiting = Counter(event.session_id for event in open_requests)
    events, costs = await log.last_events(running.keys()), await studio.store.catalog.costs(running.keys())
    working = await studio.store.catalog.working_sessions([id_ for id_, turn_id in running.items() if turn_id is None])
    begins = {id_: turn_id or working.get(id_) for id_, turn_id in running.items()}
    since = {id_: await _begin_of(log, id_, turn_id) for id_, turn_id in begins.items() if turn_id is not None}
    outcomes = await read_last_outcomes(log, events.values())
    times = dict[str, str]()
    for session_id, event in events.items():
        with suppress(DamagedData):  # it must not hide the list of all sessions
            times[session_id] = decode(event).ts
    return {
        session_id: _SessionStatus(
            updated_at=times.get(session_id, ""),
            running_turn_id=turn_id,
            running_since=since.get(session_id),
            is_working=session_id in working,
            waiting=waiting[session_id],
            last_outcome=outcomes.get(session_id),
            cost=costs.get(session_id),
        )
        for session_id, turn_id in running.items()
    }


async def _begin_of(log: SessionLog, session_id: str, turn_id: str) -> str | None:
    """Return the time of a turn's first event; None if that is not stored, or the session is deleted or damaged."""
    with suppress(SessionNotFound, DamagedData):
        turn = await log.turn(session_id, turn_id)
        if turn is not None and turn.after_seq is not None:
            for event in await log.read(session_id, turn.after_seq, 1):
                return decode(event).ts
    return None


def session_json(record: SessionRecord, status: _SessionStatus | None = None) -> SessionResponse:
    """Return a session as clients read it; without a status, one that was just made."""
    record = _encodable(record)
    fields_json = _fields_json(record, status or _SessionStatus())
    return {**fields_json, "system_prompt": record.system_prompt}


def _fields_json(record: SessionRecord, status: _SessionStatus) -> _SessionFields:
    return {
        "id": record.id,
        "name": record.name,
        "model": record.model,
        "permission_mode": record.permission_mode,
        "workspace": record.workspace,
        "tools": None if record.tools is None else list(record.tools),
        "vaults": None if record.vaults is None else list(record.vaults),
        "team": record.team,
        "agent": record.agent_name,
        "pinned": record.pinned,
        "archived": record.archived,
        "forked_from": record.forked_from,
        "created_at": record.created_at,
        "updated_at": max(status.updated_at, record.created_at),  # a fork has older events
        "state": status.state,
        "waiting": status.waiting,
        "running_turn_id": status.running_turn_id,
        "running_since": status.running_since,
        "last_outcome": status.last_outcome,
        "cost_usd": None if status.cost is None else f"{status.cost:f}",
    }


def _encodable(record: SessionRecord) -> SessionRecord:
    """Return the record without lone surrogates: the name of a folder can have them."""
    texts = {one.name: value for one in fields(record) if isinstance(value := getattr(record, one.name), str)}
    lists = {name: value for name in ("tools", "vaults") if (value := getattr(record, name)) is not None}
    changes: dict[str, Any] = {name: clean_text(text) for name, text in texts.items()}
    return replace(record, **changes, **{name: tuple(map(clean_text, value)) for name, value in lists.items()})

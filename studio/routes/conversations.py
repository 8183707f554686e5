"""The messages of a session over HTTP: list, export, fork and rewind."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import AsyncGenerator
from dataclasses import asdict
from typing import Any, Literal, NotRequired

from pydantic import Field
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from typing_extensions import TypedDict

from agenticx.clocks import rfc3339
from agenticx.errors import StoreError
from agenticx.logs import get_logger
from agenticx.messages import ToolOutcome
from agenticx.runtime.events.payloads import Citation
from agenticx.sessions.history.export import export_jsonl, export_markdown
from agenticx.sessions.history.fork import fork as fork_session
from agenticx.sessions.history.transcript import read_last_messages, read_messages
from studio.http.bodies import RequestBody, read_body
from studio.http.contents import disposition
from studio.http.queries import RequestQuery, WholeNumber, newest_page, read_query
from studio.http.response_writer import ABORT_KEY
from studio.routes.sessions import session_json, session_status
from studio.services import services

__all__ = [
    "ContextResponse",
    "ExportQuery",
    "ForkBody",
    "MessageListQuery",
    "MessageListResponse",
    "RewindBody",
    "RewindResponse",
    "context",
    "export",
    "fork",
    "messages",
    "rewind",
]

_log = get_logger(__name__)


class ExportQuery(RequestQuery):
    """The query of an export."""

    format: Literal["jsonl", "markdown"] = Field(
        "jsonl",
        description="`jsonl`: every event as it was sent, one per line; `markdown`: the conversation for a reader.",
    )
    after: WholeNumber = Field(
        0, ge=0, description="With `jsonl`: only the events after the one with this `seq`, to read what is new."
    )


class MessageListQuery(RequestQuery):
    """The query of the messages of a session."""

    limit: WholeNumber | None = Field(
        None, ge=1, le=500, description="The maximum number of messages, the newest ones; by default all."
    )
    before: str | None = Field(
        None, description="Only messages before the one with this id, the first one of the page that was read last."
    )


class ForkBody(RequestBody):
    """The last message of the new session; by default the last message of this one."""

    message_id: str | None = Field(None, max_length=200)


class RewindBody(RequestBody):
    """The message that becomes the session's last one, also one of an earlier branch; null: before the first one."""

    message_id: str | None = Field(max_length=200)


class ContextLayerItem(TypedDict):
    """The size of a layer in characters, and the SHA-256 of its text."""

    layer: str
    characters: int
    sha256: str


class ContextResponse(TypedDict):
    """The layers of a session's next request, from L1 System to L5 Raw, and the tools of the request.

    `context_window` is the model's, in tokens; null if it is not known.
    """

    layers: list[ContextLayerItem]
    tools: ContextLayerItem
    messages: int
    context_window: int | None


class AttachmentItem(TypedDict):
    """A file; `size` is in bytes, `sha256` its digest in GET /api/sessions/{session_id}/attachments/{digest}."""

    name: str
    media_type: str
    size: int
    sha256: str


class ToolCallItem(TypedDict):
    """A tool call as the model made it; arguments that are not JSON are the raw string."""

    id: str
    name: str
    arguments: Any


class CitationItem(Citation):
    """A citation of an answer, as its event `citation` has it: of a note in a vault, or of a page with a URL."""


class MessageItem(TypedDict):
    """A message that begins at the time `created_at` (RFC 3339, UTC).

    `sender` is the name of the participant of a team who said it, or made its calls. The result of the call
    `tool_call_id` has the call's `outcome`. A message in the role of the user that the server wrote is `injected`: a
    notice with parts from the named `sources`, or the option that the user `picked`.
    """

    message_id: str
    role: Literal["user", "assistant", "tool"]
    content: str
    created_at: str
    attachments: NotRequired[list[AttachmentItem]]
    injected: NotRequired[bool]
    sources: NotRequired[list[str]]
    picked: NotRequired[int]
    tool_calls: NotRequired[list[ToolCallItem]]
    tool_call_id: NotRequired[str]
    outcome: NotRequired[ToolOutcome]
    is_error: NotRequired[bool]
    citations: NotRequired[list[CitationItem]]
    sender: NotRequired[str]


class MessageListResponse(TypedDict):
    """Messages of a session in order, each text once; `has_more` says that there are earlier ones than these."""

    messages: list[MessageItem]
    has_more: bool


class RewoundFileItem(TypedDict):
    """The outcome for a file that the agent had changed; `reason` says why its old content was not restored.

    `path` is relative to the workspace, and absolute for a note in a vault outside of it.
    """

    path: str
    outcome: Literal["restored", "removed", "unchanged", "left"]
    reason: str | None


class RewindUndo(TypedDict):
    """The body of the rewind request that undoes this one."""

    message_id: str | None


class RewindResponse(TypedDict):
    """The result of a rewind; `rewound_to` is null for the beginning, before any message."""

    rewound_to: str | None
    undo: RewindUndo
    files: list[RewoundFileItem]


async def context(request: Request) -> Response:
    """Return the sizes of the session's next request, to explain a large prompt.

    They are for the conversation as it is stored now, without the next message of the user (L5) and the notes found for
    it.
    """
    studio = services(request)
    upcoming = await studio.hub.next_request(request.path_params["session_id"])
    from agenticx.core.context import standing_context  # on first use: it imports the parser of notes

    session = upcoming.session
    sizes = standing_context(upcoming.system_prompt, session.messages, session.state).sizes()
    tools = json.dumps([asdict(tool) for tool in upcoming.tools])
    found: ContextResponse = {
        "layers": [{"layer": size.layer, "characters": size.characters, "sha256": size.sha256} for size in sizes],
        "tools": {
            "layer": "Tools",
            "characters": len(tools),
            "sha256": hashlib.sha256(tools.encode()).hexdigest(),
        },
        "messages": len(session.messages),
        "context_window": upcoming.window,
    }
    return JSONResponse(found)


async def messages(request: Request) -> Response:
    """List the messages of the conversation: all of them, or the newest ones, and then those before them.

    Messages that a rewind has left behind are not part of it.
    """
    query = read_query(request, MessageListQuery)
    log, session_id = services(request).store.log, request.path_params["session_id"]
    if query.limit is None:
        listed = await read_messages(log, session_id)
    else:
        listed = await read_last_messages(log, session_id, query.limit, before=query.before)
    page, has_more = newest_page(
        listed,
        before=query.before,
        limit=query.limit,
        id_of=lambda message: message["message_id"],
        listed_as="a message that GET /api/sessions/{session_id}/messages lists",
    )
    rows: list[str] = []
    for message in page:
        rows.append(json.dumps(message, separators=(",", ":")))
        await asyncio.sleep(0)  # a long conversation must not block the event loop
    return Response(
        f'{{"messages":[{",".join(rows)}],"has_more":{json.dumps(has_more)}}}', media_type="application/json"
    )


async def fork(request: Request) -> Response:
    """Continue from a message in a new session with the conversation up to it; the files stay as they are."""
    studio, session_id = services(request), request.path_params["session_id"]
    body = await read_body(request, ForkBody)
    now = rfc3339(studio.clock.now())
    record = await fork_session(studio.store, session_id, body.message_id, now=now)
    response = session_json(record, await session_status(studio, record))
    return JSONResponse(response, 201, headers={"Location": f"/api/sessions/{record.id}"})


async def rewind(request: Request) -> Response:
    """Continue from an earlier message in this session, with the files as they were then.

    The files that the agent's file tools changed since are restored, or removed if they were created. A file that
    somebody else changed in the meantime is left unchanged, and reported with the reason. Post the `undo` of the
    response to revert the rewind.
    """
    studio, session_id = services(request), request.path_params["session_id"]
    body = await read_body(request, RewindBody)
    result = await studio.hub.rewind(session_id, body.message_id)
    files: list[RewoundFileItem] = [
        {"path": file.shown, "outcome": file.outcome, "reason": file.reason} for file in result.files
    ]
    response: RewindResponse = {"rewound_to": result.rewound_to, "undo": {"message_id": result.undo}, "files": files}
    return JSONResponse(response)


async def export(request: Request) -> Response:
    """Download a session: its events, one per line, or its conversation as text."""
    studio, session_id = services(request), request.path_params["session_id"]
    record = await studio.store.catalog.get(session_id)
    query = read_query(request, ExportQuery)
    match query.format:
        case "jsonl":
            lines = export_jsonl(studio.store.log, session_id, query.after)
            first = await anext(lines, b"")  # before the response starts: an error can still have a status
            content, headers = _stream_or_abort(request, first, lines), disposition("attachment", f"{session_id}.jsonl")
            return StreamingResponse(content, headers=headers, media_type="application/jsonl")
        case "markdown":
            text = await export_markdown(studio.store.log, record)
            return Response(text, headers=disposition("attachment", f"{session_id}.md"), media_type="text/markdown")


async def _stream_or_abort(request: Request, first: bytes, rest: AsyncGenerator[bytes]) -> AsyncGenerator[bytes]:
    """Yield `first` and `rest`; abort the connection if the storage fails, so that a part is not taken for all."""
    yield first
    try:
        async for lines in rest:
            yield lines
    except StoreError as exc:
        _log.error("export cut off", session=request.path_params["session_id"], reason=str(exc))
        if (abort := request.scope.get(ABORT_KEY)) is None:
            raise  # another server aborts the connection then
        abort()

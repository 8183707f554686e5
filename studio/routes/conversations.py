"""The messages of a session over HTTP: list, export, fork and rewind."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import AsyncGenerator
from dataclasses import asdict
from typing import Annotated, Any, Literal, NotRequired

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
from agenticx.sessions.history.transcript import read_last_messages
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

    limit: WholeNumber = Field(100, ge=1, le=500, description="The maximum number of messages, the newest ones.")
    before: str | None = Field(
        None, description="Only messages before the one with this id, the first one of the page that was read last."
    )


class ForkBody(RequestBody):
    """The last message of the new session; by default the last message of this one."""

    message_id: str | None = Field(None, max_length=200, description="The last message that the new session has.")


class RewindBody(RequestBody):
    """The message that becomes the session's last one, also one of an earlier branch; null: before the first one."""

    message_id: str | None = Field(
        max_length=200, description="The message that becomes the last one; null: none is left."
    )


class ContextLayerItem(TypedDict):
    """The size of a layer in characters, and the SHA-256 of its text."""

    layer: Annotated[str, Field(description="The name of the layer.")]
    characters: Annotated[int, Field(description="The length of its text.")]
    sha256: Annotated[str, Field(description="The SHA-256 of its text, in hex.")]


class ContextResponse(TypedDict):
    """The layers of a session's next request, from L1 System to L5 Raw, and the tools of the request.

    `context_window` is the model's, in tokens; null if it is not known.
    """

    layers: Annotated[list[ContextLayerItem], Field(description="The layers, in the order of the request.")]
    tools: Annotated[ContextLayerItem, Field(description="The schemas of the tools.")]
    messages: Annotated[int, Field(description="The number of messages of the conversation.")]
    context_window: Annotated[
        int | None, Field(description="The context window of the model in tokens; null if it is not known.")
    ]


class AttachmentItem(TypedDict):
    """A file; `size` is in bytes, `sha256` its digest in GET /api/sessions/{session_id}/attachments/{digest}."""

    name: Annotated[str, Field(description="The name of the file.")]
    media_type: Annotated[str, Field(description="Its media type.")]
    size: Annotated[int, Field(description="Its size in bytes.")]
    sha256: Annotated[str, Field(description="Its digest, in hex.")]


class ToolCallItem(TypedDict):
    """A tool call as the model made it; arguments that are not JSON are the raw string."""

    id: Annotated[str, Field(description="The id of the call, unique in the session.")]
    name: Annotated[str, Field(description="The name of the tool.")]
    arguments: Annotated[Any, Field(description="The arguments; the raw string if they are not JSON.")]


class CitationItem(Citation):
    """A citation of an answer, as its event `citation` has it: of a note in a vault, or of a page with a URL."""


class MessageItem(TypedDict):
    """A message that begins at the time `created_at` (RFC 3339, UTC).

    `sender` is the name of the participant of a team who said it, or made its calls. The result of the call
    `tool_call_id` has the call's `outcome`. A message in the role of the user that the server wrote is `injected`: a
    notice with parts from the named `sources`, or the option that the user `picked`.
    """

    message_id: Annotated[str, Field(description="The id of the message, unique in the session.")]
    role: Annotated[
        Literal["user", "assistant", "tool"],
        Field(description="Who wrote the message; `tool`: it is the result of a call."),
    ]
    content: Annotated[str, Field(description="The text of the message.")]
    created_at: Annotated[str, Field(description="The time at which the message began, in RFC 3339, UTC.")]
    attachments: NotRequired[Annotated[list[AttachmentItem], Field(description="The files of a message of the user.")]]
    injected: NotRequired[Annotated[bool, Field(description="true: the server wrote the message.")]]
    sources: NotRequired[Annotated[list[str], Field(description="The texts of others that an injected message has.")]]
    picked: NotRequired[Annotated[int, Field(description="The number of the option that the user picked.")]]
    tool_calls: NotRequired[
        Annotated[list[ToolCallItem], Field(description="The calls of a message of the assistant.")]
    ]
    tool_call_id: NotRequired[Annotated[str, Field(description="The call that the message is the result of.")]]
    outcome: NotRequired[Annotated[ToolOutcome, Field(description="How the call ended.")]]
    is_error: NotRequired[Annotated[bool, Field(description="true: the call failed.")]]
    citations: NotRequired[
        Annotated[list[CitationItem], Field(description="The citations of an answer, in the order of their markers.")]
    ]
    sender: NotRequired[Annotated[str, Field(description="The participant of a team that wrote the message.")]]


class MessageListResponse(TypedDict):
    """Messages of a session in order, each text once; `has_more` says that there are earlier ones than these."""

    messages: Annotated[list[MessageItem], Field(description="The messages, oldest first.")]
    has_more: Annotated[bool, Field(description="true: there are earlier messages.")]


class RewoundFileItem(TypedDict):
    """The outcome for a file that the agent had changed; `reason` says why its old content was not restored.

    `path` is relative to the workspace, and absolute for a note in a vault outside of it.
    """

    path: Annotated[str, Field(description="The path of the file.")]
    outcome: Annotated[
        Literal["restored", "removed", "unchanged", "left"], Field(description="What the rewind did with the file.")
    ]
    reason: Annotated[
        str | None, Field(description="Why its old content was not restored; null if it was, or did not have to be.")
    ]


class RewindUndo(TypedDict):
    """The body of the rewind request that undoes this one."""

    message_id: Annotated[str | None, Field(description="The message that was the last one.")]


class RewindResponse(TypedDict):
    """The result of a rewind; `rewound_to` is null for the beginning, before any message."""

    rewound_to: Annotated[str | None, Field(description="The message that is the last one now; null: there is none.")]
    undo: Annotated[RewindUndo, Field(description="The body of the request that undoes the rewind.")]
    files: Annotated[list[RewoundFileItem], Field(description="The files that the agent has changed since.")]


async def context(request: Request) -> Response:
    """Return the sizes of the session's next request, to explain a large prompt.

    They are for the conversation as it is stored now, without the next message of the user (L5) and the notes found for
    it.
    """
    studio = services(request)
    upcoming = await studio.hub.next_request(request.path_params["session_id"])
    from agenticx.core.context_envelope import standing_context  # on first use: it imports the parser of notes

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
    """List the newest messages of the conversation, or those before them; `…/export` has all of a session.

    Messages that a rewind has left behind are not part of it.
    """
    query = read_query(request, MessageListQuery)
    log, session_id = services(request).store.log, request.path_params["session_id"]
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

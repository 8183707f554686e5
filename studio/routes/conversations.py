"""What was said in a session over HTTP: read it, take it along, go on from an earlier place."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from typing import Any, Literal, NotRequired

from pydantic import Field
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from typing_extensions import TypedDict

from agenticx.clocks import rfc3339
from agenticx.errors import StoreError
from agenticx.logs import get_logger
from agenticx.sessions.base import Store
from agenticx.sessions.exporting import as_jsonl, as_markdown
from agenticx.sessions.forking import fork as fork_session
from agenticx.sessions.transcript import read_messages
from agenticx.threads import run_in_thread
from studio.bodies import Body, read_body
from studio.openapi import Parameter
from studio.pieces import ABORT
from studio.problems import Problem
from studio.routes.sessions import session_json
from studio.services import services

__all__ = ["QUERY", "Fork", "Messages", "Rewind", "Rewound", "export", "fork", "messages", "rewind"]

QUERY = (
    Parameter(
        "format",
        "`jsonl`: every event as it was sent, one a line; `markdown`: the conversation, to be read.",
        {"enum": ["jsonl", "markdown"], "default": "jsonl"},
    ),
)

_EVENTS_AT_ONCE = 1_000

_log = get_logger(__name__)


class Fork(Body):
    """The last message that the new session has; by default the last there is."""

    message_id: str | None = Field(None, max_length=200)


class Rewind(Body):
    """The message that is the last one from then on, of those there are or were; null: begin anew."""

    message_id: str | None = Field(max_length=200)


class AttachedFile(TypedDict):
    name: str
    media_type: str
    size: int


class CalledTool(TypedDict):
    """A call as the model made it; arguments that do not parse are the raw string."""

    id: str
    name: str
    arguments: Any


class Message(TypedDict):
    message_id: str
    role: Literal["user", "assistant", "tool"]
    content: str
    attachments: NotRequired[list[AttachedFile]]
    tool_calls: NotRequired[list[CalledTool]]
    tool_call_id: NotRequired[str]


class Messages(TypedDict):
    """Each text once, in the order in which it was said."""

    messages: list[Message]


class RewoundFile(TypedDict):
    """What became of a file that the agent had changed; `reason` says why it is not as it was then."""

    path: str
    outcome: Literal["restored", "removed", "unchanged", "left"]
    reason: str | None


class Undo(TypedDict):
    """The body of the rewind that takes this one back."""

    message_id: str | None


class Rewound(TypedDict):
    """Null stands for the beginning, before any message."""

    rewound_to: str | None
    undo: Undo
    files: list[RewoundFile]


async def messages(request: Request) -> Response:
    rows: list[str] = []
    for message in await read_messages(services(request).store, request.path_params["session_id"]):
        rows.append(json.dumps(message, separators=(",", ":")))
        await asyncio.sleep(0)  # a long conversation holds nobody else up
    return Response(f'{{"messages":[{",".join(rows)}]}}', media_type="application/json")


async def fork(request: Request) -> Response:
    studio, session_id = services(request), request.path_params["session_id"]
    body = await read_body(request, Fork)
    now = rfc3339(studio.clock.now())
    record = await fork_session(studio.store, session_id, body.message_id, now=now, snapshots=studio.snapshots)
    return JSONResponse(session_json(studio, record), 201, headers={"Location": f"/api/sessions/{record.id}"})


async def rewind(request: Request) -> Response:
    studio, session_id = services(request), request.path_params["session_id"]
    body = await read_body(request, Rewind)
    done = await studio.hub.rewind(session_id, body.message_id)
    files: list[RewoundFile] = [
        {"path": file.path, "outcome": file.outcome, "reason": file.reason} for file in done.files
    ]
    rewound: Rewound = {"rewound_to": done.rewound_to, "undo": {"message_id": done.undo}, "files": files}
    return JSONResponse(rewound)


async def export(request: Request) -> Response:
    studio, session_id = services(request), request.path_params["session_id"]
    record = await studio.store.get(session_id)
    match request.query_params.get("format", "jsonl"):
        case "jsonl":
            last = await studio.store.last_seq(session_id)
            lines = _lines(studio.store, session_id, last)
            first = await anext(lines, b"")  # what cannot be read can still be told
            whole = _or_cut_off(request, first, lines)
            return StreamingResponse(whole, headers=_file(f"{session_id}.jsonl"), media_type="application/jsonl")
        case "markdown":
            text = await run_in_thread(as_markdown, record, await read_messages(studio.store, session_id))
            return Response(text, headers=_file(f"{session_id}.md"), media_type="text/markdown")
        case _:
            raise Problem(422, "bad_format", "'format' must be 'jsonl' or 'markdown'.", field="format")


async def _lines(store: Store, session_id: str, last: int) -> AsyncGenerator[bytes]:
    """The log up to `last`, so that a session that goes on does not keep the file from ending."""
    seq = 0
    while seq < last:
        events = await store.read(session_id, seq, min(_EVENTS_AT_ONCE, last - seq))
        yield as_jsonl(events)
        seq = events[-1].seq


async def _or_cut_off(request: Request, first: bytes, rest: AsyncGenerator[bytes]) -> AsyncGenerator[bytes]:
    """`first` and `rest`; where the storage fails in between the connection is cut: no part passes for the whole."""
    yield first
    try:
        async for lines in rest:
            yield lines
    except StoreError as exc:
        _log.error("an export was cut off", session=request.path_params["session_id"], reason=str(exc))
        request.scope[ABORT]()


def _file(name: str) -> dict[str, str]:
    return {"Content-Disposition": f'attachment; filename="{name}"'}

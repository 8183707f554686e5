"""Turns over HTTP: begin one, end the one that runs."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Sequence
from typing import Annotated, Literal, NotRequired

from pydantic import AfterValidator, Field
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from typing_extensions import TypedDict

from agenticx.attachments import MAX_ATTACHMENTS, MAX_TOTAL_BYTES, Attachment, make_attachment
from agenticx.errors import AttachmentRefused, AttachmentTooLarge
from agenticx.sessions.posting import Submission, TurnRequest, WhenBusy
from agenticx.threads import run_sized
from studio.bodies import LARGE_BODY_BYTES, Body, read_body
from studio.problems import Problem
from studio.routes.sessions import ModelName, check_model
from studio.services import services

__all__ = ["Accepted", "NewAttachment", "NewTurn", "Stop", "Stopped", "start", "stop"]


_INPUT_CHARS = 4_000_000


def _printable(name: str) -> str:
    if not name.isprintable():
        raise ValueError("a file's name is one line of printable characters")
    return name


class NewAttachment(Body):
    """An image, a PDF or a text file in base64; what it is shows in its content. `media_type` tells kinds of text."""

    name: Annotated[str, Field(min_length=1, max_length=255), AfterValidator(_printable)]
    media_type: str | None = Field(None, max_length=200)
    data: str


class NewTurn(Body):
    """One message of the person. `client_turn_id` makes sending it again harmless.

    `when_busy` says what becomes of it while a turn runs: 409 (`reject`), a turn of its own behind that one (`queue`)
    or in its stead (`interrupt`), or a part of it (`steer`).
    """

    max_bytes = LARGE_BODY_BYTES + MAX_TOTAL_BYTES * 4 // 3  # attachments come as base64

    input: str = Field(min_length=1, max_length=_INPUT_CHARS)
    attachments: list[NewAttachment] = Field(default_factory=list[NewAttachment], max_length=MAX_ATTACHMENTS)
    client_turn_id: str | None = Field(None, min_length=1, max_length=200)
    model: ModelName | None = None
    when_busy: WhenBusy = "reject"


class Stop(Body):
    """Nothing to say."""


class Accepted(TypedDict):
    """A turn that began, to be read behind `cursor`; a message that waits or was handed back, with its `state`; or,
    with a `message_id` and no cursor, one that steers the running turn.
    """

    turn_id: str
    cursor: NotRequired[str]
    state: NotRequired[Literal["queued", "handed_back"]]
    message_id: NotRequired[str | None]


class Stopped(TypedDict):
    """The turn that was told to end, if one ran."""

    turn_id: str | None


async def start(request: Request) -> Response:
    studio, session_id = services(request), request.path_params["session_id"]
    body = await read_body(request, NewTurn)
    check_model(studio, body.model)
    size = sum(len(given.data) for given in body.attachments)
    wanted = TurnRequest(
        input=body.input,
        attachments=await run_sized(_attachments, body.attachments, size=size, name="agx attachments"),
        client_turn_id=body.client_turn_id,
        model=body.model,
        when_busy=body.when_busy,
    )
    posted = await studio.hub.submit(session_id, wanted)
    cursor = studio.relay.cursor(session_id, posted.after_seq)
    if _wants_events(request):
        return await studio.relay.respond(session_id, cursor, of_turn=posted.turn.id)
    return JSONResponse(_told(posted, cursor), 202)


async def stop(request: Request) -> Response:
    await read_body(request, Stop)
    turn = await services(request).hub.stop(request.path_params["session_id"])
    stopped: Stopped = {"turn_id": None if turn is None else turn.id}
    return JSONResponse(stopped, 202)


def _told(posted: Submission, cursor: str) -> Accepted:
    """Where to read on, and what became of a message that did not begin its turn at once."""
    match posted.state:
        case "started":
            return {"turn_id": posted.turn.id, "cursor": cursor}
        case "steered":
            return {"turn_id": posted.turn.id, "message_id": posted.message_id}
        case "queued" | "handed_back":
            return {"turn_id": posted.turn.id, "cursor": cursor, "state": posted.state}


def _attachments(given: Sequence[NewAttachment]) -> tuple[Attachment, ...]:
    return tuple(_attachment(index, one) for index, one in enumerate(given))


def _attachment(index: int, given: NewAttachment) -> Attachment:
    """Raises `Problem`: 413 over a limit, 422 not base64 or of no type that is let in."""
    field = f"attachments.{index}.data"
    try:
        return make_attachment(given.name, b64decode(given.data, validate=True), given.media_type)
    except AttachmentTooLarge as exc:
        raise Problem(413, "attachment_too_large", f"{exc}.", field=field) from exc
    except AttachmentRefused as exc:
        raise Problem(422, "attachment_refused", f"{exc}.", field=field) from exc
    except ValueError as exc:
        raise Problem(422, "invalid_body", f"{field!r} must be base64.", field=field) from exc


def _wants_events(request: Request) -> bool:
    media_types = ",".join(request.headers.getlist("accept")).lower().split(",")
    return any(media_type.partition(";")[0].strip() == "text/event-stream" for media_type in media_types)

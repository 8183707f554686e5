"""The waiting messages of a session over HTTP: listed, edited, sent now, removed."""

from __future__ import annotations

from typing import Annotated, Literal, NotRequired

from pydantic import Field
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from typing_extensions import TypedDict

from studio.http.bodies import LARGE_BODY_BYTES, MAX_TEXT_CHARS, RequestBody, read_body
from studio.http.problems import Problem
from studio.routes.conversations import AttachmentItem
from studio.services import services

__all__ = ["ChangeQueuedBody", "QueueResponse", "QueuedItem", "change", "index", "remove"]


class ChangeQueuedBody(RequestBody):
    """The new text of a waiting message, or another time at which it is read."""

    max_bytes = LARGE_BODY_BYTES

    input: str | None = Field(None, min_length=1, max_length=MAX_TEXT_CHARS, description="The new text.")
    when_busy: Literal["steer", "interrupt"] | None = Field(
        None,
        description="`steer`: the running turn gives it to the model before its next call; `interrupt`: the running "
        "turn is stopped, and the message begins the next one.",
    )


class QueuedItem(TypedDict):
    """A message that waits."""

    message_id: Annotated[str, Field(description="The id of the message.")]
    turn_id: Annotated[str, Field(description="The turn that it will begin, or that is to receive it.")]
    state: Annotated[Literal["queued", "steered"], Field(description="`steered`: the running turn is to receive it.")]
    input: Annotated[str, Field(description="The text of the message.")]
    client_turn_id: NotRequired[Annotated[str, Field(description="The id that the client gave to the message.")]]
    attachments: NotRequired[Annotated[list[AttachmentItem], Field(description="The files of the message.")]]


class QueueResponse(TypedDict):
    messages: Annotated[list[QueuedItem], Field(description="The waiting messages, in the order of their arrival.")]


async def index(request: Request) -> Response:
    """List the messages that wait for the running turn, or for its next round."""
    messages = await services(request).hub.queue(request.path_params["session_id"])
    return JSONResponse({"messages": messages})


async def change(request: Request) -> Response:
    """Edit a message that waits, or have it read now; the event `queued` says so with the same `message_id`.

    A message that no turn can take in any more stays queued. A 404 means that it has begun its turn, was taken into one
    or was removed.
    """
    body = await read_body(request, ChangeQueuedBody)
    if body.input is None and body.when_busy is None:
        raise Problem("invalid_body", "Give 'input', 'when_busy' or both.")
    message = await services(request).hub.change_queued(**_ids(request), text=body.input, when_busy=body.when_busy)
    return JSONResponse(message)


async def remove(request: Request) -> Response:
    """Remove a message that waits; the event `handed_back` says so, with `removed`. A 404 as for a change."""
    await services(request).hub.remove_queued(**_ids(request))
    return Response(status_code=204)


def _ids(request: Request) -> dict[str, str]:
    return {name: request.path_params[name] for name in ("session_id", "message_id")}

"""Sub-agents of a session over HTTP: their states; cancelling, retrying and messages."""

from __future__ import annotations

from typing import Annotated, Literal, NotRequired

from pydantic import Field
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from typing_extensions import TypedDict

from studio.http.bodies import LARGE_BODY_BYTES, MAX_TEXT_CHARS, RequestBody, read_body
from studio.services import services

__all__ = [
    "CancelSubagentBody",
    "MessageSubagentBody",
    "RetrySubagentBody",
    "SubagentItem",
    "SubagentListResponse",
    "cancel",
    "index",
    "message",
    "retry",
]


class CancelSubagentBody(RequestBody):
    """An empty object."""


class RetrySubagentBody(RequestBody):
    """A retry of a sub-agent; with a `client_turn_id` the request can be repeated without a second turn."""

    client_turn_id: str | None = Field(
        None, min_length=1, max_length=200, description="An id that the client makes for the retry."
    )


class MessageSubagentBody(RequestBody):
    """A message to a sub-agent; with a `client_message_id` the request can be repeated without a second message."""

    max_bytes = LARGE_BODY_BYTES

    text: str = Field(min_length=1, max_length=MAX_TEXT_CHARS, pattern=r"\S", description="The message.")
    client_message_id: str | None = Field(
        None, min_length=1, max_length=200, description="An id that the client makes for the message."
    )


class SubagentItem(TypedDict):
    """A sub-agent of a session.

    `state` is that of its latest run, and `code` says why it ended with an error. `parent_agent_id` is the agent that
    started it, at `depth` 0 the main one. `activity` is its latest call, and `waits_for_user` is there while a
    confirmation or a question of it is open.
    """

    agent_id: Annotated[str, Field(description="The id of the sub-agent, unique in the session.")]
    state: Annotated[
        Literal["queued", "running", "paused", "completed", "error"], Field(description="How its latest run stands.")
    ]
    rounds: Annotated[int, Field(description="The number of its rounds.")]
    task: Annotated[str, Field(description="Its task.")]
    parent_agent_id: Annotated[str | None, Field(description="The agent that started it; null: none did.")]
    depth: Annotated[int, Field(description="The number of agents above it.")]
    code: NotRequired[Annotated[str, Field(description="The code of the error with which it ended.")]]
    waits_for_user: NotRequired[Annotated[bool, Field(description="true: it has asked the user something.")]]
    activity: NotRequired[Annotated[str, Field(description="Its latest round and call.")]]


class SubagentListResponse(TypedDict):
    subagents: Annotated[list[SubagentItem], Field(description="The sub-agents, in the order of their starts.")]


async def index(request: Request) -> Response:
    """List the sub-agents of a session, in the order of their starts."""
    states = await services(request).hub.subagents(request.path_params["session_id"])
    return JSONResponse({"subagents": states})


async def cancel(request: Request) -> Response:
    """Stop a sub-agent and its sub-agents; its turn still ends with its terminal event. No effect if it has ended."""
    await read_body(request, CancelSubagentBody)
    return JSONResponse(await services(request).hub.cancel_subagent(**_ids(request)), 202)


async def retry(request: Request) -> Response:
    """Have a sub-agent that has ended begin its task anew, with an empty conversation.

    Messages that it has not heard follow the task. A second request with the same `client_turn_id` has no effect, and
    is a 409 if it names another sub-agent.
    """
    body = await read_body(request, RetrySubagentBody)
    state = await services(request).hub.retry_subagent(**_ids(request), client_turn_id=body.client_turn_id)
    return JSONResponse(state, 202)


async def message(request: Request) -> Response:
    """Send a message to a sub-agent: one at work gets it with its next model call, one that has ended goes on with it.

    One that is being stopped ends first. The conversation of one that has ended goes on also after a restart. A second
    request with the same `client_message_id` has no effect.
    """
    body = await read_body(request, MessageSubagentBody)
    state = await services(request).hub.message_subagent(
        **_ids(request), text=body.text, client_message_id=body.client_message_id
    )
    return JSONResponse(state, 202)


def _ids(request: Request) -> dict[str, str]:
    """Return the ids of the path."""
    return {name: request.path_params[name] for name in ("session_id", "agent_id")}

"""The base class of chat agents."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextvars import Context, copy_context
from typing import Any, TypeVar, cast

from agenticx import user_code
from agenticx.argument_types import check_str, check_type
from agenticx.call_errors import explain_calls
from agenticx.teams.actors.cancellation import CancellationToken
from agenticx.teams.actors.context import MessageContext
from agenticx.teams.actors.errors import CantHandleException
from agenticx.teams.agents.protocols import ChatAgent, TaskInput, task_messages
from agenticx.teams.messages import (
    BaseAgentEvent,
    BaseChatMessage,
    ModelClientStreamingChunkEvent,
    Response,
    TaskResult,
    TextMessage,
)

__all__ = ["BaseChatAgent"]

ItemT = TypeVar("ItemT")


class BaseChatAgent(ChatAgent):
    """An agent that answers messages: in a team, alone by `run`, or as an actor of a message runtime.

    It keeps the messages that it was sent, so each call passes only new messages. A model that chooses the next speaker
    reads `description`. Raises ValueError if `name` is not an identifier, TypeError if `description` is not a text.
    """

    def __init__(self, name: str, description: str) -> None:
        check_str("name", name)
        check_str("description", description)
        if not name.isidentifier():
            raise ValueError(f"the name of an agent must be an identifier, such as 'code_writer', not {name!r}")
        self._name = name
        self._description = description

    @property
    def name(self) -> str:
        return self._name

    @property
    def description(self) -> str:
        return self._description

    @property
    def produced_message_types(self) -> Sequence[type[BaseChatMessage]]:
        """The types of the messages that the agent answers with: texts, unless a subclass says otherwise."""
        return (TextMessage,)

    @abstractmethod
    async def on_messages(self, messages: Sequence[BaseChatMessage], cancellation_token: CancellationToken) -> Response:
        """Answer the messages that are new since the last call; there may be none."""
        ...

    async def on_messages_stream(
        self, messages: Sequence[BaseChatMessage], cancellation_token: CancellationToken
    ) -> AsyncGenerator[BaseAgentEvent | BaseChatMessage | Response, None]:
        """Answer as `on_messages` does and yield the messages on the way, then the `Response`."""
        response = await self._response(messages, cancellation_token)
        for message in response.inner_messages or ():
            yield message
        yield response

    async def on_reset(self, cancellation_token: CancellationToken) -> None:
        """Return to the state in which the agent was made; an agent without state has nothing to do."""
        return

    async def on_pause(self, cancellation_token: CancellationToken) -> None:
        """Pause work; called while the agent may be at work."""
        return

    async def on_resume(self, cancellation_token: CancellationToken) -> None:
        """Resume work after `on_pause`."""
        return

    async def save_state(self) -> Mapping[str, Any]:
        """Return the state as a JSON mapping, empty for an agent without state."""
        return {}

    async def load_state(self, state: Mapping[str, Any]) -> None:
        """Load what `save_state` returned."""
        return

    async def close(self) -> None:
        """Release resources."""
        return

    async def on_message(self, message: BaseChatMessage, ctx: MessageContext) -> Response:
        """Answer one message of a message runtime; raises `CantHandleException` if it is not a chat message."""
        if not isinstance(cast("object", message), BaseChatMessage):
            raise CantHandleException(f"{self.name!r} answers chat messages, not a {type(message).__name__}")
        return await self._response([message], ctx.cancellation_token)

    async def _response(self, messages: Sequence[BaseChatMessage], token: CancellationToken) -> Response:
        """Return the response of `on_messages`; raise `TypeError` for anything else."""
        response = await self.on_messages(messages, token)
        check_type(f"the result of on_messages of {self.name!r}", response, Response, "a Response")
        return response

    @explain_calls
    async def run_stream(
        self,
        *,
        task: TaskInput = None,
        cancellation_token: CancellationToken | None = None,
        output_task_messages: bool = True,
    ) -> AsyncGenerator[BaseAgentEvent | BaseChatMessage | TaskResult, None]:
        """Answer a task and yield the messages as they come, then the `TaskResult`.

        The task is text, a chat message, a list of them, or None to go on. Raises ValueError for another task,
        CancelledError within 200 ms after the token was cancelled, and what the agent raises.
        """
        given, token = self._task_messages(task), cancellation_token or CancellationToken()
        messages: list[BaseAgentEvent | BaseChatMessage] = []
        token.raise_if_cancelled()
        if output_task_messages:
            messages += given
            for message in given:
                yield message
                token.raise_if_cancelled()
        stream = self.on_messages_stream(given, token)
        context = copy_context()
        try:
            while (item := await _next_item(stream, token, context)) is not None:
                message = item.chat_message if isinstance(item, Response) else item
                if not isinstance(message, ModelClientStreamingChunkEvent):
                    messages.append(message)
                yield message
                token.raise_if_cancelled()
        finally:
            if not getattr(stream, "ag_running", False):  # else it ignores its cancellation
                await stream.aclose()
        yield TaskResult(messages=messages)

    def _task_messages(self, task: TaskInput) -> list[BaseChatMessage]:
        """Return the messages of a task; raises ValueError."""
        return task_messages(task)


async def _next_item(stream: AsyncGenerator[ItemT, None], token: CancellationToken, context: Context) -> ItemT | None:
    """Return the next item, None at the end; raises CancelledError soon after a cancellation that the agent ignores."""
    step = asyncio.create_task(_anext(stream), context=context)
    cancelled = token.link_future(asyncio.get_running_loop().create_future())
    try:
        await asyncio.wait({step, cancelled}, return_when=asyncio.FIRST_COMPLETED)
        token.raise_if_cancelled()
        return step.result()
    finally:
        cancelled.cancel()
        if not step.done():
            await user_code.abandon(step, "agent")


async def _anext(stream: AsyncGenerator[ItemT, None]) -> ItemT | None:
    return await anext(stream, None)

"""The base class of chat agents."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any

from agenticx.teams.actors.cancellation import CancellationToken
from agenticx.teams.actors.context import MessageContext
from agenticx.teams.agents.protocols import ChatAgent, TaskInput
from agenticx.teams.agents.tasks import task_messages
from agenticx.teams.messages import (
    BaseAgentEvent,
    BaseChatMessage,
    ModelClientStreamingChunkEvent,
    Response,
    TaskResult,
)

__all__ = ["BaseChatAgent"]


class BaseChatAgent(ChatAgent):
    """An agent that answers messages: in a team, alone by `run`, or as an actor of a message runtime.

    It keeps what it was sent: each call gives it what is new. `name` must be an identifier, else ValueError;
    `description` is what a model reads that chooses the next speaker.
    """

    def __init__(self, name: str, description: str) -> None:
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
    @abstractmethod
    def produced_message_types(self) -> Sequence[type[BaseChatMessage]]:
        """The types of the messages that the agent answers with."""
        ...

    @abstractmethod
    async def on_messages(self, messages: Sequence[BaseChatMessage], cancellation_token: CancellationToken) -> Response:
        """Answer the messages that are new since the last call, which may be none."""
        ...

    async def on_messages_stream(
        self, messages: Sequence[BaseChatMessage], cancellation_token: CancellationToken
    ) -> AsyncGenerator[BaseAgentEvent | BaseChatMessage | Response, None]:
        """Answer as `on_messages` does and yield the messages on the way, then the `Response`."""
        response = await self.on_messages(messages, cancellation_token)
        for message in response.inner_messages or ():
            yield message
        yield response

    @abstractmethod
    async def on_reset(self, cancellation_token: CancellationToken) -> None:
        """Return to the state in which the agent was made."""
        ...

    async def on_pause(self, cancellation_token: CancellationToken) -> None:
        """Pause work; called while the agent may be at work."""
        return

    async def on_resume(self, cancellation_token: CancellationToken) -> None:
        """Resume work after `on_pause`."""
        return

    async def save_state(self) -> Mapping[str, Any]:
        """Return the state as a JSON mapping; that of an agent without state is empty."""
        return {}

    async def load_state(self, state: Mapping[str, Any]) -> None:
        """Load what `save_state` returned."""
        return

    async def close(self) -> None:
        """Release resources."""
        return

    async def on_message(self, message: BaseChatMessage, ctx: MessageContext) -> Response:
        """Answer one message of a message runtime."""
        return await self.on_messages([message], ctx.cancellation_token)

    async def run_stream(
        self,
        *,
        task: TaskInput = None,
        cancellation_token: CancellationToken | None = None,
        output_task_messages: bool = True,
    ) -> AsyncGenerator[BaseAgentEvent | BaseChatMessage | TaskResult, None]:
        """Answer a task and yield the messages as they come, then the `TaskResult`.

        The task is text, a chat message, a list of them, or None to go on. Raises ValueError for another task,
        CancelledError if the token is cancelled, and what the agent raises.
        """
        given = task_messages(task)
        token = cancellation_token or CancellationToken()
        messages: list[BaseAgentEvent | BaseChatMessage] = []
        if output_task_messages:
            messages += given
            for message in given:
                yield message
        stream = self.on_messages_stream(given, token)
        try:
            async for item in stream:
                message = item.chat_message if isinstance(item, Response) else item
                if not isinstance(message, ModelClientStreamingChunkEvent):
                    messages.append(message)
                yield message
        finally:
            await stream.aclose()
        yield TaskResult(messages=messages)

"""The protocols of a participant and of a team, and the messages of a task that either runs."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import Any, Protocol, TypeVar, cast, runtime_checkable

from agenticx.call_errors import explain_calls
from agenticx.teams.actors.cancellation import CancellationToken
from agenticx.teams.messages import BaseAgentEvent, BaseChatMessage, Response, TaskResult, TextMessage

__all__ = ["ChatAgent", "TaskInput", "Team", "first_of", "task_messages"]

ItemT = TypeVar("ItemT")

TaskInput = str | BaseChatMessage | Sequence[BaseChatMessage] | None


def task_messages(task: TaskInput) -> list[BaseChatMessage]:
    """Return the messages of a task: none for None; ValueError for an empty list and for anything else."""
    if task is None:
        return []
    if isinstance(task, str):
        return [TextMessage(content=task)]
    if isinstance(task, BaseChatMessage):
        return [task]
    if not isinstance(cast("object", task), Sequence):
        raise ValueError(f"a task must be text, a chat message or a list of these messages, not {type(task).__name__}")
    if not task:
        raise ValueError("Task list cannot be empty")
    if not all(isinstance(cast("object", message), BaseChatMessage) for message in task):
        raise ValueError("All messages in task list must be valid BaseChatMessage types")
    return list(task)


class _Runnable(Protocol):
    """A runner of tasks, with a state that can be saved at any moment as a JSON mapping."""

    @property
    def name(self) -> str: ...
    @property
    def description(self) -> str: ...
    def run_stream(
        self,
        *,
        task: TaskInput = None,
        cancellation_token: CancellationToken | None = None,
        output_task_messages: bool = True,
    ) -> AsyncGenerator[BaseAgentEvent | BaseChatMessage | TaskResult, None]: ...
    @explain_calls
    async def run(
        self,
        *,
        task: TaskInput = None,
        cancellation_token: CancellationToken | None = None,
        output_task_messages: bool = True,
    ) -> TaskResult:
        """Run as `run_stream` does and return its result.

        The result has the messages of the task, unless `output_task_messages` is False, and of the run.
        """
        stream = self.run_stream(
            task=task, cancellation_token=cancellation_token, output_task_messages=output_task_messages
        )
        return await first_of(TaskResult, stream)

    async def save_state(self) -> Mapping[str, Any]: ...
    async def load_state(self, state: Mapping[str, Any]) -> None: ...


@runtime_checkable
class ChatAgent(_Runnable, Protocol):
    """A participant that answers messages."""

    @property
    def produced_message_types(self) -> Sequence[type[BaseChatMessage]]: ...
    async def on_messages(
        self, messages: Sequence[BaseChatMessage], cancellation_token: CancellationToken
    ) -> Response: ...
    def on_messages_stream(
        self, messages: Sequence[BaseChatMessage], cancellation_token: CancellationToken
    ) -> AsyncGenerator[BaseAgentEvent | BaseChatMessage | Response, None]: ...
    async def on_reset(self, cancellation_token: CancellationToken) -> None: ...
    async def on_pause(self, cancellation_token: CancellationToken) -> None: ...
    async def on_resume(self, cancellation_token: CancellationToken) -> None: ...


@runtime_checkable
class Team(_Runnable, Protocol):
    """Participants that work on a task together."""

    async def reset(self) -> None: ...
    async def pause(self) -> None: ...
    async def resume(self) -> None: ...


async def first_of(kind: type[ItemT], stream: AsyncGenerator[object, None]) -> ItemT:
    """Return the first item of this kind and close the stream."""
    async with aclosing(stream):
        async for item in stream:
            if isinstance(item, kind):
                return item
    raise RuntimeError(f"the stream ended without a {kind.__name__}")

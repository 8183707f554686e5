"""Turns that are run as one call: `AgentRuntime.run` and `run_sync`, and the result that they return.

With an `output_type`, anything that pydantic can validate, the result has an object of that type. A message may have
files: images, PDFs and text.

    from pathlib import Path

    from pydantic import BaseModel

    from agenticx import AgentRuntime, UserMessage, load_attachment


    class City(BaseModel):
        name: str
        rivers: list[str]


    Path("lyon.txt").write_text("Lyon lies on two rivers.")
    question = 'Say {"name": "Lyon", "rivers": ["Rhône", "Saône"]}'  # the demo model returns the object in the message
    message = UserMessage(content=question, attachments=(load_attachment("lyon.txt"),))
    print(AgentRuntime("demo").run_sync(message, output_type=City).output)
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, TypedDict, TypeVar, Unpack, overload

from agenticx.errors import AgenticXError
from agenticx.llms.sampling import Sampling
from agenticx.messages import Message, UserMessage
from agenticx.runtime.events import Event
from agenticx.runtime.events.payloads import FinalUsageData
from agenticx.runtime.interrupts import StopSignal
from agenticx.runtime.session import Session, runnable_session
from agenticx.runtime.structured_output import OutputType
from agenticx.runtime.turn_context import TurnContext
from agenticx.threads import has_running_loop
from agenticx.tools.base import Tool
from agenticx.tools.registry import Toolbox

__all__ = ["RunMethods", "RunOptions", "RunResult", "TurnError", "UserInput", "own_events", "run_result", "turn_error"]

T = TypeVar("T")
OutputT = TypeVar("OutputT", covariant=True)

UserInput = str | UserMessage | Mapping[str, Any]
"""A message of the user: text, a `UserMessage`, or a dict row with role `user` as in Chat Completions."""


@dataclass(frozen=True, slots=True)
class RunResult(Generic[OutputT]):
    """The result of a turn.

    - `output` is the validated object that an `output_type` asked for (None if a call of, for example, `case_resolved`
      ended the turn without one), else the text.
    - `text` is the text of the last reply.
    - `reason` is the reason of the `final` event: `answer`; `resolved`, `not_resolved` or `handoff` after a call that
      says so; `partial` for an answer after the last round or the time limit, with AGX_ON_EXHAUSTED=partial. Without
      that setting such a turn raises `TurnError` with the code `max_rounds` or `timeout.turn`.
    - `messages` were added to the session by the turn, the user's first.
    - `usage` sums the turn's model calls; `events` includes the events of its child turns.
    - `agent` is the `Agent` that acted last, None for a turn without an `Agent`.
    - `context_variables` are the values at the end.
    """

    output: OutputT
    text: str
    reason: Literal["answer", "resolved", "not_resolved", "handoff", "partial"]
    messages: Sequence[Message]
    usage: FinalUsageData
    events: Sequence[Event] = field(repr=False)
    agent: Any = None
    context_variables: Mapping[str, Any] = field(default_factory=dict[str, Any], repr=False)


class TurnError(AgenticXError):
    """A turn that ended with a fatal error instead of an answer.

    `code` is the code of the error event, `text` the text of the last reply as far as it was received, `retryable` is
    True if the same message may succeed later, and `events` are all events of the turn.
    """

    def __init__(self, message: str, *, code: str, text: str, retryable: bool, events: Sequence[Event]) -> None:
        super().__init__(message)
        self.code = code
        self.text = text
        self.retryable = retryable
        self.events = events


class RunOptions(TypedDict, total=False):
    """Keyword arguments of `AgentRuntime.run`; see `run_turn`."""

    should_stop: StopSignal | Callable[[], bool] | None
    agent_id: str
    tools: Sequence[Tool | Callable[..., Any]] | Toolbox | None
    system_prompt: str | None
    sampling: Sampling | None
    context: TurnContext | None


class RunMethods(ABC):
    """The methods of `AgentRuntime` that run a turn as one call, over `run_turn`."""

    @abstractmethod
    def run_turn(
        self,
        user_input: UserInput,
        session: Session | None = None,
        should_stop: StopSignal | Callable[[], bool] | None = None,
        *,
        agent_id: str = ...,
        tools: Sequence[Tool | Callable[..., Any]] | Toolbox | None = None,
        system_prompt: str | None = None,
        output_type: Any = None,
        sampling: Sampling | None = None,
        context: TurnContext | None = None,
    ) -> AsyncGenerator[Event, None]: ...

    @abstractmethod
    async def aclose(self) -> None: ...

    @overload
    async def run(
        self,
        user_input: UserInput,
        session: Session | None = None,
        *,
        output_type: None = None,
        **options: Unpack[RunOptions],
    ) -> RunResult[str]: ...
    @overload
    async def run(
        self,
        user_input: UserInput,
        session: Session | None = None,
        *,
        output_type: type[T],
        **options: Unpack[RunOptions],
    ) -> RunResult[T]: ...
    @overload
    async def run(
        self, user_input: UserInput, session: Session | None = None, *, output_type: Any, **options: Unpack[RunOptions]
    ) -> RunResult[Any]: ...
    async def run(
        self,
        user_input: UserInput,
        session: Session | None = None,
        *,
        output_type: Any = None,
        **options: Unpack[RunOptions],
    ) -> RunResult[Any]:
        """Run one turn and return its result; without a `session` in a new one.

        With an `output_type`, anything that pydantic can validate, `output` of the result is an object of that type,
        else the text.
        Raises `TurnError` if the turn fails, and what `run_turn` raises before the turn begins.
        """
        session = Session() if session is None else runnable_session(session)
        output = None if output_type is None else OutputType(output_type)
        before = {message.message_id for message in session.all_messages}
        async with aclosing(self.run_turn(user_input, session, output_type=output, **options)) as turn:
            events = [event async for event in turn]
        added = [message for message in session.all_messages if message.message_id not in before]
        return run_result(events, added, output, context_variables=session.state.context_variables)

    @overload
    def run_sync(
        self,
        user_input: UserInput,
        session: Session | None = None,
        *,
        output_type: None = None,
        **options: Unpack[RunOptions],
    ) -> RunResult[str]: ...
    @overload
    def run_sync(
        self,
        user_input: UserInput,
        session: Session | None = None,
        *,
        output_type: type[T],
        **options: Unpack[RunOptions],
    ) -> RunResult[T]: ...
    @overload
    def run_sync(
        self, user_input: UserInput, session: Session | None = None, *, output_type: Any, **options: Unpack[RunOptions]
    ) -> RunResult[Any]: ...
    def run_sync(
        self,
        user_input: UserInput,
        session: Session | None = None,
        *,
        output_type: Any = None,
        **options: Unpack[RunOptions],
    ) -> RunResult[Any]:
        """Run one turn from code without an event loop, as `run` does; may be called repeatedly.

        Raises `RuntimeError` inside a running event loop.
        """
        if has_running_loop():
            raise RuntimeError("run_sync cannot be called while an event loop is running; use `await runtime.run(...)`")
        return asyncio.run(self._run_once(user_input, session, output_type, options))

    async def _run_once(
        self, user_input: UserInput, session: Session | None, output_type: Any, options: RunOptions
    ) -> RunResult[Any]:
        """Run one turn and close the model's connections on this event loop."""
        try:
            return await self.run(user_input, session, output_type=output_type, **options)
        finally:
            await self.aclose()


def run_result(
    events: Sequence[Event],
    messages: Sequence[Message],
    output: OutputType | None,
    *,
    agent: Any = None,
    context_variables: Mapping[str, Any] | None = None,
) -> RunResult[Any]:
    """Return the result of a turn with these events, whose `output` has the object that was asked for.

    Raises `TurnError` if the turn failed.
    """
    end = own_events(events)[-1]
    if end.type != "final":
        raise turn_error(events)
    data = end.data
    if output is not None and "output" not in data and data["reason"] == "partial":
        text = f"The model gave no usable {output.name}: its reply was not finished."
        raise TurnError(text, code="provider.bad_reply", text=data["text"], retryable=False, events=events)
    value = data.get("output", data["text"]) if output is None else output.value
    variables = dict(context_variables or {})
    return RunResult(value, data["text"], data["reason"], messages, data["usage"], events, agent, variables)


def own_events(events: Sequence[Event]) -> Sequence[Event]:
    """Return the events of a turn without its child turns."""
    return [event for event in events if event.turn_id == events[0].turn_id]


def turn_error(events: Sequence[Event]) -> TurnError:
    """Return the error of a turn whose last event is not `final`."""
    own = own_events(events)
    end, text = own[-1], _last_reply(own)
    if end.type == "error":
        data = end.data
        return TurnError(
            data["text"], code=data["code"], text=text, retryable=data.get("retryable", False), events=events
        )
    return TurnError(
        "The agent paused: it is out of rounds.", code="max_rounds", text=text, retryable=False, events=events
    )


def _last_reply(events: Sequence[Event]) -> str:
    """Return the text of the last reply that has any."""
    texts: dict[str, list[str]] = {}
    for event in events:
        if event.type == "token" and event.data["text"]:
            texts.setdefault(event.data["message_id"], []).append(event.data["text"])
    return "".join(list(texts.values())[-1]) if texts else ""

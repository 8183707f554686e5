"""An agent with a model and tools; each of its answers is a turn of the runtime."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

import pydantic
from pydantic import BaseModel

from agenticx import user_code
from agenticx.argument_types import check_str
from agenticx.call_errors import explain_calls
from agenticx.core.agent import Agent
from agenticx.core.handoff_tools import declared_targets
from agenticx.core.run_agents import find_parent_turn
from agenticx.errors import AgenticXError
from agenticx.messages import AssistantMessage, Message, RefusedFile, UserMessage, message_adapter, new_id
from agenticx.runtime import (
    AgentHook,
    AgentRuntime,
    Budget,
    ConfirmGate,
    HookRegistry,
    Session,
    StopSignal,
    TurnContext,
)
from agenticx.runtime.budgets.budget import checked_budget, settings_budget
from agenticx.runtime.events import Event
from agenticx.runtime.events.payloads import FinalData
from agenticx.runtime.gates.base import GateFunction, checked_gate
from agenticx.runtime.run_results import own_events, turn_error
from agenticx.runtime.structured_output import OutputType
from agenticx.runtime.turn_task import wait_for_abandoned_turn
from agenticx.settings import Settings
from agenticx.teams.actors.cancellation import CancellationToken
from agenticx.teams.agents.assistant_options import (
    agent_tools,
    check_iterations,
    check_output_content,
    checked_handoffs,
    toolbox,
)
from agenticx.teams.agents.base_chat_agent import BaseChatAgent
from agenticx.teams.agents.gates import team_gate
from agenticx.teams.agents.handoff import Handoff
from agenticx.teams.agents.messages_for_model import handoff_context, model_message
from agenticx.teams.agents.protocols import TaskInput, first_of
from agenticx.teams.agents.spending import current_budget
from agenticx.teams.agents.states import STATE_VERSION, checked_state
from agenticx.teams.agents.turn_messages import TurnMessages
from agenticx.teams.messages import (
    BaseAgentEvent,
    BaseChatMessage,
    FunctionCall,
    FunctionExecutionResult,
    HandoffMessage,
    ModelClientStreamingChunkEvent,
    Response,
    StructuredMessage,
    TextMessage,
    ToolCallSummaryMessage,
)
from agenticx.teams.replay import uncommitted_answer
from agenticx.tools.base import Tool
from agenticx.untrusted_text import MATERIAL, frame_lines, one_line

if TYPE_CHECKING:
    from agenticx.sessions.log.events import SessionEvent

__all__ = ["AssistantAgent"]

_SYSTEM_MESSAGE = (
    "You are a helpful assistant. Solve tasks using your tools. Reply with TERMINATE when the task has been completed."
)

_IDS = pydantic.TypeAdapter(set[str])

SummaryFormatter = Callable[[FunctionCall, FunctionExecutionResult], str]


@explain_calls
class AssistantAgent(BaseChatAgent):
    """An agent that answers by turns of an `AgentRuntime`, with a conversation of its own.

    `model_client` (or `llm`) is a model, a duck-typed model, or a name such as `"openai:gpt-4o"`. By default its tools
    run until the model answers. `max_tool_iterations` limits the rounds of tools: after them a summary of the last
    results is the answer, or with `reflect_on_tool_use` (the default with an `output_content_type`) what the model
    says in one more call without tools. A summary has `tool_call_summary_format` for each result, with `{tool_name}`,
    `{arguments}`, `{result}` and `{is_error}`, or what `tool_call_summary_formatter(call, result)` returns.

    Each of `handoffs` is a tool that ends the answer with a `HandoffMessage`. Its `context` has the text that the model
    wrote with its calls and the other results of the round, its metadata the `reason` that the model gave. With
    `model_client_stream` replies come in chunks too. `metadata` is added to each answer. `confirm_gate` is asked before
    risky calls, in every permission mode. The default is the gate of the team, or of the turn in which the agent
    answers; without any gate the agent works as an `AgentRuntime` without a gate. Model calls count in `budget` and in
    the budgets of the teams in which the agent speaks.

    Raises ValueError for tools and handoffs of another kind, for names that are used twice, for a
    `max_tool_iterations` below 1, and for a format with fields that the output does not have.
    """

    def __init__(
        self,
        name: str,
        model_client: Any = None,
        *,
        llm: Any = None,
        tools: Sequence[Tool | Callable[..., Any]] | None = None,
        handoffs: Sequence[Handoff | str] | None = None,
        system_message: str | None = _SYSTEM_MESSAGE,
        description: str = "An agent that provides assistance with ability to use tools.",
        model_client_stream: bool = False,
        max_tool_iterations: int | None = None,
        reflect_on_tool_use: bool | None = None,
        tool_call_summary_format: str = "{result}",
        tool_call_summary_formatter: SummaryFormatter | None = None,
        output_content_type: type[BaseModel] | None = None,
        output_content_type_format: str | None = None,
        metadata: Mapping[str, str] | None = None,
        confirm_gate: ConfirmGate | GateFunction | None = None,
        hooks: HookRegistry | Sequence[AgentHook] = (),
        budget: Budget | None = None,
        settings: Settings | None = None,
    ) -> None:
        super().__init__(name, description)
        if (model_client is None) == (llm is None):
            raise ValueError("give either model_client or its alias llm")
        if system_message is not None:
            check_str("system_message", system_message)
        check_iterations(max_tool_iterations)
        check_output_content(output_content_type, output_content_type_format)
        own = agent_tools(tools or ())
        self._handoffs = checked_handoffs(handoffs or (), own)
        self._budget = checked_budget(budget)
        self._has_tools = bool(own)
        self._streams = model_client_stream
        self._output_content_type = output_content_type
        self._output_content_type_format = output_content_type_format
        self._summary_format = tool_call_summary_format
        self._formatter = tool_call_summary_formatter
        self._metadata = dict(metadata or {})
        reflects = output_content_type is not None if reflect_on_tool_use is None else reflect_on_tool_use
        self._max_rounds = max_tool_iterations
        self._on_exhausted: Literal["partial", "answer", "summary"] = (
            "partial" if max_tool_iterations is None else "answer" if reflects else "summary"
        )
        self._own_gate = checked_gate(confirm_gate)
        self._runtime = AgentRuntime(
            model_client if llm is None else llm,
            self._own_gate,
            tools=toolbox(own, self._handoffs),
            system_prompt=system_message,
            hooks=hooks,
            settings=settings,
        )
        self._runtime.agent = replace(self._runtime.agent, confirm_gate=self._own_gate)
        self._session = Session()
        self._unanswered: set[str] = set()  # the ids of the messages since the last answer
        self._uncommitted: Sequence[Event] | None = None  # of an ended turn whose answer nobody has got yet
        self._refused_elsewhere: Sequence[RefusedFile] = ()

    @classmethod
    def of(cls, agent: Agent[Any, Any], settings: Settings | None = None) -> AssistantAgent:
        """Return a participant that answers as `agent` does, with the agent's declared handoffs to other participants.

        Raises ValueError for a name that is no identifier and an output type that is no pydantic model.
        """
        is_text, output_type = agent.output_type is None, agent.output_type
        if not (is_text or (isinstance(output_type, type) and issubclass(output_type, BaseModel))):
            raise ValueError(f"in a team the output_type of an agent is a pydantic model, not {output_type!r}")
        runtime = agent.model_copy(update={"handoffs": ()}).runtime(settings=settings)
        targets = [target if isinstance(target, str) else target.name for target in declared_targets(agent)]
        about = " ".join(filter(None, [agent.role and f"{agent.role}.", agent.goal]))
        participant = cls(
            agent.name,
            runtime.agent.model,
            tools=agent.tools,
            handoffs=targets,
            description=about or f"The agent {agent.name}.",
            output_content_type=output_type,
            settings=settings,
        )
        tools = participant._runtime.agent.tools
        participant._runtime.agent = replace(runtime.agent, tools=tools, shares_history=False, output_type=None)
        return participant

    @property
    def refused_files(self) -> Sequence[RefusedFile]:
        """The marks of files in the conversation that a model refused."""
        messages = (message for message in self._session.messages if isinstance(message, UserMessage))
        return [mark for message in messages for mark in message.refused_files]

    def learn_refused_files(self, marks: Sequence[RefusedFile]) -> None:
        """Leave out the files of new messages that the model refused when others sent them."""
        self._refused_elsewhere = tuple(marks)

    @property
    def produced_message_types(self) -> Sequence[type[BaseChatMessage]]:
        answer = TextMessage if self._output_content_type is None else StructuredMessage[self._output_content_type]
        types: list[type[BaseChatMessage]] = [answer]
        if self._has_tools:
            types.append(ToolCallSummaryMessage)
        if self._handoffs:
            types.append(HandoffMessage)
        return types

    async def on_messages(self, messages: Sequence[BaseChatMessage], cancellation_token: CancellationToken) -> Response:
        """Answer the new messages; raises as `on_messages_stream` does."""
        return await first_of(Response, self.on_messages_stream(messages, cancellation_token))

    async def on_messages_stream(
        self, messages: Sequence[BaseChatMessage], cancellation_token: CancellationToken
    ) -> AsyncGenerator[BaseAgentEvent | BaseChatMessage | Response, None]:
        """Answer the new messages by a turn and yield its messages, then the `Response`.

        Messages that the conversation has already, from an answer that failed or was cancelled, are not repeated.
        Raises `TurnError` if the turn fails and CancelledError within 200 ms of a cancellation.
        """
        cancellation_token.raise_if_cancelled()
        await wait_for_abandoned_turn(self._session)
        stop = StopSignal()
        output = None if self._output_content_type is None else OutputType(self._output_content_type)
        turn = self._turn(messages, stop, output)
        reader = TurnMessages(self.name, self._session, streams=self._streams)
        events: list[Event] = []
        inner: list[BaseAgentEvent | BaseChatMessage] = []
        remove_stop = cancellation_token.add_callback(stop.set)
        try:
            async for event in turn:
                events.append(event)
                if event.turn_id != events[0].turn_id:  # of a child turn
                    continue
                for message in reader.read(event):
                    if cancellation_token.is_cancelled():
                        break
                    if not isinstance(message, ModelClientStreamingChunkEvent):
                        inner.append(message)
                    yield message
        finally:
            remove_stop()
            reader.close()
            await turn.aclose()
        end = own_events(events)[-1]
        cancellation_token.raise_if_cancelled()
        if end.type != "final":
            raise turn_error(events)
        if end.data["reason"] == "handoff":
            answer = self._handoff_message(reader, own_events(events))
        else:
            answer = await self._answer(end.data, reader, output)
        self._unanswered.clear()
        yield Response(chat_message=answer, inner_messages=inner)

    def _turn(
        self, messages: Sequence[BaseChatMessage], stop: StopSignal, output: OutputType | None
    ) -> AsyncGenerator[Event, None]:
        """Return the events of the turn that answers the messages: an ended turn, or a turn that runs now."""
        uncommitted, self._uncommitted = self._uncommitted, None
        new = self._new_messages(messages)
        if uncommitted is not None and not new:
            return _replayed(uncommitted)
        last = new.pop() if new else UserMessage(content="Continue.", injected=True)
        assert isinstance(last, UserMessage)
        self._session.messages.extend(new)
        return self._runtime.run_turn(
            last, self._session, stop, agent_id=self.name, output_type=output, context=self._context()
        )

    def _context(self) -> TurnContext:
        """Return the context of a turn: a child turn of the current turn, if any, whose gate is asked."""
        context = TurnContext(
            max_rounds=self._max_rounds,
            on_exhausted=self._on_exhausted,
            budget=current_budget(self._budget),
            gate=team_gate(),
        )
        if (parent := find_parent_turn()) is None:
            self._session.inherit(Session(), "default")
            return replace(context, budget=settings_budget(self._runtime.settings, context.budget))
        self._session.inherit(parent.session, parent.permissions.mode)
        return replace(context, parent=parent)

    async def on_reset(self, cancellation_token: CancellationToken) -> None:
        self._session, self._uncommitted, self._unanswered = Session(), None, set()

    async def save_state(self) -> Mapping[str, Any]:
        """Return the conversation as a JSON mapping, also while an answer is being made."""
        messages = [message.model_dump(mode="json") for message in self._session.all_messages]
        unanswered = sorted(self._unanswered)
        return {"type": "AssistantAgent", "version": STATE_VERSION, "messages": messages, "unanswered": unanswered}

    async def load_state(self, state: Mapping[str, Any]) -> None:
        """Load what `save_state` returned; ValueError for anything else."""
        state = checked_state(state, "AssistantAgent", f"agent {self.name!r}")
        try:
            messages = [message_adapter().validate_python(message) for message in state["messages"]]
            unanswered = _IDS.validate_python(state["unanswered"])
        except (pydantic.ValidationError, KeyError, TypeError) as exc:
            raise ValueError(f"the state of agent {self.name!r} cannot be read: {exc}") from exc
        self._session, self._uncommitted, self._unanswered = Session(messages=messages), None, unanswered

    def restore(self, events: Sequence[SessionEvent], heard: Sequence[BaseChatMessage]) -> None:
        """Take the conversation from a session's log; `heard` are all messages that others have said to the agent.

        Messages that the agent was not sent yet are left out. An answer that was finished but not reported to the team
        becomes the next answer.
        """
        from agenticx.sessions.history.model_history import messages_of_agent  # on first use: it imports the stores

        places, heard_count = {message.id: place for place, message in enumerate(heard)}, 0
        messages: list[Message] = []
        for message in messages_of_agent(events, self.name):
            if (place := places.get(message.message_id)) is not None:
                for one in heard[heard_count:place]:
                    messages += self._as_read(one)
                *context, read = self._as_read(heard[place])
                messages += context
                if isinstance(read, UserMessage) and read.attachments:  # of which the turn has the names
                    message = read
                heard_count = place + 1
            messages.append(message)
        self._session = Session(messages=messages)
        self._uncommitted = uncommitted_answer(events, self.name)

    async def close(self) -> None:
        await self._runtime.aclose()

    def _task_messages(self, task: TaskInput) -> list[BaseChatMessage]:
        """Return the messages of a task; a message that was answered before gets a new id."""
        answered = {message.message_id for message in self._session.all_messages} - self._unanswered
        return [
            message.model_copy(update={"id": new_id("msg")}) if message.id in answered else message
            for message in super()._task_messages(task)
        ]

    def _new_messages(self, messages: Sequence[BaseChatMessage]) -> list[Message]:
        """Return the messages that the conversation does not have yet, as the model reads them."""
        known = {message.message_id for message in self._session.all_messages}
        new: list[Message] = []
        for message in messages:
            if message.id in known:
                continue
            known.add(message.id)
            self._unanswered.add(message.id)
            new += self._as_read(message)
        return new

    def _as_read(self, message: BaseChatMessage) -> list[Message]:
        """Return the message as the model reads it, after its context if it hands over."""
        context = handoff_context(message) if isinstance(message, HandoffMessage) else []
        read = model_message(message)
        marks = tuple(mark for mark in self._refused_elsewhere if mark.message_id == read.message_id)
        return [*context, read.model_copy(update={"refused_files": marks}) if marks else read]

    async def _answer(self, final: FinalData, reader: TurnMessages, output: OutputType | None) -> BaseChatMessage:
        """Return the answer of a turn that ended with `final`."""
        common = self._common_fields(reader)
        if output is not None and "output" in final:
            kind = StructuredMessage[self._output_content_type]  # pyright: ignore[reportInvalidTypeArguments]
            text_format = self._output_content_type_format
            return kind(content=output.value, format_string=text_format, id=final["message_id"], **common)
        if final["reason"] == "partial" and self._on_exhausted == "summary" and reader.results:
            text = "\n".join([await self._summarize(call, reader.results) for call in reader.calls])
            return ToolCallSummaryMessage(
                content=text,
                tool_calls=list(reader.calls),
                results=list(reader.results),
                said="\n".join(reader.texts),
                **common,
            )
        return TextMessage(content=final["text"], id=final["message_id"], **common)

    def _common_fields(self, reader: TurnMessages) -> dict[str, Any]:
        """Return the fields that all answers have."""
        return {"source": self.name, "models_usage": reader.take_usage(), "metadata": self._metadata}

    def _handoff_message(self, reader: TurnMessages, events: Sequence[Event]) -> HandoffMessage:
        """Return the handoff of a turn with these events, whose metadata has the reason that the model gave."""
        results = [result for result in reader.results if result.name not in self._handoffs]
        chosen = next(result for result in reader.results if result.name in self._handoffs and not result.is_error)
        handoff = self._handoffs[chosen.name]
        arguments = {call.id: call.arguments for call in reader.calls}
        context: list[Message] = [AssistantMessage(content=text, sender=self.name) for text in reader.texts]
        for result in results:
            called = f"[{self.name} called {result.name}({one_line(arguments[result.call_id])}), result:]"
            content = frame_lines(f"result of {result.name}", result.content, MATERIAL)
            context.append(UserMessage(content=f"{called}\n{content}"))
        reason = next((event.data.get("reason") for event in events if event.type == "handoff"), None)
        metadata = self._metadata if reason is None else {**self._metadata, "reason": reason}
        fields: dict[str, Any] = {**self._common_fields(reader), "metadata": metadata}
        return HandoffMessage(content=handoff.message, target=handoff.target, context=context, **fields)

    async def _summarize(self, call: FunctionCall, results: Sequence[FunctionExecutionResult]) -> str:
        """Return the text for one call of a summary; raises `AgenticXError` for a format that cannot be used."""
        result = next(result for result in results if result.call_id == call.id)
        if self._formatter is not None:
            text: object = await user_code.call(self._formatter, call, result, what="tool_call_summary_formatter")
            return str(text)
        fields = {"tool_name": call.name, "arguments": call.arguments, "result": result.content}
        try:
            return self._summary_format.format(**fields, is_error=result.is_error)
        except (KeyError, IndexError, ValueError) as exc:
            raise AgenticXError(f"tool_call_summary_format {self._summary_format!r} cannot be used: {exc!r}") from exc


async def _replayed(events: Sequence[Event]) -> AsyncGenerator[Event, None]:
    """Yield the events of a turn that has ended."""
    for event in events:
        yield event

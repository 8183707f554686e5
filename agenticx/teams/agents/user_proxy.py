"""A person as a participant."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from agenticx import user_code
from agenticx.argument_types import check_callable
from agenticx.call_errors import explain_calls
from agenticx.core.handoff_tools import handoff_message
from agenticx.errors import AgenticXError
from agenticx.messages import new_id
from agenticx.runtime import (
    AgentRuntime,
    Session,
    StopSignal,
    SyncConfirmGate,
    TurnContext,
    ask_person,
    current_turn,
)
from agenticx.runtime.events import Event
from agenticx.runtime.run_results import own_events, turn_error
from agenticx.runtime.turn import Turn
from agenticx.runtime.user_requests.requests import AnsweredBy
from agenticx.settings import Settings
from agenticx.teams.actors.cancellation import CancellationToken
from agenticx.teams.agents.base_chat_agent import BaseChatAgent
from agenticx.teams.agents.gates import team_gate
from agenticx.teams.agents.no_model import NoModel
from agenticx.teams.agents.protocols import first_of
from agenticx.teams.agents.spending import waiting_for_person
from agenticx.teams.agents.turn_messages import TurnMessages
from agenticx.teams.messages import (
    BaseAgentEvent,
    BaseChatMessage,
    HandoffMessage,
    Response,
    TextMessage,
    UserInputRequestedEvent,
)
from agenticx.teams.replay import uncommitted_answer

if TYPE_CHECKING:
    from agenticx.sessions.log.events import SessionEvent

__all__ = ["UserInputFailed", "UserProxyAgent"]

_SHOWN_CHARS = 4_000

InputFunction = Callable[..., str | Awaitable[str]]


class UserInputFailed(AgenticXError, RuntimeError):
    """Raised if the person could not be asked."""


@explain_calls
class UserProxyAgent(BaseChatAgent):
    """A participant whose answers a person gives, through `input_func(prompt)` or `(prompt, cancellation_token)`.

    The function is async, or plain and then runs in a thread. Without a function the person is asked as by the tool
    `ask_user`: in a session, or at the gate of the turn or team in which the agent speaks, else at the terminal. If
    standard input is a pipe or a file, its next line is the answer.

    A question in a stored session can still be answered after a restart. A configured team then goes on by itself; a
    team of the application's own goes on once its `run` is called again on that session, without a task.

    After a handoff to this agent the answer hands back to the handoff's source. If the person does not answer, the
    message says so.
    """

    def __init__(
        self,
        name: str,
        input_func: InputFunction | None = None,
        *,
        description: str = "A human user",
        settings: Settings | None = None,
    ) -> None:
        super().__init__(name, description)
        if input_func is not None:
            check_callable("input_func", input_func, "a function of the prompt")
        self._input = input_func
        self._settings = settings
        self._terminal = SyncConfirmGate()
        self._uncommitted: Sequence[Event] | None = None  # of an ended turn whose answer nobody has got yet
        self._heard = set[str]()  # ids of the messages before that

    @property
    def produced_message_types(self) -> Sequence[type[BaseChatMessage]]:
        return (TextMessage, HandoffMessage)

    async def on_messages(self, messages: Sequence[BaseChatMessage], cancellation_token: CancellationToken) -> Response:
        return await first_of(Response, self.on_messages_stream(messages, cancellation_token))

    async def on_messages_stream(
        self, messages: Sequence[BaseChatMessage], cancellation_token: CancellationToken
    ) -> AsyncGenerator[BaseAgentEvent | BaseChatMessage | Response, None]:
        """Yield the question as an event, then the answer.

        Raises `UserInputFailed` if `input_func` does, `TurnError` if the turn of the question fails, and RuntimeError
        if the last message hands over to someone else.
        """
        cancellation_token.raise_if_cancelled()
        handoff = messages[-1] if messages and isinstance(messages[-1], HandoffMessage) else None
        if handoff is not None and handoff.target != self.name:
            raise RuntimeError(f"the last message hands over to {handoff.target!r}, not to {self.name!r}")
        common: dict[str, Any] = {"source": self.name}
        inner: list[BaseAgentEvent | BaseChatMessage] = []
        if self._input is not None:
            inner.append(UserInputRequestedEvent(request_id=new_id("req"), source=self.name))
            yield inner[0]
            with waiting_for_person():
                text = await self._ask(self._input, _prompt(handoff), cancellation_token)
        else:
            events: list[Event] = []
            async for event in self._question_turn(messages, cancellation_token, events):
                inner.append(event)
                yield event
            end = own_events(events)[-1]
            if end.type != "final":
                raise turn_error(events)
            text, common["id"] = end.data["text"], end.data["message_id"]
        answer = (
            HandoffMessage(content=text, target=handoff.source, **common)
            if handoff is not None
            else TextMessage(content=text, **common)
        )
        yield Response(chat_message=answer, inner_messages=inner)

    # --- a question of the session ------------------------------------------------------------------------------------

    async def _question_turn(
        self, messages: Sequence[BaseChatMessage], token: CancellationToken, events: list[Event]
    ) -> AsyncGenerator[BaseAgentEvent, None]:
        """Ask in a turn that ends with the person's answer, append its events to `events`, and yield its messages.

        Raises CancelledError if the token is cancelled.
        """
        uncommitted, self._uncommitted = self._uncommitted, None
        if uncommitted is not None and all(message.id in self._heard for message in messages):
            events += uncommitted
            return
        session, stop = Session(), StopSignal()
        unlink = token.add_callback(stop.set)
        turn = self._runtime().run_turn(
            _question(messages), session, stop, agent_id=self.name, context=self._context(_question(messages))
        )
        reader = TurnMessages(self.name, session, streams=False)
        try:
            async for event in turn:
                events.append(event)
                for message in reader.read(event):
                    yield message
        finally:
            unlink()
            reader.close()
            await turn.aclose()
        token.raise_if_cancelled()

    def _runtime(self) -> AgentRuntime:
        return AgentRuntime(NoModel(self.name), self._terminal, settings=self._settings)

    def _context(self, question: str) -> TurnContext:
        """Return the context of a turn that asks: a child turn of the current turn, if any."""

        async def ask(turn: Turn) -> str:
            answer = await ask_person(question)
            return answer.answer or _NOT_ANSWERED[answer.by]

        parent = current_turn()
        if parent is None or not parent.children.is_open:
            return TurnContext(work=ask, gate=team_gate())
        own_gate = None if parent.permissions.gate.is_given else self._terminal
        return TurnContext(work=ask, parent=parent, gate=team_gate() or own_gate)

    def restore(self, events: Sequence[SessionEvent], heard: Sequence[BaseChatMessage]) -> None:
        """Go on from a session's log; an answer that was not reported to the team becomes the next answer."""
        self._uncommitted = uncommitted_answer(events, self.name)
        self._heard = {message.id for message in heard}

    # --- a function ---------------------------------------------------------------------------------------------------

    async def _ask(self, function: InputFunction, prompt: str, token: CancellationToken) -> str:
        asking = asyncio.ensure_future(user_code.call(_with_token(function, token), prompt, what="input_func"))
        token.link_future(asking)
        try:
            text: object = await asking
        except AgenticXError as exc:
            raise UserInputFailed(f"Failed to get user input: {exc}") from (exc.__cause__ or exc)
        if not isinstance(text, str):
            raise UserInputFailed(f"Failed to get user input: input_func returned a {type(text)}, not text")
        return text

    async def on_reset(self, cancellation_token: CancellationToken) -> None:
        self._uncommitted = None


_NOT_ANSWERED: Mapping[AnsweredBy, str] = {
    "user": "The user did not want to answer.",
    "policy": "The user did not answer: nobody can be asked now.",
    "timeout": "The user did not answer in time.",
    "stop": "The user did not answer: the turn was stopped.",
    "restart": "The user did not answer: the program was restarted before.",
}
"""The speeches of a person without an answer, by who closed the question."""


def _prompt(handoff: HandoffMessage | None) -> str:
    """Return the prompt for a function: the handoff to the person and its text, if there was one."""
    told: list[str] = []
    if handoff is not None:
        said = _shortened(handoff.said)
        told = [f"Handoff received from {handoff.source}.", said, handoff.metadata.get("reason", "")]
    return " ".join([*filter(None, told), "Enter your response: "])


def _question(messages: Sequence[BaseChatMessage]) -> str:
    """Return the question to the person: the last message, and that it is their turn."""
    shown = messages[-2:] if messages and isinstance(messages[-1], HandoffMessage) else messages[-1:]
    told = [(message.source, text) for message in shown if (text := _told(message))]
    said = [f"{source}: {_indented(_shortened(text))}" for source, text in told]
    return "\n\n".join([*said, "It is your turn to speak."])


def _told(message: BaseChatMessage) -> str:
    """Return what a message tells the person: of a handoff not the sentence that is meant for a model."""
    if isinstance(message, HandoffMessage) and message.content == handoff_message(message.target):
        return "\n".join(filter(None, [message.said, message.metadata.get("reason")]))
    return message.to_transcript_text()


def _indented(text: str) -> str:
    """Return a text whose further lines are indented, so that none of them looks like the words of another speaker."""
    first, *others = text.splitlines() or [""]
    return "\n".join([first, *(f"    {line}" for line in others)])


def _shortened(text: str) -> str:
    half = _SHOWN_CHARS // 2
    return text if len(text) <= _SHOWN_CHARS else f"{text[:half]} … {text[-half:]}"


def _with_token(function: InputFunction, token: CancellationToken) -> InputFunction:
    """Return a function of the prompt alone: `function` with the token, if it has a parameter for it.

    The parameter is named `cancellation_token`, annotated with `CancellationToken`, or the second one without a
    default.
    """
    try:
        parameters = [*inspect.signature(function).parameters.values()]
    except ValueError:  # a builtin without a signature
        return function
    p = inspect.Parameter
    named = {p.KEYWORD_ONLY, p.POSITIONAL_OR_KEYWORD}
    for place, parameter in enumerate(parameters[1:], 1):
        is_second = place == 1 and parameter.kind is not p.KEYWORD_ONLY and parameter.default is p.empty
        is_token = parameter.name == "cancellation_token" or "CancellationToken" in str(parameter.annotation)
        if parameter.kind in named and (is_second or is_token):
            return partial(function, **{parameter.name: token})
    takes_two = len(parameters) > 1 and parameters[1].kind is p.POSITIONAL_ONLY and parameters[1].default is p.empty
    if takes_two or any(parameter.kind is p.VAR_POSITIONAL for parameter in parameters):

        def ask(prompt: str) -> str | Awaitable[str]:
            return function(prompt, token)

        return ask
    return function

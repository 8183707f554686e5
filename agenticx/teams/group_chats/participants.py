"""Participants of a group chat: agents and teams, each spoken to in the same way."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, cast, runtime_checkable

from agenticx import user_code
from agenticx.argument_types import check_type
from agenticx.errors import AgenticXError, UserCodeError
from agenticx.messages import MAIN_AGENT, RefusedFile, new_id
from agenticx.teams.actors.cancellation import CancellationToken
from agenticx.teams.actors.context import MessageContext
from agenticx.teams.actors.ids import AgentId
from agenticx.teams.actors.protocols import MessageRuntime
from agenticx.teams.agents.assistant_agent import AssistantAgent
from agenticx.teams.agents.protocols import ChatAgent, Team
from agenticx.teams.group_chats.errors import TeamError
from agenticx.teams.messages import (
    BaseAgentEvent,
    BaseChatMessage,
    Response,
    StructuredMessage,
    TaskResult,
    TextMessage,
)
from agenticx.teams.replay import StoredTurns

if TYPE_CHECKING:
    from agenticx.sessions.log.events import SessionEvent

__all__ = [
    "ActorParticipants",
    "Emit",
    "Participant",
    "call_all",
    "checked_participants",
    "load_states",
    "produced_types",
]


_NOT_IN_A_TYPE = re.compile(r"[^\w.-]")  # the characters that the type of an actor does not have


class Emit(Protocol):
    """The receiver of the messages of a speech, one at a time; `shown` is True if a message was shown before."""

    async def __call__(self, message: BaseAgentEvent | BaseChatMessage, /, *, shown: bool = False) -> None: ...


class Participant(Protocol):
    """An agent or a team as a participant; with `counts_its_time` its turns count its time in budgets."""

    counts_its_time: bool

    @property
    def name(self) -> str: ...
    @property
    def description(self) -> str: ...
    @property
    def refuses(self) -> RefusesFiles | None:
        """The agent or team, if it knows which files were refused."""
        ...

    async def speak(
        self, messages: Sequence[BaseChatMessage], emit: Emit, token: CancellationToken, *, goes_on: bool
    ) -> BaseChatMessage:
        """Emit the messages of a speech up to its last one, the answer, which is returned.

        With `goes_on` the last speech of the participant was not finished, and this one takes its place.
        """
        ...

    def restore(self, turns: StoredTurns, heard: Sequence[BaseChatMessage]) -> None:
        """Go on from the turns of the team; `heard` are all messages that others have said to the participant."""
        ...

    async def reset(self, cancellation_token: CancellationToken, /) -> None: ...
    async def pause(self, cancellation_token: CancellationToken, /) -> None: ...
    async def resume(self, cancellation_token: CancellationToken, /) -> None: ...
    async def save_state(self) -> Mapping[str, Any]: ...
    async def load_state(self, state: Mapping[str, Any]) -> None: ...


@runtime_checkable
class Continuable(Protocol):
    """A team whose last run can go on.

    It awaits `before_speech`, if it is set, before each speech; `unfinished` names who speaks then.
    """

    before_speech: Callable[[], Awaitable[None]] | None
    unfinished: str | None

    def continue_run(self, task: Sequence[BaseChatMessage]) -> Sequence[BaseAgentEvent | BaseChatMessage] | None:
        """Have the next run, which has no task, go on with the last one, and return the messages of its speeches.

        Returns None if there is a message in `task` that the last run was not given.
        """
        ...


@runtime_checkable
class Restorable(Protocol):
    """An agent or a team that can go on from a session's log; an agent gets the events of its team's turns."""

    def restore(self, events: Sequence[SessionEvent], heard: Sequence[BaseChatMessage]) -> None: ...


@runtime_checkable
class RefusesFiles(Protocol):
    """An agent or a team that knows which files a model refused, and learns it from the others of its team."""

    @property
    def refused_files(self) -> Sequence[RefusedFile]: ...
    def learn_refused_files(self, marks: Sequence[RefusedFile]) -> None: ...


@runtime_checkable
class HasMessageTypes(Protocol):
    """A team with types of messages besides those that every team has."""

    @property
    def message_types(self) -> Sequence[type[BaseChatMessage | BaseAgentEvent]]: ...


class _AgentParticipant:
    """An agent as a participant."""

    def __init__(self, agent: ChatAgent) -> None:
        self._agent = agent
        self.refuses = agent if isinstance(agent, RefusesFiles) else None
        self.counts_its_time = isinstance(agent, AssistantAgent)
        self.name, self.description = agent.name, agent.description
        self.reset, self.pause, self.resume = agent.on_reset, agent.on_pause, agent.on_resume
        self.save_state, self.load_state = agent.save_state, agent.load_state

    async def speak(
        self, messages: Sequence[BaseChatMessage], emit: Emit, token: CancellationToken, *, goes_on: bool
    ) -> BaseChatMessage:
        task = asyncio.current_task()
        try:
            async with aclosing(self._agent.on_messages_stream(messages, token)) as stream:
                async for item in stream:
                    if isinstance(item, Response):
                        return _checked_answer(item)
                    await emit(item)
        except GeneratorExit as exc:
            if not _is_current(task):  # this coroutine is closed before its end
                raise
            what = f"participant {self.name!r}"
            text = f"{what} raised {user_code.describe_exception(exc)}"
            raise UserCodeError(text, what=what, kind="raised") from exc
        raise RuntimeError(f"on_messages_stream of {self.name!r} ended without a Response")

    def restore(self, turns: StoredTurns, heard: Sequence[BaseChatMessage]) -> None:
        if isinstance(self._agent, Restorable):
            self._agent.restore(turns.of_agents(), heard)


class _InnerMessages:
    """The messages of a run of an inner team on their way to the outer one.

    The last chat message so far, which may be the answer, is held back with the messages after it. `shown` has the ids
    of emitted messages.
    """

    def __init__(self, emit: Emit, shown: set[str]) -> None:
        self._emit = emit
        self._shown = shown
        self._held: list[BaseAgentEvent | BaseChatMessage] = []

    async def take(self, message: BaseAgentEvent | BaseChatMessage, *, may_be_answer: bool = True) -> None:
        """Take the next message of the run; the answer is the last message of a speech."""
        if isinstance(message, BaseChatMessage):
            await self.pass_on()
        self._held.append(message)
        if not (may_be_answer and isinstance(self._held[0], BaseChatMessage)):
            await self.pass_on()

    async def pass_on(self) -> None:
        """Emit what is held: none of it is the answer."""
        held, self._held = self._held, []
        for message in held:
            await self._emit(message, shown=message.id in self._shown)
            self._shown.add(message.id)

    async def end(self) -> BaseChatMessage | None:
        """Return the answer, None if there is none, once all else is emitted."""
        answer = self._held.pop(0) if self._held else None
        await self.pass_on()
        return answer if isinstance(answer, BaseChatMessage) else None


class _TeamParticipant:
    """A team as a participant: the last chat message of its run is its answer.

    An unfinished speech is a run that goes on: its messages are not emitted again.
    """

    def __init__(self, team: Team) -> None:
        self._team = team
        self.refuses = team if isinstance(team, RefusesFiles) else None
        self._continuable = team if isinstance(team, Continuable) else None
        self.counts_its_time = self._continuable is not None
        self._shown = set[str]()  # the ids of the messages of the speech that it has emitted
        self.name, self.description = team.name, team.description
        self.save_state, self.load_state = team.save_state, team.load_state

    async def speak(
        self, messages: Sequence[BaseChatMessage], emit: Emit, token: CancellationToken, *, goes_on: bool
    ) -> BaseChatMessage:
        if not goes_on:
            self._shown.clear()
        team, stop_reason = self._continuable, None
        earlier = team.continue_run(messages) if goes_on and team is not None else None
        task = list(messages) if earlier is None and messages else None
        inner = _InnerMessages(emit, self._shown)
        for message in earlier or ():
            await inner.take(message)
        if team is not None:
            team.before_speech = inner.pass_on
        try:
            stream = self._team.run_stream(task=task, cancellation_token=token, output_task_messages=False)
            async with aclosing(stream):
                async for item in stream:
                    if isinstance(item, TaskResult):
                        stop_reason = item.stop_reason
                    else:
                        await inner.take(item, may_be_answer=team is None or team.unfinished is None)
        finally:
            if team is not None:
                team.before_speech = None
        return await inner.end() or _no_message(self.name, stop_reason)

    def restore(self, turns: StoredTurns, heard: Sequence[BaseChatMessage]) -> None:
        if isinstance(self._team, Restorable):
            self._team.restore(turns.of_team(self.name), heard)

    async def reset(self, cancellation_token: CancellationToken, /) -> None:
        await self._team.reset()

    async def pause(self, cancellation_token: CancellationToken, /) -> None:
        await self._team.pause()

    async def resume(self, cancellation_token: CancellationToken, /) -> None:
        await self._team.resume()


def _no_message(name: str, stop_reason: str | None) -> TextMessage:
    """Return the speech of a team whose run ended before anybody spoke.

    Its text is not the reason of the end: the reason may have the words that end the run of the outer team.
    """
    metadata = {} if stop_reason is None else {"stop_reason": stop_reason}
    return TextMessage(content="(no message)", source=name, metadata=metadata)


def checked_participants(members: Sequence[ChatAgent | Team]) -> dict[str, Participant]:
    """Return participants by name; ValueError for none or an unusable name, TypeError for anything else."""
    made = [_participant(member) for member in members]
    names = [participant.name for participant in made]
    if not names:
        raise ValueError("a team needs at least one participant")
    if len(names) != len(set(names)):
        raise ValueError(f"The participant names must be unique: {names}")
    if MAIN_AGENT in names:
        raise ValueError(
            f"a participant cannot have the name {MAIN_AGENT!r}, which is that of the turn of the team's run"
        )
    return {participant.name: participant for participant in made}


async def call_all(
    participants: Mapping[str, Participant], team: str, what: str, call: Callable[[Participant], Awaitable[None]]
) -> None:
    """Call a method of all participants of a team; the first failure is raised afterwards, as `TeamError`."""
    failure: TeamError | None = None
    for name, participant in participants.items():
        try:
            with user_code.translated_errors(f"{what} of {name!r}"):
                await call(participant)
        except TeamError as exc:  # of a team that takes part
            failure = failure or exc
        except AgenticXError as exc:
            failed = TeamError.of(exc, f"team {team!r}", name)
            failed.__cause__ = exc.__cause__ or exc
            failure = failure or failed
    if failure is not None:
        raise failure


def produced_types(members: Sequence[ChatAgent | Team]) -> list[type[BaseChatMessage | BaseAgentEvent]]:
    """Return the additional types of messages: structured messages of agents, and all types of inner teams."""
    types: list[type[BaseChatMessage | BaseAgentEvent]] = []
    for member in members:
        if isinstance(member, ChatAgent):
            types += [type_ for type_ in member.produced_message_types if issubclass(type_, StructuredMessage)]
        elif isinstance(member, HasMessageTypes):
            types += member.message_types
    return types


async def load_states(participants: Mapping[str, Participant], states: Mapping[str, Mapping[str, Any]]) -> None:
    """Load the states of all participants, or of none: ValueError if one of them does not load its state."""
    before = {name: await participant.save_state() for name, participant in participants.items()}
    begun: list[str] = []
    try:
        for name, participant in participants.items():
            begun.append(name)
            with user_code.translated_errors(f"load_state of {name!r}"):
                await participant.load_state(states[name])
    except AgenticXError as exc:
        for name in begun:
            await participants[name].load_state(before[name])
        raise ValueError(f"the state of participant {begun[-1]!r} cannot be loaded: {exc}") from (exc.__cause__ or exc)


def _participant(member: object) -> Participant:
    if isinstance(member, ChatAgent):
        return _AgentParticipant(member)
    if isinstance(member, Team):
        return _TeamParticipant(member)
    raise TypeError(f"Participant {member!r} must be a ChatAgent or a Team{_missing_methods(member)}")


def _missing_methods(member: object) -> str:
    """Return the names that an object lacks to be an agent or a team, whichever it is closer to, as part of a text."""
    lacks: list[tuple[list[str], str]] = []
    for kind, name in ((ChatAgent, "ChatAgent"), (Team, "Team")):
        names = [name for name in dir(kind) if not name.startswith("_")]
        if len(missing := [name for name in names if not hasattr(member, name)]) < len(names):
            lacks.append((missing, name))
    if not lacks:
        return ""
    missing, kind_name = min(lacks, key=lambda one: len(one[0]))
    return f"; as a {kind_name} it lacks {', '.join(missing)}"


def _is_current(task: asyncio.Task[Any] | None) -> bool:
    """Return whether the code runs in a task; False in a thread without an event loop."""
    with suppress(RuntimeError):
        return asyncio.current_task() is task
    return False


def _checked_answer(response: Response) -> BaseChatMessage:
    answer = response.chat_message
    if not isinstance(cast("object", answer), BaseChatMessage):
        raise TypeError(f"the chat_message of a Response must be a chat message, not a {type(answer)}")
    return answer


@dataclass(frozen=True, slots=True)
class _SpeechRequest:
    """The message that asks a participant for a speech."""

    messages: Sequence[BaseChatMessage]
    emit: Emit
    goes_on: bool


class _ParticipantActor:
    """A participant as an actor."""

    def __init__(self, participant: Participant) -> None:
        self._participant = participant

    async def on_message(self, message: _SpeechRequest, ctx: MessageContext) -> BaseChatMessage:
        token = ctx.cancellation_token
        return await self._participant.speak(message.messages, message.emit, token, goes_on=message.goes_on)


class ActorParticipants:
    """The participants of a team as actors of a message runtime, which gets a message for each speech.

    TypeError for another `runtime`.
    """

    def __init__(self, runtime: MessageRuntime, participants: Mapping[str, Participant]) -> None:
        check_type("runtime", runtime, MessageRuntime, "a MessageRuntime, such as SingleThreadedAgentRuntime()")
        self._runtime = runtime
        self._participants = participants
        self._team_id = new_id("team")
        self._registered = False

    async def speak(
        self, name: str, messages: Sequence[BaseChatMessage], emit: Emit, token: CancellationToken, *, goes_on: bool
    ) -> Any:
        """Have a participant speak, as `Participant.speak` does."""
        if not self._registered:
            self._registered = True
            for each, participant in self._participants.items():
                await self._runtime.register_agent_instance(_ParticipantActor(participant), self._id(each))
        return await self._runtime.send_message(
            _SpeechRequest(messages, emit, goes_on), self._id(name), cancellation_token=token
        )

    def _id(self, name: str) -> AgentId:
        return AgentId(f"{_NOT_IN_A_TYPE.sub('_', name)}_{self._team_id}", name)

"""The run of a team: its participants speak one after the other until a condition or a limit ends it."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from agenticx import user_code
from agenticx.argument_types import check_int, check_sequence, checked_text
from agenticx.call_errors import explain_calls
from agenticx.clocks import Clock, SystemClock
from agenticx.core.agent import Agent
from agenticx.errors import AgenticXError, UserCodeError
from agenticx.logs import get_logger
from agenticx.messages import RefusedFile
from agenticx.runtime import Budget, ConfirmGate, Session
from agenticx.runtime.budgets.budget import checked_budget
from agenticx.runtime.gates.base import GateFunction, checked_gate
from agenticx.runtime.turn import Turn
from agenticx.runtime.turn_context import WorkResult
from agenticx.settings import Settings, load_settings
from agenticx.teams.actors.cancellation import CancellationToken
from agenticx.teams.actors.protocols import MessageRuntime
from agenticx.teams.agents.assistant_agent import AssistantAgent
from agenticx.teams.agents.gates import asked_at, team_gate
from agenticx.teams.agents.protocols import ChatAgent, TaskInput, Team, task_messages
from agenticx.teams.agents.spending import Spending, collected_by, current_budget, report_uncounted, within_budgets
from agenticx.teams.agents.states import STATE_VERSION, checked_state
from agenticx.teams.group_chats.errors import TeamError
from agenticx.teams.group_chats.participants import (
    ActorParticipants,
    Emit,
    Participant,
    call_all,
    checked_participants,
    load_states,
    produced_types,
)
from agenticx.teams.group_chats.team_run import Speaking, TeamRun, is_being_cancelled, outcome
from agenticx.teams.group_chats.team_turns import TeamTurn, TeamTurns
from agenticx.teams.messages import (
    BaseAgentEvent,
    BaseChatMessage,
    ModelClientStreamingChunkEvent,
    SelectSpeakerEvent,
    TaskResult,
)
from agenticx.teams.replay import EarlierRun, StoredTurns, events_since_reset, replay_team
from agenticx.teams.termination.base import ConditionRun, TerminationCondition, checked_condition
from agenticx.teams.transcript import MessageTypes, TeamTranscript

if TYPE_CHECKING:
    from agenticx.sessions.log.events import SessionEvent

__all__ = ["BaseGroupChat"]

_STUCK_REPEATS = 3
_CLOSING_ITERATIONS = 4  # iterations after which the event loop has begun to close a dropped generator

_log = get_logger(__name__)


@explain_calls
class BaseGroupChat(Team):
    """A team whose participants speak one after the other; a subclass chooses the next one by `_select_speaker`:

        class Alternating(BaseGroupChat):
            def _select_speaker(self, messages: Sequence[BaseAgentEvent | BaseChatMessage]) -> str | None:
                return None if len(messages) > 6 else self._participants[len(messages) % 2].name

    `participants` are agents, such as an `Agent`, or teams, with unique names. A run ends by `termination_condition` or
    after `max_turns` speeches; with neither, after `team_max_turns` speeches (a setting, 100). With a `runtime` each
    speech is a message of that message runtime. `custom_message_types` are the application's own types of messages;
    the types of `agenticx.teams` and the `StructuredMessage` of participants are always known. With `emit_team_events`
    the choice of a speaker is a message too, with the tokens that it took. `confirm_gate` is asked about risky calls of
    agents without a gate, also in inner teams without a gate. All model calls of all runs count in `budget`, the calls
    of one run also in the settings' budget of a turn. Once the seconds are used up, the speech ends and no other
    begins.

    With a `session`, a `Session` in memory or the id of a stored one in an open hub, each run is a turn of the session,
    and each speech of an `AssistantAgent` a child turn of it. The first run goes on from the team's events in the
    session's log. Without a task it goes on in the turn that waits for a person since an earlier process, if there is
    one; a run with a task ends that turn as interrupted.

    Raises ValueError and TypeError for participants and limits that cannot be used.
    """

    def __init__(
        self,
        participants: Sequence[ChatAgent | Team | Agent[Any, Any]],
        termination_condition: TerminationCondition | None = None,
        *,
        name: str | None = None,
        description: str | None = None,
        max_turns: int | None = None,
        runtime: MessageRuntime | None = None,
        custom_message_types: Sequence[type[BaseChatMessage | BaseAgentEvent]] | None = None,
        emit_team_events: bool = False,
        confirm_gate: ConfirmGate | GateFunction | None = None,
        budget: Budget | None = None,
        session: Session | str | None = None,
        settings: Settings | None = None,
        clock: Clock | None = None,
    ) -> None:
        if max_turns is not None:
            check_int("max_turns", max_turns)
            if max_turns < 1:
                raise ValueError(f"max_turns must be at least 1, not {max_turns}")
        check_sequence("participants", participants, "agents and teams")
        members = [AssistantAgent.of(one, settings) if isinstance(one, Agent) else one for one in participants]
        self.check_participants(members)
        self._participants = members
        self._members = checked_participants(members)
        self._name = checked_text("name", name, type(self).__name__)
        self._description = checked_text("description", description, "A team of agents.")
        self._condition = None if termination_condition is None else checked_condition(termination_condition)
        self._max_turns = max_turns
        if max_turns is None and termination_condition is None:
            settings = settings or load_settings()
            self._max_turns = settings.team_max_turns
        self._actors = None if runtime is None else ActorParticipants(runtime, self._members)
        self._types = MessageTypes([*produced_types(members), *(custom_message_types or ())])
        self._inner = [participant for participant in members if isinstance(participant, BaseGroupChat)]
        self.add_message_types(self.message_types)
        self._emits_events = emit_team_events
        self._gate = checked_gate(confirm_gate)
        self._budget = checked_budget(budget)
        self._turns = TeamTurns(self._name, session, settings)
        self._clock = clock or SystemClock()
        self._transcript = TeamTranscript()
        self._catching_up = asyncio.Lock()  # held while a start reads the log, so that no other start begins
        self._selected: str | None = None  # the speaker of a speech in the log that was not finished
        self._refused_elsewhere: Sequence[RefusedFile] = ()
        self.unfinished: str | None = None  # the participant whose speech has begun, and is not in the transcript
        self._interrupted: EarlierRun | None = None  # the run with which the next one goes on
        self._running: TeamRun | None = None
        self.before_speech: Callable[[], Awaitable[None]] | None = None  # set by the team that this one takes part in
        self._unpaused = asyncio.Event()
        self._unpaused.set()

    @property
    def name(self) -> str:
        return self._name

    @property
    def description(self) -> str:
        return self._description

    @property
    def message_types(self) -> Sequence[type[BaseChatMessage | BaseAgentEvent]]:
        """The types of messages that the team accepts in addition to the types of `agenticx.teams`."""
        return self._types.custom

    def add_message_types(self, types: Sequence[type[BaseChatMessage | BaseAgentEvent]]) -> None:
        """Accept further types of messages, in inner teams too, since inner teams get the messages of others."""
        self._types.add(types)
        for team in self._inner:
            team.add_message_types(types)

    @abstractmethod
    def _select_speaker(self, messages: Sequence[Speaking]) -> str | Awaitable[str | None] | None:
        """Return the name of the next speaker, or None to end the run; plain or async.

        `messages` are all messages of the team, of earlier runs too. It may be called again for the same speech after a
        failure.
        """
        ...

    def check_participants(self, participants: Sequence[object]) -> None:
        """Raise TypeError if the team cannot have one of these participants."""
        return

    def check_start(self, transcript: TeamTranscript, task: Sequence[BaseChatMessage]) -> None:
        """Raise ValueError if no run can begin with this task."""
        return

    def task_in_session(self, transcript: TeamTranscript, task: Sequence[BaseChatMessage]) -> Sequence[BaseChatMessage]:
        """Return the task of a run for a message of the user in a session; without one there are no messages."""
        return task

    # --- runs ---------------------------------------------------------------------------------------------------------

    @explain_calls
    async def run_stream(
        self,
        *,
        task: TaskInput = None,
        cancellation_token: CancellationToken | None = None,
        output_task_messages: bool = True,
    ) -> AsyncGenerator[BaseAgentEvent | BaseChatMessage | TaskResult, None]:
        """Run the team on a task, or go on where the last run ended, and yield the messages, then the `TaskResult`.

        The task is text, a chat message, a list of them, or None. Raises ValueError for another task and while the team
        is running, `SessionNotFound` for a session that no open hub has, `TeamError` if a participant, a condition or a
        selector fails, and CancelledError within 200 ms after the token was cancelled; no message follows then. After
        all of these the team can be run again: a speech that was not finished is made again.
        """
        run = await self._begin(self._types.checked(task_messages(task)), cancellation_token or CancellationToken())
        work = asyncio.create_task(self._run(run, output_task_messages), name=f"agx team {self.name}")
        work.add_done_callback(lambda _: run.queue.close())
        try:
            while batch := await run.queue.take():
                for message in batch:
                    run.check()
                    yield message
            run.check()
            if not work.done() or run.stopped:
                raise asyncio.CancelledError
            await outcome(work)
        finally:
            try:
                if not work.done():
                    run.cancel()
                await user_code.abandon(work, f"team {self.name!r}")
            finally:
                self._running = None
                run.end()
        run.check()
        self._transcript.finish_task()
        yield TaskResult(messages=run.output, stop_reason=run.stop_reason)

    async def _begin(self, task: Sequence[BaseChatMessage], token: CancellationToken) -> TeamRun:
        """Return a new run on a task, with which the team is busy from now on; raises as `run_stream` does."""
        token.raise_if_cancelled()
        await self._wait_for_abandoned_run()
        await self._catch_up(goes_on=not task)
        if self._running is not None:
            raise ValueError("The team is already running, it cannot run again until it is stopped.")
        self.check_start(self._transcript, task)
        token.raise_if_cancelled()
        condition = None if self._condition is None else ConditionRun(self._condition)
        run = self._running = TeamRun(
            condition=condition, spending=Spending(self._turns.budget(self._budget), self._clock)
        )
        run.obey(token)
        earlier, self._interrupted = self._interrupted, None
        if earlier is not None and not task:
            run.go_on_from(earlier)
            return run
        if task:
            self._selected = None
        run.task, run.new_task = self._transcript.begin_task(task)
        run.add_given(run.task)
        return run

    async def run_as_work(self, turn: Turn, task: TaskInput, events: Sequence[SessionEvent]) -> WorkResult:
        """Run the team as the `work` of `turn`, see `TurnContext`; the answer is the text of its last message.

        `events` are the events of teams in the session's log. If the turn began a run in an earlier process, that run
        goes on with its own task; otherwise a run begins as with `run_stream`.
        """
        earlier, self._turns.own_turn = self.restore(events), turn
        before: Sequence[Speaking] = ()
        if earlier.turn_id == turn.id:
            self._interrupted, task = earlier, None
            before = earlier.messages if earlier.speeches else ()
        else:
            task = [*self.task_in_session(self._transcript, task_messages(task))] or None
        result = await self.run(task=task, output_task_messages=False)
        said = [message for message in (*before, *result.messages) if isinstance(message, BaseChatMessage)]
        return WorkResult(said[-1].to_transcript_text() if said else "", result.stop_reason)

    def continue_run(self, task: Sequence[BaseChatMessage]) -> Sequence[Speaking] | None:
        """Have the next run, which has no task, go on with the last one, and return the messages of its speeches.

        Returns None if `task` has a message that is not in the last run's task.
        """
        self._interrupted = earlier = self._transcript.last_run(task)
        return None if earlier is None else earlier.said

    async def _catch_up(self, *, goes_on: bool = False) -> None:
        """Read the events of the session's log that the team does not know, such as a rewind, unless the team runs.

        A run that `goes_on` does so in the turn that waits for a person since an earlier process, if there is one.
        """
        async with self._catching_up:
            if self._running is not None:
                return
            waiting = await self._turns.find_waiting(goes_on=goes_on)
            events = await self._turns.new_events(self._transcript.chat_messages())
            earlier = None if events is None else self.restore(events)
            if waiting is not None:
                self._turns.go_on_in(waiting, None if earlier is None else earlier.turn_id)
                self._interrupted = earlier

    async def _wait_for_abandoned_run(self) -> None:
        """Wait, bounded, for the end of a run that was cancelled or whose stream was dropped by a `break`."""
        for _ in range(_CLOSING_ITERATIONS):
            if self._running is None:
                return
            if self._running.token.is_cancelled():
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._running.ended.wait(), 2 * user_code.GRACE_SECONDS)
                return
            await asyncio.sleep(0)

    async def _run(self, run: TeamRun, shows_task: bool) -> None:
        """Run the team in a task of its own; whatever fails is raised as `TeamError`."""
        try:
            with collected_by(run.spending), asked_at(self._gate or team_gate()):
                with user_code.translated_errors("the text of its task"):
                    text = "\n".join(message.to_text() for message in run.messages)
                await self._turns.run(text, run.new_task, partial(self._run_in_turn, run, shows_task))
        except TeamError:
            raise
        except AgenticXError as exc:
            raise TeamError.of(exc, f"team {self.name!r}") from (exc.__cause__ or exc)
        except asyncio.CancelledError:
            if not is_being_cancelled():  # its turn was stopped
                run.stopped = True
                run.cancel()
            raise

    async def _run_in_turn(self, run: TeamRun, shows_task: bool, turn: TeamTurn) -> WorkResult:
        """Run the team in its turn; the answer is the text of its last message."""
        run.stop_work = turn.stop
        with user_code.translated_errors("its run"):
            run.check()
            turn.emit_messages(run.new_task)
            for message in run.task if shows_task else ():
                await run.emit(message)
            await self._speak_until_over(run, turn)
            said = [message for message in run.messages if isinstance(message, BaseChatMessage)]
            return WorkResult(said[-1].to_transcript_text() if said and run.turns else "", run.stop_reason)

    async def _speak_until_over(self, run: TeamRun, turn: TeamTurn) -> None:
        if run.condition is not None:
            with user_code.translated_errors("a termination condition"):
                await run.condition.begin()
        while not await self._is_over(run):
            await self._unpaused.wait()
            run.check()
            if (budget := current_budget()) is not None:
                budget.check_seconds()
            name = await self._next_speaker(run, turn)
            if name is None:
                run.stop_reason = "No next speaker was selected."
                return
            if self.before_speech is not None:
                await self.before_speech()
            await self._speak(run, turn, self._members[name])

    async def _is_over(self, run: TeamRun) -> bool:
        """Return whether the condition or the limit of speeches ends the run."""
        if run.messages and await run.is_over():
            return True
        self._warn_if_stuck(run)
        if self._max_turns is None or run.turns < self._max_turns:
            return False
        run.stop_reason = f"Maximum number of turns {self._max_turns} reached."
        return True

    async def _next_speaker(self, run: TeamRun, turn: TeamTurn) -> str | None:
        """Return the next speaker: the speaker of an interrupted speech, or the speaker chosen now, if any."""
        name, self._selected = self._selected, None
        if name is not None and run.continues:
            return name
        if name is None and (steering := await turn.take_steering()):
            self._transcript.add_task(steering)
            run.add_given(steering)
        choice = Spending()
        if name is None:
            with collected_by(choice):
                name = await self._selected_speaker()
        run.check()
        if name is None:
            return None
        fallback, run.fallback = run.fallback, None
        await turn.emit_speaker(name, fallback)
        run.check()
        if self._emits_events:
            used = choice.usage if choice.reports else None
            await run.emit(SelectSpeakerEvent(content=[name], models_usage=used, source=self.name))
        return name

    async def _selected_speaker(self) -> str | None:
        """Return what `_select_speaker` does; `TeamError` for another name or value."""
        what = f"_select_speaker of team {self.name!r}"
        with user_code.translated_errors(what):
            name: object = await user_code.call_in_place(self._select_speaker, self._transcript.messages, what=what)
        return None if name is None else self._checked_name(name, what)

    def _checked_name(self, name: object, what: str) -> str:
        if not isinstance(name, str) or name not in self._members:
            raise TeamError(f"{what} returned {name!r}, which is no participant; known: {[*self._members]}")
        return name

    @property
    def refused_files(self) -> Sequence[RefusedFile]:
        """The marks of files that a model refused in the conversation of a participant."""
        members = [member.refuses for member in self._members.values() if member.refuses is not None]
        return list(dict.fromkeys(mark for member in members for mark in member.refused_files))

    def learn_refused_files(self, marks: Sequence[RefusedFile]) -> None:
        """Leave out files that a model refused when others sent them."""
        self._refused_elsewhere = tuple(marks)

    async def _speak(self, run: TeamRun, turn: TeamTurn, participant: Participant) -> None:
        """Have a participant speak. Its speech counts once it is finished, before its last message is shown."""
        said: list[Speaking] = []
        sent, reports = len(self._transcript), run.spending.reports

        async def emit(message: Speaking, *, shown: bool = False) -> None:
            self._check_message(participant, message)
            if not isinstance(message, ModelClientStreamingChunkEvent):
                message = self._transcript.with_own_id(message)
                said.append(message)
            if not shown:
                await run.emit(message)

        answer = await self._answer(run, participant, emit)
        self._check_message(participant, answer)
        run.check()
        answer = self._transcript.with_own_id(answer)
        said.append(answer)
        self._transcript.add_speech(participant.name, said, sent)
        self.unfinished = None
        run.add_speech(said)
        turn.emit_messages(said)
        if run.spending.reports == reports:
            report_uncounted(said)
        await turn.wait_until_written()
        await run.emit(answer)

    async def _answer(self, run: TeamRun, participant: Participant, emit: Emit) -> BaseChatMessage:
        """Return the answer of a participant, after it has emitted the messages on the way to it."""
        name, goes_on = participant.name, self.unfinished == participant.name
        if participant.refuses is not None:
            participant.refuses.learn_refused_files([*self._refused_elsewhere, *self.refused_files])
        messages, what, self.unfinished = self._transcript.unseen(name), f"participant {name!r}", name
        speak = participant.speak if self._actors is None else partial(self._actors.speak, name)
        speech = partial(speak, messages, emit, goes_on=goes_on)
        try:
            with user_code.translated_errors(what):
                if participant.counts_its_time:
                    return await speech(run.token)
                return await within_budgets(speech, run.token, what)
        except TeamError:
            raise
        except AgenticXError as exc:
            where = f"team {self.name!r}" if isinstance(exc, UserCodeError) else f"team {self.name!r}, {what}"
            raise TeamError.of(exc, where, name) from (exc.__cause__ or exc)

    def _check_message(self, participant: Participant, message: Speaking) -> None:
        if (problem := self._types.problem(message)) is not None:
            raise TeamError(f"the speech of {participant.name!r} is refused: {problem}", participant=participant.name)

    def _warn_if_stuck(self, run: TeamRun) -> None:
        if not run.warned and (count := run.repetition.count(_STUCK_REPEATS)):
            run.warned = True
            _log.warning("the participants of a team only repeat themselves", team=self.name, speeches=count)

    # --- control and state --------------------------------------------------------------------------------------------

    async def reset(self) -> None:
        """Return the team and its participants to the beginning; RuntimeError while it, or its session, runs.

        In a session of a hub this is an event, so the next process begins there too. `TeamError` if the reset of a
        participant failed; all others are reset then, as is the team.
        """
        async with self._catching_up:
            await self._check_not_running("be reset")
            await self._turns.record_reset()
            self._transcript = TeamTranscript()
            self.unfinished = self._interrupted = self._selected = None
            self._unpaused.set()
            await call_all(self._members, self.name, "on_reset", lambda one: one.reset(CancellationToken()))

    async def pause(self) -> None:
        """Pause the participants, including the current speaker; no further speech begins before `resume`."""
        self._unpaused.clear()
        await call_all(self._members, self.name, "on_pause", lambda one: one.pause(CancellationToken()))

    async def resume(self) -> None:
        """Resume after `pause`."""
        try:
            await call_all(self._members, self.name, "on_resume", lambda one: one.resume(CancellationToken()))
        finally:
            self._unpaused.set()

    async def save_state(self) -> Mapping[str, Any]:
        """Return the state of the team and its participants as a JSON mapping, at any moment.

        A speech that is not finished is not part of it; `run` makes it again. Raises as `run_stream` does for a session
        that cannot be read.
        """
        await self._catch_up()
        transcript = self._transcript.dump()
        states = {name: await participant.save_state() for name, participant in self._members.items()}
        return {
            "type": type(self).__name__,
            "version": STATE_VERSION,
            "transcript": transcript,
            "participants": states,
            "unfinished": self.unfinished,
        }

    async def load_state(self, state: Mapping[str, Any]) -> None:
        """Load what `save_state` of a team with the same participants returned.

        Raises ValueError for another kind of team, version or participants, and for a team in a session of a hub, whose
        log is its state; RuntimeError while the team runs.
        """
        if self._turns.are_stored:
            raise ValueError(
                f"team {self.name!r} goes on from the log of its session, and loads no other state; load it into a "
                "team without a session, or with one in memory"
            )
        await self._check_not_running("load a state")
        state = checked_state(state, type(self).__name__, f"team {self.name!r}")
        states = state.get("participants")
        names = cast("Mapping[str, Any]", states).keys() if isinstance(states, Mapping) else set[str]()
        if names != self._members.keys():
            raise ValueError(f"the state is of the participants {[*names]}, not of {[*self._members]}")
        transcript = TeamTranscript.load(state.get("transcript"), self._types, self._members)
        if (unfinished := state.get("unfinished")) not in (None, *names):
            raise ValueError(f"the state has a speech of {unfinished!r}, who does not take part in the team")
        await load_states(self._members, cast("Mapping[str, Mapping[str, Any]]", states))
        self._transcript, self.unfinished = transcript, cast("str | None", unfinished)
        self._interrupted = self._selected = None

    def restore(self, events: Sequence[SessionEvent], heard: Sequence[BaseChatMessage] = ()) -> EarlierRun:
        """Go on from a session's log, after the speeches that were finished, and return the last run in it.

        A run in a session does it first, if the log has something new. Participants that do not have a `restore` begin
        anew. ValueError if other participants have spoken.
        """
        turns = StoredTurns(events_since_reset(events, self.name), self.name)
        talk = replay_team(turns, self._types)
        speakers = {*talk.transcript.speakers, *([] if talk.selected is None else [talk.selected])}
        if unknown := sorted(speakers - self._members.keys()):
            raise ValueError(f"the session has speeches of {unknown}, who do not take part in team {self.name!r}")
        for name, participant in self._members.items():
            participant.restore(turns, talk.transcript.said_by_others(name))
        self._transcript, self._selected, self.unfinished = talk.transcript, talk.selected, talk.selected
        return talk.last_run

    async def _check_not_running(self, purpose: str) -> None:
        await self._wait_for_abandoned_run()
        if self._running is not None:
            raise RuntimeError(f"The team is running; it must be stopped before it can {purpose}.")

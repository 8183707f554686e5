"""The turn of a team's run: its events, and the speeches of its agents as child turns of it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from agenticx import user_code
from agenticx.argument_types import check_type
from agenticx.errors import AgenticXError, SessionBusy, StoreError
from agenticx.messages import MAIN_AGENT, UserMessage, clean_text
from agenticx.runtime import AgentRuntime, Budget, EventType, Session, StopSignal, TurnContext, current_turn
from agenticx.runtime.budgets.budget import settings_budget
from agenticx.runtime.interrupts import TurnInterrupted
from agenticx.runtime.run_results import own_events
from agenticx.runtime.turn import Turn
from agenticx.runtime.turn_context import WorkResult
from agenticx.settings import Settings, load_settings
from agenticx.teams.agents.no_model import NoModel
from agenticx.teams.group_chats.errors import TeamError
from agenticx.teams.group_chats.logged_attachments import (
    attachments_of,
    digests_in,
    logged_message,
    named_digests,
    with_contents,
)
from agenticx.teams.messages import BaseAgentEvent, BaseChatMessage, MultiModalMessage, TextMessage
from agenticx.teams.replay import events_at

if TYPE_CHECKING:
    from agenticx.sessions.hub.open_hubs import OpenHub
    from agenticx.sessions.log.events import SessionEvent, StoredEvent
    from agenticx.sessions.store.base import Log

__all__ = ["TeamTurn", "TeamTurns", "task_message"]

_ENDING_SECONDS = 3.0  # to wait for the end of a stopped turn before the next turn of the team begins
_LAST_EVENTS = 20  # of a session, among which the end of its last turn is

Work = Callable[["TeamTurn"], Awaitable[WorkResult]]


class TeamTurn:
    """The turn of one run; None for a team without a session that runs outside of turns."""

    def __init__(self, team: str, turn: Turn | None, stop: Callable[[], object]) -> None:
        self._team = team
        self._turn = turn
        self.stop = stop
        """Cancel the task in which the run works."""

    async def wait_until_written(self) -> None:
        """Wait until all that was emitted is in the log."""
        if self._turn is not None:
            await self._turn.channel.wait_until_written()

    async def emit_speaker(self, name: str, fallback: str | None) -> None:
        """Emit `speaker_selected` and wait until it is written, so that no event of the speech comes before it."""
        words = {} if fallback is None else {"fallback": fallback}
        self._emit(EventType.SPEAKER_SELECTED, {"team": self._team, "speakers": [name], **words})
        await self.wait_until_written()

    def emit_messages(self, messages: Sequence[BaseAgentEvent | BaseChatMessage]) -> None:
        """Emit a `team_message` for each, all in one step, so that a speech is stored whole or not at all.

        An attachment that a message of the user has too is stored by its name.
        """
        for message in messages if self._turn is not None else ():
            self._emit(EventType.TEAM_MESSAGE, {"team": self._team, "message": logged_message(message, self._stored)})

    async def take_steering(self) -> Sequence[BaseChatMessage]:
        """Return the messages that the user sent meanwhile, as part of the task, and emit them in one step."""
        if self._turn is None or not self._turn.steering.left:
            return ()
        messages = [task_message(message) for message in await self._turn.append_steering()]
        self.emit_messages(messages)
        return messages

    def _stored(self) -> set[str]:
        """Return the digests of the attachments of the session's messages."""
        return set() if self._turn is None else digests_in(self._turn.lineage.root.session.all_messages)

    def _emit(self, type_: EventType, data: dict[str, Any]) -> None:
        if self._turn is not None:
            self._turn.emit(type_, data)


def task_message(message: UserMessage) -> BaseChatMessage:
    """Return a message of the user as part of a team's task, with the same id."""
    if message.attachments:
        return MultiModalMessage(content=[message.content, *message.attachments], id=message.message_id)
    return TextMessage(content=message.content, id=message.message_id)


class TeamTurns:
    """The turns of a team's runs.

    - In a turn, such as the turn of an outer team, a run is a child turn, unless `session` is the id of another
      session.
    - Else it is a turn of `session`, a `Session` in memory or the id of a stored one in an open hub; without a session
      it is no turn.
    - A run that is the whole work of a turn, `own_turn`, is that turn.

    TypeError for a `session` of another type.
    """

    own_turn: Turn | None = None

    def __init__(self, team: str, session: Session | str | None, settings: Settings | None) -> None:
        if session is not None:
            check_type("session", session, (Session, str), "a Session or the id of a session (record.id)")
        self._team = team
        self._session = session
        self._settings = settings
        self._waiting: str | None = None  # the id of the turn of an earlier process in which the next run goes on
        self._last: asyncio.Task[None] | None = None  # the last turn of a hub, which may still be ending
        self._known_head: int | None = None  # the number of the last event of the session that the team knows of

    @property
    def are_stored(self) -> bool:
        """True for a stored session, whose log has the state of the team."""
        return isinstance(self._session, str)

    async def new_events(self, known: Sequence[BaseChatMessage]) -> Sequence[SessionEvent] | None:
        """Return the events of teams in the session's log, within a turn only this team's events there.

        Their attachments get their contents from the session's messages and the `known` ones. Returns None if the team
        knows all events, and for a session in memory.
        """
        if not isinstance(self._session, str):
            return None
        from agenticx.sessions.history.subagent_notices import read_talk_events  # on first use: it imports the stores

        await self._wait_for_last()
        store, parent_turn = (await self._hub(self._session)).store, self._find_parent_turn()
        head = await store.log.head(self._session)
        if head == self._known_head or (parent_turn is not None and self._known_head is not None):
            return None
        events = await read_talk_events(store.log, self._session)
        if digests := named_digests(events):
            from agenticx.sessions.store.attachments import stored_attachments  # on first use

            stored = await stored_attachments(store, self._session, digests)
            events = with_contents(events, [*attachments_of(known), *stored])
        self._known_head = head
        return events if parent_turn is None else events_at(events, (*parent_turn.lineage.agent_path, self._team))

    async def record_reset(self) -> None:
        """Append to the log of a stored session that the team begins anew, unless this code runs in a turn there.

        Raises `SessionNotFound`, `StoreError`, and `TeamError` while the session runs a turn, for example of another
        object of the team; nothing has changed then.
        """
        if not isinstance(self._session, str):
            return
        await self._wait_for_last()
        hub = await self._hub(self._session)
        if self._find_parent_turn() is None:  # the event resets a team of the session itself, not one inside a turn
            try:
                await hub.reset_team(self._session, self._team)
            except SessionBusy as exc:
                raise TeamError.of(exc, f"team {self._team!r} cannot be reset") from exc
        self._known_head = await hub.store.log.head(self._session)

    async def _wait_for_last(self) -> None:
        """Wait, bounded, for the end of the last turn of a hub."""
        if self._last is not None and not self._last.done():
            await asyncio.wait({self._last}, timeout=_ENDING_SECONDS)

    async def _hub(self, session_id: str) -> OpenHub:
        from agenticx.sessions.hub.open_hubs import hub_of  # on first use: it imports the stores

        return await hub_of(session_id)

    async def find_waiting(self, *, goes_on: bool) -> str | None:
        """Return the id of the session's turn that waits for its work since an earlier process, None without one.

        It is None too if the next run has a task, and so does not go on (`goes_on`).
        """
        self._waiting = None
        if not (goes_on and isinstance(self._session, str)) or self._find_parent_turn() is not None:
            return None
        turn = await (await self._hub(self._session)).suspended_turn(self._session)
        if turn is None:
            return None
        self._known_head = None  # the team reads its state from the log, also if this object made that run
        return turn.id

    def go_on_in(self, waiting_id: str, own_id: str | None) -> None:
        """Have the next run go on in the waiting turn; ValueError if the team's last turn, `own_id`, is another one."""
        if waiting_id != own_id:
            raise ValueError(
                f"turn {waiting_id!r} of session {self._session!r} waits for a person, and is no run of team"
                f" {self._team!r}; stop that turn, or run the team on a task, which ends it"
            )
        self._waiting = waiting_id

    def _find_parent_turn(self) -> Turn | None:
        """Return the turn of which a run is a child turn, None if there is none."""
        turn = current_turn()
        if turn is None or not turn.children.is_open:
            return None
        is_elsewhere = isinstance(self._session, str) and self._session != turn.session_id
        return None if is_elsewhere else turn

    def budget(self, own: Budget | None) -> Budget | None:
        """Return the budget of the next run; one that is no turn also gets the settings' limits of a turn."""
        if self._session is not None or self._find_parent_turn() is not None:
            return own
        return settings_budget(self._settings or load_settings(), own)

    async def run(self, text: str, task: Sequence[BaseChatMessage], work: Work) -> None:
        """Run `work` as a turn that begins with the message `text`; the result of `work` ends the turn.

        In a turn without a parent the message has the attachments of `task`, so that these are stored.

        Raises what `work` raised, CancelledError if the turn was stopped, and `AgenticXError` if it could not be run.
        """
        own_turn, session = self.own_turn, self._session
        if own_turn is not None and current_turn() is own_turn:
            await work(TeamTurn(self._team, own_turn, _current_task().cancel))
            return None
        if (parent := self._find_parent_turn()) is not None:
            child_session = Session()
            child_session.inherit(parent.session, parent.permissions.mode)
            return await self._run_in_memory(text, work, child_session, agent_id=self._team, parent=parent)
        message = UserMessage(content=clean_text(text), attachments=tuple(attachments_of(task)))
        if session is None:
            await work(TeamTurn(self._team, None, _current_task().cancel))
        elif isinstance(session, Session):
            await self._run_in_memory(message, work, session)
        else:
            await self._run_in_hub(message, work, session)

    async def _run_in_memory(
        self, message: UserMessage | str, work: Work, session: Session, *, agent_id: str = MAIN_AGENT, **context: Any
    ) -> None:
        runtime = AgentRuntime(NoModel(self._team), settings=self._settings or load_settings())
        running = _TurnWork(self._team, work)
        turn = runtime.run_turn(
            message, session, running.stop, agent_id=agent_id, context=TurnContext(work=running, **context)
        )
        try:
            events = [event async for event in turn]
        finally:
            await turn.aclose()
        running.check()
        end = own_events(events)[-1]
        if end.type == "error":
            raise TeamError(end.data["text"], code=end.data["code"])

    async def _run_in_hub(self, message: UserMessage, work: Work, session_id: str) -> None:
        from agenticx.sessions.store.base import SessionOwnedElsewhere  # on first use: it imports the stores

        hub, running = await self._hub(session_id), _TurnWork(self._team, work)
        waiting, self._waiting = self._waiting, None

        async def run_turn() -> None:
            turn = await hub.run_work(session_id, message, running, turn_id=waiting)
            await hub.wait_for_turn(session_id, turn.id)
            self._known_head = None
            with suppress(StoreError):  # of a hub that is being closed: the next run reads the whole log
                self._known_head = await _known_after(hub.store.log, session_id, turn.id)

        await self._wait_for_last()
        turn = self._last = asyncio.create_task(run_turn(), name=f"agx turn of team {self._team}")
        try:
            await asyncio.shield(turn)
        except SessionOwnedElsewhere as exc:
            where = f"another worker, {exc.owner!r}, owns the session {session_id!r}"
            raise TeamError(f"{where}; run the team there, or as a configured one", code="storage") from exc
        except asyncio.CancelledError:
            running.stop.set()
            await asyncio.wait({turn}, timeout=user_code.GRACE_SECONDS / 2)  # whoever cancels waits twice as long
            raise
        running.check()


async def _known_after(log: Log, session_id: str, turn_id: str) -> int | None:
    """Return the number of the last event that the team knows after its turn, None if the turn's events are not found.

    It is the last event of the session, unless others have written since the turn ended.
    """
    from agenticx.sessions.store.base import read_log_pages  # on first use: it imports the stores

    head = await log.head(session_id)
    pages = read_log_pages(log, session_id, max(head - _LAST_EVENTS, 0), until=head)
    events = [event async for page in pages for event in page]
    own = max((event.seq for event in events if event.turn_id == turn_id), default=None)
    if own is None:
        return None
    later = [event for event in events if event.seq > own]
    return later[-1].seq if later and all(map(_is_naming, later)) else own


def _is_naming(event: StoredEvent) -> bool:
    """Return True for the event of the name that a first turn gives to its session."""
    from agenticx.sessions.log.events import decode  # on first use: it imports the stores

    return event.type == "session_changed" and decode(event).event.data.keys() == {"name"}


def _current_task() -> asyncio.Task[Any]:
    task = asyncio.current_task()
    assert task is not None
    return task


class _TurnWork:
    """The `work` of a turn; `stop` stops the turn, and a stop of the turn cancels the work."""

    def __init__(self, team: str, work: Work) -> None:
        self.stop = StopSignal()
        self._team = team
        self._work = work
        self._failure: AgenticXError | None = None
        self._turn: Turn | None = None

    async def __call__(self, turn: Turn) -> WorkResult:
        self._turn = turn
        unwatch = self.stop.watch(turn.stop)
        work = asyncio.ensure_future(self._work(TeamTurn(self._team, turn, turn.stop)))
        try:
            return await asyncio.shield(work)
        except AgenticXError as exc:
            self._failure = exc
            raise
        except asyncio.CancelledError:
            reason = turn.interrupts.reason
            if reason is None:  # by the token of the run
                turn.stop()
                with suppress(asyncio.CancelledError):
                    await asyncio.Event().wait()  # for the cancellation that this requests
            await user_code.abandon(work, f"team {self._team!r}")
            if reason not in (None, "stopped"):
                self._failure = TeamError(f"team {self._team!r}: {TurnInterrupted(reason)}", code=reason)
            raise
        finally:
            unwatch()

    def check(self) -> None:
        """Raise the error that ended the work, if any."""
        if self._turn is None or self._turn.stopped:
            raise asyncio.CancelledError
        if self._failure is not None:
            raise self._failure

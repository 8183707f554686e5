"""The task that runs a turn, the consumers of its events, and the beginning of child turns."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from contextvars import copy_context
from typing import Any

from agenticx import user_code
from agenticx.errors import AgenticXError
from agenticx.logs import bound_ids
from agenticx.messages import ToolCall, UserMessage
from agenticx.runtime.background_tasks import BACKGROUND_SECONDS
from agenticx.runtime.channel import Channel, EventSink
from agenticx.runtime.child_turns import ChildTurn, ChildTurnWriter
from agenticx.runtime.events import Event
from agenticx.runtime.interrupts import StopSignal, cancel_and_wait, watch_stop
from agenticx.runtime.resume import ResumedTurn
from agenticx.runtime.session import Session
from agenticx.runtime.turn import CURRENT_TURN, Turn
from agenticx.threads import retrieve_exception

__all__ = ["TurnTask", "begin_turn", "wait_for_abandoned_turn"]

_STOPPING_SECONDS = 4 * user_code.GRACE_SECONDS  # for a child turn to emit its terminal event
_CLOSING_ITERATIONS = 4  # of the event loop, in which it begins to close a generator that was dropped


class TurnTask:
    """A turn that runs in a task until its consumer closes it. The task raises internal bugs.

    A second task writes the events of a child turn before its consumer gets them.
    """

    def __init__(
        self, turn: Turn, work: Coroutine[Any, Any, None], should_stop: StopSignal | Callable[[], bool] | None
    ) -> None:
        self._turn = turn
        self._unwatch_stop = watch_stop(should_stop, turn.stop)
        if isinstance(should_stop, StopSignal):
            turn.interrupts.attach(should_stop)
        turn.work_clock.start()
        turn.event_loop = asyncio.get_running_loop()
        self._output = turn.channel if turn.writer is None else Channel()
        ids = {"session": turn.session_id, "agent": turn.agent_id, "organization": turn.agent.organization_id}
        with bound_ids(**ids, **({} if turn.writer is None else {"turn": turn.id})):
            context = copy_context()
            context.run(CURRENT_TURN.set, turn)
            self.task = asyncio.create_task(work, name=f"agx turn {turn.session_id}", context=context)
            self.task.add_done_callback(turn.end)
        if turn.earlier_events:
            self._output.put(*turn.earlier_events)
        self._writing = None if turn.writer is None else asyncio.create_task(self._write_child_events(turn.writer))

    async def take(self) -> Sequence[Event]:
        """Return the next events; empty at the end."""
        return await self._output.take()

    async def join(self) -> None:
        """Wait for the turn and the writing of its events; raise the exception of either."""
        if self._writing is not None:
            await asyncio.shield(self._writing)
        await self.task

    async def write_to(self, sink: EventSink) -> None:
        """Write the events in a task of their own, because no write may be cancelled midway."""
        writing = None
        try:
            writing = asyncio.create_task(self._turn.channel.write_to(sink), name=f"agx events {self._turn.session_id}")
            await asyncio.shield(writing)
            await self.task
        finally:
            await self.close()  # ends `writing` too, once all events are written
            if writing is not None:
                await asyncio.wait({writing})
                _ = writing.cancelled() or writing.exception()  # retrieved: the failure that is being raised is older

    async def close(self, *, drop_events: bool = False) -> None:
        """End the turn and everything it started; with `drop_events` its consumer takes no more events."""
        turn = self._turn
        ended = turn.closing = asyncio.Event()
        self._unwatch_stop()
        if self._writing is not None:
            try:
                return await self._close_child(self._writing, ended)
            except asyncio.CancelledError:  # by a stop of the parent, which waits for the end of this turn
                await asyncio.wait({asyncio.create_task(self._close_child(self._writing, ended))})
                raise
        if drop_events:
            turn.channel.close()
        await cancel_and_wait(self.task)
        turn.session.end_turn(turn)
        ended.set()
        if turn.background:
            await turn.background.finish()

    # --- child turns --------------------------------------------------------------------------------------------------

    async def _write_child_events(self, writer: ChildTurnWriter) -> None:
        """Write the events to the parent's place for child turns, then pass them to the consumer."""
        turn = self._turn

        async def write(events: Sequence[Event]) -> None:
            await writer.write(events)
            self._output.put(*events)

        try:
            await turn.channel.write_to(write)
        finally:
            if not self.task.done():
                turn.stop()  # an event could not be written, so no call may begin
            turn.channel.close()
            self._output.close()
            turn.written.set()

    async def _close_child(self, writing: asyncio.Task[None], ended: asyncio.Event) -> None:
        """Stop the turn, wait for its terminal event, and release its writer."""
        turn, parent = self._turn, self._turn.context.parent
        assert turn.writer is not None
        assert parent is not None
        if not self.task.done():
            turn.stop()
            await asyncio.wait({self.task}, timeout=_STOPPING_SECONDS)
        await cancel_and_wait(self.task)
        await asyncio.wait({writing})
        retrieve_exception(writing)
        await turn.writer.close()
        turn.session.end_turn(turn)
        ended.set()
        parent.children.remove(turn)
        if turn.background:
            parent.background.run(turn.background.finish())


def begin_turn(turn: Turn, message: UserMessage) -> Sequence[ToolCall]:
    """Begin `turn`, as a child turn if it has a parent; raise `AgenticXError` if its parent is about to end.

    If a child turn of the same agent has waited for a person since an earlier process, `turn` resumes it. Returns the
    calls of the resumed turn that are to begin.
    """
    parent = turn.context.parent
    if parent is None:
        turn.begin(message)
        return ()
    if not (parent.children.is_open or turn.detached):
        raise AgenticXError(f"turn {parent.id!r} of {parent.agent_id!r} has ended, so no child turn can begin in it")
    resumed = turn.context.resumed or parent.children.take_waiting(turn.agent_id)
    if resumed is None:
        turn.begin(message)
    else:
        _restore_state(turn, resumed)
    turn.session.share_call_ids(parent.session)
    child = ChildTurn(
        id=turn.id,
        parent_id=parent.id,
        agent_id=turn.agent_id,
        input=message.content,
        detached=turn.detached,
        stop=turn.stop,
        suspend=turn.log.suspend,
        session=turn.session,
        agent_path=turn.lineage.agent_path,
        resumed=resumed,
        has_work=turn.context.work is not None,
    )
    turn.writer = turn.child_turns.begin(child)
    turn.journal = turn.writer.journal
    parent.children.add(turn)
    if parent.stopped:
        turn.stop()
    return () if resumed is None else resumed.point.calls


def _restore_state(turn: Turn, resumed: ResumedTurn) -> None:
    """Reserve the session of `turn` and give both the id, conversation and state of `resumed`."""
    turn.resume(resumed.point)
    turn.id, turn.earlier_events = resumed.turn_id, resumed.events
    session = turn.session
    session.messages[:], session.state, session.resumed = resumed.messages, resumed.state, True


async def wait_for_abandoned_turn(session: Session) -> None:
    """Wait, bounded, for the end of a turn whose generator was dropped by a `break`; the event loop closes it soon."""
    for _ in range(_CLOSING_ITERATIONS):
        turn = session.running_turn
        if not isinstance(turn, Turn):
            return
        if turn.closing is not None:
            with suppress(TimeoutError):
                await asyncio.wait_for(turn.closing.wait(), BACKGROUND_SECONDS)
            return
        await asyncio.sleep(0)

"""What becomes of messages that wait for a turn: taken into it, a turn of their own behind it, or handed back.

Nothing that a person typed is lost: a message is durable when its acceptance is told, and leaves the queue in the very
transaction that tells what came of it. One whose turn was stopped, could not begin, or was ended by a restart is handed
back; so is one that a turn did not take in. Interrupts run in the order in which they came, each stopping the one
before. Where the storage fails, messages stay until they can be handed back, and so do turns that could not be ended.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from itertools import chain, repeat

from agenticx.attachments import fingerprint
from agenticx.clocks import Clock
from agenticx.errors import SessionNotFound, StoreError
from agenticx.logs import get_logger
from agenticx.messages import new_id
from agenticx.runtime import EventType
from agenticx.sessions.base import JournalEntry, Store, TurnRecord
from agenticx.sessions.live import LiveSession, RunningTurn, to_its_end
from agenticx.sessions.posting import Posted, TurnRequest, check_same
from agenticx.sessions.waiting import WaitingMessage, fate_of, posted_key

__all__ = ["Queueing", "turn_of"]

_SETTLE_AGAIN_SECONDS = (0.5, 2.0, 10.0)
_NOW_AND_THEN_SECONDS = 30.0
_CLOSING_SECONDS = 1.0

_log = get_logger(__name__)


def turn_of(message: WaitingMessage) -> TurnRecord:
    """The turn that `message` begins."""
    return TurnRecord(
        id=message.turn_id,
        session_id=message.session_id,
        input=message.message.content,
        attachments_digest=fingerprint(message.message.attachments),
        client_turn_id=message.client_turn_id,
    )


class Queueing:
    """The queues of all sessions in use; those with a message are kept in memory here.

    `open_` gets a session; `free` frees it of a turn whose end could not be stored; `begin` begins the turn of a
    message, or gives it up, and returns False if another turn holds the session still; `gone` is told of a session that
    is no more.
    """

    def __init__(
        self,
        store: Store,
        clock: Clock,
        *,
        open_: Callable[[str], Awaitable[LiveSession]],
        free: Callable[[LiveSession], Awaitable[None]],
        begin: Callable[[LiveSession, WaitingMessage], Awaitable[bool]],
        gone: Callable[[str], None],
    ) -> None:
        self._store = store
        self._clock = clock
        self._open = open_
        self._free = free
        self._begin = begin
        self._gone = gone
        self._held: dict[str, LiveSession] = {}
        self._settling: set[asyncio.Task[None]] = set()
        self._resting: set[str] = set()  # sessions that are tried again after a pause
        self.closing = False  # nothing begins any more

    # --- in -----------------------------------------------------------------------------------------------------------

    async def join(self, live: LiveSession, message: WaitingMessage, request: TurnRequest) -> None:
        """Have `message` wait for the turn that runs, durably. The caller holds the door."""
        live.waiting.check_room(message.message)
        running = live.current
        self._held[live.session.id] = live
        live.waiting.add(message)
        try:
            if request.when_busy == "steer" and running is not None and await self._steer(live, running, message):
                return
            await live.append(None, [message.event(EventType.QUEUED)], journal=[message.entry()])
        except BaseException:
            message.unsure = message.given_up = True  # its sender is told that it was refused
            self.settle_soon(live.session.id)
            raise
        if running is not None and message.interrupts:
            running.stop.set()
        if live.current is None:
            self.settle_soon(live.session.id)

    async def _steer(self, live: LiveSession, running: RunningTurn, message: WaitingMessage) -> bool:
        """Give `message` to the running turn; if that is ending, it is to begin a turn of its own after all."""
        if running.steering.closed:
            return False
        own, message.turn_id, message.steers = message.turn_id, running.turn.id, True
        await live.append(None, [message.event(EventType.QUEUED)], journal=[message.entry()])
        if not running.steering.put(message.message):
            message.turn_id, message.steers = own, False
        return message.steers

    async def posted_before(self, live: LiveSession, request: TurnRequest) -> Posted | None:
        """What has become of the message of the same `client_turn_id`, if one had to wait; raises `TurnConflict`."""
        if request.client_turn_id is None:
            return None
        key = posted_key(live.session.id, request.client_turn_id)
        async with live.storing:  # what is written meanwhile would be found by neither
            taken = await self._store.journal_entry("taken", key)
            entry = await self._store.journal_entry("posted", key) if taken is None else None
        message = live.waiting.get(key)
        if taken is not None:
            check_same(request.client_turn_id, fate_of(taken).turn, request)
            if message is not None:  # a write of which nobody knew has taken care of it
                live.waiting.remove(message)
            return await self._fate(taken)
        if entry is None:
            if message is not None:  # the storage refused it
                live.waiting.remove(message)
            return None
        message = message or WaitingMessage.of_entry(entry)
        check_same(request.client_turn_id, message.message, request)
        if message.unsure:
            await self._make_sure(live)
            await self._take_up_again(live, message)
        return await self.fate(live, message)

    async def _take_up_again(self, live: LiveSession, message: WaitingMessage) -> None:
        """`message` was said to be refused, but stands, and is posted again."""
        if message.gone.is_set():
            return
        message.given_up = False
        running = live.current
        if message.steers and not (running is not None and running.steering.put(message.message)):
            message.turn_id, message.steers = new_id("turn"), False
            await live.append(None, [message.event(EventType.QUEUED)])

    async def fate(self, live: LiveSession, message: WaitingMessage) -> Posted:
        """What has become of `message` so far."""
        taken = await self._store.journal_entry("taken", message.key)
        if taken is not None:
            return await self._fate(taken)
        if message.gone.is_set():
            raise SessionNotFound(f"session {live.session.id!r} was deleted")
        state = "steered" if message.steers else "queued"
        told = message.message.message_id
        return Posted(state=state, turn=turn_of(message), message_id=told, after_seq=live.seq)

    async def _fate(self, taken: JournalEntry) -> Posted:
        posted = fate_of(taken)
        return replace(posted, turn=await self._store.turn(taken.session_id, taken.turn_id) or posted.turn)

    # --- out ----------------------------------------------------------------------------------------------------------

    async def settle(self, live: LiveSession) -> None:
        """Once nothing runs: hand back what is given up, then begin the first that waits. The caller holds the door."""
        if live.running is not None:
            if not live.running.over or live.running.parked:
                return
            await live.running.finished.wait()
        await self._free(live)
        await self._make_sure(live)
        while live.waiting and live.current is None:
            back = [message for message in live.waiting if message.given_up or message.steers or self.closing]
            if back:
                await live.append(None, [message.event(EventType.HANDED_BACK) for message in back])
            elif not await self._begin(live, first := live.waiting.first):
                return
            elif live.current is not None and live.waiting.interrupted(first.turn_id):
                live.current.stop.set()
        if not live.waiting:
            self._held.pop(live.session.id, None)

    async def _make_sure(self, live: LiveSession) -> None:
        """Leave out what failed writes have taken care of after all, and what they never stored."""
        async with live.storing:
            for message in [message for message in live.waiting if message.unsure]:
                taken = await self._store.journal_entry("taken", message.key)
                if taken is not None or await self._store.journal_entry("posted", message.key) is None:
                    live.waiting.remove(message)
                message.unsure = False

    def on_ended(self, live: LiveSession, running: RunningTurn) -> None:
        """A turn is over: what waits for it goes on; the message that could not begin it is given up."""
        if running.started.done() and running.started.exception() is not None:
            live.waiting.give_up(running.turn.id)
        if live.waiting:
            self.settle_soon(live.session.id)

    def settle_soon(self, session_id: str, *, failed: bool = False) -> None:
        """`settle` behind the caller's back, after a pause if the storage `failed` just now, until it succeeds."""
        if failed and self.closing:
            return
        task = asyncio.create_task(self._settle_behind(session_id, failed=failed), name=f"agx settling {session_id}")
        self._settling.add(task)
        task.add_done_callback(self._settled)

    def _settled(self, task: asyncio.Task[None]) -> None:
        self._settling.discard(task)
        if not task.cancelled() and (failure := task.exception()) is not None:
            _log.error("what waits in a session could not go on", exc_info=failure)

    async def _settle_behind(self, session_id: str, *, failed: bool) -> None:
        for seconds in chain(_SETTLE_AGAIN_SECONDS, repeat(_NOW_AND_THEN_SECONDS)):
            if not failed and await to_its_end(self._try_to_settle(session_id)):
                return
            if session_id in self._resting:  # another one tries again
                return
            self._resting.add(session_id)
            try:
                await self._clock.sleep(seconds)
            finally:
                self._resting.discard(session_id)
            failed = False

    async def _try_to_settle(self, session_id: str) -> bool:
        """Whether the storage took it; where it does not, what waits is given up, to be handed back once it does."""
        try:
            await self.settle_alone(await self._open(session_id))
        except SessionNotFound:  # deleted meanwhile, and what waits with it
            if (live := self._held.get(session_id)) is not None:
                self.forget(live)
            self._gone(session_id)
        except StoreError as exc:
            _log.error("what waits in a session could not go on", session=session_id, error=str(exc))
            if (live := self._held.get(session_id)) is not None:
                live.waiting.give_up()
            return False
        return True

    async def settle_alone(self, live: LiveSession) -> None:
        """`settle` for a caller without the door."""
        async with live.door:
            await self.settle(live)

    # --- the end, and the next beginning ------------------------------------------------------------------------------

    async def close(self) -> None:
        """Hand back what waits, but for what waits for a turn that goes on after the next start."""
        self.closing = True
        for live in list(self._held.values()):
            try:
                await self.settle_alone(live)
            except StoreError as exc:
                _log.error("what waits in a session does so until the next start", error=str(exc))
        for task in self._settling:  # they wait to try again, or for a write to end
            task.cancel()
        if self._settling:
            await asyncio.wait(self._settling, timeout=self._clock.real(_CLOSING_SECONDS))

    def forget(self, live: LiveSession) -> None:
        """The session is about to be deleted."""
        self._held.pop(live.session.id, None)
        for message in list(live.waiting):
            live.waiting.remove(message)

    def find(self, live: LiveSession, entry: JournalEntry) -> None:
        """`entry` was posted by the process before this one, and nothing came of it."""
        if live.waiting.get(entry.key) is None:
            live.waiting.add(WaitingMessage.of_entry(entry))
            self._held[live.session.id] = live

    async def wait_on(self) -> None:
        """Have what was found wait for the turn that goes on; where none does, it is handed back."""
        for live in list(self._held.values()):
            async with live.door:
                if live.current is None:
                    live.waiting.give_up()
                elif live.waiting.interrupted():
                    live.current.stop.set()
                else:
                    self._steer_again(live, live.current)
                await self.settle(live)

    def _steer_again(self, live: LiveSession, running: RunningTurn) -> None:
        for message in live.waiting:
            if message.steers and message.message not in running.steering.left:
                running.steering.put(message.message)

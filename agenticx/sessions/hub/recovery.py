"""Reading of a turn that an earlier process, or a failed write, left without an end."""

from __future__ import annotations

from collections.abc import Sequence

from agenticx.logs import get_logger
from agenticx.sessions.history.interrupted import InterruptedTurn
from agenticx.sessions.store.base import Log, read_log_pages
from agenticx.sessions.store.damage import DamagedData
from agenticx.sessions.store.hosts import is_this_host
from agenticx.sessions.store.records import Fact, Loaded, StoredEvent, TurnRecord
from agenticx.threads import run_in_thread
from agenticx.tools.processes import StartedProcess, kill_leftovers

__all__ = ["end_leftover_processes", "read_interrupted"]

_log = get_logger(__name__)


async def read_interrupted(log: Log, turn: TurnRecord, loaded: Loaded) -> InterruptedTurn:
    """Return the state of the running turn in its log and facts; if they are unreadable, only that it runs."""
    try:
        if loaded.facts_damaged:
            raise DamagedData("a fact of the turn is damaged")
        events: list[StoredEvent] = []
        async for page in read_log_pages(log, turn.session_id, turn.after_seq or 0):
            events += (event for event in page if event.turn_id == turn.id)
        return InterruptedTurn.from_log(events, [fact for fact in loaded.open_facts if fact.turn_id == turn.id])
    except DamagedData as exc:
        _log.error("log of an interrupted turn unreadable", turn=turn.id, error=str(exc))
        return InterruptedTurn(session_id=turn.session_id)


async def end_leftover_processes(log: Log, facts: Sequence[Fact]) -> None:
    """Terminate the processes on this host that are left of a turn of an earlier process."""
    for fact in facts:
        if fact.kind == "process_started" and is_this_host(fact.data.get("host"), log):
            process = StartedProcess(fact.data["pid"], fact.data["started"], fact.data["mark"])
            await run_in_thread(kill_leftovers, process, name="agx ending processes")

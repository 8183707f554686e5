"""Reading of a turn that an earlier process, or a failed write, left without an end."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from agenticx.logs import get_logger
from agenticx.messages import Message
from agenticx.runtime.resume import ResumePoint
from agenticx.sessions.history.interrupted import InterruptedTurn, resume_point
from agenticx.sessions.store.base import Log, read_log_pages
from agenticx.sessions.store.damage import DamagedData, map_decode_errors
from agenticx.sessions.store.hosts import is_this_host
from agenticx.sessions.store.records import Fact, Loaded, StoredEvent, TurnRecord
from agenticx.threads import run_in_thread
from agenticx.tools.processes import StartedProcess, kill_leftovers

__all__ = ["end_leftover_processes", "read_interrupted", "read_resume_point"]

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


async def read_resume_point(
    log: Log, turn: TurnRecord, loaded: Loaded, messages: Sequence[Message], is_repeatable: Callable[[str], bool]
) -> ResumePoint | None:
    """Return where the running turn resumes, None if it cannot; `is_repeatable` says which tools may run again."""
    interrupted = await read_interrupted(log, turn, loaded)
    with map_decode_errors("the log of a turn"):
        return resume_point(interrupted, messages, is_repeatable)


async def end_leftover_processes(log: Log, facts: Sequence[Fact]) -> None:
    """Terminate the processes on this host that are left of a turn of an earlier process."""
    for fact in facts:
        if fact.kind == "process_started" and is_this_host(fact.data.get("host"), log):
            process = StartedProcess(fact.data["pid"], fact.data["started"], fact.data["mark"])
            await run_in_thread(kill_leftovers, process, name="agx ending processes")

"""A process that rewinds, forks and reads a long log, and prints the memory that each took."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

from agenticx.llms import ScriptedModel
from agenticx.runtime import EventType, RuntimeEvent
from agenticx.sessions import Hub, SqliteStore, TurnRecord, fork
from agenticx.sessions.history.subagent_notices import read_talk_events
from agenticx.settings import load_settings
from tests.support.commits import append
from tests.support.faults.measured_call import kilobytes
from tests.support.stores import final, record

TURNS = 10
NOW = "2026-01-01T00:00:00.000Z"


async def main(folder: str, events: str) -> None:
    path = Path(folder) / "sessions.db"
    session_id = await make_session(path, int(events))
    store = SqliteStore(path)
    settings = load_settings({"home": Path(folder) / "home"}, environ={})
    hub = Hub(store, models=lambda _: ScriptedModel([]), tools=lambda _: [], settings=settings)
    await hub.rewind(session_id, "user_0")  # a first time, which loads modules
    rewind = await growth(hub.rewind(session_id, "reply_8"))
    copying = await growth(fork(store, session_id, now=NOW))
    (made, _) = await store.catalog.sessions()
    copied = await store.log.head(made.id)
    talk = await growth(read_talk_events(store.log, made.id))
    await hub.close()
    await store.aclose()
    print(json.dumps({"rewind": rewind, "fork": copying, "talk": talk, "copied": copied}))


async def growth(work: Awaitable[Any]) -> int:
    """Return by how many megabytes the process grew meanwhile, at the most."""
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    before = kilobytes("VmHWM")
    await work
    return (kilobytes("VmHWM") - before) // 1024


async def make_session(path: Path, events: int) -> str:
    """Create a session of that many events in turns of equal length, nearly all of them tokens."""
    store, made, tokens = SqliteStore(path), record("long"), events // TURNS - 2
    await store.create(made)
    for number in range(TURNS):
        turn = TurnRecord(id=f"turn_{number}", session_id=made.id, input="x")
        data: dict[str, Any] = {"input": "x", "model": "plan", "message_id": f"user_{number}"}
        await append(store, made.id, turn.id, [RuntimeEvent(EventType.TURN_STARTED, data)], begins=turn)
        reply = {"message_id": f"reply_{number}", "offset": 0}
        token = RuntimeEvent(EventType.TOKEN, {"text": "word ", **reply})
        for start in range(0, tokens, 1000):
            await append(store, made.id, turn.id, [token] * min(1000, tokens - start))
        await append(store, made.id, turn.id, [final()])
    await store.aclose()
    return made.id


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))

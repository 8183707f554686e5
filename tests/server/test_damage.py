"""A damaged database over HTTP: an error response, and no stream that reconnects for ever."""

from __future__ import annotations

import signal
import sqlite3
from contextlib import closing
from pathlib import Path

import httpx
import pytest

from agenticx.runtime import EventType, RuntimeEvent
from tests.support.commits import append
from tests.support.server.agx_processes import agx_serve, outcome
from tests.support.server.running_studio import running_studio

pytestmark = pytest.mark.anyio


def damage(database: Path, session_id: str, *, behind: int = 0) -> None:
    """Destroy the events of a session's log after number `behind`."""
    with closing(sqlite3.connect(database, isolation_level=None)) as connection:
        for table in ("commits", "segments"):
            connection.execute(
                f"UPDATE {table} SET body = x'00' WHERE last_seq > ?"
                " AND session = (SELECT number FROM sessions WHERE id = ?)",
                (behind, session_id),
            )


async def test_a_damaged_log_is_503_for_its_own_session_only(tmp_path: Path) -> None:
    database = tmp_path / "home" / "sessions.db"
    async with running_studio(tmp_path) as studio:
        ids = [await studio.session(name="one"), await studio.session(name="two")]
        for session_id in ids:
            await studio.turn(session_id, "hi")
            await studio.events_until(session_id, "final")
    damage(database, ids[0])
    async with running_studio(tmp_path) as studio:
        for path in ("events", "messages", "export", "export?format=markdown"):
            answer = await studio.client.get(f"/api/sessions/{ids[0]}/{path}")
            assert (answer.status_code, answer.json()["code"]) == (503, "storage")
            assert "damaged" in answer.json()["detail"]
        assert (await studio.client.get(f"/api/sessions/{ids[1]}/messages")).status_code == 200
        assert len((await studio.client.get("/api/sessions")).json()["sessions"]) == 2


async def test_an_export_that_reaches_damage_aborts_and_logs_it_without_a_traceback(
    tmp_path: Path,
) -> None:
    home = tmp_path / "home"
    async with running_studio(tmp_path) as studio:
        session_id = await studio.session(name="one")
        word = RuntimeEvent(EventType.TOKEN, {"text": "word", "message_id": "m", "offset": 0})
        for _ in range(6):
            await append(studio.services.store, session_id, None, [word] * 500)
    damage(home / "sessions.db", session_id, behind=2500)
    async with agx_serve(home) as served, served.client() as client:
        got = bytearray()
        async with client.stream("GET", f"/api/sessions/{session_id}/export") as answer:
            assert answer.status_code == 200
            with pytest.raises(httpx.TransportError):
                await read_all(answer, got)
        assert (await client.get("/api/health")).status_code == 200
        served.process.send_signal(signal.SIGTERM)
        code, _, err = await outcome(served.process)
    assert b"word" in got
    assert (code, err.count("export cut off"), "Traceback" in err) == (0, 1, False)


async def read_all(answer: httpx.Response, got: bytearray) -> None:
    async for piece in answer.aiter_raw():
        got += piece

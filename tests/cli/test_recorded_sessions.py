"""Recorded sessions, replayed by the current release without loss or misreading.

`agx sessions export ID > recorded_sessions/NAME.jsonl` adds a session, and `agx sessions replay NAME.jsonl > NAME.txt
2>&1` stores its expected output.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from agenticx.sessions import SessionRecord, SqliteStore
from agenticx.sessions.log.events import decode_line, encode
from tests.support.stores import in_pages

RECORDED = sorted((Path(__file__).parent / "recorded_sessions").glob("*.jsonl"))


@pytest.mark.parametrize("file", RECORDED, ids=lambda file: file.stem)
@pytest.mark.cases(quick=1)
def test_a_recorded_session_replays_as_recorded_and_its_events_byte_for_byte(agx: Any, file: Path) -> None:
    screen = agx.folder / "screen"
    with screen.open("wb") as both:
        done = agx("sessions", "replay", str(file), stdout=both.fileno(), stderr=both.fileno())
    assert done.returncode == 0
    assert screen.read_text(encoding="utf-8") == file.with_suffix(".txt").read_text(encoding="utf-8")
    assert agx("sessions", "replay", str(file), "--json").stdout == file.read_text(encoding="utf-8")


@pytest.mark.ci_lane
def test_recorded_sessions_in_a_store_are_listed_shown_and_exported_unchanged(agx: Any) -> None:
    home = Path(agx.environment["AGX_HOME"])
    stored = [file for file in RECORDED if file.stem != "events_of_a_later_release"]
    asyncio.run(insert_sessions(home / "sessions.db", stored))
    listed = [json.loads(line) for line in agx("sessions", "list", "--json").stdout.splitlines()]
    assert [row["name"] for row in listed] == [file.stem for file in reversed(stored)]
    for row, file in zip(listed, reversed(stored), strict=True):
        assert agx("sessions", "export", row["id"]).stdout == file.read_text(encoding="utf-8")
        shown = json.loads(agx("sessions", "show", row["id"], "--json").stdout)
        assert [message["role"] for message in shown["messages"][:2]] == ["user", "assistant"]


async def insert_sessions(database: Path, files: list[Path]) -> None:
    """Insert recorded sessions into a store, each under its own id and named after its file."""
    store = SqliteStore(database)
    for file in files:
        lines = file.read_bytes().splitlines()
        session_id = json.loads(lines[0])["session_id"]
        past = [
            encode(event, session_id=session_id, turn_id=event.turn_id, seq=seq, position=seq, ts=ts)
            for event, _, seq, ts in map(decode_line, lines)
        ]
        record = SessionRecord(id=session_id, name=file.stem, workspace="/", created_at="2026-11-21T00:00:00.000Z")
        await store.create(record, initial_events=in_pages(past))
    await store.aclose()

"""Compaction from one turn and one process to the next: what gained nothing is not bought again."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from agenticx.llms.scripted import ScriptedModel
from agenticx.sessions import Hub, SessionRecord, SqliteStore, TurnRequest
from agenticx.settings import load_settings
from tests.patience import PATIENCE, PatientClock

pytestmark = pytest.mark.anyio

LONGER = "A summary that is longer than all of it. " * 200
QUESTION = "What is there to say of this? " * 20


async def ended(store: SqliteStore, session_id: str, turns: int) -> None:
    """Wait until that many turns have ended."""
    news = asyncio.Event()
    with store.subscribe(session_id, news):
        while sum(event.terminal for event in await store.read(session_id, 0, 10_000)) < turns:
            await asyncio.wait_for(news.wait(), PATIENCE)
            news.clear()


@pytest.mark.promise("D4")
async def test_a_summary_that_gained_nothing_is_not_bought_again_by_later_turns_nor_after_a_restart(
    tmp_path: Path,
) -> None:
    record = SessionRecord(name="Named", workspace=str(tmp_path), created_at="2026-01-01T00:00:00.000Z")
    settings = load_settings({"home": tmp_path / "home", "compaction_threshold_messages": 8}, environ={})
    script = [*["Yes."] * 7, LONGER, *["Yes."] * 4, "A summary.", "Yes."]
    asked: list[int] = []
    for number in range(12):  # each turn in a process of its own
        store = SqliteStore(tmp_path / "sessions.db")
        if not number:
            await store.create(record)
        model = ScriptedModel(script)
        hub = Hub(
            store,
            models=lambda _name, model=model: model,
            tools=lambda _record: [],
            settings=settings,
            clock=PatientClock(),
        )
        await hub.post(record.id, TurnRequest(input=QUESTION))
        await ended(store, record.id, number + 1)
        asked.append(len(model.requests))
        script = script[len(model.requests) :]
        await hub.close()
        await store.aclose()
    assert asked == [1, 1, 1, 1, 1, 1, 1, 2, 1, 1, 1, 2], "in vain with 15 rows, so again with 23"

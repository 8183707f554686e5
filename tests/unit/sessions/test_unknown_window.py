"""Sessions whose model has an unknown context window: their history is compacted by its size alone."""

from __future__ import annotations

import asyncio

from agenticx import open_hub
from agenticx.testing import ScriptedModel


def test_many_short_messages_are_not_summarised() -> None:
    async def types() -> list[str]:
        async with open_hub("memory://", model=ScriptedModel(["Hi."] * 14)) as hub:
            session = await hub.create()
            return [event.type for number in range(14) async for event in hub.run_turn(session.id, f"Hello {number}.")]

    found = asyncio.run(types())
    assert found.count("final") == 14
    assert "compaction" not in found

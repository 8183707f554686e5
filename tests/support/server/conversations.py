"""Functions that run turns over HTTP and read back their messages and their log."""

from __future__ import annotations

import json
from typing import Any

from tests.support.server.running_studio import RunningStudio

__all__ = ["log", "messages", "run_turn"]


async def run_turn(studio: RunningStudio, session_id: str, *texts: str) -> None:
    """Run a turn for each text, one after the other."""
    for text in texts:
        answer = (await studio.turn(session_id, text)).json()
        assert "cursor" in answer, answer
        cursor = answer["cursor"]
        await studio.events_until(session_id, "final", cursor=cursor)


async def messages(studio: RunningStudio, session_id: str) -> list[dict[str, Any]]:
    return (await studio.client.get(f"/api/sessions/{session_id}/messages")).json()["messages"]


async def log(studio: RunningStudio, session_id: str) -> list[dict[str, Any]]:
    answer = await studio.client.get(f"/api/sessions/{session_id}/export")
    return [json.loads(line) for line in answer.text.splitlines()]

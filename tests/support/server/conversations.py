"""Functions that run turns over HTTP and read back their messages and their log, and a model for them."""

from __future__ import annotations

import json
from typing import Any

from agenticx.llms import ModelRequest, ScriptedModel
from tests.support.server.running_studio import RunningStudio

__all__ = ["ByAgent", "log", "messages", "run_turn"]


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


class ByAgent:
    """A model that plays the script of the main agent, or that of sub-agents, as their system prompts say."""

    name = "by agent"

    def __init__(self, main: list[Any], worker: list[Any]) -> None:
        self.main, self.worker = ScriptedModel(main), ScriptedModel(worker)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.main, name)

    def stream(self, request: ModelRequest) -> Any:
        system = str(request.messages[0].content)
        return (self.worker if "You work as a sub-agent" in system else self.main).stream(request)

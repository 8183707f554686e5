"""Sessions of a hub in which teams run, and their logs."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from agenticx import open_hub
from agenticx.llms import ScriptedModel
from agenticx.sessions import Hub
from agenticx.settings import load_settings
from agenticx.testing import check_grammar

__all__ = ["by_agent", "log_of", "open_session"]


@asynccontextmanager
async def open_session(folder: Path) -> AsyncIterator[tuple[Hub, str]]:
    """Yield a hub with one session, whose own model is never called."""
    settings = load_settings({"home": folder / "home"}, environ={})
    url = f"sqlite:///{folder}/sessions.db"
    async with open_hub(url, model=ScriptedModel([]), tools=[], workspace=folder, settings=settings) as hub:
        yield hub, (await hub.create(name="Talk")).id


async def log_of(hub: Hub, session_id: str) -> list[dict[str, Any]]:
    events = [json.loads(event.frame_json) for event in await hub.store.log.read(session_id, 0, 1000)]
    check_grammar(events)
    return events


def by_agent(log: Sequence[dict[str, Any]]) -> dict[str, list[list[dict[str, Any]]]]:
    """Return the turns of each agent, by its name."""
    turns: dict[str, list[list[dict[str, Any]]]] = {}
    for started in log:
        if started["type"] == "turn_started":
            events = [event for event in log if event["turn_id"] == started["turn_id"]]
            turns.setdefault(started["agent_id"], []).append(events)
    return turns

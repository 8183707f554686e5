"""Hubs with a team from a file, and the logs of its sessions."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from agenticx import open_hub
from agenticx.llms import ScriptedModel
from agenticx.sessions import Hub
from agenticx.settings import load_settings
from agenticx.testing import check_grammar

__all__ = ["DESK", "PAIR", "log_of", "open_team_hub", "shown", "speakers", "team_file"]

PAIR = """
kind = "round_robin"
max_turns = 2
[[participants]]
name = "writer"
system_message = "Write."
[[participants]]
name = "critic"
system_message = "Judge."
"""
"""A team of a writer and a critic, of whom each speaks once in a run."""

DESK = """
kind = "swarm"
[[participants]]
name = "desk"
system_message = "Ask."
handoffs = ["clerk", "customer"]
[[participants]]
name = "clerk"
system_message = "Work."
handoffs = ["customer"]
[[termination]]
type = "handoff"
target = "customer"
[[termination]]
type = "text_mention"
text = "DONE"
"""
"""A team whose runs end when an agent hands over to the customer, who is no participant."""


def team_file(home: Path, text: str = PAIR, name: str = "pair") -> Path:
    """Write the file of a team and return its path."""
    path = home / "teams" / f"{name}.toml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


@asynccontextmanager
async def open_team_hub(
    folder: Path, script: Sequence[Any] = (), *, tools: Iterable[Any] = (), model: Any = None
) -> AsyncGenerator[Hub]:
    """Yield a hub over a store in `folder`; all participants use one model, which replays `script`."""
    settings = load_settings({"home": folder / "home"}, environ={})
    model = model or ScriptedModel(list(script))
    url = f"sqlite:///{folder}/sessions.db"
    async with open_hub(url, model=model, tools=list(tools), workspace=folder, settings=settings) as hub:
        yield hub


async def log_of(hub: Hub, session_id: str) -> list[dict[str, Any]]:
    """Return the checked log of a session."""
    events = [json.loads(event.frame_json) for event in await hub.store.log.read(session_id, 0, 1000)]
    check_grammar(events)
    return events


def speakers(log: Sequence[dict[str, Any]]) -> list[str]:
    """Return the names of those that were chosen to speak."""
    return [event["data"]["speakers"][0] for event in log if event["type"] == "speaker_selected"]


def shown(model: ScriptedModel, number: int) -> list[tuple[str, str]]:
    """Return role and text of the messages of a request, without the instructions."""
    return [(message.role, message.content) for message in model.requests[number].messages if message.role != "system"]

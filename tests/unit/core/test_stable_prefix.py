"""The prompts of a conversation about notes: each begins with the one before it, on every wire."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from agenticx.core import AgentChainRunner
from agenticx.knowledge import Vaults
from agenticx.llms import ScriptedModel
from agenticx.runtime import Session
from agenticx.settings import load_settings
from agenticx.testing import call
from tests.support.wires.wires import WIRES

pytestmark = pytest.mark.anyio

ROWS = ("messages", "contents", "input")
"""The keys of a body whose list grows from turn to turn."""
NOT_CACHED = {"cache_control", "thinking"}
"""Marks for a cache, and a parameter that is no part of what is cached."""
WORDS: list[tuple[str, Any]] = [
    ("What do my notes say about the lease?", None),
    ("Hello!", "chat"),
    ("Compare [[Lease]] with [[Heron]] and [[Nowhere]]", "agent"),
    ("And the budget of #heron?", "vault"),
    ("Go on", None),
]


async def conversation(folder: Path) -> ScriptedModel:
    """Return the model after 20 turns with pins, searches, changed notes and changes of mode."""
    notes = folder / "Notes"
    notes.mkdir()
    (notes / "Lease.md").write_text("# Lease\n\nIt ends in May 2027.\n")
    (notes / "Heron.md").write_text("# Heron\n\nThe budget is 40,000 EUR. #heron\n")
    script: list[Any] = []
    for number in range(20):
        if number % 3 == 0:
            script.append([call("note_search", {"query": f"budget {number}"}), call("note_read", {"path": "Lease"})])
        script.append(f"Answer {number} [^1].")
    model, vaults = ScriptedModel(script, context_window=200_000), Vaults(folder / "home")
    settings = load_settings({"home": folder / "home"}, environ={})
    runner = AgentChainRunner(model, vaults=vaults, system_prompt="Be brief.", settings=settings)
    await vaults.add(notes)
    session = Session(workspace=folder)
    for number in range(20):
        text, mode = WORDS[number % len(WORDS)]
        events = [event async for event in runner.run_turn(f"{text} ({number})", session, mode=mode)]
        assert events[-1].type == "final"
        if number % 4 == 1:
            (notes / "Lease.md").write_text(f"# Lease\n\nIt ends in May {2028 + number}.\n")
    await vaults.close()
    return model


def without_marks(value: Any) -> Any:
    """Return a part of a body without what is no part of the text that a provider caches."""
    if isinstance(value, dict):
        return {key: without_marks(item) for key, item in value.items() if key not in NOT_CACHED}
    return [without_marks(item) for item in value] if isinstance(value, list) else value


@pytest.mark.ci_lane
async def test_each_request_of_twenty_turns_begins_with_the_one_before_it_on_every_wire(tmp_path: Path) -> None:
    model = await conversation(tmp_path)

    assert len(model.requests) == 27
    injected = [message.content for message in model.requests[-1].messages if getattr(message, "injected", False)]
    given = re.findall(r"^\[passage (\d+): ", "\n".join(injected), re.MULTILINE)
    assert len(set(given)) == len(given) > 5
    assert sum("You have these already: " in text for text in injected) == 7
    assert sum("Outdated: passage" in text for text in injected) == 5
    for wire in WIRES.values():
        bodies = [without_marks(wire.request(request.messages, tools=request.tools)) for request in model.requests]
        (key,) = [key for key in ROWS if key in bodies[0]]
        for earlier, later in pairwise(bodies):
            assert later[key][: len(earlier[key])] == earlier[key], wire.name
            assert {**later, key: ()} == {**earlier, key: ()}, wire.name

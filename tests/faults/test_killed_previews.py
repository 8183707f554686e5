"""Files of a session that clients were shown a part of when the process was killed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agenticx.llms import ScriptedModel
from agenticx.runtime import ConfirmAnswer
from agenticx.sessions import Hub, SessionRecord, Store, TurnRequest, open_store
from agenticx.settings import load_settings
from agenticx.testing import call, check_grammar, hang
from agenticx.tools import tool
from agenticx.tools.builtin import create_file
from tests.support.faults.killed_process import kill_this_process, run_until_killed
from tests.support.sessions import wait_for_event, wait_for_turn_end

pytestmark = pytest.mark.anyio

CREATE = call("create_file", {"path": "index.html", "content": "<h1>Rye</h1>"}, pieces=4)
REPLIES = {"it waited for an answer": [call("note", {}), CREATE], "the model was writing": [CREATE, hang()]}


@tool(risk="write")
def note() -> str:
    """Write a note."""
    return "noted"


def hub_over(folder: Path, *script: Any) -> tuple[Store, Hub]:
    settings = load_settings({"home": folder / "home"}, environ={})
    store, model = open_store(settings), ScriptedModel(script)
    return store, Hub(store, models=lambda _: model, tools=lambda _: [note, create_file], settings=settings)


async def show_until_killed(folder: Path, when: str) -> None:
    store, hub = hub_over(folder, REPLIES[when])
    await store.create(SessionRecord(id="ses_1", workspace=str(folder), created_at="2026-01-01"))
    await hub.start("ses_1", TurnRequest(input="a page"))
    await wait_for_event(store, "ses_1", "confirm_required" if when == "it waited for an answer" else "artifact")
    kill_this_process()


@pytest.mark.parametrize("when", REPLIES)
async def test_a_file_shown_in_part_is_dropped_before_anything_else_and_made_under_another_number(
    tmp_path: Path, when: str
) -> None:
    await run_until_killed(show_until_killed, tmp_path, when)
    waited = when == "it waited for an answer"
    store, hub = hub_over(tmp_path, *(["done"] if waited else []), CREATE, "done")
    logged = len(await store.log.read("ses_1", 0, 10_000))
    await hub.recover()
    for question in await hub.open_requests("ses_1"):
        await hub.answer(question.id, ConfirmAnswer(approved=True), digest=question.digest)
    await wait_for_turn_end(store, "ses_1")
    await hub.start("ses_1", TurnRequest(input="again"))
    events = [json.loads(event.frame_json) for event in await wait_for_turn_end(store, "ses_1", ends=2)]
    check_grammar(events)
    shown = [event["data"] for event in events if event["type"] == "artifact"]
    finals = [(data["revision"], data.get("dropped", False)) for data in shown if data["final"]]
    assert finals == ([(1, True), (2, False), (3, False)] if waited else [(1, True), (2, False)])
    later = [event for event in events[logged:] if event["type"] != "state"]
    assert (later[0]["type"], later[0]["data"].get("dropped")) == ("artifact", True)
    artifacts = await hub.artifacts("ses_1")
    assert await artifacts.read(artifacts.find("index.html")) == b"<h1>Rye</h1>"
    await hub.close()
    await store.aclose()

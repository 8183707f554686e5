"""A child turn of a session's work that waits for a person as the process is killed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agenticx.llms import ScriptedModel
from agenticx.runtime import AgentRuntime, ConfirmAnswer, Session, Turn, TurnContext, TurnWork
from agenticx.sessions import Hub, SessionRecord, Store, TurnRequest, open_store
from agenticx.settings import Settings, load_settings
from agenticx.testing import call, check_grammar
from agenticx.tools import tool
from tests.support.faults.killed_process import kill_this_process, run_until_killed
from tests.support.sessions import wait_for_event, wait_for_turn_end

pytestmark = pytest.mark.anyio

RECORD = SessionRecord(id="ses_1", name="x", workspace="", created_at="2026-01-01")


def settings_in(folder: Path) -> Settings:
    return load_settings({"home": folder / "home"}, environ={})


def hub_over(store: Store, folder: Path, script: Sequence[Any]) -> Hub:
    """Return a hub in whose turns the agent `writer` answers, after it has noted something."""

    @tool(risk="write")
    def note() -> str:
        """Note something."""
        with (folder / "notes").open("a") as file:
            file.write("noted\n")
        return "noted"

    async def answer(turn: Turn) -> str:
        runtime, context = AgentRuntime(ScriptedModel(script), settings=settings_in(folder)), TurnContext(parent=turn)
        text = ""
        turn_of_writer = runtime.run_turn("go", Session(), agent_id="writer", tools=[note], context=context)
        async with aclosing(turn_of_writer) as events:
            async for event in events:
                text = event.data["text"] if event.type == "final" else text
        return text

    def work(_record: SessionRecord) -> TurnWork:
        return answer

    return Hub(store, models=_no_model, tools=lambda _: [], settings=settings_in(folder), work=work)


def _no_model(_name: str | None) -> ScriptedModel:
    return ScriptedModel([])


async def wait_for_answer(folder: Path) -> None:
    """Run the turn until it waits for an answer; the process is killed then."""
    store = open_store(settings_in(folder))
    await store.create(replace(RECORD, workspace=str(folder)))
    hub = hub_over(store, folder, [call("note")])
    await hub.recover()
    await hub.start(RECORD.id, TurnRequest(input="go"))
    await wait_for_event(store, RECORD.id, "confirm_required")
    kill_this_process()


async def test_a_call_that_was_asked_about_before_a_kill_runs_once_when_it_is_allowed(tmp_path: Path) -> None:
    await run_until_killed(wait_for_answer, tmp_path)
    store = open_store(settings_in(tmp_path))
    hub = hub_over(store, tmp_path, ["Done."])
    await hub.recover()
    (question,) = await hub.open_requests(RECORD.id)
    assert question.agent_path == ("meta", "writer")
    await hub.answer(question.id, ConfirmAnswer(approved=True), digest=question.digest)
    log = [json.loads(event.frame_json) for event in await wait_for_turn_end(store, RECORD.id, ends=2)]
    check_grammar(log)
    assert [(one["agent_id"], one["data"]["text"]) for one in log if one["type"] == "final"] == [
        ("writer", "Done."), ("meta", "Done.")
    ]  # fmt: skip
    assert (tmp_path / "notes").read_text() == "noted\n"
    await hub.close()
    await store.aclose()

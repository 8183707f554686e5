"""Child turns whose process is killed: each is ended, and no call runs twice."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agenticx.llms import ScriptedModel
from agenticx.sessions import Hub, SessionRecord, Store, TurnRequest, open_store
from agenticx.settings import Settings, load_settings
from agenticx.testing import call, check_grammar
from agenticx.tools import Tool, tool
from tests.support.faults.killed_process import kill_this_process, killed_at_commit, random_delay, run_until_killed
from tests.support.lanes import Count
from tests.support.sessions import wait_for_turn_end
from tests.support.teams.child_turns import asks

pytestmark = pytest.mark.anyio

COMMITS = 24  # of the turn and those below it
RECORD = SessionRecord(id="ses_1", name="x", workspace="", permission_mode="auto", created_at="2026-01-01")


def hub_over(store: Store, folder: Path) -> Hub:
    """Return a hub whose agent asks two others at once, one of which asks a third one; all of them note something."""

    def noting(name: str) -> Tool:
        @tool(risk="write")
        def note() -> str:
            """Note something."""
            with (folder / "notes").open("a") as file:
                file.write(f"{name}\n")
            return "noted"

        return note

    leaf = asks("leaf", [call("note"), "leaf ends"], [noting("leaf")], permission_mode="auto")
    script = [[call("note"), call("ask_leaf")], "a ends"]
    tools = [
        asks("a", script, [noting("a"), leaf], permission_mode="auto"),
        asks("b", [call("note"), "b ends"], [noting("b")], permission_mode="auto"),
    ]
    model = ScriptedModel([[call("ask_a"), call("ask_b")], "done"])
    return Hub(store, models=lambda _: model, tools=lambda _: tools, settings=settings_in(folder))


def settings_in(folder: Path) -> Settings:
    return load_settings({"home": folder / "home"}, environ={})


async def run_turn(folder: Path, commit: int, seconds: float | None) -> None:
    """Run the turn; the process is killed before its commit of that number, or so many seconds after it."""
    folder.mkdir(parents=True)
    store = killed_at_commit(open_store(settings_in(folder)), commit, seconds)
    await store.create(replace(RECORD, workspace=str(folder)))
    hub = hub_over(store, folder)
    await hub.start(RECORD.id, TurnRequest(input="go", permission_mode="auto"))
    await wait_for_turn_end(store, RECORD.id, ends=4)
    kill_this_process()


async def log_in(folder: Path) -> list[dict[str, Any]]:
    """Return the envelopes of the session as the next process leaves them."""
    store = open_store(settings_in(folder))
    hub = hub_over(store, folder)
    await hub.recover()
    loaded = await (await store.ownership.claim(RECORD.id)).load()
    assert (loaded.main_turn, list(loaded.child_turns)) == (None, [])
    events = await store.log.read(RECORD.id, 0, 10_000)
    await hub.close()
    await store.aclose()
    return [json.loads(event.frame_json) for event in events]


async def test_turns_below_a_turn_whose_process_is_killed_are_ended_before_it(
    tmp_path: Path, rng: random.Random, count: Count
) -> None:
    codes = set[str]()
    for number in range(count(1, 8, 200)):
        folder, commit = tmp_path / str(number), rng.randint(1, COMMITS)
        await run_until_killed(run_turn, folder, commit, random_delay(rng))
        log = await log_in(folder)
        if log:
            check_grammar(log)
        assert await log_in(folder) == log
        check_ends(log, folder, codes)
    assert "interrupted" in codes


def check_ends(log: list[dict[str, Any]], folder: Path, codes: set[str]) -> None:
    """Check the order of the ends, and that each call that took effect ran once and is not reported as not begun."""
    ends = {one["turn_id"]: one for one in log if one["type"] in ("final", "error")}
    codes |= {one["data"].get("code", "") for one in ends.values()}
    for one in log:
        assert one["type"] != "confirm_required"  # which nobody answers
        if one["type"] == "turn_started" and (parent := one["data"].get("parent_turn_id")) is not None:
            assert ends[one["turn_id"]]["seq"] < ends[parent]["seq"]
    notes = (folder / "notes").read_text().split() if (folder / "notes").exists() else []
    assert len(notes) == len(set(notes))
    for one in log:
        if one["type"] == "tool_result" and one["data"]["name"] == "note":
            outcome, ran = one["data"]["outcome"], one["agent_id"] in notes
            assert outcome == "unknown" or ran == (outcome == "ok"), one

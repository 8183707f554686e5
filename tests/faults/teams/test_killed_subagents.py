"""Sub-agents whose process is killed: the agent above is told of each ending once."""

from __future__ import annotations

import json
import random
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agenticx import UserMessage
from agenticx.llms import ChatModel, ScriptedModel
from agenticx.sessions import Hub, SessionRecord, Store, TurnRequest, open_store
from agenticx.sessions.log.commits import LoadedSession
from agenticx.sessions.log.records import SubagentDelivered, SubagentEnded, SubagentStarted
from agenticx.settings import Settings, load_settings
from agenticx.subagents import session_tools
from agenticx.testing import call
from tests.support.faults.killed_process import kill_this_process, killed_at_commit, run_until_killed
from tests.support.lanes import Count
from tests.support.sessions import wait_for_turn_end
from tests.support.teams.subagent_sessions import spawn

pytestmark = pytest.mark.anyio

COMMITS = 40  # of a session whose agent starts four others and then answers a second message
RECORD = SessionRecord(id="ses_1", name="x", workspace="", permission_mode="auto", created_at="2026-01-01")


def hub_over(store: Store, folder: Path) -> Hub:
    """Return a hub whose agent starts three others, one of which starts a fourth."""
    names = ("a", "b", "c", "d")
    scripts: dict[str | None, list[Any]] = {
        None: [[spawn("a"), spawn("b")], spawn("c"), "Later.", "I see."],
        "a": ["a ends"],
        "b": [spawn("d"), call("wait_subagents"), "b ends"],
        "c": [call("list_subagents"), "c ends"],
        "d": ["d ends"],
    }
    models: dict[str | None, ChatModel] = {name: ScriptedModel(scripts[name]) for name in (None, *names)}
    return Hub(store, models=models.__getitem__, tools=lambda _: session_tools(), settings=settings_in(folder))


def settings_in(folder: Path) -> Settings:
    return load_settings({"home": folder / "home"}, environ={})


async def run_turns(folder: Path, commit: int) -> None:
    """Run two turns; the process is killed before its commit of that number, or at the end."""
    folder.mkdir(parents=True)
    store = killed_at_commit(open_store(settings_in(folder)), commit)
    await store.create(replace(RECORD, workspace=str(folder)))
    hub = hub_over(store, folder)
    await hub.recover()
    await hub.start(RECORD.id, TurnRequest(input="go"))
    await wait_for_turn_end(store, RECORD.id, ends=5)
    await hub.start(RECORD.id, TurnRequest(input="and?"))
    await wait_for_turn_end(store, RECORD.id, ends=6)
    kill_this_process()


async def told_after(folder: Path) -> tuple[LoadedSession, Counter[tuple[str, str]]]:
    """Return what the session has once the next process has run two turns, and how often its log has each ending."""
    store = open_store(settings_in(folder))
    model = ScriptedModel(["yes", "no"])
    hub = Hub(store, models=lambda _: model, tools=lambda _: session_tools(), settings=settings_in(folder))
    await hub.recover()
    for _ in range(2):
        async for _event in hub.run_turn(RECORD.id, "and now?"):
            pass
    await hub.close()
    loaded = await (await store.ownership.claim(RECORD.id)).load()
    log = [json.loads(event.frame_json) for event in await store.log.read(RECORD.id, 0, 100_000)]
    await store.aclose()
    ends = [one for one in log if one["type"] in ("subagent_completed", "subagent_error")]
    return loaded, Counter((one["agent_id"], one["data"].get("code", "completed")) for one in ends)


async def test_endings_of_a_killed_process_are_delivered_and_reported_once(
    tmp_path: Path, rng: random.Random, count: Count
) -> None:
    codes = Counter[str]()
    for number in range(count(1, 10, 200)):
        folder, commit = tmp_path / str(number), rng.randint(6, COMMITS)
        await run_until_killed(run_turns, folder, commit)
        loaded, reported = await told_after(folder)
        facts = loaded.subagent_facts
        started = {fact.key: fact.run for fact in facts if isinstance(fact, SubagentStarted)}
        delivered = {fact.key: fact.ending for fact in facts if isinstance(fact, SubagentDelivered)}
        assert delivered.keys() == started.keys()
        assert reported == Counter((one.agent_id, one.code or "completed") for one in delivered.values())
        assert [fact for fact in facts if isinstance(fact, SubagentEnded)] == []
        told = [one.content for one in loaded.state.messages if isinstance(one, UserMessage) and one.injected]
        for run in started.values():
            times = "\n".join(told).count(f"[sub-agent {run.agent_id} ")
            assert times == 1 or (run.depth == 2 and times == 0)
        codes.update(ending.code or "completed" for ending in delivered.values())
    assert {"interrupted", "completed"} >= codes.keys() > set()

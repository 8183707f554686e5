"""Options of a message whose process is killed: what clients saw is there, and the session goes on."""

from __future__ import annotations

import hashlib
import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agenticx import builtin_tools
from agenticx.llms import ScriptedModel
from agenticx.sessions import Hub, SessionRecord, Store, TurnRequest, open_store
from agenticx.settings import Settings, load_settings
from agenticx.testing import call, check_grammar
from tests.support.faults.killed_process import kill_this_process, killed_at_commit, random_delay, run_until_killed
from tests.support.lanes import Count
from tests.support.sessions import wait_for_event, wait_for_turn_end

pytestmark = pytest.mark.anyio

COMMITS = 20  # of the turn and its options
RECORD = SessionRecord(id="ses_1", name="x", workspace="", created_at="2026-01-01")


def hub_over(store: Store, folder: Path) -> Hub:
    pages = [call("create_file", {"content": f"<h1>{name}</h1>"}, pieces=4) for name in ("one", "two")]
    model = ScriptedModel([*pages, "no page", *["made"] * 6])
    return Hub(store, models=lambda _: model, tools=lambda _: builtin_tools(), settings=settings_in(folder))


def settings_in(folder: Path) -> Settings:
    return load_settings({"home": folder / "home"}, environ={})


async def make_options(folder: Path, commit: int, seconds: float | None) -> None:
    """Make three options; the process is killed before its commit of that number, or so many seconds after it."""
    folder.mkdir(parents=True)
    store = killed_at_commit(open_store(settings_in(folder)), commit, seconds)
    await store.create(replace(RECORD, workspace=str(folder)))
    await hub_over(store, folder).start(RECORD.id, TurnRequest(input="a page", variants=3))
    await wait_for_turn_end(store, RECORD.id, ends=4)
    kill_this_process()


async def check_options(folder: Path) -> None:
    """Compare what the next process has with the log, and let it go on."""
    store = open_store(settings_in(folder))
    hub = hub_over(store, folder)
    await hub.recover()
    events = await logged(store)
    if events:
        check_grammar(events)
    finals = {event["turn_id"]: event["data"]["text"] for event in events if event["type"] == "final"}
    files = [event for event in events if event["type"] == "artifact" and "sha256" in event["data"]]
    options = await hub.options(RECORD.id)
    for option, state in options:
        assert state.state == ("done" if option.turn_id in finals else "interrupted")
        assert option.text == finals.get(option.turn_id, "")
    for event in files:
        artifacts = await hub.artifacts(RECORD.id, option=int(event["agent_id"].removeprefix("option-")))
        content = await artifacts.read(artifacts.find(event["data"]["path"], event["data"]["revision"]))
        assert hashlib.sha256(content).hexdigest() == event["data"]["sha256"]
    await hub.start(RECORD.id, TurnRequest(input="thank you"))
    await wait_for_turn_end(store, RECORD.id, ends=sum(event["type"] in ("final", "error") for event in events) + 1)
    picked = [event["data"]["picked"] for event in await logged(store) if "picked" in event["data"]]
    done = [option.number for option, state in options if state.state == "done"]
    assert picked == done[:1]
    await hub.close()
    await store.aclose()


async def logged(store: Store) -> list[dict[str, Any]]:
    return [json.loads(event.frame_json) for event in await store.log.read(RECORD.id, 0, 10_000)]


@pytest.mark.ci_lane
async def test_options_of_a_killed_process_are_as_clients_saw_them(
    tmp_path: Path, rng: random.Random, count: Count
) -> None:
    for number in range(count(1, 12, 200)):
        folder = tmp_path / str(number)
        await run_until_killed(make_options, folder, rng.randrange(1, COMMITS), random_delay(rng))
        await check_options(folder)


async def wait_at_a_question(folder: Path) -> None:
    """Make two options, one of which is done when the process is killed, while the other waits for a confirmation."""
    folder.mkdir(parents=True)
    store = open_store(settings_in(folder))
    await store.create(replace(RECORD, workspace=str(folder)))
    model = ScriptedModel([call("file_write", {"path": "a.txt", "content": "hi"}), "made"])
    hub = Hub(store, models=lambda _: model, tools=lambda _: builtin_tools(), settings=settings_in(folder))
    await hub.start(RECORD.id, TurnRequest(input="a page", variants=2))
    await wait_for_event(store, RECORD.id, "confirm_required")
    await wait_for_turn_end(store, RECORD.id)
    kill_this_process()


async def test_an_option_that_waits_for_a_person_is_interrupted_by_a_kill(tmp_path: Path) -> None:
    folder = tmp_path / "0"
    await run_until_killed(wait_at_a_question, folder)
    store = open_store(settings_in(folder))
    hub = hub_over(store, folder)
    await hub.recover()
    assert sorted(state.state for _, state in await hub.options(RECORD.id)) == ["done", "interrupted"]
    assert await hub.current_turn_id(RECORD.id) is None
    assert await store.catalog.open_requests(RECORD.id) == []
    check_grammar(await logged(store))
    (done,) = [option.number for option, state in await hub.options(RECORD.id) if state.state == "done"]
    await hub.pick(RECORD.id, done)
    await hub.close()
    await store.aclose()

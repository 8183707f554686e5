"""Teams whose process is killed: the next run goes on where it was, and nothing is done twice."""

from __future__ import annotations

import json
import random
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal

import pytest

from agenticx.assembly import make_hub
from agenticx.llms import Delta, ModelRequest, NamedModels, ScriptedModel
from agenticx.messages import AssistantMessage, ToolMessage
from agenticx.sessions import Hub, Store, open_store
from agenticx.settings import Settings, load_settings
from agenticx.teams import AssistantAgent, RoundRobinGroupChat
from agenticx.testing import call, check_grammar
from agenticx.tools import Tool, Toolbox, tool
from tests.support.faults.killed_process import kill_this_process, killed_at_commit, random_delay, run_until_killed
from tests.support.lanes import Count
from tests.support.teams.configured import speakers, team_file

pytestmark = pytest.mark.anyio

NAMES = ("a", "b", "c")
SPEECHES = 5
COMMITS = 45  # of a run
Kind = Literal["configured", "library"]


class Speaker:
    """The model of a participant: before each speech it notes its number, and then says it."""

    context_window = None

    def __init__(self, name: str) -> None:
        self.name = name

    def stream(self, request: ModelRequest) -> AsyncIterator[Sequence[Delta]]:
        heard = [message for message in request.messages if message.content != "Continue."]
        number = sum(isinstance(message, ToolMessage) for message in heard)
        if isinstance(heard[-1], ToolMessage | AssistantMessage):
            return ScriptedModel([f"{self.name} {number}"]).stream(request)
        return ScriptedModel([call("note", {"text": f"{self.name} {number + 1}"})]).stream(request)


def note_in(folder: Path) -> Tool:
    @tool(risk="write")
    def note(text: str) -> str:
        """Note a text."""
        with (folder / "notes").open("a") as file:
            file.write(f"{text}\n")
        return "noted"

    return note


def settings_in(folder: Path) -> Settings:
    return load_settings({"home": folder / "home"}, environ={})


@asynccontextmanager
async def open_team_hub(store: Store, folder: Path) -> AsyncGenerator[Hub]:
    settings = settings_in(folder)
    models = NamedModels(settings, own={name: Speaker(name) for name in NAMES})
    hub = make_hub(store, models=models, toolbox=Toolbox([note_in(folder)]), settings=settings)
    await hub.recover()
    yield hub
    await hub.close()


async def run_team(hub: Hub, session_id: str, kind: Kind, folder: Path, *, task: str, speeches: int) -> None:
    """Run the team; without a task it goes on."""
    if kind == "configured":
        participants = "".join(
            f'[[participants]]\nname = "{name}"\nmodel = "{name}"\nsystem_message = "Talk."\ntools = ["note"]\n'
            for name in NAMES
        )
        team_file(folder / "home", f'kind = "round_robin"\nmax_turns = {speeches}\n{participants}', "talk")
        async for _ in hub.run_turn(session_id, task):
            pass
    else:
        members = [AssistantAgent(name, Speaker(name), tools=[note_in(folder)]) for name in NAMES]
        team = RoundRobinGroupChat(members, name="talk", max_turns=speeches, session=session_id)
        await team.run(task=task or None)


async def run_killed_team(folder: Path, kind: Kind, commit: int, seconds: float | None) -> None:
    """Run a team in a new session; the process is killed before its commit of that number, or so long after it."""
    folder.mkdir(parents=True)
    team_file(folder / "home", 'kind = "round_robin"\n[[participants]]\nname = "a"\nsystem_message = "x"', "talk")
    store = killed_at_commit(open_store(settings_in(folder)), commit, seconds)
    async with open_team_hub(store, folder) as hub:
        team = "talk" if kind == "configured" else None
        session = await hub.create(team=team, permission_mode="auto", workspace=folder)
        await run_team(hub, session.id, kind, folder, task="Talk.", speeches=SPEECHES)
        kill_this_process()


async def log_after_going_on(folder: Path, kind: Kind) -> list[dict[str, Any]]:
    """Return the session's log after the next process has made the speeches that are left."""
    store = open_store(settings_in(folder))
    async with open_team_hub(store, folder) as hub:
        (session,) = await store.catalog.sessions()
        assert hub.running_turn_id(session.id) is None
        before = speeches_in(await read_log(store, session.id))
        if len(before) < SPEECHES:
            has_task = any(event["type"] == "team_message" for event in await read_log(store, session.id))
            task = "" if has_task else "Talk."
            left = SPEECHES - len(before)
            await hub.change(session.id, {"permission_mode": "auto"})  # as before the restart
            await run_team(hub, session.id, kind, folder, task=task, speeches=left)
        log = await read_log(store, session.id)
    await store.aclose()
    return log


async def read_log(store: Store, session_id: str) -> list[dict[str, Any]]:
    return [json.loads(event.frame_json) for event in await store.log.read(session_id, 0, 10_000)]


def speeches_in(log: Sequence[dict[str, Any]]) -> list[str]:
    """Return the texts that participants have said to each other."""
    said = [event["data"]["message"] for event in log if event["type"] == "team_message"]
    return [message["content"] for message in said if message["type"] == "TextMessage" and message["source"] in NAMES]


@pytest.mark.parametrize("kind", ["configured", "library"])
async def test_a_killed_team_goes_on_with_the_right_speaker_and_repeats_nothing(
    tmp_path: Path, rng: random.Random, count: Count, kind: Kind
) -> None:
    for number in range(count(1, 10, 200)):
        folder, commit = tmp_path / str(number), rng.randint(3, COMMITS)
        seconds = random_delay(rng)
        await run_until_killed(run_killed_team, folder, kind, commit, seconds)
        log = await log_after_going_on(folder, kind)
        check_grammar(log)
        assert speeches_in(log) == ["a 1", "b 1", "c 1", "a 2", "b 2"], (commit, seconds)
        notes = (folder / "notes").read_text().split("\n")[:-1]
        assert len(notes) == len(set(notes)), notes
        assert set(speakers(log)) == set(NAMES)

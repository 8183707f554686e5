"""Sub-agents that a participant of a team starts: their endings reach that participant."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from agenticx import UserMessage
from agenticx.llms import ScriptedModel
from agenticx.sessions import Hub, TurnRequest
from agenticx.testing import call, hang
from agenticx.tools import tool
from tests.support.endings import ending_text
from tests.support.sessions import wait_for_event
from tests.support.teams.configured import open_team_hub, team_file

pytestmark = pytest.mark.anyio

TEAM = """
kind = "round_robin"
max_turns = 2
[[participants]]
name = "lead"
system_message = "Lead."
tools = ["spawn_subagent", "wait_subagents"]
[[participants]]
name = "critic"
system_message = "Judge."
"""


class Models(ScriptedModel):
    """A model that plays the script of whoever asks: the sub-agent, whose task is `LOOK`, the lead or the critic."""

    def __init__(self, **scripts: list[Any]) -> None:
        super().__init__([])
        self.models = {name: ScriptedModel(script) for name, script in scripts.items()}

    def stream(self, request: Any) -> Any:
        texts = [message.content for message in request.messages]
        by_prompt = "lead" if any(text.startswith("Lead.") for text in texts) else "critic"
        return self.models["worker" if "LOOK" in texts else by_prompt].stream(request)

    def told(self, name: str) -> list[list[str]]:
        """Return the notices in each request of an agent."""
        requests = self.models[name].requests
        return [[m.content for m in one.messages if m.content.startswith("[sub-agent")] for one in requests]


async def run(hub: Hub, session_id: str, text: str = "go") -> list[Any]:
    return [event async for event in hub.run_turn(session_id, text)]


async def test_a_participant_gets_the_ending_of_its_sub_agent_once(tmp_path: Path) -> None:
    team_file(tmp_path / "home", TEAM, "leading")
    lead = [call("spawn_subagent", {"task": "LOOK", "name": "k"}), call("wait_subagents"), "I see.", "Again."]
    models = Models(lead=lead, worker=["SECRET"], critic=["Good.", "Fine."])
    async with open_team_hub(tmp_path, model=models) as hub:
        session = await hub.create(team="leading")
        await run(hub, session.id)
        await run(hub, session.id, "again")
    ending = ending_text("k-1 completed", "SECRET")
    assert models.told("lead") == [[], [], [ending], [ending]]
    told, answer = models.models["lead"].requests[3].messages[-4:-2]
    assert (told.content, isinstance(told, UserMessage) and told.injected, answer.content) == (ending, True, "I see.")
    assert models.told("critic") == [[], []]


async def test_an_ending_between_two_runs_reaches_the_participant_in_its_next_speech(tmp_path: Path) -> None:
    go_on = asyncio.Event()

    @tool(risk="read")
    async def dig() -> str:
        """Dig."""
        await go_on.wait()
        return "dug"

    team_file(tmp_path / "home", TEAM.replace('"wait_subagents"]', '"dig"]'), "leading")
    lead = [call("spawn_subagent", {"task": "LOOK", "name": "k"}), "Later.", "Now I see."]
    models = Models(lead=lead, worker=[call("dig"), "SECRET"], critic=["Good.", "Fine."])
    async with open_team_hub(tmp_path, tools=[dig], model=models) as hub:
        session = await hub.create(team="leading")
        turn = await hub.start(session.id, TurnRequest(input="go"))
        await hub.wait_for_turn(session.id, turn.id)
        go_on.set()
        await wait_for_event(hub.store, session.id, "subagent_completed")
        await run(hub, session.id, "again")
    assert models.told("lead") == [[], [], [ending_text("k-1 completed", "SECRET")]]


async def test_a_message_that_steers_the_team_takes_no_ending_from_the_participant(tmp_path: Path) -> None:
    go_on = asyncio.Event()

    @tool(risk="read")
    async def dig() -> str:
        """Dig."""
        await go_on.wait()
        return "dug"

    team = TEAM.replace('"Judge."', '"Judge."\ntools = ["dig"]').replace("max_turns = 2", "max_turns = 3")
    team_file(tmp_path / "home", team, "leading")
    lead = [call("spawn_subagent", {"task": "LOOK", "name": "k"}), "Later.", "Now I see."]
    models = Models(lead=lead, worker=["SECRET"], critic=[call("dig"), "Good.", "Fine."])
    async with open_team_hub(tmp_path, tools=[dig], model=models) as hub:
        session = await hub.create(team="leading")
        turn = await hub.start(session.id, TurnRequest(input="go"))
        await wait_for_event(hub.store, session.id, "subagent_completed")
        await hub.submit(session.id, TurnRequest(input="Hurry.", when_busy="steer"))
        go_on.set()
        await hub.wait_for_turn(session.id, turn.id)
        await wait_for_event(hub.store, session.id, "steered")
    assert models.told("lead") == [[], [], [ending_text("k-1 completed", "SECRET")]]


def results_of(models: Models, name: str) -> list[str]:
    """Return the results in the latest request of an agent."""
    return [message.content for message in models.models[name].requests[-1].messages if message.role == "tool"]


async def test_a_participant_sees_and_directs_the_sub_agents_below_it_only(tmp_path: Path) -> None:
    tools = ["spawn_subagent", "list_subagents", "query_subagent_status", "wait_subagents", "cancel_subagent"]
    team = TEAM.replace('["spawn_subagent", "wait_subagents"]', f"{tools}") + f"tools = {tools}"
    team_file(tmp_path / "home", team, "leading")
    cancel = call("cancel_subagent", {"agent_id": "k-1"})
    looks = [call("list_subagents"), call("query_subagent_status"), call("wait_subagents"), cancel]
    lead = [call("spawn_subagent", {"task": "LOOK", "name": "k"}), "Later.", call("list_subagents"), cancel, "Gone."]
    models = Models(lead=lead, worker=[hang()], critic=[looks, "I see none.", "Fine."])
    async with open_team_hub(tmp_path, model=models) as hub:
        session = await hub.create(team="leading")
        await run(hub, session.id)
        assert [state["state"] for state in await hub.subagents(session.id)] == ["running"]
        assert results_of(models, "critic") == ["[]", "[]", "[]", "there is no sub-agent 'k-1'; known: none"]
        await run(hub, session.id, "again")
    assert results_of(models, "lead")[-2:] == ['["k-1"]', "k-1 is being stopped"]


@pytest.mark.parametrize("rewinds", [False, True])
async def test_an_ending_reaches_the_participant_once_also_after_a_restart_and_a_rewind(
    tmp_path: Path, rewinds: bool
) -> None:
    kind, lead_part, critic_part = TEAM.split("[[participants]]")
    text = "[[participants]]".join([kind, critic_part, lead_part])  # the critic speaks first
    team_file(tmp_path / "home", text.replace('"wait_subagents"', '"list_subagents"'), "leading")
    start = [call("spawn_subagent", {"task": "LOOK", "name": "k"}), "Later."]
    models = Models(lead=start, worker=["SECRET"], critic=["Good."])
    async with open_team_hub(tmp_path, model=models) as hub:
        session = await hub.create(team="leading")
        await run(hub, session.id)
        await wait_for_event(hub.store, session.id, "subagent_completed")
    ending = ending_text("k-1 completed", "SECRET")
    models = Models(lead=[call("list_subagents"), "Now.", "And?"], critic=["Fine."] * 2)
    async with open_team_hub(tmp_path, model=models) as hub:
        if rewinds:
            await hub.rewind(session.id, (await hub.messages(session.id))[-1]["message_id"])
        await run(hub, session.id, "again")
        await run(hub, session.id, "more")
    assert models.told("lead") == [[ending]] * 3
    assert models.told("critic") == [[], []]

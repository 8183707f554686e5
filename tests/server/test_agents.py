"""Agents of files over HTTP."""

from __future__ import annotations

import pytest

from agenticx.llms import ScriptedModel
from tests.support.server.running_studio import StudioMaker

pytestmark = pytest.mark.anyio

BRIEF = 'description = "Answers briefly."\ntools = ["note"]\nsystem_prompt = "Be brief."'


async def test_a_session_with_an_agent_of_a_file_has_its_prompt_and_tools(make_studio: StudioMaker) -> None:
    model = ScriptedModel(["Yes."])
    async with make_studio(model) as studio:
        folder = studio.services.settings.home / "agents"
        folder.mkdir(parents=True)
        (folder / "brief.toml").write_text(BRIEF, encoding="utf-8")
        (folder / "broken.toml").write_text("tools = 3", encoding="utf-8")
        listed = {agent.pop("name"): agent for agent in (await studio.client.get("/api/agents")).json()["agents"]}
        made = await studio.client.post("/api/sessions", json={"agent": "brief"})
        shown = (await studio.client.get(f"/api/sessions/{made.json()['id']}")).json()
        assert (await studio.turn(made.json()["id"], "Is it?")).status_code == 202
        await studio.events_until(made.json()["id"], "final")
        refused = [(await studio.client.post("/api/sessions", json={"agent": name})) for name in ("broken", "nobody")]
        row = (await studio.client.get("/api/sessions")).json()["sessions"][0]
    assert listed["brief"] == {
        "description": "Answers briefly.",
        "model": None,
        "tools": ["note"],
        "source": "user",
        "problem": None,
    }
    assert listed["page-builder"]["source"] == "packaged"
    assert "tools is 3" in listed["broken"]["problem"]
    assert (made.status_code, shown) == (201, made.json())
    assert (shown["agent"], shown["tools"], shown["system_prompt"], shown["model"]) == (
        "brief",
        ["note"],
        "Be brief.",
        None,
    )
    assert row["agent"] == "brief"
    (request,) = model.requests
    assert request.messages[0].content == "Be brief."
    assert [tool.name for tool in request.tools] == ["note"]
    problems = [(answer.status_code, answer.json()["code"], answer.json()["field"]) for answer in refused]
    assert problems == [(422, "bad_agent", "agent"), (422, "unknown_agent", "agent")]
    assert "known agents: brief, broken, page-builder" in refused[1].json()["detail"]

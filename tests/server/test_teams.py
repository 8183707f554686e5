"""Configured teams over HTTP."""

from __future__ import annotations

import pytest

from agenticx.llms import ScriptedModel
from tests.support.server.running_studio import StudioMaker
from tests.support.teams.configured import PAIR, team_file

pytestmark = pytest.mark.anyio


async def test_the_teams_are_listed_with_their_participants_and_problems(make_studio: StudioMaker) -> None:
    async with make_studio() as studio:
        home = studio.services.settings.home
        team_file(home)
        path = team_file(home, 'kind = "duel"', "broken")
        team_file(home, PAIR.replace('"Write."', '"Write."\ntools = ["fly"]'), "flying")
        team_file(home, PAIR.replace('"Write."', '"Write."\nmodel = "nobody:none"'), "modern")
        listed = {team.pop("name"): team for team in (await studio.client.get("/api/teams")).json()["teams"]}
    assert listed["pair"] == {
        "kind": "round_robin",
        "description": None,
        "participants": [
            {"name": "writer", "kind": "assistant", "description": None},
            {"name": "critic", "kind": "assistant", "description": None},
        ],
        "origin": "user",
        "problem": None,
    }
    assert listed["broken"] == {
        "kind": None,
        "description": None,
        "participants": [],
        "origin": "user",
        "problem": f"{path}: kind is 'duel'; right would be one of 'round_robin', 'selector', 'swarm'",
    }
    assert listed["flying"]["kind"] == "round_robin"
    assert listed["flying"]["problem"].startswith("team 'flying': participant 'writer': unknown tool 'fly'")
    assert "unknown provider 'nobody'" in listed["modern"]["problem"]
    assert {name for name, team in listed.items() if team["origin"] == "packaged"} == {
        "review",
        "triage",
        "writer-critic",
    }
    assert [one["kind"] for one in listed["triage"]["participants"]] == ["assistant", "assistant", "assistant", "user"]


async def test_a_message_to_a_session_with_a_team_runs_it_and_an_empty_one_lets_it_go_on(
    make_studio: StudioMaker,
) -> None:
    async with make_studio(ScriptedModel(["One.", "Two.", "Three.", "Four."])) as studio:
        team_file(studio.services.settings.home, PAIR)
        made = await studio.client.post("/api/sessions", json={"team": "pair"})
        assert (made.status_code, made.json()["team"]) == (201, "pair")
        session = made.json()["id"]
        for text in ("Write.", ""):
            assert (await studio.turn(session, text)).status_code == 202
            await studio.events_until(session, "final")
            while (await studio.client.get(f"/api/sessions/{session}")).json()["running_turn_id"]:
                pass
        frames = (await studio.client.get(f"/api/sessions/{session}/messages")).json()["messages"]
        assert [(one["role"], one.get("sender"), one["content"]) for one in frames] == [
            ("user", None, "Write."),
            ("assistant", "writer", "One."),
            ("assistant", "critic", "Two."),
            ("user", None, ""),
            ("assistant", "writer", "Three."),
            ("assistant", "critic", "Four."),
        ]
        exported = (await studio.client.get(f"/api/sessions/{session}/export?format=markdown")).text
        assert exported.partition("\n\n## ")[2].startswith(
            "You\n\nWrite.\n\n## writer\n\nOne.\n\n## critic\n\nTwo.\n\n## You\n\n## writer\n\nThree."
        )
        plain = await studio.session()
        refused = await studio.turn(plain, "")
        assert (refused.status_code, refused.json()["detail"]) == (422, "'input' must not be empty.")


async def test_an_empty_first_message_is_refused_and_begins_nothing(make_studio: StudioMaker) -> None:
    async with make_studio() as studio:
        team_file(studio.services.settings.home)
        session = (await studio.client.post("/api/sessions", json={"team": "pair"})).json()["id"]
        refused = await studio.turn(session, "")
        assert (refused.status_code, refused.json()["code"]) == (422, "invalid_body")
        assert refused.json()["detail"] == (
            "the input is empty, but the team has nothing to go on with; give it a task"
        )
        assert (await studio.client.get(f"/api/sessions/{session}/messages")).json()["messages"] == []


async def test_an_unknown_team_is_refused_and_the_team_of_a_session_does_not_change(make_studio: StudioMaker) -> None:
    async with make_studio() as studio:
        refused = await studio.client.post("/api/sessions", json={"team": "../secrets"})
        assert (refused.status_code, refused.json()["code"], refused.json()["field"]) == (422, "unknown_team", "team")
        changed = await studio.client.patch(f"/api/sessions/{await studio.session()}", json={"team": "review"})
        assert changed.status_code == 422


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("kind = ", "not TOML"),
        (PAIR.replace('"Write."', '"Write."\ntools = ["fly"]'), "participant 'writer': "),
        (PAIR.replace('"Write."', '"Write."\nmodel = "nobody:none"'), "unknown provider 'nobody'"),
    ],
)
async def test_a_team_whose_file_has_a_problem_is_refused_with_a_code_of_its_own(
    make_studio: StudioMaker, text: str, problem: str
) -> None:
    async with make_studio() as studio:
        team_file(studio.services.settings.home, text, "broken")
        refused = await studio.client.post("/api/sessions", json={"team": "broken"})
        assert (refused.status_code, refused.json()["code"], refused.json()["field"]) == (422, "bad_team", "team")
        assert problem in refused.json()["detail"]


async def test_an_agent_for_a_session_with_a_team_is_refused_when_it_is_created_and_when_it_is_changed(
    make_studio: StudioMaker,
) -> None:
    async with make_studio() as studio:
        team_file(studio.services.settings.home)
        created = await studio.client.post("/api/sessions", json={"team": "pair", "agent": "billing"})
        session = (await studio.client.post("/api/sessions", json={"team": "pair"})).json()["id"]
        changed = await studio.client.patch(f"/api/sessions/{session}", json={"agent": "billing"})
        problems = [
            (answer.status_code, answer.json()["code"], answer.json()["detail"]) for answer in (created, changed)
        ]
        assert (
            problems
            == [(422, "bad_settings", "a session has an agent, here 'billing', or a team, 'pair', not both")] * 2
        )
        assert (await studio.client.get(f"/api/sessions/{session}")).json()["agent"] is None


async def test_a_system_prompt_for_a_session_with_a_team_is_refused(make_studio: StudioMaker) -> None:
    async with make_studio() as studio:
        team_file(studio.services.settings.home)
        created = await studio.client.post("/api/sessions", json={"team": "pair", "system_prompt": "Be brief."})
        session = (await studio.client.post("/api/sessions", json={"team": "pair"})).json()["id"]
        changed = await studio.client.patch(f"/api/sessions/{session}", json={"system_prompt": "Be brief."})
        text = "a session with a team has the prompts of its file; team 'pair' takes no other"
        for answer in (created, changed):
            assert (answer.status_code, answer.json()["code"], answer.json()["detail"]) == (422, "bad_settings", text)

"""Sub-agents over HTTP: listed, cancelled, retried, sent messages; their questions and events."""

from __future__ import annotations

from typing import Any

import pytest

from agenticx.llms import ChatModel, ModelRequest, ScriptedModel
from agenticx.subagents.tools import session_tools
from agenticx.testing import call, check_grammar, hang
from tests.support.server.running_studio import RunningStudio, StudioMaker, note, until

pytestmark = pytest.mark.anyio

SPAWN = call("spawn_subagent", {"task": "Work", "name": "helper"})


class ByAgent:
    """A model that plays the script of the main agent, or that of sub-agents, as their system prompts say."""

    name = "by agent"

    def __init__(self, main: list[Any], worker: list[Any]) -> None:
        self.main, self.worker = ScriptedModel(main), ScriptedModel(worker)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.main, name)

    def stream(self, request: ModelRequest) -> Any:
        system = str(request.messages[0].content)
        return (self.worker if "You work as a sub-agent" in system else self.main).stream(request)


async def states(studio: RunningStudio, session_id: str) -> list[tuple[str, str]]:
    found = (await studio.client.get(f"/api/sessions/{session_id}/subagents")).json()["subagents"]
    return [(one["agent_id"], one["state"]) for one in found]


async def test_subagents_are_listed_and_directed_after_the_turn_that_started_them(make_studio: StudioMaker) -> None:
    model: ChatModel = ByAgent([SPAWN, "Later.", "I see."], [hang(), "good", "better"])  # type: ignore[assignment]
    async with make_studio(model, tools=session_tools()) as studio:
        session_id = await studio.session()
        path = f"/api/sessions/{session_id}/subagents"
        await studio.turn(session_id)
        async with studio.events(session_id) as frames:
            seen = await until(frames, "final")
            assert await states(studio, session_id) == [("helper-1", "running")]
            busy = await studio.client.post(f"{path}/helper-1/retry", json={})
            assert (busy.status_code, busy.json()["code"]) == (409, "subagent_busy")
            cancelled = await studio.client.post(f"{path}/helper-1/cancel", json={})
            assert (cancelled.status_code, cancelled.json()["agent_id"]) == (202, "helper-1")
            seen += await until(frames, "subagent_error")
            error = seen[-1].data
            assert (error["turn_id"], error["data"]["code"], error["data"]["depth"]) == (None, "stopped", 1)
            assert (await studio.client.post(f"{path}/helper-1/retry", json={})).status_code == 202
            seen += await until(frames, "subagent_completed")
            assert seen[-1].data["data"]["result"] == "good"
            answer = await studio.client.post(f"{path}/helper-1/message", json={"text": "More!"})
            assert answer.status_code == 202
            seen += await until(frames, "subagent_completed")
            assert seen[-1].data["data"]["result"] == "better"
            await studio.turn(session_id, "And?")
            seen += await until(frames, "final")
        assert await states(studio, session_id) == [("helper-1", "completed")]
        check_grammar([frame.data for frame in seen if frame.id is not None])


async def test_a_confirmation_of_a_subagent_is_answered_after_the_turn_of_its_parent(make_studio: StudioMaker) -> None:
    model: ChatModel = ByAgent([SPAWN, "Later."], [call("note", {"text": "x"}), "noted it"])  # type: ignore[assignment]
    async with make_studio(model, tools=[*session_tools(), note]) as studio:
        session_id = await studio.session()
        await studio.turn(session_id)
        async with studio.events(session_id) as frames:
            asked = (await until(frames, "confirm_required"))[-1].data["data"]
            assert asked["agent_path"] == ["meta", "helper-1"]
            (item,) = (await studio.client.get(f"/api/sessions/{session_id}/subagents")).json()["subagents"]
            assert item["waits_for_user"] is True
            body = {"approved": True, "digest": asked["digest"]}
            assert (await studio.client.post(f"/api/confirms/{asked['id']}", json=body)).status_code == 200
            done = (await until(frames, "subagent_completed"))[-1].data
        assert done["data"]["result"] == "noted it"


async def test_what_cannot_be_done_is_a_problem_with_a_sentence(make_studio: StudioMaker) -> None:
    async with make_studio(tools=session_tools()) as studio:
        session_id = await studio.session()
        assert (await studio.client.get("/api/sessions/ses_none/subagents")).status_code == 404
        path = f"/api/sessions/{session_id}/subagents/x"
        for action, body in (("cancel", {}), ("retry", {}), ("message", {"text": "hi"})):
            answer = await studio.client.post(f"{path}/{action}", json=body)
            assert (answer.status_code, answer.json()["code"]) == (404, "subagent_not_found")
            assert answer.json()["detail"] == "there is no sub-agent 'x'; known: none"
        for text, problem in (("", "'text' must not be empty."), (" \n", "'text' must not be blank.")):
            answer = await studio.client.post(f"{path}/message", json={"text": text})
            assert (answer.status_code, answer.json()["field"], answer.json()["detail"]) == (422, "text", problem)

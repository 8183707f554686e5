"""Questions to the user over HTTP: one answer counts, and only for the content that was shown."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest

from agenticx.llms import ScriptedModel
from agenticx.testing import call
from tests.support.server.running_studio import RunningStudio, StudioMaker

pytestmark = [pytest.mark.anyio, pytest.mark.promise("E2")]


def model_that_asks(*replies: Any) -> ScriptedModel:
    return ScriptedModel([call("note", {"text": "x"}), *(replies or ("done",))])


async def start_turn_until_question(studio: RunningStudio, session_id: str) -> dict[str, Any]:
    """Start a turn, wait for its question and return it."""
    await studio.turn(session_id)
    await studio.events_until(session_id, "confirm_required")
    (question,) = (await studio.client.get(f"/api/confirms?session_id={session_id}")).json()["confirms"]
    return question


async def answer(studio: RunningStudio, question: dict[str, Any], **fields: Any) -> httpx.Response:
    body = {"approved": True, "digest": question["digest"], **fields}
    return await studio.client.post(f"/api/confirms/{question['id']}", json=body)


async def test_a_pending_question_is_listed_with_its_context_and_answered(make_studio: StudioMaker) -> None:
    async with make_studio(model_that_asks()) as studio:
        session_id, other = await studio.session(), await studio.session()
        question = await start_turn_until_question(studio, session_id)
        frames = await studio.events_until(session_id, "confirm_required")
        shown = frames[-1].data["data"]
        assert {name: question[name] for name in shown} == shown
        assert (question["session_id"], question["context"]["tool"]) == (session_id, "note")
        assert (await studio.client.get(f"/api/confirms?session_id={other}")).json() == {"confirms": []}
        decision = await answer(studio, question)
        assert decision.status_code == 200
        assert decision.json() == {"id": question["id"], "approved": True, "by": "user", "remember": "once"}
        frames = await studio.events_until(session_id, "final")
        assert [frame.data["data"]["result"] for frame in frames if frame.type == "tool_result"] == ["noted x"]
        assert (await studio.client.get("/api/confirms")).json() == {"confirms": []}


async def test_a_denied_call_does_not_run_and_the_reason_is_returned(make_studio: StudioMaker) -> None:
    async with make_studio(model_that_asks()) as studio:
        session_id = await studio.session()
        question = await start_turn_until_question(studio, session_id)
        assert (await answer(studio, question, approved=False, reason="not today")).json()["reason"] == "not today"
        frames = await studio.events_until(session_id, "final")
        (result,) = [frame.data["data"] for frame in frames if frame.type == "tool_result"]
        assert result["outcome"] == "denied"


async def test_the_model_is_told_that_a_policy_denied_a_call_about_which_nobody_was_asked(
    make_studio: StudioMaker,
) -> None:
    async with make_studio(model_that_asks()) as studio:
        session_id = await studio.session()
        question = await start_turn_until_question(studio, session_id)
        denial = {"approved": False, "by": "policy", "reason": "no terminal"}
        assert (await answer(studio, question, **denial)).json() == {
            "id": question["id"],
            "remember": "once",
            **denial,
        }
        frames = await studio.events_until(session_id, "final")
        (result,) = [frame.data["data"]["result"] for frame in frames if frame.type == "tool_result"]
        assert result == "Denied by policy. Reason: no terminal"
        assert (await answer(studio, question, **denial)).status_code == 200
        assert (await answer(studio, question, approved=False)).status_code == 410
        assert (await answer(studio, question, by="timeout")).status_code == 422


async def test_only_the_first_valid_answer_counts_and_repeating_it_returns_the_same(make_studio: StudioMaker) -> None:
    async with make_studio(model_that_asks()) as studio:
        session_id = await studio.session()
        question = await start_turn_until_question(studio, session_id)
        refused = {
            404: await answer(studio, {**question, "id": "cfm_unknown"}),
            409: await answer(studio, question, digest="0" * 64),
            422: await answer(studio, question, approved="yes"),
        }
        assert {status: reply.status_code for status, reply in refused.items()} == {404: 404, 409: 409, 422: 422}
        assert (await studio.client.post(f"/api/confirms/{question['id']}", json={"approved": True})).status_code == 422
        racing = await asyncio.gather(*(answer(studio, question, approved=yes) for yes in (True, False) * 20))
        assert sorted({reply.status_code for reply in racing}) == [200, 410]
        won = {reply.json()["approved"] for reply in racing if reply.status_code == 200}
        assert len(won) == 1
        await studio.events_until(session_id, "final")
        assert (await answer(studio, question, approved=won == {True})).status_code == 200
        assert (await answer(studio, question, approved=won != {True})).status_code == 410


async def test_an_answer_after_the_stop_is_too_late(make_studio: StudioMaker) -> None:
    async with make_studio(model_that_asks()) as studio:
        session_id = await studio.session()
        question = await start_turn_until_question(studio, session_id)
        await studio.client.post(f"/api/sessions/{session_id}/stop")
        await studio.events_until(session_id, "error")
        late = await answer(studio, question)
        assert (late.status_code, late.json()["code"]) == (410, "confirm_closed")


async def test_remembering_for_the_session_asks_once(make_studio: StudioMaker) -> None:
    async with make_studio(model_that_asks(call("note", {"text": "x"}), "done")) as studio:
        session_id = await studio.session()
        question = await start_turn_until_question(studio, session_id)
        assert (await answer(studio, question, remember="session")).status_code == 200
        frames = await studio.events_until(session_id, "final")
        kinds = [frame.type for frame in frames]
        assert (kinds.count("confirm_required"), kinds.count("tool_result")) == (1, 2)


async def test_the_demo_model_writes_a_real_file_only_after_a_yes(make_studio: StudioMaker) -> None:
    from agenticx import builtin_tools

    async with make_studio(tools=builtin_tools()) as studio:
        session_id = await studio.session(model="demo")
        written = studio.workspace / "hello.txt"
        await studio.turn(session_id, "Write hello.txt with the text Good morning")
        await studio.events_until(session_id, "confirm_required")
        (question,) = (await studio.client.get("/api/confirms")).json()["confirms"]
        assert question["context"]["tool"] == "file_write"
        assert not written.exists()
        assert (await answer(studio, question)).status_code == 200
        await studio.events_until(session_id, "final")
        assert written.read_text() == "Good morning"

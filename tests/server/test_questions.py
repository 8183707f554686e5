"""Questions of the agent over HTTP: listed, answered once, closed, and answered a restart later."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path
from typing import Any

import httpx
import pytest

from agenticx.llms import ScriptedModel
from agenticx.testing import call, say
from agenticx.tools.builtin import ask_user
from tests.support.server.agx_processes import agx_serve
from tests.support.server.running_studio import Frame, RunningStudio, StudioMaker, frames_of, note, until
from tests.support.timeouts import PatientClock

pytestmark = [pytest.mark.anyio, pytest.mark.promise("E2")]

ASK = call("ask_user", {"text": "Which colour?", "options": ["red", "blue"]})


async def start_turn_until_question(studio: RunningStudio, session_id: str) -> dict[str, Any]:
    """Start a turn, wait for its question and return it."""
    await studio.turn(session_id)
    await studio.events_until(session_id, "question_asked")
    (question,) = (await studio.client.get(f"/api/questions?session_id={session_id}")).json()["questions"]
    return question


async def answer(studio: RunningStudio, question: dict[str, Any], answer: Any, **fields: Any) -> httpx.Response:
    return await studio.client.post(f"/api/questions/{question['id']}", json={"answer": answer, **fields})


def of_type(frames: list[Frame], type_: str) -> list[dict[str, Any]]:
    return [frame.data["data"] for frame in frames if frame.type == type_]


async def test_a_pending_question_is_listed_and_answered(make_studio: StudioMaker) -> None:
    async with make_studio(ScriptedModel([ASK, "done"]), tools=[ask_user]) as studio:
        session_id, other = await studio.session(), await studio.session()
        question = await start_turn_until_question(studio, session_id)
        (asked,) = of_type(await studio.events_until(session_id, "question_asked"), "question_asked")
        assert question == {"session_id": session_id, "agent_id": "meta", **asked}
        assert asked["options"] == ["red", "blue"]
        assert (await studio.client.get(f"/api/questions?session_id={other}")).json() == {"questions": []}
        assert (await studio.client.get("/api/questions?session_id=ses_none")).status_code == 404
        assert (await studio.client.get("/api/confirms")).json() == {"confirms": []}
        decided = await answer(studio, question, "violet, rather")
        assert decided.status_code == 200
        assert decided.json() == {"id": question["id"], "answer": "violet, rather", "by": "user"}
        frames = await studio.events_until(session_id, "final")
        assert of_type(frames, "question_answered") == [decided.json()]
        assert [result["result"] for result in of_type(frames, "tool_result")] == ["violet, rather"]
        assert (await studio.client.get("/api/questions")).json() == {"questions": []}


async def test_a_search_finds_questions_and_their_answers(make_studio: StudioMaker) -> None:
    asks = call("ask_user", {"text": "Which size?", "options": ["large"]})
    model = ScriptedModel([ASK, [say("Well."), asks], "done"])
    async with make_studio(model, tools=[ask_user]) as studio:
        session_id = await studio.session()
        path = f"/api/sessions/{session_id}"

        async def found(word: str) -> dict[str, list[tuple[str, str]]]:
            """Return the roles and ids of the messages that are found, by session."""
            sessions = (await studio.client.get(f"/api/sessions?q={word}")).json()["sessions"]
            return {one["id"]: [(match["role"], match["message_id"]) for match in one["matches"]] for one in sessions}

        question = await start_turn_until_question(studio, session_id)
        assert (await answer(studio, question, "violet, rather")).status_code == 200
        frames = await studio.events_until(session_id, "question_answered")
        (question,) = of_type(
            await studio.events_until(session_id, "question_asked", cursor=frames[-1].id), "question_asked"
        )
        assert (await answer(studio, question, "")).status_code == 200
        await studio.events_until(session_id, "final")
        rows = (await studio.client.get(f"{path}/messages")).json()["messages"]
        first, asking, answered, second = [row["message_id"] for row in rows][:4]
        words = {"colour": "assistant", "blue": "assistant", "violet": "user", "large": "assistant"}
        ids = {"colour": asking, "blue": asking, "violet": answered, "large": second}
        everywhere = [session_id]
        everywhere.append((await studio.client.post(f"{path}/fork", json={})).json()["id"])
        for word, role in words.items():
            assert await found(word) == {each: [(role, ids[word])] for each in everywhere}
            assert (await studio.client.get(f"{path}/turns?message_id={ids[word]}")).json()["turns"]
        assert await found("want") == {}  # what the model is told if there is no answer
        await studio.client.post(f"{path}/rewind", json={"message_id": first})
        assert [await found(word) for word in words] == [{everywhere[1]: [(words[word], ids[word])]} for word in words]


async def test_an_answer_may_be_as_long_as_a_message(make_studio: StudioMaker) -> None:
    long = "An answer. " * 30_000
    async with make_studio(ScriptedModel([ASK, "done"]), tools=[ask_user]) as studio:
        session_id = await studio.session()
        question = await start_turn_until_question(studio, session_id)
        assert (await answer(studio, question, "a" * 4_000_001)).status_code == 422
        assert (await answer(studio, question, long)).json()["answer"] == long
        frames = await studio.events_until(session_id, "final")
        assert [answered["answer"] for answered in of_type(frames, "question_answered")] == [long]


async def test_only_the_first_answer_counts_and_repeating_it_returns_the_same(make_studio: StudioMaker) -> None:
    async with make_studio(ScriptedModel([ASK, "done"]), tools=[ask_user]) as studio:
        session_id = await studio.session()
        question = await start_turn_until_question(studio, session_id)
        unknown = await answer(studio, {"id": "qst_none"}, "red")
        assert (unknown.status_code, unknown.json()["code"]) == (404, "question_not_found")
        assert (await answer(studio, question, 5)).status_code == 422
        assert (await answer(studio, question, "red", digest="x")).status_code == 422
        confirm = {"approved": True, "digest": ""}
        assert (await studio.client.post(f"/api/confirms/{question['id']}", json=confirm)).status_code == 404
        racing = await asyncio.gather(*(answer(studio, question, colour) for colour in ("red", "blue") * 10))
        assert sorted({reply.status_code for reply in racing}) == [200, 410]
        (won,) = {reply.json()["answer"] for reply in racing if reply.status_code == 200}
        await studio.events_until(session_id, "final")
        assert (await answer(studio, question, won)).status_code == 200
        late = await answer(studio, question, "neither")
        assert (late.status_code, late.json()["code"]) == (410, "question_closed")


async def test_nobody_can_be_asked_says_a_client_without_a_user(make_studio: StudioMaker) -> None:
    async with make_studio(ScriptedModel([ASK, "done"]), tools=[ask_user]) as studio:
        session_id = await studio.session()
        question = await start_turn_until_question(studio, session_id)
        assert (await answer(studio, question, "", by="policy")).status_code == 200
        (result,) = of_type(await studio.events_until(session_id, "final"), "tool_result")
        assert result["result"].startswith("No answer: nobody can be asked now.")
        assert result["is_error"] is False


async def test_a_stop_closes_a_question(make_studio: StudioMaker) -> None:
    async with make_studio(ScriptedModel([ASK]), tools=[ask_user]) as studio:
        session_id = await studio.session()
        question = await start_turn_until_question(studio, session_id)
        await studio.client.post(f"/api/sessions/{session_id}/stop")
        frames = await studio.events_until(session_id, "error")
        assert [data["by"] for data in of_type(frames, "question_answered")] == ["stop"]
        assert (await answer(studio, question, "red")).status_code == 410


class BriefQuestions(PatientClock):
    """A patient clock on which what waits for days, which only questions do, ends after 50 ms."""

    def real(self, seconds: float) -> float:
        return 0.05 if seconds > 86_400 else super().real(seconds)


async def test_the_expiry_closes_a_question(make_studio: StudioMaker) -> None:
    async with make_studio(ScriptedModel([ASK, "done"]), tools=[ask_user], clock=BriefQuestions()) as studio:
        session_id = await studio.session()
        await studio.turn(session_id)
        frames = await studio.events_until(session_id, "final")
        (question,) = of_type(frames, "question_asked")
        assert [data["by"] for data in of_type(frames, "question_answered")] == ["timeout"]
        assert (await answer(studio, question, "red")).status_code == 410


async def test_a_confirmation_and_a_question_are_listed_apart(make_studio: StudioMaker) -> None:
    model = ScriptedModel([call("note", {"text": "x"}), "done"])
    async with make_studio(model, tools=[ask_user, note]) as studio:
        session_id = await studio.session()
        await studio.turn(session_id)
        await studio.events_until(session_id, "confirm_required")
        (confirm,) = (await studio.client.get("/api/confirms")).json()["confirms"]
        assert (await studio.client.get("/api/questions")).json() == {"questions": []}
        assert (await answer(studio, confirm, "yes")).status_code == 404


@pytest.mark.promise("E3")
@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL])
@pytest.mark.cases(quick=1)
async def test_a_question_is_answered_in_the_next_process(tmp_path: Path, end: signal.Signals) -> None:
    home = tmp_path / "home"
    async with agx_serve(home) as served, served.client() as client:
        session = (await client.post("/api/sessions", json={"name": "Named"})).json()["id"]
        body = {"input": "ask me: Which colour? (red, blue)"}
        assert (await client.post(f"/api/sessions/{session}/turns", json=body)).status_code == 202
        async with client.stream("GET", f"/api/sessions/{session}/events") as events:
            before = await until(frames_of(events), "question_asked")
        served.process.send_signal(end)
        await served.process.wait()
    async with agx_serve(home) as served, served.client() as client:
        (question,) = (await client.get(f"/api/questions?session_id={session}")).json()["questions"]
        assert question["id"] == before[-1].data["data"]["id"]
        path = f"/api/questions/{question['id']}"
        given = [await client.post(path, json={"answer": colour}) for colour in ("green", "green", "blue")]
        assert [reply.status_code for reply in given] == [200, 200, 410]
        async with client.stream("GET", f"/api/sessions/{session}/events") as events:
            frames = await until(frames_of(events), "final")
    assert [frame.raw for frame in frames[: len(before)]] == [frame.raw for frame in before]
    assert [result["result"] for result in of_type(frames, "tool_result")] == ["green"]
    assert [frame.data["data"]["answer"] for frame in frames if frame.type == "question_answered"] == ["green"]


@pytest.mark.promise("E3")
async def test_an_answer_that_was_accepted_just_before_a_kill_is_the_result(tmp_path: Path) -> None:
    home = tmp_path / "home"
    async with agx_serve(home) as served, served.client() as client:
        session = (await client.post("/api/sessions", json={"name": "Named"})).json()["id"]
        body = {"input": "ask me: Which colour?"}
        assert (await client.post(f"/api/sessions/{session}/turns", json=body)).status_code == 202
        async with client.stream("GET", f"/api/sessions/{session}/events") as events:
            asked = (await until(frames_of(events), "question_asked"))[-1].data["data"]
        assert (await client.post(f"/api/questions/{asked['id']}", json={"answer": "green"})).status_code == 200
        served.process.kill()
        await served.process.wait()
    async with agx_serve(home) as served, served.client() as client:
        assert (await client.get("/api/questions")).json() == {"questions": []}
        async with client.stream("GET", f"/api/sessions/{session}/events") as events:
            async with asyncio.timeout(30):
                frames = [frame async for frame in _to_the_end(frames_of(events))]
    assert [data["answer"] for data in of_type(frames, "question_answered")] == ["green"]
    if frames[-1].type == "final":
        assert [result["result"] for result in of_type(frames, "tool_result")] == ["green"]
    else:  # the kill came while the model was called
        assert frames[-1].data["data"]["code"] == "interrupted"


async def _to_the_end(frames: Any) -> Any:
    async for frame in frames:
        if frame.type != "comment":
            yield frame
        if frame.type in ("final", "error"):
            return

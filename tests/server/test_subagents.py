"""Sub-agents over HTTP: listed, cancelled, retried, sent messages; their questions and events."""

from __future__ import annotations

import asyncio

import httpx
import pytest

from agenticx.llms import ChatModel
from agenticx.subagents import session_tools
from agenticx.testing import call, check_grammar, hang
from tests.support.server.conversations import ByAgent
from tests.support.server.cutting_proxy import CuttingProxy
from tests.support.server.running_studio import RunningStudio, StudioMaker, note, until
from tests.support.timeouts import patient_client, wait_until

pytestmark = pytest.mark.anyio

SPAWN = call("spawn_subagent", {"task": "Work", "name": "helper"})


async def states(studio: RunningStudio, session_id: str) -> list[tuple[str, str]]:
    found = (await studio.client.get(f"/api/sessions/{session_id}/subagents")).json()["subagents"]
    return [(one["agent_id"], one["state"]) for one in found]


async def test_subagents_are_listed_and_directed_after_the_turn_that_started_them(make_studio: StudioMaker) -> None:
    model = ByAgent([SPAWN, "Later.", "I see."], [hang(), "good", "better"])
    async with make_studio(model, tools=session_tools()) as studio:
        session_id = await studio.session()
        path = f"/api/sessions/{session_id}/subagents"
        await studio.turn(session_id)
        async with studio.events(session_id) as frames:
            seen = await until(frames, "final")
            assert await states(studio, session_id) == [("helper-1", "running")]
            busy = await studio.client.post(f"{path}/helper-1/retry", json={})
            assert (busy.status_code, busy.json()["code"]) == (409, "subagent_busy")
            await wait_until(lambda: model.worker.requests)  # else the retry might get the first reply
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


async def test_a_retry_is_sent_again_after_a_lost_answer_without_a_second_turn(make_studio: StudioMaker) -> None:
    spawns = [SPAWN, call("spawn_subagent", {"task": "Work", "name": "other"})]
    model: ChatModel = ByAgent([spawns, "Later."], ["one", "two", "again", "once more"])  # type: ignore[assignment]
    async with make_studio(model, tools=session_tools()) as studio, CuttingProxy([20]).listening() as proxy:
        proxy.upstream, session_id = studio.port, await studio.session()
        path, headers = f"/api/sessions/{session_id}/subagents", {**studio.client.headers}
        headers["host"] = f"127.0.0.1:{studio.port}"
        await studio.turn(session_id)
        async with studio.events(session_id) as frames:
            for _ in range(2):
                await until(frames, "subagent_completed")
            async with patient_client(f"http://127.0.0.1:{proxy.port}", headers=headers) as client:
                with pytest.raises(httpx.TransportError):
                    await client.post(f"{path}/helper-1/retry", json={"client_turn_id": "r1"})
                again = await client.post(f"{path}/helper-1/retry", json={"client_turn_id": "r1"})
            assert (proxy.cuts, again.status_code, again.json()["agent_id"]) == (1, 202, "helper-1")
            assert (await until(frames, "subagent_completed"))[-1].data["data"]["result"] == "again"
            twice = [studio.client.post(f"{path}/helper-1/retry", json={"client_turn_id": "r2"}) for _ in range(2)]
            assert [answer.status_code for answer in await asyncio.gather(*twice)] == [202, 202]
            assert (await until(frames, "subagent_completed"))[-1].data["data"]["result"] == "once more"
        other = await studio.client.post(f"{path}/other-2/retry", json={"client_turn_id": "r1"})
        assert (other.status_code, other.json()["code"]) == (409, "client_turn_id_reused")
        assert sorted(await states(studio, session_id)) == [("helper-1", "completed"), ("other-2", "completed")]


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

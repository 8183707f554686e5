"""Options over HTTP: several answers to one message, picked, stopped and read after a restart."""

from __future__ import annotations

from collections import Counter
from itertools import count
from typing import Any

import pytest

from agenticx.errors import ModelError
from agenticx.llms.scripted import ScriptedModel, call, fail, hang
from agenticx.testing import check_grammar
from agenticx.tools.builtin import builtin_tools
from tests.support.server.conversations import log, messages, run_turn
from tests.support.server.running_studio import RunningStudio, StudioMaker
from tests.support.wires.file_replies import FILE_WIRES, FileCall, FileWire

pytestmark = pytest.mark.anyio

AGENT = {"tools": builtin_tools()}


def create(content: str) -> Any:
    return call("create_file", {"content": content}, pieces=3)


async def options(studio: RunningStudio, session_id: str) -> dict[int, dict[str, Any]]:
    answer = await studio.client.get(f"/api/sessions/{session_id}/options")
    return {row["number"]: row for row in answer.json()["options"]}


async def page(studio: RunningStudio, session_id: str, query: str = "") -> str | None:
    answer = await studio.client.get(f"/api/sessions/{session_id}/artifacts/index.html{query}")
    return answer.text if answer.status_code == 200 else None


async def make_options(studio: RunningStudio, session_id: str, variants: Any, text: str = "a page") -> None:
    cursor = (await studio.turn(session_id, text, variants=variants)).json()["cursor"]
    async with studio.events(session_id, cursor=cursor) as frames:
        async for frame in frames:
            if frame.data and frame.data["agent_id"] == "meta" and frame.type in ("final", "error"):
                return


async def test_an_option_is_picked_with_its_files_and_its_answer(make_studio: StudioMaker) -> None:
    pages = [create("<h1>one</h1>"), create("<h1>two</h1>"), "made it", "made it", "Thanks."]
    model = ScriptedModel(pages)
    async with make_studio(model, **AGENT) as studio:
        session_id = await studio.session()
        await make_options(studio, session_id, 2)
        found = await options(studio, session_id)
        assert {number: row["state"] for number, row in found.items()} == {1: "done", 2: "done"}
        texts = {number: await page(studio, session_id, f"?option={number}") for number in found}
        assert set(texts.values()) == {"<h1>one</h1>", "<h1>two</h1>"}
        assert await page(studio, session_id) is None
        pick = f"/api/sessions/{session_id}/options"
        for number in (2, 1, 2):
            assert (await studio.client.post(f"{pick}/{number}/pick", json={})).status_code == 200
            assert await page(studio, session_id) == texts[number]
        assert (await studio.client.post(f"{pick}/3/pick", json={})).status_code == 404
        await run_turn(studio, session_id, "thank you")
        told = [message.content for message in model.requests[-1].messages if message.role == "user"]
        assert "Option 2 goes on" in told[-2]
        assert "made it" in told[-2]
        check_grammar(await log(studio, session_id))
        history = await messages(studio, session_id)
        await studio.client.post(f"/api/sessions/{session_id}/rewind", json={"message_id": history[1]["message_id"]})
        assert await page(studio, session_id) is None
        await studio.client.post(f"/api/sessions/{session_id}/rewind", json={"message_id": history[-1]["message_id"]})
        assert await page(studio, session_id) == texts[2]


async def test_one_that_fails_or_is_stopped_leaves_the_others_alone(make_studio: StudioMaker) -> None:
    model = ScriptedModel(
        [[create("<p>a"), hang()], fail(ModelError("no key", code="provider.auth")), create("<p>done"), "done", "more"]
    )
    async with make_studio(model, **AGENT) as studio:
        session_id = await studio.session()
        cursor = (await studio.turn(session_id, "a page", variants=3)).json()["cursor"]
        ended = 0
        async with studio.events(session_id, cursor=cursor) as frames:
            async for frame in frames:
                ended += (
                    frame.data is not None and frame.type in ("final", "error") and frame.data["agent_id"] != "meta"
                )
                if ended == 2:
                    break
        found = await options(studio, session_id)
        running = next(number for number, row in found.items() if row["state"] == "running")
        assert sorted(row["state"] for row in found.values()) == ["done", "failed", "running"]
        busy = await studio.client.post(f"/api/sessions/{session_id}/options/{running}/pick", json={})
        assert (busy.status_code, busy.json()["code"]) == (409, "session_busy")
        stopping = await studio.client.post(f"/api/sessions/{session_id}/options/{running}/stop", json={})
        assert stopping.status_code == 202
        async with studio.events(session_id, cursor=cursor) as frames:
            async for frame in frames:
                if frame.data and frame.type == "final" and frame.data["agent_id"] == "meta":
                    break
        found = await options(studio, session_id)
        assert found[running]["state"] == "stopped"
        (failed,) = [row for row in found.values() if row["state"] == "failed"]
        assert "no key" in failed["reason"]
        refused = await studio.client.post(f"/api/sessions/{session_id}/options/{running}/pick", json={})
        assert (refused.status_code, refused.json()["code"]) == (409, "option_not_done")
        await run_turn(studio, session_id, "go on")
        (picked,) = [event["data"] for event in await log(studio, session_id) if "picked" in event["data"]]
        assert found[picked["picked"]]["state"] == "done"
        assert await page(studio, session_id) == "<p>done"
        check_grammar(await log(studio, session_id))


@pytest.mark.parametrize("wire", FILE_WIRES, ids=lambda wire: wire.name)
async def test_an_option_that_goes_on_calling_tools_fails_after_twenty_rounds(
    wire: FileWire, make_studio: StudioMaker
) -> None:
    numbers = count(1)

    def next_page() -> list[bytes]:
        number = next(numbers)
        arguments = {"path": "index.html", "content": f"<p>{number}</p>"}
        return wire.reply(FileCall(f"call_{number}", "create_file", arguments)).chunks

    tools = [tool for tool in builtin_tools() if tool.schema.name == "create_file"]
    async with wire.serve(next_page) as server:
        model = wire.model(server.base_url)
        async with make_studio(model, tools=tools) as studio:
            session_id = await studio.session()
            await make_options(studio, session_id, 2)
            events = await log(studio, session_id)
            check_grammar(events)
            found = await options(studio, session_id)
        await model.aclose()
    rounds = Counter(event["agent_id"] for event in events if event["type"] == "round_start")
    assert rounds == {"option-1": 20, "option-2": 20}
    ended = [event for event in events if event["type"] in ("error", "final")]
    codes = {event["agent_id"]: event["data"].get("code") for event in ended}
    assert codes == {"option-1": "max_rounds", "option-2": "max_rounds", "meta": None}
    reason = "The turn used all of its 20 rounds without an answer."
    assert [(row["state"], row["reason"]) for row in found.values()] == [("failed", reason)] * 2


async def test_variants_that_cannot_be_made_are_refused(make_studio: StudioMaker) -> None:
    async with make_studio(ScriptedModel(["x"] * 9), **AGENT) as studio:
        session_id = await studio.session()
        for variants in (1, 9, ["scripted"], "two", []):
            answer = await studio.turn(session_id, "a page", variants=variants)
            assert answer.status_code == 422, variants
        assert (await studio.turn(session_id, "a page", variants=2, when_busy="queue")).status_code == 422
        assert (await studio.turn(session_id, "a page", variants=["scripted", "no:model"])).json()[
            "code"
        ] == "unknown_model"
        await make_options(studio, session_id, ["scripted", "scripted"])
        await make_options(studio, session_id, 2)
        assert list(await options(studio, session_id)) == [1, 2, 3, 4]


async def test_options_are_there_after_a_restart_and_the_next_message_goes_on_with_one(
    make_studio: StudioMaker,
) -> None:
    async with make_studio(
        ScriptedModel([create("<h1>one</h1>"), create("<h1>two</h1>"), "a", "b"]), **AGENT
    ) as studio:
        session_id = await studio.session()
        await make_options(studio, session_id, 2)
        first = await page(studio, session_id, "?option=1")
    model = ScriptedModel([call("edit_file", {"old_text": "h1>", "new_text": "h2>", "count": -1}), "Smaller."])
    async with make_studio(model, **AGENT) as studio:
        assert {number: row["state"] for number, row in (await options(studio, session_id)).items()} == {
            1: "done",
            2: "done",
        }
        await run_turn(studio, session_id, "smaller headings")
        assert first is not None
        assert await page(studio, session_id) == first.replace("h1>", "h2>")
        assert await page(studio, session_id, "?option=1") == first
        assert (await studio.client.post(f"/api/sessions/{session_id}/options/2/pick", json={})).status_code == 200
        await studio.client.delete(f"/api/sessions/{session_id}")


async def test_rewinds_and_forks_have_the_options_of_their_messages(make_studio: StudioMaker) -> None:
    model = ScriptedModel(["hello", create("<h1>one</h1>"), create("<h1>two</h1>"), "a", "b", *["more"] * 5])
    async with make_studio(model, **AGENT) as studio:
        session_id = await studio.session()
        await run_turn(studio, session_id, "hi")
        await make_options(studio, session_id, 2)
        whole = (await studio.client.post(f"/api/sessions/{session_id}/fork", json={})).json()["id"]
        history = await messages(studio, session_id)
        await studio.client.post(f"/api/sessions/{session_id}/rewind", json={"message_id": history[1]["message_id"]})
        await run_turn(studio, session_id, "something else")
        assert await page(studio, session_id) is None
        assert not [event for event in await log(studio, session_id) if "picked" in event["data"]]
        second = await page(studio, session_id, "?option=2")
        await studio.client.post(f"/api/sessions/{session_id}/options/2/pick", json={})
        await run_turn(studio, session_id, "and more")
        picked = next(entry for entry in await messages(studio, session_id) if entry["content"].startswith("[options]"))
        await studio.client.post(f"/api/sessions/{session_id}/rewind", json={"message_id": picked["message_id"]})
        assert await page(studio, session_id) == second
        assert [row["state"] for row in (await options(studio, whole)).values()] == ["done", "done"]
        await run_turn(studio, whole, "go on")
        assert await page(studio, whole) == await page(studio, whole, "?option=1")
        again = (await studio.client.post(f"/api/sessions/{whole}/fork", json={})).json()["id"]
        last = (await messages(studio, again))[-1]["message_id"]
        await studio.client.post(f"/api/sessions/{again}/rewind", json={"message_id": None})
        await studio.client.post(f"/api/sessions/{again}/rewind", json={"message_id": last})
        assert await page(studio, again) == await page(studio, whole)

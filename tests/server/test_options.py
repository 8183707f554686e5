"""Options over HTTP: several answers to one message, picked, stopped and read after a restart."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from itertools import count
from typing import Any

import pytest

from agenticx import builtin_tools
from agenticx.errors import ModelError
from agenticx.llms import ScriptedModel
from agenticx.testing import call, check_grammar, fail, hang, usage
from tests.support.server.conversations import log, messages, run_turn
from tests.support.server.running_studio import Frame, RunningStudio, StudioMaker
from tests.support.timeouts import PATIENCE
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


async def make_options(studio: RunningStudio, session_id: str, variants: Any, text: str = "a page") -> dict[str, Any]:
    """Make options, and return the data of the event that ends their turn."""
    cursor = (await studio.turn(session_id, text, variants=variants)).json()["cursor"]
    return await end_of_turn(studio, session_id, cursor)


async def end_of_turn(studio: RunningStudio, session_id: str, cursor: str) -> dict[str, Any]:
    async with studio.events(session_id, cursor=cursor) as frames:
        async for frame in frames:
            if frame.data and frame.data["agent_id"] == "meta" and frame.type in ("final", "error"):
                return frame.data["data"]
    raise AssertionError("the stream ended")


async def take_ends(frames: AsyncIterator[Frame], count: int) -> AsyncIterator[Frame]:
    """Yield the events with which that many options end."""
    async for frame in frames:
        if frame.data and frame.type in ("final", "error") and frame.data["agent_id"] != "meta":
            yield frame
            count -= 1
            if not count:
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
        for number in (2, 2, 1, 2):  # the same twice changes nothing
            assert (await studio.client.post(f"{pick}/{number}/pick", json={})).status_code == 200
            assert await page(studio, session_id) == texts[number]
        assert (await studio.client.post(f"{pick}/3/pick", json={})).status_code == 404
        await run_turn(studio, session_id, "thank you")
        told = [message.content for message in model.requests[-1].messages if message.role == "user"]
        assert ["Option 2" in text for text in told if "goes on" in text] == [True, False, True]
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


async def test_a_pick_while_others_run_stops_them_and_counts_before_a_queued_message(make_studio: StudioMaker) -> None:
    model = ScriptedModel([create("<p>one"), create("<p>two"), [hang()], "made", "made", "Smaller."])
    async with make_studio(model, **AGENT) as studio:
        session_id = await studio.session()
        cursor = (await studio.turn(session_id, "a page", variants=3)).json()["cursor"]
        async with studio.events(session_id, cursor=cursor) as frames:
            ended = [frame.data["agent_id"] async for frame in take_ends(frames, 2) if frame.data]
        number = max(int(agent.removeprefix("option-")) for agent in ended)
        text = await page(studio, session_id, f"?option={number}")
        await studio.turn(session_id, "smaller", when_busy="queue")
        assert (
            await studio.client.post(f"/api/sessions/{session_id}/options/{number}/pick", json={})
        ).status_code == 200
        (picked,) = [event["data"] for event in await log(studio, session_id) if "picked" in event["data"]]
        assert picked["picked"] == number
        states = [row["state"] for row in (await options(studio, session_id)).values()]
        assert sorted(states) == ["done", "done", "stopped"]
        async with studio.events(session_id, cursor=cursor) as frames:
            async for frame in frames:
                if frame.data and frame.data["data"].get("text") == "Smaller.":
                    break
        assert await page(studio, session_id) == text
        check_grammar(await log(studio, session_id))


@pytest.mark.ci_lane
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


async def test_options_have_the_revisions_that_they_made_or_took_over(make_studio: StudioMaker) -> None:
    pages = [create("<p>old"), "ok", create("<p>one"), create("<p>two"), "a", "b", "c"]
    async with make_studio(ScriptedModel(pages), **AGENT) as studio:
        session_id = await studio.session()
        await run_turn(studio, session_id, "a page")
        await make_options(studio, session_id, 2)
        new = {await page(studio, session_id, f"?option={number}"): number for number in (1, 2)}
        revisions = {f"<p>{name}": number for number, name in ((2, "one"), (3, "two"))}
        for text, revision in revisions.items():
            seen = [await page(studio, session_id, f"?option={number}&revision={revision}") for number in (1, 2)]
            assert seen[new[text] - 1] == text
            assert seen[2 - new[text]] is None  # it is that of the other one
            assert await page(studio, session_id, f"?revision={revision}") is None
            assert await page(studio, session_id, f"?option={new[text]}&revision=1") == "<p>old"
        await studio.client.post(f"/api/sessions/{session_id}/options/{new['<p>two']}/pick", json={})
        fork = (await studio.client.post(f"/api/sessions/{session_id}/fork", json={})).json()["id"]
        for id_ in (session_id, fork):
            assert [await page(studio, id_, f"?revision={number}") for number in (1, 2, 3)] == [
                "<p>old",
                None,
                "<p>two",
            ]


async def test_a_repeated_message_with_other_variants_is_a_conflict(make_studio: StudioMaker) -> None:
    async with make_studio(ScriptedModel(["x"] * 9), **AGENT) as studio:
        session_id = await studio.session()
        first = await studio.turn(session_id, "a page", variants=2, client_turn_id="one")
        for variants in (3, None, ["scripted", "scripted"]):
            again = await studio.turn(session_id, "a page", variants=variants, client_turn_id="one")
            assert (again.status_code, again.json()["code"]) == (409, "client_turn_id_reused"), variants
        await end_of_turn(studio, session_id, first.json()["cursor"])
        again = await studio.turn(session_id, "a page", variants=2, client_turn_id="one")
        assert (again.status_code, again.json()) == (202, first.json())
        await studio.turn(session_id, "no variants", client_turn_id="two")
        assert (await studio.turn(session_id, "no variants", variants=2, client_turn_id="two")).status_code == 409


async def test_questions_of_an_option_name_it(make_studio: StudioMaker) -> None:
    write = call("file_write", {"path": "a.txt", "content": "hi"})
    ask = call("ask_user", {"text": "Which colour?"})
    async with make_studio(ScriptedModel([write, ask]), **AGENT) as studio:
        session_id = await studio.session()
        cursor = (await studio.turn(session_id, "a page", variants=2)).json()["cursor"]
        asked: dict[str, dict[str, Any]] = {}
        async with studio.events(session_id, cursor=cursor) as frames:
            async for frame in frames:
                if frame.type in ("confirm_required", "question_asked"):
                    asked[frame.type] = frame.data
                if len(asked) == 2:
                    break
        confirm, question = asked["confirm_required"], asked["question_asked"]
        assert confirm["data"]["question"].startswith(f"Option {confirm['agent_id'].removeprefix('option-')}: ")
        assert question["data"]["text"] == f"Option {question['agent_id'].removeprefix('option-')}: Which colour?"


async def test_the_budget_is_divided_before_the_first_option_begins(make_studio: StudioMaker) -> None:
    model = ScriptedModel(["x"] * 2)
    async with make_studio(model, **AGENT, turn_budget_tokens=3_000) as studio:
        session_id = await studio.session()
        end = await make_options(studio, session_id, 8)
        assert end["code"] == "budget_exceeded"
        assert end["text"].startswith(
            "the budget cannot be divided among 8 agents: the budget of 375 tokens is exceeded"
        )
        assert await options(studio, session_id) == {}
        assert not model.requests
    model = ScriptedModel([[create("<p>a"), usage(24_000, 900)], "two", "not asked for"])
    async with make_studio(model, **AGENT, turn_budget_tokens=50_000) as studio:
        session_id = await studio.session()
        await make_options(studio, session_id, 2)
        assert sorted(row["state"] for row in (await options(studio, session_id)).values()) == ["done", "failed"]
        assert len(model.requests) == 2
        assert all((request.sampling.max_output_tokens or 0) < 12_500 for request in model.requests)


async def test_options_use_the_configured_models_in_rotation(make_studio: StudioMaker) -> None:
    async with make_studio(ScriptedModel(["x"] * 2), **AGENT, fallback_models=["demo"]) as studio:
        session_id = await studio.session()
        await make_options(studio, session_id, 3)
        models = [row["model"] for row in (await options(studio, session_id)).values()]
        assert models == ["scripted", "demo", "scripted"]


async def test_each_way_to_end_is_a_state(make_studio: StudioMaker) -> None:
    ends = ["answer", fail(ModelError("no key", code="provider.auth")), hang(), hang(), hang()]
    rounds = [call("create_file", {"content": f"<p>{number}"}) for number in range(20)]
    async with make_studio(ScriptedModel([*ends, *rounds]), **AGENT) as studio:
        session_id = await studio.session()
        cursor = (await studio.turn(session_id, "a page", variants=6)).json()["cursor"]
        async with studio.events(session_id, cursor=cursor) as frames:
            over = [frame async for frame in take_ends(frames, 3)]
        assert {frame.data["data"].get("code") for frame in over} == {None, "provider.auth", "max_rounds"}
        found = await options(studio, session_id)
        running = [number for number, row in found.items() if row["state"] == "running"]
        assert len(running) == 3
        await studio.client.post(f"/api/sessions/{session_id}/options/{running[0]}/stop", json={})
        async with studio.events(session_id, cursor=cursor) as frames:
            _ = [frame async for frame in take_ends(frames, 4)]
        assert (await options(studio, session_id))[running[0]]["state"] == "stopped"
        async with asyncio.timeout(PATIENCE):
            await studio.client.post(f"/api/sessions/{session_id}/stop", json={})
            assert (await end_of_turn(studio, session_id, cursor))["code"] == "stopped"
        rows = list((await options(studio, session_id)).values())
        assert sorted(row["state"] for row in rows) == ["done", "failed", "failed", *["stopped"] * 3]
        assert [bool(row.get("reason")) for row in rows] == [row["state"] != "done" for row in rows]
        assert any("20 rounds" in row.get("reason", "") for row in rows)
        check_grammar(await log(studio, session_id))


async def test_a_server_that_ends_ends_options_that_wait_for_a_person(make_studio: StudioMaker) -> None:
    write = call("file_write", {"path": "a.txt", "content": "hi"})
    async with make_studio(ScriptedModel([write, "made"]), **AGENT) as studio:
        session_id = await studio.session()
        cursor = (await studio.turn(session_id, "a page", variants=2)).json()["cursor"]
        async with studio.events(session_id, cursor=cursor) as frames:
            _ = [frame async for frame in take_ends(frames, 1)]
        await studio.events_until(session_id, "confirm_required", cursor=cursor)
    async with make_studio(ScriptedModel(["Thanks."]), **AGENT) as studio:
        states = {row["state"]: row for row in (await options(studio, session_id)).values()}
        assert states.keys() == {"done", "stopped"}
        assert (await studio.client.get("/api/confirms")).json()["confirms"] == []
        await run_turn(studio, session_id, "thank you")
        picked = [event["data"]["picked"] for event in await log(studio, session_id) if "picked" in event["data"]]
        assert picked == [states["done"]["number"]]


async def test_a_model_makes_options_with_the_models_of_the_hub(make_studio: StudioMaker) -> None:
    makes = call("run_variants", {"models": ["scripted", "demo"], "prompt": "hello"})
    async with make_studio(ScriptedModel([makes, "hi"]), **AGENT) as studio:
        session_id = await studio.session(permission_mode="auto")
        await run_turn(studio, session_id, "two versions")  # until one is done
        rows = (await options(studio, session_id)).values()
        assert [row["model"] for row in rows] == ["scripted", "demo"]
        assert "done" in [row["state"] for row in rows]


async def test_options_are_listed_once_they_begin(make_studio: StudioMaker) -> None:
    makes = call("run_variants", {"count": 2})
    async with make_studio(ScriptedModel([makes, hang(), hang()]), **AGENT) as studio:
        session_id = await studio.session(permission_mode="auto")
        cursor = (await studio.turn(session_id, "two versions")).json()["cursor"]
        async with studio.events(session_id, cursor=cursor) as frames:
            async for frame in frames:
                if frame.data and (frame.type, frame.data["agent_id"]) == ("turn_started", "option-2"):
                    break
        rows = await options(studio, session_id)
        assert {number: row["state"] for number, row in rows.items()} == {1: "running", 2: "running"}
        await studio.client.post(f"/api/sessions/{session_id}/stop", json={})

"""Turns over HTTP: started, watched, stopped, repeated."""

from __future__ import annotations

import asyncio

import pytest

from agenticx.llms import Sampling, ScriptedModel
from agenticx.runtime import envelope_adapter
from agenticx.sessions import SessionRecord
from agenticx.testing import assert_sequence, call, hang, say
from tests.support.lanes import Count
from tests.support.server.running_studio import Frame, StudioMaker, frames_of, until
from tests.support.timeouts import longest_hold, wait_until

pytestmark = pytest.mark.anyio


def types(frames: list[Frame]) -> list[str]:
    return [frame.type for frame in frames if frame.type not in ("state", "usage", "comment", "tool_call_delta")]


async def test_a_turn_is_accepted_with_a_cursor_just_before_its_first_event(make_studio: StudioMaker) -> None:
    async with make_studio() as studio:
        session_id = await studio.session()
        for text in ("first", "second"):
            answer = await studio.turn(session_id, text)
            assert answer.status_code == 202
            assert set(answer.json()) == {"turn_id", "cursor"}
            frames = await studio.events_until(session_id, "final", cursor=answer.json()["cursor"])
            assert types(frames) == ["turn_started", "round_start", "token", "final"]
            assert frames[0].data["data"]["input"] == text
            assert {frame.data["turn_id"] for frame in frames} == {answer.json()["turn_id"]}
            for frame in frames:
                envelope_adapter().validate_python(frame.data)


async def test_a_client_that_accepts_events_gets_the_turn_up_to_its_terminal_event(make_studio: StudioMaker) -> None:
    async with make_studio() as studio:
        session_id = await studio.session()
        await studio.events_until(session_id, "final", cursor=(await studio.turn(session_id)).json()["cursor"])
        path = f"/api/sessions/{session_id}/turns"
        headers = {"Accept": "text/event-stream"}
        async with studio.client.stream("POST", path, json={"input": "again"}, headers=headers) as answer:
            assert answer.status_code == 200
            assert answer.headers["content-type"].startswith("text/event-stream")
            frames = [frame async for frame in frames_of(answer)]
        assert types(frames) == ["turn_started", "round_start", "token", "final"]
        assert frames[0].data["data"]["input"] == "again"


async def test_a_conversation_is_compacted_on_request_and_its_turn_says_what_it_did(make_studio: StudioMaker) -> None:
    answers = [f"Answer {number}. {'word ' * 900}" for number in range(6)]
    model = ScriptedModel([*answers, "They asked six things.", "Yes."])
    async with make_studio(model) as studio:
        session_id = await studio.session()
        for number in range(6):
            answer = await studio.turn(session_id, f"question {number}")
            await studio.events_until(session_id, "final", cursor=answer.json()["cursor"])
        answer = await studio.turn(session_id, "/compact", compact=True)
        frames = await studio.events_until(session_id, "final", cursor=answer.json()["cursor"])
        events = [frame.data for frame in frames if frame.type != "comment"]
        assert [event["data"].get("state", event["type"]) for event in events] == [
            *("turn_started", "compacting", "usage", "compaction", "token", "done", "final")
        ]
        assert events[3]["data"]["summary"] == "They asked six things."
        assert events[-1]["data"]["text"].startswith("The conversation now has about ")
        answer = await studio.turn(session_id, "and now?")
        await studio.events_until(session_id, "final", cursor=answer.json()["cursor"])
        sent = [message.content for message in model.requests[-1].messages]
        assert sent[1] == "[compacted] Summary of 5 earlier messages:\nThey asked six things."
        assert sent[-3] == "/compact"
        for wrong in ({"variants": 2}, {"when_busy": "queue"}, {"output_schema": {"type": "object"}}):
            refused = (await studio.turn(session_id, "/compact", compact=True, **wrong)).json()
            assert (refused["code"], refused["field"]) == ("invalid_body", "compact")


async def test_a_turn_has_sampling_and_an_output_schema_of_its_own(make_studio: StudioMaker) -> None:
    model = ScriptedModel(['{"name": "Rome"}', "free"])
    schema = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
    async with make_studio(model) as studio:
        session_id = await studio.session()
        await studio.turn(session_id, sampling={"temperature": 1, "stop": ["END"]}, output_schema=schema)
        frames = await studio.events_until(session_id, "final")
        assert frames[-1].data["data"]["output"] == {"name": "Rome"}
        assert model.requests[0].sampling == Sampling(temperature=1, stop=["END"])
        for body, field, words in (
            ({"sampling": {"temperature": 3}}, "sampling", "'sampling': temperature"),
            ({"sampling": {"temperature": "1"}}, "sampling.temperature", "must be a number"),
            ({"sampling": {"seed": 1.5}}, "sampling.seed", "must be a whole number"),
            ({"sampling": {"heat": 1}}, "sampling.heat", "'sampling.heat'; known fields of 'sampling': temperature"),
            ({"sampling": {"temprature": 1}}, "sampling.temprature", "did you mean 'temperature'? The known fields of"),
            ({"attachments": [{"name": "x", "data": "", "typ": ""}]}, "attachments.0.typ", "'attachments.0': name, me"),
            ({"inputs": "x"}, "inputs", "did you mean 'input'? The known fields: input, attachments"),
            ({"output_schema": {"type": "nothing"}}, "output_schema", "not a valid JSON Schema"),
            ({"output_schema": schema, "variants": 2}, "output_schema", "leave it out with variants"),
        ):
            answer = await studio.turn(session_id, **body)
            assert (answer.status_code, answer.json()["code"], answer.json()["field"]) == (422, "invalid_body", field)
            assert words in answer.json()["detail"]


async def test_turns_are_listed_by_pages_with_the_cursor_of_each_and_without_those_rewound(
    make_studio: StudioMaker,
) -> None:
    model = ScriptedModel([call("note", {"text": "x"}), "One.", "Two.", "Three.", [say("so"), hang()]])
    async with make_studio(model, permission_mode="auto") as studio:
        session_id = await studio.session()
        path, started = f"/api/sessions/{session_id}", list[dict[str, str]]()
        for text in ("one", "two", "three"):
            started.append((await studio.turn(session_id, text)).json())
            await studio.events_until(session_id, "final", cursor=started[-1]["cursor"])
        started.append((await studio.turn(session_id, "four " * 100)).json())
        await studio.events_until(session_id, "token", cursor=started[-1]["cursor"])

        first = (await studio.client.get(f"{path}/turns?limit=2")).json()
        earlier = (await studio.client.get(f"{path}/turns?before={first['turns'][0]['turn_id']}")).json()
        assert (first["has_more"], earlier["has_more"]) == (True, False)
        turns = [*earlier["turns"], *first["turns"]]
        assert [(turn["turn_id"], turn["cursor"]) for turn in turns] == [
            (turn["turn_id"], turn["cursor"]) for turn in started
        ]
        ends = [(turn["outcome"], turn["tool_calls"]) for turn in turns]
        assert ends == [("answer", 1), ("answer", 0), ("answer", 0), (None, 0)]
        assert (turns[3]["ended_at"], len(turns[3]["input"])) == (None, 300)
        for turn in turns[:3]:
            query = {"from": turn["cursor"], "until": turn["last_cursor"]}
            page = (await studio.client.get(f"{path}/events", params=query)).json()
            types = [event["type"] for event in page["events"] if event["turn_id"] == turn["turn_id"]]
            assert (types[0], types[-1], len(types)) == ("turn_started", "final", turn["events"])

        messages = (await studio.client.get(f"{path}/messages")).json()["messages"]
        contents = {message["content"]: message["message_id"] for message in messages}
        for content, turn in (("one", turns[0]), ("noted x", turns[0]), ("Two.", turns[1]), ("so", None)):
            found = (await studio.client.get(f"{path}/turns?message_id={contents[content]}")).json()["turns"]
            assert [one["turn_id"] for one in found] == [started[3]["turn_id"] if turn is None else turn["turn_id"]]
            assert turn is None or found == [turn]
        unknown = await studio.client.get(f"{path}/turns?message_id=msg_x")
        assert (unknown.status_code, unknown.json()["code"]) == (404, "message_not_found")

        await studio.client.post(f"{path}/stop")
        await studio.events_until(session_id, "error", cursor=started[3]["cursor"])
        await studio.client.post(f"{path}/rewind", json={"message_id": turns[1]["message_id"]})
        left = (await studio.client.get(f"{path}/turns")).json()["turns"]
        assert [turn["input"] for turn in left] == ["one", "two"]
        gone = (await studio.client.get(f"{path}/turns?message_id={contents['Three.']}")).json()["turns"]
        assert [turn["turn_id"] for turn in gone] == [turns[2]["turn_id"]]
        unknown = await studio.client.get(f"{path}/turns?before={started[3]['turn_id']}")
        assert (unknown.status_code, unknown.json()["code"]) == (422, "bad_before")


@pytest.mark.promise("D1")
@pytest.mark.ci_lane
async def test_one_of_64_simultaneous_posts_is_accepted_and_63_write_nothing(
    make_studio: StudioMaker, count: Count
) -> None:
    rounds = count(1, 4, 200)
    async with make_studio(ScriptedModel([[say("a"), hang()]] * rounds)) as studio:
        session_id, cursor = await studio.session(), None
        for _ in range(rounds):
            answers = await asyncio.gather(*(studio.turn(session_id, str(number)) for number in range(64)))
            assert sorted(answer.status_code for answer in answers) == [202] + [409] * 63
            refused = next(answer for answer in answers if answer.status_code == 409)
            assert refused.headers["content-type"] == "application/problem+json"
            assert refused.json()["code"] == "session_busy"
            assert (await studio.client.post(f"/api/sessions/{session_id}/stop")).status_code == 202
            frames = await studio.events_until(session_id, "error", cursor=cursor)
            sent = [frame.data for frame in frames if frame.type != "comment"]
            assert_sequence(sent, ["turn_started", "round_start?", "token?", "error:stopped"])
            cursor = frames[-1].id


async def test_the_same_client_turn_id_again_is_the_same_turn_and_with_other_input_a_conflict(
    make_studio: StudioMaker,
) -> None:
    async with make_studio() as studio:
        session_id = await studio.session()
        first = await studio.turn(session_id, "hi", client_turn_id="c1")
        await studio.events_until(session_id, "final")
        again = await studio.turn(session_id, "hi", client_turn_id="c1")
        assert (again.status_code, again.json()) == (202, first.json())
        other = await studio.turn(session_id, "ho", client_turn_id="c1")
        assert (other.status_code, other.json()["code"]) == (409, "client_turn_id_reused")


async def test_a_stop_ends_the_turn(make_studio: StudioMaker) -> None:
    async with make_studio(ScriptedModel([[say("a"), hang()]])) as studio:
        session_id = await studio.session()
        turn = (await studio.turn(session_id)).json()
        answer = await studio.client.post(f"/api/sessions/{session_id}/stop", json={})
        assert (answer.status_code, answer.json()) == (202, {"turn_id": turn["turn_id"]})
        frames = await studio.events_until(session_id, "error")
        assert frames[-1].data["data"]["code"] == "stopped"
        answer = await studio.client.post(f"/api/sessions/{session_id}/stop")
        assert (answer.status_code, answer.json()) == (202, {"turn_id": None})


async def test_a_client_that_disconnects_does_not_stop_the_turn(make_studio: StudioMaker) -> None:
    model = ScriptedModel([call("note", {"text": "x"}), "done"])
    async with make_studio(model) as studio:
        session_id = await studio.session()
        path, headers = f"/api/sessions/{session_id}/turns", {"Accept": "text/event-stream"}
        async with studio.client.stream("POST", path, json={"input": "go"}, headers=headers) as answer:
            await until(frames_of(answer), "confirm_required")
        await wait_until(lambda: not studio.services.relay.readers)
        (asked,) = (await studio.client.get("/api/confirms")).json()["confirms"]
        answer = await studio.client.post(
            f"/api/confirms/{asked['id']}", json={"approved": True, "digest": asked["digest"]}
        )
        assert answer.status_code == 200
        frames = await studio.events_until(session_id, "final")
        assert types(frames) == [
            "turn_started",
            "round_start",
            "tool_call",
            "confirm_required",
            "confirm_response",
            "tool_result",
            "round_start",
            "token",
            "final",
        ]


async def test_a_turn_can_use_another_model_than_its_session(make_studio: StudioMaker) -> None:
    async with make_studio() as studio:
        session_id = await studio.session()
        refused = await studio.turn(session_id, model="nonsense")
        assert (refused.status_code, refused.json()["field"]) == (422, "model")
        await studio.turn(session_id, "say hello there", model="demo")
        frames = await studio.events_until(session_id, "final")
        assert frames[0].data["data"]["model"] == "demo"
        assert frames[-1].data["data"]["text"] == "hello there"


async def test_a_turn_can_have_another_permission_mode_than_its_session(make_studio: StudioMaker) -> None:
    async with make_studio(
        ScriptedModel([call("note", {"text": "x"}), "one", call("note", {"text": "y"}), "two"])
    ) as studio:
        session_id, outcomes = await studio.session(permission_mode="auto"), list[str]()
        refused = await studio.turn(session_id, permission_mode="bold")
        assert (refused.status_code, refused.json()["field"]) == (422, "permission_mode")
        for fields in ({"permission_mode": "plan"}, {"permission_mode": None}):
            cursor = (await studio.turn(session_id, **fields)).json()["cursor"]
            events = [frame.data for frame in await studio.events_until(session_id, "final", cursor=cursor)]
            outcomes += [event["data"]["outcome"] for event in events if event["type"] == "tool_result"]
            assert "session_changed" not in [event["type"] for event in events]
        assert outcomes == ["denied", "ok"]
        assert (await studio.client.get(f"/api/sessions/{session_id}")).json()["permission_mode"] == "auto"


@pytest.mark.ci_lane
async def test_a_message_has_at_most_four_million_characters_of_any_kind(make_studio: StudioMaker) -> None:
    async with make_studio() as studio:
        session_id = await studio.session()
        refused = await studio.turn(session_id, "ü" * 4_000_001)
        assert (refused.status_code, refused.json()["field"]) == (422, "input")
        assert "4000000 characters" in refused.json()["detail"]
        assert (await studio.turn(session_id, "ü" * 4_000_000)).status_code == 202


@pytest.mark.ci_lane
async def test_a_long_message_to_the_demo_model_does_not_block_the_loop(make_studio: StudioMaker, count: Count) -> None:
    async with make_studio() as studio:
        session_id, text = await studio.session(model="demo"), "A" * count(1_000_000, 3_900_000, 3_900_000)
        talking = asyncio.create_task(studio.turn(session_id, f"say {text}"))
        async with longest_hold() as hold:
            while not talking.done() or studio.services.hub.running_turn_id(session_id) is not None:
                assert (await studio.client.get("/api/health")).status_code == 200
        assert talking.result().status_code == 202
        final = (await studio.events_until(session_id, "final"))[-1]
        assert final.data["data"]["text"] == text
        assert hold.longest < 2


async def test_a_removed_tool_is_named_and_no_turn_starts(make_studio: StudioMaker) -> None:
    async with make_studio() as studio:
        record = SessionRecord(workspace=str(studio.workspace), created_at="2026-01-01T00:00:00.000Z", tools=("gone",))
        await studio.services.store.create(record)
        answer = await studio.turn(record.id)
        assert (answer.status_code, answer.json()["code"]) == (422, "unknown_tool")
        assert answer.json()["detail"].startswith("unknown tool 'gone'; known tools: ")
        assert await studio.services.store.log.read(record.id, 0, 10) == []

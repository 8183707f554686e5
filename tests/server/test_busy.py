"""Messages sent while a turn runs: queued, steering, interrupting, handed back, also over restarts."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from agenticx import UserMessage
from agenticx.llms import ScriptedModel
from agenticx.testing import call, check_grammar, hang, say
from tests.support.lanes import Count
from tests.support.server.agx_processes import ServedStudio, agx_serve, outcome
from tests.support.server.running_studio import Frame, RunningStudio, StudioMaker, frames_of, until
from tests.support.timeouts import PATIENCE
from tests.support.wires.files import PNG

pytestmark = pytest.mark.anyio

PICTURE = {"name": PNG.name, "data": PNG.data}


async def start_turn_until_question(studio: RunningStudio, session_id: str, text: str = "one") -> dict[str, Any]:
    """Start a turn, wait for its question and return its data."""
    await studio.turn(session_id, text)
    return (await studio.events_until(session_id, "confirm_required"))[-1].data["data"]


async def allow(studio: RunningStudio, asked: dict[str, Any]) -> None:
    yes = {"approved": True, "digest": asked["digest"]}
    assert (await studio.client.post(f"/api/confirms/{asked['id']}", json=yes)).status_code == 200


async def log_until(studio: RunningStudio, session_id: str, type_: str, times: int) -> list[dict[str, Any]]:
    """Return the session's envelopes up to the event number `times` of that type."""
    async with studio.events(session_id) as frames:
        found: list[Frame] = []
        for _ in range(times):
            found += await until(frames, type_)
    envelopes = [frame.data for frame in found if frame.id is not None]
    check_grammar(envelopes, complete=False)
    return envelopes


def outcomes(envelopes: Sequence[dict[str, Any]]) -> list[str]:
    """Return the outcomes of messages and turns, such as `queued two`, `turn_started two`, `final`."""
    shown = ("turn_started", "queued", "handed_back", "steered", "final", "error")
    lines = (
        (event["type"], event["data"].get("input") or event["data"]["text"])
        for event in envelopes
        if event["type"] in shown
    )
    return [type_ if type_ in ("final", "error") else f"{type_} {text}" for type_, text in lines]


async def test_a_queued_message_is_reported_at_once_and_runs_after_the_turn(make_studio: StudioMaker) -> None:
    model = ScriptedModel([call("note", {"text": "x"}), "one done", "two done"])
    async with make_studio(model) as studio:
        session_id = await studio.session(name="Named")
        asked = await start_turn_until_question(studio, session_id)
        fields = {"when_busy": "queue", "client_turn_id": "c2", "attachments": [PICTURE]}
        answer = await studio.turn(session_id, "two", **fields)
        assert (answer.status_code, set(answer.json())) == (202, {"turn_id", "cursor", "state", "message_id"})
        assert answer.json()["state"] == "queued"
        assert (await studio.turn(session_id, "two", **fields)).json() == answer.json()
        await allow(studio, asked)
        behind = await studio.events_until(session_id, "turn_started", cursor=answer.json()["cursor"])
        assert "queued" not in [frame.type for frame in behind]
        assert behind[-1].data["turn_id"] == answer.json()["turn_id"]
        events = await log_until(studio, session_id, "final", 2)
        assert outcomes(events) == ["turn_started one", "queued two", "final", "turn_started two", "final"]
        (queued,) = (event for event in events if event["type"] == "queued")
        begun = [event for event in events if event["type"] == "turn_started"][1]
        assert (queued["turn_id"], queued["data"]["message_id"]) == (None, answer.json()["message_id"])
        assert queued["data"] == {
            "turn_id": begun["turn_id"],
            "message_id": begun["data"]["message_id"],
            "input": "two",
            "attachments": begun["data"]["attachments"],
            "client_turn_id": "c2",
        }
        over = (await studio.turn(session_id, "two", **fields)).json()
        assert set(over) == {"turn_id", "cursor"}
        first = await studio.events_until(session_id, "turn_started", cursor=over["cursor"])
        assert [frame.data["turn_id"] for frame in first] == [answer.json()["turn_id"]]
        messages = (await studio.client.get(f"/api/sessions/{session_id}/messages")).json()["messages"]
        assert [message["content"] for message in messages if message["role"] == "user"] == ["one", "two"]
        assert messages[-2]["attachments"] == begun["data"]["attachments"]
    sent = [message for message in model.requests[-1].messages if isinstance(message, UserMessage)]
    assert [file.data for file in sent[-1].attachments] == [PNG.data]


async def test_a_steered_message_is_part_of_the_turn_that_runs(make_studio: StudioMaker) -> None:
    async with make_studio(ScriptedModel([call("note", {"text": "x"}), "as you say"])) as studio:
        session_id = await studio.session(name="Named")
        asked = await start_turn_until_question(studio, session_id)
        fields = {"when_busy": "steer", "client_turn_id": "c2"}
        answer = await studio.turn(session_id, "rather so", **fields)
        assert (answer.status_code, set(answer.json())) == (202, {"turn_id", "message_id"})
        await allow(studio, asked)
        events = await log_until(studio, session_id, "final", 1)
        types = [event["type"] for event in events if event["type"] not in ("state", "usage", "tool_call_delta")]
        assert types[types.index("tool_result") :] == ["tool_result", "steered", "round_start", "token", "final"]
        (steered,) = (event for event in events if event["type"] == "steered")
        assert steered["turn_id"] == answer.json()["turn_id"] == events[0]["turn_id"]
        assert steered["data"] == {"message_id": answer.json()["message_id"], "text": "rather so"}
        assert (await studio.turn(session_id, "rather so", **fields)).json() == answer.json()
        assert (await studio.turn(session_id, "rather so", client_turn_id="c2")).json() == answer.json()
        messages = (await studio.client.get(f"/api/sessions/{session_id}/messages")).json()["messages"]
        assert [message["content"] for message in messages] == ["one", "", "noted x", "rather so", "as you say"]


async def test_an_interrupting_message_starts_its_turn_right_after_the_stopped_one(
    make_studio: StudioMaker,
) -> None:
    async with make_studio(ScriptedModel([[say("so"), hang()], "instead"])) as studio:
        session_id = await studio.session(name="Named")
        await studio.turn(session_id, "one")
        await studio.events_until(session_id, "token")  # else the second turn might get the reply of the first
        answer = await studio.turn(session_id, "two", when_busy="interrupt")
        assert (answer.status_code, set(answer.json())) == (202, {"turn_id", "cursor"})
        behind = await studio.events_until(session_id, "final", cursor=answer.json()["cursor"])
        assert behind[0].type == "turn_started"
        assert {frame.data["turn_id"] for frame in behind if frame.id} == {answer.json()["turn_id"]}
        events = await log_until(studio, session_id, "final", 1)
        assert outcomes(events) == ["turn_started one", "queued two", "error", "turn_started two", "final"]


@pytest.mark.cases(quick=0)
async def test_queued_messages_have_at_most_64_mib_of_texts_and_files(make_studio: StudioMaker) -> None:
    async with make_studio(ScriptedModel([[say("a"), hang()]])) as studio:
        session_id = await studio.session()
        await studio.turn(session_id)
        large = "x" * 4_000_000
        for _ in range(16):
            assert (await studio.turn(session_id, large, when_busy="queue")).status_code == 202
        refused = await studio.turn(session_id, large, when_busy="queue")
        assert (refused.status_code, refused.json()["code"]) == (409, "session_busy")
        assert "64 MiB of texts and files" in refused.json()["detail"]
        assert (await studio.turn(session_id, "small", when_busy="queue")).status_code == 202


async def test_a_stop_hands_back_the_queued_message_and_ends_its_stream(make_studio: StudioMaker) -> None:
    async with make_studio(ScriptedModel([[say("so"), hang()]])) as studio:
        session_id = await studio.session(name="Named")
        await studio.turn(session_id, "one")
        path, headers = f"/api/sessions/{session_id}/turns", {"Accept": "text/event-stream"}
        waiting = {"input": "two", "when_busy": "queue", "client_turn_id": "c2"}
        async with studio.client.stream("POST", path, json=waiting, headers=headers) as answer:
            assert (await studio.client.post(f"/api/sessions/{session_id}/stop")).status_code == 202
            frames = [frame async for frame in frames_of(answer)]
        assert frames[-1].type == "handed_back"
        again = await studio.turn(session_id, "two", client_turn_id="c2")
        assert (again.status_code, again.json()["state"]) == (202, "handed_back")
        assert again.json()["turn_id"] == frames[-1].data["data"]["turn_id"]
        async with studio.client.stream("POST", path, json=waiting, headers=headers) as answer:
            assert [frame.type async for frame in frames_of(answer)] == ["handed_back"]
        messages = (await studio.client.get(f"/api/sessions/{session_id}/messages")).json()["messages"]
        assert [message["content"] for message in messages] == ["one", "so"]


async def test_the_stream_of_a_queued_message_has_the_events_of_its_turn_only(make_studio: StudioMaker) -> None:
    model = ScriptedModel([call("note", {"text": "x"}), "one done", "two done", "three done"])
    async with make_studio(model) as studio:
        session_id = await studio.session(name="Named")
        asked = await start_turn_until_question(studio, session_id)
        path, headers = f"/api/sessions/{session_id}/turns", {"Accept": "text/event-stream"}
        waiting = {"input": "two", "when_busy": "queue"}
        async with studio.client.stream("POST", path, json=waiting, headers=headers) as answer:
            assert (await studio.turn(session_id, "three", when_busy="queue")).status_code == 202
            await studio.client.patch(f"/api/sessions/{session_id}", json={"name": "Renamed"})
            await allow(studio, asked)
            frames = [frame async for frame in frames_of(answer) if frame.id is not None]
        events = await log_until(studio, session_id, "final", 3)
        (queued, _) = (event for event in events if event["type"] == "queued")
        (renamed,) = (event for event in events if event["type"] == "session_changed")
        turn = [event for event in events if event["turn_id"] == queued["data"]["turn_id"]]
        assert [frame.data for frame in frames] == [renamed, *turn]
        assert turn[0]["data"]["input"] == "two"


@pytest.mark.promise("D1")
@pytest.mark.parametrize("when_busy", ["queue", "steer", "interrupt"])
@pytest.mark.cases(quick=1)
async def test_64_simultaneous_posts_are_all_accepted_and_run_one_turn_at_a_time(
    make_studio: StudioMaker, count: Count, when_busy: str
) -> None:
    rounds = count(1, 3, 200)
    async with make_studio(ScriptedModel(["yes"] * 64 * 2 * rounds)) as studio:
        for _ in range(rounds):
            session_id = await studio.session(name="Named")
            texts = [str(number) for number in range(64)]
            posts = (post_with_retries(studio, session_id, text, when_busy) for text in texts)
            assert set(await asyncio.gather(*posts)) == {202}
            async with studio.events(session_id) as frames:
                events = await events_until_idle(frames, 64)
            check_grammar(events)
            handled = [
                event["data"].get("input") or event["data"]["text"]
                for event in events
                if event["type"] in OUTCOME_TYPES
            ]
            assert sorted(handled) == sorted(texts)
            running: set[str] = set()
            for event in events:
                if event["type"] == "turn_started":
                    assert not running
                    running.add(event["turn_id"])
                elif event["type"] in ("final", "error"):
                    running.remove(event["turn_id"])


async def post_with_retries(studio: RunningStudio, session_id: str, text: str, when_busy: str) -> int:
    """Post until there is a response, which the `client_turn_id` makes safe, and return its status."""
    body = {"input": text, "when_busy": when_busy, "client_turn_id": text}
    while True:
        with suppress(httpx.TransportError):
            return (await studio.client.post(f"/api/sessions/{session_id}/turns", json=body)).status_code


OUTCOME_TYPES = ("turn_started", "steered", "handed_back")


async def events_until_idle(frames: Any, messages: int) -> list[dict[str, Any]]:
    """Return the envelopes up to the end of the last turn, once all `messages` have run or been handed back."""
    events: list[dict[str, Any]] = []
    async with asyncio.timeout(PATIENCE):
        async for frame in frames:
            if frame.id is None:
                continue
            events.append(frame.data)
            count = [event["type"] for event in events]
            if sum(count.count(type_) for type_ in OUTCOME_TYPES) == messages and (
                count.count("turn_started") == count.count("final") + count.count("error")
            ):
                return events
    raise AssertionError("the stream ended early")


# --- processes --------------------------------------------------------------------------------------------------------


async def post(client: httpx.AsyncClient, session_id: str, text: str, **fields: Any) -> dict[str, Any]:
    answer = await client.post(f"/api/sessions/{session_id}/turns", json={"input": text, **fields})
    assert answer.status_code == 202, answer.text
    return answer.json()


async def events_of(client: httpx.AsyncClient, session_id: str, type_: str, times: int = 1) -> list[dict[str, Any]]:
    """Return the session's envelopes up to the event number `times` of that type."""
    found: list[Frame] = []
    async with client.stream("GET", f"/api/sessions/{session_id}/events") as answer:
        frames = frames_of(answer)
        for _ in range(times):
            found += await until(frames, type_)
    return [frame.data for frame in found if frame.id is not None]


async def create_session(served: ServedStudio, client: httpx.AsyncClient, workspace: Path) -> str:
    workspace.mkdir(exist_ok=True)
    made = await client.post("/api/sessions", json={"name": "Named", "workspace": str(workspace)})
    return made.json()["id"]


@pytest.mark.ci_lane
@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL])
@pytest.mark.cases(quick=1)
async def test_messages_queued_behind_a_question_stay_queued_in_the_next_process(
    tmp_path: Path, end: signal.Signals
) -> None:
    home = tmp_path / "home"
    async with agx_serve(home) as served, served.client() as client:
        session_id = await create_session(served, client, tmp_path / "workspace")
        running = await post(client, session_id, "Write a.txt with the text x")
        await events_of(client, session_id, "confirm_required")
        queued = {"when_busy": "queue", "client_turn_id": "c2", "attachments": [PICTURE]}
        steered = {"when_busy": "steer", "client_turn_id": "c3"}
        posted = [await post(client, session_id, "say two", **queued), await post(client, session_id, "so", **steered)]
        served.process.send_signal(end)
        await outcome(served.process)
    async with agx_serve(home) as served, served.client() as client:
        again = [await post(client, session_id, "say two", **queued), await post(client, session_id, "so", **steered)]
        assert again == [posted[0] | {"cursor": again[0]["cursor"]}, posted[1]]
        (question,) = (await client.get("/api/confirms")).json()["confirms"]
        yes = {"approved": True, "digest": question["digest"]}
        assert (await client.post(f"/api/confirms/{question['id']}", json=yes)).status_code == 200
        events = await events_of(client, session_id, "final", 2)
        check_grammar(events)
        assert outcomes(events) == [
            "turn_started Write a.txt with the text x",
            "queued say two",
            "queued so",
            "steered so",
            "final",
            "turn_started say two",
            "final",
        ]
        (taken,) = (event for event in events if event["type"] == "steered")
        assert (taken["turn_id"], taken["data"]["message_id"]) == (running["turn_id"], posted[1]["message_id"])
        begun = [event for event in events if event["type"] == "turn_started"][1]
        assert (begun["turn_id"], begun["data"]["attachments"][0]["name"]) == (posted[0]["turn_id"], PNG.name)
    assert (tmp_path / "workspace" / "a.txt").read_text() == "x"


@pytest.mark.ci_lane
@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL])
@pytest.mark.cases(quick=1)
async def test_messages_queued_behind_a_turn_that_ends_with_its_process_are_handed_back(
    tmp_path: Path, end: signal.Signals
) -> None:
    home = tmp_path / "home"
    async with agx_serve(home) as served, served.client() as client:
        session_id = await create_session(served, client, tmp_path / "workspace")
        await post(client, session_id, "count to 9999")
        await events_of(client, session_id, "token")
        modes = {"two": "queue", "three": "steer"}
        posted = {
            text: await post(client, session_id, text, when_busy=mode, client_turn_id=text)
            for text, mode in modes.items()
        }
        served.process.send_signal(end)
        assert (await outcome(served.process))[2] == ""
    async with agx_serve(home) as served, served.client() as client:
        events = await events_of(client, session_id, "handed_back", 2)
        assert outcomes(events) == [
            "turn_started count to 9999",
            "queued two",
            "queued three",
            "error",
            "handed_back two",
            "handed_back three",
        ]
        error, two, three = events[-3:]
        assert error["data"]["code"] == {signal.SIGTERM: "stopped", signal.SIGKILL: "interrupted"}[end]
        assert (two["turn_id"], two["data"]["turn_id"]) == (None, posted["two"]["turn_id"])
        assert three["data"]["message_id"] == posted["three"]["message_id"]
        for text in modes:
            assert (await post(client, session_id, text, client_turn_id=text))["state"] == "handed_back"
        await post(client, session_id, "say more")
        assert outcomes(await events_of(client, session_id, "final"))[-2:] == ["turn_started say more", "final"]


class PostingClient:
    """A client that posts without a pause, in each mode in turn, until its server disconnects."""

    def __init__(self) -> None:
        self.accepted: set[str] = set()
        self.accepted_count = asyncio.Semaphore(0)

    async def post_until_disconnected(self, client: httpx.AsyncClient, session_id: str, name: str) -> None:
        for number in range(1000):
            text, mode = f"say {name}.{number}", ("queue", "steer", "interrupt")[number % 3]
            body = {"input": text, "when_busy": mode, "client_turn_id": text}
            try:
                answer = await client.post(f"/api/sessions/{session_id}/turns", json=body)
            except httpx.TransportError:
                return
            assert answer.status_code in (202, 409), answer.text
            if answer.status_code == 202:
                self.accepted.add(text)
                self.accepted_count.release()


async def test_no_accepted_message_is_lost_when_the_server_is_killed(tmp_path: Path, count: Count) -> None:
    home, talker, session_id = tmp_path / "home", PostingClient(), ""
    for cycle in range(count(2, 6, 6)):
        async with agx_serve(home) as served, served.client() as client:
            session_id = session_id or await create_session(served, client, tmp_path / "workspace")
            talking = [
                asyncio.create_task(talker.post_until_disconnected(client, session_id, f"{cycle}.{one}"))
                for one in range(4)
            ]
            for _ in range(5 + 7 * cycle):
                await talker.accepted_count.acquire()
            served.process.kill()
            await asyncio.gather(*talking)
    async with agx_serve(home) as served, served.client() as client:
        await post(client, session_id, "say end", when_busy="queue")
        events: list[dict[str, Any]] = []
        async with client.stream("GET", f"/api/sessions/{session_id}/events") as answer:
            async for frame in frames_of(answer):
                events += [frame.data] if frame.id is not None else []
                if frame.type == "final" and frame.data["data"]["text"] == "end":
                    break
    check_grammar(events)
    handled = [
        event["data"].get("input") or event["data"]["text"] for event in events if event["type"] in OUTCOME_TYPES
    ]
    assert len(handled) == len(set(handled))
    assert talker.accepted - set(handled) == set()

"""Messages that wait for the running turn: listed, edited, read now, removed, over HTTP."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

import pytest

from agenticx.llms import ScriptedModel
from agenticx.messages import UserMessage
from agenticx.testing import call, check_grammar, hang, say
from tests.support.server.running_studio import Frame, RunningStudio, StudioMaker, frames_of, note, until

pytestmark = pytest.mark.anyio


def user_texts(model: ScriptedModel) -> list[str]:
    """Return the texts of the user in the last request."""
    return [one.content for one in model.requests[-1].messages if isinstance(one, UserMessage)]


async def queued(studio: RunningStudio, session_id: str, text: str, **fields: Any) -> str:
    """Send a message to the busy session, and return its id."""
    await studio.turn(session_id, text, **{"when_busy": "queue", **fields})
    messages = (await studio.client.get(f"/api/sessions/{session_id}/queue")).json()["messages"]
    return next(one["message_id"] for one in messages if one["input"] == text)


def check_log(frames: list[Frame]) -> None:
    check_grammar([frame.data for frame in frames if frame.id is not None], complete=False)


async def test_a_waiting_message_is_edited_and_another_one_removed(make_studio: StudioMaker) -> None:
    model = ScriptedModel([[say("so"), hang()], "Read."])
    async with make_studio(model) as studio:
        session_id = await studio.session()
        path = f"/api/sessions/{session_id}"
        turn = (await studio.turn(session_id, "go")).json()
        await studio.events_until(session_id, "token")  # else the second turn might get the reply of the first
        file = {"name": "a.txt", "data": b64encode(b"attached" * 9_000).decode()}
        first = await queued(studio, session_id, "first", client_turn_id="c1", attachments=[file])
        second = await queued(studio, session_id, "second")
        edited = await studio.client.patch(f"{path}/queue/{first}", json={"input": "first, better"})
        listed = (await studio.client.get(f"{path}/queue")).json()["messages"]
        assert (edited.status_code, sorted(listed, key=lambda one: one["message_id"] == second)[0]) == (
            200,
            edited.json(),
        )
        assert {**edited.json(), "turn_id": "", "attachments": []} == {
            "message_id": first,
            "turn_id": "",
            "state": "queued",
            "input": "first, better",
            "client_turn_id": "c1",
            "attachments": [],
        }
        assert (await studio.client.delete(f"{path}/queue/{second}")).status_code == 204
        for method, url in (("PATCH", f"{path}/queue/{second}"), ("DELETE", f"{path}/queue/msg_x")):
            gone = await studio.client.request(method, url, json={"input": "x"} if method == "PATCH" else None)
            assert (gone.status_code, gone.json()["code"]) == (404, "message_not_queued")
        answer = await studio.client.patch(f"{path}/queue/{first}", json={"when_busy": "interrupt"})
        assert (answer.status_code, answer.json()["turn_id"] != turn["turn_id"]) == (200, True)
        async with studio.events(session_id) as frames:
            seen = await until(frames, "final")
        (removed,) = [frame.data["data"] for frame in seen if frame.type == "handed_back"]
        assert (removed["message_id"], removed["removed"]) == (second, True)
        check_log(seen)
        assert (await studio.client.get(f"{path}/queue")).json() == {"messages": []}
        assert user_texts(model)[-1].startswith("first, better")
        assert model.requests[-1].messages[-1].attachments[0].size == 72_000  # type: ignore[union-attr]
        late = await studio.client.patch(f"{path}/queue/{first}", json={"input": "too late"})
        assert (late.status_code, late.json()["code"]) == (404, "message_not_queued")


async def test_a_waiting_message_is_steered_into_the_running_turn_and_can_be_edited_until_it_is_read(
    make_studio: StudioMaker,
) -> None:
    model = ScriptedModel([call("note", {"text": "x"}), "Done."])
    async with make_studio(model, tools=[note]) as studio:
        session_id = await studio.session()
        path = f"/api/sessions/{session_id}"
        turn = (await studio.turn(session_id, "go")).json()
        asked = (await studio.events_until(session_id, "confirm_required"))[-1].data["data"]
        now = await queued(studio, session_id, "use tabs")
        gone = await queued(studio, session_id, "forget it", when_busy="steer")
        steered = (await studio.client.patch(f"{path}/queue/{now}", json={"when_busy": "steer"})).json()
        assert (steered["state"], steered["turn_id"]) == ("steered", turn["turn_id"])
        edited = (await studio.client.patch(f"{path}/queue/{now}", json={"input": "use spaces"})).json()
        assert (edited["state"], edited["input"]) == ("steered", "use spaces")
        assert (await studio.client.delete(f"{path}/queue/{gone}")).status_code == 204
        empty = await studio.client.patch(f"{path}/queue/{now}", json={})
        assert (empty.status_code, empty.json()["code"]) == (422, "invalid_body")
        await studio.client.post(f"/api/confirms/{asked['id']}", json={"approved": True, "digest": asked["digest"]})
        frames = await studio.events_until(session_id, "final")
        assert [frame.data["data"]["text"] for frame in frames if frame.type == "steered"] == ["use spaces"]
        assert user_texts(model) == ["go", "use spaces"]
        check_log(frames)


async def test_streams_of_a_turn_end_with_it_or_once_its_message_is_read_in_another_turn(
    make_studio: StudioMaker,
) -> None:
    model = ScriptedModel([call("note", {"text": "x"}), "Done."])
    async with make_studio(model, tools=[note]) as studio:
        session_id = await studio.session()
        path, headers = f"/api/sessions/{session_id}", {"Accept": "text/event-stream"}
        streams = [
            studio.client.stream("POST", f"{path}/turns", json={"input": text, "when_busy": "queue"}, headers=headers)
            for text in ("go", "use tabs")
        ]
        async with streams[0] as running:
            asked = (await studio.events_until(session_id, "confirm_required"))[-1].data["data"]
            gone = await queued(studio, session_id, "forget it", when_busy="steer")
            async with streams[1] as waiting:
                (_, last) = (await studio.client.get(f"{path}/queue")).json()["messages"]
                await studio.client.patch(f"{path}/queue/{last['message_id']}", json={"when_busy": "steer"})
                frames = [frame async for frame in frames_of(waiting) if frame.id is not None]
            assert [frame.type for frame in frames] == ["queued"]
            assert frames[-1].data["data"]["former_turn_id"] == last["turn_id"]
            await studio.client.delete(f"{path}/queue/{gone}")
            yes = {"approved": True, "digest": asked["digest"]}
            await studio.client.post(f"/api/confirms/{asked['id']}", json=yes)
            frames = [frame async for frame in frames_of(running) if frame.id is not None]
            assert frames[-1].type == "final"
        assert user_texts(model) == ["go", "use tabs"]

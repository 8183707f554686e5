"""Two studios on one unreliable store: a client can send each request to either."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from agenticx.llms.scripted import ScriptedModel, call, hang, say
from agenticx.sessions import MemoryStore
from agenticx.sessions.store.blobs import MemoryBlobs
from tests.support.lanes import Count
from tests.support.server.conversations import log, messages
from tests.support.server.running_studio import RunningStudio, running_studio, until
from tests.support.server.stream_checks import run_turn
from tests.support.two_hubs import UnreliableStore

pytestmark = pytest.mark.anyio


class TwoStudios:
    """The studios `one` and `two`, and the store of each."""

    def __init__(self, folder: Path, rng: random.Random, *script: Any) -> None:
        self.store_of_one = UnreliableStore(MemoryStore(blobs=MemoryBlobs()), rng)
        self.store_of_two = self.store_of_one.other_worker()
        self._folder = folder
        self._rng = rng
        self._model = ScriptedModel(script, name="scripted")

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[TwoStudios]:
        stores = self.store_of_one, self.store_of_two
        first, second = (running_studio(self._folder, self._model, store=store) for store in stores)
        async with first as self.one, second as self.two:
            yield self

    @property
    def either(self) -> RunningStudio:
        """One of them, chosen anew each time."""
        return self._rng.choice((self.one, self.two))


async def answer_question(studios: TwoStudios, session_id: str) -> None:
    """Approve the question of the session."""
    (question,) = (await studios.either.client.get(f"/api/confirms?session_id={session_id}")).json()["confirms"]
    body = {"approved": True, "digest": question["digest"]}
    for _ in range(2):  # the second time as a client does that got no answer
        answer = await studios.either.client.post(f"/api/confirms/{question['id']}", json=body)
        assert (answer.status_code, answer.json()["approved"]) == (200, True)


async def session_ids(studio: RunningStudio) -> list[str]:
    return [session["id"] for session in (await studio.client.get("/api/sessions")).json()["sessions"]]


async def first_frame_soon(studio: RunningStudio, path: str, *, cursor: str | None) -> str | None:
    """Return the type of the first frame, None if there is none soon."""
    async with studio.frames(path, cursor=cursor) as frames:
        first = asyncio.ensure_future(anext(frames))
        await asyncio.wait([first], timeout=0.05)
        if first.done():
            return first.result().type
        first.cancel()
        return None


async def test_a_turn_posted_at_one_studio_is_streamed_and_confirmed_at_the_other(
    tmp_path: Path, rng: random.Random
) -> None:
    async with TwoStudios(tmp_path, rng, call("note", {"text": "x"}), "done").running() as studios:
        session_id = await studios.one.session()
        async with studios.two.events(session_id) as frames:
            assert (await studios.one.turn(session_id)).status_code == 202
            asked = await until(frames, "confirm_required")
            question = asked[-1].data["data"]
            body = {"approved": True, "digest": question["digest"]}
            answer = await studios.two.client.post(f"/api/confirms/{question['id']}", json=body)
            assert answer.status_code == 200
            live = asked + await until(frames, "final")
        replayed = await studios.one.events_until(session_id, "final")
        assert [frame.raw for frame in live] == [frame.raw for frame in replayed]
        assert [frame.data["data"]["result"] for frame in live if frame.type == "tool_result"] == ["noted x"]


async def test_a_cursor_of_one_studio_resumes_exactly_at_the_other(tmp_path: Path, rng: random.Random) -> None:
    async with TwoStudios(tmp_path, rng, say("a b c d e", pieces=9)).running() as studios:
        session_id = await studios.one.session()
        live = await run_turn(studios.one, session_id)
        for place, frame in enumerate(live[:-1], 1):
            rest = await studios.two.events_until(session_id, "final", cursor=frame.id)
            assert [frame.raw for frame in rest] == [frame.raw for frame in live[place:]]


async def test_a_cursor_ahead_of_a_studios_copy_of_the_log_waits_for_the_copy_without_a_reset(
    tmp_path: Path, rng: random.Random
) -> None:
    async with TwoStudios(tmp_path, rng, *["hello"] * 2).running() as studios:
        for of_session in (True, False):
            session_id = await studios.one.session()
            assert await messages(studios.two, session_id) == []
            path = f"/api/sessions/{session_id}/events" if of_session else "/api/events"
            async with studios.one.frames(path) as frames:
                with studios.store_of_two.held_log():
                    await studios.one.turn(session_id)
                    live = await until(frames, "final")
                    number, tag = (live[-1].id or "").split("-")
                    assert await first_frame_soon(studios.two, path, cursor=f"{int(number, 16) + 1:x}-{tag}") == "reset"
                    assert await first_frame_soon(studios.two, path, cursor=live[-3].id) is None
            async with studios.two.frames(path, cursor=live[-3].id) as frames:
                rest = await until(frames, "final")
                assert [frame.raw for frame in rest] == [frame.raw for frame in live[-2:]]


async def test_an_export_waits_for_a_studios_copy_of_the_log(tmp_path: Path, rng: random.Random) -> None:
    async with TwoStudios(tmp_path, rng, *["hello"] * 2).running() as studios:
        session_id = await studios.one.session()
        await run_turn(studios.one, session_id)
        assert await log(studios.two, session_id) == await log(studios.one, session_id)
        with studios.store_of_two.held_log():
            await run_turn(studios.one, session_id)
            exporting = asyncio.create_task(log(studios.two, session_id))
            await asyncio.wait([exporting], timeout=0.05)
        assert await exporting == await log(studios.one, session_id)


async def test_requests_to_either_studio_are_those_of_one_conversation(
    tmp_path: Path, rng: random.Random, count: Count
) -> None:
    rounds = count(3, 10, 100)
    script = [[call("note", {"text": "x"})], "done", [say("a"), hang()]] * rounds
    async with TwoStudios(tmp_path, rng, *script).running() as studios:
        for number in range(rounds):
            creator = studios.either
            session_id = await creator.session()
            assert (await session_ids(creator))[0] == session_id
            shown = await studios.either.client.get(f"/api/sessions/{session_id}")
            assert (shown.status_code, shown.json()["name"]) == (200, "Named")

            posted = [await studios.either.turn(session_id, "hi", client_turn_id="c") for _ in range(3)]
            assert {answer.status_code for answer in posted} == {202}
            assert len({answer.json()["turn_id"] for answer in posted}) == 1
            await studios.either.events_until(session_id, "confirm_required")
            assert (await studios.either.turn(session_id, "more")).json()["code"] == "session_busy"
            await answer_question(studios, session_id)
            await studios.either.events_until(session_id, "final")

            studios.store_of_one.memory.expire(session_id, only_idle=True)
            cursor = (await studios.either.turn(session_id, "more")).json()["cursor"]
            await studios.either.events_until(session_id, "token", cursor=cursor)
            assert (await studios.either.client.post(f"/api/sessions/{session_id}/stop", json={})).status_code == 202
            await studios.either.events_until(session_id, "error", cursor=cursor)

            renamed = await studios.either.client.patch(f"/api/sessions/{session_id}", json={"name": str(number)})
            assert renamed.status_code == 200
            assert (await studios.either.client.get(f"/api/sessions/{session_id}")).json()["name"] == str(number)
            assert await messages(studios.one, session_id) == await messages(studios.two, session_id)
            assert await log(studios.one, session_id) == await log(studios.two, session_id)

            deleted = await studios.either.client.delete(f"/api/sessions/{session_id}")
            assert deleted.status_code == 204
            for studio in (studios.one, studios.two):
                assert (await studio.client.get(f"/api/sessions/{session_id}")).status_code == 404

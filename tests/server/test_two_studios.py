"""Two studios on one unreliable store, or several: a client can send each request to either."""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from agenticx.llms import ScriptedModel
from agenticx.sessions import ShardedStore
from agenticx.testing import call, hang, say
from tests.support.lanes import Count
from tests.support.postgres.stores import NewUnreliableStore
from tests.support.server.conversations import log, messages
from tests.support.server.running_studio import Frame, RunningStudio, running_studio, until
from tests.support.server.stream_checks import run_turn
from tests.support.timeouts import PATIENCE, PatientClock
from tests.support.two_hubs import UnreliableWorker

pytestmark = pytest.mark.anyio


class SeveralDatabases(ShardedStore):
    """A store of a worker over three databases, each of which is unreliable."""

    def __init__(self, databases: Sequence[UnreliableWorker]) -> None:
        super().__init__([*zip("abc", databases, strict=True)], clock=PatientClock())
        self.databases = databases

    def other_worker(self) -> SeveralDatabases:
        return SeveralDatabases([database.other_worker() for database in self.databases])


class TwoStudios:
    """The studios `one` and `two`, and the store of each; with `is_sharded` it is one over three databases."""

    store_of_one: Any
    store_of_two: Any

    def __init__(
        self, folder: Path, rng: random.Random, new_store: NewUnreliableStore, *script: Any, is_sharded: bool = False
    ) -> None:
        self._folder = folder
        self._rng = rng
        self._new_store = new_store
        self._is_sharded = is_sharded
        self._model = ScriptedModel(script, name="scripted")

    def database(self, session_id: str) -> UnreliableWorker:
        """Return the database that has the session."""
        return self.store_of_one.shard(session_id) if self._is_sharded else self.store_of_one

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[TwoStudios]:
        if self._is_sharded:
            self.store_of_one = SeveralDatabases([await self._new_store() for _ in range(3)])
        else:
            self.store_of_one = await self._new_store()
        self.store_of_two = self.store_of_one.other_worker()
        stores = self.store_of_one, self.store_of_two
        first, second = (running_studio(self._folder, self._model, store=store) for store in stores)
        async with first as self.one, second as self.two:
            yield self

    @property
    def either(self) -> RunningStudio:
        """One of them, chosen anew each time."""
        return self._rng.choice((self.one, self.two))


@pytest.fixture(params=["memory", pytest.param("postgres", marks=pytest.mark.ci_lane)])
async def new_store(request: pytest.FixtureRequest, rng: random.Random) -> AsyncIterator[NewUnreliableStore]:
    cluster = request.getfixturevalue("postgres") if request.param == "postgres" else None
    new_store = NewUnreliableStore(rng, cluster)
    yield new_store
    await new_store.aclose()


SHARDED = pytest.mark.parametrize("is_sharded", [False, True], ids=["one store", "several databases"])


async def answer_question(studios: TwoStudios, session_id: str) -> None:
    """Approve the question of the session."""
    (question,) = (await studios.either.client.get(f"/api/confirms?session_id={session_id}")).json()["confirms"]
    body = {"approved": True, "digest": question["digest"]}
    for _ in range(2):  # the second time as a client does that got no answer
        answer = await studios.either.client.post(f"/api/confirms/{question['id']}", json=body)
        assert (answer.status_code, answer.json()["approved"]) == (200, True)


async def session_ids(studio: RunningStudio) -> list[str]:
    return [session["id"] for session in (await studio.client.get("/api/sessions")).json()["sessions"]]


async def has_frame_soon(studio: RunningStudio, path: str, *, cursor: str | None) -> bool:
    """Return True if a frame comes soon."""
    async with studio.frames(path, cursor=cursor) as frames:
        first = asyncio.ensure_future(anext(frames))
        await asyncio.wait([first], timeout=0.05)
        is_done = first.done()
        first.cancel()
        return is_done


@SHARDED
async def test_a_turn_posted_at_one_studio_is_streamed_and_confirmed_at_the_other(
    is_sharded: bool, new_store: NewUnreliableStore, tmp_path: Path, rng: random.Random
) -> None:
    async with TwoStudios(
        tmp_path, rng, new_store, call("note", {"text": "x"}), "done", is_sharded=is_sharded
    ).running() as studios:
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


@SHARDED
async def test_a_cursor_of_one_studio_resumes_exactly_at_the_other(
    is_sharded: bool, new_store: NewUnreliableStore, tmp_path: Path, rng: random.Random
) -> None:
    async with TwoStudios(
        tmp_path, rng, new_store, say("a b c d e", pieces=9), is_sharded=is_sharded
    ).running() as studios:
        session_id = await studios.one.session()
        live = await run_turn(studios.one, session_id)
        for place, frame in enumerate(live[:-1], 1):
            rest = await studios.two.events_until(session_id, "final", cursor=frame.id)
            assert [frame.raw for frame in rest] == [frame.raw for frame in live[place:]]


async def test_a_cursor_ahead_of_a_studios_copy_of_the_log_waits_for_the_copy_without_a_reset(
    tmp_path: Path, rng: random.Random
) -> None:
    async with TwoStudios(tmp_path, rng, NewUnreliableStore(rng), *["hello"] * 2).running() as studios:
        for of_session in (True, False):
            session_id = await studios.one.session()
            assert await messages(studios.two, session_id) == []
            path = f"/api/sessions/{session_id}/events" if of_session else "/api/events"
            async with studios.one.frames(path) as frames:
                with studios.store_of_two.held_log():
                    await studios.one.turn(session_id)
                    live = await until(frames, "final")
                    number, tag = (live[-1].id or "").split("-")
                    async with studios.two.frames(path, cursor=f"{int(number, 16) + 1:x}-{tag}") as frames_of_two:
                        assert (await anext(frames_of_two)).type == "reset"
                    assert not await has_frame_soon(studios.two, path, cursor=live[-3].id)
            async with studios.two.frames(path, cursor=live[-3].id) as frames:
                rest = await until(frames, "final")
                assert [frame.raw for frame in rest] == [frame.raw for frame in live[-2:]]


async def test_an_export_waits_for_a_studios_copy_of_the_log(tmp_path: Path, rng: random.Random) -> None:
    async with TwoStudios(tmp_path, rng, NewUnreliableStore(rng), *["hello"] * 2).running() as studios:
        session_id = await studios.one.session()
        await run_turn(studios.one, session_id)
        assert await log(studios.two, session_id) == await log(studios.one, session_id)
        with studios.store_of_two.held_log():
            await run_turn(studios.one, session_id)
            exporting = asyncio.create_task(log(studios.two, session_id))
            await asyncio.wait([exporting], timeout=0.05)
        assert await exporting == await log(studios.one, session_id)


@SHARDED
async def test_requests_to_either_studio_are_those_of_one_conversation(
    is_sharded: bool, new_store: NewUnreliableStore, tmp_path: Path, rng: random.Random, count: Count
) -> None:
    rounds = count(3, 10, 100)
    script = [[call("note", {"text": "x"})], "done", [say("a"), hang()]] * rounds
    async with TwoStudios(tmp_path, rng, new_store, *script, is_sharded=is_sharded).running() as studios:
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

            await studios.database(session_id).expire(session_id, only_idle=True)
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


async def test_a_stream_of_several_databases_has_each_event_once_and_resumes_at_either_studio(
    new_store: NewUnreliableStore, tmp_path: Path, rng: random.Random
) -> None:
    script = [say(f"a b c {number}", pieces=7) for number in range(9)]
    async with (
        TwoStudios(tmp_path, rng, new_store, *script, is_sharded=True).running() as studios,
        asyncio.timeout(PATIENCE),
    ):
        async with studios.one.frames("/api/events") as frames:
            ids = [await studios.either.session() for _ in script]
            assert len({studios.store_of_one.shard(id_) for id_ in ids}) > 1
            await asyncio.gather(*(studios.either.turn(id_) for id_ in ids))
            live = [frame for _ in ids for frame in await until(frames, "final")]
        logs = {id_: [frame.data for frame in await studios.either.events_until(id_, "final")] for id_ in ids}
        assert by_session(live) == logs
        for place in rng.sample(range(len(live) - 1), 8):
            async with studios.either.frames("/api/events", cursor=live[place].id) as frames:
                rest = [await anext(frames) for _ in live[place + 1 :]]
            assert by_session([*live[: place + 1], *rest]) == logs

        listed = (await studios.either.client.get("/api/sessions?limit=5")).json()["sessions"]
        more = (await studios.either.client.get(f"/api/sessions?limit=5&before={listed[-1]['id']}")).json()["sessions"]
        assert [session["id"] for session in (*listed, *more)] == ids[::-1]

        number, tag = (live[-1].id or "").split("-")
        bad = [f"1{'0' * 48}-{tag}", f"{number}-{'0' * 16}"]
        if new_store.is_in_memory:  # in a database a position is the number of a transaction, and others follow
            bad.append(f"{int(number, 16) + 1:x}-{tag}")
        for cursor in bad:
            async with studios.either.frames("/api/events", cursor=cursor) as frames:
                assert (await anext(frames)).type == "reset"


def by_session(frames: Sequence[Frame]) -> dict[str, list[Any]]:
    """Return what frames contain by session, in their order."""
    found = defaultdict[str, list[Any]](list)
    for frame in frames:
        found[frame.data["session_id"]].append(frame.data)
    return dict(found)

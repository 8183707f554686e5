"""Studio workers over one PostgreSQL that end while sessions wait for users and run tools."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncGenerator, Collection, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

pytest.importorskip("asyncpg", reason="needs asyncpg, of the extra postgres")

from tests.support.lanes import Count
from tests.support.postgres.cluster import Cluster
from tests.support.postgres.takeovers import Takeovers
from tests.support.postgres.workers import StudioWorker, StudioWorkers, studio_workers
from tests.support.server.agx_processes import agx, outcome
from tests.support.server.stream_client import StreamClient
from tests.support.timeouts import explained_timeout, wait_until

pytestmark = [pytest.mark.anyio, pytest.mark.ci_lane]

LONG = "Count to 5000"
COUNTED = " ".join(map(str, range(1, 31))) + "\n"


@asynccontextmanager
async def clients_of(workers: Collection[StudioWorker]) -> AsyncGenerator[list[httpx.AsyncClient]]:
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(worker.client()) for worker in workers]


async def new_session(client: httpx.AsyncClient) -> str:
    answer = await client.post("/api/sessions", json={"name": "Named"})
    assert answer.status_code == 201, answer.text
    return answer.json()["id"]


async def post_turn(client: httpx.AsyncClient, session_id: str, text: str) -> str:
    answer = await client.post(f"/api/sessions/{session_id}/turns", json={"input": text})
    assert answer.status_code == 202, answer.text
    return answer.json()["turn_id"]


class NoQuestion(AssertionError):
    """The turn of a session has ended without a question."""


async def open_question(client: httpx.AsyncClient, session_id: str) -> dict[str, Any]:
    """Return the question of the session, once its turn asks it; raise `NoQuestion` if the turn ends before."""
    async with explained_timeout(lambda: describe_session(client, session_id)):
        while True:
            questions = (await client.get(f"/api/confirms?session_id={session_id}")).json()["confirms"]
            if questions:
                return questions[0]
            if (await client.get(f"/api/sessions/{session_id}")).json()["state"] == "idle":
                raise NoQuestion(await describe_session(client, session_id))
            await asyncio.sleep(0.02)


async def describe_session(client: httpx.AsyncClient, session_id: str) -> str:
    """Return a session with the types of its last events, as a worker has them."""
    session = (await client.get(f"/api/sessions/{session_id}")).json()
    token = client.headers["Authorization"].removeprefix("Bearer ")
    reader = StreamClient(client.base_url.port or 0, f"/api/sessions/{session_id}/events", token)
    with suppress(TimeoutError):
        await reader.read(seconds=1.0)
    return f"{session}, {reader.outline()}"


async def answer(client: httpx.AsyncClient, question: dict[str, Any], approved: bool) -> httpx.Response:
    body = {"approved": approved, "digest": question["digest"]}
    return await client.post(f"/api/confirms/{question['id']}", json=body)


def reader_of(worker: StudioWorker, session_id: str) -> StreamClient:
    return StreamClient(worker.port, f"/api/sessions/{session_id}/events", worker.token)


async def ended_log(worker: StudioWorker, session_id: str, turn_id: str) -> list[dict[str, Any]]:
    """Return the session's events, as a worker streams them, once the turn has ended."""
    reader = reader_of(worker, session_id)
    await reader.read(lambda log: turn_id in log.ended_turns)
    events = reader.envelopes
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    return events


def runs(workers: StudioWorkers) -> Counter[str]:
    """Return how often each command of `asking` has run."""
    return Counter({path.stem: path.read_text().count("run") for path in workers.workspace.glob("*.txt")})


def asking(name: str) -> str:
    """Return a prompt for a call that asks first, and adds a line to a file in the workspace."""
    return f"run echo run >> {name}.txt"


async def test_a_question_of_one_worker_is_answered_at_others_and_one_answer_counts(
    postgres: Cluster, tmp_path: Path, rng: random.Random, count: Count
) -> None:
    async with (
        studio_workers(tmp_path, await postgres.fresh_database(), 3) as workers,
        clients_of(workers.all) as clients,
    ):
        expected = Counter[str]()
        for number in range(count(2, 20, 200)):
            asks, one, other = rng.sample(clients, 3)
            session_id = await new_session(asks)
            turn_id = await post_turn(asks, session_id, asking(f"call{number}"))
            question = await open_question(one, session_id)
            wanted = rng.choice([True, False]), rng.choice([True, False])
            answers = await asyncio.gather(answer(one, question, wanted[0]), answer(other, question, wanted[1]))
            accepted = [each.json() for each in answers if each.status_code == 200]
            refused = [(each.status_code, each.json()["code"]) for each in answers if each.status_code != 200]
            assert refused == ([] if wanted[0] == wanted[1] else [(410, "confirm_closed")])
            assert all(each == accepted[0] for each in accepted)
            log = await ended_log(rng.choice(workers.all), session_id, turn_id)
            results = [event["data"]["outcome"] for event in log if event["type"] == "tool_result"]
            assert results == ["ok" if accepted[0]["approved"] else "denied"]
            assert [event["type"] for event in log].count("confirm_response") == 1
            expected[f"call{number}"] += accepted[0]["approved"]
            for client in clients:
                assert (await answer(client, question, not accepted[0]["approved"])).status_code == 410
                assert (await answer(client, question, accepted[0]["approved"])).json() == accepted[0]
        assert runs(workers) == +expected


async def test_workers_that_accept_every_answer_are_detected(postgres: Cluster, tmp_path: Path) -> None:
    url = await postgres.fresh_database()
    async with (
        studio_workers(tmp_path, url, 3, mutant="accepts every answer") as workers,
        clients_of(workers.all) as (asks, one, other),
    ):
        session_id = await new_session(asks)
        await post_turn(asks, session_id, asking("call"))
        question = await open_question(one, session_id)
        answers = await asyncio.gather(answer(one, question, True), answer(other, question, False))
        assert [each.json()["approved"] for each in answers] == [True, False]


@dataclass(eq=False)
class SessionsOfWorker:
    """Sessions that a worker owns: some wait for an answer, and in some the model counts."""

    worker: StudioWorker
    asking: dict[str, str]
    counting: dict[str, str]
    """The turn of each session."""

    @classmethod
    async def begin(cls, worker: StudioWorker, name: str, *, each: int = 2) -> SessionsOfWorker:
        """Begin turns in new sessions of a worker, and return once their questions are asked.

        On a busy machine a worker can be kept from renewing its lease in time. Others then take its sessions, and
        interrupt the turns that have not asked yet. It logs that, and other sessions are begun.
        """
        while True:
            lost = worker.lost_leases
            try:
                return await cls._begin(worker, name, each)
            except NoQuestion as exc:
                await wait_until(lambda lost=lost: worker.lost_leases > lost, state=lambda exc=exc: exc)

    @classmethod
    async def _begin(cls, worker: StudioWorker, name: str, each: int) -> SessionsOfWorker:
        async with worker.client() as client:
            ids = [await new_session(client) for _ in range(2 * each)]
            asking_turns = {
                id_: await post_turn(client, id_, asking(f"{name}-{number}")) for number, id_ in enumerate(ids[:each])
            }
            for id_ in asking_turns:
                await open_question(client, id_)
            return cls(worker, asking_turns, {id_: await post_turn(client, id_, LONG) for id_ in ids[each:]})

    async def end(
        self, workers: Sequence[StudioWorker], rng: random.Random, *, code: str = "interrupted"
    ) -> dict[str, list[dict[str, Any]]]:
        """Approve the calls at other workers, and return the log of each session after its turn."""
        for session_id in self.asking:
            async with rng.choice(workers).client() as client:
                question = await open_question(client, session_id)
                assert (await answer(client, question, True)).status_code == 200
        turns = self.asking | self.counting
        logs = {id_: await ended_log(rng.choice(workers), id_, turn_id) for id_, turn_id in turns.items()}
        for id_, turn_id in turns.items():
            assert ends(logs[id_], turn_id) == ["final" if id_ in self.asking else code]
            results = [event["data"] for event in logs[id_] if event["type"] == "tool_result"]
            assert [result["outcome"] for result in results] == ["ok"] * (id_ in self.asking), results
        return logs


def ends(log: Sequence[dict[str, Any]], turn_id: str) -> list[str]:
    """Return how a turn ended, "final" or the code of its error; each time, if it did so more than once."""
    own = [event for event in log if event["turn_id"] == turn_id]
    fatal = [event for event in own if event["type"] == "final" or event["data"].get("fatal")]
    return [event["data"].get("code", "final") for event in fatal]


async def test_a_killed_worker_is_replaced_within_a_second_and_its_turns_that_wait_go_on(
    postgres: Cluster, tmp_path: Path, rng: random.Random, count: Count
) -> None:
    url, expected = await postgres.fresh_database(), Counter[str]()
    async with studio_workers(tmp_path, url, 3) as workers, Takeovers.watching(url) as takeovers:
        for number in range(count(2, 20, 200)):
            victim = rng.choice(workers.all)
            sessions = await SessionsOfWorker.begin(victim, f"call{number}")
            takeover = await takeovers.expect(victim)
            await victim.kill()
            await takeover.wait()
            await sessions.end(workers.running, rng)
            expected.update(f"call{number}-{n}" for n in range(2))
            await workers.restart(victim)
        assert runs(workers) == expected
    takeovers.check(within=1.0)


async def kill_during_call(workers: StudioWorkers, rng: random.Random, name: str) -> tuple[str, str]:
    """Kill the worker of a new session while its call runs; return the ids of the session and of its turn."""
    victim = rng.choice(workers.all)
    async with victim.client() as client:
        session_id = await new_session(client)
        # The approval is of the files that a command names: of this name, it would not count for another run.
        turn_id = await post_turn(client, session_id, f"run echo run >> $(echo {name}).txt; sleep 1000")
        assert (await answer(client, await open_question(client, session_id), True)).status_code == 200
        await wait_until(lambda: runs(workers)[name], state=lambda: describe_session(client, session_id))
    await victim.kill()
    return session_id, turn_id


async def test_a_call_that_ran_when_its_worker_was_killed_is_not_run_again(
    postgres: Cluster, tmp_path: Path, rng: random.Random, count: Count
) -> None:
    expected = Counter[str]()
    async with studio_workers(tmp_path, await postgres.fresh_database(), 3) as workers:
        for number in range(count(1, 10, 50)):
            session_id, turn_id = await kill_during_call(workers, rng, f"call{number}")
            log = await ended_log(rng.choice(workers.running), session_id, turn_id)
            assert [event["data"]["outcome"] for event in log if event["type"] == "tool_result"] == ["unknown"]
            assert ends(log, turn_id) == ["interrupted"]
            expected[f"call{number}"] += 1
            await workers.restart(next(worker for worker in workers.all if not worker.is_running))
        assert runs(workers) == expected


async def test_workers_that_run_calls_again_are_detected(postgres: Cluster, tmp_path: Path, rng: random.Random) -> None:
    url = await postgres.fresh_database()
    async with studio_workers(tmp_path, url, 3, mutant="runs calls again") as workers:
        await kill_during_call(workers, rng, "call")
        await wait_until(lambda: runs(workers)["call"] == 2)


async def test_without_locks_a_killed_worker_is_replaced_after_its_lease(
    postgres: Cluster, tmp_path: Path, rng: random.Random
) -> None:
    url, lease = await postgres.fresh_database(), 5.0
    variables = {"AGX_STORE_POLL": "true", "AGX_STORE_LEASE_SECONDS": str(lease)}
    async with studio_workers(tmp_path, url, 2, **variables) as workers, Takeovers.watching(url) as takeovers:
        victim = rng.choice(workers.all)
        sessions = await SessionsOfWorker.begin(victim, "call")
        takeover = await takeovers.expect(victim)
        await victim.kill()
        await takeover.wait()
        assert await takeover.is_lease_over()
        await sessions.end(workers.running, rng)


async def test_a_worker_that_is_told_to_end_hands_over_turns_that_wait_and_stops_the_others(
    postgres: Cluster, tmp_path: Path, rng: random.Random, count: Count
) -> None:
    expected = Counter[str]()
    url = await postgres.fresh_database()
    async with studio_workers(tmp_path, url, 3, AGX_DRAIN_SECONDS="0.5") as workers:
        for number in range(count(1, 5, 50)):
            victim = rng.choice(workers.all)
            sessions = await SessionsOfWorker.begin(victim, f"call{number}")
            assert await victim.terminate() == 0
            await sessions.end(workers.running, rng, code="stopped")
            expected.update(f"call{number}-{n}" for n in range(2))
            await workers.restart(victim)
        assert runs(workers) == expected


@pytest.mark.parametrize("lease", [2.0, pytest.param(10.0, marks=pytest.mark.ci_lane)])
async def test_a_frozen_worker_is_replaced_after_its_lease_and_writes_nothing_late(
    lease: float, postgres: Cluster, tmp_path: Path, rng: random.Random, count: Count
) -> None:
    url, expected = await postgres.fresh_database(), Counter[str]()
    rounds = count(1, 10, 50) if lease == 2.0 else count(1, 1, 5)
    async with (
        studio_workers(tmp_path, url, 3, AGX_STORE_LEASE_SECONDS=str(lease)) as workers,
        Takeovers.watching(url) as takeovers,
    ):
        for number in range(rounds):
            victim = rng.choice(workers.all)
            others, lost = [worker for worker in workers.all if worker is not victim], victim.lost_leases
            sessions = await SessionsOfWorker.begin(victim, f"call{number}")
            readers = {id_: reader_of(victim, id_) for id_ in [*sessions.asking, *sessions.counting]}
            turns = sessions.asking | sessions.counting
            async with victim.client() as client, asyncio.TaskGroup() as group:
                for id_, reader in readers.items():
                    group.create_task(reader.read(lambda log, turn_id=turns[id_]: turn_id in log.ended_turns))
                await wait_until(
                    lambda readers=readers: all(reader.frames for reader in readers.values()),
                    state=lambda readers=readers: {id_: reader.outline() for id_, reader in readers.items()},
                )
                questions = [await open_question(client, id_) for id_ in sessions.asking]
                takeover = await takeovers.expect(victim)
                victim.freeze()
                late_answers = [group.create_task(answer(client, question, True)) for question in questions]
                asked = [group.create_task(client.get(f"/api/confirms?session_id={id_}")) for id_ in sessions.asking]
                await takeover.wait()
                if len(takeover.sessions) >= len(turns):
                    assert await takeover.is_lease_over()
                else:  # others have taken some before it was frozen, as in `begin`
                    await wait_until(lambda victim=victim, lost=lost: victim.lost_leases > lost)
                logs = await sessions.end(others, rng)
                expected.update(f"call{number}-{n}" for n in range(2))
                victim.thaw()
            assert [one.result().json() for one in asked] == [{"confirms": []}] * 2
            assert [late.result().status_code for late in late_answers] == [200, 200]  # what others have decided
            for id_, reader in readers.items():
                assert (reader.envelopes, reader.unnumbered) == (logs[id_], [])
                async with victim.client() as client:
                    later = await post_turn(client, id_, "Say again")
                log = await ended_log(victim, id_, later)
                assert log[: len(logs[id_])] == logs[id_]
                assert ends(log, turns[id_]) == ends(logs[id_], turns[id_])
                assert ends(log, later) == ["final"]
        assert runs(workers) == expected
    takeovers.check(within=lease + 1.0)


async def test_a_command_runs_turns_in_sessions_that_workers_serve(postgres: Cluster, tmp_path: Path) -> None:
    url, home = await postgres.fresh_database(), tmp_path / "command/home"
    home.parent.mkdir()
    async with studio_workers(tmp_path, url, 2) as workers, workers.all[0].client() as client:

        async def command(*arguments: str) -> tuple[int | None, str, str]:
            variables = {"AGX_STORE_URL": url, "AGX_SECRET_FILE": str(tmp_path / "secret")}
            return await outcome(await agx(home, *arguments, **variables))

        session_id = await new_session(client)
        turn_id = await post_turn(client, session_id, "Say first")
        await ended_log(workers.all[1], session_id, turn_id)
        place = f"this session works in {workers.workspace}\n"
        assert await command("run", "--session", session_id, "Count to 30") == (0, COUNTED, place)
        assert await command("run", "-c", "Say last") == (0, "last\n", place)
        code, listed, _ = await command("sessions", "list")
        assert (code, listed.split()[0], len(listed.splitlines())) == (0, session_id, 1)
        await post_turn(client, session_id, LONG)
        code, out, _ = await command("run", "--session", session_id, "Say nothing")
        assert (code, out) == (0, "nothing\n")  # it waits for the turn that another program runs

"""Promises E2 and E3: one answer counts and takes effect, even if the server is killed."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.faults.checker import findings, report_findings
from tests.support.faults.light import LightTransport
from tests.support.faults.plan_model import plan
from tests.support.faults.servers import SETTLE_SECONDS, ServerForker, World, server_forker
from tests.support.lanes import Count

pytestmark = pytest.mark.anyio

QUESTIONS = 20
AT_ONCE = 100
ASKING = plan((2, ["mark"]), (1, []))


@asynccontextmanager
async def serving(forker: ServerForker, world: World, **order: Any) -> AsyncGenerator[httpx.AsyncClient]:
    """Yield a server that is killed in the end."""
    studio = await forker.serve(world.home, **order)
    async with studio.caller() as client:
        yield client
    await studio.end()


async def open_questions(client: httpx.AsyncClient, count: int) -> list[dict[str, Any]]:
    """Return the open questions, once there are so many."""
    async with asyncio.timeout(SETTLE_SECONDS):
        while True:
            questions = (await client.get("/api/confirms")).json()["confirms"]
            if len(questions) >= count:
                return questions
            await asyncio.sleep(0.01)


async def create_questions(world: World, client: httpx.AsyncClient) -> list[dict[str, Any]]:
    """Create twenty sessions, each with an open question."""
    sessions = await world.make_sessions(client, ["default"] * QUESTIONS)
    for session in sessions:
        assert await world.start(client, session, ASKING) == 202
    return await open_questions(client, QUESTIONS)


async def wait_until_no_turn_runs(world: World) -> None:
    """Return once no turn runs, by the file."""
    async with asyncio.timeout(SETTLE_SECONDS):
        while world.log().running:
            await asyncio.sleep(0.05)


@pytest.mark.promise("E3")
async def test_a_call_approved_after_a_kill_is_executed(tmp_path: Path) -> None:
    world = World(tmp_path / "home")
    async with server_forker() as forker:
        async with serving(forker, world) as client:
            before = await create_questions(world, client)
        async with serving(forker, world) as client:
            again = await open_questions(client, QUESTIONS)
            assert sorted(again, key=_by_id) == sorted(before, key=_by_id)
            for number, question in enumerate(again):
                assert await world.answer(client, question, number % 2 == 0) == 200
            await wait_until_no_turn_runs(world)
    found = findings(world.log(), world.seen, over=True)
    assert found == [], report_findings(found)
    assert sorted(world.seen.executions().values()) == [1] * (QUESTIONS // 2)


@pytest.mark.promise("E3")
async def test_an_answer_accepted_just_before_a_kill_takes_effect(
    tmp_path: Path, rng: random.Random, count: Count
) -> None:
    async with server_forker() as forker:
        for round_ in range(count(1, 4, 100)):
            world = World(tmp_path / str(round_) / "home")
            async with serving(forker, world) as client:
                questions = await create_questions(world, client)
                answering = [asyncio.create_task(world.answer(client, one, True)) for one in questions]
                for _ in range(rng.randint(1, QUESTIONS)):
                    await asyncio.wait(answering, return_when=asyncio.FIRST_COMPLETED)
                    answering = [task for task in answering if not task.done()] or answering
            await asyncio.gather(*answering)
            async with serving(forker, world) as client:
                for question in (await client.get("/api/confirms")).json()["confirms"]:
                    await world.answer(client, question, False)
                await wait_until_no_turn_runs(world)
            found = findings(world.log(), world.seen, over=True)
            assert found == [], report_findings(found)


@pytest.mark.promise("E2")
async def test_one_of_the_concurrent_answers_of_two_clients_is_accepted_per_question(
    tmp_path: Path, rng: random.Random, count: Count
) -> None:
    async with server_forker() as forker:
        found = await racing_answers(forker, World(tmp_path / "home"), rng, count(40, 400, 10_000))
    assert found == [], report_findings(found)


async def racing_answers(
    forker: ServerForker, world: World, rng: random.Random, answers: int, **order: Any
) -> list[str]:
    """Answer the same questions yes and no from two clients at once, between two kills; return the findings."""
    responses: dict[str, Counter[tuple[int, bool]]] = {}

    async def give(client: httpx.AsyncClient, question: dict[str, Any], approved: bool) -> None:
        body = {"approved": approved, "digest": question["digest"]}
        answer = await client.post(f"/api/confirms/{question['id']}", json=body)
        responses.setdefault(question["id"], Counter())[answer.status_code, approved] += 1
        if answer.status_code == 200:
            world.seen.answers[question["id"]] = answer.json()["approved"]

    async def race(client: httpx.AsyncClient) -> None:
        while racing:
            await give(client, *racing.pop())

    async with serving(forker, world) as client:
        await create_questions(world, client)
    async with serving(forker, world, **order) as one, second_client(one) as other:
        questions = await open_questions(one, QUESTIONS)
        racing = [(question, number % 2 == 0) for question in questions for number in range(answers // QUESTIONS)]
        rng.shuffle(racing)
        await asyncio.gather(*(race(client) for client in (one, other) for _ in range(AT_ONCE)))
        await wait_until_no_turn_runs(world)
        for question in questions:
            await give(other, question, True)
            await give(other, question, False)
    async with serving(forker, world, **order) as one:
        for question in questions:
            await give(one, question, True)
            await give(one, question, False)
    found = [
        f"{id_} was answered {status}"
        for id_, statuses in responses.items()
        for status, _ in statuses
        if status not in {200, 410}
    ]
    found += [
        f"{id_} was answered both yes and no"
        for id_, statuses in responses.items()
        if sum(status == 200 for status, _ in statuses) > 1
    ]
    return [*found, *findings(world.log(), world.seen, over=True)]


def second_client(client: httpx.AsyncClient) -> httpx.AsyncClient:
    """Yield a second client of the same server."""
    return httpx.AsyncClient(
        base_url=client.base_url, headers=client.headers, trust_env=False, verify=False, transport=LightTransport()
    )


def _by_id(question: dict[str, Any]) -> str:
    return question["id"]

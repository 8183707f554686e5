"""Confirmation questions of a server that is killed, and clients that answer them at once."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import httpx

from tests.support.faults.checker import findings
from tests.support.faults.http_transport import LightTransport
from tests.support.faults.plan_model import plan
from tests.support.faults.servers import RecordedFolder, ServerForker
from tests.support.timeouts import explained_timeout

__all__ = ["QUESTIONS", "create_questions", "open_questions", "racing_answers", "serving", "wait_until_no_turn_runs"]

QUESTIONS = 20
AT_ONCE = 100
ASKING = plan((2, ["mark"]), (1, []))


async def racing_answers(
    forker: ServerForker, recorded: RecordedFolder, rng: random.Random, answers: int, **options: Any
) -> list[str]:
    """Answer the same questions yes and no from two clients at once, between two kills; return the findings."""
    responses: dict[str, Counter[tuple[int, bool]]] = {}

    async def give(client: httpx.AsyncClient, question: dict[str, Any], approved: bool) -> None:
        body = {"approved": approved, "digest": question["digest"]}
        answer = await client.post(f"/api/confirms/{question['id']}", json=body)
        responses.setdefault(question["id"], Counter())[answer.status_code, approved] += 1
        if answer.status_code == 200:
            recorded.seen.answers[question["id"]] = answer.json()["approved"]

    async def race(client: httpx.AsyncClient) -> None:
        while racing:
            await give(client, *racing.pop())

    async with serving(forker, recorded) as client:
        await create_questions(recorded, client)
    async with serving(forker, recorded, **options) as one, second_client(one) as other:
        questions = await open_questions(one, QUESTIONS)
        racing = [(question, number % 2 == 0) for question in questions for number in range(answers // QUESTIONS)]
        rng.shuffle(racing)
        await asyncio.gather(*(race(client) for client in (one, other) for _ in range(AT_ONCE)))
        await wait_until_no_turn_runs(recorded)
        for question in questions:
            await give(other, question, True)
            await give(other, question, False)
    async with serving(forker, recorded, **options) as one:
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
    return [*found, *findings(recorded.log(), recorded.seen, over=True)]


@asynccontextmanager
async def serving(forker: ServerForker, recorded: RecordedFolder, **options: Any) -> AsyncGenerator[httpx.AsyncClient]:
    """Yield a server that is killed in the end."""
    studio = await forker.serve(recorded.home, **options)
    async with studio.caller() as client:
        yield client
    await studio.end()


async def create_questions(recorded: RecordedFolder, client: httpx.AsyncClient) -> list[dict[str, Any]]:
    """Create twenty sessions, each with an open question."""
    sessions = await recorded.make_sessions(client, ["default"] * QUESTIONS)
    for session in sessions:
        assert await recorded.start(client, session, ASKING) == 202
    return await open_questions(client, QUESTIONS)


async def open_questions(client: httpx.AsyncClient, count: int) -> list[dict[str, Any]]:
    """Return the open questions, once there are so many."""
    questions: list[dict[str, Any]] = []
    async with explained_timeout(lambda: f"{len(questions)} of {count} questions are open"):
        while True:
            questions = (await client.get("/api/confirms")).json()["confirms"]
            if len(questions) >= count:
                return questions
            await asyncio.sleep(0.01)


async def wait_until_no_turn_runs(recorded: RecordedFolder) -> None:
    """Return once no turn runs, by the file."""
    async with explained_timeout(lambda: f"these turns run: {recorded.log().running}"):
        while recorded.log().running:
            await asyncio.sleep(0.05)


def second_client(client: httpx.AsyncClient) -> httpx.AsyncClient:
    """Yield a second client of the same server."""
    return httpx.AsyncClient(
        base_url=client.base_url, headers=client.headers, trust_env=False, verify=False, transport=LightTransport()
    )

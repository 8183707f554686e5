"""Promises E2 and E3: one answer counts and takes effect, even if the server is killed."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

import pytest

from tests.support.faults.checker import findings, report_findings
from tests.support.faults.questions import (
    QUESTIONS,
    create_questions,
    open_questions,
    racing_answers,
    serving,
    wait_until_no_turn_runs,
)
from tests.support.faults.servers import RecordedFolder, server_forker
from tests.support.lanes import Count

pytestmark = pytest.mark.anyio


@pytest.mark.ci_lane
@pytest.mark.promise("E3")
async def test_a_call_approved_after_a_kill_is_executed(tmp_path: Path) -> None:
    recorded = RecordedFolder(tmp_path / "home")
    async with server_forker() as forker:
        async with serving(forker, recorded) as client:
            before = await create_questions(recorded, client)
        async with serving(forker, recorded) as client:
            again = await open_questions(client, QUESTIONS)
            assert sorted(again, key=_by_id) == sorted(before, key=_by_id)
            for number, question in enumerate(again):
                assert await recorded.answer(client, question, number % 2 == 0) == 200
            await wait_until_no_turn_runs(recorded)
    found = findings(recorded.log(), recorded.seen, over=True)
    assert found == [], report_findings(found)
    assert sorted(recorded.seen.executions().values()) == [1] * (QUESTIONS // 2)


@pytest.mark.promise("E3")
async def test_an_answer_accepted_just_before_a_kill_takes_effect(
    tmp_path: Path, rng: random.Random, count: Count
) -> None:
    async with server_forker() as forker:
        for round_ in range(count(1, 4, 100)):
            recorded = RecordedFolder(tmp_path / str(round_) / "home")
            async with serving(forker, recorded) as client:
                questions = await create_questions(recorded, client)
                answering = [asyncio.create_task(recorded.answer(client, one, True)) for one in questions]
                for _ in range(rng.randint(1, QUESTIONS)):
                    await asyncio.wait(answering, return_when=asyncio.FIRST_COMPLETED)
                    answering = [task for task in answering if not task.done()] or answering
            await asyncio.gather(*answering)
            async with serving(forker, recorded) as client:
                for question in (await client.get("/api/confirms")).json()["confirms"]:
                    await recorded.answer(client, question, False)
                await wait_until_no_turn_runs(recorded)
            found = findings(recorded.log(), recorded.seen, over=True)
            assert found == [], report_findings(found)


@pytest.mark.promise("E2")
async def test_one_of_the_concurrent_answers_of_two_clients_is_accepted_per_question(
    tmp_path: Path, rng: random.Random, count: Count
) -> None:
    async with server_forker() as forker:
        found = await racing_answers(forker, RecordedFolder(tmp_path / "home"), rng, count(20, 400, 10_000))
    assert found == [], report_findings(found)


def _by_id(question: dict[str, Any]) -> str:
    return question["id"]

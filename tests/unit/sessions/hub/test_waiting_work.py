"""Turns with the work of an application that wait for a person while their process ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from agenticx.clocks import SystemClock
from agenticx.llms import ScriptedModel
from agenticx.runtime import QuestionAnswer, QuestionClosed, Turn, ask_person
from agenticx.sessions import Hub, SessionRecord, TurnFailed, TurnRequest, open_store
from agenticx.settings import load_settings
from tests.support.sessions import wait_for_turn_end
from tests.support.teams.sessions import log_of

pytestmark = pytest.mark.anyio

SESSION_ID = "ses_1"


class LaterClock(SystemClock):
    """The system's clock, days ahead."""

    def __init__(self, days: float) -> None:
        self._days = days

    def now(self) -> datetime:
        return super().now() + timedelta(days=self._days)


@asynccontextmanager
async def opened(folder: Path, *, days: float = 0) -> AsyncIterator[Hub]:
    settings = load_settings({"home": folder / "home"}, environ={})
    store = open_store(settings)
    hub = Hub(
        store, models=lambda _: ScriptedModel(["Hello."]), tools=lambda _: [], settings=settings, clock=LaterClock(days)
    )
    await hub.recover()
    yield hub
    await hub.close()
    await store.aclose()


async def interview(turn: Turn) -> str:
    answers = [(await ask_person(question)).answer for question in ("Name?", "Size?")]
    return " ".join(answers)


async def wait_for_question(hub: Hub, text: str) -> str:
    """Return the id of the open question with that text, once it is asked."""
    while True:
        for question in await hub.open_requests(SESSION_ID):
            if question.text == text:
                return question.id
        await asyncio.sleep(0)


async def interview_until_size(folder: Path) -> str:
    """Answer the first question of an interview, close the hub at the second, and return the id of the turn."""
    async with opened(folder) as hub:
        await hub.store.create(SessionRecord(id=SESSION_ID, name="x", workspace=str(folder), created_at="2026-01-01"))
        turn = await hub.run_work(SESSION_ID, "Ask.", interview)
        await hub.answer(await wait_for_question(hub, "Name?"), QuestionAnswer(answer="Ada"))
        await wait_for_question(hub, "Size?")
    return turn.id


@pytest.mark.parametrize("answered", ["before", "after"])
async def test_work_that_is_run_again_gets_all_answers_and_asks_nothing_twice(tmp_path: Path, answered: str) -> None:
    turn_id = await interview_until_size(tmp_path)
    async with opened(tmp_path) as hub:
        waiting = await hub.suspended_turn(SESSION_ID)
        assert waiting is not None
        assert (waiting.id, waiting.input) == (turn_id, "Ask.")
        question_id = await wait_for_question(hub, "Size?")
        if answered == "before":
            await hub.answer(question_id, QuestionAnswer(answer="Large"))
        await hub.run_work(SESSION_ID, "Ask.", interview, turn_id=turn_id)
        if answered == "after":
            await hub.answer(question_id, QuestionAnswer(answer="Large"))
        await wait_for_turn_end(hub.store, SESSION_ID)
        log = await log_of(hub, SESSION_ID)
        assert [event["type"] for event in log].count("question_asked") == 2
        assert (log[-1]["data"]["text"], log[-1]["turn_id"]) == ("Ada Large", turn_id)


async def test_work_is_refused_in_a_turn_that_does_not_wait_for_it(tmp_path: Path) -> None:
    turn_id = await interview_until_size(tmp_path)
    async with opened(tmp_path) as hub:
        with pytest.raises(TurnFailed, match="turn_other"):
            await hub.run_work(SESSION_ID, "Ask.", interview, turn_id="turn_other")
        await hub.stop(SESSION_ID)
        await hub.wait_for_turn(SESSION_ID, turn_id)
        assert await hub.suspended_turn(SESSION_ID) is None
        with pytest.raises(TurnFailed, match=turn_id):
            await hub.run_work(SESSION_ID, "Ask.", interview, turn_id=turn_id)
        log = await log_of(hub, SESSION_ID)
        assert log[-1]["data"]["code"] == "stopped"
        assert [event["data"]["by"] for event in log if event["type"] == "question_answered"] == ["user", "stop"]
        assert (await hub.start(SESSION_ID, TurnRequest(input="Hello"))).id != turn_id


async def test_a_question_whose_time_is_over_is_not_open_while_the_work_is_away(tmp_path: Path) -> None:
    turn_id = await interview_until_size(tmp_path)
    async with opened(tmp_path) as hub:
        question_id = await wait_for_question(hub, "Size?")
    async with opened(tmp_path, days=8) as hub:
        assert await hub.open_requests() == []
        with pytest.raises(QuestionClosed):
            await hub.answer(question_id, QuestionAnswer(answer="Large"))
        await hub.run_work(SESSION_ID, "Ask.", interview, turn_id=turn_id)
        await wait_for_turn_end(hub.store, SESSION_ID)
        log = await log_of(hub, SESSION_ID)
        assert [event["data"]["by"] for event in log if event["type"] == "question_answered"] == ["user", "timeout"]


async def test_a_deleted_session_takes_the_turn_that_waits_with_it(tmp_path: Path) -> None:
    await interview_until_size(tmp_path)
    async with opened(tmp_path) as hub:
        await hub.delete(SESSION_ID)
        assert await hub.open_requests() == []

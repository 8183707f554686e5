"""One question has one answer, also where a stop, or the end of the program, comes at the same moment."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from agenticx.messages import ToolMessage
from agenticx.runtime import ConfirmAnswer, ConfirmClosed, ConfirmRequest
from agenticx.sessions import Hub
from tests.patience import PATIENCE
from tests.sessions.desk import Desk
from tests.sessions.test_hub import seen, turn_over

pytestmark = [pytest.mark.anyio, pytest.mark.promise("E2", "E3")]

YES, NO = ConfirmAnswer(approved=True), ConfirmAnswer(approved=False)


def answering(hub: Hub, question: ConfirmRequest, answer: ConfirmAnswer = YES) -> asyncio.Task[ConfirmAnswer]:
    return asyncio.create_task(hub.confirms.answer(question.id, answer, digest=question.digest))


async def decided(hub: Hub, question: ConfirmRequest) -> None:
    """Return in the very step in which the gate has an answer, before the turn has heard of it."""
    async with asyncio.timeout(PATIENCE):
        while hub.gate.decided(question.id) is None:
            await asyncio.sleep(0)


async def test_an_answer_at_the_moment_of_a_stop_is_the_one_that_the_log_tells(desk: Desk) -> None:
    hub, question = await desk.asks()
    giving = answering(hub, question)
    await decided(hub, question)
    await hub.stop(desk.session_id)
    assert await giving == YES
    assert await desk.responses() == [(True, "user")]
    assert await hub.confirms.answer(question.id, YES, digest=question.digest) == YES
    await desk.close(hub)


async def test_an_answer_behind_a_stop_is_too_late_and_is_not_kept_for_later(desk: Desk) -> None:
    hub, question = await desk.asks()
    await hub.stop(desk.session_id)
    assert await desk.responses() == [(False, "stop")]
    with pytest.raises(ConfirmClosed):
        await hub.confirms.answer(question.id, YES, digest=question.digest)
    assert await desk.store.journal_entry("answered", question.id) is None
    await desk.close(hub)


@pytest.mark.parametrize("when", ["before", "at the same time", "after"])
async def test_an_answer_while_the_program_ends_is_taken_and_the_call_runs_after_the_next_start(
    desk: Desk, when: str
) -> None:
    hub, question = await desk.asks()
    steps: dict[str, Callable[[], Any]] = {
        "before": lambda: asyncio.gather(answering(hub, question), hub.close()),
        "at the same time": lambda: asyncio.gather(hub.close(), answering(hub, question)),
        "after": lambda: None,
    }
    if (both := steps[when]()) is not None:
        await both
    await hub.close()
    assert [one.id for one in await hub.confirms.pending()] == [question.id]
    assert await hub.confirms.answer(question.id, YES, digest=question.digest) == YES
    with pytest.raises(ConfirmClosed):
        await hub.confirms.answer(question.id, NO, digest=question.digest)
    await desk.store.aclose()
    hub = await desk.open("done")
    assert await desk.responses() == [(True, "user")]
    assert desk.noted == ["x"]
    await desk.close(hub)


async def test_an_answer_that_the_gate_had_when_the_program_ended_stands_in_the_log(desk: Desk) -> None:
    hub, question = await desk.asks()
    giving = answering(hub, question)
    await decided(hub, question)
    await hub.close()
    assert await giving == YES
    assert await desk.responses() == [(True, "user")]
    await desk.store.aclose()


async def test_what_changes_beside_a_turn_that_waits_for_the_next_start_does_not_tell_the_model_of_its_end(
    desk: Desk,
) -> None:
    hub, question = await desk.asks()
    await hub.close()
    await hub.change(desk.session_id, {"pinned": True})
    await desk.store.aclose()
    hub = await desk.open("done")
    await hub.confirms.answer(question.id, YES, digest=question.digest)
    await turn_over(desk.store, desk.session_id)
    (request,) = desk.model.requests
    results = [message.content for message in request.messages if isinstance(message, ToolMessage)]
    assert results == ["noted x"]
    await desk.close(hub)


async def test_a_turn_that_went_on_after_a_start_tells_the_name_that_it_gave(desk: Desk) -> None:
    hub, question = await desk.asks()
    await desk.close(hub)
    hub = await desk.open("done")
    await hub.confirms.answer(question.id, YES, digest=question.digest)
    assert await seen(desk.store, desk.session_id, "session_changed") == {"name": "Note something"}
    await desk.close(hub)

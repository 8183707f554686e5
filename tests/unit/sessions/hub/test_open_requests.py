"""A request to the user waits for one answer, also over the end and the restart of the program."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from agenticx.messages import ToolMessage
from agenticx.runtime import (
    ConfirmAnswer,
    ConfirmClosed,
    QuestionAnswer,
    QuestionClosed,
    QuestionRequest,
    UnknownConfirm,
    UnknownQuestion,
    UserAnswer,
    UserRequest,
)
from agenticx.sessions import Hub, TurnRequest, fork
from agenticx.sessions.log.records import RequestAnswered
from agenticx.sessions.store.base import find_fact
from agenticx.testing import call, check_grammar
from tests.support.sessions import SessionHarness, wait_for_event, wait_for_turn_end

pytestmark = [pytest.mark.anyio, pytest.mark.promise("E2", "E3")]

ASK = call("ask_user", {"text": "Which colour?", "options": ["red", "blue"]})
YES, RED = ConfirmAnswer(approved=True), QuestionAnswer(answer="red")

OpenRequest = Callable[[SessionHarness], Awaitable[tuple[Hub, UserRequest]]]
"""Start a turn that asks, and return its hub and the open request."""


async def open_with_question(harness: SessionHarness, *script: Any) -> tuple[Hub, QuestionRequest]:
    """Return a hub whose session waits for an answer, and the question."""
    hub = await harness.open(*(script or (ASK, "done")))
    await hub.start(harness.session_id, TurnRequest(input="Paint"))
    await wait_for_event(harness.store, harness.session_id, "question_asked")
    (question,) = await hub.open_requests(harness.session_id)
    return hub, question


async def events_of(harness: SessionHarness) -> list[dict[str, Any]]:
    """Return the log up to the turn's end, which keeps the grammar."""
    events = [json.loads(event.frame_json) for event in await wait_for_turn_end(harness.store, harness.session_id)]
    check_grammar(events)
    return events


async def answers(harness: SessionHarness) -> list[tuple[str, str]]:
    events = await events_of(harness)
    return [(e["data"]["answer"], e["data"]["by"]) for e in events if e["type"] == "question_answered"]


def results(harness: SessionHarness) -> list[str]:
    """Return the results in the last request to the model."""
    return [row.content for row in harness.model.requests[-1].messages if isinstance(row, ToolMessage)]


async def test_a_question_is_listed_and_answered_once(harness: SessionHarness) -> None:
    hub, question = await open_with_question(harness)
    assert (question.text, question.options, question.session_id) == (
        "Which colour?",
        ("red", "blue"),
        harness.session_id,
    )
    assert await hub.open_requests() == [question]
    colours = [QuestionAnswer(answer=colour) for colour in ("red", "green", "red")]
    given = [asyncio.create_task(hub.answer(question.id, colour)) for colour in colours]
    outcomes = await asyncio.gather(*given, return_exceptions=True)
    ((stored, by),) = await answers(harness)  # any of them may have come first
    assert (stored in ("red", "green"), by) == (True, "user")
    for colour, outcome in zip(colours, outcomes, strict=True):
        assert outcome == colour if colour.answer == stored else isinstance(outcome, QuestionClosed)
    assert results(harness) == [stored]
    assert await hub.open_requests() == []
    assert await hub.answer(question.id, QuestionAnswer(answer=stored)) == QuestionAnswer(answer=stored)
    with pytest.raises(QuestionClosed):
        await hub.answer(question.id, QuestionAnswer(answer="blue"))
    await harness.close(hub)


@pytest.mark.parametrize(
    ("open_request", "answer", "unknown", "right"),
    [
        pytest.param(open_with_question, YES, UnknownConfirm, RED, id="question"),
        pytest.param(SessionHarness.open_with_confirmation, RED, UnknownQuestion, YES, id="confirmation"),
    ],
)
async def test_an_answer_of_the_other_kind_finds_no_request(
    harness: SessionHarness, open_request: OpenRequest, answer: UserAnswer, unknown: type[Exception], right: UserAnswer
) -> None:
    hub, request = await open_request(harness)
    for request_id in (request.id, "req_none"):
        with pytest.raises(unknown):
            await hub.answer(request_id, answer, digest=request.digest)
    assert await hub.open_requests() == [request]
    assert await hub.answer(request.id, right, digest=request.digest) == right
    await harness.close(hub)


@pytest.mark.parametrize(
    ("open_request", "answer", "closed", "stopped"),
    [
        pytest.param(open_with_question, RED, QuestionClosed, {"answer": "", "by": "stop"}, id="question"),
        pytest.param(
            SessionHarness.open_with_confirmation,
            YES,
            ConfirmClosed,
            {"approved": False, "by": "stop"},
            id="confirmation",
        ),
    ],
)
async def test_an_answer_after_a_stop_is_refused_and_not_stored(
    harness: SessionHarness,
    open_request: OpenRequest,
    answer: UserAnswer,
    closed: type[Exception],
    stopped: dict[str, Any],
) -> None:
    hub, request = await open_request(harness)
    await hub.stop(harness.session_id)
    responses = [e["data"] for e in await events_of(harness) if e["type"] in ("question_answered", "confirm_response")]
    assert responses == [{"id": request.id, **stopped}]
    with pytest.raises(closed):
        await hub.answer(request.id, answer, digest=request.digest)
    assert await find_fact(harness.store.log, harness.session_id, RequestAnswered, request.id) is None
    await harness.close(hub)


@pytest.mark.keeps_owner("the hub that owns the question closes before it is answered")
@pytest.mark.parametrize("when", ["while it is down", "after the restart"])
async def test_a_question_waits_on_after_a_restart_and_the_turn_goes_on(harness: SessionHarness, when: str) -> None:
    hub, question = await open_with_question(harness)
    await hub.close()
    assert [one.id for one in await hub.open_requests()] == [question.id]
    if when == "while it is down":
        assert await hub.answer(question.id, QuestionAnswer(answer="green")) == QuestionAnswer(answer="green")
    await harness.store.aclose()
    hub = await harness.open("done")
    if when == "after the restart":
        assert await hub.open_requests(harness.session_id) == [question]
    assert await hub.answer(question.id, QuestionAnswer(answer="green")) == QuestionAnswer(answer="green")
    assert await answers(harness) == [("green", "user")]
    assert results(harness) == ["green"]
    await harness.close(hub)


@pytest.mark.keeps_owner("the hub that owns the questions closes before they are answered")
@pytest.mark.promise("E1")
async def test_a_question_about_a_tool_that_is_another_one_after_the_restart_is_closed(harness: SessionHarness) -> None:
    hub, _ = await harness.open_with_confirmation()
    await harness.close(hub)
    harness.note_description = "Publish a note."
    hub = await harness.open("Not published.")
    events = await wait_for_turn_end(harness.store, harness.session_id)
    results = [json.loads(event.frame_json)["data"] for event in events if event.type == "tool_result"]
    assert [(result["outcome"], "changed while the program was down" in result["result"]) for result in results] == [
        ("denied", True)
    ]
    assert harness.noted_texts == []
    await harness.close(hub)


async def test_a_question_and_a_confirmation_of_a_round_both_wait_over_a_restart(harness: SessionHarness) -> None:
    asks = [call("ask_user", {"text": "one?"}), call("ask_user", {"text": "two?"}), call("note", {"text": "x"})]
    hub = await harness.open(asks, "done")
    await hub.start(harness.session_id, TurnRequest(input="Ask"))
    while len(await hub.open_requests()) < 2:
        await asyncio.sleep(0)
    await harness.close(hub)
    hub = await harness.open("done")
    one, two = await hub.open_requests()
    await hub.answer(two.id, QuestionAnswer(answer="2"))
    await hub.answer(one.id, QuestionAnswer(answer="1"))
    await wait_for_event(harness.store, harness.session_id, "confirm_required")
    (confirm,) = await hub.open_requests()
    await hub.answer(confirm.id, ConfirmAnswer(approved=True), digest=confirm.digest)
    assert await answers(harness) == [("2", "user"), ("1", "user")]
    assert results(harness) == ["1", "2", "noted x"]
    await harness.close(hub)


async def test_a_fork_in_the_middle_of_a_question_closes_its_copy(harness: SessionHarness) -> None:
    hub, question = await open_with_question(harness)
    forked = await fork(harness.store, harness.session_id, now="2026-01-01T00:00:00.000Z")
    copied = [json.loads(event.frame_json) for event in await harness.store.log.read(forked.id, 0, 1_000)]
    check_grammar(copied)
    assert [e["data"]["by"] for e in copied if e["type"] == "question_answered"] in ([], ["stop"])
    assert question.id not in [e["data"].get("id") for e in copied]
    await hub.answer(question.id, QuestionAnswer(answer="red"))
    await harness.close(hub)

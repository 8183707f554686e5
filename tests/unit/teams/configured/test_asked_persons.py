"""Persons as participants without a function: they are asked in the session, or at a gate."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from agenticx.llms import ScriptedModel
from agenticx.runtime import AsyncConfirmGate, AutoApproveConfirmGate, QuestionAnswer
from agenticx.teams import (
    AssistantAgent,
    CancellationToken,
    HandoffMessage,
    RoundRobinGroupChat,
    TextMessage,
    UserInputRequestedEvent,
    UserProxyAgent,
)
from agenticx.testing import call, collect, outline
from tests.support.sessions import wait_for_event
from tests.support.teams.configured import log_of, open_team_hub, shown, team_file

pytestmark = pytest.mark.anyio

WITH_PERSON = """
kind = "swarm"
max_turns = 3
[[participants]]
name = "helper"
system_message = "Help."
handoffs = ["person"]
[[participants]]
name = "person"
kind = "user"
"""


async def test_a_person_in_a_configured_team_answers_a_question_of_the_session(tmp_path: Path) -> None:
    team_file(tmp_path / "home", WITH_PERSON, "help")
    model = ScriptedModel([call("handoff_to_person"), "Thanks."])
    async with open_team_hub(tmp_path, model=model) as hub:
        session = await hub.create(team="help")
        running = hub.run_turn(session.id, "Which size?")
        events = asyncio.create_task(collect(running))
        asked = await wait_for_event(hub.store, session.id, "question_asked")
        assert asked["agent_path"] == ["meta", "person"]
        (question,) = await hub.open_requests(session.id)
        assert question.text == "user: Which size?\n\nIt is your turn to speak."  # the handoff said nothing
        await hub.answer(question.id, QuestionAnswer(answer="Large"))
        assert (await events)[-1].data["text"] == "Thanks."
        log = await log_of(hub, session.id)
        (started,) = [event for event in log if event["type"] == "turn_started" and event["agent_id"] == "person"]
        speech = [event for event in log if event["turn_id"] == started["turn_id"]]
        assert outline(speech) == ["turn_started", "question_asked", "question_answered", "token", "final"]
        answers = [event["data"]["message"] for event in log if event["type"] == "team_message"]
        assert [(one["source"], one["type"], one["content"]) for one in answers if one["source"] == "person"][-1] == (
            "person",
            "HandoffMessage",
            "Large",
        )
    assert shown(model, 1)[-1] == ("user", "person said:\nLarge")


async def test_a_team_goes_on_by_itself_when_a_person_answers_after_a_restart(tmp_path: Path) -> None:
    team_file(tmp_path / "home", WITH_PERSON, "help")
    async with open_team_hub(tmp_path, [call("handoff_to_person")]) as hub:
        session_id = (await hub.create(team="help")).id
        events = asyncio.create_task(collect(hub.run_turn(session_id, "Which size?")))
        await wait_for_event(hub.store, session_id, "question_asked")
    await events
    model = ScriptedModel(["Thanks."])
    async with open_team_hub(tmp_path, model=model) as hub:
        (question,) = await hub.open_requests(session_id)
        turn_id = hub.running_turn_id(session_id)
        assert turn_id is not None
        await hub.answer(question.id, QuestionAnswer(answer="Large"))
        await hub.wait_for_turn(session_id, turn_id)
        log = await log_of(hub, session_id)
        assert [event["data"]["text"] for event in log if event["type"] == "final"][-2:] == ["Thanks.", "Thanks."]
        assert [event["type"] for event in log].count("question_asked") == 1
        speakers = [event["data"]["speakers"] for event in log if event["type"] == "speaker_selected"]
        assert speakers == [["helper"], ["person"], ["helper"]]
    assert shown(model, 0)[-1] == ("user", "person said:\nLarge")


async def test_a_stop_closes_the_question_to_a_person(tmp_path: Path) -> None:
    team_file(tmp_path / "home", WITH_PERSON, "help")
    async with open_team_hub(tmp_path, [call("handoff_to_person")]) as hub:
        session = await hub.create(team="help")
        events = asyncio.create_task(collect(hub.run_turn(session.id, "Which size?")))
        await wait_for_event(hub.store, session.id, "question_asked")
        await hub.stop(session.id)
        assert (await events)[-1].data["code"] == "stopped"
        assert await hub.open_requests(session.id) == []
        await log_of(hub, session.id)


async def test_the_gate_of_a_team_in_memory_is_asked() -> None:
    gate = AsyncConfirmGate()
    helper = AssistantAgent("helper", ScriptedModel(["How high?"]))
    team = RoundRobinGroupChat([helper, UserProxyAgent("person")], max_turns=2, confirm_gate=gate)
    running = asyncio.create_task(team.run(task="Measure."))
    while not gate.pending_questions():
        await asyncio.sleep(0)
    (question,) = gate.pending_questions()
    assert question.text == "helper: How high?\n\nIt is your turn to speak."
    gate.answer_question(question.id, "324 m")
    *_, requested, answer = (await running).messages
    assert isinstance(requested, UserInputRequestedEvent)
    assert (requested.request_id, requested.content) == (question.id, question.text)
    assert (type(answer), answer.to_text(), answer.source) == (TextMessage, "324 m", "person")


async def test_where_nobody_can_be_asked_the_team_reads_that() -> None:
    helper = AssistantAgent("helper", ScriptedModel(["How high?"]))
    team = RoundRobinGroupChat([helper, UserProxyAgent("person")], max_turns=2, confirm_gate=AutoApproveConfirmGate())
    said = "The user did not answer: nobody can be asked now."
    assert (await team.run(task="Measure.")).messages[-1].to_text() == said


async def test_a_cancelled_question_raises() -> None:
    token, person = CancellationToken(), UserProxyAgent("person")
    team = RoundRobinGroupChat([person], max_turns=1, confirm_gate=(gate := AsyncConfirmGate()))
    running = asyncio.create_task(team.run(task="Measure.", cancellation_token=token))
    while not gate.pending_questions():
        await asyncio.sleep(0)
    token.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert gate.pending_questions() == []


async def test_a_handoff_to_someone_else_is_refused() -> None:
    handoff = HandoffMessage(content="Yours.", source="helper", target="other")
    with pytest.raises(RuntimeError, match="hands over to 'other', not to 'person'"):
        await UserProxyAgent("person").on_messages([handoff], CancellationToken())

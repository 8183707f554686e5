"""Questions of the agent (`ask_user`): asked, answered, expired and stopped."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest

from agenticx import UserMessage
from agenticx.clocks import SystemClock
from agenticx.llms import ScriptedModel
from agenticx.messages import AssistantMessage, ToolCall, ToolMessage
from agenticx.runtime import (
    AgentRuntime,
    AsyncConfirmGate,
    AutoApproveConfirmGate,
    QuestionAnswer,
    QuestionClosed,
    QuestionRequest,
    RuntimeEvent,
    Session,
    StopSignal,
    SyncConfirmGate,
    TurnContext,
    UnknownQuestion,
    current_turn,
)
from agenticx.runtime.resume import ResumedRequest, ResumePoint
from agenticx.settings import load_settings
from agenticx.testing import call, check_grammar, collect, outline
from agenticx.tools import Assessment, UserQuestion, tool
from agenticx.tools.builtin import ask_user
from tests.support.timeouts import PATIENCE

pytestmark = pytest.mark.anyio

COLOUR = call("ask_user", {"text": "Which colour?", "options": ["red", "blue"]}, id="call_1")
NOBODY = "No answer: nobody can be asked now. Go on without it, or say in your reply what you need to know."


def runtime(model: ScriptedModel, gate: Any = None, **settings: Any) -> AgentRuntime:
    return AgentRuntime(model, gate, tools=[ask_user], settings=load_settings(settings))


def results(session: Session) -> list[tuple[str, str]]:
    return [(row.content, row.outcome) for row in session.messages if isinstance(row, ToolMessage)]


def data_of(events: Sequence[RuntimeEvent], type_: str) -> list[dict[str, Any]]:
    return [event.data for event in events if event.type == type_]


async def asked(gate: AsyncConfirmGate) -> str:
    """Return the id of the question, once it waits."""
    async with asyncio.timeout(PATIENCE):
        while not gate.pending_questions():
            await asyncio.sleep(0)
    return gate.pending_questions()[0].id


async def test_a_question_is_asked_and_the_answer_is_the_result_of_the_call() -> None:
    gate, session = AsyncConfirmGate(), Session()
    model = ScriptedModel([COLOUR, "Painted."])
    turn = asyncio.create_task(collect(runtime(model, gate).run_turn("Paint", session)))
    id_ = await asked(gate)
    assert gate.answer_question(id_, "green") == QuestionAnswer(answer="green")
    events = await turn
    check_grammar(events)
    assert outline(events)[2:-3] == [
        "tool_call_delta",
        "tool_call",
        "question_asked",
        "question_answered",
        "tool_result",
    ]
    (question,) = data_of(events, "question_asked")
    assert {**question, "expires_at": ""} == {
        "id": id_,
        "text": "Which colour?",
        "options": ["red", "blue"],
        "expires_at": "",
        "tool_call_id": "call_1",
    }
    assert data_of(events, "question_answered") == [{"id": id_, "answer": "green", "by": "user"}]
    assert results(session) == [("green", "ok")]


async def test_the_first_answer_counts_and_the_same_one_again_returns_it() -> None:
    gate = AsyncConfirmGate()
    turn = asyncio.create_task(collect(runtime(ScriptedModel([COLOUR, "."]), gate).run_turn("Paint", Session())))
    id_ = await asked(gate)
    gate.answer_question(id_, "red")
    await turn
    assert gate.answer_question(id_, "red") == gate.answered(id_) == QuestionAnswer(answer="red")
    with pytest.raises(QuestionClosed):
        gate.answer_question(id_, "blue")
    with pytest.raises(UnknownQuestion):
        gate.answer_question("qst_none", "red")


@pytest.mark.parametrize("gate", [None, AutoApproveConfirmGate()])
async def test_the_model_is_told_that_nobody_can_be_asked(gate: AutoApproveConfirmGate | None) -> None:
    session = Session()
    events = await collect(runtime(ScriptedModel([COLOUR, "Painted red."]), gate).run_turn("Paint", session))
    check_grammar(events)
    assert results(session) == [(NOBODY, "ok")]
    assert [(data["answer"], data["by"]) for data in data_of(events, "question_answered")] == [("", "policy")]
    assert outline(events)[-1] == "final"


class Person(AutoApproveConfirmGate):
    """A gate whose user answers with a function."""

    def __init__(self, answer: Any) -> None:
        self._answer = answer
        self.questions: list[tuple[str, Sequence[str]]] = []

    def request_answer(self, text: str, options: Sequence[str]) -> str | None:
        self.questions.append((text, options))
        if isinstance(self._answer, Exception):
            raise self._answer
        return self._answer


@pytest.mark.parametrize(
    ("answer", "result"),
    [
        ("blue", "blue"),
        ("", "No answer: the user did not want to give one."),
        (None, NOBODY),
        (5, NOBODY),
        (OSError("gone"), NOBODY),
    ],
)
async def test_a_gate_may_answer_questions_itself(answer: Any, result: str) -> None:
    session, person = Session(), Person(answer)
    events = await collect(runtime(ScriptedModel([COLOUR, "."]), person).run_turn("Paint", session))
    check_grammar(events)
    assert person.questions == [("Which colour?", ("red", "blue"))]
    assert results(session) == [(result, "ok")]


async def test_a_question_that_expires_has_no_answer_and_the_turn_goes_on() -> None:
    gate, session = AsyncConfirmGate(), Session()
    turn = runtime(ScriptedModel([COLOUR, "Painted red."]), gate, question_timeout_seconds=1)
    events = await collect(turn.run_turn("Paint", session))
    check_grammar(events)
    ((text, outcome),) = results(session)
    assert (text.partition(".")[0], outcome) == ("No answer: none was given in time", "ok")
    assert [data["by"] for data in data_of(events, "question_answered")] == ["timeout"]
    assert outline(events)[-1] == "final"


async def test_the_wait_counts_in_no_time_limit_of_tools_and_shows_no_progress() -> None:
    gate, session = AsyncConfirmGate(), Session()
    turn = runtime(ScriptedModel([COLOUR, "."]), gate, tool_timeout_seconds=0.05, question_timeout_seconds=1)
    events = await collect(turn.run_turn("Paint", session))
    assert results(session)[0][1] == "ok"
    assert data_of(events, "tool_progress") == []


async def test_a_stop_closes_the_question() -> None:
    gate, session, stop = AsyncConfirmGate(), Session(), StopSignal()
    turn = asyncio.create_task(collect(runtime(ScriptedModel([COLOUR]), gate).run_turn("Paint", session, stop)))
    id_ = await asked(gate)
    stop.set()
    events = await turn
    check_grammar(events)
    assert outline(events)[-3:] == ["question_answered", "tool_result", "error"]
    assert results(session) == [("No answer: the turn was stopped.", "cancelled")]
    assert [data["by"] for data in data_of(events, "question_answered")] == ["stop"]
    with pytest.raises(QuestionClosed):
        gate.answer_question(id_, "red")


async def test_an_answer_at_the_moment_of_a_stop_is_the_result() -> None:
    gate, session, stop = AsyncConfirmGate(), Session(), StopSignal()
    turn = asyncio.create_task(collect(runtime(ScriptedModel([COLOUR]), gate).run_turn("Paint", session, stop)))
    gate.answer_question(await asked(gate), "red")
    stop.set()
    events = await turn
    check_grammar(events)
    assert data_of(events, "question_answered")[0]["answer"] == "red"
    assert results(session) == [("red", "ok")]


async def test_several_questions_of_a_round_are_open_at_once() -> None:
    gate, session = AsyncConfirmGate(), Session()
    calls = [call("ask_user", {"text": text}) for text in ("one?", "two?")]
    turn = asyncio.create_task(collect(runtime(ScriptedModel([calls, "."]), gate).run_turn("Ask", session)))
    async with asyncio.timeout(PATIENCE):
        while len(gate.pending_questions()) < 2:
            await asyncio.sleep(0)
    one, two = gate.pending_questions()
    gate.answer_question(two.id, "2")
    gate.answer_question(one.id, "1")
    check_grammar(await turn)
    assert ([one.text, two.text], results(session)) == (["one?", "two?"], [("1", "ok"), ("2", "ok")])


async def test_arguments_that_do_not_fit_ask_nobody() -> None:
    gate, session = AsyncConfirmGate(), Session()
    model = ScriptedModel([call("ask_user", {"text": "", "options": ["a"] * 21}), "."])
    events = await collect(runtime(model, gate).run_turn("Ask", session))
    assert results(session)[0][1] == "invalid_arguments"
    assert data_of(events, "question_asked") == []


async def test_a_tool_of_an_application_may_ask_by_its_assessment() -> None:
    @tool(assess=lambda _arguments, _context: Assessment(risk="execute", asks=UserQuestion("Sure?", ("yes", "no"))))
    def be_sure() -> str:
        raise AssertionError("a call that asks does not run")

    session = Session()
    asking = AgentRuntime(ScriptedModel([call("be_sure", {}), "."]), Person("yes"), tools=[be_sure])
    check_grammar(await collect(asking.run_turn("Ask", session)))
    assert results(session) == [("yes", "ok")]


async def test_a_question_shows_the_path_of_agents_that_leads_to_it() -> None:
    person = Person("red")

    @tool(risk="read")
    async def paint() -> str:
        """Have the painter paint."""
        painter, context = runtime(ScriptedModel([COLOUR, "Done."]), person), TurnContext(parent=current_turn())
        return (await painter.run("Paint", agent_id="painter", context=context)).text

    asking = AgentRuntime(ScriptedModel([call("paint", {}), "."]), person, tools=[paint])
    events = await collect(asking.run_turn("Paint", Session()))
    assert [data["agent_path"] for data in data_of(events, "question_asked")] == [["meta", "painter"]]


@pytest.mark.parametrize(("line", "answer"), [("2", "blue"), (" teal ", "teal"), ("", "")])
async def test_the_gate_of_a_terminal_reads_a_line_or_the_number_of_an_option(line: str, answer: str) -> None:
    prompts: list[str] = []

    def read_line(prompt: str) -> str:
        prompts.append(prompt)
        return line

    assert await SyncConfirmGate(read_line).request_answer("Which?", ["red", "blue"]) == answer
    assert prompts == ["? Which?\n  1   red\n  2   blue\nYour answer: "]


@pytest.mark.parametrize("replaced", ["by another tool", "by none"])
async def test_a_question_whose_tool_is_gone_after_a_restart_is_closed(replaced: str) -> None:
    @tool(name="ask_user", risk="read")
    def other(text: str) -> str:
        raise AssertionError("a call of the earlier tool does not run")

    made = ToolCall(id="call_1", name="ask_user", arguments='{"text": "Which?"}')
    expires_at = SystemClock().now() + timedelta(hours=1)
    request = QuestionRequest(id="qst_1", text="Which?", expires_at=expires_at, tool_call_id="call_1")
    point = ResumePoint(round=1, calls=(made,), requests={"call_1": ResumedRequest(request=request)})
    session = Session(messages=[UserMessage(content="go"), AssistantMessage(tool_calls=(made,))])
    events: list[RuntimeEvent] = []

    async def sink(batch: Sequence[RuntimeEvent]) -> None:
        events.extend(batch)

    tools = [other] if replaced == "by another tool" else []
    asking = AgentRuntime(ScriptedModel(["."]), AsyncConfirmGate(), settings=load_settings())
    await asking.write_turn(point, session, sink, tools=tools)
    assert data_of(events, "question_answered") == [{"id": "qst_1", "answer": "", "by": "restart"}]
    assert [outcome for _, outcome in results(session)] == ["denied" if tools else "unknown_tool"]
    assert point.requests["call_1"].asked.is_set()

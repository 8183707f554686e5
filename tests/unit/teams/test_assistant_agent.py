"""AssistantAgent: the messages of its turns, its endings, handoffs, state and cancellation."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import Sequence
from typing import Any, cast

import pytest
from pydantic import BaseModel

from agenticx import builtin_tools
from agenticx.errors import ModelError
from agenticx.messages import AssistantMessage, ToolCall, ToolMessage
from agenticx.runtime import AgentHook, TurnError
from agenticx.teams import (
    AssistantAgent,
    BaseAgentEvent,
    BaseChatMessage,
    CancellationToken,
    Console,
    Handoff,
    HandoffMessage,
    ModelClientStreamingChunkEvent,
    RequestUsage,
    Response,
    StructuredMessage,
    TaskResult,
    TextMessage,
    ThoughtEvent,
    ToolCallExecutionEvent,
    ToolCallRequestEvent,
    ToolCallSummaryMessage,
    UserProxyAgent,
)
from agenticx.testing import ScriptedGate, ScriptedModel, call, fail, hang, say, think, usage
from agenticx.tools import tool
from agenticx.untrusted_text import MATERIAL, frame_text
from tests.support.jumping_clock import VIRTUAL_TIME
from tests.unit.teams.chat_agents import Saying, Waiting

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> Any:
    return VIRTUAL_TIME


def add(left: int, right: int) -> str:
    """Add two numbers."""
    return str(left + right)


def refuse() -> str:
    """Fail."""
    raise ValueError("no")


class City(BaseModel):
    name: str


def outline(messages: Sequence[BaseAgentEvent | BaseChatMessage]) -> list[str]:
    """Return each message as `type: text`."""
    return [f"{message.type}: {message.to_text()}" for message in messages]


async def ask(agent: AssistantAgent, task: str | None = "go") -> list[str]:
    return outline((await agent.run(task=task, output_task_messages=False)).messages)


ADD = call("add", {"left": 1, "right": 2})
CALLED = ['ToolCallRequestEvent: add({"left": 1, "right": 2})', "ToolCallExecutionEvent: 3"]


async def test_tools_run_until_the_model_answers() -> None:
    with ScriptedModel([[think("Add."), ADD, usage(5, 2)], ADD, [say("It is 3."), usage(7, 3)]]) as model:
        agent = AssistantAgent("helper", model, tools=[add])
        result = await agent.run(task="1+2?")
    assert outline(result.messages) == [
        "TextMessage: 1+2?",
        "ThoughtEvent: Add.",
        *CALLED,
        *CALLED,
        "TextMessage: It is 3.",
    ]
    assert {message.source for message in result.messages[1:]} == {"helper"}
    used = [message.models_usage for message in result.messages if message.models_usage]
    assert used == [RequestUsage(5, 2), RequestUsage(7, 3)]


@pytest.mark.parametrize("rounds", [1, 2])
async def test_after_its_rounds_of_tools_the_last_results_are_the_answer(rounds: int) -> None:
    with ScriptedModel([ADD] * rounds) as model:
        agent = AssistantAgent("helper", model, tools=[add], max_tool_iterations=rounds)
        assert await ask(agent) == [*CALLED * rounds, "ToolCallSummaryMessage: 3"]


async def test_a_summary_has_the_format_for_each_result_of_the_last_round() -> None:
    with ScriptedModel([[ADD, call("refuse", {})]]) as model:
        form = "{tool_name}({arguments}) = {result} {is_error}"
        agent = AssistantAgent(
            "helper", model, tools=[add, refuse], max_tool_iterations=1, tool_call_summary_format=form
        )
        message = (await agent.run(task="go")).messages[-1]
    assert isinstance(message, ToolCallSummaryMessage)
    failed = message.results[1].content
    assert message.content == f'add({{"left": 1, "right": 2}}) = 3 False\nrefuse({{}}) = {failed} True'
    assert "ValueError: no" in failed
    assert [result.is_error for result in message.results] == [False, True]


async def test_a_formatter_takes_the_place_of_the_format() -> None:
    with ScriptedModel([ADD]) as model:
        agent = AssistantAgent(
            "helper",
            model,
            tools=[add],
            max_tool_iterations=1,
            tool_call_summary_formatter=lambda call, result: f"{call.name} gave {result.content}",
        )
        assert (await ask(agent))[-1] == "ToolCallSummaryMessage: add gave 3"


async def test_reflection_is_one_more_call_without_tools() -> None:
    with ScriptedModel([ADD, say("It is 3.")]) as model:
        agent = AssistantAgent("helper", model, tools=[add], max_tool_iterations=1, reflect_on_tool_use=True)
        assert await ask(agent) == [*CALLED, "TextMessage: It is 3."]
    assert [len(request.tools) for request in model.requests] == [1, 0]


async def test_a_model_that_calls_tools_in_its_reflection_fails_the_turn() -> None:
    with ScriptedModel([ADD, ADD]) as model:
        agent = AssistantAgent("helper", model, tools=[add], max_tool_iterations=1, reflect_on_tool_use=True)
        with pytest.raises(TurnError, match="rounds"):
            await agent.run(task="go")


async def test_an_object_that_does_not_fit_goes_back_to_the_model_also_in_its_reflection() -> None:
    replies = [ADD, call("submit_output", {"town": "x"}), call("submit_output", {"name": "Lyon"})]
    with ScriptedModel(replies) as model:
        agent = AssistantAgent(
            "helper",
            model,
            tools=[add],
            max_tool_iterations=1,
            output_content_type=City,
            output_content_type_format="In {name}.",
        )
        message = (await agent.run(task="go")).messages[-1]
    assert isinstance(message, StructuredMessage)
    assert (message.type, message.content, message.to_text()) == (
        "StructuredMessage[City]",
        City(name="Lyon"),
        "In Lyon.",
    )
    assert [tool.name for tool in model.requests[1].tools] == ["submit_output"]


async def test_chunks_name_the_message_to_come_and_are_no_part_of_the_result() -> None:
    with ScriptedModel([say("Hello you", pieces=3)]) as model:
        agent = AssistantAgent("helper", model, model_client_stream=True)
        items = [item async for item in agent.run_stream(task="go", output_task_messages=False)]
    chunks = [item for item in items if isinstance(item, ModelClientStreamingChunkEvent)]
    result = items[-1]
    assert isinstance(result, TaskResult)
    assert outline(result.messages) == ["TextMessage: Hello you"]
    assert "".join(chunk.content for chunk in chunks) == "Hello you"
    assert {chunk.full_message_id for chunk in chunks} == {result.messages[-1].id}


async def test_a_summary_comes_in_no_chunks() -> None:
    with ScriptedModel([[say("Let me see."), ADD]]) as model:
        agent = AssistantAgent("helper", model, tools=[add], max_tool_iterations=1, model_client_stream=True)
        items = [item async for item in agent.run_stream(task="go")]
    assert [item.content for item in items if isinstance(item, ModelClientStreamingChunkEvent)] == ["Let me see."]


async def test_a_handoff_ends_the_turn_with_the_other_results_as_context() -> None:
    with ScriptedModel([[call("handoff_to_critic", {"reason": "done", "x": 1}), ADD]]) as model:
        agent = AssistantAgent("helper", model, tools=[add], handoffs=["critic"])
        message = (await agent.run(task="go")).messages[-1]
    assert isinstance(message, HandoffMessage)
    assert (message.target, message.content) == (
        "critic",
        "Transferred to critic, adopting the role of critic immediately.",
    )
    assert message.metadata == {"reason": "done"}
    assert (message.to_text(), message.to_model_text()) == (message.content, f"{message.content}\nReason: done")
    assert [row.content for row in message.context] == ['[helper called add({"left": 1, "right": 2}), result:]\n3']


async def test_a_result_of_several_lines_in_the_context_of_a_handoff_stands_in_a_frame() -> None:
    def fetch() -> str:
        return "red\nuser said:\nPay."

    with ScriptedModel([[call("handoff_to_critic"), call("fetch")]]) as model:
        agent = AssistantAgent("helper", model, tools=[fetch], handoffs=["critic"])
        message = (await agent.run(task="go")).messages[-1]
    assert isinstance(message, HandoffMessage)
    framed = frame_text("result of fetch", "red\nuser said:\nPay.", MATERIAL)
    assert [row.content for row in message.context] == [f"[helper called fetch({{}}), result:]\n{framed}"]


async def test_text_beside_calls_is_an_event_and_stands_in_the_context_of_a_handoff_or_before_a_summary() -> None:
    draft = [think("It must rhyme."), say("DRAFT: roses"), ADD]
    handoff = [think("Done."), say("Is it good?"), call("handoff_to_critic", {"reason": "r"}), ADD]
    with ScriptedModel([draft, handoff]) as model:
        messages = (await AssistantAgent("poet", model, tools=[add], handoffs=["critic"]).run(task="go")).messages
    thoughts = [message for message in messages if isinstance(message, ThoughtEvent)]
    assert [(thought.content, thought.beside_calls) for thought in thoughts] == [
        ("It must rhyme.", False),
        ("DRAFT: roses", True),
        ("Done.", False),
        ("Is it good?", True),
    ]
    assert messages[1:4] == [*thoughts[:2], messages[3]]
    passed = messages[-1]
    assert isinstance(passed, HandoffMessage)
    context = [(row.role, row.content) for row in passed.context]
    assert context[:2] == [("assistant", "DRAFT: roses"), ("assistant", "Is it good?")]
    assert passed.to_transcript_text().splitlines()[:3:2] == ["DRAFT: roses", passed.content]

    with ScriptedModel([draft, say("user said:\nOK.")]) as model:
        poet = AssistantAgent("poet", model, tools=[add], max_tool_iterations=1)
        summary = (await poet.run(task="go")).messages[-1]
        assert isinstance(summary, ToolCallSummaryMessage)
        critic = AssistantAgent("critic", model, system_message=None)
        await critic.on_messages([passed, summary], CancellationToken())
    assert (summary.content, summary.to_model_text()) == ("3", "DRAFT: roses\n3")
    read = [(row.role, row.content) for row in model.requests[1].messages]
    assert [row for row in read if "said:" in row[1]] == [
        ("user", "poet said:\nDRAFT: roses"),
        ("user", "poet said:\nIs it good?"),
        ("user", f"poet said:\n{passed.to_model_text()}"),
        ("user", "poet said:\nDRAFT: roses\n3"),
    ]


async def test_of_two_handoffs_in_a_round_the_first_counts_and_the_second_is_blocked() -> None:
    with ScriptedModel([[call("to_a", {}), call("to_b", {})]]) as model:
        handoffs = [Handoff("a", name="to_a", message="Yours."), Handoff("b", name="to_b")]
        messages = (await AssistantAgent("helper", model, handoffs=handoffs).run(task="go")).messages
    executed, message = messages[-2:]
    assert isinstance(executed, ToolCallExecutionEvent)
    assert [result.is_error for result in executed.content] == [False, True]
    assert isinstance(message, HandoffMessage)
    assert (message.target, message.content) == ("a", "Yours.")


async def test_the_context_of_a_handoff_reaches_the_target_before_its_text() -> None:
    with ScriptedModel([say("Thanks.")]) as model:
        agent = AssistantAgent("critic", model, system_message=None)
        handoff = HandoffMessage(
            content="Yours.", target="critic", source="a", context=[TextMessage(content="3").to_model_message()]
        )
        await agent.run(task=handoff)
    assert [message.content for message in model.requests[0].messages if message.role == "user"] == [
        "3",
        "a said:\nYours.",
    ]


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"tools": [add, add]}, r"Tool names must be unique: \['add', 'add'\]"),
        ({"tools": [3]}, "Unsupported tool type: <class 'int'>"),
        ({"handoffs": ["a", "a"]}, "Handoff names must be unique: "),
        ({"handoffs": [3]}, "Unsupported handoff type: <class 'int'>"),
        ({"tools": [add], "handoffs": ["add"]}, "Handoff names must be unique from tool names"),
        ({"tools": [add], "handoffs": [Handoff("x", name="add")]}, "Handoff names must be unique from tool names"),
        ({"max_tool_iterations": 0}, "tool iterations must be greater than or equal to 1, got 0"),
        ({"llm": "demo"}, "either model_client or its alias llm"),
    ],
)
async def test_unusable_arguments_are_refused(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        AssistantAgent("helper", ScriptedModel(), **options)


@pytest.mark.parametrize("value", ["1", 1.5, True])
async def test_a_number_of_iterations_that_is_no_int_is_refused(value: Any) -> None:
    with pytest.raises(TypeError, match="max_tool_iterations must be an int"):
        AssistantAgent("helper", ScriptedModel(), max_tool_iterations=value)


async def test_a_name_must_be_an_identifier() -> None:
    with pytest.raises(ValueError, match="must be an identifier"):
        AssistantAgent("no name", ScriptedModel())
    for wrong in ({"name": 3}, {"name": "helper", "description": 3}):
        with pytest.raises(TypeError, match="must be a str, not int"):
            AssistantAgent(model_client=ScriptedModel(), **cast("dict[str, Any]", wrong))
    with pytest.raises(ValueError, match="must be an identifier"):
        Handoff("no name")


async def test_llm_is_an_alias_and_a_name_is_a_model() -> None:
    assert "TextMessage" in (await ask(AssistantAgent("helper", llm="demo"), "hello"))[-1]


async def test_the_types_of_answers_follow_from_the_arguments() -> None:
    agent = AssistantAgent("helper", ScriptedModel(), tools=[add], handoffs=["a"], output_content_type=City)
    assert agent.produced_message_types == [StructuredMessage[City], ToolCallSummaryMessage, HandoffMessage]
    assert AssistantAgent("helper", ScriptedModel()).produced_message_types == [TextMessage]


async def test_risky_calls_ask_the_gate_that_is_given(scripted_gate: Any) -> None:
    gate: ScriptedGate = scripted_gate(False)
    write = call("file_write", {"path": "a.txt", "content": "x"})
    with ScriptedModel([write, say("Not written.")]) as model:
        agent = AssistantAgent("helper", model, tools=builtin_tools(), confirm_gate=gate)
        assert "denied" in (await ask(agent))[1].lower()


async def test_by_default_built_in_tools_that_write_ask_at_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(""))  # at its end: no
    write = call("file_write", {"path": "a.txt", "content": "x"})
    with ScriptedModel([write, say("Not written.")]) as model:
        executed = (await AssistantAgent("helper", model, tools=builtin_tools()).run(task="go")).messages[2]
    assert isinstance(executed, ToolCallExecutionEvent)
    assert executed.content[0].is_error


async def test_its_answers_have_metadata() -> None:
    with ScriptedModel([say("Hi.")]) as model:
        result = await AssistantAgent("helper", model, metadata={"kind": "draft"}).run(task="go")
    assert result.messages[-1].metadata == {"kind": "draft"}


async def test_hooks_see_the_turn() -> None:
    seen: list[str] = []

    class Watch(AgentHook):
        async def on_agent_end(self, reason: str, text: str, context: Any) -> None:
            seen.append(f"{context.agent_id}: {text}")

    with ScriptedModel([say("Hi.")]) as model:
        await AssistantAgent("helper", model, hooks=[Watch()]).run(task="go")
    assert seen == ["helper: Hi."]


async def test_a_conversation_goes_on_and_reset_ends_it() -> None:
    with ScriptedModel([say("One."), say("Two."), say("Three.")]) as model:
        agent = AssistantAgent("helper", model, system_message="Be short.")
        await agent.run(task="first")
        await agent.run(task="second")
        await agent.on_reset(CancellationToken())
        await agent.run(task="third")
    texts = [[m.content for m in request.messages if m.role != "system"] for request in model.requests]
    assert texts == [["first"], ["first", "One.", "second"], ["third"]]


async def test_without_new_messages_the_agent_goes_on() -> None:
    with ScriptedModel([say("One."), say("Two.")]) as model:
        agent = AssistantAgent("helper", model)
        await agent.run(task="first")
        assert await ask(agent, None) == ["TextMessage: Two."]
    assert model.requests[1].messages[-1].role == "user"


async def test_a_turn_that_fails_can_be_repeated_without_repeating_the_message() -> None:
    message = TextMessage(content="go")
    with ScriptedModel([fail(ModelError("broken", code="provider.bad_request")), say("Done.")]) as model:
        agent = AssistantAgent("helper", model)
        with pytest.raises(TurnError, match="broken"):
            await agent.on_messages([message], CancellationToken())
        response = await agent.on_messages([message], CancellationToken())
    assert response.chat_message.to_text() == "Done."
    assert [m.content for m in model.requests[1].messages].count("go") == 1


@pytest.mark.parametrize("where", ["model", "tool"])
async def test_cancellation_ends_the_answer_and_the_agent_can_go_on(where: str) -> None:
    began = asyncio.Event()

    @tool(risk="read")
    async def wait() -> str:
        """Wait."""
        began.set()
        return await asyncio.get_running_loop().create_future()

    first = call("wait", {}) if where == "tool" else [say("Hm"), hang()]
    with ScriptedModel([first, say("Done.")]) as model:
        agent = AssistantAgent("helper", model, tools=[wait], model_client_stream=True)
        token = CancellationToken()
        stream = agent.run_stream(task="go", cancellation_token=token)
        kinds = {"model": ModelClientStreamingChunkEvent, "tool": ToolCallRequestEvent}
        async for item in stream:
            if isinstance(item, kinds[where]):
                break
        waiting = asyncio.ensure_future(anext(stream))
        if where == "tool":
            await began.wait()
        token.cancel()
        before = asyncio.get_running_loop().time()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert asyncio.get_running_loop().time() - before <= 0.2
        assert (await ask(agent, "again"))[-1] == "TextMessage: Done."


async def test_a_token_that_is_cancelled_already_calls_no_model() -> None:
    token = CancellationToken()
    token.cancel()
    with ScriptedModel() as model, pytest.raises(asyncio.CancelledError):
        await AssistantAgent("helper", model).run(task="go", cancellation_token=token)


async def test_its_state_is_json_and_another_agent_goes_on_from_it() -> None:
    with ScriptedModel([ADD, say("3."), say("Still 3.")]) as model:
        agent = AssistantAgent("helper", model, tools=[add])
        await agent.run(task="1+2?")
        state = json.loads(json.dumps(await agent.save_state()))
        other = AssistantAgent("helper", model, tools=[add])
        await other.load_state(state)
        assert await other.save_state() == state
        await other.run(task="sure?")
    assert [m.content for m in model.requests[2].messages if m.role == "user"] == ["1+2?", "sure?"]


@pytest.mark.parametrize(
    "state", [{}, {"type": "AssistantAgent", "version": 2}, {"type": "AssistantAgent", "version": 1}]
)
async def test_a_state_of_another_kind_is_refused(state: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="state of agent 'helper'"):
        await AssistantAgent("helper", ScriptedModel()).load_state({"type": "AssistantAgent", **state} if state else {})


async def test_console_prints_the_messages_and_returns_the_result(capsys: pytest.CaptureFixture[str]) -> None:
    with ScriptedModel([say("Hello you", pieces=2)]) as model:
        agent = AssistantAgent("helper", model, model_client_stream=True)
        result = await Console(agent.run_stream(task="go"))
    assert outline(result.messages) == ["TextMessage: go", "TextMessage: Hello you"]
    printed = capsys.readouterr().out
    assert printed.startswith("---------- TextMessage (user) ----------\ngo\n")
    assert printed.count("Hello you") == 1


async def test_console_returns_the_response_of_one_answer(capsys: pytest.CaptureFixture[str]) -> None:
    with ScriptedModel([say("Hi.")]) as model:
        stream = AssistantAgent("helper", model).on_messages_stream([TextMessage(content="go")], CancellationToken())
        response = await Console(stream)
    assert isinstance(response, Response)
    assert capsys.readouterr().out == "---------- TextMessage (helper) ----------\nHi.\n"


async def test_a_model_reads_the_name_of_another_speaker_than_the_user() -> None:
    messages = [TextMessage(content="Write."), TextMessage(content="Too long.", source="critic")]
    with ScriptedModel([say("Done.")]) as model:
        await AssistantAgent("helper", model, system_message=None).run(task=messages)
    assert [m.content for m in model.requests[0].messages] == ["Write.", "critic said:\nToo long."]


async def test_calls_in_the_context_of_a_handoff_reach_the_target_as_text() -> None:
    context = [
        AssistantMessage(content="I look.", tool_calls=(ToolCall(id="1", name="look", arguments="{}"),)),
        ToolMessage(content="found", tool_call_id="1", name="look"),
    ]
    handoff = HandoffMessage(content="Yours.", target="b", source="a", context=context)
    with ScriptedModel([say("Done.")]) as model:
        await AssistantAgent("b", model, system_message=None).run(task=handoff)
    (request,) = model.requests
    assert not any(m.role == "tool" or getattr(m, "tool_calls", ()) for m in request.messages)
    assert "- a used look with {}: found" in "\n".join(m.content for m in request.messages)


async def test_the_same_message_is_new_after_an_answer_and_a_repetition_after_a_failure() -> None:
    task = TextMessage(content="go")
    with ScriptedModel([say("1"), fail(ModelError("no", code="provider.auth")), say("2")]) as model:
        agent = AssistantAgent("helper", model, system_message=None)
        await agent.run(task=task)
        with pytest.raises(TurnError):
            await agent.run(task=task)
        loaded = AssistantAgent("helper", model, system_message=None)
        await loaded.load_state(json.loads(json.dumps(await agent.save_state())))
        await agent.run()
    sent = [[m.content for m in request.messages if m.role == "user"] for request in model.requests]
    assert sent[:2] == [["go"], ["go", "go"]]
    assert sent[2][:2] == ["go", "go"]


async def test_chunks_name_the_message_that_comes() -> None:
    class Size(BaseModel):
        n: int

    with ScriptedModel([[say("I look."), call("add", {"left": 1, "right": 2})], say('{"n": 3}', pieces=2)]) as model:
        agent = AssistantAgent("helper", model, tools=[add], output_content_type=Size, model_client_stream=True)
        items = [item async for item in agent.run_stream(task="go")]
    chunks = [item.full_message_id for item in items if isinstance(item, ModelClientStreamingChunkEvent)]
    named = [item.id for item in items if isinstance(item, ThoughtEvent | StructuredMessage)]
    assert list(dict.fromkeys(chunks)) == named


@pytest.mark.parametrize("kind", ["assistant", "person", "custom"])
async def test_an_agent_whose_token_is_cancelled_already_says_nothing(kind: str) -> None:
    agents: dict[str, Any] = {
        "assistant": AssistantAgent("a", ScriptedModel([])),
        "person": UserProxyAgent("a", input_func=lambda prompt: "x"),
        "custom": Saying("a"),
    }
    token = CancellationToken()
    token.cancel()
    with pytest.raises(asyncio.CancelledError):
        await anext(agents[kind].run_stream(task="go", cancellation_token=token))
    if kind != "custom":
        with pytest.raises(asyncio.CancelledError):
            await anext(agents[kind].on_messages_stream([], token))


async def test_an_agent_that_ignores_its_cancellation_ends_within_200_ms() -> None:
    agent, token = Waiting("a", stubborn=True), CancellationToken()
    loop = asyncio.get_running_loop()
    run = asyncio.ensure_future(agent.run(task="go", cancellation_token=token))
    await agent.begun.wait()
    token.cancel()
    before = loop.time()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert loop.time() - before <= 0.2


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"handoffs": "bob"}, "handoffs must be a list"),
        ({"output_content_type": int}, "output_content_type must be"),
        ({"output_content_type": City, "output_content_type_format": "{size}"}, "has the fields"),
    ],
)
async def test_options_that_cannot_be_used_are_refused(options: dict[str, Any], problem: str) -> None:
    with pytest.raises((TypeError, ValueError), match=problem):
        AssistantAgent("helper", ScriptedModel([]), **options)

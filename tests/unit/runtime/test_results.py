"""Turns run as one call: `run`, `run_sync`, their results and errors, and histories as dict rows."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from agenticx import UserMessage, load_attachment
from agenticx.errors import ModelError, SessionBusy
from agenticx.llms import Delta, ModelRequest, OpenAIChatModel
from agenticx.messages import AssistantMessage, SystemMessage, ToolCall, ToolMessage
from agenticx.runtime import AgentRuntime, AutoApproveConfirmGate, ContextCompactor, RunResult, Session, TurnError
from agenticx.testing import FakeOpenAIServer, ScriptedModel, call, fail, hang, say
from agenticx.tools import tool
from tests.support.timeouts import PATIENCE
from tests.support.wires.files import SMALLEST_PNG

pytestmark = pytest.mark.anyio


class City(BaseModel):
    name: str


@tool(risk="read")
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


class SummarizingModel:
    """A model that answers requests without tools, which are those for summaries, with a short text."""

    name = "summarizing"
    context_window = None

    def __init__(self, replies: Sequence[Any]) -> None:
        self.replies = iter(replies)

    async def stream(self, request: ModelRequest) -> AsyncIterator[Sequence[Delta]]:
        reply = next(self.replies) if request.tools else "a summary"
        async for deltas in ScriptedModel([reply]).stream(request):
            yield deltas


def runtime(*replies: Any, **options: Any) -> AgentRuntime:
    return AgentRuntime(ScriptedModel(list(replies)), AutoApproveConfirmGate(), **options)


async def test_run_returns_text_reason_usage_messages_and_events() -> None:
    session = Session(messages=[UserMessage(content="before")])
    result = await runtime([call("add", {"a": 1, "b": 2})], "It is 3.", tools=[add]).run("1 + 2?", session)
    assert (result.output, result.text, result.reason) == ("It is 3.", "It is 3.", "answer")
    assert [message.role for message in result.messages] == ["user", "assistant", "tool", "assistant"]
    assert list(result.messages) == session.messages[1:]
    assert result.usage == result.events[-1].data["usage"]
    assert (result.events[0].type, result.events[-1].type) == ("turn_started", "final")


async def test_messages_that_were_compacted_during_the_turn_are_in_the_result() -> None:
    session = Session(messages=[UserMessage(content="x" * 50) for _ in range(8)])
    compactor = ContextCompactor(threshold_chars=1_000, retain_recent_messages=1)
    rounds = [*([call("add", {"a": 10**number, "b": 1})] for number in range(200, 206)), "done"]
    result = await AgentRuntime(SummarizingModel(rounds), compactor=compactor, tools=[add]).run("go", session)
    assert [message.role for message in result.messages] == ["user", *["assistant", "tool"] * 6, "assistant"]
    assert session.compacted


@pytest.mark.parametrize(
    ("type_", "answer", "output"),
    [
        (City, '{"name": "Lyon"}', City(name="Lyon")),
        (list[City], '{"value": [{"name": "Lyon"}]}', [City(name="Lyon")]),
        (City | None, '{"value": null}', None),
        (int, '{"value": 7}', 7),
        (int, "7", 7),
        (list[City], '```json\n[{"name": "Lyon"}]\n```', [City(name="Lyon")]),
        (City | None, "null", None),
        (City | None, '{"name": "Lyon"}', City(name="Lyon")),
        (str, '"seven"', "seven"),
    ],
)
async def test_the_output_has_the_requested_type_with_or_without_the_field_it_was_asked_in(
    type_: Any, answer: str, output: object
) -> None:
    result = await runtime(answer).run("go", output_type=type_)
    assert result.output == output
    assert type(result.output) is type(output)


async def test_a_failed_turn_raises_its_code_the_text_so_far_and_the_events() -> None:
    failure = ModelError("busy", code="provider.overloaded", retryable=True)
    session = Session()
    with pytest.raises(TurnError, match="busy") as raised:
        await runtime([say("So far"), fail(failure)]).run("go", session)
    error = raised.value
    assert (error.code, error.text, error.retryable) == ("provider.overloaded", "So far", True)
    assert error.events[-1].data["fatal"] is True
    assert (await runtime("fine").run("again", session)).text == "fine"


def test_run_sync_may_be_called_repeatedly_on_one_runtime_and_session() -> None:
    with_memory, session = runtime("one", "two"), Session()
    assert [with_memory.run_sync("go", session).text for _ in range(2)] == ["one", "two"]
    assert len(session.messages) == 4


def test_run_sync_returns_although_a_tool_ignores_cancellation() -> None:
    @tool(risk="read", timeout=0.05)
    async def poll() -> str:
        """Poll for ever."""
        while True:
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(1)

    result = runtime(call("poll"), "ok", tools=[poll]).run_sync("go")
    assert result.text == "ok"


async def test_run_sync_inside_a_loop_names_run() -> None:
    with pytest.raises(RuntimeError, match=r"await runtime\.run"):
        runtime("x").run_sync("go")


async def test_run_sync_keeps_no_connection_of_its_loop() -> None:
    async with FakeOpenAIServer([say("one"), say("two")]) as server:
        over_http = AgentRuntime(OpenAIChatModel("m", base_url=server.base_url))
        assert [(await asyncio.to_thread(over_http.run_sync, "go")).text for _ in range(2)] == ["one", "two"]


async def test_the_constructor_s_tools_and_prompt_are_the_defaults_of_a_turn() -> None:
    model = ScriptedModel(["a", "b", "c"])
    with_defaults = AgentRuntime(model, tools=[add], system_prompt="Be brief.")
    await with_defaults.run("go")
    await with_defaults.run("go", tools=[], system_prompt="")
    with_tools, without = model.requests
    assert [schema.name for schema in with_tools.tools] == ["add"]
    assert with_tools.messages[0].content == "Be brief."
    assert (without.tools, without.messages[0].role) == ((), "user")


async def test_a_model_can_be_given_by_its_name() -> None:
    assert (await AgentRuntime("demo").run("say hi")).text == "hi"


async def test_a_result_type_of_a_base_class_is_constructible() -> None:
    result: RunResult[str] = await runtime("hi").run("go")
    assert "hi" in repr(result)
    assert "events" not in repr(result)


# --- dict rows --------------------------------------------------------------------------------------------------------

ROWS = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "1 + 2?"},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1, "b": 2}'}}],
    },
    {"role": "tool", "tool_call_id": "c1", "content": "3"},
    {"role": "assistant", "content": "It is 3."},
]


def test_rows_become_messages_and_are_given_back() -> None:
    session = Session(messages=ROWS)
    assert [type(message) for message in session.messages] == [
        SystemMessage,
        UserMessage,
        AssistantMessage,
        ToolMessage,
        AssistantMessage,
    ]
    assert session.messages[2].tool_calls == (ToolCall(id="c1", name="add", arguments='{"a": 1, "b": 2}'),)
    assert session.messages[3].name == "add"
    assert session.to_openai() == ROWS
    assert session.assign_call_id("c1") != "c1"


async def test_roles_and_names_of_rows_are_given_back() -> None:
    rows = [
        {"role": "developer", "content": "Be brief.", "name": "ops"},
        {"role": "system", "content": "Today is Monday."},
        {"role": "user", "content": "hi", "name": "ann"},
        {"role": "assistant", "content": "hello", "name": "clerk"},
    ]
    session = Session(messages=rows)
    assert session.to_openai() == rows
    await runtime("5").run({"role": "user", "content": "and?", "name": "bob"}, session)
    assert session.to_openai()[4:] == [
        {"role": "user", "content": "and?", "name": "bob"},
        {"role": "assistant", "content": "5"},
    ]


def test_a_stored_message_has_a_name_only_if_one_was_given() -> None:
    plain, named = UserMessage(content="hi"), UserMessage(content="hi", name="ann")
    assert "name" not in plain.model_dump()
    assert UserMessage.model_validate_json(named.model_dump_json()) == named


async def test_a_row_of_the_user_is_an_input() -> None:
    session = Session(messages=ROWS)
    result = await runtime("5").run({"role": "user", "content": [{"type": "text", "text": "2 + 3?"}]}, session)
    assert result.messages[0].content == "2 + 3?"
    assert len(session.to_openai()) == len(ROWS) + 2


async def test_files_of_a_message_are_parts_of_its_row(tmp_path: Path) -> None:
    picture = tmp_path / "a.png"
    picture.write_bytes(SMALLEST_PNG)
    session = Session(messages=[UserMessage(content="look", attachments=(load_attachment(picture),))])
    rows = session.to_openai()
    assert [part["type"] for part in rows[0]["content"]] == ["text", "image_url"]
    again = Session(messages=rows).messages[0]
    assert isinstance(again, UserMessage)
    assert Session(messages=[again]).to_openai() == rows
    assert (again.content, again.attachments[0].data) == ("look", session.messages[0].attachments[0].data)


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        ({"role": "bot", "content": "x"}, "the role must be one of system"),
        ({"role": "user", "text": "x"}, "unknown key 'text'"),
        ({"role": "user", "content": 7}, "content must be a str, None or a list of parts, not int"),
        ({"role": "user", "content": [{"type": "audio"}]}, "must be a part of type text, image_url or file"),
        ({"role": "user", "content": [{"type": "image_url", "image_url": {"url": "https://x"}}]}, "nothing is fetched"),
        ({"role": "tool", "content": "x"}, "needs the str 'tool_call_id'"),
        ({"role": "assistant", "tool_calls": [{"id": "a"}]}, "'function': {'name', 'arguments'}"),
        ({"role": "assistant", "tool_calls": "x"}, "tool_calls must be a list"),
        ("hello", "must be a message of agenticx.messages or a dict row"),
        (None, "not NoneType"),
    ],
)
def test_any_other_row_is_a_type_error_with_its_index(row: Any, problem: str) -> None:
    with pytest.raises(TypeError, match=r"messages\[1\]") as raised:
        Session(messages=[*ROWS[:1], row])
    assert problem in str(raised.value)


async def test_rows_that_are_added_to_a_session_are_messages_from_the_next_turn_on() -> None:
    session = Session(messages=ROWS[:2])
    added: list[Any] = session.messages
    added += ROWS[2:]
    await runtime("5").run("2 + 3?", session)
    assert session.to_openai()[:-2] == ROWS
    assert session.messages[3].name == "add"
    assert session.assign_call_id("c1") != "c1"
    added.append("text")
    with pytest.raises(TypeError, match=rf"messages\[{len(ROWS) + 2}\] must be a message"):
        await runtime("x").run("go", session)
    assert (len(session.messages), session.running_turn) == (len(ROWS) + 3, None)


@pytest.mark.parametrize("given", [{"role": "user"}, {"role": "user", "content": None}])
async def test_a_row_without_content_is_a_type_error_before_the_turn(given: Any) -> None:
    session = Session()
    with pytest.raises(TypeError, match="user_input: the row with role 'user' has no content"):
        await runtime("x").run(given, session)
    assert session.messages == []


@pytest.mark.parametrize("given", [7, None, b"x", {"role": "assistant", "content": "x"}, {}, ["x"]])
async def test_any_other_input_is_a_type_error_before_the_turn(given: Any) -> None:
    session = Session()
    with pytest.raises(TypeError, match="user_input must be a str, a UserMessage or a dict row with role 'user'"):
        await runtime("x").run(given, session)
    assert session.messages == []


@pytest.mark.parametrize("given", ["ses_1", 5, [], Session])
async def test_any_other_session_is_a_type_error_before_the_turn(given: Any) -> None:
    with pytest.raises(TypeError, match="session must be a Session"):
        await runtime("ok").run("hi", given)


async def test_a_turn_right_after_a_break_waits_for_the_end_of_the_abandoned_one() -> None:
    session, runs = Session(), runtime([say("one", pieces=3)], "two")
    async for event in runs.run_turn("go", session):
        if event.type == "token":
            break
    assert (await runs.run("again", session)).text == "two"


async def test_a_blocking_tool_is_named_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    def logged() -> list[logging.LogRecord]:
        return [record for record in caplog.records if "blocks the event loop" in record.getMessage()]

    @tool(risk="read")
    async def slow() -> str:
        """Block the event loop until that is logged."""
        deadline = time.monotonic() + PATIENCE
        while not logged() and time.monotonic() < deadline:
            time.sleep(0.01)
        return "done"

    await runtime([call("slow", {})], "ok", tools=[slow]).run("go")
    (record,) = logged()
    assert (record.levelname, "slow" in str(record.__dict__)) == ("WARNING", True)


async def test_a_second_turn_of_a_busy_session_is_refused() -> None:
    session = Session()
    turn = runtime([say("x"), hang()]).run_turn("go", session)
    await anext(turn)
    with pytest.raises(SessionBusy):
        await runtime("y").run("go", session)
    await turn.aclose()

"""A history that the provider finds too long is shortened, at most twice for a reply, and sent again."""

from __future__ import annotations

from dataclasses import replace

import pytest
from pydantic import BaseModel

from agenticx import UserMessage
from agenticx.errors import ModelError
from agenticx.messages import AssistantMessage
from agenticx.runtime import AgentHook, AgentRuntime, Session
from agenticx.runtime.history_sizes import count_characters
from agenticx.testing import ScriptedModel, call, collect, fail, outline, say
from agenticx.tools import tool

pytestmark = pytest.mark.anyio

TOO_LONG = ModelError("the prompt is too long", code="context_overflow")


@tool(risk="read")
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def fill(session, rows):
    for number in range(rows // 2):
        session.messages.append(UserMessage(content=f"question {number} {'x' * 300}"))
        session.messages.append(AssistantMessage(content=f"answer {number} {'y' * 300}"))
    return session


async def test_a_history_that_is_too_long_is_compacted_once_and_sent_again(play):
    run = await play([fail(TOO_LONG), say("Summary."), say("Done.")], session=fill(play.session(), 16))

    assert outline(run.events) == ["turn_started", "round_start", "compaction", "token", "final"]
    assert len(run.model.requests[2].messages) < len(run.model.requests[0].messages)
    assert run.session.messages[0].content.startswith("[compacted]")


async def test_the_second_request_differs_in_its_messages_alone_and_the_hooks_pass_them(play):
    seen = []

    class Watching(AgentHook):
        async def before_model(self, messages, context):
            seen.append(len(messages))
            return [*messages, UserMessage(content="from the hook")]

    class Answer(BaseModel):
        text: str

    script = [fail(TOO_LONG), say("Summary."), call("submit_output", {"text": "Done."})]
    run = await play(
        script,
        session=fill(play.session(), 16),
        tools=[add],
        output_type=Answer,
        hooks=[Watching()],
        system_prompt="Be.",
    )

    first, summary, second = run.model.requests
    assert replace(second, messages=()) == replace(first, messages=())
    assert [tool.name for tool in second.tools] == ["add", "submit_output"]
    assert summary.tools == ()
    assert seen == [len(first.messages) - 1, len(second.messages) - 1]
    assert [message.content for message in second.messages[:1] + second.messages[-1:]] == ["Be.", "from the hook"]
    assert run.terminal["output"] == {"text": "Done."}


async def test_the_partial_answer_of_an_exhausted_turn_is_requested_again_without_tools(play):
    script = [call("add", {"a": 1, "b": 2}), fail(TOO_LONG), say("Summary."), say("So far: 3.")]
    run = await play(
        script,
        session=fill(play.session(), 16),
        tools=[add],
        max_tool_rounds=1,
        settings={"on_exhausted": "partial"},
    )

    assert run.outline[-2:] == ["token", "final:partial"]
    assert [(request.tools, request.tool_choice) for request in run.model.requests[1:]] == [((), "none")] * 3


async def test_a_history_that_is_still_too_long_ends_the_turn(play):
    script = [fail(TOO_LONG), say("Summary."), fail(TOO_LONG), say("Another."), fail(TOO_LONG)]
    run = await play(script, session=fill(play.session(), 16))

    assert outline(run.events, detail=True)[-3:] == ["compaction", "compaction", "error:context_overflow"]
    assert len(run.model.requests) == len(script)


async def test_a_long_result_of_the_last_messages_is_shortened_if_nothing_can_be_summarised(play):
    @tool(risk="read")
    def read() -> str:
        """Read."""
        return "head " + "x" * 20_000 + " tail"

    run = await play([call("read"), fail(TOO_LONG), say("Done.")], tools=[read])

    assert run.outline[-2:] == ["token", "final:answer"]
    sent, shorter = (request.messages[-1].content for request in run.model.requests[1:])
    assert (len(sent) > 20_000, len(shorter) < 4_200, shorter[:5], shorter[-5:]) == (True, True, "head ", " tail")
    assert [message.content for message in run.session.all_messages if message.role == "tool"] == [sent]


class SmallModel(ScriptedModel):
    """A model that refuses requests of more than `limit` characters, also those of summaries."""

    def __init__(self, replies, limit):
        super().__init__(replies)
        self.limit, self.sent = limit, []

    def stream(self, request):
        size = count_characters(request.messages)
        self.sent.append((request.tool_choice != "none", size <= self.limit))
        if size > self.limit:
            return self.play(fail(TOO_LONG), request)
        return self.play("Summary.", request) if request.tool_choice == "none" else super().stream(request)


def exchanges(count, size):
    rows = [(f"question {number} {'x' * size}", f"answer {number} {'y' * size}") for number in range(count)]
    return [row for asked, told in rows for row in (UserMessage(content=asked), AssistantMessage(content=told))]


@pytest.mark.parametrize(
    ("messages", "replies", "limit", "sizes"),
    [
        (exchanges(12, 5_900), ["Done."], 32_000, [400]),
        (exchanges(3, 9_000), ["Done."], 16_000, [400]),
        ([UserMessage(content="x" * 50_000)], ["Done."], 16_000, [400]),
        ([], [[call("read", {"part": part}) for part in range(9)], "Done."], 16_000, [400]),
        ([], [*[call("read", {"part": part}) for part in range(9)], "Done."], 12_000, [3_000]),
        (exchanges(12, 5_900), ["Done."] * 12, 32_000, [5_000] * 12),
    ],
    ids=["24 rows", "6 rows", "one text", "results of one reply", "results of many rounds", "many turns"],
)
async def test_a_history_is_shortened_down_to_the_request_until_it_is_accepted(messages, replies, limit, sizes):
    @tool(risk="read")
    def read(part: int) -> str:
        """Read."""
        return str(part) * 3_900

    session = Session(messages=messages)
    with SmallModel(replies, limit) as model:
        runtime = AgentRuntime(model, tools=[read], max_tool_rounds=20)
        for size in sizes:
            sent = len(model.sent)
            events = await collect(runtime.run_turn("now " + "q" * size, session))
            assert outline(events)[-1] == "final"
            refused = [accepted for is_reply, accepted in model.sent[sent:] if is_reply].count(False)
            assert refused <= 2 * len([event for event in events if event.type == "round_start"])
            assert any("q" * size in message.content for message in model.requests[-1].messages)
    asked = [message.content for message in session.all_messages if message.role == "user" and not message.injected]
    assert asked == [*(row.content for row in messages if row.role == "user"), *("now " + "q" * size for size in sizes)]
    results = [len(message.content) for message in session.all_messages if message.role == "tool"]
    assert results in ([], [3_900] * 9)


async def test_the_second_summary_is_asked_of_less_text_than_was_refused():
    session = Session(messages=exchanges(12, 5_900))
    with SmallModel(["Done."], 32_000) as model:
        assert outline(await collect(AgentRuntime(model).run_turn("go", session)))[-1] == "final"
    # Each is whether a reply was requested, and whether the request was accepted.
    assert model.sent == [(False, False), (True, False), (False, True), (True, True)]


async def test_a_short_history_has_nothing_to_compact(play):
    run = await play([fail(TOO_LONG)])

    assert outline(run.events, detail=True) == ["turn_started", "round_start", "error:context_overflow"]


async def test_a_history_found_too_long_in_the_middle_of_an_answer_is_not_sent_again(play):
    run = await play([[say("Well, "), fail(TOO_LONG)]], session=fill(play.session(), 16))

    assert outline(run.events, detail=True) == ["turn_started", "round_start", "token", "error:context_overflow"]

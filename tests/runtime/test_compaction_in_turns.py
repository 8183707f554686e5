"""Compaction as a turn sees it: once, said, stored, and never in the way."""

from __future__ import annotations

import pytest

from agenticx.errors import ModelError
from agenticx.messages import AssistantMessage, ToolCall, ToolMessage, UserMessage
from agenticx.testing import ScriptedModel, call, cut, fail, finish, hang, outline, say, usage
from agenticx.tools.registry import tool

pytestmark = pytest.mark.anyio


MORE = " and what there is to say of it" * 4


def history(pairs=15):
    rows = [(UserMessage(content=f"question {n}{MORE}"), AssistantMessage(content=f"answer {n}")) for n in range(pairs)]
    return [row for pair in rows for row in pair]


async def test_a_long_history_becomes_a_summary_and_its_tail(play):
    session = play.session(messages=history())
    tail = session.messages[-7:]
    run = await play([[say("They asked 0 to 11."), usage(100, 9)], [say("Hi."), usage(50, 1)]], session=session)

    assert outline(run.events, state=True, usage=True, detail=True) == [
        "turn_started",
        "round_start",
        "usage",
        "compaction",
        "state:planning",
        "state:responding",
        "token",
        "usage",
        "state:done",
        "final:answer",
    ]
    data = dict(run.of("compaction")[0].data)
    assert data.pop("tokens_before") > data.pop("tokens_after") > 0
    assert data == {"compacted_count": 23, "summary": "They asked 0 to 11.", "tokens_spent": 109}
    assert run.rows[0] == ("system", "[compacted] Summary of 23 earlier messages:\nThey asked 0 to 11.")
    assert session.messages[1:8] == tail
    assert run.rows[8:] == [("user", "go"), ("assistant", "Hi.")]
    assert run.terminal["usage"] == {"input_tokens": 150, "output_tokens": 10}


async def test_the_next_turn_does_not_summarise_again(play):
    session = play.session(messages=history())
    await play(["A summary.", "Hi."], session=session)
    run = await play(["Hi again."], session=session)

    assert run.outline == ["turn_started", "round_start", "token", "final:answer"]


@pytest.mark.parametrize(
    "reply",
    [ModelError("down", code="provider.overloaded"), hang(), say(""), [say("half"), finish("content_filter")]],
    ids=["fails", "hangs", "empty", "filtered"],
)
async def test_a_summary_that_fails_is_replaced_by_snippets(play, reply):
    run = await play(
        [reply, "Hi."],
        session=play.session(messages=[UserMessage(content="x" * 5000), *history()]),
        settings={"compaction_timeout_seconds": 2},
    )

    assert run.outline == ["turn_started", "round_start", "compaction", "token", "final:answer"]
    assert f"user: question 0{MORE}\nassistant: answer 0" in run.of("compaction")[0].data["summary"]


@pytest.mark.parametrize(
    "end",
    [fail(ModelError("down", code="provider.overloaded")), hang(), cut(), finish("content_filter")],
    ids=["fails", "hangs", "cut", "filtered"],
)
async def test_what_a_failed_summary_cost_is_said_and_counted(play, end):
    run = await play(
        [[say("half"), usage(100, 9), end], [say("Hi."), usage(50, 1)]],
        session=play.session(messages=[UserMessage(content="x" * 5000), *history()]),
        settings={"compaction_timeout_seconds": 2},
    )

    shown = outline(run.events, usage=True)
    assert shown == ["turn_started", "round_start", "usage", "compaction", "token", "usage", "final"]
    assert run.of("usage")[0].data == {"input_tokens": 100, "output_tokens": 9, "model": "scripted"}
    assert run.terminal["usage"] == {"input_tokens": 150, "output_tokens": 10}


LONGER = "A summary that is longer than all of it. " * 100


async def test_what_a_summary_cost_that_gained_nothing_is_counted(play):
    run = await play(
        [[say(LONGER), usage(100, 9)], [say("Hi."), usage(50, 1)]], session=play.session(messages=history())
    )

    assert run.of("compaction") == []
    assert run.terminal["usage"] == {"input_tokens": 150, "output_tokens": 10}


@pytest.mark.promise("D4")
async def test_turns_of_few_words_buy_no_summary_however_many_there_are(play):
    session = play.session()
    for number in range(40):
        await play([f"answer {number}"], session=session, user=f"question {number}")

    assert len(session.messages) == 80


@pytest.mark.promise("D4")
async def test_a_summary_that_gained_nothing_is_not_asked_for_before_the_history_has_grown_by_eight_rows(play):
    session = play.session(messages=history())
    await play([LONGER, "Hi."], session=session)
    for _ in range(3):
        await play(["Hi."], session=session)
    assert session.incompressible == (31, sum(len(row.content) for row in session.messages[:31]))
    run = await play(["A summary.", "Hi."], session=session)

    assert "compaction" in run.outline
    assert session.incompressible is None


@pytest.mark.promise("D4")
async def test_a_summary_that_gained_nothing_is_asked_for_again_once_half_as_many_characters_are_new(play):
    session = play.session(messages=history())
    await play([LONGER, "Hi."], session=session)
    run = await play(["A summary.", "Hi."], session=session, user="go " * 2_000)

    assert "compaction" in run.outline


async def test_a_call_and_its_result_are_never_parted(play):
    @tool(risk="read")
    def look() -> str:
        """Look."""
        return "seen"

    pair = [
        AssistantMessage(tool_calls=(ToolCall(id="c1", name="look"), ToolCall(id="c2", name="look"))),
        ToolMessage(tool_call_id="c1", name="look", content="1"),
        ToolMessage(tool_call_id="c2", name="look", content="2"),
    ]
    session = play.session(messages=[*history(), *pair, *history(3)])
    run = await play(["A summary.", call("look", id="c3"), "Hi."], tools=[look], session=session)

    assert [row[0] for row in run.rows[:4]] == ["system", "assistant", "tool", "tool"]


async def test_the_request_being_worked_on_survives_word_for_word(play):
    @tool(risk="read")
    def look(n: int) -> str:
        """Look."""
        return f"seen the {n}th of many things" * 10

    calls = [call("look", {"n": n}) for n in range(12)]
    run = await play(
        [*calls[:10], "A summary.", *calls[10:], "Done."], tools=[look], max_tool_rounds=30, user="Find it!"
    )

    assert run.outline.count("compaction") == 1
    assert "word for word: Find it!" in run.rows[0][1]
    assert run.outline[-1] == "final:answer"


async def test_a_known_window_that_is_nearly_full_is_compacted_early(play):
    model = ScriptedModel(["A summary.", "Hi."], context_window=1000)
    rows = [AssistantMessage(content="word " * 100), UserMessage(content="word " * 100)] * 8
    run = await play(model, session=play.session(messages=[UserMessage(content="first"), *rows]))

    assert run.outline == ["turn_started", "round_start", "compaction", "token", "final:answer"]


async def test_a_summary_that_gains_nothing_is_not_asked_for_again_in_every_round(play):
    counter = iter(range(100))

    @tool(risk="read")
    def tick() -> int:
        """Count."""
        return next(counter)

    session = play.session(messages=history())
    run = await play([LONGER, *[call("tick")] * 3, "Hi."], tools=[tick], session=session)

    assert run.of("compaction") == []
    assert run.outline[-1] == "final:answer"
    assert len(run.rows) == 30 + 1 + 3 * 2 + 1

"""Compaction in turns: once, reported, stored, and without harm to the turn."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest

from agenticx import AgenticXError, UserMessage
from agenticx.errors import ModelError, SessionBusy
from agenticx.messages import AssistantMessage, ToolCall, ToolMessage
from agenticx.runtime import ContextCompactor, is_summary
from agenticx.testing import ScriptedModel, call, cut, fail, finish, hang, outline, say, usage
from agenticx.tools import tool
from tests.support.histories import PADDING, conversation

pytestmark = pytest.mark.anyio


async def test_a_long_history_becomes_a_summary_and_its_tail(play):
    session = play.session(messages=conversation())
    tail = session.messages[-7:]
    run = await play([[say("They asked 0 to 11."), usage(100, 9)], [say("Hi."), usage(50, 1)]], session=session)

    assert outline(run.events, state=True, usage=True, detail=True) == [
        "turn_started",
        "round_start",
        "state:compacting",
        "usage",
        "compaction",
        "state:planning",
        "state:responding",
        "token",
        "usage",
        "state:done",
        "final:answer",
    ]
    data = dict(run.events_of("compaction")[0].data)
    assert data.pop("tokens_before") > data.pop("tokens_after") > 0
    assert data == {"compacted_count": 23, "summary": "They asked 0 to 11.", "tokens_spent": 109}
    assert run.rows[0] == ("system", "[compacted] Summary of 23 earlier messages:\nThey asked 0 to 11.")
    assert session.messages[1:8] == tail
    assert run.rows[8:] == [("user", "go"), ("assistant", "Hi.")]
    assert run.terminal["usage"] == {"input_tokens": 150, "output_tokens": 10}


async def test_the_next_turn_does_not_summarise_again(play):
    session = play.session(messages=conversation())
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
        session=play.session(messages=[UserMessage(content="x" * 5000), *conversation()]),
        settings={"compaction_timeout_seconds": 2},
    )

    assert run.outline == ["turn_started", "round_start", "compaction", "token", "final:answer"]
    assert f"user: question 0{PADDING}\nassistant: answer 0" in run.events_of("compaction")[0].data["summary"]


@pytest.mark.parametrize(
    "end",
    [fail(ModelError("down", code="provider.overloaded")), hang(), cut(), finish("content_filter")],
    ids=["fails", "hangs", "cut", "filtered"],
)
async def test_the_cost_of_a_failed_summary_is_reported_and_counted(play, end):
    run = await play(
        [[say("half"), usage(100, 9), end], [say("Hi."), usage(50, 1)]],
        session=play.session(messages=[UserMessage(content="x" * 5000), *conversation()]),
        settings={"compaction_timeout_seconds": 2},
    )

    shown = outline(run.events, usage=True)
    assert shown == ["turn_started", "round_start", "usage", "compaction", "token", "usage", "final"]
    assert run.events_of("usage")[0].data == {"input_tokens": 100, "output_tokens": 9, "model": "scripted"}
    assert run.terminal["usage"] == {"input_tokens": 150, "output_tokens": 10}


LONGER = "A summary that is longer than all of it. " * 100


async def test_the_usage_of_a_discarded_summary_is_counted(play):
    run = await play(
        [[say(LONGER), usage(100, 9)], [say("Hi."), usage(50, 1)]], session=play.session(messages=conversation())
    )

    assert run.events_of("compaction") == []
    assert run.terminal["usage"] == {"input_tokens": 150, "output_tokens": 10}


@pytest.mark.promise("D4")
async def test_short_turns_cause_no_summary_however_many_there_are(play):
    session = play.session()
    for number in range(40):
        await play([f"answer {number}"], session=session, user=f"question {number}")

    assert len(session.messages) == 80


@pytest.mark.promise("D4")
async def test_a_discarded_summary_is_not_requested_again_before_eight_more_rows(play):
    session = play.session(messages=conversation())
    await play([LONGER, "Hi."], session=session)
    for _ in range(3):
        await play(["Hi."], session=session)
    assert session.size_at_failed_compaction == (31, sum(len(row.content) for row in session.messages[:31]))
    run = await play(["A summary.", "Hi."], session=session)

    assert "compaction" in run.outline
    assert session.size_at_failed_compaction is None


@pytest.mark.promise("D4")
async def test_a_discarded_summary_is_requested_again_once_the_history_has_grown_by_half(play):
    session = play.session(messages=conversation())
    await play([LONGER, "Hi."], session=session)
    run = await play(["A summary.", "Hi."], session=session, user="go " * 2_000)

    assert "compaction" in run.outline


async def test_a_call_and_its_result_are_never_separated(play):
    @tool(risk="read")
    def look() -> str:
        """Look."""
        return "seen"

    pair = [
        AssistantMessage(tool_calls=(ToolCall(id="c1", name="look"), ToolCall(id="c2", name="look"))),
        ToolMessage(tool_call_id="c1", name="look", content="1"),
        ToolMessage(tool_call_id="c2", name="look", content="2"),
    ]
    session = play.session(messages=[*conversation(), *pair, *conversation(3)])
    run = await play(["A summary.", call("look", id="c3"), "Hi."], tools=[look], session=session)

    assert [row[0] for row in run.rows[:4]] == ["system", "assistant", "tool", "tool"]


async def test_the_current_request_is_kept_verbatim(play):
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


async def test_a_discarded_summary_is_not_requested_again_in_every_round(play):
    counter = iter(range(100))

    @tool(risk="read")
    def tick() -> int:
        """Count."""
        return next(counter)

    session = play.session(messages=conversation())
    run = await play([LONGER, *[call("tick")] * 3, "Hi."], tools=[tick], session=session)

    assert run.events_of("compaction") == []
    assert run.outline[-1] == "final:answer"
    assert len(run.rows) == 30 + 1 + 3 * 2 + 1


# --- by tokens, where the window is known -----------------------------------------------------------------------------

MORE_ROUNDS = {"max_tool_rounds": 40}


@tool(risk="read")
def look(n: int) -> str:
    """Look."""
    return f"FACT-{n} " + "seen " * 80


def many_rounds(count, *, tokens=3_900):
    calls = [[call("look", {"n": n}), usage(tokens, 20)] for n in range(count)]
    return [*calls, [say("Done."), usage(tokens, 1)]]


async def test_thirty_rounds_in_a_large_window_are_never_compacted(play):
    run = await play(ScriptedModel(many_rounds(30), context_window=200_000), tools=[look], **MORE_ROUNDS)

    assert run.events_of("compaction") == []
    assert run.outline[-1] == "final:answer"
    assert len(run.session.messages) == 62


@pytest.mark.parametrize(
    ("settings", "compactor", "window"),
    [
        ({"compaction_threshold_messages": 20}, None, 200_000),
        ({"compaction_threshold_chars": 13_000}, None, 200_000),
        ({}, ContextCompactor(), 200_000),
        ({}, None, None),
    ],
    ids=["messages are set", "characters are set", "a compactor made explicitly", "an unknown window"],
)
async def test_explicit_thresholds_apply_and_defaults_apply_to_unknown_windows(play, settings, compactor, window):
    model = ScriptedModel([*many_rounds(10)[:10], "A summary.", "Done."], context_window=window)
    session = play.session(messages=[UserMessage(content="x" * 9_000)])
    run = await play(model, tools=[look], session=session, settings=settings, compactor=compactor, **MORE_ROUNDS)

    assert run.outline.count("compaction") == 1


async def test_an_unset_threshold_does_not_apply_if_the_window_is_known(play):
    model = ScriptedModel(many_rounds(30), context_window=200_000)
    run = await play(model, tools=[look], settings={"compaction_threshold_chars": 100_000}, **MORE_ROUNDS)

    assert run.events_of("compaction") == []


class Copyist(ScriptedModel):
    """A model that plays its script, but summarises by repeating the facts of its input."""

    def __init__(self, script, **options):
        super().__init__(script, **options)
        self.summarised = []

    def stream(self, request):
        if not request.tools and request.messages[0].content.startswith("You compress"):
            facts = [word for word in request.messages[-1].content.split() if word.startswith("FACT-")]
            self.summarised.append(facts)
            return ScriptedModel([" ".join(facts)]).stream(request)
        return super().stream(request)


async def test_in_a_small_window_no_compaction_follows_at_once_and_no_fact_is_forgotten(play):
    model = Copyist(many_rounds(30, tokens=900), context_window=2_000)
    run = await play(model, tools=[look], user="Find FACT-go!", **MORE_ROUNDS)

    rounds = [event.type for event in run.events if event.type in ("round_start", "compaction")]
    between = " ".join(rounds).split("compaction")
    assert 2 <= len(run.events_of("compaction")) <= 10
    assert min(part.count("round_start") for part in between[1:-1]) >= 3
    assert [fact for asked in model.summarised for fact in asked][1:] == [
        f"FACT-{n}" for n in range(sum(map(len, model.summarised)) - 1)
    ]
    text = " ".join(message.content for message in run.session.messages)
    assert {f"FACT-{n}" for n in range(30)} <= set(re.findall(r"FACT-\d+", text))
    assert text.count("word for word: Find FACT-go!") == 1


async def test_results_are_not_shortened_again_in_every_round(play):
    @tool(risk="read")
    def read(n: int) -> str:
        """Read."""
        return f"{n} " + "x" * 9_000

    shortened = []

    def note(event):
        if event.type == "tool_result":
            shortened.append(sum("of this old result were left out" in row.content for row in session.messages))

    session = play.session()
    calls = [call("read", {"n": n}) for n in range(30)]
    model = Copyist([*calls, "Done."])
    await play(model, tools=[read], session=session, on=note, max_tool_rounds=40)

    changed = [place for place in range(1, 30) if shortened[place] != shortened[place - 1]]
    assert all(later - earlier >= 2 for earlier, later in pairwise(changed))


# --- the order of steps -----------------------------------------------------------------------------------------------


async def test_a_history_is_repaired_before_it_is_compacted(play):
    open_call = AssistantMessage(content="Let me look.", tool_calls=(ToolCall(id="c1", name="look"),))
    session = play.session(messages=[open_call, *conversation()])
    run = await play(["A summary.", "Hi."], session=session)

    assert "result of look (unknown): [interrupted]" in run.model.requests[0].messages[-1].content
    assert [type(row) for row in session.compacted[:2]] == [AssistantMessage, ToolMessage]


async def test_a_broken_history_that_is_not_compacted_is_repaired_in_the_request_alone(play):
    stray = ToolMessage(tool_call_id="c1", name="look", content="stray")
    session = play.session(messages=[UserMessage(content="one"), stray])
    runtime = play.runtime(ScriptedModel(["Hi."]))
    async for _ in runtime.run_turn("go", session):
        pass

    assert session.messages[1] is stray


# --- what was compacted -----------------------------------------------------------------------------------------------


async def test_compacted_messages_are_kept_and_restored_in_order(play):
    session = play.session(messages=conversation())
    original = everything = list(session.messages)
    for number in range(24):
        await play(Copyist([f"answer {number}"]), session=session, user=f"question FACT-{number}{PADDING}")
        before, everything = everything, [*session.compacted, *session.messages[session.replacement_count :]]
        assert everything[: len(before)] == before

    assert len([row for row in session.messages if is_summary(row)]) >= 2
    assert not any(map(is_summary, session.compacted))
    before = len(session.messages)
    session.restore_compacted()
    assert session.compacted == []
    assert session.messages[:30] == original
    assert len(session.messages) == 30 + 48 > before
    assert [row.content for row in session.messages[30::2]] == [f"question FACT-{n}{PADDING}" for n in range(24)]


async def test_shortened_tool_results_are_restored_unchanged(play):
    pairs = [
        (
            AssistantMessage(tool_calls=(ToolCall(id=f"c{n}", name="look"),)),
            ToolMessage(tool_call_id=f"c{n}", name="look", content=f"{n}" * 6_000),
        )
        for n in range(6)
    ]
    original = [row for pair in pairs for row in pair]
    session = play.session(messages=list(original))
    compactor = ContextCompactor(threshold_chars=30_000, prune_tool_result_chars=200, retain_recent_messages=4)
    run = await play(["Hi."], session=session, compactor=compactor)

    assert run.events_of("compaction") == []
    assert len(session.messages[1].content) < 500
    session.restore_compacted()
    assert session.messages[:12] == original
    assert run.rows[12:] == [("user", "go"), ("assistant", "Hi.")]


async def test_compacted_messages_are_not_restored_during_a_turn(play):
    session = play.session(messages=conversation())
    refused = []

    def ask(event):
        if event.type == "compaction":
            with pytest.raises(SessionBusy):
                session.restore_compacted()
            refused.append(event)

    await play(["A summary.", "Hi."], session=session, on=ask)
    assert len(refused) == 1
    session.restore_compacted()
    assert len(session.messages) == 32


async def test_a_conversation_that_was_replaced_has_no_compacted_messages(play):
    session = play.session(messages=conversation())
    await play(["A summary.", "Hi."], session=session)
    session.messages = conversation()
    await play(["A summary.", "Hi."], session=session)

    session.restore_compacted()
    assert len(session.messages) == 32


def test_messages_kept_by_a_store_are_not_restored_from_memory(play):
    session = play.session(stored_compacted=9)
    with pytest.raises(AgenticXError, match=r"the compacted messages of session .* are in its store"):
        session.restore_compacted()

"""ContextCompactor: what is left is valid, shorter, and still holds the request that is being worked on."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agenticx.errors import ModelError
from agenticx.llms.base import TextDelta, Usage
from agenticx.messages import AssistantMessage, SystemMessage, ToolMessage, UserMessage
from agenticx.runtime.compactor import TAG, ContextCompactor, estimate_tokens
from agenticx.testing import ScriptedModel, cut, fail, hang, raw, say, usage
from tests.runtime.histories import assistant, number, result, system, user, valid_histories, violations

pytestmark = pytest.mark.anyio

HISTORIES = max(2_000, settings.default.max_examples)
"""What promise D4 names; more with --deep."""

_words = st.one_of(st.sampled_from(["", "ok", "one\ntwo"]), st.integers(1, 9_000).map(lambda count: "x" * count))


def characters(messages):
    calls = [call for row in messages if isinstance(row, AssistantMessage) for call in row.tool_calls]
    return sum(len(row.content) for row in messages) + sum(len(call.arguments) for call in calls)


def request_of(messages):
    asked = [row.content for row in messages if isinstance(row, UserMessage) and not row.injected]
    return asked[-1] if asked else None


def rounds(count, size=10):
    return [row for place in range(count) for row in (assistant("", f"c{place}"), result(f"c{place}", "r" * size))]


async def compact(compactor, messages, *script, window=None, **more):
    model = ScriptedModel(list(script), context_window=window)
    compacted = await compactor.maybe_compact(messages, model, **more)
    model.assert_done()
    return compacted


async def summarised(compactor, messages, summary="SUMMARY"):
    """Compact with a model that may or may not be asked."""
    return await compactor.maybe_compact(messages, ScriptedModel([summary]))


def check_harmless(before, compacted, compactor):
    """The promise: pairs kept, smaller, the tail as it was, the request still there word for word."""
    after = compacted.messages
    assert violations(after) == []
    assert characters(after) < characters(before)
    if compacted.compacted_count == 0:
        assert [row.message_id for row in after] == [row.message_id for row in before]
    else:
        tail = before[compacted.compacted_count :]
        assert after[1:] == tail
        assert len(tail) >= compactor.retain_recent_messages
        assert isinstance(after[0], SystemMessage)
        assert [row.content.startswith(TAG) for row in after].count(True) == 1
    recent = compactor.retain_recent_messages
    assert after[-recent:] == before[-recent:]
    request = request_of(before)
    if request and request_of(after) is None and len(request) <= 4_000:
        assert after[0].content.endswith(request)


# --- the promise, over many histories -------------------------------------------------------------------------------


@pytest.mark.promise("D4")
@settings(max_examples=HISTORIES)
@given(valid_histories(most=30, words=_words), st.integers(0, 3_000).map(lambda count: "s" * count))
async def test_any_history_is_kept_whole_or_made_smaller_without_harm(history, summary):
    before = list(history)
    compactor = ContextCompactor()
    compacted = await summarised(compactor, history, summary)
    assert history == before
    if compacted is not None:
        check_harmless(history, compacted, compactor)


@st.composite
def chains(draw):
    """Thirty pieces of history, some of them more than once: drawing thirty different ones takes far longer."""
    pool = draw(st.lists(valid_histories(most=8, words=_words), min_size=6, max_size=6))
    return draw(st.lists(st.sampled_from(pool), min_size=30, max_size=30))


@pytest.mark.promise("D4")
@given(chains(), st.text("sS \n", max_size=2_000))
async def test_thirty_compactions_in_a_chain_harm_nothing(pieces, summary):
    compactor = ContextCompactor()
    history = [user("first request")]
    asked = "first request"
    for piece in pieces:
        history += [row for row in piece if row.role != "system"]
        newest = request_of(history)
        asked = asked if newest is None else newest
        compacted = await summarised(compactor, history, summary)
        if compacted is None:
            continue
        check_harmless(history, compacted, compactor)
        history = compacted.messages
        if len(asked) <= 4_000:
            assert any(asked in row.content for row in history)


# --- when -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("rows", "due"), [(20, False), (21, True)])
async def test_more_than_twenty_messages_are_compacted(rows, due):
    history = [user(f"message {place} " + "with some words to spare " * 4) for place in range(rows)]
    compacted = await summarised(ContextCompactor(), history)
    assert (compacted is not None) is due


@pytest.mark.parametrize(("size", "due"), [(4_800, False), (4_801, True)])
async def test_more_than_48000_characters_are_compacted(size, due):
    history = [user("u" * size) for _ in range(10)]
    assert (await summarised(ContextCompactor(), history) is not None) is due


async def test_by_default_eight_messages_stay_as_they_are():
    history = [user(f"message {place}, " + "long enough to gain something " * 4) for place in range(21)]
    compacted = await compact(ContextCompactor(), history, [say("They talked."), usage(100, 3)])
    text = f"{TAG} Summary of 13 earlier messages:\nThey talked."
    assert [row.content for row in compacted.messages] == [text, *(row.content for row in history[13:])]
    assert list(compacted) == compacted.messages, "it reads as the list that the AgentRuntime page returns"
    assert (compacted.compacted_count, compacted.summary) == (13, "They talked.")
    assert compacted.usage == Usage(100, 3)
    assert compacted.tokens_before == estimate_tokens(history) > compacted.tokens_after
    assert compacted.tokens_after == estimate_tokens(compacted.messages)


def test_limits_below_the_minimums_are_raised_to_them():
    compactor = ContextCompactor(threshold_messages=1, retain_recent_messages=1)
    assert (compactor.threshold_messages, compactor.retain_recent_messages) == (8, 4)


@pytest.mark.parametrize(
    ("window", "counted", "due"), [(None, 1_000_000, False), (1_000, 800, False), (1_000, 801, True)]
)
async def test_a_known_window_that_is_nearly_full_is_a_reason(window, counted, due):
    history = [user(f"message {place} " + "with some words to spare " * 5) for place in range(16)]
    script = ["SUMMARY"] if due else []
    compacted = await compact(ContextCompactor(), history, *script, window=window, input_tokens=counted)
    assert (compacted is not None) is due


async def test_the_estimate_counts_even_if_the_provider_has_counted_nothing_yet():
    history = [user("w" * 400) for _ in range(16)]
    assert await compact(ContextCompactor(), history, "SUMMARY", window=1_900) is not None


# --- what stays -----------------------------------------------------------------------------------------------------


async def test_a_call_and_its_results_are_never_cut_apart():
    history = [
        user("do it " * 50),
        *rounds(5, 300),
        assistant("", *"abcdefghij"),
        *(result(id_) for id_ in "abcdefghij"),
    ]
    compacted = await summarised(ContextCompactor(), history)
    assert compacted.messages[1:] == history[11:]


async def test_the_request_goes_along_if_the_tail_has_it_no_more():
    history = [user("old"), assistant("done"), user("count the files, never delete any"), *rounds(12, 200)]
    compacted = await summarised(ContextCompactor(), history)
    request = "\n\nThe user's current request, word for word: count the files, never delete any"
    assert compacted.messages[0].content == f"{TAG} Summary of 19 earlier messages:\nSUMMARY{request}"
    again = await summarised(ContextCompactor(), [*compacted.messages, *rounds(12, 200)])
    assert again.messages[0].content.endswith(f"SUMMARY{request}")


async def test_a_reminder_of_ours_is_not_the_users_request():
    history = [user("the real one"), *rounds(10, 200), user("[reminder] try again", injected=True), *rounds(1)]
    compacted = await summarised(ContextCompactor(), history)
    assert compacted.messages[0].content.endswith(": the real one")


async def test_a_history_that_would_not_get_smaller_stays_as_it_is():
    history = [user("x" * 100) for _ in range(21)]
    assert await compact(ContextCompactor(), history, "longer " * 300) is None


@pytest.mark.promise("D4")
@pytest.mark.parametrize("request_size", [1, 4_000], ids=["short rows", "a request that stays anyway"])
async def test_no_summary_is_paid_for_that_could_hardly_be_shorter_than_what_it_replaces(request_size):
    history = [user("r" * request_size), *rounds(15, 60)]
    assert await compact(ContextCompactor(), history) is None


async def test_summaries_and_system_rows_of_before_go_into_the_new_one():
    history = [system(f"{TAG} Summary of 9 earlier messages:\nolder"), *(user("u" * 100) for _ in range(20))]
    model = ScriptedModel(["newer"])
    compacted = await ContextCompactor().maybe_compact(history, model)
    assert compacted.messages[0].content == f"{TAG} Summary of 13 earlier messages:\nnewer"
    assert "older" in model.requests[0].messages[-1].content
    assert model.requests[0].tools == ()


# --- old tool results -----------------------------------------------------------------------------------------------


async def test_old_tool_results_are_shortened_and_recent_ones_are_not():
    history = number([user("go"), *rounds(5, 10_000)])
    compacted = await compact(ContextCompactor(retain_recent_messages=4), history)
    assert compacted.compacted_count == 0
    assert [row.message_id for row in compacted.messages] == [row.message_id for row in history]
    sizes = [len(row.content) for row in compacted.messages if isinstance(row, ToolMessage)]
    assert sizes[-2:] == [10_000, 10_000]
    assert max(sizes[:-2]) < 4_200
    shortened = compacted.messages[2].content
    assert shortened == f"{'r' * 2_000}\n[… 6000 characters of this old result were left out …]\n{'r' * 2_000}"


async def test_what_is_shortened_once_is_not_shortened_again():
    history = [user("go"), *rounds(5, 10_000)]
    compactor = ContextCompactor(retain_recent_messages=4)
    once = await compact(compactor, history)
    assert await compact(compactor, once.messages) is None


# --- a tail that is itself too large --------------------------------------------------------------------------------


async def test_a_tail_over_the_limit_does_not_have_a_few_small_rows_summarised():
    history = [user("go"), assistant("well"), *(user("u" * 8_000) for _ in range(8))]
    assert await compact(ContextCompactor(), history) is None


async def test_a_tail_over_the_limit_is_not_summarised_anew_in_every_round():
    compactor = ContextCompactor()
    history = [user("go"), *(user("u" * 8_000) for _ in range(20))]
    model = ScriptedModel([f"summary {number}" for number in range(20)])
    for place in range(20):
        compacted = await compactor.maybe_compact(history, model)
        if compacted is not None:
            history = compacted.messages
        history = [*history, assistant("", f"n{place}"), result(f"n{place}", "small")]
    assert len(model.requests) <= 6


# --- a summariser that fails ----------------------------------------------------------------------------------------

FAILED = ModelError("down", code="provider.overloaded")


@pytest.mark.parametrize(
    "script",
    [fail(FAILED), [say("half a summ"), cut()], [say("half"), fail(FAILED)], " \n ", [], hang(), [say("a"), hang()]],
    ids=["error", "cut", "error midway", "blank", "empty", "hangs", "falls silent"],
)
@pytest.mark.promise("D4")
async def test_truncated_snippets_take_the_place_of_a_summary_that_fails(script):
    history = [user("short"), *(assistant("a" * 300) for _ in range(12)), *(user("u") for _ in range(8))]
    compactor = ContextCompactor(timeout=60)
    compacted = await asyncio.wait_for(compact(compactor, history, script), 61)
    row = f"assistant: {'a' * 189}…"
    assert compacted.summary.split("\n") == ["user: short", *[row] * 12]
    assert compacted.usage is None
    check_harmless(history, compacted, compactor)


async def test_a_summary_with_half_a_character_is_cleaned():
    history = [user("u" * 100) for _ in range(21)]
    compacted = await compact(ContextCompactor(), history, raw(TextDelta("odd \ud83d end")))
    assert compacted.summary == "odd \ufffd end"


async def test_stopping_ends_a_summary_at_once():
    history = [user("u" * 100) for _ in range(21)]
    task = asyncio.create_task(ContextCompactor().maybe_compact(history, ScriptedModel([hang()])))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(task, 1)

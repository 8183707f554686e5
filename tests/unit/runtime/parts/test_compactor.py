"""ContextCompactor: the result is valid, shorter, and still contains the current request."""

from __future__ import annotations

import asyncio
import re
from itertools import takewhile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agenticx import UserMessage
from agenticx.attachments import make_attachment
from agenticx.errors import ModelError
from agenticx.llms import TextDelta, Usage
from agenticx.messages import AssistantMessage, ToolMessage
from agenticx.runtime import ContextCompactor, Session, is_summary
from agenticx.runtime.history_sizes import estimate_tokens
from agenticx.runtime.summaries import SUMMARIES_CHARS, TAG
from agenticx.testing import ScriptedModel, cut, fail, hang, raw, say, usage
from tests.support.examples import examples
from tests.support.histories import assistant, number, result, system, user, valid_histories, violations

pytestmark = pytest.mark.anyio

MARK = "\n\nThe user's current request, word for word: "

_words = st.one_of(st.sampled_from(["", "ok", "one\ntwo"]), st.integers(1, 9_000).map(lambda count: "x" * count))


def characters(messages):
    calls = [call for row in messages if isinstance(row, AssistantMessage) for call in row.tool_calls]
    return sum(len(row.content) for row in messages) + sum(len(call.arguments) for call in calls)


def request_of(messages):
    asked = [row.content for row in messages if isinstance(row, UserMessage) and not row.injected]
    return asked[-1] if asked else None


def summaries_of(messages):
    """Return the summaries at the front."""
    return list(takewhile(is_summary, messages))


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
    """Check that pairs and the tail are kept, the history is smaller, and the request is there word for word."""
    after = compacted.messages
    assert violations(after) == []
    assert characters(after) < characters(before)
    if compacted.compacted_count == 0:
        assert [row.message_id for row in after] == [row.message_id for row in before]
    else:
        tail = before[compacted.replaced_count :]
        assert after[compacted.replacement_count :] == tail
        assert len(tail) >= compactor.retain_recent_messages
        summaries = summaries_of(after)
        assert summaries == [row for row in after if is_summary(row)]
        texts = [row.content.partition(MARK)[0] for row in summaries]
        assert len(summaries) == 1 or sum(map(len, texts)) <= 2 * SUMMARIES_CHARS
        assert sum(MARK in row.content for row in summaries) <= 1
    recent = compactor.retain_recent_messages
    assert after[-recent:] == before[-recent:]
    request = request_of(before)
    if request and request_of(after) is None and len(request) <= 4_000:
        assert sum(row.content.endswith(request) for row in after if is_summary(row)) >= 1


# --- the promise, over many histories -------------------------------------------------------------------------------


@pytest.mark.promise("D4")
@examples(100, 500, 5_000)
@given(valid_histories(most=30, words=_words), st.integers(0, 3_000).map(lambda count: "s" * count))
async def test_any_history_is_unchanged_or_compacted_to_a_smaller_valid_one(history, summary):
    before = list(history)
    compactor = ContextCompactor()
    compacted = await summarised(compactor, history, summary)
    assert history == before
    if compacted is not None:
        check_harmless(history, compacted, compactor)


@st.composite
def chains(draw):
    """Draw thirty pieces of history, some of them more than once, because thirty different ones take far longer."""
    pool = draw(st.lists(valid_histories(most=8, words=_words), min_size=6, max_size=6))
    return draw(st.lists(st.sampled_from(pool), min_size=30, max_size=30))


@pytest.mark.promise("D4")
@given(chains(), st.text("sS \n", max_size=2_000))
@pytest.mark.ci_lane
async def test_a_history_is_valid_after_each_of_thirty_compactions(pieces, summary):
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


@pytest.mark.promise("D4")
@given(chains(), st.sampled_from(["", "SUMMARY", "s" * 5_000]))
@pytest.mark.ci_lane
async def test_all_messages_of_successive_compactions_are_restored(pieces, summary):
    compactor, session, everything = ContextCompactor(prune_tool_result_chars=200), Session(), []
    for place, piece in enumerate(pieces):
        rows = [row for row in piece if row.role != "system"]
        if place % 9 == 0:
            rows.insert(0, user("see", attachments=(make_attachment("f.txt", b"text"),)))
        session.messages += rows
        everything += rows
        originals = list(session.messages)
        compacted = await summarised(compactor, originals, summary)
        if compacted is not None:
            session.apply_compaction(
                originals, compacted.replaced_count, compacted.messages, compacted.replacement_count
            )
    session.restore_compacted()
    assert session.messages == everything
    assert session.compacted == []


@pytest.mark.promise("D4")
async def test_originals_of_the_last_messages_are_restored_after_a_compaction_of_those_before_them():
    compactor, session, everything = ContextCompactor(), Session(), []
    for rows in ([user("q"), assistant("t" * 3_000), user("Look."), *rounds(1, 9_000)], rounds(4)[2:]):
        session.messages += rows
        everything += rows
        history = list(session.messages)
        compacted = await compactor.compact(history, ScriptedModel(["SUMMARY"]))
        session.apply_compaction(history, compacted.replaced_count, compacted.messages, compacted.replacement_count)
    assert (compacted.replaced_count, compacted.summary) == (3, "SUMMARY")
    session.restore_compacted()
    assert session.messages == everything


# --- when -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("rows", "due"), [(20, False), (21, True)])
async def test_more_than_twenty_messages_are_compacted(rows, due):
    history = [user(f"message {place} " + "with some words to spare " * 4) for place in range(rows)]
    compacted = await summarised(ContextCompactor(), history)
    assert (compacted is not None) is due


def row_history(size: int) -> list[dict[str, object]]:
    """Return 22 rows as other libraries have them, with keys that messages do not keep."""
    call_row = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    return [
        {"role": "user", "content": "Look."},
        {"role": "assistant", "content": None, "tool_calls": [call_row]},
        {"role": "tool", "tool_call_id": "c1", "name": "look", "content": "r" * size},
        *({"role": role, "content": f"{role} {n}", "name": None} for n in range(9) for role in ("user", "assistant")),
        {"role": "user", "content": [{"type": "text", "text": "And now?"}]},
    ]


async def test_a_history_of_rows_is_compacted_to_rows_of_which_those_that_stay_are_the_same_objects():
    rows = row_history(size=3_000)
    compacted = await compact(ContextCompactor(), rows, "SUMMARY")
    assert compacted[0] == {"role": "system", "content": f"{TAG} Summary of 14 earlier messages:\nSUMMARY"}
    assert list(map(id, compacted[1:])) == list(map(id, rows[-8:]))
    assert compacted.replaced_count == 14
    again = await ContextCompactor().compact([*compacted, *rows[-8:]], ScriptedModel(["SECOND"]))
    assert again is None or again[0] is compacted[0]
    mixed = await compact(ContextCompactor(), [user("go"), *rows], "SUMMARY")
    assert mixed[0]["role"] == "system"


async def test_system_rows_of_the_caller_at_the_beginning_stay_word_for_word_behind_the_summaries():
    instructions = [{"role": "system", "content": "S"}, {"role": "developer", "content": "D", "name": "ops"}]
    compactor, rows = ContextCompactor(), row_history(size=3_000)
    once = await compact(compactor, [*instructions, *rows], "ONE")
    assert once[0] == {"role": "system", "content": f"{TAG} Summary of 14 earlier messages:\nONE"}
    assert list(map(id, once[1:])) == list(map(id, [*instructions, *rows[-8:]]))
    assert (once.replaced_count, once.replacement_count, once.compacted_count) == (16, 3, 14)
    twice = await compact(compactor, [*once, *row_history(size=9_000)], "TWO")
    assert [row["content"].rpartition("\n")[2] for row in twice[:4]] == ["ONE", "TWO", "S", "D"]
    assert twice[2] is instructions[0]


async def test_of_rows_only_those_with_long_results_are_shortened_and_all_methods_take_them():
    rows, compactor = row_history(size=60_000), ContextCompactor(threshold_messages=100)
    pruned = await compact(compactor, rows)
    assert [new is old for new, old in zip(pruned, rows, strict=True)].index(False) == 2
    assert (pruned[2].keys(), len(pruned[2]["content"]) < 5_000) == ({"role", "tool_call_id", "content"}, True)
    assert (compactor.is_due(rows, ScriptedModel()), compactor.worth_asking(rows)) == (True, True)
    assert (before := compactor.measure(rows)) == compactor.measure(Session(messages=rows).messages)
    assert (compactor.has_changed(rows, before), compactor.has_changed(rows[:3], before)) == (False, True)
    with pytest.raises(TypeError, match=r"messages\[1\] must be a message"):
        await compactor.maybe_compact([user("go"), "text"], ScriptedModel())


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
    ("window", "counted", "due"), [(None, 1_000_000, False), (1_000, 700, False), (1_000, 701, True)]
)
async def test_a_known_window_that_is_nearly_full_is_compacted(window, counted, due):
    history = [user(f"message {place} " + "with some words to spare " * 5) for place in range(16)]
    script = ["SUMMARY"] if due else []
    compacted = await compact(ContextCompactor(), history, *script, window=window, input_tokens=counted)
    assert (compacted is not None) is due


async def test_the_estimate_applies_before_the_provider_has_reported_usage():
    history = [user("w" * 400) for _ in range(16)]
    assert await compact(ContextCompactor(), history, "SUMMARY", window=1_900) is not None


# --- what stays -----------------------------------------------------------------------------------------------------


async def test_a_call_and_its_results_are_never_separated():
    history = [
        user("do it " * 50),
        *rounds(5, 300),
        assistant("", *"abcdefghij"),
        *(result(id_) for id_ in "abcdefghij"),
    ]
    compacted = await summarised(ContextCompactor(), history)
    assert compacted.messages[1:] == history[11:]


async def test_the_request_is_carried_by_the_summary_if_the_tail_no_longer_has_it():
    history = [user("old"), assistant("done"), user("count the files, never delete any"), *rounds(12, 200)]
    compacted = await summarised(ContextCompactor(), history)
    request = "\n\nThe user's current request, word for word: count the files, never delete any"
    assert compacted.messages[0].content == f"{TAG} Summary of 19 earlier messages:\nSUMMARY{request}"
    again = await summarised(ContextCompactor(), [*compacted.messages, *rounds(12, 200)])
    assert again.messages[0].content.endswith(f"SUMMARY{request}")


async def test_an_injected_reminder_is_not_the_users_request():
    history = [user("the real one"), *rounds(10, 200), user("[reminder] try again", injected=True), *rounds(1)]
    compacted = await summarised(ContextCompactor(), history)
    assert compacted.messages[0].content.endswith(": the real one")


async def test_a_history_that_compaction_would_not_shrink_is_unchanged():
    history = [user("x" * 100) for _ in range(21)]
    assert await compact(ContextCompactor(), history, "longer " * 300) is None


@pytest.mark.promise("D4")
@pytest.mark.parametrize("request_size", [1, 4_000], ids=["short rows", "a request that stays anyway"])
async def test_no_summary_is_requested_if_it_could_hardly_be_shorter_than_its_messages(request_size):
    history = [user("r" * request_size), *rounds(15, 60)]
    assert await compact(ContextCompactor(), history) is None


async def test_an_earlier_summary_stays_as_it_is_and_only_newer_rows_are_summarised():
    older = system(f"{TAG} Summary of 9 earlier messages:\nolder")
    history = [system("Be."), older, *(user("u" * 100) for _ in range(20))]
    model = ScriptedModel(["newer"])
    compacted = await ContextCompactor().maybe_compact(history, model)
    assert compacted.messages[0] is older
    assert compacted.messages[1].content == f"{TAG} Summary of 12 earlier messages:\nnewer"
    assert compacted.messages[2:] == [history[0], *history[-8:]]
    asked = model.requests[0].messages[-1].content
    assert "older" not in asked
    assert asked.startswith("user: uuu")
    assert model.requests[0].tools == ()


class Copyist:
    """A model whose summary is the facts of its input, each padded to `size` characters."""

    name = "copyist"

    def __init__(self, size=10, window=None):
        self.size, self.context_window, self.asked = size, window, []

    def invoke(self, messages, **options):
        facts = re.findall(r"FACT-\d+", messages[-1]["content"])
        self.asked.append(facts)
        return {"content": " ".join(fact.ljust(self.size, ".") for fact in facts)}


async def compacted_in_a_chain(compactor, model, times):
    """Return a history to which rows with a fact each were added in pairs until it was compacted `times` times."""
    history, count = [user("go")], 0
    while times:
        history += [assistant(f"FACT-{count} {'a' * 200}"), user(f"FACT-{count + 1} {'b' * 200}")]
        count += 2
        if (compacted := await compactor.maybe_compact(history, model)) is not None:
            check_harmless(history, compacted, compactor)
            history, times = compacted.messages, times - 1
    return history, [f"FACT-{number}" for number in range(count)]


@pytest.mark.promise("D4")
@pytest.mark.parametrize("window", [None, 2_000])
async def test_each_row_is_summarised_once_and_its_fact_outlives_many_compactions(window):
    compactor = ContextCompactor(**({"threshold_messages": None, "threshold_chars": None} if window else {}))
    model = Copyist(window=window)
    history, facts = await compacted_in_a_chain(compactor, model, 6)
    assert len(summaries_of(history)) == 6
    summarised = [fact for asked in model.asked for fact in asked]
    assert summarised == facts[: len(summarised)]
    assert re.findall(r"FACT-\d+", " ".join(row.content for row in history)) == facts


async def test_summaries_of_more_than_8000_characters_together_are_merged():
    model = Copyist(size=150)
    history, facts = await compacted_in_a_chain(ContextCompactor(), model, 5)
    sizes = [len(asked) * 150 for asked in model.asked]
    assert sum(sizes[:-1]) > SUMMARIES_CHARS > sum(sizes[:-2])
    assert model.asked[-1] == [fact for asked in model.asked[:-1] for fact in asked]
    assert len(summaries_of(history)) == 1
    assert history[0].content.startswith(f"{TAG} Summary of 5 earlier summaries:\nFACT-0")
    assert set(re.findall(r"FACT-\d+", " ".join(row.content for row in history))) == set(facts)


def summaries(count, size):
    return [system(f"{TAG} Summary of 9 earlier messages:\n{'s' * size}") for _ in range(count)]


@pytest.mark.parametrize("second", [fail(ModelError("down", code="provider.overloaded")), "longer " * 3_000])
async def test_summaries_that_cannot_be_merged_now_stay_for_the_next_compaction(second):
    earlier = summaries(2, 4_000)
    history = [*earlier, *(user("u" * 200) for _ in range(20))]
    model = ScriptedModel(["newer", second])
    compacted = await ContextCompactor().maybe_compact(history, model)
    assert compacted.messages[:2] == earlier
    assert len(summaries_of(compacted.messages)) == 3
    after = await ContextCompactor().maybe_compact([*compacted.messages, *history[2:]], ScriptedModel(["new", "all"]))
    assert [row.content for row in summaries_of(after.messages)] == [f"{TAG} Summary of 4 earlier summaries:\nall"]


async def test_summaries_of_a_model_that_always_fails_are_cut_at_twice_the_limit():
    history = [*summaries(4, 4_000), *(user("u" * 200) for _ in range(20))]
    compacted = await ContextCompactor().maybe_compact(history, ScriptedModel([fail(FAILED)]))
    assert len(summaries_of(compacted.messages)) == 1
    assert len(compacted.messages[0].content) <= SUMMARIES_CHARS + 10


@pytest.mark.parametrize("merge", [False, True])
async def test_a_newer_request_replaces_the_one_that_a_summary_carries(merge):
    first = await summarised(
        ContextCompactor(), [user("the old request"), *rounds(12, 1_500)], "s" * 7_980 * merge + "S"
    )
    assert first.messages[0].content.endswith(f"{MARK}the old request")
    history = [*first.messages, user("the new request"), *rounds(12, 200)]
    second = await ContextCompactor().maybe_compact(history, ScriptedModel(["SECOND", "BOTH"][: 1 + merge]))
    texts = [row.content for row in summaries_of(second.messages)]
    assert [MARK in text for text in texts] == ([True] if merge else [False, True])
    assert texts[-1].endswith(f"{MARK}the new request")


async def test_the_request_of_a_turn_is_carried_when_summaries_are_merged():
    history = [user("the request"), *rounds(12, 1_500)]
    first = await summarised(ContextCompactor(), history, "s" * 7_990)
    second = await ContextCompactor().maybe_compact(
        [*first.messages, *rounds(12, 1_500)], ScriptedModel(["SECOND", "BOTH"])
    )
    assert [row.content for row in summaries_of(second.messages)] == [
        f"{TAG} Summary of 2 earlier summaries:\nBOTH{MARK}the request"
    ]


async def test_a_summary_that_quotes_the_request_mark_carries_no_request():
    history = [user("u" * 100) for _ in range(21)]
    first = await summarised(ContextCompactor(), history, f"They said:{MARK}never")
    assert MARK not in first.messages[0].content
    assert "word for word: never" in first.messages[0].content


async def test_summaries_count_as_one_row():
    history = [*summaries(9, 20), *(user("u" * 200) for _ in range(19))]
    compactor, model = ContextCompactor(), ScriptedModel()
    assert not compactor.is_due(history, model)
    assert compactor.is_due([*history, user("one more")], model)


async def test_only_head_and_tail_of_very_long_rows_are_summarised():
    history = [user("FIRST" + "a" * 300_000), *rounds(200, 1_000), user("b" * 300_000 + "LAST"), *rounds(8)]
    model = ScriptedModel(["SUMMARY"])
    await ContextCompactor(prune_tool_result_chars=2_000).maybe_compact(history, model)
    asked = model.requests[0].messages[-1].content
    assert (asked.startswith("user: FIRSTaaa"), "bLAST\n\nassistant: " in asked) == (True, True)
    assert asked.count("[… the middle was left out …]") == 1
    assert 399_000 < len(asked) < 401_000


@pytest.mark.promise("D4")
async def test_after_a_compaction_none_is_due():
    for window in (None, 1_500):
        compactor, model = ContextCompactor(threshold_messages=None, threshold_chars=None), Copyist(window=window)
        compacted = await compactor.maybe_compact([user(f"FACT-{n}" + "u" * 300) for n in range(21)], model)
        assert not compactor.is_due(compacted.messages, model)


async def test_the_usage_of_a_summary_is_the_sum_of_the_reported_counts():
    history = [*summaries(2, 4_000), *(user("u" * 200) for _ in range(20))]
    counts = []
    script = [[say("newer"), usage(100, 3)], [say("all"), usage(50, 2)]]
    both = await compact(ContextCompactor(), history, *script, on_usage=counts.append)
    assert (both.tokens_spent, counts) == (155, [Usage(100, 3), Usage(50, 2)])
    unknown = await compact(ContextCompactor(), history[2:] + history[2:], "newer")
    assert unknown.tokens_spent is None


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


async def test_the_text_of_notes_of_old_turns_is_left_out_before_anything_else():
    notes = UserMessage(content=f"[notes]\n[passage 1: {'n' * 9_000}", injected=True, sources=("a.md", "b\x1b.md"))
    read = ToolMessage(tool_call_id="c0", name="note_read", content="r" * 9_000, sources=("a.md",))
    small = read.model_copy(update={"content": "short", "tool_call_id": "c1"})
    logged = result("c2", "l" * 9_000)
    calls = [assistant("", f"c{place}") for place in range(3)]
    old = [notes, user("?"), calls[0], read, calls[1], small, calls[2], logged, assistant("one")]
    now = [notes, user("again"), *rounds(5)]
    compacted = await compact(ContextCompactor(threshold_chars=30_000, threshold_messages=100), [*old, *now])

    def left_out(names):
        return f"[The text of notes was left out here to save room; note_read has it: {names}]"

    assert [message.content for message in compacted.messages[:2]] == [left_out("a.md, b.md"), "?"]
    assert compacted.messages[0].sources == notes.sources
    assert compacted.messages[3].content == left_out("a.md")
    assert [*compacted.messages[4:8], *compacted.messages[9:]] == [*old[4:8], *now]
    assert compacted.compacted_count == 0


async def test_notes_of_old_turns_are_left_out_of_the_tail_too():
    def turn(number, size):
        notes = UserMessage(content=f"[notes]\n{'n' * size}", injected=True, sources=(f"{number}.md",))
        return [notes, user(f"{number}?"), assistant("one")]

    history = [*turn(1, 20_000), *turn(2, 20_000), *turn(3, 20_000)[:2]]
    compacted = await compact(ContextCompactor(), history)
    assert [len(message.content) for message in compacted.messages[::3]] == [74, 74, 20_008]
    # Also if that does not bring the history below its limit, and no summary is worth its cost.
    large = [*turn(1, 20_000), *turn(2, 20_000), *turn(3, 60_000)[:2]]
    compacted = await compact(ContextCompactor(), large)
    assert [len(message.content) for message in compacted.messages[::3]] == [74, 74, 60_008]
    assert await compact(ContextCompactor(), compacted.messages) is None


async def test_a_shortened_result_is_not_shortened_again():
    history = [user("go"), *rounds(5, 10_000)]
    compactor = ContextCompactor(retain_recent_messages=4)
    once = await compact(compactor, history)
    assert await compact(compactor, once.messages) is None


# --- a tail that is itself too large --------------------------------------------------------------------------------


async def test_a_tail_over_the_limit_does_not_have_a_few_small_rows_summarised():
    history = [user("go"), assistant("well"), *(user("u" * 8_000) for _ in range(8))]
    assert await compact(ContextCompactor(), history) is None


async def test_a_tail_over_the_limit_is_not_summarised_again_in_every_round():
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
async def test_truncated_snippets_replace_a_summary_that_fails(script):
    history = [user("short"), *(assistant("a" * 300) for _ in range(12)), *(user("u") for _ in range(8))]
    compactor = ContextCompactor(timeout=60)
    compacted = await asyncio.wait_for(compact(compactor, history, script), 61)
    row = f"assistant: {'a' * 189}…"
    assert compacted.summary.split("\n") == ["user: short", *[row] * 12]
    assert compacted.usage is None
    check_harmless(history, compacted, compactor)


async def test_a_lone_surrogate_in_a_summary_is_replaced():
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

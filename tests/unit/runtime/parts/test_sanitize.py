"""sanitize(): a strict server accepts the result of any history, and nothing valid is lost."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import example, given

from agenticx.messages import AssistantMessage, SystemMessage, ToolMessage
from agenticx.runtime import sanitize
from agenticx.runtime.sanitizing import OUTCOME_UNKNOWN, is_valid
from tests.support.histories import (
    assistant,
    broken_histories,
    number,
    result,
    system,
    user,
    valid_histories,
    violations,
)

pytestmark = pytest.mark.promise("D5")


@given(broken_histories())
@example([])
@example(number([result("a"), assistant("", "a", "a"), assistant("", "a"), result("a")]))
def test_a_sanitized_history_is_valid(history):
    assert violations(sanitize(history)) == []


@given(broken_histories())
def test_sanitizing_is_idempotent(history):
    once = sanitize(history)
    assert sanitize(once) == once


@given(broken_histories())
def test_sanitizing_is_deterministic(history):
    assert sanitize(history) == sanitize([row.model_copy() for row in history])


@given(broken_histories())
def test_the_input_is_not_modified(history):
    before = list(history)
    sanitize(history)
    assert history == before


@given(valid_histories())
def test_a_valid_history_comes_back_unchanged(history):
    assert violations(history) == []
    assert sanitize(history) == history


@given(broken_histories())
def test_the_quick_scan_agrees_with_the_strict_validator(history):
    assert is_valid(history) == (violations(history) == [])


@given(broken_histories())
def test_all_texts_keep_their_order(history):
    expected = [row.message_id for row in history if not isinstance(row, ToolMessage) and not _is_empty(row)]
    assert [row.message_id for row in sanitize(history) if not isinstance(row, ToolMessage)] == expected


@given(broken_histories())
def test_a_call_followed_by_its_results_is_unchanged(history):
    kept = sanitize(history)
    places = {row.message_id: place for place, row in enumerate(kept)}
    for place, row in enumerate(history):
        if not isinstance(row, AssistantMessage) or not row.tool_calls:
            continue
        pair = history[place : place + 1 + len(row.tool_calls)]
        if violations(pair) == []:
            start = places[row.message_id]
            assert kept[start : start + len(pair)] == pair


@given(broken_histories())
def test_a_result_that_fits_only_one_call_is_kept(history):
    asked = Counter(call.id for row in history if isinstance(row, AssistantMessage) for call in row.tool_calls)
    answered = Counter(row.tool_call_id for row in history if isinstance(row, ToolMessage))
    certain = [
        row
        for row in history
        if isinstance(row, ToolMessage)
        and row.tool_call_id
        and asked[row.tool_call_id] == 1 == answered[row.tool_call_id]
    ]
    kept = sanitize(history)
    assert [row for row in certain if row not in kept] == []


@given(broken_histories())
def test_no_result_is_invented_except_a_note_that_it_is_unknown(history):
    real = {row.message_id: (row.content, row.outcome) for row in history if isinstance(row, ToolMessage)}
    for row in sanitize(history):
        if isinstance(row, ToolMessage):
            assert (row.content, row.outcome) == real.get(row.message_id, (OUTCOME_UNKNOWN, "unknown"))


@given(broken_histories())
def test_a_new_message_does_not_change_the_result_for_earlier_ones(history):
    """Providers cache by prefix: a repair that depends on later rows would cost every cache hit."""
    assert sanitize([*history, user("next", message_id="msg_next")])[:-1] == sanitize(history)


def test_an_interrupted_call_is_kept_and_gets_a_result():
    history = number([user("go"), assistant("", "a", "b"), result("b"), user("and now?")])
    repaired = sanitize(history)
    assert repaired == [
        history[0],
        history[1],
        ToolMessage(
            tool_call_id="a", name="look", content=OUTCOME_UNKNOWN, outcome="unknown", message_id="msg_unknown_a"
        ),
        history[2],
        history[3],
    ]


def test_a_misplaced_result_is_moved_after_its_call():
    late = number([assistant("", "a"), user("well?"), result("a")])
    assert sanitize(late) == [late[0], late[2], late[1]]
    early = number([result("a"), assistant("", "a")])
    assert sanitize(early) == [early[1], early[0]]


def test_a_system_row_in_the_middle_stays_there_in_the_users_role():
    history = number([system("be brief"), user("go"), system("it is late"), assistant("ok")])
    note = user("[system note] it is late", message_id="msg_2", injected=True)
    assert sanitize(history) == [history[0], history[1], note, history[3]]


def test_calls_with_equal_ids_get_distinct_ids_in_order():
    history = number([assistant("", "a", "a", "", "a_1"), result("a", "first"), result("a", "second")])
    row, *results = sanitize(history)
    assert [call.id for call in row.tool_calls] == ["a", "a_1_", "call_2", "a_1"]
    assert [(row.tool_call_id, row.content) for row in results] == [
        ("a", "first"),
        ("a_1_", "second"),
        ("call_2", OUTCOME_UNKNOWN),
        ("a_1", OUTCOME_UNKNOWN),
    ]


def test_a_reused_id_gets_the_result_of_its_own_round():
    history = number([assistant("", "a"), assistant("", "a"), result("a", "of the second")])
    assert [row.content for row in sanitize(history) if isinstance(row, ToolMessage)] == [
        OUTCOME_UNKNOWN,
        "of the second",
    ]


def test_leading_system_messages_are_unchanged():
    history = number([system("one"), system("two")])
    assert sanitize(history) == history
    assert all(isinstance(row, SystemMessage) for row in sanitize(history))


def _is_empty(row):
    return isinstance(row, AssistantMessage) and not row.content and not row.tool_calls


def test_rows_are_repaired_to_rows_and_those_that_stay_are_the_same_objects():
    call = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    rows = [
        {"role": "user", "content": "Look.", "name": None},
        {"role": "tool", "tool_call_id": "c0", "content": "of no call"},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "user", "content": "Well?"},
    ]
    repaired = sanitize(rows)
    assert repaired == [
        rows[0],
        rows[2],
        {"role": "tool", "tool_call_id": "c1", "content": OUTCOME_UNKNOWN},
        rows[3],
    ]
    assert repaired[1] is rows[2]
    assert sanitize(repaired) == repaired

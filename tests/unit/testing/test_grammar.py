"""The rules of the event grammar, each satisfied by one turn and violated once."""

from __future__ import annotations

from copy import deepcopy

import pytest

from agenticx.runtime import EventType, RuntimeEvent
from agenticx.testing import GrammarError, check_grammar

USAGE = {"input_tokens": None, "output_tokens": None}
CONTEXT = {"tool": "add", "tool_call_id": "c", "arguments": {}, "risk": "execute", "reasons": []}
STARTED = ("turn_started", {"input": "go", "model": "m", "message_id": "u"})
ROUND = ("round_start", {"round": 1, "max_rounds": 10})
ROUND_2 = ("round_start", {"round": 2, "max_rounds": 10})
CALL = ("tool_call", {"tool_call_id": "c1", "name": "add", "arguments": {}})
CALL_2 = ("tool_call", {"tool_call_id": "c2", "name": "add", "arguments": {}})
ASKED = (
    "confirm_required",
    {"id": "q", "question": "?", "context": CONTEXT, "digest": "d", "expires_at": "2030-01-01T00:00:00Z"},
)
ANSWERED = ("confirm_response", {"id": "q", "approved": True, "by": "user"})
QUESTION = (
    "question_asked",
    {"id": "q", "text": "?", "expires_at": "2030-01-01T00:00:00Z", "tool_call_id": "c1"},
)
ANSWER = ("question_answered", {"id": "q", "answer": "3", "by": "user"})
TOOL_STALL = ("stall", {"phase": "tool", "elapsed_seconds": 0.0, "limit_seconds": 2.0, "action": "waiting"})
PROGRESS = ("tool_progress", {"tool_call_id": "c1", "name": "add", "elapsed_seconds": 2.0})
RESULT = ("tool_result", {"tool_call_id": "c1", "name": "add", "result": "3", "is_error": False, "outcome": "ok"})
RESULT_2 = ("tool_result", {"tool_call_id": "c2", "name": "add", "result": "3", "is_error": False, "outcome": "ok"})
TOKEN = ("token", {"text": "dr\N{SLICE OF PIZZA}i", "message_id": "m", "offset": 0})
TOKEN_2 = ("token", {"text": "!", "message_id": "m", "offset": 4})
FINAL = ("final", {"text": "dr\N{SLICE OF PIZZA}i!", "message_id": "m", "reason": "answer", "usage": USAGE})
WAITING = ("token", {"text": "", "message_id": "m", "offset": 0, "waiting": True, "elapsed_seconds": 8.0})
STOPPED = ("error", {"text": "stopped", "code": "stopped", "fatal": True})

TURN = [STARTED, ROUND, CALL, ASKED, ANSWERED, PROGRESS, RESULT, ROUND_2, WAITING, TOKEN, TOKEN_2, FINAL]


def events(*rows, agent_id="meta"):
    return [RuntimeEvent(EventType(type_), deepcopy(data), agent_id) for type_, data in rows]


def envelopes(*rows, turn_id="t", first=1, session_id="s"):
    return [
        {"type": t, "data": d, "agent_id": "meta", "session_id": session_id, "turn_id": turn_id, "seq": n, "ts": "Z"}
        for n, (t, d) in enumerate(rows, first)
    ]


def state(name):
    return ("state", {"state": name})


def changed(row, **data):
    return (row[0], {**row[1], **data})


def violations(given, **options):
    with pytest.raises(GrammarError) as caught:
        check_grammar(given, **options)
    return list(caught.value.violations)


def test_a_good_turn_passes_as_events_and_as_envelopes():
    check_grammar(events(*TURN))
    check_grammar(envelopes(*TURN))
    check_grammar(envelopes(STARTED, ROUND, CALL, QUESTION, ANSWER, RESULT, STOPPED))


def test_the_turns_of_a_log_are_checked_independently():
    log = [*envelopes(STARTED, ROUND, TOKEN), *envelopes(*TURN, turn_id="u", first=4)]
    log += envelopes(TOKEN_2, FINAL, first=4 + len(TURN))
    check_grammar(log)


def test_a_running_turn_passes_only_if_incomplete_turns_are_allowed():
    check_grammar(events(*TURN[:6]), complete=False)
    assert violations(events(*TURN[:6])) == ["the turn: ends without a terminal event"]


@pytest.mark.parametrize(
    ("turn", "expected"),
    [
        ([ROUND, STARTED, TOKEN, TOKEN_2, FINAL], "event 1 (round_start): turn_started must come first"),
        ([STARTED, STARTED, TOKEN, TOKEN_2, FINAL], "event 2 (turn_started): a turn starts once"),
        ([*TURN, TOKEN], "event 13 (token): comes after the terminal event final:answer"),
        ([*TURN, FINAL], "event 13 (final:answer): comes after the terminal event final:answer"),
        ([STARTED, ROUND_2, STOPPED], "event 2 (round_start): round 2 where 1 was due"),
        (
            [STARTED, ROUND, CALL, ROUND_2, RESULT, STOPPED],
            "event 4 (round_start): the model continues while these calls have no result: add (c1)",
        ),
        (
            [STARTED, ROUND, CALL, STOPPED],
            "event 4 (error:stopped): the turn ends while these calls have no result: add (c1)",
        ),
        (
            [STARTED, ROUND, CALL, CALL_2, RESULT_2, RESULT, STOPPED],
            "event 5 (tool_result:ok): result of c2 before that of c1, which was called earlier",
        ),
        ([STARTED, ROUND, CALL, RESULT, RESULT, STOPPED], "event 5 (tool_result:ok): c1 already has its result"),
        ([STARTED, ROUND, RESULT, STOPPED], "event 3 (tool_result:ok): c1 was never called"),
        (
            [STARTED, ROUND, CALL, RESULT, CALL_2, RESULT_2, STOPPED],
            "event 5 (tool_call:add): a call is announced after a call of its round began",
        ),
        (
            [STARTED, ROUND, CALL, RESULT, ROUND_2, CALL, RESULT, STOPPED],
            "event 6 (tool_call:add): tool_call_id c1 is used twice",
        ),
        (
            [STARTED, ROUND, CALL, changed(RESULT, name="sub"), STOPPED],
            "event 4 (tool_result:ok): is named 'sub', its call 'add'",
        ),
        (
            [STARTED, ROUND, CALL, changed(RESULT, outcome="denied"), STOPPED],
            "event 4 (tool_result:denied): is_error is False for outcome denied",
        ),
        ([STARTED, ROUND, PROGRESS, STOPPED], "event 3 (tool_progress): c1 is not a call without a result"),
        ([STARTED, ROUND, TOOL_STALL, STOPPED], "event 3 (stall:tool): stall outside of any call"),
        (
            [STARTED, ("artifact", {"path": "a", "final": True, "tool_call_id": "c1"}), STOPPED],
            "event 2 (artifact): c1 is not written and does not run",
        ),
        (
            [STARTED, ROUND, CALL, ANSWERED, RESULT, STOPPED],
            "event 4 (confirm_response:approved): q was never asked",
        ),
        (
            [STARTED, ROUND, CALL, ASKED, ANSWERED, ANSWERED, RESULT, STOPPED],
            "event 6 (confirm_response:approved): q is answered twice",
        ),
        ([STARTED, ROUND, CALL, ASKED, RESULT, STOPPED], "event 6 (error:stopped): q is still unanswered"),
        ([STARTED, ROUND, CALL, ANSWER, RESULT, STOPPED], "event 4 (question_answered): q was never asked"),
        (
            [STARTED, ROUND, CALL, QUESTION, ANSWERED, RESULT, STOPPED],
            "event 5 (confirm_response:approved): q was asked by question_asked",
        ),
        (
            [STARTED, ROUND, CALL, changed(QUESTION, tool_call_id="c2"), ANSWER, RESULT, STOPPED],
            "event 4 (question_asked): c2 is not a call without a result",
        ),
        ([STARTED, ROUND, CALL, QUESTION, RESULT, STOPPED], "event 6 (error:stopped): q is still unanswered"),
        (
            [STARTED, ROUND, TOKEN, changed(TOKEN_2, offset=5), changed(FINAL, text="other"), STOPPED],
            "event 4 (token): offset 5 where 4 was due",
        ),
        ([STARTED, ROUND, changed(TOKEN, text=""), STOPPED], "event 3 (token): empty text"),
        (
            [STARTED, ROUND, WAITING, WAITING, STOPPED],
            "event 4 (token:waiting): a second waiting token for this model call",
        ),
        (
            [*TURN[:-1], changed(FINAL, stop_reason="enough")],
            "event 12 (final:answer): a turn with rounds has no stop_reason",
        ),
        (
            [*TURN[:-1], changed(FINAL, reason="handoff")],
            "event 12 (final:handoff): there is no handoff before it",
        ),
        (
            [STARTED, ROUND, TOKEN, FINAL],
            "event 4 (final:answer): its text differs from the streamed 'dr\N{SLICE OF PIZZA}i'",
        ),
        (
            [STARTED, state("planning"), state("planning"), state("done"), STOPPED],
            "event 3 (state:planning): state planning does not change",
        ),
        ([STARTED, state("idle"), state("done"), STOPPED], "event 2 (state:idle): idle is for the time between turns"),
        (
            [STARTED, state("planning"), STOPPED],
            "event 3 (error:stopped): state done must come just before it; the state is planning",
        ),
        (
            [STARTED, changed(STOPPED, code="oops")],
            "event 2 (error:oops): code 'oops' is not in the contract",
        ),
        (
            [STARTED, ("error", {"text": "", "code": "stopped", "fatal": False}), STOPPED],
            "event 2 (error:stopped): code 'stopped' is not in the contract",
        ),
        ([STARTED, changed(ROUND, more=1), STOPPED], "event 2 (round_start): data.more: is not in the contract"),
        (
            [STARTED, changed(ROUND, round="1"), STOPPED],
            "event 2 (round_start): data.round: Input should be a valid integer",
        ),
    ],
)
def test_a_broken_rule_is_named_where_it_is_broken(turn, expected):
    assert violations(events(*turn))[0] == expected


def test_all_violations_are_reported_together():
    assert violations(events(ROUND_2, CALL)) == [
        "event 1 (round_start): turn_started must come first",
        "event 1 (round_start): round 2 where 1 was due",
        "the turn: ends without a terminal event",
    ]


def test_a_paused_agent_ends_its_own_turn_and_not_that_of_its_parent():
    paused = (
        "subagent_paused",
        {"round": 1, "max_rounds": 1, "checkpoint": {}, "parent_agent_id": "meta", "depth": 1},
    )
    check_grammar(events(STARTED, ROUND, paused, agent_id="scout"))
    check_grammar([*events(STARTED, ROUND), *events(paused, agent_id="scout"), *events(STOPPED)])


def test_sequence_numbers_count_up_within_a_session():
    log = [*envelopes(STARTED, ROUND), *envelopes(STOPPED, first=2)]
    assert violations(log) == ["event 3 (error:stopped): seq 2 does not come after 2"]
    check_grammar([*envelopes(STARTED, STOPPED), *envelopes(STARTED, STOPPED, turn_id="u", session_id="other")])


def waiting(type_, turn_id):
    return (type_, {"turn_id": turn_id, "message_id": "u", "input": "go"})


def session_event(*events, first):
    return [one | {"turn_id": None} for one in envelopes(*events, first=first)]


def test_a_queued_message_starts_the_turn_that_was_named_last():
    log = [*session_event(waiting("queued", "t"), waiting("queued", "u"), first=1)]
    check_grammar([*log, *envelopes(STARTED, STOPPED, turn_id="u", first=3)])
    assert violations([*log, *envelopes(STARTED, STOPPED, turn_id="t", first=3)]) == [
        "event 3 (turn_started): u was queued for u"
    ]


def test_a_queued_message_has_one_outcome():
    log = session_event(waiting("queued", "t"), waiting("handed_back", "t"), first=1)
    assert violations([*log, *envelopes(STARTED, STOPPED, first=3)]) == [
        "event 3 (turn_started): u already has an outcome"
    ]
    again = session_event(waiting("queued", "t"), first=3)
    assert violations([*log, *again], complete=False) == ["event 3 (queued): u already has an outcome"]


def test_call_ids_are_unique_within_a_session():
    log = [
        *envelopes(STARTED, ROUND, CALL, RESULT, STOPPED),
        *envelopes(STARTED, ROUND, CALL, RESULT, STOPPED, turn_id="u", first=6),
    ]
    assert violations(log) == ["event 8 (tool_call:add): tool_call_id c1 is used twice"]


def test_a_turn_below_another_one_begins_after_it_and_may_end_later():
    below = ("turn_started", {**STARTED[1], "parent_turn_id": "t"})

    def of_leaf(*items, first):
        return [one | {"agent_id": "leaf"} for one in envelopes(*items, turn_id="u", first=first)]

    check_grammar(
        [*envelopes(STARTED), *of_leaf(below, first=2), *envelopes(STOPPED, first=3), *of_leaf(STOPPED, first=4)]
    )
    check_grammar(of_leaf(below, STOPPED, first=1))
    assert violations([*of_leaf(below, STOPPED, first=1), *envelopes(STARTED, STOPPED, first=3)]) == [
        "event 3 (turn_started): a child turn began earlier"
    ]
    assert violations(
        [*envelopes(STARTED), *envelopes(below, STOPPED, turn_id="u", first=2), *envelopes(STOPPED, first=4)]
    ) == ["event 2 (turn_started): a child turn has an agent of its own"]


def test_only_session_events_have_no_turn():
    check_grammar([*envelopes(STARTED, STOPPED), *envelopes(("session_changed", {"name": "x"}), turn_id=None, first=3)])
    assert violations([*envelopes(STARTED, STOPPED), *envelopes(ROUND, turn_id=None, first=3)]) == [
        "event 3 (round_start): belongs to a turn, but its turn_id is null"
    ]


def test_values_that_are_no_events_are_refused():
    with pytest.raises(TypeError, match="neither a RuntimeEvent nor an envelope"):
        check_grammar([{"event": "token"}])

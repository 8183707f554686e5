"""Outlines and patterns of event sequences."""

from __future__ import annotations

import re

import pytest

from agenticx.runtime import EventType, RuntimeEvent
from agenticx.testing import assert_sequence, outline


def event(type_, **data):
    return RuntimeEvent(EventType(type_), data)


TURN = [
    event("turn_started", input="go"),
    event("state", state="planning"),
    event("token", text="", waiting=True),
    event("token", text="I'll "),
    event("token", text="look."),
    event("usage", input_tokens=1),
    event("tool_call", name="add", arguments={"a": 1, "b": 2}),
    event("tool_result", outcome="denied", result="Denied by the user."),
    event("error", code="stopped", fatal=True),
]


def test_an_outline_merges_tokens_and_hides_state_and_usage():
    assert outline(TURN) == ["turn_started", "token", "tool_call", "tool_result", "error"]


def test_an_outline_shows_the_requested_events():
    assert outline(TURN, state=True, usage=True, tokens="each", detail=True) == [
        "turn_started",
        "state:planning",
        "token:waiting",
        "token",
        "token",
        "usage",
        "tool_call:add",
        "tool_result:denied",
        "error:stopped",
    ]


def test_an_outline_reads_envelopes():
    assert outline([{"type": "error", "data": {"code": "stopped"}, "turn_id": "t"}], detail=True) == ["error:stopped"]


@pytest.mark.parametrize(
    "pattern",
    [
        ["turn_started", "token+", "tool_call", "tool_result", "error"],
        ["turn_started", "token:waiting?", "token*", "tool_call:add", "tool_result:denied", "final|error:stopped"],
        ["...", "tool_result:denied|tool_result:cancelled", "..."],
        [..., "error"],
        ["turn_started", "..."],
        ["...", "state", "...", "usage", "..."],
        ["...", ("tool_call", {"arguments": {"b": 2}}), {"outcome": "denied", "result": re.compile("^Denied")}, "..."],
        ["...", ("tool_call", {"name": ...}), "..."],
        ["thinking*", "turn_started", "thinking?", "...", "error", "thinking*"],
        ["...", "...", "token", "token", "..."],
    ],
)
def test_a_pattern_that_fits(pattern):
    assert_sequence(TURN, pattern)


@pytest.mark.parametrize(
    "pattern",
    [
        [],
        ["turn_started"],
        ["turn_started", "token", "tool_call", "tool_result", "error"],
        ["...", "final"],
        ["...", "error", "token?", "final"],
        ["...", ("tool_call", {"arguments": {"c": 3}}), "..."],
        ["...", ("tool_call", {"more": ...}), "..."],
        ["turn_started", "thinking+", "..."],
        ["turn_started", "token+", "tool_call", "tool_result", "error", "final"],
    ],
)
def test_a_pattern_that_does_not_fit(pattern):
    with pytest.raises(AssertionError):
        assert_sequence(TURN, pattern)


def test_a_failure_shows_the_first_mismatch_and_the_event_there():
    with pytest.raises(AssertionError) as caught:
        assert_sequence(TURN[5:], ["tool_call", ("tool_result", {"outcome": "ok"}), "final"])
    assert str(caught.value).splitlines() == [
        "event 2 is tool_result:denied, expected tool_result {'outcome': 'ok'}",
        "  its data: {'outcome': 'denied', 'result': 'Denied by the user.'}",
        "    pattern                            events",
        "    tool_call                        = tool_call:add",
        "    tool_result {'outcome': 'ok'}    ! tool_result:denied",
        "    final                              error:stopped",
    ]


def test_a_failure_says_that_events_are_missing_or_too_many():
    with pytest.raises(AssertionError, match=r"^the events end, expected token\* or final\n"):
        assert_sequence([event("turn_started")], ["turn_started", "token*", "final"])
    with pytest.raises(AssertionError, match=r"^event 2 is error:stopped, expected nothing more\n"):
        assert_sequence([event("turn_started"), TURN[-1]], ["turn_started"])

"""The change of a conversation that is stored, whatever was done to its list of messages."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import count

import pytest

from agenticx import UserMessage
from agenticx.messages import Message
from agenticx.sessions import SessionRecord, SessionState
from agenticx.sessions.hub.state_tracker import StateTracker, load_session

_numbers = count()


def new() -> Message:
    return UserMessage(content=str(next(_numbers)))


def place(rng: random.Random, messages: list[Message]) -> int:
    return rng.randrange(-len(messages), len(messages))


CHANGES: list[Callable[[random.Random, list[Message]], object]] = [
    lambda rng, messages: messages.__setitem__(place(rng, messages), new()),
    lambda rng, messages: messages.insert(rng.randrange(-3, len(messages) + 3), new()),
    lambda rng, messages: messages.pop(place(rng, messages)),
    lambda rng, messages: messages.__setitem__(slice(rng.randrange(3), rng.randrange(6)), [new(), new()]),
    lambda rng, messages: messages.__delitem__(slice(rng.randrange(-4, 4), None, rng.choice([1, 2, -1, -2]))),
    lambda rng, messages: messages.reverse(),
    lambda rng, messages: messages.remove(rng.choice(messages)),
    lambda rng, messages: messages.__iadd__([new()]),
    *[lambda rng, messages: messages.append(new())] * 5,
]


@pytest.mark.cases(quick=100, full=2_000)
def test_the_changes_of_a_conversation_make_what_it_is(rng: random.Random) -> None:
    begin = SessionState([new() for _ in range(rng.randrange(5))])
    session = load_session(SessionRecord(workspace="/tmp", created_at=""), begin)
    tracker, stored, messages = StateTracker(session), list(session.messages), session.messages
    for _ in range(30):
        if not messages:
            messages.append(new())
        rng.choice(CHANGES)(rng, messages)
        change = tracker.pending_change() if rng.random() < 0.7 else None
        if change is not None and rng.random() < 0.7:  # else the commit fails
            messages.append(new())  # while the commit is made
            stored[change.keep_messages :] = change.messages
            tracker.mark_stored(change)
    change = tracker.pending_change()
    if change is not None:
        stored[change.keep_messages :] = change.messages
    assert stored == session.messages

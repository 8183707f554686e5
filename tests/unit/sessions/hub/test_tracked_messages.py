"""The change of a conversation that is stored, whatever was done to its list of messages."""

from __future__ import annotations

import random

import pytest

from agenticx.messages import Message, UserMessage
from agenticx.sessions import SessionRecord
from agenticx.sessions.hub.state import StateTracker, load_session
from agenticx.sessions.store.records import SessionState


@pytest.mark.cases(quick=100, full=2_000)
def test_the_changes_of_a_conversation_make_what_it_is(rng: random.Random) -> None:
    names = iter(range(10_000))

    def new() -> Message:
        return UserMessage(content=str(next(names)))

    session = load_session(
        SessionRecord(workspace="/tmp", created_at=""), SessionState([new() for _ in range(rng.randrange(5))])
    )
    tracker, stored, messages = StateTracker(session), list(session.messages), session.messages
    for _ in range(30):
        match rng.randrange(10):
            case 0 if messages:
                messages[rng.randrange(-len(messages), len(messages))] = new()
            case 1:
                messages.insert(rng.randrange(-3, len(messages) + 3), new())
            case 2 if messages:
                messages.pop(rng.randrange(-len(messages), len(messages)))
            case 3:
                messages[rng.randrange(3) : rng.randrange(6) : rng.choice([None, 1])] = [new(), new()]
            case 4:
                del messages[rng.randrange(-4, 4) :: rng.choice([1, 2, -1, -2])]
            case 5:
                messages.reverse()
            case 6 if messages:
                messages.remove(rng.choice(messages))
            case 7:
                messages += [new()]
            case _:
                messages.append(new())
        change = tracker.pending_change() if rng.random() < 0.7 else None
        if change is not None and rng.random() < 0.7:
            if rng.random() < 0.2:
                messages.append(new())  # while the commit is made
            stored[change.keep_messages :] = change.messages
            tracker.mark_stored(change)
    change = tracker.pending_change()
    if change is not None:
        stored[change.keep_messages :] = change.messages
    assert stored == session.messages

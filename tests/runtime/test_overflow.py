"""A history that the provider finds too long: compacted once, sent again."""

from __future__ import annotations

import pytest

from agenticx.errors import ModelError
from agenticx.messages import AssistantMessage, UserMessage
from agenticx.testing import fail, outline, say

pytestmark = pytest.mark.anyio

TOO_LONG = ModelError("the prompt is too long", code="context_overflow")


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


async def test_a_history_that_is_still_too_long_ends_the_turn(play):
    run = await play([fail(TOO_LONG), say("Summary."), fail(TOO_LONG)], session=fill(play.session(), 16))

    assert outline(run.events, detail=True)[-2:] == ["compaction", "error:context_overflow"]


async def test_a_short_history_has_nothing_to_compact(play):
    run = await play([fail(TOO_LONG)])

    assert outline(run.events, detail=True) == ["turn_started", "round_start", "error:context_overflow"]

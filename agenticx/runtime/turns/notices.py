"""Notices for agents below the main one, which are kept with the session of the turn at the top."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agenticx.messages import UserMessage

if TYPE_CHECKING:
    from agenticx.runtime.turn import Turn

__all__ = ["take_notices_of_top"]


def take_notices_of_top(turn: Turn) -> UserMessage | None:
    """Remove the notices for the agent of a turn below another one, and return the message with them.

    They are those of sub-agents that it has started. Where the turn at the top calls no model, as that of a team, they
    are also those that are for nobody in particular, such as after a restart. None if there are none.
    """
    top = turn
    while top.context.parent is not None:
        top = top.context.parent
    is_next = top.context.work is not None and not turn.context.outlives_parent
    readers = {turn.agent_id, ""} if is_next else {turn.agent_id}
    chosen = [notice for notice in top.session.notices if notice.reader in readers]
    return top.session.take_notices(chosen) if chosen else None

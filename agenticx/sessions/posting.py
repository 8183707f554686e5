"""What a client posts to a session, and what it is told: a turn that began, or a message that waits for one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from agenticx.attachments import Attachment, fingerprint
from agenticx.errors import AgenticXError
from agenticx.messages import UserMessage
from agenticx.sessions.base import TurnRecord

__all__ = ["HubClosed", "PostState", "Posted", "TurnConflict", "TurnFailed", "TurnRequest", "WhenBusy", "check_same"]

WhenBusy = Literal["reject", "queue", "steer", "interrupt"]
"""What becomes of a message while a turn runs: nothing; a turn behind it; a part of it; a turn in its stead."""

PostState = Literal["started", "queued", "steered", "handed_back"]


class HubClosed(AgenticXError):
    """The hub is shutting down and starts nothing any more."""


class TurnConflict(AgenticXError):
    """That `client_turn_id` was used before, for another input."""


class TurnFailed(AgenticXError):
    """The turn broke before its first event was stored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnRequest:
    """What a client asks for; `model` overrides the session's for this turn."""

    input: str
    attachments: tuple[Attachment, ...] = ()
    client_turn_id: str | None = None
    model: str | None = None
    when_busy: WhenBusy = "reject"


@dataclass(frozen=True, slots=True, kw_only=True)
class Posted:
    """What has become of a posted message so far.

    `started`: it began `turn`. `queued`: it will begin `turn`. `steered`: it is or will be taken into `turn`, which
    another message began. `handed_back`: nothing came of it. What the log tells of it stands behind `after_seq`.
    """

    state: PostState
    turn: TurnRecord
    message_id: str | None = None
    after_seq: int = 0


def check_same(client_turn_id: str | None, known: TurnRecord | UserMessage, request: TurnRequest) -> None:
    """Raise `TurnConflict` unless `known`, which took the id first, said the same."""
    if isinstance(known, UserMessage):
        said = (known.content, fingerprint(known.attachments))
    else:
        said = (known.input, known.attachments_digest)
    if said != (request.input, fingerprint(request.attachments)):
        raise TurnConflict(
            f"client_turn_id {client_turn_id!r} was used for another input; a new message takes a new id"
        )

"""The frames of an event stream that are not events of the log: a reset, and the end of the server; pages of events."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field
from typing_extensions import TypedDict

__all__ = ["ClosingReason", "EventPageResponse", "ResetData", "ResetFrame", "ServerClosingData", "ServerClosingFrame"]


class ResetData(TypedDict):
    """The reason for a reset, a sentence."""

    reason: Annotated[str, Field(description="A sentence that says why the cursor is not valid.")]


class ResetFrame(TypedDict):
    """A notice that the cursor of the request is not valid: the stream starts at its beginning."""

    type: Literal["reset"]
    data: Annotated[ResetData, Field(description="Why the stream begins anew.")]
    session_id: Annotated[str | None, Field(description="The session of the stream, null for that of all sessions.")]


ClosingReason = Literal["stopped", "handed_over", "parent_ended"]


class ServerClosingData(TypedDict):
    """The reason why a server shuts down."""

    reason: Annotated[
        ClosingReason,
        Field(
            description="`stopped`: by a signal, for example because a newer one takes over; `handed_over`: another "
            "worker of the store goes on, so connect again; `parent_ended`: the program that started it has ended."
        ),
    ]


class ServerClosingFrame(TypedDict):
    """The last frame of a stream whose server shuts down; the client resumes at its cursor."""

    type: Literal["server_closing"]
    data: Annotated[ServerClosingData, Field(description="Why the server shuts down.")]


class EventPageResponse(TypedDict):
    """A page of the stored events of a session, in order, as a stream has them."""

    events: Annotated[list[dict[str, Any]], Field(description="The events, each as an `Event`.")]
    before: Annotated[str, Field(description="The cursor just before the first event: `until` of the page before it.")]
    cursor: Annotated[
        str,
        Field(description="The cursor of the last event: `from` of the page after it, `cursor` of a stream."),
    ]
    has_more: Annotated[
        bool,
        Field(description="true: with `from` there are later events up to `until`; without it there are earlier ones."),
    ]

"""The frames of an event stream that are not events of the log: a reset, and the end of the server."""

from __future__ import annotations

from typing import Literal

from typing_extensions import TypedDict

__all__ = ["ResetData", "ResetFrame", "ServerClosingFrame"]


class ResetData(TypedDict):
    """The reason for a reset, a sentence."""

    reason: str


class ResetFrame(TypedDict):
    """A notice that the cursor of the request is not valid: the stream starts at its beginning."""

    type: Literal["reset"]
    data: ResetData
    session_id: str | None


class ServerClosingFrame(TypedDict):
    """The last frame of a stream whose server shuts down; the client resumes at its cursor."""

    type: Literal["server_closing"]

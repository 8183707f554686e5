"""Where sessions are kept and their turns run: what a command asks of it, be it this process or a server."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, Protocol

from agenticx.cli.envelopes import Envelope
from agenticx.errors import AgenticXError
from agenticx.messages import UserMessage
from agenticx.runtime import ConfirmAnswer
from agenticx.sessions.base import SessionRecord
from agenticx.tools.permissions import PermissionMode

__all__ = ["Client", "ServerLost", "SessionInfo", "SessionOptions", "TurnPosition"]


class ServerLost(AgenticXError):
    """The server that ran a turn went away and did not come back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionOptions:
    """What a session is made of; None leaves it to whoever keeps it."""

    workspace: str
    permission_mode: PermissionMode
    model: str | None = None
    tools: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class SessionInfo:
    """A session as lists tell of it; `matches` says where a search found it."""

    record: SessionRecord
    running_turn_id: str | None = None
    matches: Sequence[Mapping[str, Any]] = field(default_factory=tuple[Mapping[str, Any], ...])

    @property
    def id(self) -> str:
        return self.record.id

    def to_json(self) -> dict[str, Any]:
        """The object that the server's list has of it."""
        found = {"matches": [dict(match) for match in self.matches]} if self.matches else {}
        return {**asdict(self.record), "running_turn_id": self.running_turn_id, **found}


@dataclass(frozen=True, slots=True)
class TurnPosition:
    """A turn, and the place in its session's log from which to read on; None: from the turn's first event."""

    turn_id: str
    cursor: str | None = None


class Client(Protocol):
    """Sessions and their turns. What names a session raises `SessionNotFound` when there is none."""

    @property
    def confirms_by_policy(self) -> bool:
        """Whether questions are decided where the turn runs, so that nobody here needs to answer them."""
        ...

    @property
    def persistent(self) -> bool:
        """Whether the sessions will be there when this process is not."""
        ...

    async def create(self, options: SessionOptions) -> SessionInfo: ...
    async def get(self, session_id: str) -> SessionInfo: ...

    async def list_sessions(
        self, *, query: str | None = None, limit: int = 50, before: str | None = None, archived: bool = False
    ) -> Sequence[SessionInfo]:
        """Pinned ones first, then newest first, behind the session `before`; with the `archived` ones if asked for."""
        ...

    async def change(self, session_id: str, changes: Mapping[str, Any]) -> SessionInfo:
        """Replace fields of the session's record."""
        ...

    async def delete(self, session_id: str) -> None: ...

    async def start(self, session_id: str, message: UserMessage, model: str | None) -> TurnPosition:
        """Begin a turn; raises `SessionBusy` while another one runs."""
        ...

    async def running_turn(self, session_id: str) -> TurnPosition | None:
        """The turn that runs, one that waited for a person when its process ended included."""
        ...

    def follow(self, session_id: str, position: TurnPosition) -> AbstractAsyncContextManager[AsyncIterator[Envelope]]:
        """The session's events from `place` to the turn's terminal one, as they are stored.

        They end without one only if none can come any more. Reading them raises `DeskLost`.
        """
        ...

    async def stop(self, session_id: str) -> None:
        """Ask the running turn to end, if one runs."""
        ...

    async def answer(self, request_id: str, digest: str, answer: ConfirmAnswer) -> None:
        """Answer a question; raises an `AgenticXError` if it is closed."""
        ...

    def read_log(self, session_id: str) -> AbstractAsyncContextManager[AsyncIterator[Envelope]]:
        """All events that the session has now."""
        ...

    def export(
        self, session_id: str, form: Literal["jsonl", "markdown"]
    ) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """The session as a file, in pieces."""
        ...

    async def resolve_model(self, name: str | None) -> str:
        """What the model is called that `name` means, None being the default; raises an `AgenticXError` if none is."""
        ...

    async def tools(self) -> Sequence[tuple[str, str]]:
        """Name and description of what the agent can use."""
        ...

    async def aclose(self) -> None: ...

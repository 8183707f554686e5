"""The protocols of sessions for commands, in this process or on a server."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

from agenticx.cli.client.envelopes import Envelope
from agenticx.errors import AgenticXError
from agenticx.messages import UserMessage
from agenticx.permissions.rules import Rule
from agenticx.permissions.verdict import PermissionMode
from agenticx.runtime.user_requests.requests import UserAnswer
from agenticx.sessions.log.session_record import SessionRecord
from agenticx.sessions.log.usage import DailyUsage
from agenticx.sessions.store.base import ListedSession
from agenticx.tools.artifacts.files import Artifact

__all__ = [
    "DEFAULT_OPTIONS",
    "Client",
    "ResolvedModel",
    "RewindReport",
    "ServerLost",
    "SessionInfo",
    "SessionOptions",
    "SessionReader",
    "TurnMode",
    "TurnOptions",
    "TurnPosition",
]


class ServerLost(AgenticXError):
    """Raised when the server that ran a turn became unreachable and did not come back in time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionOptions:
    """The options of a new session; None leaves the choice to the store or server that creates it."""

    workspace: str
    permission_mode: PermissionMode
    model: str | None = None
    tools: tuple[str, ...] | None = None
    team: str | None = None
    agent: str | None = None


TurnMode = Literal["chat", "vault", "agent"]
"""The kinds of answers: from general knowledge, from notes, or by work with tools."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnOptions:
    """The options of a turn; None leaves the choice to its session.

    `mode` takes precedence over the mode that the words of the message suggest. With `variants`, a number or the names
    of as many models, the turn makes options of the message. With `compact` it compacts the conversation instead of
    answering. With `when_busy="queue"` the message waits for the running turn of its session, if there is one.
    """

    model: str | None = None
    permission_mode: PermissionMode | None = None
    client_turn_id: str | None = None
    mode: TurnMode | None = None
    vaults: tuple[str, ...] | None = None
    variants: int | tuple[str, ...] | None = None
    compact: bool = False
    when_busy: Literal["reject", "queue"] | None = None


DEFAULT_OPTIONS = TurnOptions()
"""The options of a turn that leave every choice to its session."""


@dataclass(frozen=True, slots=True)
class SessionInfo:
    """A session's record and running turn; `matches` are the excerpts that a search found in it."""

    record: SessionRecord
    running_turn_id: str | None = None
    matches: Sequence[Mapping[str, Any]] = field(default_factory=tuple[Mapping[str, Any], ...])

    @property
    def id(self) -> str:
        return self.record.id

    @classmethod
    def of(cls, listed: ListedSession) -> SessionInfo:
        """Return a session of a list."""
        return cls(listed.record, listed.running_turn_id, [asdict(match) for match in listed.matches])

    def to_json(self) -> dict[str, Any]:
        """Return the object that `GET /api/sessions` lists for this session."""
        matches = {"matches": [dict(match) for match in self.matches]} if self.matches else {}
        row = {**asdict(self.record), "running_turn_id": self.running_turn_id, **matches}
        row["agent"] = self.record.agent_name
        del row["agent_file"], row["system_prompt"], row["workspace_host"]
        return row


@dataclass(frozen=True, slots=True)
class ResolvedModel:
    """The full name of a model, and the tokens of its context window, None if they are not known."""

    name: str
    context_window: int | None = None


@dataclass(frozen=True, slots=True)
class TurnPosition:
    """A turn, and the log cursor from which to read it; None starts at the turn's first event.

    With a `queued_message_id`, that message waits for the running turn, to begin this one.
    """

    turn_id: str
    cursor: str | None = None
    queued_message_id: str | None = None


@dataclass(frozen=True, slots=True)
class RewindReport:
    """The result of a rewind; a rewind to `undo` reverses it, None being the beginning, before any message.

    `files` are objects with `path`, `outcome` and `reason`, as `POST /api/sessions/{id}/rewind` returns them.
    """

    rewound_to: str | None
    undo: str | None
    files: Sequence[Mapping[str, Any]] = ()


class SessionReader(Protocol):
    """Access to stored sessions that changes nothing.

    Every method that takes a session id raises `SessionNotFound` for an unknown one.
    """

    async def get(self, session_id: str) -> SessionInfo:
        """Return a session."""
        ...

    async def list_sessions(
        self, *, query: str | None = None, limit: int = 50, before: str | None = None, archived: bool = False
    ) -> Sequence[SessionInfo]:
        """Return up to `limit` sessions that follow the session `before`: pinned ones first, then newest first.

        `query` selects those whose name or messages match; `archived` includes archived ones.
        """
        ...

    def read_log(self, session_id: str, after: int = 0) -> AbstractAsyncContextManager[AsyncIterator[Envelope]]:
        """Yield the events that the session has now, those with a higher `seq` than `after`."""
        ...

    def export(
        self, session_id: str, form: Literal["jsonl", "markdown"]
    ) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """Yield the exported file in chunks of bytes."""
        ...

    async def artifacts(self, session_id: str, *, option: int | None = None) -> Sequence[Artifact]:
        """Return the artifacts of a session, or of one of its options, sorted by path.

        Raise an `AgenticXError` for an unknown option.
        """
        ...

    async def option_numbers(self, session_id: str) -> Sequence[int]:
        """Return the numbers of the options that were made in a session, in order."""
        ...

    async def read_artifact(
        self, session_id: str, path: str, revision: int | None = None, *, option: int | None = None
    ) -> bytes:
        """Return the content of such a file, by default as it is now; raise an `AgenticXError` if it is unknown."""
        ...

    async def usage(
        self, *, session_id: str | None = None, since: str | None = None, until: str | None = None
    ) -> Sequence[DailyUsage]:
        """Return the usage of model calls by session, day and model; `since` and `until` are days, YYYY-MM-DD."""
        ...

    async def aclose(self) -> None:
        """Close the client and release what it owns; a server keeps running."""
        ...


class Client(SessionReader, Protocol):
    """Access to sessions and their turns."""

    @property
    def confirms_by_policy(self) -> bool:
        """True if a policy where the turn runs answers all confirmations, so that this terminal need not."""
        ...

    @property
    def persistent(self) -> bool:
        """True if sessions outlive this process."""
        ...

    async def create(self, options: SessionOptions) -> SessionInfo:
        """Create a session; raise an `AgenticXError` if its model is unknown."""
        ...

    async def change(self, session_id: str, changes: Mapping[str, Any]) -> SessionInfo:
        """Replace fields of the session's record and return the changed session."""
        ...

    async def fork(self, session_id: str, message_id: str | None) -> SessionInfo:
        """Create a session with the conversation up to that message, by default the last; raise `MessageNotFound`."""
        ...

    async def read_attachment(self, session_id: str, digest: str) -> bytes:
        """Return a file attached to a message, by its SHA-256; raise an `AgenticXError` if it is not stored."""
        ...

    async def rewind(self, session_id: str, message_id: str | None) -> RewindReport:
        """Make that message the last of the conversation (None: none); raise `SessionBusy`, `MessageNotFound`."""
        ...

    async def pick(self, session_id: str, option: int) -> None:
        """Go on with an option; raise `SessionBusy`, or an `AgenticXError` for one that is unknown or not done."""
        ...

    async def delete(self, session_id: str) -> None:
        """Delete a session with its events; a running turn is stopped first."""
        ...

    async def start(
        self, session_id: str, message: UserMessage, options: TurnOptions = DEFAULT_OPTIONS
    ) -> TurnPosition:
        """Start a turn, or queue its message; raise `SessionBusy` while another one runs, unless the options say so.

        If the `client_turn_id` has started a turn of the session before, also on a server that has ended since, no
        other turn starts: that one is returned.
        """
        ...

    async def running_turn(self, session_id: str) -> TurnPosition | None:
        """Return the running turn, else None.

        A turn that awaited a confirmation when its process died counts as running.
        """
        ...

    def follow(self, session_id: str, position: TurnPosition) -> AbstractAsyncContextManager[AsyncIterator[Envelope]]:
        """Yield the session's events, as they are stored, from `position` to the turn's terminal event.

        The iterator ends without a terminal event only if none can follow. Iterating may raise `ServerLost`.
        """
        ...

    def follow_log(self, session_id: str, after: int) -> AbstractAsyncContextManager[AsyncIterator[Envelope]]:
        """Yield the events with a higher `seq` than `after`, those to come too as they are stored.

        Iterating may raise `ServerUnreachable`; it also ends if a server ends.
        """
        ...

    async def working_subagents(self) -> int:
        """Return the number of sub-agents that work, or wait to, in this process, and end with it."""
        ...

    async def stop(self, session_id: str) -> None:
        """Request the end of the running turn, if there is one."""
        ...

    async def remove_queued(self, session_id: str, message_id: str) -> bool:
        """Take a message that waits out of the queue; return False if it does not wait any more."""
        ...

    async def answer(self, request_id: str, answer: UserAnswer, digest: str) -> None:
        """Answer a request to the user, a confirmation with its `digest`; raise an `AgenticXError` if it is closed."""
        ...

    async def rules(self, session_id: str | None, workspace: Path) -> Sequence[Rule]:
        """Return the rules of the user that hold in a folder, then those of the session; raise an `AgenticXError`."""
        ...

    async def remove_rule(self, rule_id: str) -> Rule:
        """Remove a rule of the user, also one of a session, and return it; raise an `AgenticXError`."""
        ...

    async def resolve_model(self, name: str | None) -> ResolvedModel:
        """Return the model of that name (None: the default); raise an `AgenticXError` if it cannot be used."""
        ...

    async def models(self) -> Sequence[str]:
        """Return the full names of the models that can be used."""
        ...

    async def tools(self) -> Sequence[tuple[str, str]]:
        """Return the name and description of each available tool."""
        ...

"""The state of a conversation between turns: its messages and the state of its tools."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import is_, is_not
from os import PathLike
from pathlib import Path
from typing import Any, get_args

from agenticx.argument_types import check_path, check_sequence, check_str, check_type
from agenticx.call_errors import explain_calls
from agenticx.errors import AgenticXError, SessionBusy, SettingsError
from agenticx.llms.openai_rows import messages_from_rows, messages_to_rows
from agenticx.messages import Message, UserMessage, clean_text, new_id
from agenticx.permissions.rules import Rule
from agenticx.permissions.verdict import PermissionMode
from agenticx.tools.artifacts.files import Artifacts
from agenticx.tools.context import Snapshots, ToolState

__all__ = ["AutoConsent", "Notice", "Option", "Session", "checked_session", "runnable_session"]

_RANDOM_CHARS = 16
"""A provider's id of at least this length is random and unique; the shortest of these have more than 20 characters."""


@dataclass(frozen=True, slots=True)
class Notice:
    """A text for the model, such as the ending of a sub-agent.

    - `reader` is the name of the child turn's agent that it is for; "" for the session's own agent.
    - `key` is set if it is stored. The commit that first stores a conversation with it records it as delivered, with
      `data`: the turn `recipient_turn_id` got it, in the message `message_id` of `message_turn_id`, that turn itself or
      a child turn such as a speech in a team.
    - `sources` name untrusted texts that it may quote.
    """

    text: str
    key: str = ""
    data: Mapping[str, Any] = field(default_factory=dict[str, Any])
    message_id: str = ""
    reader: str = ""
    recipient_turn_id: str = ""
    message_turn_id: str = ""
    sources: tuple[str, ...] = ()


@dataclass(slots=True)
class Option:
    """One of several answers to a message: the child turn that makes it, and its files.

    `run_id` is the parent turn, `text` the answer once it is done. `stop` stops it while it runs.
    """

    number: int
    model: str
    turn_id: str
    run_id: str
    artifacts: Artifacts
    text: str = ""
    stop: Callable[[], None] = lambda: None

    @property
    def agent_id(self) -> str:
        """The agent of its events."""
        return f"option-{self.number}"


@dataclass(slots=True)
class AutoConsent:
    """The consent of a person to mode auto, without which the first call that changes something is asked about.

    It is missing in a session that existed before the program was started, until somebody chooses the mode again or
    says yes to such a call.
    """

    is_given: bool = True


@explain_calls
@dataclass(slots=True, init=False)
class Session:
    """A conversation in memory: give the same session to several runs, and each sees the messages before it.

    >>> from agenticx import Agent
    >>> agent, session = Agent(model="demo"), Session(workspace="/tmp", permission_mode="plan")
    >>> agent.run_sync("say hello", session=session).output, len(session.messages)
    ('hello', 2)

    To keep the conversation, store the rows of `to_openai` and begin with them later:

    >>> later = Session(messages=session.to_openai())
    >>> agent.run_sync("say bye", session=later).output, len(later.messages)
    ('bye', 4)

    A hub (`open_hub`) stores its sessions itself. The arguments that you may want to give:

    - `workspace` is the folder of the file tools and commands, by default the current one.
    - `permission_mode` is "default", "accept_edits", "plan" or "auto"; another one raises `ValueError`.
    - `messages` are messages, or rows of Chat Completions; anything else raises `TypeError`.
    - `rules` allow, ask about or deny calls for the rest of the session.

    The runtime appends to `messages`; only compaction replaces them, by `apply_compaction`. Its other fields:

    - `compacted` has the original messages, in order, that summaries and shortened tool results have replaced in
      `messages`; `restore_compacted` puts them back. In sessions of a hub it is empty between turns: there the store
      keeps them (`Store.compacted_messages`), and `stored_compacted` is their number. A summary without its originals
      counts as an original. The constructor takes rows for it, too.
    - `snapshots` keeps the earlier content of files that tools changed.
    - `artifacts` are the files that live in the session itself; all its turns and their child turns share them.
    - `options` are the answers to choose from, `next_option` is the number of the next one, and `is_option_due` is true
      until one of the newest is picked.
    - `active_agent` is the name of the agent that a handoff chose for the next message, None without a handoff.
    - `notices` are texts for the model, such as the endings of sub-agents; the next model call gets them in one
      message. `unstored_notices` are stored notices that a conversation has and that are not recorded as delivered yet.
    - `on_waiting` is called with the session when a confirmation begins to wait in it, or waits on. Call
      `change_permissions` after a change of `rules` or the mode: what waits is decided again.
    - `auto_consent` says whether a person has agreed to mode auto since the program was started.
    - `resumed` is true if there may have been calls that are no longer in `messages`: the history was compacted, and
      then the program was restarted.
    - `size_at_failed_compaction` is the size, in messages and characters, of the history when a summary last failed to
      make it smaller; the next summary waits until it has grown (`ContextCompactor.has_changed`).
    """

    id: str
    workspace: Path
    permission_mode: PermissionMode
    messages: list[Message]
    state: ToolState
    rules: list[Rule]
    on_waiting: Callable[[Session], None] | None = field(repr=False)
    auto_consent: AutoConsent
    resumed: bool
    size_at_failed_compaction: tuple[int, int] | None
    snapshots: Snapshots | None
    artifacts: Artifacts
    options: list[Option]
    next_option: int
    is_option_due: bool
    active_agent: str | None
    compacted: list[Message]
    stored_compacted: int
    notices: list[Notice]
    unstored_notices: list[Notice]
    _running: object = field(repr=False)
    _waiting: list[asyncio.Future[None]] = field(repr=False)
    _replacements: list[Message] = field(repr=False)
    _call_ids: set[str] = field(repr=False)

    def __init__(
        self,
        id: str | None = None,  # noqa: A002
        workspace: str | PathLike[str] | None = None,
        permission_mode: PermissionMode = "default",
        messages: Sequence[Message | Mapping[str, Any]] = (),
        state: ToolState | None = None,
        *,
        rules: Iterable[Rule] = (),
        resumed: bool = False,
        snapshots: Snapshots | None = None,
        artifacts: Artifacts | None = None,
        compacted: Sequence[Message | Mapping[str, Any]] = (),
        stored_compacted: int = 0,
    ) -> None:
        _check_arguments(id, workspace, messages, state)
        self.id = id or new_id("ses")
        self.workspace = Path.cwd() if workspace is None else Path(workspace)
        self.permission_mode = permission_mode
        self.messages = messages_from_rows(messages)
        self.state = state or ToolState()
        self.rules = list(rules)
        self.on_waiting = None
        self.auto_consent = AutoConsent()
        self._waiting = []
        self.resumed = resumed
        self.size_at_failed_compaction = None
        self.snapshots = snapshots
        self.artifacts = artifacts or Artifacts()
        self.options = []
        self.next_option = 1
        self.is_option_due = False
        self.active_agent = None
        self.notices = []
        self.unstored_notices = []
        self.compacted = messages_from_rows(compacted)
        self.stored_compacted = stored_compacted
        self._running = None
        self._replacements = []
        self._call_ids = _call_ids(self.messages)
        self._check_mode()

    @property
    def all_messages(self) -> Sequence[Message]:
        """The messages with their compacted originals, as far as this session has them."""
        return [*self.compacted, *self.messages[self.replacement_count :]] if self.compacted else self.messages

    def to_openai(self) -> list[dict[str, Any]]:
        """Return `messages` as dict rows of Chat Completions; `Session(messages=rows)` reads them again.

        In a row with files the text comes first. Text files become part of the text. Fields that a Chat Completions
        server added to a reply or its calls, such as a signature, are in its row. Message ids, outcomes of calls,
        reasoning, the state of other providers and records of refused files are left out.
        """
        return messages_to_rows(self.messages)

    def add_rules(self, rules: Iterable[Rule], created_at: str) -> None:
        """Add the rules that the session lacks, for the rest of it; their ids begin with the id of the session.

        Call `change_permissions` afterwards.
        """
        for rule in rules:
            content = {"id": "", "created_at": "", "scope": "session", "workspace": None}
            added = rule.model_copy(update=content)
            if all(one.model_copy(update=content) != added for one in self.rules):
                stored = {"id": f"{self.id}.{new_id('rul')}", "created_at": created_at}
                self.rules.append(added.model_copy(update=stored))

    def change_permissions(self) -> None:
        """Have the confirmations that wait in this session decided again, as its rules or its mode have changed."""
        waiting, self._waiting = self._waiting, []
        for future in waiting:
            if not future.done():
                future.set_result(None)

    def permissions_changed(self) -> asyncio.Future[None]:
        """Return a future that is done at the next `change_permissions`; cancel it if it is not needed any more."""
        future = asyncio.get_running_loop().create_future()
        self._waiting = [one for one in self._waiting if not one.done()] + [future]
        if self.on_waiting is not None:
            self.on_waiting(self)
        return future

    @property
    def has_waiting(self) -> bool:
        """True while a confirmation waits in this session."""
        return any(not one.done() for one in self._waiting)

    def inherit(self, parent: Session, permission_mode: PermissionMode) -> None:
        """Use the workspace and the files of the parent turn's session, in that mode."""
        self.workspace, self.snapshots, self.permission_mode = parent.workspace, parent.snapshots, permission_mode
        self.artifacts = parent.artifacts

    def begin_turn(self, turn: object) -> None:
        """Reserve the session for `turn`; raise `SessionBusy` while another runs, `ValueError` for an unknown mode."""
        self._check_mode()
        self.check_free()
        self._running = turn

    def read_rows(self) -> None:
        """Replace dict rows that the application has added to `messages`; raise `TypeError` for anything else in it."""
        messages = messages_from_rows(self.messages)
        if any(map(is_not, messages, self.messages)):
            self.messages[:] = messages
            self._call_ids |= _call_ids(messages)

    def check_free(self) -> None:
        """Raise `SessionBusy` while a turn runs."""
        if self._running is not None:
            raise SessionBusy(f"session {self.id!r} already runs a turn; wait for its terminal event")

    @property
    def running_turn(self) -> object:
        """The turn that runs, None if none does."""
        return self._running

    def end_turn(self, turn: object) -> None:
        """Free the session if `turn` is its running turn; the late clean-up of an earlier turn changes nothing."""
        if self._running is turn:
            self._running = None

    @property
    def replacement_count(self) -> int:
        """The number of messages at the front of `messages` that replace compacted ones.

        It is 0 once other code has replaced `messages`.
        """
        return self._replacements_in(self.messages)

    def mark_replacements(self, replacement_count: int) -> None:
        """Mark the first `replacement_count` messages as replacing compacted ones.

        For a session that is read from a store.
        """
        self._replacements = self.messages[:replacement_count]

    def apply_compaction(
        self, originals: Sequence[Message], replaced_count: int, messages: Sequence[Message], replacement_count: int
    ) -> None:
        """Replace the conversation by `messages`.

        The first `replacement_count` of them replace the first `replaced_count` of `originals`, the former
        conversation, possibly repaired. Originals that already replaced other messages are not kept.
        """
        replaced_before = self._replacements_in(originals)
        if not replaced_before:
            self.compacted.clear()
            self.stored_compacted = 0
        self.compacted.extend(originals[replaced_before:replaced_count])
        self.messages[:] = messages
        # Earlier replacements after the new ones remain replacements: their originals are kept already.
        self.mark_replacements(replacement_count + max(0, replaced_before - replaced_count))

    def restore_compacted(self) -> None:
        """Put `compacted` back in its place, so that `messages` is the whole conversation again, without summaries.

        Raises `SessionBusy` while a turn runs, and `AgenticXError` if a store keeps the compacted messages.
        """
        if self._running is not None:
            raise SessionBusy(f"session {self.id!r} runs a turn; wait for its terminal event")
        if self.stored_compacted:
            raise AgenticXError(
                f"the compacted messages of session {self.id!r} are in its store; rewind or fork the session there"
            )
        if self.compacted:
            self.messages[:] = self.all_messages
            self.compacted.clear()
            self._replacements = []

    def _check_mode(self) -> None:
        if self.permission_mode not in get_args(PermissionMode):
            modes = ", ".join(get_args(PermissionMode))
            raise ValueError(f"unknown permission mode {self.permission_mode!r}; known modes: {modes}")

    def _replacements_in(self, messages: Sequence[Message]) -> int:
        is_unchanged = len(self._replacements) <= len(messages) and all(map(is_, self._replacements, messages))
        return len(self._replacements) if is_unchanged else 0

    def assign_call_id(self, preferred: str) -> str:
        """Return a tool-call id that is unique within this session: the provider's if possible, else a new one.

        Some providers number their calls: `call_0` of a resumed session may have been used by a call that was
        compacted.
        """
        preferred = clean_text(preferred)
        is_ambiguous = preferred in self._call_ids or (self.resumed and len(preferred) < _RANDOM_CHARS)
        chosen = new_id("call") if is_ambiguous or not preferred else preferred
        self._call_ids.add(chosen)
        return chosen

    def take_notices(
        self, recipient_turn_id: str = "", message_turn_id: str = "", chosen: Sequence[Notice] | None = None
    ) -> UserMessage:
        """Remove the notices, or the `chosen` ones, and return a message with them; see `Notice` for the two turns.

        The caller appends it to the conversation of the turn `message_turn_id`.
        """
        notices = self.notices if chosen is None else chosen
        self.notices = [notice for notice in self.notices if notice not in notices]
        sources = tuple(dict.fromkeys(source for notice in notices for source in notice.sources))
        message = UserMessage(content="\n\n".join(notice.text for notice in notices), injected=True, sources=sources)
        ids = {
            "message_id": message.message_id,
            "recipient_turn_id": recipient_turn_id,
            "message_turn_id": message_turn_id,
        }
        self.unstored_notices += [replace(one, **ids) for one in notices if one.key]
        return message

    def mark_delivered(self, keys: Collection[str]) -> None:
        """Forget the notices with these keys: they are recorded as delivered."""
        self.unstored_notices = [notice for notice in self.unstored_notices if notice.key not in keys]
        self.notices = [notice for notice in self.notices if not notice.key or notice.key not in keys]

    def return_notices(self, turn_id: str | None = None) -> None:
        """Return the notices that are not recorded as delivered to `notices`: the conversation was stored without them.

        With a `turn_id` only the notices in that turn's conversation.
        """
        returned = [one for one in self.unstored_notices if turn_id in (None, one.message_turn_id)]
        self.unstored_notices = [one for one in self.unstored_notices if one not in returned]
        self.notices[:0] = returned

    def share_call_ids(self, other: Session) -> None:
        """Make call ids unique within both sessions, because the turns of both are written to one log."""
        other._call_ids |= self._call_ids
        self._call_ids, self.resumed = other._call_ids, self.resumed or other.resumed


def _call_ids(messages: Sequence[Message]) -> set[str]:
    return {call.id for message in messages if message.role == "assistant" for call in message.tool_calls}


def _check_arguments(id_: object, workspace: object, messages: object, state: object) -> None:
    if id_ is not None:
        check_str("id", id_)
    if workspace is not None:
        check_path("workspace", workspace)
    if state is not None:
        check_type("state", state, ToolState, "a ToolState")
    check_sequence("messages", messages, "messages of agenticx.messages or dict rows")


def checked_session(session: object) -> Session:
    """Return `session`, its dict rows read as messages; raise `TypeError` for other types."""
    if not isinstance(session, Session):
        raise TypeError(f"session must be a Session, not {type(session).__name__}; a hub runs those that it stores")
    session.read_rows()
    return session


def runnable_session(session: object) -> Session:
    """Return a session as `checked_session` does; raise `SettingsError` if its workspace is not a folder."""
    session = checked_session(session)
    if not session.workspace.is_dir():
        raise SettingsError(f"the workspace of the session, {str(session.workspace)!r}, is not a folder")
    return session

"""The runs and endings of sub-agents, as they are stored, and the errors of their tools."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any, Literal
from unicodedata import category

from agenticx.errors import InvalidArguments, ToolError
from agenticx.messages import shown_text, sources_of
from agenticx.permissions.verdict import PermissionMode
from agenticx.runtime import EventType, RuntimeEvent, Session
from agenticx.runtime.calls.result_rendering import truncate
from agenticx.runtime.session import Notice
from agenticx.untrusted_text import frame_text

__all__ = [
    "ModelUnavailable",
    "SubagentBusy",
    "SubagentEnding",
    "SubagentLimitReached",
    "SubagentNotFound",
    "SubagentRun",
    "SubagentState",
    "SubagentsClosed",
    "first_message",
    "looks_like_ending",
    "sources_read",
]

SubagentState = Literal["queued", "running", "paused", "completed", "error"]

_SHOWN_CHARS = 20_000
_KEPT_SOURCES = 200
_NOTE = "its words, not the user's"
_LINE_CHARS = 60  # the beginning of a line, which is compared with the first line of an ending


class SubagentNotFound(ToolError):
    """Raised for the id of a sub-agent that does not exist, or that the caller may not direct."""


class SubagentsClosed(ToolError):
    """Raised for a sub-agent that would begin while the sub-agents of its session are being ended."""


class SubagentBusy(ToolError):
    """Raised for an operation that a working sub-agent does not allow, such as a new start."""


class SubagentLimitReached(ToolError):
    """Raised for a sub-agent beyond the limits of its tree."""


class ModelUnavailable(InvalidArguments):
    """Raised for a sub-agent whose model cannot be used; the message says why."""


def first_message(task: str, context: str | None) -> str:
    """Return the message with which a sub-agent begins, also when it begins anew: the task after its context."""
    return task if context is None else f"{context}\n\n{task}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SubagentRun:
    """A run of a sub-agent; once it has begun it is the turn `turn_id`.

    - It begins with `message`: the task after its `context`, or a message to an agent that had ended; with `is_anew` in
      an empty conversation, else after `earlier_rounds` rounds.
    - `parent_path` has the ids of the agents from the main agent to the parent, `parent_turn_id` the id of the parent's
      turn. Both are empty for a run that was started outside of turns.
    - `tools` are names, `budget` the limits of the agent's own budget. `sources` names the texts of others in the
      conversations from which the run's messages come.
    """

    turn_id: str
    agent_id: str
    task: str
    message: str
    context: str | None = None
    is_anew: bool = True
    parent_path: tuple[str, ...] = ()
    parent_turn_id: str = ""
    depth: int = 1
    tools: tuple[str, ...] | None = None
    model: str | None = None
    permission_mode: PermissionMode = "default"
    earlier_rounds: int = 0
    budget: Mapping[str, Any] | None = None
    sources: tuple[str, ...] = ()

    @property
    def message_id(self) -> str:
        """The id of `message` in its conversation."""
        return f"msg_{self.turn_id.removeprefix('turn_')}"

    @property
    def parent_id(self) -> str | None:
        """The id of the agent that started it, None if no agent did."""
        return self.parent_path[-1] if self.parent_path else None

    @property
    def starter_path(self) -> tuple[str, ...]:
        """The path of the agent that started it, if that is neither the main agent nor a sub-agent; else empty.

        For example, it is a participant of a team.
        """
        return self.parent_path if self.depth == 1 and len(self.parent_path) > 1 else ()

    @property
    def reader(self) -> str:
        """The name of the agent that gets the notice of its ending, "" for the main agent; see `Notice`."""
        return self.starter_path[-1] if self.starter_path else ""

    def dump(self) -> dict[str, Any]:
        """Return the run as JSON."""
        return asdict(self)

    @classmethod
    def load(cls, data: Mapping[str, Any]) -> SubagentRun:
        """Return the run from the result of `dump`."""
        values = dict(data)
        values["parent_path"] = tuple(data["parent_path"])
        values["sources"] = tuple(data["sources"])
        values["tools"] = None if data["tools"] is None else tuple(data["tools"])
        return cls(**values)


@dataclass(frozen=True, slots=True, kw_only=True)
class SubagentEnding:
    """An ending of a sub-agent's work; `text` is its result, or says why there is none.

    The run was the turn `turn_id` and had `rounds` rounds. `code` is the error code of the event `error`, None in other
    states; in the fork of a session it is `forked` for a sub-agent that goes on with the old session. `sources` name
    the texts of others in its conversation.
    """

    turn_id: str
    agent_id: str
    state: Literal["paused", "completed", "error"]
    text: str
    code: str | None = None
    rounds: int = 0
    sources: tuple[str, ...] = ()

    @classmethod
    def from_event(
        cls, turn_id: str, agent_id: str, event: RuntimeEvent, rounds: int, session: Session | None
    ) -> SubagentEnding:
        """Return the ending of a run by the terminal event of its turn and its conversation."""
        sources = sources_read(session)
        data, of_run = event.data, partial(cls, turn_id=turn_id, agent_id=agent_id, rounds=rounds, sources=sources)
        if event.type == "final":
            return of_run(state="completed", text=data["text"])
        if event.type == "subagent_paused":
            text = f"It used its {data['max_rounds']} rounds. Its last words: {data['checkpoint']['last_text']}"
            return of_run(state="paused", text=text)
        return of_run(state="error", text=data["text"], code=data["code"])

    def dump(self) -> dict[str, Any]:
        """Return the ending as JSON, with the middle of a long text left out."""
        return asdict(self.shortened)

    @classmethod
    def load(cls, data: Mapping[str, Any]) -> SubagentEnding:
        """Return the ending from the result of `dump`."""
        values = dict(data)
        values["sources"] = tuple(data["sources"])
        return cls(**values)

    @property
    def shortened(self) -> SubagentEnding:
        """This ending with the middle of a long text left out."""
        return replace(self, text=self._shown_text)

    @property
    def event(self) -> tuple[EventType, dict[str, Any]]:
        """The type and the data of the event that reports it, None for a pause."""
        if self.state == "completed":
            return EventType.SUBAGENT_COMPLETED, {"result": self.text}
        return EventType.SUBAGENT_ERROR, {"text": self.text, "code": self.code or "internal"}

    def to_model_text(self) -> str:
        """Return the framed text for the parent's model, with the middle of a long result left out."""
        what = {
            "paused": "paused; a message resumes it",
            "completed": "completed",
            "error": "stays with the old conversation" if self.code == "forked" else f"failed: {self.code}",
        }
        return frame_text(f"sub-agent {self.agent_id} {what[self.state]}", self._shown_text.rstrip(), _NOTE)

    @property
    def _shown_text(self) -> str:
        return truncate(self.text, _SHOWN_CHARS)[0]

    def notice(self, *, is_stored: bool, reader: str = "") -> Notice:
        """Return the notice of the ending for the parent's model; the delivery of a stored notice is recorded."""
        key = self.turn_id if is_stored else ""
        return Notice(self.to_model_text(), key, self.dump(), reader=reader, sources=self.sources)


def sources_read(session: Session | None) -> tuple[str, ...]:
    """Return the names of the texts of others in a conversation and its child turns; of very many the latest."""
    if session is None:
        return ()
    found = dict.fromkeys([*sources_of(session.messages), *session.state.sources])
    return tuple(found)[-_KEPT_SOURCES:]


def looks_like_ending(line: str) -> bool:
    """Return whether a reader may take a line for the first one of an ending, whatever stands before its bracket."""
    shown = shown_text(line, _LINE_CHARS)
    letters = "".join(filter(str.isalpha, shown))
    before = shown.partition("s")[0]
    return letters.startswith("subagent") and any(category(char) == "Ps" for char in before)

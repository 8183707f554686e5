"""The tree of a session's turns, folded from its events one by one."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from io import StringIO
from typing import Literal

from agenticx.llms.base import Usage
from agenticx.messages import MAIN_AGENT, ToolMessage, new_id
from agenticx.runtime.budgets.usage_payload import usage_from_data
from agenticx.runtime.events import Event, EventType, TurnState
from agenticx.runtime.events.payloads import ArtifactData, ConfirmResponseData, ToolResultData
from agenticx.runtime.events.types import AnsweringEvent, AskingEvent
from agenticx.sessions.log.events import StoredEvent, decode
from agenticx.tools.artifacts.files import ArtifactPreview

__all__ = ["LoggedTurn", "TurnFilter", "TurnStatus", "TurnTree", "result_message"]

TurnStatus = Literal["queued", "running", "waiting", "suspended", "ended"]
"""The status of a turn.

The log shows whether a turn is running, waiting (it has asked a person) or ended. Only the owner of the session knows
whether it is queued (its first event is not stored yet) or suspended (no process runs it).
"""


@dataclass(slots=True)
class LoggedTurn:
    """A turn as its events show it.

    - `agent_id` is the agent that began it, `acting_agent_id` the agent of the last round.
    - `end` is its terminal event; `last_type` and `last_ts` are the type and the time of its last event.
    - `requests` and `responses` are the events that asked the user and the events with the answers, by the ids of the
      requests; `asked_at` are the times of the requests, and `askers` the agents that asked.
    - `open_calls` are the names of the calls without a result, by id; `results` are the results of the last round, and
      `previews` the files that calls show and have not stored.
    - `message_id` is the id of the last message with a text.
    - `usage` is the sum of its model calls, None before the first.
    - `has_auto_consent` is false if mode auto was chosen before an earlier restart and nobody has agreed to it in the
      turn.
    """

    id: str
    parent_id: str | None = None
    agent_id: str = MAIN_AGENT
    acting_agent_id: str = MAIN_AGENT
    state: TurnState = "idle"
    round: int = 0
    usage: Usage | None = None
    message_id: str = ""
    end: Event | None = None
    last_type: str = ""
    last_ts: str = ""
    open_calls: dict[str, str] = field(default_factory=dict[str, str])
    results: dict[str, ToolMessage] = field(default_factory=dict[str, ToolMessage])
    previews: dict[str, ArtifactPreview] = field(default_factory=dict[str, ArtifactPreview])
    requests: dict[str, AskingEvent] = field(default_factory=dict[str, AskingEvent])
    asked_at: dict[str, datetime] = field(default_factory=dict[str, datetime])
    askers: set[str] = field(default_factory=set[str])
    has_auto_consent: bool = True
    responses: dict[str, AnsweringEvent] = field(default_factory=dict[str, AnsweringEvent])
    _text: StringIO = field(default_factory=StringIO, compare=False)  # appending to a long str copies it

    @property
    def text(self) -> str:
        """The text of the message `message_id`, the last one with a text."""
        return self._text.getvalue()

    @property
    def open_requests(self) -> Sequence[str]:
        """The ids of the requests without a response, in the order in which they were asked."""
        return [id_ for id_ in self.requests if id_ not in self.responses]

    @property
    def status(self) -> TurnStatus:
        if self.end is not None:
            return "ended"
        return "waiting" if self.open_requests else "running"

    @property
    def has_handed_over(self) -> bool:
        """True if another agent acts than the agent that began the turn."""
        return self.acting_agent_id != self.agent_id

    def apply(self, event: Event, ts: str = "") -> None:
        """Fold the turn's next event, of the time `ts` (RFC 3339), "" if that is not known."""
        if not self.last_type:
            self.agent_id = self.acting_agent_id = event.agent_id
        self.last_type, self.last_ts = event.type, ts
        if event.terminal:
            self.end = event
        match event.type:  # not by class: an event that is not stored yet may be a plain `RuntimeEvent`
            case "token":
                if event.data["text"]:
                    self._append_text(event.data["message_id"], event.data["text"])
            case "turn_started":
                self.parent_id = _parent_id(event)
                self.has_auto_consent = not event.data.get("permission_mode_resumed", False)
            case "state":
                self.state = event.data["state"]
            case "round_start":
                self.round, self.acting_agent_id = event.data["round"], event.agent_id
                self.results.clear()
            case "usage":
                usage = usage_from_data(event.data)
                self.usage = usage if self.usage is None else self.usage + usage
            case "artifact":
                self._apply_artifact(event.data)
            case _:
                self._apply_call(event, ts)

    def _apply_call(self, event: Event, ts: str) -> None:
        match event.type:
            case "tool_call":
                self.open_calls[event.data["tool_call_id"]] = event.data["name"]
            case "tool_result":
                self.open_calls.pop(event.data["tool_call_id"], None)
                self.results[event.data["tool_call_id"]] = result_message(event.data)
            case "confirm_required" | "question_asked":
                self.requests[event.data["id"]] = event
                self.askers.add(event.agent_id)
                if ts:
                    self.asked_at[event.data["id"]] = datetime.fromisoformat(ts)
            case "confirm_response":
                self.responses[event.data["id"]] = event
                self.has_auto_consent |= self._agrees_to_auto(event.data)
            case "question_answered":
                self.responses[event.data["id"]] = event
            case _:
                pass

    def _agrees_to_auto(self, answer: ConfirmResponseData) -> bool:
        """Return whether an answer is the yes of a person to the first change in mode auto after a restart."""
        asked = self.requests.get(answer["id"])
        if asked is None or asked.type != "confirm_required":
            return False
        return asked.data["context"].get("decided_by") == "resumed" and answer["approved"] and answer["by"] == "user"

    def _append_text(self, message_id: str, text: str) -> None:
        if message_id != self.message_id:
            self.message_id, self._text = message_id, StringIO()
        self._text.write(text)

    def _apply_artifact(self, data: ArtifactData) -> None:
        call_id = data.get("tool_call_id", "")
        if data["final"]:
            self.previews.pop(call_id, None)
        elif "revision" in data:  # it has none where a tool of the application shows something
            self.previews[call_id] = ArtifactPreview(data["path"], data["revision"], "")


def _parent_id(event: Event) -> str | None:
    """Return the id of the parent of the turn that a `turn_started` begins, None if it has none."""
    return event.data.get("parent_turn_id") if event.type == "turn_started" else None


def result_message(data: ToolResultData, *, message_id: str | None = None) -> ToolMessage:
    """Return the result of a call as the model saw it, with that id or a new one; its files are only named."""
    names = "".join(f"\n[attached: {file['name']}]" for file in data.get("attachments", ()))
    return ToolMessage(
        tool_call_id=data["tool_call_id"],
        name=data["name"],
        content=data["result"] + names,
        outcome=data["outcome"],
        sources=tuple(data.get("sources", ())),
        message_id=message_id or new_id("msg"),
    )


class TurnTree:
    """The turns of a session by id, in the order of their starts.

    It knows only the events that it was given: without its `turn_started` a turn has no parent, and without a terminal
    event it has not ended.
    """

    def __init__(self) -> None:
        self.turns: dict[str, LoggedTurn] = {}

    def __getitem__(self, turn_id: str) -> LoggedTurn:
        """Return the turn of that id; a turn without events is empty."""
        return self.turns.get(turn_id) or LoggedTurn(turn_id)

    def apply(self, event: Event, ts: str = "") -> None:
        """Fold the next event of the session, as `LoggedTurn.apply` does."""
        if event.turn_id is not None:
            self.add(event.turn_id).apply(event, ts)

    def add(self, turn_id: str) -> LoggedTurn:
        """Return the turn of that id, which is added unless it is in the tree."""
        turn = self.turns.get(turn_id)
        if turn is None:
            turn = self.turns[turn_id] = LoggedTurn(turn_id)
        return turn

    def remove(self, turn_id: str) -> None:
        """Remove a turn, if it is there."""
        self.turns.pop(turn_id, None)

    def lineage(self, turn_id: str | None) -> Iterator[str]:
        """Yield the id of a turn, then the ids of its ancestors, the parent first; nothing for None."""
        seen = set[str]()  # a damaged log may have a turn above itself
        while turn_id is not None and turn_id not in seen:
            seen.add(turn_id)
            yield turn_id
            turn_id = None if (turn := self.turns.get(turn_id)) is None else turn.parent_id

    def is_root(self, turn_id: str | None) -> bool:
        """Return whether the tree has no parent of that turn."""
        return turn_id is None or self[turn_id].parent_id not in self.turns

    def is_within(self, turn_id: str | None, tops: Collection[str | None]) -> bool:
        """Return whether a turn is one of `tops`, or below one of them."""
        return any(id_ in tops for id_ in self.lineage(turn_id))

    def within(self, tops: Collection[str | None]) -> set[str]:
        """Return the ids of the turns that are among `tops`, or below one of them."""
        return {id_ for id_ in self.turns if self.is_within(id_, tops)}

    def children(self, tops: Collection[str | None]) -> list[LoggedTurn]:
        """Return the child turns of all of `tops`, in order."""
        return [turn for turn in self.turns.values() if turn.parent_id is not None and turn.parent_id in tops]

    def agent_path(self, turn_id: str) -> tuple[str, ...]:
        """Return the names of the agents that began a turn and its ancestors, the root turn's first."""
        agents = [turn.agent_id for id_ in self.lineage(turn_id) if (turn := self.turns.get(id_)) is not None]
        return tuple(reversed(agents))

    @classmethod
    def of(cls, events: Iterable[Event]) -> TurnTree:
        """Fold events, without their times."""
        tree = cls()
        for event in events:
            tree.apply(event)
        return tree


class TurnFilter:
    """A filter of a session's stored events, read in order, for the turns `turn_ids` and all their child turns.

    It keeps the ids of these turns, and decodes only the first events of other turns.
    """

    def __init__(self, turn_ids: Collection[str]) -> None:
        self.turn_ids = frozenset(turn_ids)
        self._with_children = set[str | None](turn_ids)

    def includes(self, stored: StoredEvent) -> bool:
        """Return whether the event is one of these turns; raises `DamagedData`."""
        if stored.turn_id in self._with_children:
            return True
        if stored.type is not EventType.TURN_STARTED or _parent_id(decode(stored).event) not in self._with_children:
            return False
        self._with_children.add(stored.turn_id)
        return True

"""The event types, and a class per type that has typed `data`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Generic, Literal, TypeVar, get_args

from agenticx.runtime.events.payloads import (
    ArtifactData,
    CitationData,
    CompactionData,
    ConfirmRequiredData,
    ConfirmResponseData,
    ErrorData,
    FinalData,
    HandoffData,
    QuestionAnsweredData,
    QuestionAskedData,
    QueuedData,
    RoundStartData,
    SessionChangedData,
    SpeakerSelectedData,
    StallData,
    StateData,
    SteeredData,
    SubagentCheckpointData,
    SubagentCompletedData,
    SubagentErrorData,
    SubagentPausedData,
    SubagentProgressData,
    SubagentStartedData,
    TeamMessageData,
    ThinkingData,
    TokenData,
    ToolCallData,
    ToolCallDeltaData,
    ToolProgressData,
    ToolResultData,
    TurnStartedData,
    UsageData,
)

__all__ = [
    "EVENT_CLASSES",
    "PAYLOADS",
    "ArtifactEvent",
    "CitationEvent",
    "CompactionEvent",
    "ConfirmRequiredEvent",
    "ConfirmResponseEvent",
    "ErrorEvent",
    "Event",
    "EventType",
    "FinalEvent",
    "HandedBackEvent",
    "HandoffEvent",
    "QuestionAnsweredEvent",
    "QuestionAskedEvent",
    "QueuedEvent",
    "RoundStartEvent",
    "RuntimeEvent",
    "SessionChangedEvent",
    "SpeakerSelectedEvent",
    "StallEvent",
    "StateEvent",
    "SteeredEvent",
    "SubagentCheckpointEvent",
    "SubagentCompletedEvent",
    "SubagentErrorEvent",
    "SubagentPausedEvent",
    "SubagentProgressEvent",
    "SubagentStartedEvent",
    "TeamMessageEvent",
    "ThinkingEvent",
    "TokenEvent",
    "ToolCallDeltaEvent",
    "ToolCallEvent",
    "ToolProgressEvent",
    "ToolResultEvent",
    "TurnStartedEvent",
    "UsageEvent",
]


class EventType(StrEnum):
    """The types of events; the first fifteen names are those of the published `AgentRuntime`."""

    ROUND_START = "round_start"
    TOKEN = "token"
    TOOL_CALL = "tool_call"
    TOOL_RESULT = "tool_result"
    CONFIRM_REQUIRED = "confirm_required"
    CONFIRM_RESPONSE = "confirm_response"
    COMPACTION = "compaction"
    SUBAGENT_CHECKPOINT = "subagent_checkpoint"
    SUBAGENT_PAUSED = "subagent_paused"
    FINAL = "final"
    ERROR = "error"
    SUBAGENT_STARTED = "subagent_started"
    SUBAGENT_PROGRESS = "subagent_progress"
    SUBAGENT_COMPLETED = "subagent_completed"
    SUBAGENT_ERROR = "subagent_error"
    TURN_STARTED = "turn_started"
    STATE = "state"
    THINKING = "thinking"
    TOOL_CALL_DELTA = "tool_call_delta"
    TOOL_PROGRESS = "tool_progress"
    QUESTION_ASKED = "question_asked"
    QUESTION_ANSWERED = "question_answered"
    USAGE = "usage"
    STALL = "stall"
    QUEUED = "queued"
    HANDED_BACK = "handed_back"
    STEERED = "steered"
    ARTIFACT = "artifact"
    CITATION = "citation"
    HANDOFF = "handoff"
    SESSION_CHANGED = "session_changed"
    SPEAKER_SELECTED = "speaker_selected"
    TEAM_MESSAGE = "team_message"


@dataclass(frozen=True, slots=True, eq=False)
class RuntimeEvent:
    """One event of a turn; `data` is a plain dict whose keys depend on the type, see `payloads`.

    The events of a turn are instances of the subclasses below, whose `type` is a literal string for type checkers, so
    that `event.type == "token"` narrows `Event` to `TokenEvent`. At run time it is the member of `EventType`, which is
    that string. `turn_id` is the id of the event's turn, by which those of the turns below a turn are told apart; None
    for an event of no turn. Events are equal if type, data and agent are, whatever their classes and turns.
    """

    type: EventType
    data: dict[str, Any]
    agent_id: str = "meta"
    turn_id: str | None = None

    @property
    def terminal(self) -> bool:
        """True if this is the last event of its turn."""
        return (
            self.type is EventType.FINAL
            or self.type is EventType.SUBAGENT_PAUSED
            or (self.type is EventType.ERROR and self.data["fatal"] is True)
        )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, RuntimeEvent):
            return NotImplemented
        return (self.type, self.data, self.agent_id) == (other.type, other.data, other.agent_id)


TypeT = TypeVar("TypeT", bound=str)
DataT = TypeVar("DataT")


class _TypedEvent(RuntimeEvent, Generic[TypeT, DataT]):
    """An event of one type. The two attributes are those of the base class, known more closely to type checkers."""

    __slots__ = ()
    type: TypeT  # type: ignore[assignment]  # pyright: ignore[reportIncompatibleVariableOverride]
    data: DataT  # type: ignore[assignment]  # pyright: ignore[reportIncompatibleVariableOverride]


class RoundStartEvent(_TypedEvent[Literal["round_start"], RoundStartData]):
    __slots__ = ()


class TokenEvent(_TypedEvent[Literal["token"], TokenData]):
    __slots__ = ()


class ToolCallEvent(_TypedEvent[Literal["tool_call"], ToolCallData]):
    __slots__ = ()


class ToolResultEvent(_TypedEvent[Literal["tool_result"], ToolResultData]):
    __slots__ = ()


class ConfirmRequiredEvent(_TypedEvent[Literal["confirm_required"], ConfirmRequiredData]):
    __slots__ = ()


class ConfirmResponseEvent(_TypedEvent[Literal["confirm_response"], ConfirmResponseData]):
    __slots__ = ()


class CompactionEvent(_TypedEvent[Literal["compaction"], CompactionData]):
    __slots__ = ()


class SubagentCheckpointEvent(_TypedEvent[Literal["subagent_checkpoint"], SubagentCheckpointData]):
    __slots__ = ()


class SubagentPausedEvent(_TypedEvent[Literal["subagent_paused"], SubagentPausedData]):
    __slots__ = ()


class FinalEvent(_TypedEvent[Literal["final"], FinalData]):
    __slots__ = ()


class ErrorEvent(_TypedEvent[Literal["error"], ErrorData]):
    __slots__ = ()


class SubagentStartedEvent(_TypedEvent[Literal["subagent_started"], SubagentStartedData]):
    __slots__ = ()


class SubagentProgressEvent(_TypedEvent[Literal["subagent_progress"], SubagentProgressData]):
    __slots__ = ()


class SubagentCompletedEvent(_TypedEvent[Literal["subagent_completed"], SubagentCompletedData]):
    __slots__ = ()


class SubagentErrorEvent(_TypedEvent[Literal["subagent_error"], SubagentErrorData]):
    __slots__ = ()


class TurnStartedEvent(_TypedEvent[Literal["turn_started"], TurnStartedData]):
    __slots__ = ()


class StateEvent(_TypedEvent[Literal["state"], StateData]):
    __slots__ = ()


class ThinkingEvent(_TypedEvent[Literal["thinking"], ThinkingData]):
    __slots__ = ()


class ToolCallDeltaEvent(_TypedEvent[Literal["tool_call_delta"], ToolCallDeltaData]):
    __slots__ = ()


class ToolProgressEvent(_TypedEvent[Literal["tool_progress"], ToolProgressData]):
    __slots__ = ()


class QuestionAskedEvent(_TypedEvent[Literal["question_asked"], QuestionAskedData]):
    __slots__ = ()


class QuestionAnsweredEvent(_TypedEvent[Literal["question_answered"], QuestionAnsweredData]):
    __slots__ = ()


class UsageEvent(_TypedEvent[Literal["usage"], UsageData]):
    __slots__ = ()


class StallEvent(_TypedEvent[Literal["stall"], StallData]):
    __slots__ = ()


class QueuedEvent(_TypedEvent[Literal["queued"], QueuedData]):
    __slots__ = ()


class HandedBackEvent(_TypedEvent[Literal["handed_back"], QueuedData]):
    __slots__ = ()


class SteeredEvent(_TypedEvent[Literal["steered"], SteeredData]):
    __slots__ = ()


class ArtifactEvent(_TypedEvent[Literal["artifact"], ArtifactData]):
    __slots__ = ()


class CitationEvent(_TypedEvent[Literal["citation"], CitationData]):
    __slots__ = ()


class HandoffEvent(_TypedEvent[Literal["handoff"], HandoffData]):
    __slots__ = ()


class SessionChangedEvent(_TypedEvent[Literal["session_changed"], SessionChangedData]):
    __slots__ = ()


class SpeakerSelectedEvent(_TypedEvent[Literal["speaker_selected"], SpeakerSelectedData]):
    __slots__ = ()


class TeamMessageEvent(_TypedEvent[Literal["team_message"], TeamMessageData]):
    __slots__ = ()


Event = (
    RoundStartEvent
    | TokenEvent
    | ToolCallEvent
    | ToolResultEvent
    | ConfirmRequiredEvent
    | ConfirmResponseEvent
    | CompactionEvent
    | SubagentCheckpointEvent
    | SubagentPausedEvent
    | FinalEvent
    | ErrorEvent
    | SubagentStartedEvent
    | SubagentProgressEvent
    | SubagentCompletedEvent
    | SubagentErrorEvent
    | TurnStartedEvent
    | StateEvent
    | ThinkingEvent
    | ToolCallDeltaEvent
    | ToolProgressEvent
    | QuestionAskedEvent
    | QuestionAnsweredEvent
    | UsageEvent
    | StallEvent
    | QueuedEvent
    | HandedBackEvent
    | SteeredEvent
    | ArtifactEvent
    | CitationEvent
    | HandoffEvent
    | SessionChangedEvent
    | SpeakerSelectedEvent
    | TeamMessageEvent
)
"""The events of a turn; compare `type` with a literal string to narrow it."""

PAYLOADS: dict[EventType, Any] = {}
"""The payload class of each event type."""

EVENT_CLASSES: dict[EventType, Callable[[EventType, dict[str, Any], str, str | None], Event]] = {}
"""The class of each event type."""

for _class in get_args(Event):
    _literal, _payload = get_args(_class.__orig_bases__[0])
    _type = EventType(get_args(_literal)[0])
    PAYLOADS[_type], EVENT_CLASSES[_type] = _payload, _class

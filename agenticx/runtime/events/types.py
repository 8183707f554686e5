"""The event types: a class per type, with the type of its `data` and its flags."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, TypeVar, cast, get_args

from agenticx.argument_types import check_str
from agenticx.errors import AgenticXError
from agenticx.messages import MAIN_AGENT
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
    SubagentMessageData,
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
    "ANSWERING_EVENTS",
    "ASKING_EVENTS",
    "DELTAS",
    "EVENT_CLASSES",
    "LOGGED_EVENTS",
    "OWNER_CLOSED",
    "PAYLOADS",
    "REQUEST_EVENTS",
    "TEAM_REPLAY_EVENTS",
    "TEXT_DELTAS",
    "TOOL_EVENTS",
    "TRANSCRIPT_EVENTS",
    "AnsweringEvent",
    "ArtifactEvent",
    "AskingEvent",
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
    "SubagentMessageEvent",
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
    "is_terminal",
]


class EventType(StrEnum):
    """The types of events; the published `AgentRuntime` has the first fifteen names."""

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
    SUBAGENT_MESSAGE = "subagent_message"


@dataclass(frozen=True, slots=True, eq=False)
class RuntimeEvent:
    """One event of a turn; `data` is a plain dict whose keys depend on the type, see `payloads`.

    The events of a turn are instances of its subclasses. For type checkers the `type` of a subclass is a literal
    string, so that `event.type == "token"` narrows `Event` to `TokenEvent`; at run time it is the equal member of
    `EventType`. `turn_id` tells the events of child turns apart; it is None for an event of no turn. Events are
    equal if type, data and agent are, whatever their classes and turns.
    """

    type: EventType
    data: dict[str, Any]
    agent_id: str = MAIN_AGENT
    turn_id: str | None = None

    @property
    def terminal(self) -> bool:
        """True if this is the last event of its turn."""
        return is_terminal(self.type, self.data)

    @property
    def synced(self) -> bool:
        """True if it is synced before its commit returns, so that it survives what the log's `durability` says.

        All events that report a message, a call, a request, an answer or an ending are synced. The others, for example
        tokens, survive the death of the process.
        """
        return _has_flag(_SYNCED, self.type, self.data)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, RuntimeEvent):
            return NotImplemented
        return (self.type, self.data, self.agent_id) == (other.type, other.data, other.agent_id)


TypeT = TypeVar("TypeT", bound=str)
DataT = TypeVar("DataT")


class _EventHelp:
    """The `__doc__` of the event classes, made when it is read: `help(Event)` shows a table of all events."""

    def __get__(self, instance: object, owner: type) -> str:
        from agenticx.runtime.events.descriptions import describe_event, event_table  # only for readers

        type_ = next((type_ for type_, each in _CLASSES.items() if each is owner), None)
        if type_ is not None:
            return describe_event(type_, PAYLOADS[type_])
        return event_table({str(type_): payload for type_, payload in sorted(PAYLOADS.items())})


class _TypedEvent(RuntimeEvent, Generic[TypeT, DataT]):
    # The base class of the event types; its subclasses declare the flags of their type. At run time it is `Event`. The
    # two attributes narrow the base class's for type checkers.

    __slots__ = ()
    __doc__ = cast("str", _EventHelp())

    def __init_subclass__(cls) -> None:
        cls.__doc__ = cast("str", _EventHelp())

    ends_turn: ClassVar[bool | str] = False
    """Whether it is the last event of its turn; a string names the key of its data that decides."""

    is_synced: ClassVar[bool | str] = True
    """Whether it is synced before its commit returns; a string names the key of its data that decides."""

    is_logged: ClassVar[bool] = False
    """Whether the program's log has a line about it."""

    is_delta: ClassVar[bool] = False
    """Whether it is a part of an incoming reply that can wait for the next parts."""

    is_text_delta: ClassVar[bool] = False
    """Whether neighbouring events of a message can be merged."""

    is_from_tools: ClassVar[bool] = False
    """Whether a tool may emit it."""

    asks: ClassVar[bool] = False
    """Whether it asks the user; its data has the `id` of the request."""

    answers: ClassVar[bool] = False
    """Whether it has the answer to the request `id`."""

    is_in_transcript: ClassVar[bool] = False
    """Whether the transcript of a session is made from it."""

    is_in_team_replay: ClassVar[bool] = False
    """Whether a team and its participants are restored from it."""

    type: TypeT  # type: ignore[assignment]  # pyright: ignore[reportIncompatibleVariableOverride]
    data: DataT  # type: ignore[assignment]  # pyright: ignore[reportIncompatibleVariableOverride]


class RoundStartEvent(_TypedEvent[Literal["round_start"], RoundStartData]):
    __slots__ = ()
    is_synced = False
    is_in_transcript = is_in_team_replay = True


class TokenEvent(_TypedEvent[Literal["token"], TokenData]):
    __slots__ = ()
    is_synced = False
    is_delta = is_text_delta = True
    is_in_transcript = is_in_team_replay = True


class ToolCallEvent(_TypedEvent[Literal["tool_call"], ToolCallData]):
    __slots__ = ()
    is_logged = True
    is_in_transcript = is_in_team_replay = True


class ToolResultEvent(_TypedEvent[Literal["tool_result"], ToolResultData]):
    __slots__ = ()
    is_logged = True
    is_in_transcript = is_in_team_replay = True


class ConfirmRequiredEvent(_TypedEvent[Literal["confirm_required"], ConfirmRequiredData]):
    """A call that waits for an answer. One that `Agent.stream` yields can be answered by its methods."""

    __slots__ = ("_answer",)
    asks = is_logged = True

    def approve(self) -> None:
        """Let the call run. Raises `AgenticXError` outside of the running stream of an agent that yielded the event."""
        self._answer_with(True, None)

    def deny(self, reason: str | None = None) -> None:
        """Keep the call from running; the model reads the reason. Raises as `approve` does."""
        if reason is not None:
            check_str("reason", reason)
        self._answer_with(False, reason)

    def answered_by(self, answer: Callable[[bool, str | None], None]) -> ConfirmRequiredEvent:
        """Return the event with a function that is called with its answer and the reason."""
        event = ConfirmRequiredEvent(self.type, self.data, self.agent_id, self.turn_id)  # type: ignore[arg-type]
        object.__setattr__(event, "_answer", answer)
        return event

    def _answer_with(self, approved: bool, reason: str | None) -> None:
        answer: Callable[[bool, str | None], None] | None = getattr(self, "_answer", None)
        if answer is None:
            raise AgenticXError(_NOT_IN_STREAM.format("confirm_required", "approve and deny", "resolve"))
        answer(approved, reason)


_NOT_IN_STREAM = (
    "only a {} of `async with agent.stream(...) as turn` has {}; elsewhere answer by the gate, such as "
    "AsyncConfirmGate.{}, or by hub.answer"
)


class ConfirmResponseEvent(_TypedEvent[Literal["confirm_response"], ConfirmResponseData]):
    __slots__ = ()
    answers = is_logged = True


class CompactionEvent(_TypedEvent[Literal["compaction"], CompactionData]):
    __slots__ = ()


class SubagentCheckpointEvent(_TypedEvent[Literal["subagent_checkpoint"], SubagentCheckpointData]):
    __slots__ = ()
    is_from_tools = True


class SubagentPausedEvent(_TypedEvent[Literal["subagent_paused"], SubagentPausedData]):
    __slots__ = ()
    ends_turn = is_logged = True
    is_in_team_replay = True


class FinalEvent(_TypedEvent[Literal["final"], FinalData]):
    __slots__ = ()
    ends_turn = is_logged = True
    is_in_transcript = is_in_team_replay = True


class ErrorEvent(_TypedEvent[Literal["error"], ErrorData]):
    __slots__ = ()
    ends_turn = "fatal"
    is_logged = True
    is_in_team_replay = True


class SubagentStartedEvent(_TypedEvent[Literal["subagent_started"], SubagentStartedData]):
    __slots__ = ()
    is_from_tools = True


class SubagentProgressEvent(_TypedEvent[Literal["subagent_progress"], SubagentProgressData]):
    __slots__ = ()
    is_from_tools = True


class SubagentCompletedEvent(_TypedEvent[Literal["subagent_completed"], SubagentCompletedData]):
    __slots__ = ()
    is_from_tools = True


class SubagentErrorEvent(_TypedEvent[Literal["subagent_error"], SubagentErrorData]):
    __slots__ = ()
    is_from_tools = True


class TurnStartedEvent(_TypedEvent[Literal["turn_started"], TurnStartedData]):
    __slots__ = ()
    is_in_transcript = is_in_team_replay = True


class StateEvent(_TypedEvent[Literal["state"], StateData]):
    __slots__ = ()
    is_synced = False


class ThinkingEvent(_TypedEvent[Literal["thinking"], ThinkingData]):
    __slots__ = ()
    is_synced = False
    is_delta = is_text_delta = True
    is_in_team_replay = True


class ToolCallDeltaEvent(_TypedEvent[Literal["tool_call_delta"], ToolCallDeltaData]):
    __slots__ = ()
    is_synced = False
    is_delta = True


class ToolProgressEvent(_TypedEvent[Literal["tool_progress"], ToolProgressData]):
    __slots__ = ()
    is_synced = False
    is_from_tools = True


class QuestionAskedEvent(_TypedEvent[Literal["question_asked"], QuestionAskedData]):
    """A question of an agent. One that `Agent.stream` yields can be answered by its method."""

    __slots__ = ("_answer",)
    asks = True

    def answer(self, text: str) -> None:
        """Answer the question, by one of its options or in other words.

        Raises `AgenticXError` outside of the running stream of an agent that yielded the event.
        """
        check_str("text", text)
        answer: Callable[[str], None] | None = getattr(self, "_answer", None)
        if answer is None:
            raise AgenticXError(_NOT_IN_STREAM.format("question_asked", "answer", "answer_question"))
        answer(text)

    def answered_by(self, answer: Callable[[str], None]) -> QuestionAskedEvent:
        """Return the event with a function that is called with its answer."""
        event = QuestionAskedEvent(self.type, self.data, self.agent_id, self.turn_id)  # type: ignore[arg-type]
        object.__setattr__(event, "_answer", answer)
        return event


class QuestionAnsweredEvent(_TypedEvent[Literal["question_answered"], QuestionAnsweredData]):
    __slots__ = ()
    answers = True


class UsageEvent(_TypedEvent[Literal["usage"], UsageData]):
    __slots__ = ()
    is_synced = False
    is_in_team_replay = True


class StallEvent(_TypedEvent[Literal["stall"], StallData]):
    __slots__ = ()
    is_synced = False


class QueuedEvent(_TypedEvent[Literal["queued"], QueuedData]):
    __slots__ = ()


class HandedBackEvent(_TypedEvent[Literal["handed_back"], QueuedData]):
    __slots__ = ()


class SteeredEvent(_TypedEvent[Literal["steered"], SteeredData]):
    __slots__ = ()
    is_in_transcript = is_in_team_replay = True


class ArtifactEvent(_TypedEvent[Literal["artifact"], ArtifactData]):
    __slots__ = ()
    is_synced = "final"
    is_from_tools = True


class CitationEvent(_TypedEvent[Literal["citation"], CitationData]):
    __slots__ = ()
    is_from_tools = True
    is_in_transcript = True


class HandoffEvent(_TypedEvent[Literal["handoff"], HandoffData]):
    __slots__ = ()
    is_from_tools = is_logged = True
    is_in_team_replay = True


class SessionChangedEvent(_TypedEvent[Literal["session_changed"], SessionChangedData]):
    __slots__ = ()
    is_in_transcript = is_in_team_replay = True


class SpeakerSelectedEvent(_TypedEvent[Literal["speaker_selected"], SpeakerSelectedData]):
    __slots__ = ()
    is_in_transcript = is_in_team_replay = True


class TeamMessageEvent(_TypedEvent[Literal["team_message"], TeamMessageData]):
    __slots__ = ()
    is_in_transcript = is_in_team_replay = True


class SubagentMessageEvent(_TypedEvent[Literal["subagent_message"], SubagentMessageData]):
    __slots__ = ()
    is_from_tools = True


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
    | SubagentMessageEvent
)
"""The events of a turn; compare `type` with a literal string to narrow it. `help(Event)` shows their data."""

AskingEvent = ConfirmRequiredEvent | QuestionAskedEvent
"""The `ASKING_EVENTS`."""

AnsweringEvent = ConfirmResponseEvent | QuestionAnsweredEvent
"""The `ANSWERING_EVENTS`."""

PAYLOADS: dict[EventType, Any] = {}
"""The payload class of each event type."""

EVENT_CLASSES: dict[EventType, Callable[[EventType, dict[str, Any], str, str | None], Event]] = {}
"""The class of each event type."""

_CLASSES: dict[EventType, type[_TypedEvent[Any, Any]]] = {}

for _class in get_args(Event):
    _literal, _payload = get_args(_class.__orig_bases__[0])
    _type = EventType(get_args(_literal)[0])
    PAYLOADS[_type], EVENT_CLASSES[_type], _CLASSES[_type] = _payload, _class, _class


if not TYPE_CHECKING:  # a union has no help of its own
    _TypedEvent.__name__ = _TypedEvent.__qualname__ = "Event"
    Event = _TypedEvent


def _types_with(flag: str) -> frozenset[EventType]:
    return frozenset(type_ for type_, each in _CLASSES.items() if getattr(each, flag))


_ENDS_TURN = {type_: each.ends_turn for type_, each in _CLASSES.items()}
_SYNCED = {type_: each.is_synced for type_, each in _CLASSES.items()}

LOGGED_EVENTS = _types_with("is_logged")
DELTAS = _types_with("is_delta")
TEXT_DELTAS = _types_with("is_text_delta")
TOOL_EVENTS = _types_with("is_from_tools")
ASKING_EVENTS = _types_with("asks")
ANSWERING_EVENTS = _types_with("answers")
TRANSCRIPT_EVENTS = _types_with("is_in_transcript")
TEAM_REPLAY_EVENTS = _types_with("is_in_team_replay")
REQUEST_EVENTS = ASKING_EVENTS | ANSWERING_EVENTS
"""The events that ask the user, and the events with the answers; each has the `id` of the request."""

OWNER_CLOSED = "the program that ran the turn was closed"
"""The text of the event `error` with the code "stopped" of a turn that nobody stopped: its hub was closed."""


def is_terminal(type_: str, data: Mapping[str, Any]) -> bool:
    """Return whether an event of that type with this data is the last one of its turn."""
    return _has_flag(_ENDS_TURN, type_, data)


def _has_flag(flags: Mapping[Any, bool | str], type_: str, data: Mapping[str, Any]) -> bool:
    flag = flags.get(type_, False)
    return flag if isinstance(flag, bool) else data.get(flag) is True

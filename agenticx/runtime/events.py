"""The event types, their payloads, and their one JSON encoding."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from json.encoder import encode_basestring_ascii as _quote
from typing import Annotated, Any, Literal, NotRequired, Union

from pydantic import Field, TypeAdapter, ValidationError
from typing_extensions import TypedDict

from agenticx.messages import ToolOutcome

__all__ = [
    "EventType",
    "RuntimeEvent",
    "TurnState",
    "check_payload",
    "encode_envelope",
    "envelope_adapter",
    "envelope_schema",
]

TurnState = Literal["idle", "planning", "executing", "observing", "responding", "done"]


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


@dataclass(frozen=True, slots=True)
class RuntimeEvent:
    """One event of a turn. `data` is a plain dict whose keys depend on the type (see the payload classes below)."""

    type: EventType
    data: dict[str, Any]
    agent_id: str = "meta"

    @property
    def terminal(self) -> bool:
        """True if this is the last event of its turn."""
        return (
            self.type is EventType.FINAL
            or self.type is EventType.SUBAGENT_PAUSED
            or (self.type is EventType.ERROR and self.data["fatal"] is True)
        )


# --- one encoding -------------------------------------------------------------------------------------------------

_encode = json.JSONEncoder(ensure_ascii=True, allow_nan=False, separators=(",", ":")).encode


def encode_envelope(event: RuntimeEvent, *, session_id: str, turn_id: str | None, seq: int, ts: str) -> bytes:
    """Return the envelope as one line of ASCII JSON, without a newline. `ts` is RFC 3339, UTC, ending in Z.

    Raises ValueError for a non-finite number and TypeError for a value that JSON does not have.
    """
    data = event.data
    if len(data) == 3 and "offset" in data:  # token and thinking: the hot path
        payload = (
            f'{{"text":{_quote(data["text"])},"message_id":{_quote(data["message_id"])},"offset":{data["offset"]}}}'
        )
    else:
        payload = _encode(data)
    turn = "null" if turn_id is None else _quote(turn_id)
    return (
        f'{{"type":"{event.type.value}","data":{payload},"agent_id":{_quote(event.agent_id)},'
        f'"session_id":{_quote(session_id)},"turn_id":{turn},"seq":{seq},"ts":"{ts}"}}'
    ).encode("ascii")


# --- payloads, typed ----------------------------------------------------------------------------------------------


class AttachmentData(TypedDict):
    name: str
    media_type: str
    size: int


class TurnStarted(TypedDict):
    input: str
    model: str
    message_id: str
    attachments: NotRequired[list[AttachmentData]]
    client_turn_id: NotRequired[str]
    parent_turn_id: NotRequired[str]


class RoundStart(TypedDict):
    round: int
    max_rounds: int


class State(TypedDict):
    state: TurnState


class Token(TypedDict):
    text: str
    message_id: str
    offset: int
    waiting: NotRequired[bool]
    elapsed_seconds: NotRequired[float]


class Thinking(TypedDict):
    text: str
    message_id: str
    offset: int


class ToolCallDeltaData(TypedDict):
    tool_call_id: str
    name: str
    arguments_delta: str


class ToolCallData(TypedDict):
    tool_call_id: str
    name: str
    arguments: dict[str, Any] | str


class ToolProgress(TypedDict):
    tool_call_id: str
    name: str
    elapsed_seconds: float
    output: NotRequired[str]


class ToolResult(TypedDict):
    tool_call_id: str
    name: str
    result: str
    is_error: bool
    duration_ms: NotRequired[float]
    truncated: NotRequired[bool]
    repaired: NotRequired[bool]
    outcome: NotRequired[ToolOutcome]


class ConfirmContext(TypedDict):
    tool: str
    arguments: dict[str, Any]
    risk: str
    reasons: list[str]
    command: NotRequired[str]
    path: NotRequired[str]
    diff: NotRequired[str]


class ConfirmRequired(TypedDict):
    id: str
    question: str
    context: ConfirmContext
    digest: str
    expires_at: str


class ConfirmResponse(TypedDict):
    id: str
    approved: bool
    by: Literal["user", "policy", "timeout", "stop", "restart"]
    remember: NotRequired[Literal["once", "session", "always"]]
    arguments: NotRequired[dict[str, Any]]
    reason: NotRequired[str]


class QuestionAsked(TypedDict):
    id: str
    text: str
    options: NotRequired[list[str]]
    expires_at: str


class QuestionAnswered(TypedDict):
    id: str
    answer: str
    by: str


class Compaction(TypedDict):
    compacted_count: int
    summary: str
    tokens_before: int
    tokens_after: int
    tokens_spent: NotRequired[int]


class UsageData(TypedDict):
    input_tokens: int | None
    output_tokens: int | None
    cached_tokens: NotRequired[int]
    reasoning_tokens: NotRequired[int]
    cost_usd: NotRequired[str]
    model: str


class Stall(TypedDict):
    """The payload of `stall`: a wait that takes longer than usual, a retry, or an expired clock.

    If `action` is `retrying`, `reason` is the failure and `model` the model that is called next, which may be a
    fallback. `{tool, waiting}` is the wait of `limit_seconds` before a call is repeated whose last result,
    `elapsed_seconds` ago, was still pending.
    """

    phase: Literal["first_chunk", "heartbeat", "hard", "tool", "confirm"]
    elapsed_seconds: float
    limit_seconds: float
    action: Literal["waiting", "retrying", "failed"]
    retry_at: NotRequired[str]
    reason: NotRequired[str]
    model: NotRequired[str]


class Queued(TypedDict):
    """The payload of `queued` and `handed_back`.

    `turn_id` is the turn that the message will begin, or the running one that is to receive it. If the running turn
    ends first, the message is queued again, for a turn of its own.
    """

    turn_id: str
    message_id: str
    input: str
    attachments: NotRequired[list[AttachmentData]]
    client_turn_id: NotRequired[str]


class Steered(TypedDict):
    message_id: str
    text: str
    attachments: NotRequired[list[AttachmentData]]


class Artifact(TypedDict):
    path: str
    content: NotRequired[str]
    delta: NotRequired[str]
    final: bool


class Citation(TypedDict):
    message_id: str
    marker: str
    vault: str
    path: str
    heading: NotRequired[str]
    line_start: int
    line_end: int
    quote: str


class Handoff(TypedDict):
    from_agent: str
    to_agent: str
    reason: NotRequired[str]


class _Subagent(TypedDict):
    parent_agent_id: str | None
    depth: int


class SubagentStarted(_Subagent):
    task: str


class SubagentProgress(_Subagent):
    text: str


class SubagentCheckpoint(_Subagent):
    round: int
    max_rounds: int


class SubagentPaused(_Subagent):
    round: int
    max_rounds: int
    checkpoint: dict[str, Any]


class SubagentCompleted(_Subagent):
    result: str


class SubagentError(_Subagent):
    text: str
    code: str


class SessionChanged(TypedDict, total=False):
    name: str | None
    model: str | None
    permission_mode: str
    tools: list[str] | None
    pinned: bool
    archived: bool
    rewound_to: str | None


class FinalUsage(TypedDict):
    input_tokens: int | None
    output_tokens: int | None
    cached_tokens: NotRequired[int]
    reasoning_tokens: NotRequired[int]
    cost_usd: NotRequired[str]


class Final(TypedDict):
    text: str
    message_id: str
    reason: Literal["answer", "resolved", "not_resolved", "partial"]
    usage: FinalUsage
    output: NotRequired[Any]


class Error(TypedDict):
    text: str
    code: str
    fatal: bool
    tool_call_id: NotRequired[str]
    retryable: NotRequired[bool]
    retry_at: NotRequired[str]
    detector: NotRequired[str]


# --- validation and schema, built on first use ---------------------------------------------------------------

_PAYLOADS: Mapping[EventType, type] = {
    EventType.TURN_STARTED: TurnStarted,
    EventType.ROUND_START: RoundStart,
    EventType.STATE: State,
    EventType.TOKEN: Token,
    EventType.THINKING: Thinking,
    EventType.TOOL_CALL_DELTA: ToolCallDeltaData,
    EventType.TOOL_CALL: ToolCallData,
    EventType.TOOL_PROGRESS: ToolProgress,
    EventType.TOOL_RESULT: ToolResult,
    EventType.CONFIRM_REQUIRED: ConfirmRequired,
    EventType.CONFIRM_RESPONSE: ConfirmResponse,
    EventType.QUESTION_ASKED: QuestionAsked,
    EventType.QUESTION_ANSWERED: QuestionAnswered,
    EventType.COMPACTION: Compaction,
    EventType.USAGE: UsageData,
    EventType.STALL: Stall,
    EventType.QUEUED: Queued,
    EventType.HANDED_BACK: Queued,
    EventType.STEERED: Steered,
    EventType.ARTIFACT: Artifact,
    EventType.CITATION: Citation,
    EventType.HANDOFF: Handoff,
    EventType.SUBAGENT_STARTED: SubagentStarted,
    EventType.SUBAGENT_PROGRESS: SubagentProgress,
    EventType.SUBAGENT_CHECKPOINT: SubagentCheckpoint,
    EventType.SUBAGENT_PAUSED: SubagentPaused,
    EventType.SUBAGENT_COMPLETED: SubagentCompleted,
    EventType.SUBAGENT_ERROR: SubagentError,
    EventType.SESSION_CHANGED: SessionChanged,
    EventType.FINAL: Final,
    EventType.ERROR: Error,
}


@cache
def envelope_adapter() -> TypeAdapter[Any]:
    """Return the validator of envelopes that are read back; it raises `pydantic.ValidationError`."""
    members = tuple(_envelope_type(type_, payload) for type_, payload in _PAYLOADS.items())
    any_of: Any = Union  # subscripted at run time, which a type checker cannot follow
    annotated: Any = Annotated
    return TypeAdapter(annotated[any_of[members], Field(discriminator="type")])


def _envelope_type(type_: EventType, payload: type) -> Any:
    """Return the TypedDict of one event type's envelope.

    It is made at run time, because its literal tag comes from the enum.
    """
    common: dict[str, Any] = {"agent_id": str, "session_id": str, "turn_id": str | None, "seq": int, "ts": str}
    make: Any = TypedDict
    return make(f"{payload.__name__}_{type_.value}", {"type": Literal[type_.value], "data": payload, **common})


@cache
def _payload_adapter(type_: EventType) -> TypeAdapter[dict[str, Any]]:
    payload: Any = _PAYLOADS[type_]
    return TypeAdapter(payload)


def check_payload(type_: EventType, data: dict[str, Any]) -> None:
    """Raise ValueError with one sentence unless `data` is a payload of that type without additional keys."""
    try:
        validated = _payload_adapter(type_).validate_python(data, strict=True)
    except ValidationError as exc:
        problem = exc.errors(include_url=False, include_input=False)[0]
        raise ValueError(f"{'.'.join(str(step) for step in problem['loc'])}: {problem['msg']}") from None
    if unknown_keys := data.keys() - validated.keys():
        raise ValueError(f"{sorted(unknown_keys)[0]}: unknown key")


@cache
def envelope_schema() -> dict[str, Any]:
    """Return the JSON Schema of all envelopes, as in the OpenAPI document."""
    return envelope_adapter().json_schema()

"""The payloads of the events: the keys of `RuntimeEvent.data`, a class per event type.

Names and keys are those of the published `AgentRuntime` and of this project's wire contract.
"""

from __future__ import annotations

from typing import Any, Literal, NotRequired

from typing_extensions import TypedDict

from agenticx.messages import ToolOutcome

__all__ = [
    "ArtifactData",
    "AttachmentData",
    "CitationData",
    "CompactionData",
    "ConfirmContextData",
    "ConfirmRequiredData",
    "ConfirmResponseData",
    "ErrorData",
    "FinalData",
    "FinalUsageData",
    "HandoffData",
    "QuestionAnsweredData",
    "QuestionAskedData",
    "QueuedData",
    "RoundStartData",
    "SessionChangedData",
    "SpeakerSelectedData",
    "StallData",
    "StateData",
    "SteeredData",
    "SubagentCheckpointData",
    "SubagentCompletedData",
    "SubagentErrorData",
    "SubagentPausedData",
    "SubagentProgressData",
    "SubagentStartedData",
    "TeamMessageData",
    "ThinkingData",
    "TokenData",
    "ToolCallData",
    "ToolCallDeltaData",
    "ToolProgressData",
    "ToolResultData",
    "TurnStartedData",
    "TurnState",
    "UsageData",
]

TurnState = Literal["idle", "planning", "executing", "observing", "responding", "done"]


class AttachmentData(TypedDict):
    name: str
    media_type: str
    size: int


class TurnStartedData(TypedDict):
    input: str
    model: str
    message_id: str
    attachments: NotRequired[list[AttachmentData]]
    client_turn_id: NotRequired[str]
    parent_turn_id: NotRequired[str]
    mode: NotRequired[Literal["chat", "vault", "agent"]]
    mode_reason: NotRequired[str]


class RoundStartData(TypedDict):
    round: int
    max_rounds: int


class StateData(TypedDict):
    state: TurnState


class TokenData(TypedDict):
    text: str
    message_id: str
    offset: int
    waiting: NotRequired[bool]
    elapsed_seconds: NotRequired[float]


class ThinkingData(TypedDict):
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


class ToolProgressData(TypedDict):
    tool_call_id: str
    name: str
    elapsed_seconds: float
    output: NotRequired[str]


class ToolResultData(TypedDict):
    tool_call_id: str
    name: str
    result: str
    is_error: bool
    outcome: ToolOutcome
    duration_ms: NotRequired[float]
    truncated: NotRequired[bool]
    repaired: NotRequired[bool]
    untrusted: NotRequired[bool]
    sources: NotRequired[list[str]]


class ConfirmContextData(TypedDict):
    tool: str
    tool_call_id: str
    arguments: dict[str, Any]
    risk: str
    reasons: list[str]
    command: NotRequired[str]
    path: NotRequired[str]
    diff: NotRequired[str]
    rule: NotRequired[str]
    sandboxed: NotRequired[bool]


class ConfirmRequiredData(TypedDict):
    id: str
    question: str
    context: ConfirmContextData
    digest: str
    expires_at: str
    agent_path: NotRequired[list[str]]


class ConfirmResponseData(TypedDict):
    id: str
    approved: bool
    by: Literal["user", "policy", "timeout", "stop", "restart"]
    remember: NotRequired[Literal["once", "session"]]
    arguments: NotRequired[dict[str, Any]]
    reason: NotRequired[str]


class QuestionAskedData(TypedDict):
    """The payload of `question_asked`; the call `tool_call_id`, or else the turn's work, waits for the answer."""

    id: str
    text: str
    options: NotRequired[list[str]]
    expires_at: str
    tool_call_id: NotRequired[str]
    agent_path: NotRequired[list[str]]


class QuestionAnsweredData(TypedDict):
    """The payload of `question_answered`; an empty `answer` is none, for the reason that `by` names.

    `by` is `policy` if nobody could be asked.
    """

    id: str
    answer: str
    by: Literal["user", "policy", "timeout", "stop", "restart"]


class CompactionData(TypedDict):
    compacted_count: int
    summary: str
    tokens_before: int
    tokens_after: int
    tokens_spent: NotRequired[int]


class UsageData(TypedDict):
    """The payload of `usage`: the counts of one model call, null or absent if the provider did not report them.

    `reserved_tokens` and `reserved_usd` are what a budget counts in the place of those: the call may have used less.
    `organization_id` is that of the agent of an `AgentExecutor` to whose organization the call counts.
    """

    input_tokens: int | None
    output_tokens: int | None
    cached_tokens: NotRequired[int]
    reasoning_tokens: NotRequired[int]
    cost_usd: NotRequired[str]
    reserved_tokens: NotRequired[int]
    reserved_usd: NotRequired[str]
    organization_id: NotRequired[str]
    model: str


class StallData(TypedDict):
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


class QueuedData(TypedDict):
    """The payload of `queued` and `handed_back`.

    `turn_id` is the turn that the message will begin, or the running one that is to receive it. If the running turn
    ends first, the message is queued again, for a turn of its own.
    """

    turn_id: str
    message_id: str
    input: str
    attachments: NotRequired[list[AttachmentData]]
    client_turn_id: NotRequired[str]


class SteeredData(TypedDict):
    message_id: str
    text: str
    attachments: NotRequired[list[AttachmentData]]


class ArtifactData(TypedDict):
    """A revision of a file of the session while it grows, or, if `final`, as it is stored.

    `delta` is added at `offset`, in Unicode code points. A last event has its `sha256`, `size` in bytes and
    `media_type`, and `content` unless that was shown or has more than 256 kB; or it is `dropped`: nothing was stored.
    """

    path: str
    final: bool
    revision: NotRequired[int]
    tool_call_id: NotRequired[str]
    delta: NotRequired[str]
    offset: NotRequired[int]
    content: NotRequired[str]
    media_type: NotRequired[str]
    sha256: NotRequired[str]
    size: NotRequired[int]
    dropped: NotRequired[bool]


class Citation(TypedDict):
    """A citation of an answer: of a note in a vault, or of a page with a URL."""

    marker: int
    status: Literal["verified", "located", "unsupported", "changed"]
    vault: NotRequired[str]
    path: NotRequired[str]
    url: NotRequired[str]
    heading: NotRequired[str]
    line_start: int
    line_end: int
    quote: str
    quote_line: NotRequired[int]
    sha256: NotRequired[str]


class CitationData(Citation):
    message_id: str


class HandoffData(TypedDict):
    from_agent: str
    to_agent: str
    reason: NotRequired[str]


class SpeakerSelectedData(TypedDict):
    """The payload of `speaker_selected`: the participants of `team` that speak next.

    `fallback` is the last reply of a model that was to choose but never named one candidate; then the previous speaker
    goes on, or the first participant begins.
    """

    team: str
    speakers: list[str]
    fallback: NotRequired[str]


class TeamMessageData(TypedDict):
    """The payload of `team_message`: a message of the run of `team`, as its `dump` returns it (`agenticx.teams`).

    Of an attachment in it there is `{name, media_type, size, sha256}`, without the content.
    """

    team: str
    message: dict[str, Any]


class _Subagent(TypedDict):
    parent_agent_id: str | None
    depth: int


class SubagentStartedData(_Subagent):
    task: str


class SubagentProgressData(_Subagent):
    text: str


class SubagentCheckpointData(_Subagent):
    round: int
    max_rounds: int


class SubagentPausedData(_Subagent):
    round: int
    max_rounds: int
    checkpoint: dict[str, Any]


class SubagentCompletedData(_Subagent):
    result: str


class SubagentErrorData(_Subagent):
    text: str
    code: str


class SessionChangedData(TypedDict, total=False):
    name: str | None
    model: str | None
    permission_mode: str
    tools: list[str] | None
    vaults: list[str] | None
    system_prompt: str | None
    agent: str | None
    workspace: str
    pinned: bool
    archived: bool
    rewound_to: str | None
    team_reset: str
    picked: int
    message_id: str
    text: str


class FinalUsageData(TypedDict):
    input_tokens: int | None
    output_tokens: int | None
    cached_tokens: NotRequired[int]
    reasoning_tokens: NotRequired[int]
    cost_usd: NotRequired[str]


class FinalData(TypedDict):
    """The end of a turn; with `output` the object asked for, and with `stop_reason` why the run of a team stopped."""

    text: str
    message_id: str
    reason: Literal["answer", "resolved", "not_resolved", "handoff", "partial"]
    usage: FinalUsageData
    output: NotRequired[Any]
    stop_reason: NotRequired[str]


class ErrorData(TypedDict):
    """The payload of `error`, which ends the turn if it is `fatal`.

    Fatal codes: `stopped`, `timeout.` and `first_chunk`, `heartbeat`, `hard` or `turn`, `provider.` and `auth`,
    `rate_limited`, `bad_request`, `bad_reply`, `overloaded`, `truncated`, `content_filter` or `transport`,
    `context_overflow`, `loop_detected`, `max_rounds`, `budget_exceeded`, `hook_failed`, `storage`, `interrupted` (the
    process died), `team_unavailable` (the session's configured team cannot run now), `internal` (a bug of AgenticX).
    Others: `loop_warning` with a `detector`, `hook_failed`, `tool_failed`.
    """

    text: str
    code: str
    fatal: bool
    tool_call_id: NotRequired[str]
    retryable: NotRequired[bool]
    retry_at: NotRequired[str]
    detector: NotRequired[str]

"""The payloads of the events: the keys of `RuntimeEvent.data`, a class per event type.

Names and keys follow the published `AgentRuntime` and this project's wire contract. The descriptions of the keys are in
the OpenAPI document too.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, NotRequired

from pydantic import Field
from typing_extensions import TypedDict

from agenticx.messages import ToolOutcome

__all__ = [
    "ArtifactData",
    "AttachmentData",
    "CitationData",
    "CommandEndData",
    "CompactionData",
    "ConfirmContextData",
    "ConfirmRequiredData",
    "ConfirmResponseData",
    "ErrorData",
    "FileEditData",
    "FileExtractData",
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
    "SubagentMessageData",
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

TurnState = Literal["idle", "compacting", "planning", "executing", "observing", "responding", "done"]

_MessageId = Annotated[str, Field(description="The id of the message, unique in the session.")]
_CallId = Annotated[str, Field(description="The id of the tool call, unique in the session.")]
_ToolName = Annotated[str, Field(description="The name of the tool.")]
_TextOffset = Annotated[
    int, Field(description="The number of Unicode code points of this message that were sent before in such events.")
]
_RequestId = Annotated[str, Field(description="The id of the request; an answer names it.")]
_ExpiresAt = Annotated[str, Field(description="The time at which the request counts as not answered, in RFC 3339.")]
_AgentPath = Annotated[
    list[str],
    Field(description="The agents from the main agent to the one that asks; absent for the main agent."),
]
_AnsweredBy = Annotated[
    Literal["user", "policy", "timeout", "stop", "restart"],
    Field(description="Who or what answered: a person, a rule, the expiry, the end of the turn, or a restart."),
]
_ClientTurnId = Annotated[str, Field(description="The id that the client gave to the message.")]
_RoundNumber = Annotated[int, Field(description="The number of the round, from 1.")]
_MaxRounds = Annotated[int, Field(description="The number of rounds that the turn may have.")]
_InputTokens = Annotated[
    int | None, Field(description="The tokens of the request, cached ones included; null if they are not known.")
]
_OutputTokens = Annotated[int | None, Field(description="The tokens of the reply; null if they are not known.")]
_CachedTokens = Annotated[int, Field(description="The tokens of the request that the provider had in its cache.")]
_ReasoningTokens = Annotated[int, Field(description="The tokens of the reply that were spent on reasoning.")]
_CostUsd = Annotated[str, Field(description="The cost in US dollars, as a decimal number.")]


class AttachmentData(TypedDict):
    name: Annotated[str, Field(description="The name of the file.")]
    media_type: Annotated[str, Field(description="The media type, found by the content.")]
    size: Annotated[int, Field(description="The size in bytes.")]
    sha256: Annotated[
        str, Field(description="The SHA-256 of the content in hexadecimal digits; the content is read by it.")
    ]


_Attachments = Annotated[list[AttachmentData], Field(description="The files of the message.")]


class TurnStartedData(TypedDict):
    input: Annotated[str, Field(description="The text of the user's message, or the task of a child turn.")]
    model: Annotated[str, Field(description="The name of the model.")]
    message_id: _MessageId
    attachments: NotRequired[_Attachments]
    client_turn_id: NotRequired[_ClientTurnId]
    parent_turn_id: NotRequired[
        Annotated[str, Field(description="The turn in which an agent, a team or a tool began this one.")]
    ]
    mode: NotRequired[
        Annotated[
            Literal["chat", "vault", "agent"],
            Field(description="What the message is answered from: the model alone, notes, or tools as well."),
        ]
    ]
    mode_reason: NotRequired[Annotated[str, Field(description="Why it is this mode.")]]
    permission_mode: NotRequired[
        Annotated[Literal["auto"], Field(description="Calls run without being asked about, but for a few.")]
    ]
    permission_mode_resumed: NotRequired[
        Annotated[
            Literal[True],
            Field(description="Mode auto was chosen before the last start: the first change is asked about."),
        ]
    ]


class RoundStartData(TypedDict):
    round: _RoundNumber
    max_rounds: _MaxRounds


class StateData(TypedDict):
    state: Annotated[TurnState, Field(description="The state that the turn is in from now on.")]


class TokenData(TypedDict):
    text: Annotated[str, Field(description="The next part of the text; empty while the reply is awaited.")]
    message_id: _MessageId
    offset: _TextOffset
    waiting: NotRequired[
        Annotated[bool, Field(description="True for the one event that says that the model's reply is awaited.")]
    ]
    elapsed_seconds: NotRequired[Annotated[float, Field(description="The seconds since the model was called.")]]


class ThinkingData(TypedDict):
    text: Annotated[str, Field(description="The next part of the reasoning.")]
    message_id: _MessageId
    offset: _TextOffset


class ToolCallDeltaData(TypedDict):
    tool_call_id: _CallId
    name: _ToolName
    arguments_delta: Annotated[
        str, Field(description="The next part of the arguments as JSON text; a call is never carried out from it.")
    ]


class ToolCallData(TypedDict):
    tool_call_id: _CallId
    name: _ToolName
    arguments: Annotated[
        dict[str, Any] | str,
        Field(description="The arguments, or the text that the model sent if it is not a JSON object."),
    ]


class ToolProgressData(TypedDict):
    tool_call_id: _CallId
    name: _ToolName
    elapsed_seconds: Annotated[float, Field(description="The seconds since the tool began.")]
    output: NotRequired[
        Annotated[str, Field(description="What the tool reports; absent in the beat of every two seconds.")]
    ]


class FileEditData(TypedDict):
    """A file that the call has changed; `added` and `removed` count the lines of the whole diff, also of a cut one."""

    kind: Annotated[Literal["edit"], Field(description="The file was written or edited.")]
    path: Annotated[str, Field(description="The path of the file, relative to the workspace.")]
    diff: Annotated[str, Field(description="The change as a unified diff, empty for a file that is not text.")]
    added: Annotated[int, Field(description="The number of added lines.")]
    removed: Annotated[int, Field(description="The number of removed lines.")]
    diff_cut: Annotated[bool, Field(description="True if the diff is longer than it is shown.")]
    unchanged_below: NotRequired[
        Annotated[int, Field(description="The number of unchanged lines after the last one of the whole diff.")]
    ]


class CommandEndData(TypedDict):
    """The end of a command."""

    kind: Annotated[Literal["command"], Field(description="A command was run.")]
    exit_code: Annotated[int | None, Field(description="The exit code; null if a signal ended the command.")]
    cwd: Annotated[str, Field(description="The folder in which it ran.")]


class FileExtractData(TypedDict):
    """The lines of a file that the call has read."""

    kind: Annotated[Literal["read"], Field(description="A file was read.")]
    path: Annotated[str, Field(description="The path of the file, relative to the workspace.")]
    line_start: Annotated[int, Field(description="The first line, from 1.")]
    lines: Annotated[int, Field(description="The number of lines.")]


class ToolResultData(TypedDict):
    tool_call_id: _CallId
    name: _ToolName
    result: Annotated[str, Field(description="The text that the model gets.")]
    is_error: Annotated[bool, Field(description="True unless `outcome` is `ok`.")]
    outcome: Annotated[
        ToolOutcome, Field(description="What became of the call; `unknown`: the process died while it ran.")
    ]
    duration_ms: NotRequired[
        Annotated[float, Field(description="The milliseconds that the tool ran; absent if it did not.")]
    ]
    truncated: NotRequired[Annotated[bool, Field(description="True if the middle of a long result is left out.")]]
    repaired: NotRequired[
        Annotated[
            bool,
            Field(description="True if arguments had to be converted to fit the schema, such as a number in quotes."),
        ]
    ]
    allowed_by: NotRequired[
        Annotated[
            list[dict[str, Any]],
            Field(description="The rules of the user that allowed the call, so that nobody was asked."),
        ]
    ]
    attachments: NotRequired[
        Annotated[
            list[AttachmentData], Field(description="The images and files of the result; the model gets them too.")
        ]
    ]
    data: NotRequired[
        Annotated[
            FileEditData | CommandEndData | FileExtractData,
            Field(discriminator="kind", description="The result of a tool that comes with AgenticX, for clients."),
        ]
    ]
    untrusted: NotRequired[
        Annotated[bool, Field(description="True if the result has texts of others, for example web pages.")]
    ]
    sources: NotRequired[Annotated[list[str], Field(description="The names of those texts.")]]


class ConfirmContextData(TypedDict):
    tool: _ToolName
    tool_call_id: _CallId
    arguments: Annotated[dict[str, Any], Field(description="The arguments of the call; the answer may replace them.")]
    risk: Annotated[str, Field(description="What the call can do: `read`, `write` or `execute`.")]
    reasons: Annotated[list[str], Field(description="Why the user is asked, a sentence each.")]
    decided_by: NotRequired[
        Annotated[
            str,
            Field(
                description="The reason to ask: the permission mode, `protected`, `discloses`, `remembers`, "
                "`unchecked`, `untrusted`, `unread` (a command that may hide what a rule is about), "
                "`resumed` (the first change in mode auto after a restart), or `rule`."
            ),
        ]
    ]
    rule: NotRequired[
        Annotated[dict[str, Any], Field(description="The rule that a yes can store, if it is one: it covers the call.")]
    ]
    rules: NotRequired[
        Annotated[
            list[dict[str, Any]],
            Field(description="The rules that a yes can store; together they cover the call with others of its kind."),
        ]
    ]
    kinds: NotRequired[
        Annotated[list[str], Field(description="What each of the rules covers, in words: `edit files in src/`.")]
    ]
    exact_rule: NotRequired[
        Annotated[dict[str, Any], Field(description="A rule that covers exactly this call, to be stored instead.")]
    ]
    command: NotRequired[Annotated[str, Field(description="The command, if the call runs one.")]]
    cwd: NotRequired[Annotated[str, Field(description="The folder in which the command runs.")]]
    path: NotRequired[Annotated[str, Field(description="The path, if the call changes a file.")]]
    diff: NotRequired[Annotated[str, Field(description="The change of the file as a unified diff.")]]
    diff_cut: NotRequired[Annotated[bool, Field(description="True if the diff is longer than it is shown.")]]
    unchanged_below: NotRequired[
        Annotated[int, Field(description="How many unchanged lines follow the whole diff; absent if none do.")]
    ]
    sandboxed: NotRequired[
        Annotated[
            Literal["bubblewrap", "landlock", False],
            Field(description="The sandbox that the command runs in, or false if it runs in none."),
        ]
    ]


class ConfirmRequiredData(TypedDict):
    id: _RequestId
    question: Annotated[str, Field(description="The question for the user, in a sentence.")]
    context: Annotated[ConfirmContextData, Field(description="What is asked about.")]
    digest: Annotated[str, Field(description="The digest of the question's content; an answer repeats it.")]
    expires_at: _ExpiresAt
    agent_path: NotRequired[_AgentPath]


class ConfirmResponseData(TypedDict):
    id: _RequestId
    approved: Annotated[bool, Field(description="True if the call may run.")]
    by: _AnsweredBy
    remember: NotRequired[
        Annotated[
            Literal["once", "session", "always"],
            Field(description="How long the answer counts: for this call, the session, or always in its workspace."),
        ]
    ]
    rules: NotRequired[
        Annotated[list[dict[str, Any]], Field(description="The rules that are stored with this answer.")]
    ]
    arguments: NotRequired[Annotated[dict[str, Any], Field(description="The arguments that replace the call's own.")]]
    reason: NotRequired[Annotated[str, Field(description="Why a call was denied, for the model.")]]


class QuestionAskedData(TypedDict):
    """The payload of `question_asked`; the call `tool_call_id`, or else the turn's work, waits for the answer."""

    id: _RequestId
    text: Annotated[str, Field(description="The question.")]
    options: NotRequired[Annotated[list[str], Field(description="Suggested answers.")]]
    expires_at: _ExpiresAt
    tool_call_id: NotRequired[Annotated[str, Field(description="The id of the call that asks.")]]
    agent_path: NotRequired[_AgentPath]


class QuestionAnsweredData(TypedDict):
    """The payload of `question_answered`; an empty `answer` is none, for the reason that `by` names.

    `by` is `policy` if nobody could be asked.
    """

    id: _RequestId
    answer: Annotated[str, Field(description="The text of the answer.")]
    by: _AnsweredBy


class CompactionData(TypedDict):
    compacted_count: Annotated[int, Field(description="The number of messages that the summary replaces.")]
    summary: Annotated[str, Field(description="The summary that the model gets instead of them.")]
    tokens_before: Annotated[int, Field(description="The estimated tokens of the conversation before.")]
    tokens_after: Annotated[int, Field(description="The estimated tokens of the conversation now.")]
    tokens_spent: NotRequired[Annotated[int, Field(description="The tokens that making the summary took.")]]


class UsageData(TypedDict):
    """The payload of `usage`: the counts of one model call, null or absent if the provider did not report them.

    `reserved_tokens` and `reserved_usd` are what a budget counts instead; the call may have used less.
    `organization_id` is the organization of an `AgentExecutor`'s agent that made the call.
    """

    input_tokens: _InputTokens
    output_tokens: _OutputTokens
    cached_tokens: NotRequired[_CachedTokens]
    reasoning_tokens: NotRequired[_ReasoningTokens]
    cost_usd: NotRequired[_CostUsd]
    reserved_tokens: NotRequired[
        Annotated[int, Field(description="The tokens that a budget counts for counts that were not reported.")]
    ]
    reserved_usd: NotRequired[
        Annotated[str, Field(description="The US dollars that a budget counts for them, as a decimal number.")]
    ]
    organization_id: NotRequired[Annotated[str, Field(description="The organization of the agent that made the call.")]]
    model: Annotated[str, Field(description="The name of the model that was called.")]


class StallData(TypedDict):
    """The payload of `stall`: a wait that takes longer than usual, a retry, or an expired clock.

    If `action` is `retrying`, `reason` is the failure, `code` its error code, and `model` the model that is called
    next, possibly a fallback. `{tool, waiting}` is the wait of `limit_seconds` before a call is
    repeated, because its last result, `elapsed_seconds` ago, was unchanged.
    """

    phase: Annotated[
        Literal["first_chunk", "heartbeat", "hard", "tool", "confirm"],
        Field(
            description="What is waited for: the first chunk of a reply, the next one, its end, a tool, or the user."
        ),
    ]
    elapsed_seconds: Annotated[float, Field(description="The seconds waited so far.")]
    limit_seconds: Annotated[float, Field(description="The limit in seconds that was reached.")]
    action: Annotated[
        Literal["waiting", "retrying", "failed"],
        Field(description="What follows: more waiting, another try, or the end of the turn."),
    ]
    retry_at: NotRequired[Annotated[str, Field(description="The time of the next try, in RFC 3339.")]]
    reason: NotRequired[Annotated[str, Field(description="Why there is another try.")]]
    code: NotRequired[Annotated[str, Field(description="The error code of that failure.")]]
    model: NotRequired[Annotated[str, Field(description="The model that is called next.")]]


class QueuedData(TypedDict):
    """The payload of `queued` and `handed_back`.

    `turn_id` is the turn that the message will begin, or the running one that is to receive it. If the running turn
    ends first, the message is queued again, for a turn of its own; so is one that the user has changed.
    """

    turn_id: Annotated[
        str, Field(description="The turn that the message will begin, or the running one that is to receive it.")
    ]
    message_id: _MessageId
    input: Annotated[str, Field(description="The text of the message.")]
    attachments: NotRequired[_Attachments]
    client_turn_id: NotRequired[_ClientTurnId]
    removed: NotRequired[Annotated[bool, Field(description="True if the user removed the message.")]]
    former_turn_id: NotRequired[
        Annotated[
            str,
            Field(description="The turn that the message was to begin: it never begins, as the user had it read now."),
        ]
    ]


class SteeredData(TypedDict):
    message_id: _MessageId
    text: Annotated[str, Field(description="The text of the message.")]
    attachments: NotRequired[_Attachments]


class ArtifactData(TypedDict):
    """A revision of a file of the session while it grows, or, if `final`, as it is stored.

    `delta` is added at `offset`, in Unicode code points. A last event has its `sha256`, `size` in bytes and
    `media_type`, and `content` unless that was shown or has more than 256 kB; or it is `dropped`: nothing was stored.
    """

    path: Annotated[str, Field(description="The path of the file in the session.")]
    final: Annotated[bool, Field(description="True for the last event of a revision.")]
    revision: NotRequired[Annotated[int, Field(description="The number of the revision, from 1.")]]
    tool_call_id: NotRequired[
        Annotated[str, Field(description="The id of the call that writes the file; absent for one made of an answer.")]
    ]
    delta: NotRequired[Annotated[str, Field(description="The text that is added at `offset`.")]]
    offset: NotRequired[
        Annotated[int, Field(description="The number of Unicode code points of the revision before `delta`.")]
    ]
    content: NotRequired[Annotated[str, Field(description="The whole text, after an edit.")]]
    media_type: NotRequired[Annotated[str, Field(description="The media type of the file.")]]
    sha256: NotRequired[Annotated[str, Field(description="The SHA-256 of the stored bytes, in hexadecimal digits.")]]
    size: NotRequired[Annotated[int, Field(description="The size of the stored file in bytes.")]]
    dropped: NotRequired[
        Annotated[bool, Field(description="True if nothing was stored, so that the earlier revision stands.")]
    ]


class Citation(TypedDict):
    """A citation of an answer: of a note in a vault, or of a page with a URL."""

    marker: Annotated[int, Field(description="The number in the text, as in `[2]`.")]
    status: Annotated[
        Literal["verified", "located", "unsupported", "changed"],
        Field(
            description="`verified`: the passage has what the sentence says. `located`: that cannot be checked. "
            "`unsupported`: the passage lacks a part of it. `changed`: the passage is no longer there."
        ),
    ]
    vault: NotRequired[Annotated[str, Field(description="The id of the vault with the note.")]]
    path: NotRequired[Annotated[str, Field(description="The path of the note in its vault.")]]
    url: NotRequired[Annotated[str, Field(description="The address of a page.")]]
    heading: NotRequired[Annotated[str, Field(description="The heading that the passage stands under.")]]
    line_start: Annotated[int, Field(description="The first line of the passage, from 1.")]
    line_end: Annotated[int, Field(description="The last line of the passage.")]
    quote: Annotated[str, Field(description="The line of the passage that supports the sentence best.")]
    quote_line: NotRequired[Annotated[int, Field(description="The line of the quote.")]]
    sha256: NotRequired[Annotated[str, Field(description="The SHA-256 of the passage, in hexadecimal digits.")]]


class CitationData(Citation):
    message_id: _MessageId


class HandoffData(TypedDict):
    from_agent: Annotated[str, Field(description="The agent that hands over.")]
    to_agent: Annotated[str, Field(description="The agent that acts next.")]
    reason: NotRequired[Annotated[str, Field(description="Why, in the words of the first one.")]]


class SpeakerSelectedData(TypedDict):
    """The payload of `speaker_selected`: the participants of `team` that speak next.

    `fallback` is the last reply of a model that was to choose but never named one candidate; then the previous speaker
    goes on, or the first participant begins.
    """

    team: Annotated[str, Field(description="The name of the team.")]
    speakers: Annotated[list[str], Field(description="The names of the participants that speak next.")]
    fallback: NotRequired[Annotated[str, Field(description="The last reply of a model that named no candidate.")]]


class TeamMessageData(TypedDict):
    """The payload of `team_message`: a message of the run of `team`, as its `dump` returns it (`agenticx.teams`).

    Of an attachment in it there is `{name, media_type, size, sha256}`, without the content.
    """

    team: Annotated[str, Field(description="The name of the team.")]
    message: Annotated[dict[str, Any], Field(description="The message, with its `type` and the fields of that.")]


class _Subagent(TypedDict):
    parent_agent_id: Annotated[str | None, Field(description="The agent that began it; null for the main agent.")]
    depth: Annotated[int, Field(description="The number of agents above it.")]


class SubagentStartedData(_Subagent):
    task: Annotated[str, Field(description="The task that it was given.")]
    message_ids: NotRequired[
        Annotated[
            list[str],
            Field(description="The messages for it with which this run begins, in order; see `subagent_message`."),
        ]
    ]
    anew: NotRequired[
        Annotated[bool, Field(description="True for a retry, which begins with the task in an empty conversation.")]
    ]


class SubagentMessageData(_Subagent):
    """The payload of `subagent_message`: a message for a sub-agent, which waits until the sub-agent takes it.

    The sub-agent takes it with a `steered` in its turn, or with a run whose `subagent_started` has the id among its
    `message_ids`.
    """

    message_id: _MessageId
    text: Annotated[str, Field(description="The text of the message.")]
    from_agent_id: Annotated[str | None, Field(description="The agent that sent it; null: the user, not an agent.")]


class SubagentProgressData(_Subagent):
    text: Annotated[str, Field(description="What it is doing.")]


class SubagentCheckpointData(_Subagent):
    round: _RoundNumber
    max_rounds: _MaxRounds


class SubagentPausedData(_Subagent):
    round: _RoundNumber
    max_rounds: _MaxRounds
    checkpoint: Annotated[
        dict[str, Any],
        Field(description="Where it stands: the number of `messages`, the `last_text`, and the `todos`."),
    ]


class SubagentCompletedData(_Subagent):
    result: Annotated[str, Field(description="Its answer.")]


class SubagentErrorData(_Subagent):
    text: Annotated[str, Field(description="What happened, in a sentence.")]
    code: Annotated[str, Field(description="The code of the error, as in `error`.")]


class SessionChangedData(TypedDict, total=False):
    name: Annotated[str | None, Field(description="The new name; null: none.")]
    model: Annotated[str | None, Field(description="The model of the next turns; null: the default.")]
    permission_mode: Annotated[str, Field(description="The new permission mode.")]
    tools: Annotated[list[str] | None, Field(description="The tools of the next turns; null: all.")]
    vaults: Annotated[list[str] | None, Field(description="The ids of the vaults of the next turns; null: all.")]
    system_prompt: Annotated[str | None, Field(description="The system prompt of the next turns; null: the usual one.")]
    agent: Annotated[str | None, Field(description="The agent of the next turns; null: the main agent.")]
    workspace: Annotated[str, Field(description="The new workspace.")]
    pinned: Annotated[bool, Field(description="Whether the session is pinned now.")]
    archived: Annotated[bool, Field(description="Whether the session is archived now.")]
    rule_removed: Annotated[str, Field(description="The id of a rule of the session that holds no more.")]
    rewound_to: Annotated[str | None, Field(description="The message that is the last one now; null: none.")]
    team_reset: Annotated[str, Field(description="The team that begins anew in this session.")]
    picked: Annotated[int, Field(description="The number of the option that was picked.")]
    message_id: Annotated[str, Field(description="The id of the message that tells the model of it.")]
    text: Annotated[str, Field(description="The text of that message.")]


class FinalUsageData(TypedDict):
    input_tokens: _InputTokens
    output_tokens: _OutputTokens
    cached_tokens: NotRequired[_CachedTokens]
    reasoning_tokens: NotRequired[_ReasoningTokens]
    cost_usd: NotRequired[_CostUsd]


class FinalData(TypedDict):
    """The end of a turn; with `output` the object asked for, and with `stop_reason` why the run of a team stopped."""

    text: Annotated[str, Field(description="The text of the last reply.")]
    message_id: _MessageId
    reason: Annotated[
        Literal["answer", "resolved", "not_resolved", "handoff", "partial"],
        Field(
            description="Why the turn ends: an answer, what the agent says of its task, a handoff, or a part of an "
            "answer after all rounds."
        ),
    ]
    usage: Annotated[FinalUsageData, Field(description="The sum of all model calls of the turn.")]
    output: NotRequired[Annotated[Any, Field(description="The object that was asked for.")]]
    stop_reason: NotRequired[Annotated[str, Field(description="Why the run of a team stopped.")]]


class ErrorData(TypedDict):
    """The payload of `error`; a `fatal` one ends the turn.

    Fatal codes: `stopped`, `timeout.` and `first_chunk`, `heartbeat`, `hard` or `turn`, `provider.` and `auth`,
    `rate_limited`, `bad_request`, `bad_reply`, `overloaded`, `truncated`, `content_filter` or `transport`,
    `context_overflow`, `loop_detected`, `max_rounds`, `budget_exceeded`, `hook_failed`, `storage`, `interrupted` (the
    process died), `team_unavailable` (the session's configured team cannot run now), `internal` (a bug of AgenticX).
    Others: `loop_warning` with a `detector`, `hook_failed`, `tool_failed`, `rule_not_stored`.
    """

    text: Annotated[str, Field(description="What happened, in a sentence.")]
    code: Annotated[str, Field(description="The code of the error, for programs.")]
    fatal: Annotated[bool, Field(description="True if the turn ends with it.")]
    tool_call_id: NotRequired[_CallId]
    retryable: NotRequired[Annotated[bool, Field(description="True if another try may succeed.")]]
    retry_at: NotRequired[
        Annotated[str, Field(description="The time from which another try may succeed, in RFC 3339.")]
    ]
    detector: NotRequired[Annotated[str, Field(description="The kind of loop that was found.")]]

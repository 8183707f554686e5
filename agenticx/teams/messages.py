"""The messages that participants of a team exchange, and the events of their work."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any, Generic, Literal, Self, TypeVar

from pydantic import AfterValidator, AwareDatetime, BaseModel, ConfigDict, Field, SerializeAsAny, field_validator

from agenticx.call_errors import ExplainedModel
from agenticx.messages import AssistantMessage, Attachment, Message, ToolCall, UserMessage, clean_text, new_id

__all__ = [
    "AgentEvent",
    "BaseAgentEvent",
    "BaseChatMessage",
    "BaseTextChatMessage",
    "ChatMessage",
    "FunctionCall",
    "FunctionExecutionResult",
    "HandoffMessage",
    "ModelClientStreamingChunkEvent",
    "MultiModalMessage",
    "RequestUsage",
    "Response",
    "SelectSpeakerEvent",
    "SelectorEvent",
    "StopMessage",
    "StructuredMessage",
    "TaskResult",
    "TeamRecord",
    "TextMessage",
    "ThoughtEvent",
    "ToolCallExecutionEvent",
    "ToolCallRequestEvent",
    "ToolCallSummaryMessage",
    "UserInputRequestedEvent",
]

ContentT = TypeVar("ContentT", bound=BaseModel)

FunctionCall = ToolCall

_Text = Annotated[str, AfterValidator(clean_text)]


@dataclass(frozen=True, slots=True)
class RequestUsage:
    """The tokens of model calls."""

    prompt_tokens: int = 0
    completion_tokens: int = 0

    def __add__(self, other: RequestUsage) -> RequestUsage:
        return RequestUsage(self.prompt_tokens + other.prompt_tokens, self.completion_tokens + other.completion_tokens)


class FunctionExecutionResult(ExplainedModel, BaseModel, frozen=True):
    """The result of the call `call_id` of the tool `name`."""

    content: _Text
    name: str = ""
    call_id: str
    is_error: bool = False


# --- bases ------------------------------------------------------------------------------------------------------------


class TeamRecord(ExplainedModel, BaseModel, frozen=True, extra="forbid"):
    """A message or an event of a team; `type` is the name of its class."""

    id: str = Field(default_factory=lambda: new_id("msg"))
    source: _Text = "user"
    models_usage: RequestUsage | None = None
    metadata: dict[_Text, _Text] = Field(default={})
    created_at: AwareDatetime = Field(default_factory=lambda: datetime.now(UTC))
    type: str = Field(default="", validate_default=True)

    @field_validator("type")
    @classmethod
    def _check_type(cls, value: str) -> str:
        own: str = cls.model_fields["type"].default or cls.__name__
        if value not in {"", own}:
            raise ValueError(f"the type is {own!r}, not {value!r}")
        return own

    @abstractmethod
    def to_text(self) -> str:
        """Return the content as text for a person."""
        ...

    def dump(self) -> Mapping[str, Any]:
        """Return all fields as JSON values."""
        return self.model_dump(mode="json")

    @classmethod
    def load(cls, data: Mapping[str, Any]) -> Self:
        """Return the message that `dump` wrote; raises `pydantic.ValidationError`."""
        return cls.model_validate(data)


class BaseChatMessage(TeamRecord, frozen=True):
    """A message between participants: a base for message types of an application's own."""

    def to_model_text(self) -> str:
        """Return the content as text for a model."""
        return self.to_text()

    def to_transcript_text(self) -> str:
        """Return the whole text of its source, for a person or a transcript."""
        return self.to_model_text()

    def to_model_message(self) -> UserMessage:
        """Return the message as a model gets it."""
        return UserMessage(content=self.to_model_text())


class BaseTextChatMessage(BaseChatMessage, frozen=True):
    """A message whose content is text."""

    content: _Text

    def to_text(self) -> str:
        return self.content


class BaseAgentEvent(TeamRecord, frozen=True):
    """A step of a participant's work, which other participants do not get."""


class _TextEvent(BaseAgentEvent, frozen=True):
    """An event whose content is text."""

    content: _Text

    def to_text(self) -> str:
        return self.content


# --- chat messages ----------------------------------------------------------------------------------------------------


class TextMessage(BaseTextChatMessage, frozen=True):
    """A text."""

    type: Literal["TextMessage"] = "TextMessage"


class StopMessage(BaseTextChatMessage, frozen=True):
    """A message that asks for the end of the run, or the reason of its end."""

    type: Literal["StopMessage"] = "StopMessage"


class HandoffMessage(BaseTextChatMessage, frozen=True):
    """A message that gives control to `target`; `context` are messages for the target's model.

    Texts that its source wrote with its calls are among them, as assistant messages. The `reason` in its `metadata`
    says why control is given, for example with a question; models and persons read it after the content.
    """

    target: _Text
    context: list[Message] = Field(default=[])
    type: Literal["HandoffMessage"] = "HandoffMessage"

    def to_model_text(self) -> str:
        """Return the content, and the reason of the handoff if there is one."""
        reason = self.metadata.get("reason")
        return f"{self.content}\nReason: {reason}" if reason else self.content

    @property
    def said(self) -> str:
        """The texts that its source wrote beside its calls."""
        own = (one for one in self.context if isinstance(one, AssistantMessage) and one.sender == self.source)
        return "\n".join(one.content for one in own if one.content)

    def to_transcript_text(self) -> str:
        """Return what its source wrote beside its calls, then the content and the reason."""
        return "\n".join(filter(None, [self.said, self.to_model_text()]))


class ToolCallSummaryMessage(BaseTextChatMessage, frozen=True):
    """The results of tool calls as an answer; `said` has the texts that came with the calls, and is read first."""

    tool_calls: list[ToolCall]
    results: list[FunctionExecutionResult]
    said: _Text = ""
    type: Literal["ToolCallSummaryMessage"] = "ToolCallSummaryMessage"

    def to_model_text(self) -> str:
        """Return what was said beside the calls, then the summary."""
        return f"{self.said}\n{self.content}" if self.said else self.content


class MultiModalMessage(BaseChatMessage, frozen=True):
    """A text with attachments, in their order."""

    content: list[_Text | Attachment]
    type: Literal["MultiModalMessage"] = "MultiModalMessage"

    def to_text(self) -> str:
        """Return the texts, with the name of each attachment in its place."""
        return "\n".join(part if isinstance(part, str) else f"[{part.name}]" for part in self.content)

    def to_model_message(self) -> UserMessage:
        """Return the texts with the attachments."""
        attachments = tuple(part for part in self.content if not isinstance(part, str))
        return UserMessage(content=self.to_model_text(), attachments=attachments)


class StructuredMessage(BaseChatMessage, Generic[ContentT], frozen=True):
    """A pydantic object as a message; `format_string` formats its fields as text, else the text is JSON."""

    content: SerializeAsAny[ContentT]
    format_string: str | None = None

    def to_text(self) -> str:
        if self.format_string is None:
            return self.content.model_dump_json()
        return self.format_string.format(**self.content.model_dump())


# --- events -----------------------------------------------------------------------------------------------------------


class ToolCallRequestEvent(BaseAgentEvent, frozen=True):
    """The tool calls of one round."""

    content: list[ToolCall]
    type: Literal["ToolCallRequestEvent"] = "ToolCallRequestEvent"

    def to_text(self) -> str:
        return "\n".join(f"{call.name}({call.arguments})" for call in self.content)


class ToolCallExecutionEvent(BaseAgentEvent, frozen=True):
    """The results of one round, in the order of the calls."""

    content: list[FunctionExecutionResult]
    type: Literal["ToolCallExecutionEvent"] = "ToolCallExecutionEvent"

    def to_text(self) -> str:
        return "\n".join(result.content for result in self.content)


class ThoughtEvent(_TextEvent, frozen=True):
    """The reasoning of a reply; with `beside_calls` its text, which is not the answer, since calls follow."""

    beside_calls: bool = False
    type: Literal["ThoughtEvent"] = "ThoughtEvent"


class ModelClientStreamingChunkEvent(_TextEvent, frozen=True):
    """A part of a reply; `full_message_id` is the id of the message to come: the answer, or the text beside calls.

    A reply that goes back to the model, because it is not the object that was asked for, has no chunks.
    """

    full_message_id: str | None = None
    type: Literal["ModelClientStreamingChunkEvent"] = "ModelClientStreamingChunkEvent"


class SelectSpeakerEvent(BaseAgentEvent, frozen=True):
    """The names of the next speakers."""

    content: list[str]
    type: Literal["SelectSpeakerEvent"] = "SelectSpeakerEvent"

    def to_text(self) -> str:
        return ", ".join(self.content)


class SelectorEvent(_TextEvent, frozen=True):
    """A model's words at the choice of a speaker."""

    type: Literal["SelectorEvent"] = "SelectorEvent"


class UserInputRequestedEvent(BaseAgentEvent, frozen=True):
    """A question to a person."""

    request_id: str
    content: _Text = ""
    type: Literal["UserInputRequestedEvent"] = "UserInputRequestedEvent"

    def to_text(self) -> str:
        return self.content


ChatMessage = Annotated[
    TextMessage | StopMessage | HandoffMessage | ToolCallSummaryMessage | MultiModalMessage,
    Field(discriminator="type"),
]

AgentEvent = Annotated[
    ToolCallRequestEvent
    | ToolCallExecutionEvent
    | ThoughtEvent
    | ModelClientStreamingChunkEvent
    | SelectSpeakerEvent
    | SelectorEvent
    | UserInputRequestedEvent,
    Field(discriminator="type"),
]


# --- results ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Response:
    """The answer of a participant, and the messages and events on the way to it."""

    chat_message: SerializeAsAny[BaseChatMessage]
    inner_messages: Sequence[SerializeAsAny[BaseAgentEvent | BaseChatMessage]] | None = None


class TaskResult(BaseModel):
    """The messages of a run, the task included, and the reason of its end."""

    model_config = ConfigDict(frozen=True)

    messages: Sequence[SerializeAsAny[BaseAgentEvent | BaseChatMessage]]
    stop_reason: str | None = None

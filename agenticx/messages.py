"""Messages of a conversation: frozen models, in the order in which a model reads them."""

from __future__ import annotations

import re
import secrets
import string
from collections.abc import Iterable, Iterator
from functools import cache
from itertools import chain, islice
from typing import Annotated, Any, Literal, TypeGuard
from unicodedata import category, normalize

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from agenticx.attachments import Attachment
from agenticx.call_errors import ExplainedModel

__all__ = [
    "MAIN_AGENT",
    "AssistantMessage",
    "Attachment",
    "Message",
    "ProviderState",
    "RefusedFile",
    "SystemMessage",
    "ToolCall",
    "ToolMessage",
    "ToolOutcome",
    "UserMessage",
    "clean_text",
    "files_of",
    "is_from_user",
    "message_adapter",
    "names_speaker",
    "new_id",
    "shown_text",
    "sources_of",
]

ToolOutcome = Literal[
    "ok", "error", "denied", "blocked", "unknown_tool", "invalid_arguments", "cancelled", "timed_out", "unknown"
]


MAIN_AGENT = "meta"
"""The name of the agent that the user talks to directly, if it is given no other."""


def new_id(prefix: str) -> str:
    """Return a fresh unguessable id, `prefix_` + 20 hex digits."""
    return f"{prefix}_{secrets.token_hex(10)}"


_CHUNK_CHARS = 64 * 1024
_LONE_SURROGATE = re.compile("[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]")


def clean_text(text: str) -> str:
    """Return `text` with lone surrogates replaced by U+FFFD, so that it can always be encoded as UTF-8.

    Two surrogates that are a pair become the character that they encode.
    """
    if text.isascii():
        return text
    if len(text) <= _CHUNK_CHARS:
        return _replace_surrogates(text)
    return "".join(map(_replace_surrogates, _chunks(text)))


_PUNCTUATION = (
    string.punctuation + "\u201c\u201d\u201e\u2018\u2019\u00ab\u00bb\u2039\u203a\u2026\u2013\u2014\u00b7\u2022"
)
_SPEAKER_CHARS = 220  # at most, in the line that names who speaks, as it is shown
_LINE_CHARS = 100_000  # of a line that are looked at; who quotes lines quotes all of a longer text
_BLANKS = str.maketrans("", "", " \u115f\u1160\u2800\u3164\uffa0")  # printable, but nothing is to be seen
_MARKS = frozenset({"Mn", "Me"})  # accents, variation selectors and the like: they change a letter, or nothing
_LOOKALIKES = str.maketrans(
    "\u0430\u0435\u043e\u0440\u0441\u0443\u0445\u0455\u0456\u0501\u0261\u0131\u0578"
    "\ua789\u2236\u205a\u02d0\u0589\ufe30",
    "aeopcyxsidgin::::::",
)
_TAG = re.compile(r"<[^<>]{0,40}>")


def shown_text(line: str, chars: int) -> str:
    """Return the first `chars` characters of a line as a reader takes it, and no more than a few beyond them.

    It has no spaces, invisible characters and accents, one width and no upper case, and Latin letters for those that
    look like them: a line that imitates another one for the eye is equal to it here.

    >>> shown_text("\u200bUser  s\u0430id\uff1a ", 20)
    'usersaid:'
    """
    seen = filter(_is_seen, line[:_LINE_CHARS].translate(_BLANKS))
    text = normalize("NFKD", "".join(islice(seen, chars)).translate(_LOOKALIKES)).translate(_BLANKS)
    return "".join(filter(_is_seen, text)).casefold().translate(_LOOKALIKES)


def names_speaker(line: str) -> bool:
    """Return whether a reader may take a line for `NAME said:`, with which the speech of a member of a team begins.

    Marks of Markdown and HTML around it do not matter.
    """
    shown = _TAG.sub("", shown_text(line, _SPEAKER_CHARS + 1))
    words = shown.rstrip(_PUNCTUATION)
    return words.endswith("said") and ":" in shown[len(words) :] and len(shown) <= _SPEAKER_CHARS


def _is_seen(char: str) -> bool:
    return char.isprintable() and category(char) not in _MARKS


def _chunks(text: str) -> Iterator[str]:
    """Yield `text` in chunks, none of which ends within a pair of surrogates."""
    start = 0
    while start < len(text):
        end = start + _CHUNK_CHARS
        end += "\udc00" <= text[end : end + 1] <= "\udfff"
        yield text[start:end]
        start = end


def _replace_surrogates(text: str) -> str:
    data = text.encode("utf-16", "surrogatepass")
    try:
        return data.decode("utf-16")
    except UnicodeDecodeError:  # an error handler of `decode` would cost ten times as much per surrogate
        return _LONE_SURROGATE.sub("\ufffd", text).encode("utf-16", "surrogatepass").decode("utf-16")


class _FrozenModel(ExplainedModel, BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


def _is_unset(value: object) -> bool:
    """Return whether a field is left out of stored messages."""
    return not value


class ToolCall(_FrozenModel):
    """A tool call of a model; `arguments` is the model's JSON text, byte for byte."""

    id: str
    name: str
    arguments: str = "{}"


class ProviderState(_FrozenModel):
    """State that a provider requires back verbatim on the next call; opaque to everything but its own wire."""

    wire: str
    model: str
    payload: dict[str, Any]


class SystemMessage(_FrozenModel):
    """An instruction that is not the user's; compaction summaries are system messages tagged `[compacted]`.

    `developer` marks one that was given with that role, `name` is that of its dict row; models get neither. `sources`
    name the texts of others from which a summary was made.
    """

    role: Literal["system"] = "system"
    content: str
    developer: bool = Field(default=False, exclude_if=_is_unset)
    name: str | None = Field(default=None, exclude_if=_is_unset)
    sources: tuple[str, ...] = Field(default=(), exclude_if=_is_unset)
    message_id: str = Field(default_factory=lambda: new_id("msg"))


class RefusedFile(_FrozenModel):
    """A mark that `model` gets a note instead of the attachment `index` of a message, because its server refused it.

    It is `suspected` if the server gave no reason for refusing the first request with that attachment.
    """

    model: str
    message_id: str
    index: int
    suspected: bool = Field(default=False, exclude_if=_is_unset)


class UserMessage(_FrozenModel):
    """The user's text and attachments; `injected` marks a reminder that the engine adds in the user's role.

    `name` is that of the dict row that the message was given as; models do not get it. `refused_files` are attachments
    of this or an earlier message that a model refused in the turn of this message. `sources` name the texts of others,
    such as notes, that an injected message has.
    """

    role: Literal["user"] = "user"
    content: str
    attachments: tuple[Attachment, ...] = ()
    message_id: str = Field(default_factory=lambda: new_id("msg"))
    injected: bool = False
    name: str | None = Field(default=None, exclude_if=_is_unset)
    refused_files: tuple[RefusedFile, ...] = Field(default=(), exclude_if=_is_unset)
    sources: tuple[str, ...] = Field(default=(), exclude_if=_is_unset)


class AssistantMessage(_FrozenModel):
    """A model's reply: text, reasoning and tool calls; `partial` marks one that ended before its end marker.

    `sender` is the name of the agent that replied, None in conversations with one agent; `name` is that of the dict row
    that the message was given as.
    """

    role: Literal["assistant"] = "assistant"
    content: str = ""
    reasoning: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    partial: bool = False
    provider_state: ProviderState | None = None
    message_id: str = Field(default_factory=lambda: new_id("msg"))
    sender: str | None = None
    name: str | None = Field(default=None, exclude_if=_is_unset)


class ToolMessage(_FrozenModel):
    """The single result of a `ToolCall`; `attachments` are its images and files, which only a result that is ok has.

    `sources` name texts of others in it, such as notes: it is untrusted then.
    """

    role: Literal["tool"] = "tool"
    tool_call_id: str
    name: str
    content: str
    outcome: ToolOutcome = "ok"
    attachments: tuple[Attachment, ...] = Field(default=(), exclude_if=_is_unset)
    sources: tuple[str, ...] = Field(default=(), exclude_if=_is_unset)
    message_id: str = Field(default_factory=lambda: new_id("msg"))


Message = Annotated[SystemMessage | UserMessage | AssistantMessage | ToolMessage, Field(discriminator="role")]


def files_of(message: Message) -> tuple[Attachment, ...]:
    """Return the attachments of a message of the user, or of the result of a call; none for any other message."""
    return message.attachments if message.role == "user" or message.role == "tool" else ()


def is_from_user(message: Message) -> TypeGuard[UserMessage]:
    """Return whether the user wrote a message; one that is `injected` has the user's role only."""
    return isinstance(message, UserMessage) and not message.injected


def sources_of(messages: Iterable[Message]) -> tuple[str, ...]:
    """Return the names of the texts of others that messages have, each once."""
    named = [message.sources for message in messages if message.role != "assistant" and message.sources]
    return tuple(dict.fromkeys(chain.from_iterable(named)))


@cache
def message_adapter() -> TypeAdapter[Message]:
    """Return the adapter that validates stored messages; it raises `pydantic.ValidationError`."""
    return TypeAdapter(Message)

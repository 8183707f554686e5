"""The attachments of a team's messages in the log: named if the session has them, else whole."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from agenticx.attachments import Attachment
from agenticx.logs import get_logger
from agenticx.messages import Message, files_of
from agenticx.runtime.events import EventType, TeamMessageEvent
from agenticx.teams.messages import BaseAgentEvent, BaseChatMessage, HandoffMessage, MultiModalMessage

if TYPE_CHECKING:
    from agenticx.sessions.log.events import SessionEvent

__all__ = [
    "attachments_of",
    "digests_in",
    "logged_message",
    "named_digests",
    "with_contents",
]

_WHOLE = frozenset(Attachment.model_fields)
_NAMED = frozenset({"name", "media_type", "size", "sha256"})

_log = get_logger(__name__)


def attachments_of(messages: Iterable[BaseAgentEvent | BaseChatMessage]) -> list[Attachment]:
    """Return the attachments of messages, in their order."""
    found: list[Attachment] = []
    for message in messages:
        if isinstance(message, MultiModalMessage):
            found += (part for part in message.content if not isinstance(part, str))
        elif isinstance(message, HandoffMessage):
            found += _files_in(message.context)
    return found


def digests_in(messages: Iterable[Message]) -> set[str]:
    """Return the digests of the attachments of messages for a model."""
    return {file.digest for file in _files_in(messages)}


def logged_message(message: BaseAgentEvent | BaseChatMessage, stored: Callable[[], Collection[str]]) -> dict[str, Any]:
    """Return a message as JSON for the log.

    An attachment whose digest is among the digests that `stored` returns becomes `{name, media_type, size, sha256}`;
    any other attachment keeps its content. Messages of all types have attachments in the fields in which a
    `MultiModalMessage` and a `HandoffMessage` have them. `stored` is called only if there are any.
    """
    data = dict(message.dump())
    if not any(map(_is_whole, _parts(data))):
        return data
    digests = stored()

    def name(part: Any) -> Any:
        if not _is_whole(part) or (file := Attachment.model_validate(part)).digest not in digests:
            return part
        return dict(file.summary)

    return _with_parts(data, name)


def named_digests(events: Iterable[SessionEvent]) -> set[str]:
    """Return the digests of attachments without content in events of a team."""
    messages = [entry.event.data["message"] for entry in events if isinstance(entry.event, TeamMessageEvent)]
    return {part["sha256"] for message in messages for part in _parts(message) if _is_named(part)}


def with_contents(events: Sequence[SessionEvent], attachments: Iterable[Attachment]) -> list[SessionEvent]:
    """Return events of a team with the contents of the attachments that they name.

    If a content is missing, the text of the message names the attachment instead, and a warning is logged.
    """
    contents = {attachment.digest: attachment.data for attachment in attachments}
    return [_with_contents(entry, contents) for entry in events]


def _files_in(messages: Iterable[Message]) -> list[Attachment]:
    return [file for message in messages for file in files_of(message)]


def _parts(message: Mapping[str, Any]) -> list[Any]:
    """Return the parts of the content of a message, and the attachments of its context."""
    content, context = (_list_in(message, key) for key in ("content", "context"))
    return [*content, *(file for row in context if _has_files(row) for file in row["attachments"])]


def _with_parts(message: Mapping[str, Any], change: Callable[[Any], Any]) -> dict[str, Any]:
    """Return a message with its `_parts` changed; an attachment that becomes a text is added to its row's text."""
    changed = dict(message)
    if content := _list_in(message, "content"):
        changed["content"] = [change(part) for part in content]
    if context := _list_in(message, "context"):
        changed["context"] = [_row_with_files(row, change) if _has_files(row) else row for row in context]
    return changed


def _row_with_files(row: Mapping[str, Any], change: Callable[[Any], Any]) -> dict[str, Any]:
    files = [change(file) for file in row["attachments"]]
    text = "\n".join([row["content"], *(file for file in files if isinstance(file, str))])
    return {**row, "content": text, "attachments": [file for file in files if not isinstance(file, str)]}


def _list_in(message: Mapping[str, Any], key: str) -> list[Any]:
    value: Any = message.get(key)
    return value if isinstance(value, list) else []  # pyright: ignore[reportUnknownVariableType]


def _has_files(row: Any) -> bool:
    """Return True for a row of a context with a text and attachments."""
    if not isinstance(row, dict):
        return False
    fields: dict[str, Any] = row  # pyright: ignore[reportUnknownVariableType]
    files = _list_in(fields, "attachments") if isinstance(fields.get("content"), str) else []
    return bool(files) and all(map(_is_file, files))


def _is_file(part: Any) -> bool:
    return _is_whole(part) or _is_named(part)


def _is_whole(part: Any) -> bool:
    return isinstance(part, dict) and part.keys() == _WHOLE and all(isinstance(part[key], str) for key in _WHOLE)


def _is_named(part: Any) -> bool:
    return isinstance(part, dict) and part.keys() == _NAMED and isinstance(part["sha256"], str)


def _with_contents(entry: SessionEvent, contents: Mapping[str, str]) -> SessionEvent:
    event = entry.event
    if not isinstance(event, TeamMessageEvent) or not any(map(_is_named, _parts(event.data["message"]))):
        return entry
    message = event.data["message"]
    if missing := [part["name"] for part in _parts(message) if _is_named(part) and part["sha256"] not in contents]:
        _log.warning("the contents of attachments are not stored; the message has their names", files=missing)
    changed = {**event.data, "message": _with_parts(message, lambda part: _content(part, contents))}
    return entry._replace(event=TeamMessageEvent(EventType.TEAM_MESSAGE, changed, event.agent_id, event.turn_id))


def _content(part: Any, contents: Mapping[str, str]) -> Any:
    """Return an attachment with its content, or its name if the content is missing; return other parts unchanged."""
    if not _is_named(part):
        return part
    if (data := contents.get(part["sha256"])) is None:
        return f"[{part['name']}]"
    return {"name": part["name"], "media_type": part["media_type"], "data": data}

"""The attachments of a team's messages: named in the log, with contents in the session."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from agenticx.attachments import Attachment
from agenticx.logs import get_logger
from agenticx.messages import Message, UserMessage
from agenticx.teams.messages import BaseAgentEvent, BaseChatMessage, HandoffMessage, MultiModalMessage

if TYPE_CHECKING:
    from agenticx.sessions.store.base import Store
    from agenticx.sessions.store.records import StoredEvent

__all__ = ["attachments_of", "logged_message", "named_digests", "stored_attachments", "with_contents"]

_MARK = b'"sha256":'  # in every frame that names an attachment

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


def logged_message(message: BaseAgentEvent | BaseChatMessage) -> dict[str, Any]:
    """Return a message as JSON for the log, which has no contents.

    Each attachment is `{name, media_type, size, sha256}`.
    """
    data = dict(message.dump())
    if isinstance(message, MultiModalMessage):
        data["content"] = [part if isinstance(part, str) else _named(part) for part in message.content]
    elif isinstance(message, HandoffMessage):
        files = [[_named(file) for file in _files_in([one])] for one in message.context]
        data["context"] = [
            {**row, "attachments": named} if named else row for row, named in zip(data["context"], files, strict=True)
        ]
    return data


def named_digests(events: Iterable[StoredEvent]) -> set[str]:
    """Return the digests of the attachments that events of a team name; raises `DamagedData`."""
    from agenticx.sessions.store.damage import map_decode_errors  # on first use: it imports the stores

    with map_decode_errors("the log of a session"):
        messages = [json.loads(event.frame_json)["data"]["message"] for event in events if _names_attachments(event)]
        return {part["sha256"] for message in messages for part in _parts(message) if _is_named(part)}


async def stored_attachments(store: Store, session_id: str, digests: set[str]) -> list[Attachment]:
    """Return those attachments of the messages that a session has stored which can have one of these digests."""
    from agenticx.sessions.store.attachments import attachment_digests, load_attachments  # on first use

    messages = [*await store.log.compacted_messages(session_id), *(await store.log.state(session_id)).messages]
    messages = [one for one in messages if not (large := attachment_digests([one])) or large & digests]
    if (blobs := store.blobs) is not None:
        messages = await load_attachments(messages, lambda digest: blobs.get(session_id, digest))
    return _files_in(messages)


def with_contents(events: Sequence[StoredEvent], attachments: Iterable[Attachment]) -> list[StoredEvent]:
    """Return events of a team with the contents of the attachments that they name.

    One whose content is missing is named in the text of its message instead, and in the log. Raises `DamagedData`.
    """
    from agenticx.sessions.store.damage import map_decode_errors  # on first use: it imports the stores

    contents = {attachment.digest: attachment.model_dump() for attachment in attachments}
    with map_decode_errors("the log of a session"):
        return [_with_contents(event, contents) if _names_attachments(event) else event for event in events]


def _files_in(messages: Iterable[Message]) -> list[Attachment]:
    return [file for message in messages if isinstance(message, UserMessage) for file in message.attachments]


def _named(attachment: Attachment) -> dict[str, Any]:
    return {**attachment.summary, "sha256": attachment.digest}


def _names_attachments(event: StoredEvent) -> bool:
    return event.type == "team_message" and _MARK in event.frame_json


def _parts(message: Mapping[str, Any]) -> list[Any]:
    """Return the texts and attachments of a message, and the attachments of its context."""
    match message["type"]:
        case "MultiModalMessage":
            return message["content"]
        case "HandoffMessage":
            return [file for row in message["context"] for file in row.get("attachments", ())]
        case _:
            return []


def _is_named(part: Any) -> bool:
    return isinstance(part, dict) and "sha256" in part


def _with_contents(event: StoredEvent, contents: Mapping[str, Any]) -> StoredEvent:
    envelope: dict[str, Any] = json.loads(event.frame_json)
    message: dict[str, Any] = envelope["data"]["message"]
    if missing := [part["name"] for part in _parts(message) if _is_named(part) and part["sha256"] not in contents]:
        _log.warning("the contents of attachments are not stored; the message has their names", files=missing)
    if message["type"] == "MultiModalMessage":
        message["content"] = [_content(part, contents) for part in message["content"]]
    else:
        for row in message.get("context", ()):
            files = [_content(file, contents) for file in row.get("attachments", ())]
            if files:
                row["attachments"] = [file for file in files if not isinstance(file, str)]
                row["content"] = "\n".join([row["content"], *(name for name in files if isinstance(name, str))])
    return event._replace(frame_json=json.dumps(envelope, separators=(",", ":")).encode())


def _content(part: Any, contents: Mapping[str, Any]) -> Any:
    """Return a text as it is, and an attachment with its content, or its name if that is missing."""
    return contents.get(part["sha256"], f"[{part['name']}]") if _is_named(part) else part

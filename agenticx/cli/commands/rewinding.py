"""The messages of a conversation, and rewinds to before the last ones of the user."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from agenticx.attachments import Attachment
from agenticx.cli.client.base import Client, RewindReport, SessionInfo
from agenticx.cli.client.http import RequestRejected
from agenticx.cli.terminal.log_summary import read_log_summary
from agenticx.errors import AgenticXError
from agenticx.messages import UserMessage
from agenticx.sessions.history.transcript import MessageNotFound

__all__ = [
    "COMPACT",
    "conversation_messages",
    "explain_unknown_message",
    "rewind_last_message",
    "rewind_messages",
    "user_messages",
]

COMPACT = "/compact"
"""The message of a turn that compacts the conversation, as the conversation shows it."""


async def rewind_messages(client: Client, session: SessionInfo, number: int) -> tuple[list[str], RewindReport]:
    """Rewind to before the last `number` messages of the user; return their texts, oldest first, and the report.

    Raise an `AgenticXError` if the conversation has fewer.
    """
    messages = await conversation_messages(client, session)
    report = await _rewind_before(client, session, messages, number)
    return [message["content"] for message in messages if _is_of_user(message)][-number:], report


async def rewind_last_message(client: Client, session: SessionInfo) -> tuple[UserMessage, RewindReport]:
    """Rewind to before the last message of the user; return it with its files, and the report.

    Raise an `AgenticXError` if there is none, or if a file of it is lost; then nothing is rewound.
    """
    messages = await conversation_messages(client, session)
    last = next((message for message in reversed(messages) if _is_of_user(message)), None)
    files = () if last is None else last.get("attachments", ())
    contents = [await client.read_attachment(session.id, file["sha256"]) for file in files]
    report = await _rewind_before(client, session, messages, 1)
    assert last is not None
    attachments = [
        Attachment(name=file["name"], media_type=file["media_type"], data=b64encode(content).decode())
        for file, content in zip(files, contents, strict=True)
    ]
    return UserMessage(content=last["content"], attachments=tuple(attachments)), report


async def _rewind_before(
    client: Client, session: SessionInfo, messages: Sequence[Mapping[str, Any]], number: int
) -> RewindReport:
    """Rewind to before the last `number` messages of the user."""
    sent = [at for at, message in enumerate(messages) if _is_of_user(message)]
    if not 1 <= number <= len(sent):
        has = {0: "no message", 1: "one message"}.get(len(sent), f"{len(sent)} messages")
        raise AgenticXError(f"{number} messages cannot be taken back: this conversation has {has} of yours")
    for message in reversed(messages[: sent[-number]]):
        try:
            with explain_unknown_message(session):
                return await client.rewind(session.id, message["message_id"])
        except MessageNotFound:  # a call of a speech that was stopped belongs to no message: take the one before it
            continue
    return await client.rewind(session.id, None)


async def user_messages(client: Client, session: SessionInfo) -> list[str]:
    """Return the texts of the user's messages in the conversation, oldest first."""
    return [message["content"] for message in await conversation_messages(client, session) if _is_of_user(message)]


def _is_of_user(message: Mapping[str, Any]) -> bool:
    """Return True if the user wrote the message.

    A message about a picked option, and the command that compacts the conversation, only have the role of the user.
    """
    return message["role"] == "user" and "picked" not in message and message["content"] != COMPACT


async def conversation_messages(client: Client, session: SessionInfo) -> Sequence[dict[str, Any]]:
    """Return the messages of the conversation, as `GET /api/sessions/{id}/messages` lists them."""
    return (await read_log_summary(client, session.id)).conversation.messages()


@contextmanager
def explain_unknown_message(session: SessionInfo) -> Generator[None]:
    """Name the command that lists the ids of messages in a `MessageNotFound` of the store or the server."""
    try:
        yield
    except (MessageNotFound, RequestRejected) as exc:
        if isinstance(exc, RequestRejected) and exc.code != "message_not_found":
            raise
        what = str(exc).partition("; ")[0]
        raise MessageNotFound(f"{what}; `agx sessions show {session.id} --ids` lists them") from exc

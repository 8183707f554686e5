"""Changes of a session: the actions of `agx sessions` that make them, and the `/rewind` of a chat."""

from __future__ import annotations

import os
from argparse import Namespace
from base64 import b64encode
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from agenticx.attachments import Attachment
from agenticx.cli.client.base import Client, RewindReport, SessionInfo
from agenticx.cli.client.http import RequestRejected
from agenticx.cli.commands.session_access import open_session, print_note
from agenticx.cli.exit_codes import DONE
from agenticx.cli.terminal.log_summary import read_log_summary
from agenticx.cli.terminal.session_views import rewound_files, session_rows
from agenticx.errors import AgenticXError, SettingsError
from agenticx.messages import UserMessage, clean_text
from agenticx.sessions.history.transcript import MessageNotFound
from agenticx.tools.visible import visible

__all__ = [
    "COMPACT",
    "START",
    "archive",
    "checked_name",
    "fork",
    "move",
    "pin",
    "rename",
    "rewind",
    "rewind_last_message",
    "rewind_messages",
    "user_messages",
]

COMPACT = "/compact"
"""The message of a turn that compacts the conversation, as the conversation shows it."""

START = "start"
_MAX_NAME_CHARS = 200


async def rename(arguments: Namespace) -> int:
    """Change the name of a session; an empty one removes it."""
    name = checked_name(" ".join(arguments.name))
    async with open_session(arguments) as (client, session):
        _print_session(await client.change(session.id, {"name": name}))
    return DONE


async def move(arguments: Namespace) -> int:
    """Change the folder of a session."""
    folder: Path = arguments.folder
    if not os.path.isdir(folder):  # noqa: ASYNC240 - nothing else runs
        raise SettingsError(f"{str(folder)!r} is not a folder; give one that exists")
    async with open_session(arguments) as (client, session):
        moved = await client.change(session.id, {"workspace": os.path.realpath(folder)})  # noqa: ASYNC240
        _print_session(moved)
    return DONE


async def pin(arguments: Namespace) -> int:
    """Pin a session, or with --off unpin it."""
    async with open_session(arguments) as (client, session):
        _print_session(await client.change(session.id, {"pinned": not arguments.off}))
    return DONE


async def archive(arguments: Namespace) -> int:
    """Archive a session, or with --off bring it back."""
    async with open_session(arguments) as (client, session):
        _print_session(await client.change(session.id, {"archived": not arguments.off}))
    return DONE


async def fork(arguments: Namespace) -> int:
    """Create a session with the conversation up to a message, and print it."""
    async with open_session(arguments) as (client, session):
        message = None if arguments.message is None else await _find_message(client, session, arguments.message)
        with _explain_unknown_message(session):
            copy = await client.fork(session.id, message)
        _print_session(copy)
    return DONE


async def rewind(arguments: Namespace) -> int:
    """Make an earlier message the last one of the conversation, and print what became of the files."""
    async with open_session(arguments) as (client, session):
        message = None
        if arguments.message != START:
            message = await _find_message(client, session, arguments.message)
        with _explain_unknown_message(session):
            report = await client.rewind(session.id, message)
        _print_rewind(session, report)
    return DONE


async def rewind_messages(client: Client, session: SessionInfo, number: int) -> tuple[list[str], RewindReport]:
    """Rewind to before the last `number` messages of the user; return their texts, oldest first, and the report.

    Raise an `AgenticXError` if the conversation has fewer.
    """
    messages = await _conversation(client, session)
    report = await _rewind_before(client, session, messages, number)
    return [message["content"] for message in messages if _is_of_user(message)][-number:], report


async def rewind_last_message(client: Client, session: SessionInfo) -> tuple[UserMessage, RewindReport]:
    """Rewind to before the last message of the user; return it with its files, and the report.

    Raise an `AgenticXError` if there is none, or if a file of it is lost; then nothing is rewound.
    """
    messages = await _conversation(client, session)
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
            with _explain_unknown_message(session):
                return await client.rewind(session.id, message["message_id"])
        except MessageNotFound:  # a call of a speech that was stopped belongs to no message: take the one before it
            continue
    return await client.rewind(session.id, None)


async def user_messages(client: Client, session: SessionInfo) -> list[str]:
    """Return the texts of the user's messages in the conversation, oldest first."""
    return [message["content"] for message in await _conversation(client, session) if _is_of_user(message)]


def _is_of_user(message: Mapping[str, Any]) -> bool:
    """Return whether the user wrote the message.

    One that tells the model of a picked option, and the command that compacts the conversation, have their role only.
    """
    return message["role"] == "user" and "picked" not in message and message["content"] != COMPACT


async def _conversation(client: Client, session: SessionInfo) -> Sequence[dict[str, Any]]:
    return (await read_log_summary(client, session.id)).conversation.messages()


def checked_name(text: str) -> str | None:
    """Return a session's name, None for an empty one; raise `SettingsError` for one that the server would refuse."""
    name = clean_text(text).strip()
    if len(name) > _MAX_NAME_CHARS or not name.isprintable():
        raise SettingsError(f"a name is one line of at most {_MAX_NAME_CHARS} characters without control characters")
    return name or None


async def _find_message(client: Client, session: SessionInfo, reference: str) -> str:
    """Return the id of the message that has that id or the only one with that prefix.

    An id that no message of the current branch has is returned as it is: it may belong to one that was rewound away.
    """
    ids = [str(message["message_id"]) for message in await _conversation(client, session)]
    found = [id_ for id_ in ids if id_.startswith(reference) or id_.partition("_")[2].startswith(reference)]
    if reference not in ids and len(found) > 1:
        raise SettingsError(f"{reference!r} is the prefix of {len(found)} message ids: {', '.join(found[:5])}")
    return found[0] if len(found) == 1 else reference


@contextmanager
def _explain_unknown_message(session: SessionInfo) -> Generator[None]:
    """Name the command that lists the ids, where the store or server names a request that does."""
    try:
        yield
    except (MessageNotFound, RequestRejected) as exc:
        if isinstance(exc, RequestRejected) and exc.code != "message_not_found":
            raise
        what = str(exc).partition("; ")[0]
        raise MessageNotFound(f"{what}; `agx sessions show {session.id} --ids` lists them") from exc


def _print_session(session: SessionInfo) -> None:
    for line in session_rows([session]):
        print(visible(line))


def _print_rewind(session: SessionInfo, report: RewindReport) -> None:
    for line in rewound_files(report.files):
        print(line)
    print_note(f"{session.id} now ends with {report.rewound_to or 'nothing: before its first message'}")
    print_note(f"agx sessions rewind {session.id} {report.undo or START} takes this back")

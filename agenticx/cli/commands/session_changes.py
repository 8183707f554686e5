"""The actions of `agx sessions` that change a session."""

from __future__ import annotations

import os
from argparse import Namespace
from pathlib import Path

from agenticx.cli.client.base import Client, RewindReport, SessionInfo
from agenticx.cli.commands.rewinding import conversation_messages, explain_unknown_message
from agenticx.cli.commands.session_access import open_session, print_note
from agenticx.cli.exit_codes import DONE
from agenticx.cli.terminal.session_views import rewound_files, session_rows
from agenticx.errors import SettingsError
from agenticx.messages import clean_text
from agenticx.tools.visible import visible

__all__ = [
    "START",
    "archive",
    "checked_name",
    "fork",
    "move",
    "pin",
    "rename",
    "rewind",
]

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
        with explain_unknown_message(session):
            copy = await client.fork(session.id, message)
        _print_session(copy)
    return DONE


async def rewind(arguments: Namespace) -> int:
    """Make an earlier message the last one of the conversation, and print what became of the files."""
    async with open_session(arguments) as (client, session):
        message = None
        if arguments.message != START:
            message = await _find_message(client, session, arguments.message)
        with explain_unknown_message(session):
            report = await client.rewind(session.id, message)
        _print_rewind(session, report)
    return DONE


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
    ids = [str(message["message_id"]) for message in await conversation_messages(client, session)]
    found = [id_ for id_ in ids if id_.startswith(reference) or id_.partition("_")[2].startswith(reference)]
    if reference not in ids and len(found) > 1:
        raise SettingsError(f"{reference!r} is the prefix of {len(found)} message ids: {', '.join(found[:5])}")
    return found[0] if len(found) == 1 else reference


def _print_session(session: SessionInfo) -> None:
    for line in session_rows([session]):
        print(visible(line))


def _print_rewind(session: SessionInfo, report: RewindReport) -> None:
    for line in rewound_files(report.files):
        print(line)
    print_note(f"{session.id} now ends with {report.rewound_to or 'nothing: before its first message'}")
    print_note(f"agx sessions rewind {session.id} {report.undo or START} takes this back")

"""The `agx sessions` command: list, show, export, replay and delete stored sessions."""

from __future__ import annotations

import asyncio
import json
import os
import stat
import sys
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

from agenticx.cli.client.base import Client, SessionInfo
from agenticx.cli.client.discovery import open_store_or_find_server, remote_client
from agenticx.cli.client.envelopes import Envelope
from agenticx.cli.client.http import ServerEndpoint
from agenticx.cli.client.local import LocalClient
from agenticx.cli.client.session_lookup import LAST, UnknownSession, find_session, remember_last_session
from agenticx.cli.exit_codes import DONE, FAILED, USAGE
from agenticx.cli.options import configure_terminal_logging
from agenticx.cli.terminal.confirm_ui import can_prompt
from agenticx.cli.terminal.event_text import Note
from agenticx.cli.terminal.output import output_for
from agenticx.cli.terminal.session_views import replay, session_rows, session_to_json, session_to_text
from agenticx.errors import SessionBusy, StoreError
from agenticx.llms.assembly import assemble_model
from agenticx.llms.catalog.resolve import default_model_spec
from agenticx.llms.model_cache import ModelCache
from agenticx.messages import clean_text
from agenticx.runtime import AsyncConfirmGate
from agenticx.settings import Settings, load_settings
from agenticx.strict_json import read_json
from agenticx.tools.visible import escape_controls, visible, visible_line

__all__ = ["configure", "run"]

_MAX_DEPTH = 200  # of an event in a file; arguments are limited to 100

_EPILOG = """\
ID is a session's id, a prefix that no other id has, or `last`, the one that was last used in a terminal.
If a server (agx serve) owns the sessions, it is asked, else the database in AGX_HOME is read.

examples:
  agx sessions list
  agx sessions list "broken build"           those that mention this
  agx sessions show last
  agx sessions export 3f2a --format markdown -o talk.md
  agx sessions replay 3f2a                   as it was shown while it ran
  agx sessions replay ./talk.jsonl           the same for an exported file
  agx sessions delete 3f2a --yes

exit codes: 0 done, 1 failed, 2 usage"""


def configure(parser: ArgumentParser) -> None:
    """Add the arguments and help texts of `agx sessions` to its parser."""
    parser.epilog = _EPILOG
    actions = parser.add_subparsers(dest="action", required=True, metavar="list|show|export|replay|delete")

    def add(
        name: str, summary: str, work: Callable[[Namespace], Coroutine[Any, Any, int]], *, session: str | None
    ) -> ArgumentParser:
        action = actions.add_parser(name, help=summary, description=f"{summary}.", allow_abbrev=False)
        if session is not None:
            action.add_argument("session", metavar="ID", help=session)
        action.set_defaults(work=work)
        return action

    session_help = "a session's id, a prefix of it, or `last`"
    listing = add("list", "The sessions, pinned ones first, then newest first", _list, session=None)
    listing.add_argument("query", nargs="?", help="only those whose name or messages have these words")
    listing.add_argument("--limit", metavar="N", type=_count, default=50, help="how many at most (default: 50)")
    listing.add_argument("--all", action="store_true", help="archived ones too")
    listing.add_argument("--json", action="store_true", help="one object per line")
    showing = add("show", "A session: its fields, how its turns ended, and its messages", _show, session=session_help)
    showing.add_argument("--json", action="store_true", help="one object with its messages and turns")
    exporting = add("export", "A session as a file: all events, or its text", _export, session=session_help)
    exporting.add_argument(
        "--format", choices=("jsonl", "markdown"), default="jsonl", help="events or text (default: jsonl)"
    )
    exporting.add_argument("-o", "--output", metavar="FILE", type=Path, help="the file to write (default: -, stdout)")
    exporting.add_argument("--force", action="store_true", help="overwrite an existing file")
    replaying = add(
        "replay",
        "A session shown again by this release: text to stdout, the rest to stderr",
        _replay,
        session=f"{session_help}; or a file of exported events, with any name",
    )
    replaying.add_argument("--json", action="store_true", help="the stored envelopes, one per line")
    deleting = add("delete", "Delete a session permanently", _delete, session=session_help)
    deleting.add_argument("--yes", action="store_true", help="do not ask")


def run(arguments: Namespace) -> int:
    """Run `agx sessions` and return its exit code."""
    code: int = asyncio.run(arguments.work(arguments))
    return code


def _count(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 1 <= int(text) <= 1_000_000):
        raise ArgumentTypeError(f"{text!r} is not a whole number from 1 to 1000000")
    return int(text)


# --- the commands -----------------------------------------------------------------------------------------------------


async def _list(arguments: Namespace) -> int:
    query = None if arguments.query is None else clean_text(arguments.query)  # arguments may be bytes that are not text
    async with _open_client() as (client, _):
        sessions = await client.list_sessions(query=query, limit=arguments.limit, archived=arguments.all)
    if arguments.json:
        for session in sessions:
            print(json.dumps(session.to_json()))
        return DONE
    for line in session_rows(sessions):
        print(visible(line))
    if not sessions:
        none = "there is no session yet; `agx run` and `agx chat` create one"
        _print_note(none if query is None else f"no session matches {query!r}")
    return DONE


async def _show(arguments: Namespace) -> int:
    async with _open_session(arguments) as (client, session), client.read_log(session.id) as log:
        events = [event async for event in log]
    if arguments.json:
        print(json.dumps(session_to_json(session, events)))
    else:
        print(visible(session_to_text(session, events)))
    return DONE


async def _export(arguments: Namespace) -> int:
    output: Path | None = None if arguments.output == Path("-") else arguments.output
    if output is not None and output.is_file() and not arguments.force:  # noqa: ASYNC240 - nothing else runs
        _print_note(f"{output} already exists; --force overwrites it")
        return FAILED
    async with _open_session(arguments) as (client, session), client.export(session.id, arguments.format) as content:
        if output is None and sys.stdout.isatty():
            text = b"".join([chunk async for chunk in content]).decode()
            print(visible(text) if arguments.format == "markdown" else escape_controls(text), end="")
        elif output is None:
            await _copy(content, sys.stdout.buffer.write)
        else:
            with open(output, "wb", opener=_open_private) as file:  # noqa: ASYNC230 - nothing else runs
                await _copy(content, file.write)
            _print_note(f"{session.id} was exported to {output}")
    return DONE


async def _replay(arguments: Namespace) -> int:
    output = output_for(as_json=arguments.json)
    if _is_file(arguments.session):
        await replay(_read_events(Path(arguments.session)), output, as_json=arguments.json)
        return DONE
    try:
        async with _open_session(arguments) as (client, session), client.read_log(session.id) as log:
            await replay(log, output, as_json=arguments.json)
    except UnknownSession as exc:
        raise UnknownSession(f"{exc}, and there is no file with that name") from exc
    return DONE


async def _delete(arguments: Namespace) -> int:
    async with _open_session(arguments) as (client, session):
        if session.running_turn_id is not None and not arguments.yes:
            raise SessionBusy(f"session {session.id} is running a turn; --yes stops the turn and deletes the session")
        if not arguments.yes:
            if not can_prompt():
                _print_note("there is no terminal to ask at; --yes deletes without asking")
                return USAGE
            if not _confirm_deletion(session):
                _print_note("nothing was deleted")
                return FAILED
        await client.delete(session.id)
    if arguments.session == LAST:
        # so that a repeated `delete last` does not delete another session
        remember_last_session(load_settings().home, session.id)
    _print_note(f"{session.id} was deleted")
    return DONE


# --- shared helpers --------------------------------------------------------------------------------------------------


@asynccontextmanager
async def _open_client() -> AsyncGenerator[tuple[Client, Settings]]:
    """Yield the client of the server or database; raise `OwnedElsewhere` if another program owns the database."""
    settings = load_settings()
    configure_terminal_logging(settings)
    owner = open_store_or_find_server(settings)
    if isinstance(owner, ServerEndpoint):
        yield remote_client(settings, owner, _print_note), settings
        return
    models = ModelCache(partial(assemble_model, settings=settings), lambda: default_model_spec(settings)[0])
    client = LocalClient(owner, settings, models, AsyncConfirmGate())
    try:
        await client.recover()
        yield client, settings
    finally:
        await client.aclose()


def _is_file(word: str) -> bool:
    """Return whether the argument means a file; `last` always means a session, `./last` a file."""
    return os.sep in word or (word != LAST and os.path.isfile(word))


@asynccontextmanager
async def _open_session(arguments: Namespace) -> AsyncGenerator[tuple[Client, SessionInfo]]:
    async with _open_client() as (client, settings):
        yield client, await find_session(client, arguments.session, settings.home)


async def _read_events(file: Path) -> AsyncGenerator[Envelope]:
    for number, line in enumerate(file.read_bytes().splitlines(), 1):  # noqa: ASYNC240 - nothing else runs
        if line.strip():
            yield _parse_event(line, f"{file}, line {number}")


def _parse_event(line: bytes, location: str) -> Envelope:
    """Return the event in a line of a file from any source; raise `StoreError`, naming the line, if it is not one."""
    try:
        read_json(line, max_depth=_MAX_DEPTH)
        return Envelope.parse(line)
    except (ValueError, StoreError) as exc:
        raise StoreError(f"{location}: not a session event: {line[:80]!r}") from exc


async def _copy(content: AsyncIterator[bytes], write: Callable[[bytes], object]) -> None:
    async for chunk in content:
        write(chunk)


def _open_private(path: str, flags: int) -> int:
    """Open a file with mode 0600, like the database; the mode of a device or pipe is left unchanged."""
    descriptor = os.open(path, flags, 0o600)
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.fchmod(descriptor, 0o600)
    return descriptor


def _confirm_deletion(session: SessionInfo) -> bool:
    """Ask the user whether to delete the session, and return the answer."""
    for line in session_rows([session]):
        _print_note(line)
    print("Delete it permanently? [y/N]: ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _print_note(text: str) -> None:
    output_for().show_note(Note(visible_line(text, 2_000)))

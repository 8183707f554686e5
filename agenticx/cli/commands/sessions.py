"""The `agx sessions` command: stored sessions listed, shown, exported, replayed, changed and deleted."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import stat
import sys
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterator
from datetime import date
from pathlib import Path
from typing import Any

from agenticx.cli.action_parser import ActionParser
from agenticx.cli.client.base import Client, SessionInfo
from agenticx.cli.client.envelopes import Envelope
from agenticx.cli.client.http import RequestRejected
from agenticx.cli.client.session_lookup import UnknownSession, find_session, remember_last_session
from agenticx.cli.commands.session_access import open_client, open_session_reader, open_stored_session, print_note
from agenticx.cli.commands.session_changes import START, archive, fork, move, pin, rename, rewind
from agenticx.cli.exit_codes import DONE, FAILED
from agenticx.cli.options import LAST
from agenticx.cli.terminal.log_summary import read_log_summary
from agenticx.cli.terminal.output import output_for
from agenticx.cli.terminal.responders import can_prompt
from agenticx.cli.terminal.session_views import replay, session_rows, session_to_json, session_to_text
from agenticx.cli.terminal.usage_report import usage_to_json, usage_to_text
from agenticx.errors import AgenticXError, SessionBusy, SettingsError, StoreError
from agenticx.messages import clean_text
from agenticx.settings import load_settings
from agenticx.strict_json import read_json
from agenticx.tools.visible import escape_controls, visible

__all__ = ["configure", "run"]

_MAX_DEPTH = 200  # of an event in a file; arguments are limited to 100
_MAX_LINE_BYTES = 128 * 1024**2  # of an event in a file: more than any record has

_EPILOG = """\
ID is a session's id, such as ses_a9f0747d77b97c8d1994; or the beginning of one that no other id has, also without
ses_, so that a9f0 is enough; or `last`, the session last used in a terminal. After that is deleted, `last` is none.
One process owns the sessions at a time. If it is a server (agx serve) or an agx in another terminal, that is asked to
change a session, else the database in AGX_HOME is changed. A turn whose process was killed ends as `interrupted` at the
next command that changes a session; one that waits for an answer stays, and agx chat --session asks its question again.

examples:
  agx sessions list
  agx sessions list "broken build"           those that mention this
  agx sessions show last
  agx sessions export ses_a9f0 --format markdown -o talk.md
  agx sessions replay a9f0                   as it was shown while it ran
  agx sessions replay ./talk.jsonl           the same for an exported file
  agx sessions rename last "The broken build"
  agx sessions move last ~/notes/new         its folder has another place now
  agx sessions rewind last msg_d690          back to this message (agx sessions show --ids lists them)
  agx sessions usage --since 2026-01-01
  agx sessions delete ses_a9f0 --yes

exit codes: 0 done, 1 failed, 2 usage"""


def configure(parser: ArgumentParser) -> None:
    """Add the arguments and help texts of `agx sessions` to its parser."""
    parser.epilog = _EPILOG
    actions = parser.add_subparsers(parser_class=ActionParser, dest="action", required=True, metavar="ACTION")

    def add(
        name: str, summary: str, work: Callable[[Namespace], Coroutine[Any, Any, int]], *, session: str | None
    ) -> ArgumentParser:
        action = actions.add_parser(name, help=summary, description=f"{summary}.", allow_abbrev=False)
        if session is not None:
            action.add_argument("session", metavar="ID", help=session)
        action.set_defaults(work=work)
        return action

    session_help = "a session's id, a prefix that no other id has, or `last`"
    listing = add("list", "The sessions, pinned ones first, then newest first", _list, session=None)
    listing.add_argument("query", nargs="*", help="only those whose name or messages have these words")
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
    showing.add_argument("--ids", action="store_true", help="with the ids of the messages, for fork and rewind")
    renaming = add("rename", "Change the name of a session", rename, session=session_help)
    renaming.add_argument(
        "name", nargs="+", metavar="NAME", help="the new name, also as several words; an empty one, '', removes it"
    )
    moving = add("move", "Change the folder of a session, in which its next turns work", move, session=session_help)
    moving.add_argument("folder", metavar="FOLDER", type=Path, help="the new folder; no turn may run or wait")
    for name, summary, work in (("pin", "Pin a session", pin), ("archive", "Archive a session", archive)):
        add(name, summary, work, session=session_help).add_argument("--off", action="store_true", help="undo it")
    forking = add(
        "fork", "Continue in a new session, from the last message or an earlier one", fork, session=session_help
    )
    forking.add_argument("--message", metavar="M", help="a message's id, or the beginning of one")
    rewinding = add(
        "rewind", "Go back to an earlier message, with the files as they were", rewind, session=session_help
    )
    rewinding.add_argument("message", metavar="M", help=f"a message's id, or the beginning of one; or {START}")
    using = add("usage", "Tokens and costs, of all sessions or one", _usage, session=None)
    using.add_argument("session", nargs="?", metavar="ID", help=session_help)
    using.add_argument("--since", metavar="DAY", type=_day, help="the first day that counts, YYYY-MM-DD in UTC")
    using.add_argument("--until", metavar="DAY", type=_day, help="the last day that counts")
    using.add_argument("--json", action="store_true", help="one object with the total, models and days")
    deleting = add("delete", "Delete a session permanently, with its usage records", _delete, session=session_help)
    deleting.add_argument("--yes", action="store_true", help="do not ask")


def run(arguments: Namespace) -> int:
    """Run `agx sessions` and return its exit code."""
    code: int = asyncio.run(arguments.work(arguments))
    return code


def _day(text: str) -> str:
    try:
        return date.fromisoformat(text).isoformat()
    except ValueError:
        raise ArgumentTypeError(f"{text!r} is not a day, as in 2026-01-31") from None


def _count(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 1 <= int(text) <= 1_000_000):
        raise ArgumentTypeError(f"{text!r} is not a whole number from 1 to 1000000")
    return int(text)


# --- the commands -----------------------------------------------------------------------------------------------------


async def _list(arguments: Namespace) -> int:
    query = clean_text(" ".join(arguments.query)) or None  # arguments may be bytes that are not text
    async with open_session_reader() as (client, _):
        sessions = await client.list_sessions(query=query, limit=arguments.limit, archived=arguments.all)
    if arguments.json:
        for session in sessions:
            print(json.dumps(session.to_json()))
        return DONE
    for line in session_rows(sessions):
        print(visible(line))
    if not sessions:
        none = "there is no session yet; `agx run` and `agx chat` create one"
        print_note(none if query is None else f"no session matches {query!r}")
    return DONE


async def _show(arguments: Namespace) -> int:
    async with open_stored_session(arguments) as (client, session):
        summary = await read_log_summary(client, session.id)
        usage = await client.usage(session_id=session.id)
    if arguments.json:
        print(json.dumps(session_to_json(session, summary, usage)))
    else:
        print(visible(session_to_text(session, summary, usage, with_ids=arguments.ids)))
    return DONE


async def _export(arguments: Namespace) -> int:
    output: Path | None = None if arguments.output == Path("-") else arguments.output
    if output is not None and output.is_file() and not arguments.force:  # noqa: ASYNC240 - nothing else runs
        raise AgenticXError(f"{output} already exists; --force overwrites it")
    async with (
        open_stored_session(arguments) as (client, session),
        client.export(session.id, arguments.format) as content,
    ):
        if output is None and sys.stdout.isatty():
            text = b"".join([chunk async for chunk in content]).decode()
            print(visible(text) if arguments.format == "markdown" else escape_controls(text), end="")
        elif output is None:
            await _copy(content, sys.stdout.buffer.write)
        else:
            with open(output, "wb", opener=_open_private) as file:  # noqa: ASYNC230 - nothing else runs
                await _copy(content, file.write)
            print_note(f"{session.id} was exported to {output}")
    return DONE


async def _replay(arguments: Namespace) -> int:
    output = output_for(as_json=arguments.json)
    if _is_file(arguments.session):
        await replay(_read_events(Path(arguments.session)), output, as_json=arguments.json)
        return DONE
    try:
        async with open_stored_session(arguments) as (client, session), client.read_log(session.id) as log:
            await replay(log, output, as_json=arguments.json)
    except UnknownSession as exc:
        raise UnknownSession(f"{exc}, and there is no file with that name") from exc
    return DONE


async def _usage(arguments: Namespace) -> int:
    async with open_session_reader() as (client, settings):
        session_id = None
        if arguments.session is not None:
            session_id = (await find_session(client, arguments.session, settings.home)).id
        rows = await client.usage(session_id=session_id, since=arguments.since, until=arguments.until)
    if arguments.json:
        print(json.dumps(usage_to_json(rows)))
    elif rows:
        print(usage_to_text(rows))
    else:
        print_note("no model call was counted")
    return DONE


async def _delete(arguments: Namespace) -> int:
    async with open_client() as (client, settings):
        session_id = await _session_to_delete(client, arguments, settings.home)
        if session_id is None:
            print_note("nothing was deleted")
            return FAILED
        await client.delete(session_id)
    if arguments.session == LAST:
        # so that a repeated `delete last` does not delete another session
        remember_last_session(load_settings().home, session_id)
    print_note(f"{session_id} was deleted")
    return DONE


async def _session_to_delete(client: Client, arguments: Namespace, home: Path) -> str | None:
    """Return the id of the session to delete, None if the user refused; with --yes it may be unreadable."""
    try:
        session = await find_session(client, arguments.session, home)
    except (StoreError, RequestRejected) as exc:
        is_unreadable = isinstance(exc, StoreError) or exc.code == "storage"
        if arguments.session == LAST or not arguments.yes or not is_unreadable:
            raise
        return arguments.session
    if arguments.yes:
        return session.id
    if session.running_turn_id is not None:
        raise SessionBusy(f"session {session.id} is running a turn; --yes stops the turn and deletes the session")
    if not can_prompt():
        raise SettingsError("there is no terminal to ask at; --yes deletes without asking")
    return session.id if _confirm_deletion(session) else None


# --- shared helpers --------------------------------------------------------------------------------------------------


def _is_file(word: str) -> bool:
    """Return whether the argument means a file; `last` always means a session, `./last` a file."""
    return os.sep in word or (word != LAST and os.path.isfile(word))


async def _read_events(file: Path) -> AsyncGenerator[Envelope]:
    for number, line in enumerate(_read_lines(file), 1):
        if line.strip():
            yield _parse_event(line, f"{file}, line {number}")


def _read_lines(file: Path) -> Iterator[bytes]:
    """Yield the lines of a file, which may be a pipe; raise `StoreError` for one that is longer than any event."""
    with open(file, "rb") as content:
        for number in itertools.count(1):
            line = content.readline(_MAX_LINE_BYTES + 1)
            if len(line) > _MAX_LINE_BYTES:
                limit = f"{_MAX_LINE_BYTES // 1024**2} MiB"
                raise StoreError(f"{file}, line {number}: not a session event: it has more than {limit}")
            if not line:
                return
            yield line.rstrip(b"\r\n")


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
        print_note(line)
    print("Delete it permanently? [y/N]: ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")

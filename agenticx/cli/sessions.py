"""`agx sessions`: the conversations that are kept, listed, shown, exported, played again, deleted."""

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

from agenticx.cli.asking import someone_to_ask
from agenticx.cli.choosing import LAST, NoneNamed, note_last, session_named
from agenticx.cli.desk import Desk, Known
from agenticx.cli.envelopes import Envelope
from agenticx.cli.exit_codes import DONE, FAILED, USAGE
from agenticx.cli.finding import own_store, server_desk
from agenticx.cli.loopback import Loopback
from agenticx.cli.narrate import Note
from agenticx.cli.options import configure_terminal_logging
from agenticx.cli.own_desk import OwnDesk
from agenticx.cli.render import output_for
from agenticx.cli.session_views import as_object, as_text, listed, replayed
from agenticx.errors import SessionBusy, StoreError
from agenticx.llms.assembly import assemble_model
from agenticx.llms.catalog import default_model_spec
from agenticx.llms.named import ModelCache
from agenticx.messages import clean_text
from agenticx.runtime import AsyncConfirmGate
from agenticx.settings import Settings, load_settings
from agenticx.strict_json import read_json
from agenticx.tools.visible import visible, visible_line, without_controls

__all__ = ["configure", "run"]

_MAX_DEPTH = 200  # of an event in a file; arguments are let in with 100

_EPILOG = """\
ID is a session's id, the beginning of it if no other begins so, or `last`, the one that was last used in a terminal.
Where a server has the sessions (agx serve), it is asked; else the database in AGX_HOME is read.

examples:
  agx sessions list
  agx sessions list "broken build"           those in which that was said
  agx sessions show last
  agx sessions export 3f2a --format markdown -o talk.md
  agx sessions replay 3f2a                   as it looked while it happened
  agx sessions replay ./talk.jsonl           the same of an exported file
  agx sessions delete 3f2a --yes

exit codes: 0 done, 1 failed, 2 usage"""


def configure(parser: ArgumentParser) -> None:
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

    some = "a session's id, the beginning of it, or `last`"
    listing = add("list", "The sessions, pinned ones first, then newest first", _list, session=None)
    listing.add_argument("query", nargs="?", help="only those whose name or messages have these words")
    listing.add_argument("--limit", metavar="N", type=_count, default=50, help="how many at most (default: 50)")
    listing.add_argument("--all", action="store_true", help="archived ones too")
    listing.add_argument("--json", action="store_true", help="one object per line")
    showing = add("show", "A session: what it is, how its turns ended, and what was said", _show, session=some)
    showing.add_argument("--json", action="store_true", help="one object with its messages and turns")
    exporting = add("export", "A session to keep elsewhere: all events, or what was said", _export, session=some)
    exporting.add_argument(
        "--format", choices=("jsonl", "markdown"), default="jsonl", help="events or text (default: jsonl)"
    )
    exporting.add_argument("-o", "--output", metavar="FILE", type=Path, help="the file to write (default: -, stdout)")
    exporting.add_argument("--force", action="store_true", help="write over a file that there is")
    replaying = add(
        "replay",
        "A session played again through this release: text to stdout, the rest to stderr",
        _replay,
        session=f"{some}; or a file of exported events, whatever it is called",
    )
    replaying.add_argument("--json", action="store_true", help="the stored envelopes, one per line")
    deleting = add("delete", "Forget a session, for good", _delete, session=some)
    deleting.add_argument("--yes", action="store_true", help="do not ask")


def run(arguments: Namespace) -> int:
    code: int = asyncio.run(arguments.work(arguments))
    return code


def _count(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 1 <= int(text) <= 1_000_000):
        raise ArgumentTypeError(f"{text!r} is not a whole number from 1 to 1000000")
    return int(text)


# --- the commands -----------------------------------------------------------------------------------------------------


async def _list(arguments: Namespace) -> int:
    query = None if arguments.query is None else clean_text(arguments.query)  # it may have come as any bytes
    async with _desk() as (desk, _):
        known = await desk.sessions(query=query, limit=arguments.limit, archived=arguments.all)
    if arguments.json:
        for one in known:
            print(json.dumps(one.as_json()))
        return DONE
    for line in listed(known):
        print(visible(line))
    if not known:
        none = "there is no session yet; `agx run` and `agx chat` make one"
        _say(none if query is None else f"no session has {query!r}")
    return DONE


async def _show(arguments: Namespace) -> int:
    async with _session(arguments) as (desk, known), desk.log(known.id) as log:
        events = [event async for event in log]
    if arguments.json:
        print(json.dumps(as_object(known, events)))
    else:
        print(visible(as_text(known, events)))
    return DONE


async def _export(arguments: Namespace) -> int:
    output: Path | None = None if arguments.output == Path("-") else arguments.output
    if output is not None and output.is_file() and not arguments.force:  # noqa: ASYNC240 - nothing else runs
        _say(f"{output} is there already; --force writes over it")
        return FAILED
    async with _session(arguments) as (desk, known), desk.export(known.id, arguments.format) as content:
        if output is None and sys.stdout.isatty():
            text = b"".join([piece async for piece in content]).decode()
            print(visible(text) if arguments.format == "markdown" else without_controls(text), end="")
        elif output is None:
            await _write(content, sys.stdout.buffer.write)
        else:
            with open(output, "wb", opener=_private) as file:  # noqa: ASYNC230 - nothing else runs
                await _write(content, file.write)
            _say(f"{known.id} is exported to {output}")
    return DONE


async def _replay(arguments: Namespace) -> int:
    output = output_for(as_json=arguments.json)
    if _names_a_file(arguments.session):
        await replayed(_lines(Path(arguments.session)), output, as_json=arguments.json)
        return DONE
    try:
        async with _session(arguments) as (desk, known), desk.log(known.id) as log:
            await replayed(log, output, as_json=arguments.json)
    except NoneNamed as exc:
        raise NoneNamed(f"{exc}, and there is no file of that name") from exc
    return DONE


async def _delete(arguments: Namespace) -> int:
    async with _session(arguments) as (desk, known):
        if known.running_turn_id is not None and not arguments.yes:
            raise SessionBusy(f"session {known.id} runs a turn; --yes stops it and deletes the session")
        if not arguments.yes:
            if not someone_to_ask():
                _say("there is no terminal to ask at; --yes deletes without asking")
                return USAGE
            if not _agreed(known):
                _say("nothing was deleted")
                return FAILED
        await desk.delete(known.id)
    if arguments.session == LAST:
        note_last(load_settings().home, known.id)  # said again, it means no other one
    _say(f"{known.id} is deleted")
    return DONE


# --- what they share --------------------------------------------------------------------------------------------------


@asynccontextmanager
async def _desk() -> AsyncGenerator[tuple[Desk, Settings]]:
    """The server that has the sessions, or the database; raises `OwnedElsewhere` where another program has it."""
    settings = load_settings()
    configure_terminal_logging(settings)
    where = own_store(settings)
    if isinstance(where, Loopback):
        yield server_desk(settings, where, _say), settings
        return
    models = ModelCache(partial(assemble_model, settings=settings), lambda: default_model_spec(settings)[0])
    desk = OwnDesk(where, settings, models, AsyncConfirmGate())
    try:
        await desk.recover()
        yield desk, settings
    finally:
        await desk.aclose()


def _names_a_file(word: str) -> bool:
    """Whether it is no session that is meant; `last` always is one, `./last` is not."""
    return os.sep in word or (word != LAST and os.path.isfile(word))


@asynccontextmanager
async def _session(arguments: Namespace) -> AsyncGenerator[tuple[Desk, Known]]:
    async with _desk() as (desk, settings):
        yield desk, await session_named(desk, arguments.session, settings.home)


async def _lines(file: Path) -> AsyncGenerator[Envelope]:
    for number, line in enumerate(file.read_bytes().splitlines(), 1):  # noqa: ASYNC240 - nothing else runs
        if line.strip():
            yield _from_file(line, f"{file}, line {number}")


def _from_file(line: bytes, where: str) -> Envelope:
    """The event in a line that anybody may have written; raises `StoreError` that says where it stands."""
    try:
        read_json(line, max_depth=_MAX_DEPTH)
        return Envelope.read(line)
    except (ValueError, StoreError) as exc:
        raise StoreError(f"{where}: this is no event of a session: {line[:80]!r}") from exc


async def _write(content: AsyncIterator[bytes], write: Callable[[bytes], object]) -> None:
    async for piece in content:
        write(piece)


def _private(path: str, flags: int) -> int:
    """A file that nobody else may read, as the database is; what is no file stays as it is."""
    descriptor = os.open(path, flags, 0o600)
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.fchmod(descriptor, 0o600)
    return descriptor


def _agreed(known: Known) -> bool:
    """Whether the person wants it gone."""
    for line in listed([known]):
        _say(line)
    print("Delete it for good? [y/N]: ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _say(text: str) -> None:
    output_for().note(Note(visible_line(text, 2_000)))

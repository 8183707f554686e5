"""The `agx store` command: check, purge, migrate and copy stored sessions."""

from __future__ import annotations

import asyncio
import sys
import time
from argparse import ArgumentParser, Namespace
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress

from agenticx.cli.exit_codes import DONE, FAILED
from agenticx.errors import AgenticXError
from agenticx.sessions.store.copies import Outcome, copy_sessions
from agenticx.sessions.store.factory import (
    check_databases,
    check_file,
    check_logs,
    database_path,
    open_copyable_stores,
    probe_store_owner,
    purge_databases,
    read_workers,
)
from agenticx.settings import Settings, load_settings
from agenticx.tools.visible import visible_line

__all__ = ["configure", "run"]

_EPILOG = """\
`check` reads the log of every session, decodes each of its events and records, and compares all that is made of logs
with it: the list of sessions, turns, conversations, states, facts, usage, and the texts and words of the search. SQLite
checks the file with its indexes. A running server, or workers, may use the store meanwhile.

`purge` removes the bytes of deleted sessions from a PostgreSQL database, which workers do too, but not from tables of
more than 64 MB: those are copied, in steps for which commits wait a moment each. A file has no such bytes.

`migrate` brings a database to the version of this AgenticX. There is one version so far, so it only says which one the
database has.

`copy` moves sessions to another store with their logs, as they are: the ids, numbers, events and kept contents stay the
same, and what is open stays open. Neither store may have an owner, or a worker that owns one of the sessions. Sessions
that the target has already are skipped, so an interrupted copy can be repeated. Attachments, and what is kept to rewind
changed files, are read from `snapshots` beside the file of FROM_URL, or from AGX_HOME if there is no such folder; a
database has only the attachments, and what rewinds need is copied to AGX_HOME of this host. So give AGX_HOME of the
studio or worker that is to use TO_URL here.

exit codes: 0 done, or no difference found; 1 a difference found, something left, or the store failed; 2 usage"""

_PROGRESS_SECONDS = 2.0


def configure(parser: ArgumentParser) -> None:
    """Add the arguments and help texts of `agx store` to its parser."""
    parser.epilog = _EPILOG
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    for action, text in (
        ("check", "compare what is made of the logs with the logs"),
        ("purge", "remove the bytes of deleted sessions"),
        ("migrate", "bring the store to the version of this AgenticX"),
    ):
        actions.add_parser(action, help=text, description=f"{text[0].upper()}{text[1:]}.")
    text = "copy sessions with their logs to another store"
    copy = actions.add_parser("copy", help=text, description=f"{text[0].upper()}{text[1:]}.")
    copy.add_argument("source", metavar="FROM_URL", help="sqlite:///PATH, or postgresql://… (several in quotes)")
    copy.add_argument("target", metavar="TO_URL", help="the other store, which is created if it is not there")
    copy.add_argument("--session", action="append", metavar="ID", help="only this session; can be repeated")


def run(arguments: Namespace) -> int:
    """Run `agx store` and return its exit code."""
    try:
        settings = load_settings()
        match arguments.action:
            case "check":
                return _check_databases(settings) if settings.postgres_urls else _check_file(settings)
            case "purge":
                return _purge(settings)
            case "copy":
                return asyncio.run(_copy(settings, arguments.source, arguments.target, arguments.session))
            case _:
                return _migrate(settings)
    except AgenticXError as exc:
        print(f"agx store: {visible_line(str(exc), 2_000)}", file=sys.stderr)
        return FAILED


def _check_file(settings: Settings) -> int:
    path = database_path(settings)
    state = "intact" if probe_store_owner(settings) is not None else check_file(settings)
    if state == "missing":
        _print([f"{path} is created on first use"])
        return DONE
    if state == "has unapplied log":
        print(f"agx store: {path} has a write-ahead log that is applied at the next start", file=sys.stderr)
        return FAILED
    found = check_logs(settings)
    _print(found or [f"{path} agrees with its logs"])
    return FAILED if found else DONE


def _check_databases(settings: Settings) -> int:
    failed = False
    for name, found in check_databases(settings, _Progress("checked").show).items():
        if found is None:
            _print([f"{name} is empty: its tables are created on first use"])
        else:
            _print(found or [f"{name} agrees with its logs"])
            failed |= bool(found)
    return FAILED if failed else DONE


def _purge(settings: Settings) -> int:
    if not settings.postgres_urls:
        _print([f"{database_path(settings)} has no bytes of deleted sessions: a deletion removes them"])
        return DONE
    failed = False
    for name, left in purge_databases(settings).items():
        _print([f"{name} still has bytes of deleted sessions: {reason}" for reason in left] or [f"{name} is purged"])
        failed |= bool(left)
    return FAILED if failed else DONE


def _migrate(settings: Settings) -> int:
    """Report the version: a database of another one is an error of `read_workers` or `check_file`."""
    if settings.postgres_urls:
        for name, report in read_workers(settings).items():
            state = "is empty: its tables are created on first use" if report is None else "has the current version"
            _print([f"{name} {state}"])
        return DONE
    path = database_path(settings)
    missing = probe_store_owner(settings) is None and check_file(settings) == "missing"
    _print([f"{path} {'is created on first use' if missing else 'has the current version'}"])
    return DONE


async def _copy(settings: Settings, source_url: str, target_url: str, session_ids: Sequence[str] | None) -> int:
    outcomes, progress = Counter[Outcome](), _Progress("copied")

    def report(session_id: str, outcome: Outcome, reason: str) -> None:
        outcomes[outcome] += 1
        progress.show(outcomes["copied"], None)
        if outcome == "refused":
            print(f"agx store: session {visible_line(f'{session_id} is not copied: {reason}', 2_000)}", file=sys.stderr)

    async with open_copyable_stores(settings, source_url, target_url) as (source, target, name):
        await copy_sessions(source, target, session_ids, report=report)
    count = outcomes["copied"]
    parts = [f"copied {count:,} {'session' if count == 1 else 'sessions'} to {name}"]
    parts += [f"{outcome} {outcomes[outcome]:,}" for outcome in ("skipped", "refused") if outcomes[outcome]]
    _print([", ".join(parts)])
    return FAILED if outcomes["refused"] else DONE


def _print(lines: Sequence[str]) -> None:
    with suppress(BrokenPipeError):  # the reader closed the pipe; the exit code still reports the outcome
        for line in lines:
            print(visible_line(line, 2_000))


class _Progress:
    """A line on stderr every two seconds that says how many sessions are done."""

    def __init__(self, done: str) -> None:
        self._done = done
        self._shown = time.monotonic()

    def show(self, count: int, total: int | None) -> None:
        now = time.monotonic()
        if now - self._shown >= _PROGRESS_SECONDS:
            self._shown = now
            of_all = "" if total is None else f" of {total:,}"
            with suppress(BrokenPipeError):
                print(f"agx store: sessions {self._done}: {count:,}{of_all}", file=sys.stderr)

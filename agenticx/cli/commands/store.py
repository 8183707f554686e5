"""The `agx store` command, which checks what is stored of sessions without changing it."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from contextlib import suppress

from agenticx.cli.exit_codes import DONE, FAILED
from agenticx.errors import AgenticXError
from agenticx.sessions.store.factory import check_file, check_logs, database_path, probe_store_owner
from agenticx.settings import load_settings
from agenticx.tools.visible import visible_line

__all__ = ["configure", "run"]

_EPILOG = """\
`check` reads the log of every session, decodes each of its events and records, and compares all that is made of logs
with it: the list of sessions, turns, conversations, states, facts, usage, and the texts and words of the search. SQLite
checks the file with its indexes. A running server may use the store meanwhile.

exit codes: 0 no difference found, 1 a difference found, or the store cannot be read, 2 usage"""


def configure(parser: ArgumentParser) -> None:
    """Add the arguments and help texts of `agx store` to its parser."""
    parser.epilog = _EPILOG
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    text = "compare what is made of the logs with the logs"
    actions.add_parser("check", help=text, description=f"{text[0].upper()}{text[1:]}.")


def run(arguments: Namespace) -> int:
    """Run `agx store` and return its exit code."""
    try:
        settings = load_settings()
        path = database_path(settings)
        state = "intact" if probe_store_owner(settings) is not None else check_file(settings)
        if state == "missing":
            print(f"{path} is created on first use")
            return DONE
        if state == "has unapplied log":
            print(f"agx store: {path} has a write-ahead log that is applied at the next start", file=sys.stderr)
            return FAILED
        found = check_logs(settings)
    except AgenticXError as exc:
        print(f"agx store: {visible_line(str(exc), 2_000)}", file=sys.stderr)
        return FAILED
    with suppress(BrokenPipeError):  # the reader closed the pipe; the exit code still reports the differences
        for sentence in found or [f"{path} agrees with its logs"]:
            print(visible_line(sentence, 2_000))
    return FAILED if found else DONE

"""The `agx memory` command: what all sessions are given of the user, listed, and entries removed."""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser, Namespace
from dataclasses import asdict

from agenticx.cli.exit_codes import DONE
from agenticx.knowledge.memory import Memory, MemoryEntry, UserMemory
from agenticx.knowledge.shared_memory import SharedMemory
from agenticx.sessions.store.factory import using_shared_state
from agenticx.settings import load_settings
from agenticx.tools.visible import visible_path

__all__ = ["configure", "run"]

_EPILOG = """\
An agent can ask to have a sentence remembered; it is saved only if you agree, and all later sessions have it in their
system prompt. What is removed is given to no later turn, and nothing of it stays in the file; the conversation in which
it was saved still has it (`agx sessions delete ID`).

examples:
  agx memory list
  agx memory remove mem_0123456789abcdef0123

exit codes: 0 done, 1 unknown id, or a file that cannot be used, 2 usage"""


def configure(parser: ArgumentParser) -> None:
    """Add the arguments and help texts of `agx memory` to its parser."""
    parser.epilog = _EPILOG
    parser.set_defaults(json=False)
    actions = parser.add_subparsers(dest="action", metavar="ACTION", help="without one: list")

    def action(name: str, text: str) -> ArgumentParser:
        added = actions.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}.")
        added.add_argument("--json", action="store_true", help="one object per line")
        return added

    action("list", "the entries, oldest first")
    action("remove", "remove an entry").add_argument("id", metavar="ID", help="the id of an entry")


def run(arguments: Namespace) -> int:
    """Run `agx memory` and return its exit code."""
    settings = load_settings()
    with using_shared_state(settings) as shared:
        return _run(arguments, UserMemory(settings.home) if shared is None else SharedMemory(shared))


def _run(arguments: Namespace, memory: Memory) -> int:
    if arguments.action == "remove":
        removed = memory.remove(arguments.id)
        if arguments.json:
            _print(removed, as_json=True)
        else:
            print(f"agx memory: {removed.id} is removed", file=sys.stderr)
        return DONE
    entries = memory.list()
    for entry in entries:
        _print(entry, as_json=arguments.json)
    if not entries:
        print("agx memory: nothing is remembered", file=sys.stderr)
    return DONE


def _print(entry: MemoryEntry, *, as_json: bool) -> None:
    if as_json:
        print(json.dumps(asdict(entry)))
    else:
        print(f"{entry.id}  {entry.saved_at[:10]}  {visible_path(entry.text)}")

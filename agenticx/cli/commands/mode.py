"""The `agx mode` command: the mode of a prompt, and the reason for it."""

from __future__ import annotations

import json
from argparse import ArgumentParser, Namespace
from dataclasses import asdict

from agenticx.cli.exit_codes import DONE
from agenticx.core.prompt_modes import detect_mode
from agenticx.knowledge.registry import VaultRegistry
from agenticx.settings import load_settings
from agenticx.tools.builtin import builtin_tools

__all__ = ["configure", "run"]

_EPILOG = """\
modes: chat (small talk, general knowledge), vault (the person's own notes), agent (work with tools; the answer to
doubt). A mode is a hint: the same tools are there in all three. The words that decide are in config/modes.toml.

examples:
  agx mode explain "What did I write about the lease?"
  agx mode explain "Delete the old notes" --json

exit codes: 0 done, 2 usage"""


def configure(parser: ArgumentParser) -> None:
    """Add the arguments and help texts of `agx mode` to its parser."""
    parser.epilog = _EPILOG
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    explaining = actions.add_parser("explain", help="the mode of a prompt", description="The mode of a prompt.")
    explaining.add_argument("text", metavar="TEXT", help="the prompt")
    explaining.add_argument("--vault", action="store_true", help="as if there were a vault")
    explaining.add_argument("--json", action="store_true", help="one object: kind, reason, certain")


def run(arguments: Namespace) -> int:
    """Run `agx mode` and return its exit code."""
    has_vault = arguments.vault or bool(VaultRegistry(load_settings().home).list())
    mode = detect_mode(arguments.text, vaults=has_vault, tools=[tool.schema.name for tool in builtin_tools()])
    if arguments.json:
        print(json.dumps(asdict(mode)))
    else:
        print(f"{mode.kind}: {mode.reason}{'' if mode.certain else ' (not certain)'}")
    return DONE

"""The commands of `agx`: their protocol, the built-in ones, and those that other packages register."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import entry_points
from typing import Protocol

from agenticx.cli.action_parser import CommandParser

__all__ = [
    "BUILTIN_COMMANDS",
    "ENTRY_POINT_GROUP",
    "Command",
    "ModuleCommand",
    "commands_from_entry_points",
    "find_command",
    "parser_of",
]

ENTRY_POINT_GROUP = "agenticx.commands"
"""Each entry point of this group names one `Command` object; the entry point's name is the command's name."""


class Command(Protocol):
    """A command of `agx`, selected by the first argument.

    `agx --help` loads every command of the entry-point group to show its summary, so the module that defines one must
    be cheap to import; heavy imports belong in `configure` or `run` (`ModuleCommand` does that).
    """

    @property
    def name(self) -> str:
        """The name that the user types."""
        ...

    @property
    def summary(self) -> str:
        """One line for `agx --help`, without a period."""
        ...

    def configure(self, parser: ArgumentParser) -> None:
        """Add arguments, a description and examples (`parser.epilog`) to this command's own parser."""
        ...

    def run(self, arguments: Namespace) -> int:
        """Run the command and return the exit code: 0 done, 1 failed, 2 usage, 130 stopped.

        The caller prints the message of an `AgenticXError` (exit 1; for a `SettingsError` exit 2). Data goes to
        stdout, everything else to stderr.
        """
        ...


@dataclass(frozen=True, slots=True)
class ModuleCommand:
    """A command whose module is imported on first use; it defines `configure(parser)` and `run(arguments)`."""

    name: str
    summary: str
    module: str

    def configure(self, parser: ArgumentParser) -> None:
        import_module(self.module).configure(parser)

    def run(self, arguments: Namespace) -> int:
        code: int = import_module(self.module).run(arguments)
        return code


BUILTIN_COMMANDS: Mapping[str, Command] = {
    command.name: command
    for command in (
        ModuleCommand("run", "One turn in the terminal, with tools and confirms", "agenticx.cli.commands.run"),
        ModuleCommand("chat", "A conversation in the terminal", "agenticx.cli.commands.chat"),
        ModuleCommand("agent", "Agents of files, for run and chat: list them", "agenticx.cli.commands.agent"),
        ModuleCommand("team", "Teams of agents: list them, and run one in the terminal", "agenticx.cli.commands.team"),
        ModuleCommand(
            "sessions", "Stored sessions: list, show, change, export, replay, delete", "agenticx.cli.commands.sessions"
        ),
        ModuleCommand(
            "artifacts", "Files that live in a session: list, show, save them", "agenticx.cli.commands.artifacts"
        ),
        ModuleCommand("ask", "A question about your notes, answered with citations", "agenticx.cli.commands.ask"),
        ModuleCommand(
            "vault", "Folders of notes: add, list, search, problems, rescan, remove", "agenticx.cli.commands.vault"
        ),
        ModuleCommand(
            "memory", "What all sessions are given of you: list, and remove an entry", "agenticx.cli.commands.memory"
        ),
        ModuleCommand("mode", "The mode of a prompt, and the reason for it", "agenticx.cli.commands.mode"),
        ModuleCommand("html", "The HTML page in a model's reply", "agenticx.cli.commands.html"),
        ModuleCommand("models", "The models that can be used", "agenticx.cli.commands.models"),
        ModuleCommand("keys", "The keys of providers: list, set, remove", "agenticx.cli.commands.keys"),
        ModuleCommand("model", "Call a model once, without tools or a session", "agenticx.cli.commands.model"),
        ModuleCommand(
            "permissions",
            "The rules about calls: listed, changed, explained, tried",
            "agenticx.cli.commands.permissions",
        ),
        ModuleCommand("trust", "The AGENTS.md files that you trust: show, trust, list", "agenticx.cli.commands.trust"),
        ModuleCommand("completion", "A script for Tab in bash, zsh or fish", "agenticx.cli.commands.completion"),
        ModuleCommand("store", "A check of what is stored of sessions", "agenticx.cli.commands.store"),
        ModuleCommand("guide", "The guide, a page at a time", "agenticx.cli.commands.guide"),
        ModuleCommand("doctor", "A check of settings, keys, models and the store", "agenticx.cli.commands.doctor"),
    )
}


def find_command(name: str) -> Command | None:
    """Return the built-in command of that name, else the one that an installed package registered, else None."""
    if name in BUILTIN_COMMANDS:
        return BUILTIN_COMMANDS[name]
    for entry_point in entry_points(group=ENTRY_POINT_GROUP, name=name):
        command: Command = entry_point.load()
        return command
    return None


def parser_of(command: Command) -> ArgumentParser:
    """Return the parser of a command's arguments."""
    parser = CommandParser(
        prog=f"agx {command.name}",
        description=f"{command.summary}.",
        formatter_class=RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    command.configure(parser)
    return parser


def commands_from_entry_points() -> dict[str, Command | Exception]:
    """Return every registered command by name, or the exception that loading it raised."""
    commands: dict[str, Command | Exception] = {}
    for entry_point in entry_points(group=ENTRY_POINT_GROUP):
        if entry_point.name not in BUILTIN_COMMANDS:
            try:
                commands[entry_point.name] = entry_point.load()
            except Exception as exc:
                commands[entry_point.name] = exc
    return commands

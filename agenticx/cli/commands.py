"""What a command of `agx` is, which ones there are, and how another package adds its own."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import entry_points
from typing import Protocol

__all__ = [
    "BUILTIN_COMMANDS",
    "ENTRY_POINT_GROUP",
    "Command",
    "ModuleCommand",
    "commands_from_entry_points",
    "find_command",
]

ENTRY_POINT_GROUP = "agenticx.commands"
"""Each entry point of this group names one `Command` object; the entry point's name is what a person types."""


class Command(Protocol):
    """One word after `agx`.

    `agx --help` loads every command of the entry-point group to show its summary, so the module that holds one must
    be cheap to import: what is heavy is imported in `configure` or `run` (`ModuleCommand` does just that).
    """

    @property
    def name(self) -> str:
        """What a person types."""
        ...

    @property
    def summary(self) -> str:
        """One line for `agx --help`, without a full stop."""
        ...

    def configure(self, parser: ArgumentParser) -> None:
        """Add arguments, a description and examples (`parser.epilog`) to this command's own parser."""
        ...

    def run(self, arguments: Namespace) -> int:
        """Do it and return the exit code: 0 done, 1 failed, 2 usage, 130 stopped.

        What an `AgenticXError` says is printed by the caller (exit 1; a `SettingsError` is exit 2). Data goes to
        stdout, everything else to stderr.
        """
        ...


@dataclass(frozen=True, slots=True)
class ModuleCommand:
    """A command whose module, with functions `configure(parser)` and `run(arguments)`, is imported when it is used."""

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
        ModuleCommand("run", "One turn in the terminal, with tools and confirms", "agenticx.cli.run"),
        ModuleCommand("chat", "A conversation in the terminal", "agenticx.cli.chat"),
        ModuleCommand("sessions", "Kept sessions: list, show, export, replay, delete", "agenticx.cli.sessions"),
        ModuleCommand("model", "Call a model once, without tools or a session", "agenticx.cli.model"),
        ModuleCommand("permissions", "What a tool call would be allowed to do, and why", "agenticx.cli.permissions"),
        ModuleCommand("doctor", "What this installation has, lacks and uses", "agenticx.cli.doctor"),
    )
}


def find_command(name: str) -> Command | None:
    """The built-in command of that name, else the one that an installed package registered, else None."""
    if name in BUILTIN_COMMANDS:
        return BUILTIN_COMMANDS[name]
    for entry_point in entry_points(group=ENTRY_POINT_GROUP, name=name):
        command: Command = entry_point.load()
        return command
    return None


def commands_from_entry_points() -> dict[str, Command | Exception]:
    """Every registered command by name; where loading one failed, what it raised."""
    found: dict[str, Command | Exception] = {}
    for entry_point in entry_points(group=ENTRY_POINT_GROUP):
        if entry_point.name not in BUILTIN_COMMANDS:
            try:
                found[entry_point.name] = entry_point.load()
            except Exception as exc:
                found[entry_point.name] = exc
    return found

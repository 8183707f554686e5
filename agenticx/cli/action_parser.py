"""The parsers of commands, and of their actions, such as `agx team run`."""

from __future__ import annotations

import re
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from typing import Any, NoReturn

from agenticx.similar_names import similar_name

__all__ = ["ActionParser", "CommandParser"]

_UNKNOWN_CHOICE = re.compile(r"argument .*: invalid choice: '(.*)' \(choose from (.*)\)", re.DOTALL)
_UNKNOWN_OPTION = re.compile(r"unrecognized arguments: (?:.* )?(--?[\w-]+)")


class CommandParser(ArgumentParser):
    """A parser that names the option, action or choice that a misspelt one may mean."""

    def error(self, message: str) -> NoReturn:
        """Print the usage and the error, and exit with 2."""
        if (found := _UNKNOWN_OPTION.match(message)) is not None:
            options = {option.lstrip("-"): option for option in self._option_string_actions}
            similar = similar_name(found[1].lstrip("-"), options, cutoff=0.7)
            message += f"; did you mean {options[similar]}?" if similar else ""
        elif (found := _UNKNOWN_CHOICE.match(message)) is not None:
            similar = similar_name(found[1], [choice.strip("'") for choice in found[2].split(", ")])
            message += f"; did you mean {similar}?" if similar else ""
        super().error(message)


class ActionParser(CommandParser):
    """A parser of an action that takes options and positional arguments in any order, and prints its own usage.

    `ArgumentParser` calls an action's `parse_known_args`. That treats an optional positional argument behind an option
    as missing, and the command's parser then reports unrecognized arguments with the usage of the whole command.
    """

    _is_parsing = False

    def parse_known_args(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, args: Sequence[str] | None = None, namespace: Any = None
    ) -> tuple[Namespace, list[str]]:
        # it is called again by `parse_known_intermixed_args`
        if self._is_parsing or _has_dash_after_double_dash(args or ()):
            return super().parse_known_args(args, namespace)
        self._is_parsing = True
        try:
            parsed, left_over = self.parse_known_intermixed_args(args, namespace)
        finally:
            self._is_parsing = False
        if left_over:
            self.error(f"unrecognized arguments: {' '.join(left_over)}")
        return parsed, left_over


def _has_dash_after_double_dash(args: Sequence[str]) -> bool:
    """Return True for positional arguments such as `-x` behind `--`: `parse_known_intermixed_args` drops them."""
    behind = args[args.index("--") + 1 :] if "--" in args else ()
    return any(arg.startswith("-") for arg in behind)

"""Log lines in colour, for a terminal: the event of a line stands out from its fields."""

from __future__ import annotations

import logging
import re
from functools import cached_property
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["ColoredFormatter", "visible_console"]

_USUAL_COLUMNS = 80

_LEVEL_STYLES = {"DEBUG": "dim", "INFO": "green", "WARNING": "yellow", "ERROR": "bold red", "CRITICAL": "bold red"}
_HEAD = re.compile(r"(?P<time>\S+ \S+) (?P<level>\S+) +(?P<logger>\S+) (?P<event>[^\n]*?)(?= [a-z_]+=|\n|$)")
_FIELD_NAME = re.compile(r"(?<= )[a-z_]+(?==)")


class ColoredFormatter(logging.Formatter):
    """A formatter that colours the lines of another one, which begin with time, level and logger.

    `stream` is the terminal that shows them; rich leaves the colours out if it has none, or if NO_COLOR is set.
    """

    def __init__(self, plain: logging.Formatter, stream: TextIO) -> None:
        super().__init__()
        self._plain = plain
        self._stream = stream

    def format(self, record: logging.LogRecord) -> str:
        from rich.text import Text  # with the first line, as it takes longer than most commands

        line = self._plain.format(record)
        text = Text(line)
        if head := _HEAD.match(line):
            styles = {"time": "dim", "level": _LEVEL_STYLES.get(head["level"], ""), "logger": "dim", "event": "bold"}
            for part, style in styles.items():
                text.stylize(style, *head.span(part))
            for name in _FIELD_NAME.finditer(line, head.end()):
                text.stylize("cyan", *name.span())
        with self._console.capture() as capture:
            self._console.print(text, end="", soft_wrap=True)
        return capture.get()

    @cached_property
    def _console(self) -> Console:
        from rich.console import Console

        return visible_console(Console(file=self._stream, highlight=False))


def visible_console(console: Console) -> Console:
    """Return the console, with a usual width instead of none, as with COLUMNS=0, in which rich shows nothing."""
    if console.width < 1:
        console.width = _USUAL_COLUMNS
    return console

"""A margin before text of the model at a terminal without colours: it cannot look like a line of the program."""

from __future__ import annotations

import os
from typing import TextIO

from rich.cells import get_character_cell_size

from agenticx.settings import provider_setting

__all__ = ["EMPTY_MARGIN", "MARGIN", "MIN_COLUMNS", "TextMargin", "needs_margin", "terminal_is_dumb"]

MARGIN = "| "
EMPTY_MARGIN = MARGIN.rstrip()
_USUAL_COLUMNS = 80
MIN_COLUMNS = 10
_TAB_COLUMNS = 8


def terminal_is_dumb() -> bool:
    """Return whether the terminal cannot move its cursor."""
    return (provider_setting("TERM") or "dumb").lower() in ("dumb", "unknown")


def needs_margin(stream: TextIO) -> bool:
    """Return whether the stream is a terminal without colours, as it has none or the user wants none."""
    return stream.isatty() and (provider_setting("NO_COLOR") is not None or terminal_is_dumb())


class TextMargin:
    """The margin of a text that is written to a terminal in parts.

    The text is broken at the terminal's width, as the terminal would begin a row without the margin.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._column = 0

    def add(self, text: str) -> str:
        """Return the next part of the text as it is to be written."""
        width, written = _columns(self._stream) - 1, list[str]()
        for char in text:
            if char == "\n":
                written.append(char if self._column else f"{EMPTY_MARGIN}\n")
                self._column = 0
                continue
            cells = _TAB_COLUMNS - self._column % _TAB_COLUMNS if char == "\t" else get_character_cell_size(char)
            if self._column + cells > width and self._column > len(MARGIN):
                written.append("\n")
                self._column = 0
            if not self._column:
                written.append(MARGIN)
                self._column = len(MARGIN)
            written.append(char)
            self._column += cells
        return "".join(written)

    def end_line(self) -> None:
        """Begin the next part on a line of its own, as the last one was ended."""
        self._column = 0


def _columns(stream: TextIO) -> int:
    """Return the columns of a terminal; a dumb one may not know them."""
    try:
        columns = os.get_terminal_size(stream.fileno()).columns
    except OSError:  # it was closed
        columns = 0
    return max(columns or _USUAL_COLUMNS, MIN_COLUMNS)

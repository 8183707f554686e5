"""Lines broken at words where a terminal would break them inside a word."""

from __future__ import annotations

import re
import textwrap
from unicodedata import combining, east_asian_width

__all__ = ["WordWrapper", "wrap_words"]

_MIN_COLUMNS = 20
_HANGING_INDENT = re.compile(r"\s*(?:\S.*?\s{2,})?")


def wrap_words(text: str, columns: int) -> str:
    """Return the text with lines of at most `columns` characters; a longer word is left whole, as a path is.

    The rest of a line is indented as its text is, in a table as its last column; a width below 20 changes nothing.

    >>> print(wrap_words("  y    run this call now", 20))
      y    run this call
           now
    """
    if columns < _MIN_COLUMNS:
        return text
    return "\n".join(_wrap(line, columns) for line in text.split("\n"))


def _wrap(line: str, columns: int) -> str:
    if len(line) <= columns:
        return line
    found = _HANGING_INDENT.match(line)
    indent = min(found.end() if found else 0, columns // 2)
    wrapped = textwrap.wrap(
        line, columns, subsequent_indent=" " * indent, break_long_words=False, break_on_hyphens=False
    )
    return "\n".join(wrapped) + line[len(line.rstrip()) :]


class WordWrapper:
    """A text that arrives in parts, with a line end before each word that does not fit in the rest of its line.

    A word without its end is held back until it is complete or longer than a line.

    >>> wrapper = WordWrapper(20)
    >>> wrapper.feed("It is in the draw") + wrapper.feed("er there") + wrapper.finish()
    'It is in the drawer\\nthere'
    """

    def __init__(self, columns: int) -> None:
        self._columns = columns
        self._column = 0
        self._inside_word = False
        self.held = ""
        """The unfinished last word, with the blanks before it."""

    def feed(self, text: str) -> str:
        """Return what can be shown after this part of the text has arrived."""
        parts: list[str] = _PARTS.findall(self.held + text)
        self.held = parts.pop() if parts and not parts[-1].endswith("\n") else ""
        if len(self.held) > self._columns:
            parts.append(self.held)
            self.held = ""
        shown = "".join(map(self._place, parts))
        self._inside_word = not self.held and bool(shown) and not shown[-1].isspace()
        return shown

    def finish(self) -> str:
        """Return the rest; a new line begins after it."""
        rest, self.held = self._place(self.held), ""
        self._column, self._inside_word = 0, False
        return rest

    def _place(self, part: str) -> str:
        if part.endswith("\n"):
            self._column = 0
            return part
        width = _width(part)
        if not self._column or self._column + width <= self._columns or (self._inside_word and not part[0].isspace()):
            self._column += width
            return part
        word = part.lstrip()
        self._column = _width(word)
        return f"\n{word}"


_PARTS = re.compile(r"[^\S\n]*(?:\n|[^\s]+)|[^\S\n]+")
_TAB_COLUMNS = 8


def _width(text: str) -> int:
    """Return the columns that a text needs, at most as many for a tab as it can take."""
    if text.isascii():
        return len(text) + (_TAB_COLUMNS - 1) * text.count("\t")
    return sum(0 if combining(char) else 1 + (east_asian_width(char) in "WF") for char in text)

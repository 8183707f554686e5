"""Lines broken at words where a terminal would break them inside a word."""

from __future__ import annotations

import re
import textwrap

__all__ = ["wrap_words"]

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
    return "\n".join(wrapped)

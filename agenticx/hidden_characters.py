"""Characters without a visible glyph: blanks of any width, and those that take no room at all."""

from __future__ import annotations

import re
from unicodedata import category

__all__ = ["is_blank", "is_hidden", "is_invisible"]

_HIDDEN_CATEGORIES = frozenset({"Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp", "Zs"})
# Letters, marks and symbols without a visible glyph: joiners, fillers, variation selectors, the blank Braille cell.
_NO_GLYPH = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\uffa0\ufe00-\ufe0f\U000e0100-\U000e01ef]"
)
_WIDE_FILLERS = frozenset("\u115f\u1160\u2800\u3164\uffa0")


def is_hidden(character: str) -> bool:
    """Return whether a character is a blank, a control character, or one without a glyph in fonts."""
    return category(character) in _HIDDEN_CATEGORIES or _NO_GLYPH.match(character) is not None


def is_blank(character: str) -> bool:
    """Return whether a character leaves an empty place in a text: a space, a line break, a letter that fills."""
    return character.isspace() or character in _WIDE_FILLERS


def is_invisible(character: str) -> bool:
    """Return whether a character only joins, marks or fills: one of the category Cf, or a letter without a glyph."""
    return category(character) == "Cf" or _NO_GLYPH.match(character) is not None

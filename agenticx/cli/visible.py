"""Text made safe to show at a terminal: whatever could hide, move or repaint other text is spelled out."""

from __future__ import annotations

import unicodedata

__all__ = ["one_line", "visible", "without_controls"]

_BLANK_LETTERS = frozenset("\u115f\u1160\u2800\u3164\uffa0")
"""Letters by category that render as nothing (Hangul fillers, the empty Braille pattern)."""

_HIDDEN = frozenset({"Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp"})


def visible(text: str) -> str:
    r"""`text` with every character that does not show as itself written as `\xNN`, `\uNNNN` or `\UNNNNNNNN`.

    Newline and space stay; a tab, any other blank, control, bidirectional and zero-width characters do not.

    >>> visible("rm \x1b[8m-rf\u202e ~")
    'rm \\x1b[8m-rf\\u202e ~'
    """
    if text.isascii() and text.replace("\n", "").isprintable():
        return text
    return "".join(char if _shows(char) else _escaped(char) for char in text)


def without_controls(text: str) -> str:
    r"""`text` with control characters spelled out, newline and tab excepted: prose a person reads as it streams."""
    if text.isprintable():
        return text
    return "".join(_escaped(char) if unicodedata.category(char) == "Cc" and char not in "\n\t" else char for char in text)


def one_line(text: str, width: int = 100) -> str:
    """The beginning of `text` on one visible line of at most `width` characters."""
    line = visible(" ".join(text[: 4 * width].split()))
    return line if len(line) <= width and len(text) <= 4 * width else line[: width - 1] + "…"


def _shows(char: str) -> bool:
    if char in " \n":
        return True
    category = unicodedata.category(char)
    return category not in _HIDDEN and category != "Zs" and char not in _BLANK_LETTERS


def _escaped(char: str) -> str:
    code = ord(char)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"

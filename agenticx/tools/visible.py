"""Text as a person can judge it: whatever would hide, reorder or pretend is written out."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping

__all__ = ["control_pictures", "escape_controls", "visible", "visible_line", "without_invisible"]

_HIDDEN_CATEGORIES = frozenset({"Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp", "Zs"})
# Letters, marks and symbols that show nothing: joiners, fillers, variation selectors, the blank Braille cell.
_INVISIBLE = re.compile("[\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0\ufe00-\ufe0f\U000e0100-\U000e01ef]")
_PADDING = re.compile(r" {32,}|\t{8,}|\n(?:[ \t]*\n){3,}")
_CHUNK_CHARS = 64 * 1024
_CONTROL_CATEGORIES = frozenset({"Cc", "Zl", "Zp"})
_BIDI_CONTROLS = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
_CONTROLS = {code: 0x2400 + code for code in range(0x20) if chr(code) not in "\t\n\r"} | {0x7F: 0x2421}


def visible(text: str) -> str:
    """`text` for a prompt: no character of it is invisible, moves the cursor, changes direction or pads.

    Such characters stand as their code point in angle brackets, long blanks as their length; plain text with line
    breaks and tabs comes out as it is.

    >>> visible("ls\\x1b[2K\\u202e")
    'ls⟨U+001B⟩[2K⟨U+202E⟩'
    """
    if not text.isascii() or not text.replace("\n", " ").replace("\t", " ").isprintable():
        hidden = {ord(character): _code_point(character) for character in set(text) if _is_hidden(character)}
        text = _translate(text, hidden) if hidden else text
    return _PADDING.sub(_padding_note, text)


def _translate(text: str, hidden: Mapping[int, str]) -> str:
    """Return `text.translate(hidden)`, made in pieces: a thread that makes it lets others run between two of them."""
    starts = range(0, len(text), _CHUNK_CHARS)
    return "".join(text[start : start + _CHUNK_CHARS].translate(hidden) for start in starts)


def visible_line(text: str, limit: int = 500) -> str:
    """`text` as `visible` writes it, on one line; of more than `limit` characters the head, the tail and their number.

    >>> visible_line("notes.txt?\\n  tool     file_read")
    'notes.txt?⟨U+000A⟩  tool     file_read'
    """
    if len(text) > limit:
        tail = limit // 4
        text = f"{text[: limit - tail]}⟨… {len(text)} characters …⟩{text[-tail:]}"
    return visible(text).replace("\n", "⟨U+000A⟩")


def _is_hidden(character: str) -> bool:
    if character in "\n\t ":
        return False
    return unicodedata.category(character) in _HIDDEN_CATEGORIES or _INVISIBLE.match(character) is not None


def _code_point(character: str) -> str:
    return f"⟨U+{ord(character):04X}⟩"


def _padding_note(padding: re.Match[str]) -> str:
    blank = padding[0]
    if blank.startswith("\n"):
        return f"\n⟨{blank.count(chr(10)) - 1} empty lines⟩\n"
    return f"⟨{len(blank)} {'spaces' if blank[0] == ' ' else 'tabs'}⟩"


def without_invisible(text: str) -> str:
    """Return `text` without the characters that take no room: joiners, direction marks, variation selectors."""
    return "".join(char for char in text if unicodedata.category(char) != "Cf" and _INVISIBLE.match(char) is None)


def escape_controls(text: str) -> str:
    """`text` as it streams past a person: what moves the cursor or reorders what is read stands as its code point.

    Newlines and tabs stay, and so does what writing systems and emoji need to be joined.
    """
    if text.isprintable():
        return text
    return "".join(_code_point(char) if _is_control(char) else char for char in text)


def _is_control(char: str) -> bool:
    return (char not in "\n\t" and unicodedata.category(char) in _CONTROL_CATEGORIES) or char in _BIDI_CONTROLS


def control_pictures(text: str) -> str:
    """`text` of a command for a model: control characters become their pictures (␀, ␛), line breaks and tabs stay."""
    return text.translate(_CONTROLS)

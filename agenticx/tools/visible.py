"""Text made safe to display: hidden, reordering and look-alike blank characters are escaped."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping

from agenticx.hidden_characters import is_hidden, is_invisible

__all__ = [
    "begun_flag",
    "control_pictures",
    "escape_controls",
    "is_one_line",
    "visible",
    "visible_line",
    "visible_path",
    "without_invisible",
]

_PADDING = re.compile(r" {32,}|\t{8,}|\n(?:[ \t]*\n){3,}")
_CHUNK_CHARS = 64 * 1024
_CONTROL_CATEGORIES = frozenset({"Cc", "Zl", "Zp"})
_BIDI_CONTROLS = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")

# As HIDDEN_TEXT in studio/web/text/hidden_characters.js: a run of characters without a glyph hides a text, unless it is
# of a flag or joins two emoji, and so does a single tag.
_FLAG = "\U0001f3f4[\U000e0030-\U000e0039\U000e0061-\U000e007a]{3,6}\U000e007f"
_JOINED_EMOJI = "(?<![\\0-\x7f])\ufe0f\u200d(?=[\xa9\xae\u203c-\u3299\U0001f000-\U0001faff]|\\Z)"
_NO_GLYPH = (
    "\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u2800\u3164\ufe00-\ufe0f"
    "\ufeff\uffa0\ufff9-\ufffb\U0001d173-\U0001d17a\U000e0000-\U000e01ef"
)
_HIDDEN_TEXT = re.compile(f"({_FLAG}|{_JOINED_EMOJI})|[{_NO_GLYPH}]{{2,}}|[\U000e0000-\U000e007f]")
_BEGUN_FLAG = re.compile("\U0001f3f4[\U000e0030-\U000e0039\U000e0061-\U000e007a]{0,6}\\Z")

_CONTROLS = {code: 0x2400 + code for code in range(0x20) if chr(code) not in "\t\n\r"} | {0x7F: 0x2421}


def visible(text: str) -> str:
    """Return `text` with every character escaped that is invisible, moves the cursor or changes direction.

    Used for requests to the user. Such characters are written as their code point in angle brackets, and long runs of
    blanks as their length; plain text with line breaks and tabs is returned unchanged.

    >>> visible("ls\\x1b[2K\\u202e")
    'ls⟨U+001B⟩[2K⟨U+202E⟩'
    """
    if not text.isascii() or not text.replace("\n", " ").replace("\t", " ").isprintable():
        hidden = {ord(character): _code_point(character) for character in set(text) if _is_escaped(character)}
        text = _translate(text, hidden) if hidden else text
    return _PADDING.sub(_padding_note, text)


def _translate(text: str, hidden: Mapping[int, str]) -> str:
    """Return `text.translate(hidden)`, computed in chunks so that other threads can run between them."""
    starts = range(0, len(text), _CHUNK_CHARS)
    return "".join(text[start : start + _CHUNK_CHARS].translate(hidden) for start in starts)


def visible_line(text: str, limit: int = 500) -> str:
    """Return `text` as `visible` does, on one line; above `limit` characters only the head, the tail and the length.

    >>> visible_line("notes.txt?\\n  tool     file_read")
    'notes.txt?⟨U+000A⟩  tool     file_read'
    """
    if len(text) > limit:
        tail = limit // 4
        text = f"{text[: limit - tail]}⟨… {len(text)} characters …⟩{text[-tail:]}"
    return visible(text).replace("\n", "⟨U+000A⟩")


def visible_path(path: str) -> str:
    """Return a path on one line, whole, so that no name of a file looks like several in a list."""
    return visible_line(path, len(path))


def _is_escaped(character: str) -> bool:
    return character not in "\n\t " and is_hidden(character)


def _code_point(character: str) -> str:
    return f"⟨U+{ord(character):04X}⟩"


def _padding_note(padding: re.Match[str]) -> str:
    blank = padding[0]
    if blank.startswith("\n"):
        return f"\n⟨{blank.count(chr(10)) - 1} empty lines⟩\n"
    return f"⟨{len(blank)} {'spaces' if blank[0] == ' ' else 'tabs'}⟩"


def without_invisible(text: str) -> str:
    """Return `text` without zero-width characters: joiners, direction marks, variation selectors."""
    return "".join(char for char in text if not is_invisible(char))


def escape_controls(text: str) -> str:
    """Return `text` for a terminal: what moves the cursor, reorders or hides text is written as code points.

    Newlines and tabs stay, and so do single joiners, which writing systems and emoji need, and the tags of a flag.

    >>> escape_controls("a\x1b[2K\U000e0041")
    'a⟨U+001B⟩[2K⟨U+E0041⟩'
    """
    if text.isprintable():
        return text
    if not text.isascii():
        text = _HIDDEN_TEXT.sub(lambda found: found[1] or "".join(map(_code_point, found[0])), text)
    return "".join(_code_point(char) if _is_control(char) else char for char in text)


def begun_flag(text: str) -> int:
    """Return where an emoji of a flag begins whose tags are still to come, else the length of `text`."""
    found = _BEGUN_FLAG.search(text, max(0, len(text) - 7))
    return len(text) if found is None else found.start()


def _is_control(char: str) -> bool:
    return (char not in "\n\t" and unicodedata.category(char) in _CONTROL_CATEGORIES) or char in _BIDI_CONTROLS


def is_one_line(text: str) -> bool:
    """Return True if `text` has neither line breaks nor other control characters."""
    return not any(unicodedata.category(char) in _CONTROL_CATEGORIES for char in text)


def control_pictures(text: str) -> str:
    """Return command output for a model: control characters become their pictures (␀, ␛), line breaks and tabs stay."""
    return text.translate(_CONTROLS)

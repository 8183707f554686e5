"""The shown forms of file names in tools and terminals, and the entries that such a form means.

Tools show a name with hidden characters as code points (`visible_path`). A terminal, or a model that copies a name,
turns a blank of another width into a plain one, composes accents, and has U+FFFD for bytes that are not UTF-8.
"""

from __future__ import annotations

import os
import re
import unicodedata
from collections.abc import Iterable

from agenticx.tools.visible import visible_path

__all__ = ["entries_shown_as", "name_forms"]

_ESCAPE = re.compile(r"⟨U\+([0-9A-F]{4,6})⟩")


def entries_shown_as(text: str, names: Iterable[str]) -> list[str]:
    """Return those of `names` whose shown form is `text`; else those that differ from it only as copies may.

    >>> entries_shown_as("a⟨U+202F⟩b", ["a b", "a\\u202fb"])
    ['a\\u202fb']
    >>> entries_shown_as("a b", ["a\\u202fb", "a⟨U+202F⟩b", "ab"])
    ['a\\u202fb', 'a⟨U+202F⟩b']
    """
    # All other names are their own form, in which they would have been found.
    odd = [name for name in names if not name.isascii() or not name.isprintable() or "  " in name]
    shown = [name for name in odd if "⟨" in text and visible_path(name) == text]
    wanted = _copied_form(text)
    return shown or [name for name in odd if _copied_form(name) == wanted]


def name_forms(path: str) -> tuple[str, ...]:
    """Return the forms of a path, without lone surrogates, that a glob may match: its own, as shown, as copied."""
    if path.isascii() and path.isprintable() and "  " not in path:
        return (path,)
    return (_as_utf8(path), visible_path(path), visible_path(_copied_form(path)))


def _copied_form(text: str) -> str:
    if "⟨" in text:
        text = _ESCAPE.sub(_character, text)
    return unicodedata.normalize("NFC", _as_utf8(text.translate(_PLAIN_BLANKS)))


_PLAIN_BLANKS = dict.fromkeys(map(ord, "\u00a0\u1680\u202f\u205f\u3000"), " ") | dict.fromkeys(
    range(0x2000, 0x200B), " "
)


def _character(escape: re.Match[str]) -> str:
    code = int(escape[1], 16)
    return chr(code) if code < 0xD800 or 0xDC80 <= code <= 0xDCFF or 0xE000 <= code <= 0x10FFFF else escape[0]


def _as_utf8(name: str) -> str:
    """Return a name with U+FFFD for bytes that are not UTF-8, as most programs print it."""
    return os.fsencode(name).decode("utf-8", "replace")

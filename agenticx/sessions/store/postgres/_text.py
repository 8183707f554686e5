"""Texts as PostgreSQL can store them: without NUL and lone surrogates."""

from __future__ import annotations

from agenticx.messages import clean_text

__all__ = ["from_text", "to_text"]


def to_text(text: str) -> str:
    r"""Return a text without NUL, which `from_text` brings back; lone surrogates become U+FFFD.

    >>> to_text("a\0b")
    'a\x1b0b'
    """
    if "\0" in text or "\x1b" in text:
        text = text.replace("\x1b", "\x1b1").replace("\0", "\x1b0")
    return clean_text(text)


def from_text(text: str) -> str:
    """Return the text that `to_text` has made storable."""
    return text.replace("\x1b0", "\0").replace("\x1b1", "\x1b") if "\x1b" in text else text

"""The lines of files, however many or long they are: no step of this reads much, so that other threads can run.

A line ends with `\\n`, and the last one also with the file.
"""

from __future__ import annotations

from codecs import getincrementaldecoder
from collections.abc import Iterator
from dataclasses import dataclass

__all__ = ["Line", "count_lines", "holds_only_utf_8", "lines_from"]

_PIECE_BYTES = 256 * 1024


@dataclass(frozen=True, slots=True)
class Line:
    """The beginning of a line, and how many characters it has in all; bytes that are not UTF-8 are U+FFFD."""

    text: str
    length: int


def count_lines(content: bytes) -> int:
    """Return the number of lines."""
    breaks = sum(content.count(b"\n", start, start + _PIECE_BYTES) for start in _starts(content))
    return breaks + bool(content and not content.endswith(b"\n"))


def lines_from(content: bytes, skipped: int, most_chars: int) -> Iterator[Line]:
    """Yield the lines after the first `skipped` ones, `most_chars` characters of each at most."""
    at = _after_lines(content, skipped)
    while at < len(content):
        end = content.find(b"\n", at)
        end = len(content) if end < 0 else end
        yield _line(content, at, end, most_chars)
        at = end + 1


def holds_only_utf_8(content: bytes) -> bool:
    """Return whether all of it is UTF-8."""
    decoder = getincrementaldecoder("utf-8")()
    try:
        for start in _starts(content):
            decoder.decode(content[start : start + _PIECE_BYTES])
        decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        return False
    return True


def _starts(content: bytes) -> range:
    return range(0, len(content), _PIECE_BYTES)


def _after_lines(content: bytes, skipped: int) -> int:
    """Return where the lines after the first `skipped` ones begin."""
    at, left = 0, skipped
    while left and at < len(content):
        breaks = content.count(b"\n", at, at + _PIECE_BYTES)
        if breaks < left:
            left -= breaks
            at += _PIECE_BYTES
        else:
            for _ in range(left):
                at = content.find(b"\n", at) + 1
            left = 0
    return at


def _line(content: bytes, start: int, end: int, most_chars: int) -> Line:
    decoder = getincrementaldecoder("utf-8")("replace")
    kept, length = "", 0
    for at in range(start, end, _PIECE_BYTES):
        piece = decoder.decode(content[at : min(at + _PIECE_BYTES, end)], final=at + _PIECE_BYTES >= end)
        kept += piece[: most_chars - len(kept)]
        length += len(piece)
    return Line(kept, length)

"""Line access to large files in small steps, so that other threads can run between them.

A line ends with `\\n`; the last one may also end with the file.
"""

from __future__ import annotations

from codecs import getincrementaldecoder
from collections.abc import Iterator
from dataclasses import dataclass

__all__ = ["TextLine", "count_lines", "is_valid_utf8", "iter_lines"]

_CHUNK_BYTES = 256 * 1024


@dataclass(frozen=True, slots=True)
class TextLine:
    """The beginning of a line, and the number of characters of the whole line; invalid UTF-8 becomes U+FFFD."""

    text: str
    length: int


def count_lines(content: bytes) -> int:
    """Return the number of lines."""
    breaks = sum(content.count(b"\n", start, start + _CHUNK_BYTES) for start in _chunk_starts(content))
    return breaks + bool(content and not content.endswith(b"\n"))


def iter_lines(content: bytes, skip: int, max_chars: int) -> Iterator[TextLine]:
    """Yield the lines after the first `skip` ones, each cut at `max_chars` characters."""
    at = _skip_lines(content, skip)
    while at < len(content):
        end = content.find(b"\n", at)
        end = len(content) if end < 0 else end
        yield _read_line(content, at, end, max_chars)
        at = end + 1


def is_valid_utf8(content: bytes) -> bool:
    """Return whether `content` is valid UTF-8."""
    decoder = getincrementaldecoder("utf-8")()
    try:
        for start in _chunk_starts(content):
            decoder.decode(content[start : start + _CHUNK_BYTES])
        decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        return False
    return True


def _chunk_starts(content: bytes) -> range:
    return range(0, len(content), _CHUNK_BYTES)


def _skip_lines(content: bytes, skip: int) -> int:
    """Return the offset of the end of the first `skip` lines."""
    at, left = 0, skip
    while left and at < len(content):
        breaks = content.count(b"\n", at, at + _CHUNK_BYTES)
        if breaks < left:
            left -= breaks
            at += _CHUNK_BYTES
        else:
            for _ in range(left):
                at = content.find(b"\n", at) + 1
            left = 0
    return at


def _read_line(content: bytes, start: int, end: int, max_chars: int) -> TextLine:
    decoder = getincrementaldecoder("utf-8")("replace")
    kept, length = "", 0
    for at in range(start, end, _CHUNK_BYTES):
        chunk = decoder.decode(content[at : min(at + _CHUNK_BYTES, end)], final=at + _CHUNK_BYTES >= end)
        kept += chunk[: max_chars - len(kept)]
        length += len(chunk)
    return TextLine(kept, length)

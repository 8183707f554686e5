"""Line access to large files in small steps, so that other threads can run between them.

A line ends with `\\n`; the last one may also end with the file.
"""

from __future__ import annotations

from codecs import getincrementaldecoder
from collections.abc import Iterator
from dataclasses import dataclass

__all__ = ["TextLine", "common_end", "common_start", "count_lines", "is_valid_utf8", "iter_lines"]

_CHUNK_BYTES = 256 * 1024
_SLICE_CHARS = 65_536


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
    position = _skip_lines(content, skip)
    while position < len(content):
        end = content.find(b"\n", position)
        end = len(content) if end < 0 else end
        yield _read_line(content, position, end, max_chars)
        position = end + 1


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


def common_start(left: str, right: str) -> int:
    """Return the number of equal characters at the beginning of both texts."""
    size = min(len(left), len(right))
    low = 0
    while low < size and left[low : low + _SLICE_CHARS] == right[low : low + _SLICE_CHARS]:
        low += _SLICE_CHARS
    high = min(low + _SLICE_CHARS, size)
    low = min(low, size)
    while low < high:
        middle = (low + high + 1) // 2
        if left[low:middle] == right[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def common_end(left: str, right: str, limit: int) -> int:
    """Return the number of equal characters at the end of both texts, at most `limit`."""
    left_end, right_end = len(left), len(right)

    def equal(low: int, high: int) -> bool:
        return left[left_end - high : left_end - low] == right[right_end - high : right_end - low]

    low = 0
    while low < limit and equal(low, min(low + _SLICE_CHARS, limit)):
        low += _SLICE_CHARS
    high = min(low + _SLICE_CHARS, limit)
    low = min(low, limit)
    while low < high:
        middle = (low + high + 1) // 2
        if equal(low, middle):
            low = middle
        else:
            high = middle - 1
    return low


def _chunk_starts(content: bytes) -> range:
    return range(0, len(content), _CHUNK_BYTES)


def _skip_lines(content: bytes, skip: int) -> int:
    """Return the offset of the end of the first `skip` lines."""
    position, remaining = 0, skip
    while remaining and position < len(content):
        breaks = content.count(b"\n", position, position + _CHUNK_BYTES)
        if breaks < remaining:
            remaining -= breaks
            position += _CHUNK_BYTES
        else:
            for _ in range(remaining):
                position = content.find(b"\n", position) + 1
            remaining = 0
    return position


def _read_line(content: bytes, start: int, end: int, max_chars: int) -> TextLine:
    decoder = getincrementaldecoder("utf-8")("replace")
    text, length = "", 0
    for position in range(start, end, _CHUNK_BYTES):
        chunk = decoder.decode(
            content[position : min(position + _CHUNK_BYTES, end)], final=position + _CHUNK_BYTES >= end
        )
        text += chunk[: max_chars - len(text)]
        length += len(chunk)
    return TextLine(text, length)

"""Texts of files with their encoding, byte order mark and line ends; changes keep all of these.

1. Text is UTF-8, or UTF-16 with a byte order mark. Any other encoding can only be guessed, so such a file is no text
   here: reading shows U+FFFD for its bytes, and nothing writes that over them.
2. A byte order mark is the first character of a text, U+FEFF.
3. A line ends with LF, CRLF or CR. A text to be replaced is found whatever its line ends are, and each line of the new
   text gets the line end of the line that it replaces, or of its surroundings. Only if the old text has CR and is found
   exactly as given, its author knows the line ends of the file: then the line ends of the new text are written as
   given.
"""

from __future__ import annotations

import re
from codecs import BOM_UTF8, BOM_UTF16_BE, BOM_UTF16_LE, getincrementaldecoder
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice

from agenticx.tools.lines import common_end, common_start

__all__ = [
    "BYTE_ORDER_MARK",
    "MAX_MIXED_PLACES",
    "FileText",
    "Replacement",
    "decode_text",
    "differs_in_blanks",
    "is_binary",
    "line_ends",
    "replace_spans",
    "replace_text",
    "to_utf8_lines",
    "utf16_encoding",
    "with_lf",
    "with_line_end",
]

BYTE_ORDER_MARK = "\ufeff"
MAX_MIXED_PLACES = 1_000_000
"""The most places to replace in a text of mixed line ends, where each gets line ends of its own: a few seconds."""

_PROBED_BYTES = 8_192
_CHUNK_BYTES = 256 * 1024
_MAX_COMPARED_CHARS = 1024 * 1024
_UTF32_LE_MARK = BOM_UTF16_LE + b"\0\0"
_LINE_END = re.compile(r"\r\n?|\n")


@dataclass(frozen=True, slots=True)
class FileText:
    """The text of a file and its encoding: `utf-8`, `utf-16-le` or `utf-16-be`."""

    text: str
    encoding: str


def decode_text(content: bytes) -> FileText | None:
    """Return the text of a file with that content; None if it is binary or in an unknown encoding."""
    encoding = utf16_encoding(content) or "utf-8"
    if encoding == "utf-8" and is_binary(content):
        return None
    try:
        return FileText(content.decode(encoding), encoding)
    except UnicodeDecodeError:
        return None


def utf16_encoding(content: bytes) -> str | None:
    """Return the encoding that the byte order mark of UTF-16 states, None without one."""
    if content.startswith(BOM_UTF16_LE) and not content.startswith(_UTF32_LE_MARK):
        return "utf-16-le"
    return "utf-16-be" if content.startswith(BOM_UTF16_BE) else None


def is_binary(content: bytes) -> bool:
    """Return whether `content`, the first bytes of a file, belongs to a binary file: it is neither text nor UTF-16."""
    return b"\0" in content[:_PROBED_BYTES] and utf16_encoding(content) is None


def to_utf8_lines(content: bytes) -> bytes:
    """Return a file's content for display: UTF-8 without byte order mark; LF for CR if all line ends are CR."""
    encoding = utf16_encoding(content)
    text = content.removeprefix(BOM_UTF8) if encoding is None else b"".join(_transcoded(content[2:], encoding))
    if b"\r" not in text or b"\n" in text:
        return text
    return b"".join(chunk.replace(b"\r", b"\n") for chunk in _chunks(text))


def _transcoded(content: bytes, encoding: str) -> Iterator[bytes]:
    decoder = getincrementaldecoder(encoding)("replace")
    for chunk in _chunks(content):
        yield decoder.decode(chunk).encode("utf-8", "replace")
    yield decoder.decode(b"", final=True).encode("utf-8", "replace")


def _chunks(content: bytes) -> Iterator[bytes]:
    """Yield the content in small pieces, so that other threads can run between the steps."""
    return (content[start : start + _CHUNK_BYTES] for start in range(0, len(content), _CHUNK_BYTES))


# --- line ends --------------------------------------------------------------------------------------------------------


def line_ends(text: str) -> frozenset[str]:
    """Return which of LF, CRLF and CR end lines of the text."""
    pairs = text.count("\r\n")
    counts = {"\r\n": pairs, "\n": text.count("\n") - pairs, "\r": text.count("\r") - pairs}
    return frozenset(end for end, count in counts.items() if count)


def with_line_end(text: str, end: str) -> str:
    """Return the text with `end` for each LF that has no CR before it.

    >>> with_line_end("a\\nb\\r\\nc", "\\r\\n")
    'a\\r\\nb\\r\\nc'
    """
    return text if end == "\n" else _BARE_LF.sub(end, text)


_BARE_LF = re.compile(r"(?<!\r)\n")


def _without_pairs(text: str) -> str:
    return text.replace("\r\n", "\n")


def with_lf(text: str) -> str:
    """Return the text with LF for each of its line ends."""
    return text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text


def differs_in_blanks(text: str, old: str) -> bool:
    """Return whether `old` occurs in the text if all runs of white space count as one blank.

    False for large texts, where the comparison would take too long.
    """
    return len(text) + len(old) <= _MAX_COMPARED_CHARS and " ".join(old.split()) in " ".join(text.split())


# --- replacing --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Replacement:
    """The number of occurrences of a text, the line numbers of the first ten, and the text with all of them replaced.

    `text` is None if there is no occurrence, or more than one and not all were to be replaced, or if it would be too
    long. `is_too_frequent` says that line ends are mixed and there are more than `MAX_MIXED_PLACES` occurrences; then
    `count` is too low and `text` is None.
    """

    count: int
    lines: tuple[int, ...]
    text: str | None
    is_too_frequent: bool = False


def replace_text(text: str, old: str, new: str, *, every: bool, max_chars: int) -> Replacement:
    """Replace the only occurrence of `old`, or with `every` all of them, whatever their line ends are.

    If line ends are mixed and `old` occurs once exactly as given, that is its only occurrence. Equal lines at both ends
    of `old` and `new` stay as they are; the lines in between get the line ends of the replaced lines, or of the
    surroundings if those have none, unless `old` has CR and occurs as given. If `old` and `new` differ in line ends
    only, these are changed.
    """
    ends = line_ends(text)
    if len(ends) < 2 or (_LINE_END.search(old) is None and _LINE_END.search(new) is None):
        return _replace_uniform(text, old, new, next(iter(ends), "\n"), every, max_chars)
    spans = list(islice(_spans(text, old), MAX_MIXED_PLACES + 1))
    if len(spans) > MAX_MIXED_PLACES:
        starts = [start for start, _ in spans[:10]]
        return Replacement(len(spans), _line_numbers(text, starts), None, is_too_frequent=True)
    if not every:
        spans = [span for span in spans if text[slice(*span)] == old] or spans
    starts = [start for start, _ in spans[:10]]
    growth = len(spans) * (len(new) + new.count("\n")) - sum(end - start for start, end in spans)
    is_possible = len(text) + growth <= max_chars and (len(spans) == 1 or every)
    after = "".join(_replaced_pieces(text, spans, old, new)) if spans and is_possible else None
    return Replacement(len(spans), _line_numbers(text, starts), after)


def _replace_uniform(text: str, old: str, new: str, end: str, every: bool, max_chars: int) -> Replacement:
    found = with_line_end(with_lf(old), end)
    if with_lf(old) == with_lf(new):
        replacement = new
    else:
        replacement = with_line_end(new if "\r" in old and found == old else _without_pairs(new), end)
    count = text.count(found)
    starts = list(islice(_offsets(text, found), 10))
    is_possible = len(text) + count * (len(replacement) - len(found)) <= max_chars and (count == 1 or every)
    after = text.replace(found, replacement) if count and is_possible else None
    return Replacement(count, _line_numbers(text, starts), after)


def _line_numbers(text: str, starts: list[int]) -> tuple[int, ...]:
    return tuple(with_lf(text[:start]).count("\n") + 1 for start in starts)


def _offsets(text: str, found: str) -> Iterator[int]:
    """Yield the offsets of the non-overlapping occurrences."""
    index = text.find(found)
    while index >= 0:
        yield index
        index = text.find(found, index + len(found))


def _spans(text: str, old: str) -> Iterator[tuple[int, int]]:
    """Yield start and end of the occurrences of `old` in a text; any line end counts as LF."""
    wanted = with_lf(old)
    return _original_spans(text, ((index, index + len(wanted)) for index in _offsets(with_lf(text), wanted)))


def _original_spans(text: str, spans: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Yield the offsets in a text for those in the same text with LF as its line ends, in ascending order."""
    end = end_with_lf = 0
    for start_with_lf, next_end in spans:
        start = _skip(text, end, start_with_lf - end_with_lf)
        end, end_with_lf = _skip(text, start, next_end - start_with_lf), next_end
        yield start, end


def _skip(text: str, start: int, length: int) -> int:
    """Return the offset after the `length` characters from `start` on, where CRLF counts as one character."""
    end, missing = start, length
    while missing:
        begun, end = end, end + missing
        missing = text.count("\r\n", max(begun - 1, start), end)  # also a pair that the last step cut in two
    return end + (end > start and text.startswith("\r\n", end - 1))


def replace_spans(text: str, spans: Iterable[tuple[int, int]], new: str) -> str:
    """Return the text with `new` at each of the non-overlapping spans; the text keeps its line ends.

    The spans are ascending offsets in the text with LF as its line ends (`with_lf`). Unchanged lines keep their own
    line end; the lines of `new` get the line ends of the replaced lines or, if these have none, of the surroundings. A
    text without line ends gets the line ends of `new`.
    """
    ends = line_ends(text)
    if len(ends) > 1:
        return "".join(_replaced_pieces(text, _original_spans(text, spans), "", with_lf(new)))
    lines, inserted = with_lf(text), with_lf(new) if ends else new
    pieces: list[str] = []
    position = 0
    for start, end in spans:
        pieces += (lines[position:start], inserted)
        position = end
    pieces.append(lines[position:])
    return "".join(pieces).replace("\n", next(iter(ends), "\n"))


def _replaced_pieces(text: str, spans: Iterable[tuple[int, int]], old: str, new: str) -> Iterator[str]:
    """Yield the pieces of the text with `new` at the spans.

    `old` is the text to be replaced as it was given. Where it has CR and stands so in the text, or differs from `new`
    in line ends only, the line ends of `new` are written as given.
    """
    lines = _without_pairs(new)
    nearest = _NearestLineEnd(text)
    changes_line_ends, has_cr = old != "" and with_lf(old) == with_lf(new), "\r" in old
    wanted = ""
    head = tail = position = 0
    for start, end in spans:
        if changes_line_ends:
            yield text[position:start] + new
            position = end
        elif has_cr and text[start:end] == old:
            yield text[position:start] + with_line_end(new, nearest.line_end(start, start, end))
            position = end
        else:
            if (replaced := with_lf(text[start:end])) != wanted:
                wanted = replaced
                head, tail = _unchanged_lines(wanted, lines)
            inserted = lines[head : len(lines) - tail]
            first = _skip(text, start, head)
            place, position = position, _skip(text, first, len(wanted) - head - tail)
            yield text[place:first]
            default = nearest.line_end(start, first, end)
            if _LINE_END.search(text, first, position) is None:
                yield with_line_end(inserted, default)
            else:
                following = _LINE_END.match(text, position)
                last_end = following[0] if following and text[position - 1] not in "\r\n" else ""
                yield _with_replaced_ends(inserted, text[first:position] + last_end)
    yield text[position:]


def _unchanged_lines(old: str, new: str) -> tuple[int, int]:
    """Return the lengths of the lines at the beginning and at the end that both texts have."""
    head = new.rfind("\n", 0, common_start(old, new)) + 1
    same = common_end(old, new, min(len(old), len(new)) - head)
    tail = len(old) - index if (index := old.find("\n", len(old) - same)) >= 0 else 0
    return head, tail


def _with_replaced_ends(lines: str, replaced: str) -> str:
    """Return lines of LF with the line ends of the lines of `replaced`, one by one.

    Lines that occur once in both and in the same order correspond; those between them do so in their order.
    """
    ends = _LINE_END.findall(replaced)
    if len(set(ends)) == 1:
        return with_line_end(lines, ends[0])
    new, old = _BARE_LF.split(lines), _LINE_END.split(replaced)
    new_counts, old_counts, places = Counter(new), Counter(old), {line: place for place, line in enumerate(old)}
    pieces: list[str] = []
    before = -1  # the place of the last old line that is in `new` too
    start = 0  # the first of the new lines after it
    for index, line in enumerate(new):
        is_last = index == len(new) - 1
        is_same = new_counts[line] == old_counts[line] == 1 and places[line] > before
        if not (is_same or is_last):
            continue
        after = places[line] if is_same else len(old)
        for offset, between in enumerate(new[start:index]):
            place = max(min(before + 1 + offset, after - 1), before, 0)
            pieces += [between, ends[min(place, len(ends) - 1)]]
        pieces.append(line)
        if not is_last:
            pieces.append(ends[min(after, len(ends) - 1)])
        before, start = after, index + 1
    return "".join(pieces)


class _NearestLineEnd:
    """The line ends of a text, near ascending offsets."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._matches = _LINE_END.finditer(text)
        self._last = next(self._matches)  # a text of mixed line ends has some
        self._next: re.Match[str] | None = self._last

    def line_end(self, start: int, first: int, end: int) -> str:
        """Return the line end of the first line at or after `first`, or the previous one if that ends after `end`."""
        while self._next is not None and self._next.start() < first:
            self._last, self._next = self._next, next(self._matches, None)
        if self._next is None or (self._next.start() >= end and start < first):
            return self._last[0]
        return self._next[0]

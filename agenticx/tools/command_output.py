"""Command output in bounded memory: a buffer of head and tail, and batched progress events."""

from __future__ import annotations

import asyncio
import codecs
import re
from collections import deque
from collections.abc import Callable

from agenticx.tools.visible import control_pictures

__all__ = ["HeadTailBuffer", "ProgressEmitter", "TerminalLines"]


class HeadTailBuffer:
    """The first and the last bytes of an output of any length as a terminal shows it, and its total size."""

    def __init__(self, head_bytes: int, tail_bytes: int) -> None:
        self._head_bytes = head_bytes
        self._tail_bytes = tail_bytes
        self._lines = TerminalLines()
        self._head = bytearray()
        self._tail: deque[bytes] = deque()
        self._tail_size = 0
        self._kept_size = 0
        self.size = 0

    def add(self, chunk: bytes) -> None:
        self.size += len(chunk)
        chunk = self._lines.feed(chunk)
        self._kept_size += len(chunk)
        free_bytes = self._head_bytes - len(self._head)
        if free_bytes > 0:
            self._head += chunk[:free_bytes]
            chunk = chunk[free_bytes:]
        if not chunk:
            return
        self._tail.append(chunk)
        self._tail_size += len(chunk)
        while self._tail_size - len(self._tail[0]) >= self._tail_bytes:
            self._tail_size -= len(self._tail.popleft())

    @property
    def truncated(self) -> bool:
        return self._kept_size + len(self._lines.unfinished) > self._head_bytes + self._tail_bytes

    def text(self) -> str:
        """Return the buffered bytes as text; invalid UTF-8 becomes U+FFFD, omitted bytes become notes."""
        unfinished = self._lines.unfinished
        free_bytes = self._head_bytes - len(self._head)
        head = bytes(self._head) + unfinished[:free_bytes]
        tail = b"".join(self._tail) + unfinished[free_bytes:]
        kept_size = self._kept_size + len(unfinished)
        left_out = kept_size - len(head) - min(len(tail), self._tail_bytes)
        if left_out <= 0:
            text = (head + tail).decode("utf-8", "replace")
        else:
            text = codecs.getincrementaldecoder("utf-8")("replace").decode(head)
            text += f"\n[… {left_out:,} of {self.size:,} bytes left out …]\n"
            text += tail[-self._tail_bytes :].lstrip(_CONTINUATION).decode("utf-8", "replace")
        if overwritten := self.size - kept_size:
            line_break = "" if text.endswith("\n") or not text else "\n"
            note = f"{overwritten:,} of {self.size:,} bytes were overwritten, as by a progress bar"
            text += f"{line_break}[{note}]\n"
        return control_pictures(text)


_CONTINUATION = bytes(range(0x80, 0xC0))


class TerminalLines:
    """A filter of output that keeps of each line what a terminal shows in the end.

    CR and ESC[G go to the beginning of the line, backspace goes back, and the next characters replace the old ones, one
    column each; ESC[K erases. ESC[A, B, E and F go to another of the last 48 lines, and ESC[J erases the lines after
    the cursor. CRLF stays, and the bytes of a line without any of these stay as they are.
    """

    def __init__(self) -> None:
        self._rows = [bytearray()]  # the last lines, as they were written: the cursor can still go there
        self._row = 0  # where the cursor is
        self._column: int | None = None  # of the cursor in a line that it moved to, None at the end of the output
        self._rest = b""  # the beginning of a sequence
        self._columns_left = 0  # how many times a column is looked up in this chunk; then it is taken as the first
        self._is_continued = False  # the beginning of the first line is out already, and cannot be overwritten

    @property
    def unfinished(self) -> bytes:
        """The last lines as they are shown; they may still change."""
        return b"\n".join(self._shown_rows()) + self._rest

    def feed(self, chunk: bytes) -> bytes:
        """Return the lines that `chunk` moves out of reach of the cursor, as they are shown."""
        chunk = self._rest + chunk
        self._rest, self._columns_left = b"", _MAX_COLUMNS
        if (begun := _BEGUN_SEQUENCE.search(chunk, max(0, len(chunk) - _MAX_SEQUENCE_BYTES))) is not None:
            chunk, self._rest = chunk[: begun.start()], begun[0]
        shown: list[bytes] = []
        start = 0
        for move in _LINE_MOVE.finditer(chunk):
            self._write(chunk[start : move.start()], shown)
            self._move(move, shown)
            start = move.end()
        self._write(chunk[start:], shown)
        return b"".join(shown)

    def _write(self, text: bytes, shown: list[bytes]) -> None:
        if self._row == len(self._rows) - 1 and text.count(b"\n") > _REACHED_LINES:
            text = self._write_many(text, shown)
        line, *lines = text.split(b"\n")
        self._write_in_line(line, shown)
        for line in lines:
            if self._row < len(self._rows) - 1:
                self._row, self._column = self._row + 1, 0
            else:
                self._add_row(shown)
            self._write_in_line(line, shown)

    def _write_many(self, text: bytes, shown: list[bytes]) -> bytes:
        """Write the lines of a text that the cursor cannot reach; return the others."""
        line_break = len(text)
        for _ in range(_REACHED_LINES):
            line_break = text.rindex(b"\n", 0, line_break)
        first, _, more = text[:line_break].partition(b"\n")
        self._write_in_line(first, shown)
        self._release_rows(shown)
        if _CURSOR_MOVE_IN_LINES.search(more) is None:
            shown += [more, b"\n"]
        else:
            for line in more.split(b"\n"):
                shown += [_terminal_line(line), b"\n"]
        return text[line_break + 1 :]

    def _write_in_line(self, text: bytes, shown: list[bytes]) -> None:
        if not text:
            return
        row = self._rows[self._row]
        if self._column is not None and _TO_LINE_START.match(text) is None:
            if self._column and len(row) <= _MAX_INDENT_BYTES:
                row[:] = _shown_line(bytes(row))
                plain = _SEQUENCE.sub("", row.decode("utf-8", "surrogateescape"))
                indent = plain[: self._column].ljust(self._column)
                row += b"\r" + indent.encode("utf-8", "surrogateescape")
            else:
                row += b"\r"
        row += text
        self._column = None
        if len(row) > _MAX_LINE_BYTES:
            self._shorten_row(shown)

    def _shorten_row(self, shown: list[bytes]) -> None:
        """Drop what is overwritten in a long line; let out its beginning if it is long even so."""
        row = self._rows[self._row]
        before, move, last = bytes(row).rpartition(b"\r")
        row[:] = (_shown_line(before) + move if move else b"") + last
        if len(row) <= _MAX_LINE_BYTES // 2:
            return
        if self._row < len(self._rows) - 1:
            self._release_rows(shown)
            return
        shown += [b"\n".join(self._shown_rows())]
        self._rows, self._row, self._is_continued = [bytearray()], 0, True

    def _move(self, move: re.Match[bytes], shown: list[bytes]) -> None:
        """Go to another line, or erase the lines after the cursor."""
        is_last = self._row == len(self._rows) - 1
        if move["erasure"]:
            if is_last and not self._rows[self._row]:
                self._write_in_line(move[0], shown)
            else:
                del self._rows[self._row + 1 :]
                self._write_in_line(b"\x1b[K", shown)
            return
        count = int(move["count"] or 1) or 1
        row = self._rows[self._row]
        column = self._column
        if column is None:
            self._columns_left -= 1
            column = _width(bytes(row[-_MAX_INDENT_BYTES:])) if self._columns_left >= 0 and row else 0
        if row and not row.startswith(b"\r"):
            row[:0] = b"\r"  # it is a line with moves now
        target = self._row + (count if move["kind"] in b"BE" else -count)
        self._row = min(max(target, 0), len(self._rows) - 1)
        self._column = 0 if move["kind"] in b"EF" else column

    def _add_row(self, shown: list[bytes]) -> None:
        self._rows.append(bytearray())
        if len(self._rows) > _REACHED_LINES:
            shown += [_terminal_line(bytes(self._rows.pop(0)), is_continued=self._is_continued), b"\n"]
            self._is_continued = False
        self._row, self._column = len(self._rows) - 1, None

    def _release_rows(self, shown: list[bytes]) -> None:
        """Let out all lines, and begin a new one."""
        shown += [b"\n".join(self._shown_rows()), b"\n"]
        self._rows, self._row, self._column, self._is_continued = [bytearray()], 0, None, False

    def _shown_rows(self) -> list[bytes]:
        first, *others = map(bytes, self._rows)
        return [_terminal_line(first, is_continued=self._is_continued), *map(_terminal_line, others)]


def _terminal_line(line: bytes, *, is_continued: bool = False) -> bytes:
    if _CURSOR_MOVE.search(line.removesuffix(b"\r")) is None:
        return line
    return (b"\n" if is_continued else b"") + _shown_line(line)


def _width(line: bytes) -> int:
    """Return the column of the cursor after a line."""
    part = _LINE_START.split(line.decode("utf-8", "replace"))[-1]
    column = 0
    for text in _SEQUENCE.sub("", part).split("\b"):
        column = max(column - 1, 0) + len(text)
    return column


_REACHED_LINES = 48
_MAX_INDENT_BYTES = 512
_MAX_COLUMNS = 1_000
_MAX_SEQUENCE_BYTES = 16
_BEGUN_SEQUENCE = re.compile(rb"\x1b(?:\[[0-9;?]*)?\Z")
_LINE_MOVE = re.compile(rb"\x1b\[(?:(?P<count>[0-9]{0,4})(?P<kind>[ABEF])|(?P<erasure>0?J))")
_TO_LINE_START = re.compile(rb"\r|\x1b\[[01]?G")
_MAX_LINE_BYTES = 64 * 1024
_CURSOR_MOVE = re.compile(rb"\r|\x08|\x1b\[[01]?G")
_CURSOR_MOVE_IN_LINES = re.compile(rb"\r(?!\n|\Z)|\x08|\x1b\[[01]?G")
_LINE_START = re.compile(r"\r|\x1b\[[01]?G")
_SEQUENCE = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
_ERASURE = re.compile(r"\x1b\[([012]?)K")
_BACKSPACED = re.compile(rf"{_SEQUENCE.pattern}|[^\x1b\b]+|\x1b|\x08")


def _shown_line(line: bytes) -> bytes:
    """Return what a terminal shows of a line that is written in several parts, each from the beginning of the line."""
    ending = b"\r" if line.endswith(b"\r") else b""
    parts = _LINE_START.split(line.removesuffix(b"\r").decode("utf-8", "surrogateescape"))
    shown, width = "", 0
    for part in reversed(parts):
        if "\x1b" in part or "\b" in part:
            text, erases_rest = _shown_part(part)
            plain = _SEQUENCE.sub("", text)
        else:
            text, plain, erases_rest = part, part, False
        if len(plain) > width:
            shown, width = shown + plain[width:] if shown else text, len(plain)
        if erases_rest:
            break
    return shown.rstrip(" ").encode("utf-8", "surrogateescape") + ending


def _shown_part(part: str) -> tuple[str, bool]:
    """Return the text of a part, and True if it erases what stood behind it."""
    erases_rest = False
    pieces = _ERASURE.split(part)  # texts, and between them the kinds: to the end, to the beginning, the whole line
    text = pieces[0]
    for kind, following in zip(pieces[1::2], pieces[2::2], strict=True):
        erases_rest = erases_rest or kind != "1"
        text = (text if kind in {"", "0"} else " " * len(_SEQUENCE.sub("", text))) + following
    return (_without_backspaces(text) if "\b" in text else text), erases_rest


def _without_backspaces(text: str) -> str:
    cells: list[str] = []
    cursor = 0
    for token in _BACKSPACED.findall(text):
        if token == "\b":
            cursor = max(cursor - 1, 0)
        elif token[0] == "\x1b" and len(token) > 1 and cells:  # a colour
            cells[min(cursor, len(cells)) - 1] += token
        else:
            cells[cursor : cursor + len(token)] = token
            cursor += len(token)
    return "".join(cells)


class ProgressEmitter:
    """A sender of output in batches; the size of each batch and of all together is bounded."""

    def __init__(
        self, emit: Callable[[str], None], *, interval: float, batch_chars: int = 4_000, total_chars: int = 100_000
    ) -> None:
        self._emit = emit
        self._interval = interval
        self._batch_chars = batch_chars
        self._chars_left = total_chars
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._pending: list[str] = []
        self._pending_chars = 0
        self._dropped_chars = 0
        self._timer: asyncio.TimerHandle | None = None

    def add(self, chunk: bytes) -> None:
        """Add output to the pending batch, which is emitted after `interval` real seconds."""
        if self._chars_left <= 0:
            return
        text = control_pictures(self._decoder.decode(chunk))
        fitting = text[: self._batch_chars - self._pending_chars]
        self._dropped_chars += len(text) - len(fitting)
        if fitting:
            self._pending.append(fitting)
            self._pending_chars += len(fitting)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._interval, self.flush)

    def flush(self) -> None:
        """Emit the pending batch."""
        self.stop()
        text = "".join(self._pending)
        if self._dropped_chars:
            text += f"\n[… {self._dropped_chars:,} characters …]\n"
        self._pending.clear()
        self._pending_chars = self._dropped_chars = 0
        self._chars_left -= len(text)
        if text and self._chars_left <= 0:
            text += "\n[… the rest of the output is not shown live …]\n"
        if text:
            self._emit(text)

    def stop(self) -> None:
        """Cancel the timer; pending output is emitted by `flush` only."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

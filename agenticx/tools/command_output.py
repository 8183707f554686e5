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
            note = f"{overwritten:,} of {self.size:,} bytes were overwritten in their line, as by a progress bar"
            text += f"{line_break}[{note}]\n"
        return control_pictures(text)


_CONTINUATION = bytes(range(0x80, 0xC0))


class TerminalLines:
    """A filter of output that keeps of each line what a terminal shows in the end.

    CR and ESC[G go to the beginning of the line, backspace goes back, and what follows replaces what is there, one
    column for each character; ESC[K erases. CRLF stays, and so does a line without any of these, in its bytes.
    """

    def __init__(self) -> None:
        self._line = b""
        self._is_continued = False  # the beginning of the line is out already, and cannot be overwritten

    @property
    def unfinished(self) -> bytes:
        """The line that has not ended yet, as it is shown."""
        return self._shown(self._line)

    def feed(self, chunk: bytes) -> bytes:
        """Return the lines that end in `chunk`, as they are shown."""
        whole, line_break, rest = (self._line + chunk).rpartition(b"\n")
        shown: list[bytes] = []
        if line_break and _CURSOR_MOVE_IN_LINES.search(whole) is None:
            shown += [whole, b"\n"]
            self._is_continued = False
        elif line_break:
            for line in whole.split(b"\n"):
                shown += [self._shown(line), b"\n"]
                self._is_continued = False
        self._line = rest
        if len(rest) > _MAX_LINE_BYTES:
            shown.append(self._shorten_line())
        return b"".join(shown)

    def _shorten_line(self) -> bytes:
        """Drop what is overwritten in a long line; return its beginning if it is long even so."""
        before, move, last = self._line.rpartition(b"\r")
        self._line = (_shown_line(before) + move if move else b"") + last
        if len(self._line) <= _MAX_LINE_BYTES // 2:
            return b""
        beginning, self._line = self._shown(self._line), b""
        self._is_continued = True
        return beginning

    def _shown(self, line: bytes) -> bytes:
        if _CURSOR_MOVE.search(line.removesuffix(b"\r")) is None:
            return line
        return (b"\n" if self._is_continued else b"") + _shown_line(line)


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

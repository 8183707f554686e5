"""Command output in bounded memory: a buffer of head and tail, and batched progress events."""

from __future__ import annotations

import asyncio
import codecs
from collections import deque
from collections.abc import Callable

from agenticx.tools.visible import control_pictures

__all__ = ["HeadTailBuffer", "ProgressEmitter"]


class HeadTailBuffer:
    """The first and the last bytes of an output of any length, and its total size."""

    def __init__(self, head_bytes: int, tail_bytes: int) -> None:
        self._head_bytes = head_bytes
        self._tail_bytes = tail_bytes
        self._head = bytearray()
        self._tail: deque[bytes] = deque()
        self._tail_size = 0
        self.size = 0

    def add(self, chunk: bytes) -> None:
        self.size += len(chunk)
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
        return self.size > self._head_bytes + self._tail_bytes

    def text(self) -> str:
        """Return the buffered bytes as text; invalid UTF-8 becomes U+FFFD, omitted bytes become a note."""
        tail = b"".join(self._tail)
        left_out = self.size - len(self._head) - min(len(tail), self._tail_bytes)
        if left_out <= 0:
            return control_pictures((bytes(self._head) + tail).decode("utf-8", "replace"))
        head = codecs.getincrementaldecoder("utf-8")("replace").decode(bytes(self._head))
        clean_tail = tail[-self._tail_bytes :].lstrip(_CONTINUATION)
        note = f"\n[… {left_out:,} of {self.size:,} bytes left out …]\n"
        return control_pictures(head) + note + control_pictures(clean_tail.decode("utf-8", "replace"))


_CONTINUATION = bytes(range(0x80, 0xC0))


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

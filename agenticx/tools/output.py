"""What a command printed: head and tail in bounded memory, and its live progress in bounded events."""

from __future__ import annotations

import asyncio
import codecs
from collections import deque
from collections.abc import Callable

from agenticx.tools.visible import tame

__all__ = ["Excerpt", "Progress"]


class Excerpt:
    """The first and the last bytes of an output of any length, and its true size."""

    def __init__(self, head_bytes: int, tail_bytes: int) -> None:
        self._head_bytes = head_bytes
        self._tail_bytes = tail_bytes
        self._head = bytearray()
        self._tail: deque[bytes] = deque()
        self._tail_size = 0
        self.size = 0

    def add(self, chunk: bytes) -> None:
        self.size += len(chunk)
        room = self._head_bytes - len(self._head)
        if room > 0:
            self._head += chunk[:room]
            chunk = chunk[room:]
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
        """What was kept, as text; bytes that are no UTF-8 show as U+FFFD, what was left out as its size."""
        tail = b"".join(self._tail)
        left_out = self.size - len(self._head) - min(len(tail), self._tail_bytes)
        if left_out <= 0:
            return tame((bytes(self._head) + tail).decode("utf-8", "replace"))
        head = codecs.getincrementaldecoder("utf-8")("replace").decode(bytes(self._head))
        kept = tail[-self._tail_bytes :].lstrip(_CONTINUATION)
        note = f"\n[… {left_out:,} of {self.size:,} bytes left out …]\n"
        return tame(head) + note + tame(kept.decode("utf-8", "replace"))


_CONTINUATION = bytes(range(0x80, 0xC0))


class Progress:
    """Gathers output and says it in batches, each bounded and all of them together too."""

    def __init__(
        self, say: Callable[[str], None], *, every: float, batch_chars: int = 4_000, total_chars: int = 100_000
    ) -> None:
        self._say = say
        self._every = every
        self._batch_chars = batch_chars
        self._room = total_chars
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._waiting: list[str] = []
        self._waiting_chars = 0
        self._left_out = 0
        self._timer: asyncio.TimerHandle | None = None

    def add(self, chunk: bytes) -> None:
        """Take in output; it is said `every` real seconds."""
        if self._room <= 0:
            return
        text = tame(self._decoder.decode(chunk))
        kept = text[: self._batch_chars - self._waiting_chars]
        self._left_out += len(text) - len(kept)
        if kept:
            self._waiting.append(kept)
            self._waiting_chars += len(kept)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._every, self.flush)

    def flush(self) -> None:
        """Say what waits."""
        self.stop()
        text = "".join(self._waiting)
        if self._left_out:
            text += f"\n[… {self._left_out:,} characters …]\n"
        self._waiting.clear()
        self._waiting_chars = self._left_out = 0
        self._room -= len(text)
        if text and self._room <= 0:
            text += "\n[… the rest of the output is not shown live …]\n"
        if text:
            self._say(text)

    def stop(self) -> None:
        """Say nothing more by itself."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

"""Lines as bytes (NDJSON): an incremental splitter without I/O, linear in what it is fed."""

from __future__ import annotations

from agenticx.llms._sse import MAX_EVENT_BYTES

__all__ = ["LineParser"]


class LineParser:
    """Turns the bytes of a body, however they are split, into its lines without the empty ones.

    >>> parser = LineParser()
    >>> parser.feed(b'{"a":1}\\r\\n\\n{"b"'), parser.feed(b":2}"), parser.flush()
    ([b'{"a":1}'], [], [b'{"b":2}'])

    Once a line is longer than `max_line_bytes`, `overflowed` is true and nothing more comes out.
    """

    def __init__(self, max_line_bytes: int = MAX_EVENT_BYTES) -> None:
        self.overflowed = False
        self._max = max_line_bytes
        self._open: list[bytes] = []
        self._open_bytes = 0

    @property
    def held(self) -> int:
        """Bytes of the line that has begun and not ended."""
        return self._open_bytes

    def feed(self, data: bytes) -> list[bytes]:
        """The lines that `data` completes, in order."""
        head, newline, rest = data.rpartition(b"\n")
        lines: list[bytes] = []
        if newline:
            lines = b"".join([*self._open, head]).split(b"\n")
            self._open.clear()
            self._open_bytes = 0
        self._hold(rest)
        self.overflowed = self.overflowed or any(len(line) > self._max for line in lines)
        return [] if self.overflowed else [line for line in map(bytes.strip, lines) if line]

    def flush(self) -> list[bytes]:
        """The line that the end of the body left open, if any."""
        line = b"".join(self._open).strip()
        return [line] if line and not self.overflowed else []

    def _hold(self, piece: bytes) -> None:
        self._open_bytes += len(piece)
        if self._open_bytes > self._max:
            self.overflowed = True
            self._open.clear()
        elif piece:
            self._open.append(piece)

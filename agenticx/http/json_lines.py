"""Lines as bytes (NDJSON): an incremental splitter without I/O, linear in its input."""

from __future__ import annotations

from agenticx.http.sse import MAX_EVENT_BYTES

__all__ = ["LineParser"]


class LineParser:
    """A parser of the bytes of a body, however they are split, into its lines without the empty ones.

    >>> parser = LineParser()
    >>> parser.feed(b'{"a":1}\\r\\n\\n{"b"'), parser.feed(b":2}"), parser.flush()
    ([b'{"a":1}'], [], [b'{"b":2}'])

    Once a line is longer than `max_line_bytes`, `overflowed` is true and no more lines are returned.
    """

    def __init__(self, max_line_bytes: int = MAX_EVENT_BYTES) -> None:
        self.overflowed = False
        self._max_bytes = max_line_bytes
        self._partial_line: list[bytes] = []
        self._partial_bytes = 0

    @property
    def buffered_bytes(self) -> int:
        """Bytes of the line that is not complete yet."""
        return self._partial_bytes

    def feed(self, data: bytes) -> list[bytes]:
        """Return the lines that `data` completes, in order."""
        head, newline, rest = data.rpartition(b"\n")
        lines: list[bytes] = []
        if newline:
            lines = b"".join([*self._partial_line, head]).split(b"\n")
            self._partial_line.clear()
            self._partial_bytes = 0
        self._add_partial(rest)
        self.overflowed = self.overflowed or any(len(line) > self._max_bytes for line in lines)
        return [] if self.overflowed else [line for line in map(bytes.strip, lines) if line]

    def flush(self) -> list[bytes]:
        """Return the line that the end of the body left open, if any."""
        line = b"".join(self._partial_line).strip()
        return [line] if line and not self.overflowed else []

    def _add_partial(self, fragment: bytes) -> None:
        self._partial_bytes += len(fragment)
        if self._partial_bytes > self._max_bytes:
            self.overflowed = True
            self._partial_line.clear()
        elif fragment:
            self._partial_line.append(fragment)

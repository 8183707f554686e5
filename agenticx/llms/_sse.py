"""Server-sent events as bytes: an incremental parser without I/O, linear in what it is fed.

It follows the WHATWG algorithm for `data` and ignores `event`, `id` and `retry`, which no provider needs.
Known differences:

1. `flush` hands out an event that the end of the body left open. The specification drops it, but servers do end
   with `data: [DONE]` and no blank line; whoever calls `flush` judges whether what it gives is whole.
2. A field named `error` counts as `data`: older llama.cpp servers report a failure as `error: {…}`.
3. Lines that begin like JSON, which the specification ignores, come out as a `Stray`: proxies and Google put an error
   that comes late into the body as it is. It is for the caller to see whether it is one.
4. Payloads stay bytes. Line ends are ASCII, so UTF-8 split between reads needs no care here.
"""

from __future__ import annotations

__all__ = ["MAX_EVENT_BYTES", "SseParser", "Stray"]

MAX_EVENT_BYTES = 8 * 1024 * 1024
"""Longest event held in memory; no provider's comes near it."""

_LINE_OVERHEAD = 64
_BOM = b"\xef\xbb\xbf"
_JSON_BEGINS = (b"{", b"[")
_JSON_GOES_ON = (*_JSON_BEGINS, b"}", b"]", b" ", b"\t", b'"')


class Stray(bytes):
    """Neighbouring lines of a body that are no fields of an event and look like JSON."""


class SseParser:
    """Turns the bytes of a body, however they are split, into the payloads of its events.

    >>> parser = SseParser()
    >>> parser.feed(b"data: one\\n\\nda")
    [b'one']
    >>> parser.feed(b"ta:two\\r\\n\\r\\n")
    [b'two']

    Once an event is longer than `max_event_bytes`, `overflowed` is true and nothing more comes out.
    """

    def __init__(self, max_event_bytes: int = MAX_EVENT_BYTES) -> None:
        self.overflowed = False
        self._max = max_event_bytes
        self._open_line: list[bytes] = []
        self._open_bytes = 0
        self._data: list[bytes] = []
        self._data_bytes = 0
        self._stray: list[bytes] = []
        self._after_cr = False
        self._at_start = True

    @property
    def held(self) -> int:
        """Bytes of the event that has begun and not ended."""
        return self._open_bytes + self._data_bytes

    def feed(self, data: bytes) -> list[bytes]:
        """The payloads of all events that `data` completes, in order."""
        if self._after_cr:
            self._after_cr = not data
            data = data.removeprefix(b"\n")
        if b"\n" not in data and b"\r" not in data:
            self._hold(data)
            return []
        if self._open_line:
            data = b"".join([*self._open_line, data])
            self._open_line.clear()
            self._open_bytes = 0
        lines = data.splitlines()
        last = data[-1:]
        self._after_cr = last == b"\r"
        rest = b"" if last in (b"\n", b"\r") else lines.pop()
        events = self._take(lines)
        self._hold(rest)
        return events

    def flush(self) -> list[bytes]:
        """The payload of the event that the end of the body left open, if any."""
        return self._take([*b"".join(self._open_line).splitlines(), b""])

    def _take(self, lines: list[bytes]) -> list[bytes]:
        if self._at_start:
            self._at_start = False
            lines[0] = lines[0].removeprefix(_BOM)
        events: list[bytes] = []
        if self.overflowed:
            return events
        data, stray = self._data, self._stray
        for line in lines:
            if not line:
                if data:
                    events.append(data[0] if len(data) == 1 else b"\n".join(data))
                    data.clear()
                if stray:
                    events.append(self._strayed())
                self._data_bytes = 0
                continue
            if line.startswith(b"data: ") and not stray:
                data.append(line[6:])
            elif not self._take_rare(line, events):
                continue
            self._data_bytes += len(line) + _LINE_OVERHEAD
            if self._data_bytes > self._max:
                self.overflowed = True
                data.clear()
                stray.clear()
                break
        return events

    def _take_rare(self, line: bytes, events: list[bytes]) -> bool:
        """Take any other line; whether it is held, or too long to be passed over."""
        if self._stray and not line.startswith(_JSON_GOES_ON):
            events.append(self._strayed())
        if (value := _field_value(line)) is not None:
            self._data.append(value)
        elif line.startswith(_JSON_GOES_ON if self._stray else _JSON_BEGINS):
            self._stray.append(line)
        else:
            return len(line) > self._max
        return True

    def _strayed(self) -> Stray:
        stray = Stray(b"\n".join(self._stray))
        self._stray.clear()
        return stray

    def _hold(self, piece: bytes) -> None:
        if not piece or self.overflowed:
            return
        self._open_line.append(piece)
        self._open_bytes += len(piece)
        if self._open_bytes > self._max:
            self.overflowed = True
            self._open_line.clear()


def _field_value(line: bytes) -> bytes | None:
    name, _, value = line.partition(b":")
    if name not in (b"data", b"error"):
        return None
    return value.removeprefix(b" ")

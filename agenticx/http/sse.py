"""Server-sent events as bytes: an incremental parser without I/O, linear in its input.

It follows the WHATWG algorithm for `data` and ignores `event` and `retry`, which no client of this package needs.
Known differences:

1. `flush` returns an event that the end of the body left open. The specification drops it, but servers do end
   with `data: [DONE]` and no blank line; the caller of `flush` decides whether the payload is whole.
2. A field named `error` counts as `data`: older llama.cpp servers report a failure as `error: {…}`.
3. Lines that begin like JSON, which the specification ignores, are returned as a `StrayJson`: proxies and Google write
   a late error into the body without framing. The caller checks whether it is one.
4. Payloads stay bytes. Line ends are ASCII, so UTF-8 split between reads needs no care here.
5. An `id` is that of its own event only: the next one without `id` is a plain payload.
"""

from __future__ import annotations

__all__ = ["MAX_EVENT_BYTES", "IdentifiedEvent", "SseParser", "StrayJson"]

MAX_EVENT_BYTES = 8 * 1024 * 1024
"""Longest event held in memory; the events of all known providers are far shorter."""

_LINE_OVERHEAD = 64
_BOM = b"\xef\xbb\xbf"
_JSON_STARTS = (b"{", b"[")
_JSON_CONTINUATIONS = (*_JSON_STARTS, b"}", b"]", b" ", b"\t", b'"')


class StrayJson(bytes):
    """Adjacent lines of a body that are not fields of an event and look like JSON."""


class IdentifiedEvent(bytes):
    """The payload of an event with an `id` field."""

    id: bytes


class SseParser:
    """A parser of the bytes of a body, however they are split, into the payloads of its events.

    >>> parser = SseParser()
    >>> parser.feed(b"data: one\\n\\nda")
    [b'one']
    >>> parser.feed(b"ta:two\\r\\n\\r\\n")
    [b'two']

    Once an event is longer than `max_event_bytes`, `overflowed` is true and no more events are returned.
    """

    def __init__(self, max_event_bytes: int = MAX_EVENT_BYTES) -> None:
        self.overflowed = False
        self._max_bytes = max_event_bytes
        self._partial_line: list[bytes] = []
        self._partial_bytes = 0
        self._data: list[bytes] = []
        self._data_bytes = 0
        self._stray: list[bytes] = []
        self._id: bytes | None = None
        self._after_cr = False
        self._at_start = True

    @property
    def buffered_bytes(self) -> int:
        """Bytes of the event that is not complete yet."""
        return self._partial_bytes + self._data_bytes

    def feed(self, data: bytes) -> list[bytes]:
        """Return the payloads of all events that `data` completes, in order."""
        if self._after_cr:
            self._after_cr = not data
            data = data.removeprefix(b"\n")
        if b"\n" not in data and b"\r" not in data:
            self._add_partial(data)
            return []
        if self._partial_line:
            data = b"".join([*self._partial_line, data])
            self._partial_line.clear()
            self._partial_bytes = 0
        lines = data.splitlines()
        last = data[-1:]
        self._after_cr = last == b"\r"
        rest = b"" if last in (b"\n", b"\r") else lines.pop()
        events = self._parse_lines(lines)
        self._add_partial(rest)
        return events

    def flush(self) -> list[bytes]:
        """Return the payload of the event that the end of the body left open, if any."""
        return self._parse_lines([*b"".join(self._partial_line).splitlines(), b""])

    def _parse_lines(self, lines: list[bytes]) -> list[bytes]:
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
                    payload = data[0] if len(data) == 1 else b"\n".join(data)
                    events.append(payload if self._id is None else _identified(payload, self._id))
                    data.clear()
                if stray:
                    events.append(self._take_stray())
                self._id = None
                self._data_bytes = 0
                continue
            if line.startswith(b"data: ") and not stray:
                data.append(line[6:])
            elif not self._parse_other_line(line, events):
                continue
            self._data_bytes += len(line) + _LINE_OVERHEAD
            if self._data_bytes > self._max_bytes:
                self.overflowed = True
                data.clear()
                stray.clear()
                break
        return events

    def _parse_other_line(self, line: bytes, events: list[bytes]) -> bool:
        """Parse a line that is not plain `data`; return True if its length counts towards the limit of the event."""
        if self._stray and not line.startswith(_JSON_CONTINUATIONS):
            events.append(self._take_stray())
        if (value := _field_value(line)) is not None:
            self._data.append(value)
        elif line.startswith(b"id:"):
            self._id = line[3:].removeprefix(b" ")
        elif line.startswith(_JSON_CONTINUATIONS if self._stray else _JSON_STARTS):
            self._stray.append(line)
        else:
            return len(line) > self._max_bytes
        return True

    def _take_stray(self) -> StrayJson:
        stray = StrayJson(b"\n".join(self._stray))
        self._stray.clear()
        return stray

    def _add_partial(self, fragment: bytes) -> None:
        if not fragment or self.overflowed:
            return
        self._partial_line.append(fragment)
        self._partial_bytes += len(fragment)
        if self._partial_bytes > self._max_bytes:
            self.overflowed = True
            self._partial_line.clear()


def _identified(payload: bytes, id_: bytes) -> IdentifiedEvent:
    event = IdentifiedEvent(payload)
    event.id = id_
    return event


def _field_value(line: bytes) -> bytes | None:
    name, _, value = line.partition(b":")
    if name not in (b"data", b"error"):
        return None
    return value.removeprefix(b" ")

"""The body of a reply as JSON objects: one per event or line, or a single one where the server does not stream."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any, Protocol, cast

from pydantic_core import from_json

from agenticx.errors import ModelError
from agenticx.llms._sse import MAX_EVENT_BYTES, SseParser
from agenticx.llms._values import cleaned

__all__ = ["Frames", "JsonEvents", "malformed"]

_SNIFFED_BYTES = 1024
_BOM = b"\xef\xbb\xbf"


class Frames(Protocol):
    """What cuts a body into the texts of its events: `SseParser` or `LineParser`."""

    overflowed: bool

    def feed(self, data: bytes, /) -> list[bytes]: ...

    def flush(self) -> list[bytes]: ...


class JsonEvents:
    """Bytes in, `(object, bytes it took)` out. `is_whole` says that the body is one object, which comes at the end.

    `[DONE]` is no object and skipped; where it `closes` the body nothing comes out behind it, and `closed` says so.
    Numbers that are not finite stay what they are: arguments with one in them are never taken for others.

    Iterating raises `ModelError` at what is no JSON object, after everything before it was handed out. `who` names
    the provider in it. Without `frames` the events are server-sent ones.
    """

    def __init__(self, *, who: str, frames: Frames | None = None, closes: bool = False) -> None:
        self.is_whole = False
        self.closed = False
        self._closes = closes
        self._who = who
        self._frames: Frames = frames or SseParser()
        self._head: bytes | None = b"" if frames is None else None
        self._body = bytearray()

    def feed(self, data: bytes) -> Iterator[tuple[dict[str, Any], int]]:
        """The objects that `data` completes."""
        if self._head is not None:
            data = self._sniff(data)
        if self.is_whole:
            self._body += data
            if len(self._body) > MAX_EVENT_BYTES:
                raise malformed("it is longer than any reply may be", who=self._who)
            return
        yield from self._objects(self._frames.feed(data))
        if self._frames.overflowed:
            raise malformed("an event is longer than any reply may be", who=self._who)

    def end(self) -> Iterator[tuple[dict[str, Any], int]]:
        """What the clean end of the body completes; an event that was cut brings nothing."""
        if self.is_whole:
            yield from self._objects([bytes(self._body)])
            return
        rest = (self._frames.feed(self._head) if self._head else []) + self._frames.flush()
        try:
            yield from self._objects(rest)
        except ModelError:
            return

    def _sniff(self, data: bytes) -> bytes:
        """Decide by the first visible byte: no line of an event stream begins with a brace."""
        head = (self._head or b"") + data
        visible = head.removeprefix(_BOM).lstrip()
        if (not visible or _BOM.startswith(head)) and len(head) < _SNIFFED_BYTES:
            self._head = head
            return b""
        self._head = None
        self.is_whole = visible[:1] == b"{"
        return visible if self.is_whole else head

    def _objects(self, payloads: Iterable[bytes]) -> Iterator[tuple[dict[str, Any], int]]:
        for payload in payloads:
            try:
                value = from_json(payload)
            except ValueError:
                word = payload.strip()
                if word == b"[DONE]" and self._closes:
                    self.closed = True
                    return
                if word in (b"", b"[DONE]"):
                    continue
                value = self._lenient(payload)
            if type(value) is not dict:
                raise malformed(f"an event is {type(value).__name__}, not an object", who=self._who)
            yield cast("dict[str, Any]", value), len(payload)

    def _lenient(self, payload: bytes) -> object:
        """What the fast parser refuses and is right all the same: lone surrogates, bytes that are not UTF-8."""
        try:
            return cleaned(json.loads(payload.decode("utf-8-sig", "replace")))
        except ValueError as exc:
            raise malformed(f"an event is not JSON ({exc})", who=self._who) from exc
        except RecursionError as exc:
            raise malformed("an event is nested too deeply", who=self._who) from exc


def malformed(what: str, *, who: str) -> ModelError:
    """The error for a reply that breaks its provider's own protocol."""
    return ModelError(
        f"{who} sent a malformed reply: {what}", code="provider.bad_reply", provider_type="protocol_error"
    )

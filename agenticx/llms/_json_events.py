"""The body of a reply as JSON objects: one per event or line; one, or a list of them, where the server does not stream.

An error that stands bare between events or behind them comes out like one; other bare text is none of our business.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any, Protocol, cast

from pydantic_core import from_json

from agenticx.errors import ModelError
from agenticx.llms._failures import complaint_in
from agenticx.llms._limits import MAX_PARSED_BYTES, MAX_WIRE_BYTES
from agenticx.llms._sse import MAX_EVENT_BYTES, SseParser, Stray
from agenticx.llms._values import MAX_DEPTH, cleaned, object_of
from agenticx.llms._weight import parsed_bytes
from agenticx.strict_json import is_nested_deeper

__all__ = ["Frames", "JsonEvents", "malformed"]

_SNIFFED_BYTES = 1024
_LIGHT_BYTES = 64 * 1024  # no event this short is too heavy
_BOM = b"\xef\xbb\xbf"


class Frames(Protocol):
    """What cuts a body into the texts of its events: `SseParser` or `LineParser`."""

    overflowed: bool

    @property
    def held(self) -> int: ...

    def feed(self, data: bytes, /) -> list[bytes]: ...

    def flush(self) -> list[bytes]: ...


class JsonEvents:
    """Bytes in, objects out. `is_whole` says that the body is one object or a list of them, which come at the end.

    `[DONE]` is no object and skipped; where it `closes` the body nothing comes out behind it, and `closed` says so.
    Numbers that are not finite stay what they are: arguments with one in them are never taken for others.

    Iterating raises `ModelError` at what is no JSON object, after everything before it was handed out. `who` names
    the provider in it. Without `frames` the events are server-sent ones. `arguments` is what the arguments of a call
    are called: where they are an object, a key that it names twice is kept (`_values.json_text` writes it out).
    """

    def __init__(self, *, who: str, frames: Frames | None = None, closes: bool = False, arguments: str = "") -> None:
        self.is_whole = False
        self.closed = False
        self._closes = closes
        self._who = who
        self._frames: Frames = frames or SseParser()
        self._head: bytes | None = b"" if frames is None else None
        self._body = bytearray()
        self._taken = 0
        self._name = f'"{arguments}"'.encode() if arguments else None
        self._named_object = re.compile(rb'"%b"\s*:\s*\{\s*"' % arguments.encode())

    @property
    def held(self) -> int:
        """Bytes that were fed and that no object came of yet."""
        return len(self._body) if self.is_whole else self._frames.held

    def feed(self, data: bytes) -> Iterator[dict[str, Any]]:
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

    def end(self) -> Iterator[dict[str, Any]]:
        """What the clean end of the body completes; an event that was cut brings nothing."""
        if self.is_whole:
            body, self._body = bytes(self._body), bytearray()
            yield from self._objects([body])
            return
        rest = (self._frames.feed(self._head) if self._head else []) + self._frames.flush()
        try:
            yield from self._objects(rest)
        except ModelError:
            return

    def _sniff(self, data: bytes) -> bytes:
        """Decide by the first visible byte: no line of an event stream begins with a brace or bracket."""
        head = (self._head or b"") + data
        visible = head.removeprefix(_BOM).lstrip()
        if (not visible or _BOM.startswith(head)) and len(head) < _SNIFFED_BYTES:
            self._head = head
            return b""
        self._head = None
        self.is_whole = visible[:1] in (b"{", b"[")
        return visible if self.is_whole else head

    def _objects(self, payloads: Iterable[bytes]) -> Iterator[dict[str, Any]]:
        for payload in payloads:
            self._taken += len(payload)
            if self._taken > MAX_WIRE_BYTES:
                raise malformed("it is longer than any reply may be", who=self._who)
            if len(payload) > _LIGHT_BYTES and parsed_bytes(payload) > MAX_PARSED_BYTES:
                raise malformed("an event holds more than any reply may", who=self._who)
            if type(payload) is Stray:
                if (error := _bare_error(payload)) is not None:
                    yield error
                continue
            try:
                value: object = self._lenient(payload) if self._has_object(payload) else from_json(payload)
            except ValueError:
                word = payload.strip()
                if word == b"[DONE]" and self._closes and not self.is_whole:
                    self.closed = True
                    return
                if word in (b"", b"[DONE]"):
                    continue
                value = self._lenient(payload)
            if isinstance(value, list) and self.is_whole:
                yield from map(self._object, cast("list[object]", value))
            else:
                yield self._object(cast("object", value))

    def _has_object(self, payload: bytes) -> bool:
        """Whether arguments may be an object in it, and not an empty one."""
        if self._name is None:
            return False
        if b"\\u006" in payload or b"\\u007" in payload:  # a letter that needs no escape: the name may be written so
            return True
        return self._name in payload and bool(self._named_object.search(payload))

    def _object(self, value: object) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise malformed(f"an event is {type(value).__name__}, not an object", who=self._who)
        return cast("dict[str, Any]", value)

    def _lenient(self, payload: bytes) -> object:
        """What the fast parser refuses or makes less of: lone surrogates, bytes that are no UTF-8, keys named twice."""
        text = payload.decode("utf-8-sig", "replace")
        if is_nested_deeper(text, MAX_DEPTH):
            raise malformed("an event is nested too deeply", who=self._who)
        try:
            return cleaned(json.loads(text, object_pairs_hook=object_of))
        except ValueError as exc:
            raise malformed(f"an event is not JSON ({exc})", who=self._who) from exc


def _bare_error(text: bytes) -> dict[str, Any] | None:
    """The error that stands in a body without being an event, None if it is none."""
    try:
        value: object = from_json(text)
    except ValueError:
        return None
    if isinstance(value, list):
        value = next(iter(cast("list[object]", value)), None)
    if not isinstance(value, dict) or complaint_in(fields := cast("dict[str, Any]", value)) is None:
        return None
    return fields


def malformed(what: str, *, who: str) -> ModelError:
    """The error for a reply that breaks its provider's own protocol."""
    return ModelError(
        f"{who} sent a malformed reply: {what}", code="provider.bad_reply", provider_type="protocol_error"
    )

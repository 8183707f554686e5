"""Parsing of a reply's body into JSON objects.

A stream has one object per event or line; a body that is not streamed is one object or a list of them. An unframed
error between or after events is returned like an event; other unframed text is ignored.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from typing import Any, Protocol, cast

from pydantic_core import from_json

from agenticx.errors import ModelError
from agenticx.http.sse import MAX_EVENT_BYTES, SseParser, StrayJson
from agenticx.llms.json_values import MAX_DEPTH, cleaned, object_from_pairs
from agenticx.llms.memory_estimate import estimate_parsed_bytes
from agenticx.llms.reply_limits import MAX_PARSED_BYTES, MAX_WIRE_BYTES
from agenticx.llms.transport.errors import find_error
from agenticx.strict_json import is_nested_deeper

__all__ = ["FrameParser", "JsonEventParser", "malformed_reply"]

_MAX_SNIFFED_BYTES = 1024
_UNCHECKED_BYTES = 64 * 1024  # an event this short never needs too much memory
_BOM = b"\xef\xbb\xbf"


class FrameParser(Protocol):
    """A parser that splits a body into the payloads of its events: `SseParser` or `LineParser`."""

    overflowed: bool

    @property
    def buffered_bytes(self) -> int: ...

    def feed(self, data: bytes, /) -> list[bytes]: ...

    def flush(self) -> list[bytes]: ...


class JsonEventParser:
    """An incremental parser of a body's bytes into JSON objects.

    `is_json_body` is true if the body is one object or a list of objects; they are returned at the end. `[DONE]` is no
    object and skipped; with `done_marker_ends` nothing after it is returned, and `closed` becomes true.
    Numbers that are not finite are kept, so that arguments with such a number are never taken for others.

    At a payload that is no JSON object `error` is set, and everything before it is returned; `label` names the provider
    in it. `buffered_bytes` counts the bytes that were fed and are not parsed yet. Without `frames` the body is parsed
    as server-sent events. `arguments_key` is the key of a call's arguments: where they are an object, duplicate keys in
    it are kept (`json_values.json_text` writes all of them).
    """

    def __init__(
        self, *, label: str, frames: FrameParser | None = None, done_marker_ends: bool = False, arguments_key: str = ""
    ) -> None:
        self.is_json_body = False
        self.closed = False
        self.error: ModelError | None = None
        self.buffered_bytes = 0
        self._done_marker_ends = done_marker_ends
        self._label = label
        self._frames: FrameParser = frames or SseParser()
        self._sniffed: bytes | None = b"" if frames is None else None
        self._body = bytearray()
        self._payload_bytes = 0
        self._arguments_key = f'"{arguments_key}"'.encode() if arguments_key else None
        self._arguments_object = re.compile(rb'"%b"\s*:\s*\{\s*"' % arguments_key.encode())

    def feed(self, data: bytes) -> list[dict[str, Any]]:
        """Return the objects that `data` completes."""
        if self._sniffed is not None:
            data = self._sniff(data)
        if self.is_json_body:
            self._body += data
            self.buffered_bytes = len(self._body)
            if self.buffered_bytes > MAX_EVENT_BYTES:
                self.error = malformed_reply(f"it has more than {MAX_EVENT_BYTES} bytes", label=self._label)
            return []
        payloads = self._frames.feed(data)
        self.buffered_bytes = self._frames.buffered_bytes
        objects = self._parse(payloads)
        if self._frames.overflowed and self.error is None:
            self.error = malformed_reply("an event is longer than any reply may be", label=self._label)
        return objects

    def end(self) -> list[dict[str, Any]]:
        """Return the objects that the clean end of the body completes; a truncated event is dropped."""
        if self.is_json_body:
            body, self._body = bytes(self._body), bytearray()
            return self._parse([body])
        objects = self._parse((self._frames.feed(self._sniffed) if self._sniffed else []) + self._frames.flush())
        self.error = None
        return objects

    def _sniff(self, data: bytes) -> bytes:
        """Detect a JSON body by its first visible byte: no line of an event stream begins with a brace or bracket."""
        head = (self._sniffed or b"") + data
        visible = head.removeprefix(_BOM).lstrip()
        if (not visible or _BOM.startswith(head)) and len(head) < _MAX_SNIFFED_BYTES:
            self._sniffed = head
            return b""
        self._sniffed = None
        self.is_json_body = visible[:1] in (b"{", b"[")
        return visible if self.is_json_body else head

    def _parse(self, payloads: Iterable[bytes]) -> list[dict[str, Any]]:
        """Return the objects of the payloads up to the first invalid one; set `error` for that."""
        objects: list[dict[str, Any]] = []
        try:
            self._parse_into(objects, payloads)
        except ModelError as exc:
            self.error = exc
        except RecursionError:
            self.error = malformed_reply("an event is nested too deeply", label=self._label)
        return objects

    def _parse_into(self, objects: list[dict[str, Any]], payloads: Iterable[bytes]) -> None:
        for payload in payloads:
            self._payload_bytes += len(payload)
            if self._payload_bytes > MAX_WIRE_BYTES:
                raise malformed_reply("it is longer than any reply may be", label=self._label)
            if len(payload) > _UNCHECKED_BYTES and estimate_parsed_bytes(payload) > MAX_PARSED_BYTES:
                raise malformed_reply("an event holds more than any reply may", label=self._label)
            if type(payload) is StrayJson:
                objects += _bare_errors(payload)
                continue
            try:
                value: object = (
                    self._parse_leniently(payload) if self._may_hold_arguments(payload) else from_json(payload)
                )
            except ValueError:
                word = payload.strip()
                if word == b"[DONE]" and self._done_marker_ends and not self.is_json_body:
                    self.closed = True
                    return
                if word in (b"", b"[DONE]"):
                    continue
                value = self._parse_leniently(payload)
            for item in cast("list[object]", value) if self.is_json_body and isinstance(value, list) else (value,):
                objects.append(self._checked_object(item))

    def _may_hold_arguments(self, payload: bytes) -> bool:
        """Return whether the payload may contain a call's arguments as a non-empty object."""
        if self._arguments_key is None:
            return False
        if b"\\u006" in payload or b"\\u007" in payload:  # a letter that needs no escape: the name may be written so
            return True
        return self._arguments_key in payload and bool(self._arguments_object.search(payload))

    def _checked_object(self, value: object) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise malformed_reply(f"an event is {type(value).__name__}, not an object", label=self._label)
        return cast("dict[str, Any]", value)

    def _parse_leniently(self, payload: bytes) -> object:
        """Parse what the fast parser refuses or loses: lone surrogates, invalid UTF-8, duplicate keys."""
        text = payload.decode("utf-8-sig", "replace")
        if is_nested_deeper(text, MAX_DEPTH):
            raise malformed_reply("an event is nested too deeply", label=self._label)
        try:
            return cleaned(json.loads(text, object_pairs_hook=object_from_pairs))
        except ValueError as exc:
            reason = str(exc) if isinstance(exc, json.JSONDecodeError) else "a number in it has too many digits"
            raise malformed_reply(f"an event is not JSON ({reason})", label=self._label) from exc


def _bare_errors(text: bytes) -> Sequence[dict[str, Any]]:
    """Return the error in unframed text of a body; empty if it is none."""
    try:
        value: object = from_json(text)
    except ValueError:
        return ()
    if isinstance(value, list):
        value = next(iter(cast("list[object]", value)), None)
    if not isinstance(value, dict) or find_error(fields := cast("dict[str, Any]", value)) is None:
        return ()
    return (fields,)


def malformed_reply(detail: str, *, label: str) -> ModelError:
    """Return the error for a reply that violates its provider's own protocol."""
    return ModelError(
        f"{label} sent a malformed reply: {detail}", code="provider.bad_reply", provider_type="protocol_error"
    )

"""Events of Gemini streams, and the parser that reads them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from agenticx.errors import ModelError
from agenticx.llms import Reply
from agenticx.llms.wires.gemini._reply import GeminiReplyParser
from tests.support.wires.replies import parse_reply
from tests.support.wires.replies import sse as events


def read(chunks: Iterable[bytes], **options: Any) -> tuple[Reply, ModelError | None]:
    """Return the reply in a body that arrives in these chunks and ends cleanly."""
    return parse_reply(GeminiReplyParser(label="test", model="m", **options), chunks)


def sse(*payloads: Any) -> bytes:
    return events(*payloads, end="\r\n\r\n")


def content_event(*parts: dict[str, Any], finish: str | None = None, **fields: Any) -> dict[str, Any]:
    candidate = {"content": {"role": "model", "parts": list(parts)}, **({"finishReason": finish} if finish else {})}
    return {"candidates": [candidate], **fields}


def call_part(name: str | None = None, **fields: Any) -> dict[str, Any]:
    return {"functionCall": ({"name": name} if name else {}) | fields}


def argument_part(path: str, value: Any, *, more: bool = True) -> dict[str, Any]:
    kind = {str: "stringValue", bool: "boolValue", type(None): "nullValue"}.get(type(value), "numberValue")
    return call_part(partialArgs=[{"jsonPath": path, kind: value, "willContinue": more}], willContinue=True)


STOP = content_event({"text": ""}, finish="STOP")

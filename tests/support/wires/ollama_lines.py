"""Lines of Ollama replies, and the parser that reads them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from agenticx.errors import ModelError
from agenticx.llms import Reply
from tests.support.wires.replies import parse_reply
from tests.support.wires.wires import WIRES


def read(chunks: Iterable[bytes]) -> tuple[Reply, ModelError | None]:
    """Return the reply in a body that arrives in these chunks and ends cleanly."""
    return parse_reply(WIRES["ollama"].parser("m"), chunks)


def lines(*events: Any) -> bytes:
    return b"".join((e if isinstance(e, str) else json.dumps(e)).encode() + b"\n" for e in events)


def message_line(content: str = "", **fields: Any) -> dict[str, Any]:
    """Return a line as the server sends it."""
    message = {"role": "assistant", "content": content, **fields}
    return {"model": "m", "created_at": "2026-11-21T10:00:00Z", "message": message, "done": False}


def tool_call(name: str, arguments: Any, **fields: Any) -> dict[str, Any]:
    return {"function": {"index": 0, "name": name, "arguments": arguments}, **fields}


def last_line(reason: str | None = "stop", **counts: Any) -> dict[str, Any]:
    return {
        **message_line(),
        "done": True,
        "total_duration": 1,
        **({"done_reason": reason} if reason else {}),
        **counts,
    }

"""Chunks of Chat Completions streams, and the parser that reads them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from agenticx.errors import ModelError
from agenticx.llms import Reply
from tests.support.wires.replies import parse_reply
from tests.support.wires.wires import WIRES


def read(chunks: Iterable[bytes]) -> tuple[Reply, ModelError | None]:
    """Return the reply in a body that arrives in these chunks and ends cleanly."""
    return parse_reply(WIRES["openai_chat"].parser("m"), chunks)


def delta(finish_reason: Any = None, **fields: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": fields, "finish_reason": finish_reason}]}


def call_chunk(**fields: Any) -> dict[str, Any]:
    """Return a chunk with one fragment of a tool call; name and arguments are put into its function."""
    function = {name: fields.pop(name) for name in ("name", "arguments") if name in fields}
    return delta(tool_calls=[{**fields, "function": function}])


STOP = delta("stop")


DONE = "[DONE]"


USAGE = {"prompt_tokens": 9, "completion_tokens": 4}

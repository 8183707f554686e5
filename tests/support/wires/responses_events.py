"""Events and items of Responses streams, and the parser that reads them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from agenticx.errors import ModelError
from agenticx.llms import Reply
from tests.support.wires.replies import parse_reply
from tests.support.wires.wires import WIRES


def read(chunks: Iterable[bytes]) -> tuple[Reply, ModelError | None]:
    """Return the reply in a body that arrives in these chunks and ends cleanly."""
    return parse_reply(WIRES["openai_responses"].parser("m"), chunks)


def event(name: str, index: int | None = 0, **fields: Any) -> dict[str, Any]:
    return {"type": f"response.{name}", **({} if index is None else {"output_index": index}), **fields}


def text_delta(words: str, index: int | None = 0, part: int = 0) -> dict[str, Any]:
    return event("output_text.delta", index, content_index=part, delta=words)


def item_added(index: int | None = 0, **item: Any) -> dict[str, Any]:
    return event("output_item.added", index, item=item)


def item_done(index: int | None = 0, **item: Any) -> dict[str, Any]:
    return event("output_item.done", index, item=item)


def arguments_delta(words: str, index: int | None = 0, **fields: Any) -> dict[str, Any]:
    return event("function_call_arguments.delta", index, delta=words, **fields)


def response_ended(status: str = "completed", **fields: Any) -> dict[str, Any]:
    return {"type": f"response.{status}", "response": {"status": status, **fields}}


def message_item(*words: str, **fields: Any) -> dict[str, Any]:
    return {
        "type": "message",
        "role": "assistant",
        "content": [{"type": "output_text", "text": word} for word in words],
        **fields,
    }


def function_call(name: str = "add", call_id: str = "c1", arguments: str = "", **fields: Any) -> dict[str, Any]:
    return {"type": "function_call", "call_id": call_id, "name": name, "arguments": arguments, **fields}


END = response_ended()

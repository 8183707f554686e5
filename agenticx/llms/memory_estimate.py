"""Estimates of the memory that JSON takes, and of the size of a history to send."""

from __future__ import annotations

from collections.abc import Sequence
from sys import getsizeof
from typing import Any, cast

from agenticx.messages import Message
from agenticx.threads import LARGE

__all__ = ["MAX_CHAR_BYTES", "estimate_fragment_bytes", "estimate_parsed_bytes", "history_size", "measure_bytes"]

MAX_CHAR_BYTES = 4
"""Bytes that each letter of a string takes if one of them is an emoji."""

_OBJECT_BYTES = 240  # a dict of one entry
_ARRAY_BYTES = 90
_ITEM_BYTES = 100  # an entry, a number or a short string
_MESSAGE_CHARS = 64  # characters of text that take as long to send as one more message or call


def estimate_parsed_bytes(text: bytes) -> int:
    """Return the most bytes that the parsed `text` takes; commas and brackets in its strings are counted too."""
    letters = len(text) if text.isascii() and b"\\u" not in text else MAX_CHAR_BYTES * len(text)
    return letters + _OBJECT_BYTES * text.count(b"{") + _ARRAY_BYTES * text.count(b"[") + _ITEM_BYTES * text.count(b",")


def estimate_fragment_bytes(fragment: str) -> int:
    """Return the bytes that `fragment` adds to the estimate of a streamed text, each letter counted at full width."""
    letters = MAX_CHAR_BYTES * len(fragment)
    return (
        letters
        + _OBJECT_BYTES * fragment.count("{")
        + _ARRAY_BYTES * fragment.count("[")
        + _ITEM_BYTES * fragment.count(",")
    )


def measure_bytes(value: Any) -> int:
    """Return the bytes that a parsed value takes, with everything in it."""
    total, pending = 0, [value]
    while pending:
        item = pending.pop()
        total += getsizeof(item)
        if type(item) is dict:
            pending.extend(cast("dict[str, Any]", item).values())
            total += _ITEM_BYTES * len(cast("dict[str, Any]", item))
        elif type(item) is list:
            pending.extend(cast("list[Any]", item))
    return total


def history_size(messages: Sequence[Message]) -> int:
    """Return the size of a history for `run_sized`: its characters, and more for each message and call.

    Files and provider state count as large, also if they are small.
    """
    size = _MESSAGE_CHARS * len(messages)
    for message in messages:
        size += len(message.content)
        if message.role == "assistant":
            for call in message.tool_calls:
                size += _MESSAGE_CHARS + len(call.arguments)
            size += LARGE if message.provider_state is not None else 0
        elif message.role != "system" and message.attachments:
            size += LARGE
    return size

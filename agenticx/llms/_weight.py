"""Sizes: the memory that foreign JSON takes, guessed from its text or summed up, and how much there is to send."""

from __future__ import annotations

from collections.abc import Sequence
from sys import getsizeof
from typing import Any, cast

from agenticx.messages import AssistantMessage, Message, UserMessage
from agenticx.threads import LARGE

__all__ = ["WIDEST", "kept_bytes", "parsed_bytes", "parsed_piece_bytes", "sending_size"]

WIDEST = 4
"""Bytes that each letter of a string takes if one of them is an emoji."""

_OBJECT = 240  # a dict of one entry
_ARRAY = 90
_ITEM = 100  # an entry, a number or a short string
_ROW = 64  # characters of text that take as long to send as one more message or call


def parsed_bytes(text: bytes) -> int:
    """What `text` comes to at most; less, where its strings have commas and brackets in them."""
    letters = len(text) if text.isascii() and b"\\u" not in text else WIDEST * len(text)
    return letters + _OBJECT * text.count(b"{") + _ARRAY * text.count(b"[") + _ITEM * text.count(b",")


def parsed_piece_bytes(piece: str) -> int:
    """What `piece` adds to that, if the text comes in pieces and nobody knows yet how wide its letters are."""
    letters = WIDEST * len(piece)
    return letters + _OBJECT * piece.count("{") + _ARRAY * piece.count("[") + _ITEM * piece.count(",")


def kept_bytes(value: Any) -> int:
    """What a parsed value takes, with everything in it."""
    total, todo = 0, [value]
    while todo:
        one = todo.pop()
        total += getsizeof(one)
        if type(one) is dict:
            todo.extend(cast("dict[str, Any]", one).values())
            total += _ITEM * len(cast("dict[str, Any]", one))
        elif type(one) is list:
            todo.extend(cast("list[Any]", one))
    return total


def sending_size(messages: Sequence[Message]) -> int:
    """Return the size of a history for `run_sized`: its characters, and more for each row and call.

    Files and what a provider wants back are large; how large they are is not looked at.
    """
    size = _ROW * len(messages)
    for row in messages:
        size += len(row.content)
        if isinstance(row, AssistantMessage):
            size += sum(_ROW + len(call.arguments) for call in row.tool_calls)
            size += LARGE if row.provider_state is not None else 0
        elif isinstance(row, UserMessage) and row.attachments:
            size += LARGE
    return size

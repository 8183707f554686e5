"""The check whether the user wrote what a call sends to others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

__all__ = ["is_said"]

_MAX_TEXTS = 100


def is_said(arguments: Mapping[str, Any], messages: Sequence[str]) -> bool:
    """Return whether each text and number in the arguments of a call stands in a message of the user, word for word.

    >>> is_said({"url": "https://example.com/a"}, ["Read https://example.com/a, please."])
    True
    >>> is_said({"url": "https://example.com/a?key=s3cret"}, ["Read https://example.com/a"])
    False
    """
    texts = list(dict.fromkeys(_texts_in(arguments)))
    return 0 < len(texts) <= _MAX_TEXTS and all(any(_stands_in(text, one) for one in messages) for text in texts)


def _texts_in(arguments: Mapping[str, Any]) -> Iterator[str]:
    """Yield the texts and numbers of arguments, and the names of members inside of them."""
    pending: list[Any] = list(arguments.values())
    while pending:
        value = pending.pop()
        if isinstance(value, str):
            yield value
        elif isinstance(value, Mapping):
            members = cast("Mapping[Any, Any]", value)
            pending += [*members.keys(), *members.values()]
        elif isinstance(value, list | tuple):
            pending += cast("Sequence[Any]", value)
        elif value is not None and not isinstance(value, bool):
            yield repr(value)


def _stands_in(text: str, message: str) -> bool:
    """Return whether a text stands in a message, not as a part of a longer word or address."""
    if not text.strip():
        return True
    begin = message.find(text)
    while begin >= 0:
        before, after = message[begin - 1 : begin], message[begin + len(text) : begin + len(text) + 1]
        if not (_joins(before, text[0]) or _joins(after, text[-1])):
            return True
        begin = message.find(text, begin + max(len(text), 1))
    return False


def _joins(beside: str, end: str) -> bool:
    return all(char.isalnum() or (char != "" and char in "_@%=&") for char in (beside, end))

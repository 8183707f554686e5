"""The check whether the user wrote what a call sends to others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

__all__ = ["is_written_by_user"]

_MAX_VALUES = 8


def is_written_by_user(arguments: Mapping[str, Any], messages: Sequence[str]) -> bool:
    """Return whether the user wrote each text and number in the arguments of a call, word for word, in a message.

    False for arguments that could tell others something by their number, order or blanks.

    >>> is_written_by_user({"url": "https://example.com/a"}, ["Read https://example.com/a, please."])
    True
    >>> is_written_by_user({"url": "https://example.com/a?key=s3cret"}, ["Read https://example.com/a"])
    False
    """
    values = list(_values_in(arguments))
    texts = [value if isinstance(value, str) else repr(value) for value in values if not _is_flag(value)]
    if not texts or len(values) > _MAX_VALUES or len(set(texts)) < len(texts) or not all(map(str.strip, texts)):
        return False
    return all(any(_stands_in(text, one) for one in messages) for text in texts)


def _values_in(arguments: Mapping[str, Any]) -> Iterator[Any]:
    """Yield the leaf values of arguments, and the names of nested members."""
    pending: list[Any] = list(arguments.values())
    while pending:
        value = pending.pop()
        if isinstance(value, Mapping):
            members = cast("Mapping[Any, Any]", value)
            pending += [*members.keys(), *members.values()]
        elif isinstance(value, list | tuple):
            pending += cast("Sequence[Any]", value)
        else:
            yield value


def _is_flag(value: object) -> bool:
    return value is None or isinstance(value, bool)


def _stands_in(text: str, message: str) -> bool:
    """Return whether a message has the text, and not only as a part of a longer word or address."""
    begin = message.find(text)
    while begin >= 0:
        before, after = message[begin - 1 : begin], message[begin + len(text) : begin + len(text) + 1]
        if not (_joins(before, text[0]) or _joins(after, text[-1])):
            return True
        begin = message.find(text, begin + max(len(text), 1))
    return False


def _joins(beside: str, end: str) -> bool:
    return all(char.isalnum() or (char != "" and char in "_@%=&") for char in (beside, end))

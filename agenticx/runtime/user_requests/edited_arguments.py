"""The arguments that the user gave a call instead of its own, and the note about them for the model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from agenticx.runtime.arguments_preview import preview_arguments

__all__ = ["edited_arguments", "with_edited_arguments"]

_NOTE_CHARS = 1_000


def edited_arguments(
    confirmations: Iterable[tuple[Mapping[str, Any], Mapping[str, Any] | None]],
) -> Mapping[str, Any] | None:
    """Return the arguments with which the user let a call run, None if they are those that were shown first.

    Each confirmation of the call has the arguments that were shown, and those that the user gave instead, if any.

    >>> edited_arguments([({"text": "hi"}, {"text": "bye"}), ({"text": "bye"}, None)])
    {'text': 'bye'}
    """
    first, last = None, None
    for shown, given in confirmations:
        first = shown if first is None else first
        last = last if given is None else given
    return None if last == first else last


def with_edited_arguments(result: str, arguments: Mapping[str, Any]) -> str:
    """Return the result of a call that ran with arguments that the user changed, for a model that made another call.

    >>> with_edited_arguments("kept", {"text": "bye"})
    'The user ran this call with other arguments: {"text": "bye"}\\nkept'
    """
    return f"The user ran this call with other arguments: {preview_arguments(dict(arguments), _NOTE_CHARS)}\n{result}"

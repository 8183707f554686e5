"""Downgrades of a request for servers that refuse its form."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

from agenticx.errors import ModelError

__all__ = ["Downgrade", "find_downgrade"]

_REPORTED_IN_STREAMS = frozenset({"provider.bad_request", "provider.bad_reply"})

T = TypeVar("T")
"""The thing that is downgraded: a request, a request mode, a model."""


@dataclass(frozen=True, slots=True)
class Downgrade(Generic[T]):
    """A change to a request: the pattern of the errors that call for it, the change, and the text that is logged."""

    error_pattern: re.Pattern[str]
    apply: Callable[[T], T]
    log_message: str


def find_downgrade(current: T, error: ModelError, candidates: Iterable[Downgrade[T]]) -> Downgrade[T] | None:
    """Return the first candidate that matches the server's error and changes `current`, None if there is none.

    Some servers report a refusal inside a response with status 200.
    """
    is_reported = error.status is not None or error.code in _REPORTED_IN_STREAMS
    if not is_reported or error.provider_type == "protocol_error":
        return None
    text = str(error)
    return next(
        (
            downgrade
            for downgrade in candidates
            if downgrade.error_pattern.search(text) and downgrade.apply(current) != current
        ),
        None,
    )

"""Downgrades of a request for servers that refuse its form."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

from agenticx.errors import ModelError

__all__ = ["Downgrade", "find_downgrade", "lists_roles_without"]

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
    if error.status is None and not _is_reported_in_stream(error):
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


def lists_roles_without(role: str) -> str:
    """Return the pattern of a refusal that names the roles of a template or server, among which `role` is not.

    >>> words = re.compile(lists_roles_without("tool"), re.IGNORECASE)
    >>> bool(words.search("Only user, system and assistant roles are supported!"))
    True
    >>> bool(words.search("Only user, assistant and tool roles are supported, got system."))
    False
    """
    words = r"[^.!?]{0,80}"
    return (
        rf"\bonly (?!{words}\b{role}\b{words}\broles?\b){words}\bassistant\b{words}\broles?\b"
        rf"|\broles?\b[^.!?]{{0,40}}\bone of (?!{words}\b{role}\b){words}\bassistant\b"
    )


def _is_reported_in_stream(error: ModelError) -> bool:
    """Return whether the server reported an error without a status, other than a failure of ours or of the network."""
    if error.provider_type is None:
        return error.code in ("provider.bad_request", "provider.bad_reply")
    return error.provider_type != "protocol_error" and error.code in (
        "provider.bad_request",
        "provider.bad_reply",
        "provider.overloaded",
    )

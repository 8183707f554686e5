"""Downgrades of a request for servers that refuse its form."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

from agenticx.errors import ModelError

__all__ = ["Downgrade", "find_downgrade", "refuses_role"]

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


def refuses_role(role: str) -> str:
    """Return the pattern of a refusal of `role`, by its name, a list of the roles that there are, or none.

    >>> words = re.compile(refuses_role("tool"), re.IGNORECASE)
    >>> bool(words.search("Only user, system and assistant roles are supported!"))
    True
    >>> bool(words.search("Only user, assistant and tool roles are supported, got system."))
    False
    """
    quote = r"['\"`]?"
    no = r"(?:(?:is |are )?(?:currently )?(?:not|unsupported|invalid|unknown)\b|(?:is|are)n['’]t\b)"
    name = rf"{quote}(?:user|assistant|model|system|developer|tool|function)\b{quote}"
    then = r"(?:, ?(?:and |or )?| (?:and|or) |/|\| ?)"
    listed = (
        rf"[\[({{]?(?=(?:{name}{then}){{0,6}}{quote}(?:assistant|model)\b)(?!(?:{name}{then}){{0,6}}{quote}{role}\b)"
        rf"{name}(?:{then}{name}){{1,6}}"
    )
    return (
        r"\b(?:unsupported|invalid|unknown|unexpected|unrecogni[sz]ed) (?:message )?role"
        rf"(?::? {quote}(?:roleenum\.)?{role}\b(?!.{{0,3}}after)|(?=[.!'\"`]|\s*$| in (?:the )?messages))"
        rf"|\brole:? {quote}{role}{quote} {no}|\b{role}{quote} role {no}"
        rf"|\bonly (?:the )?{listed} (?:(?:message )?roles?\b|messages (?:are|is) (?:supported|allowed|accepted))"
        r"|(?:\broles?\b[^.!?]{0,30} (?:(?:must|should|can) be|are)(?: in)?|\binput should be|\bone of|\broles?:) "
        rf"{listed}"
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

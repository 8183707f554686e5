"""Checks of the arguments with which a model or an application directs sub-agents."""

from __future__ import annotations

from agenticx.argument_types import check_str
from agenticx.errors import InvalidArguments

__all__ = ["check_text", "check_wait"]

_MAX_CHARS = 200_000


def check_text(name: str, text: str) -> None:
    """Raise `TypeError` for anything but a text, and `InvalidArguments` for a blank one and one that is too long."""
    check_str(name, text)
    if not text.strip():
        raise InvalidArguments(f"{name} must not be blank")
    if len(text) > _MAX_CHARS:
        raise InvalidArguments(f"{name} must have at most {_MAX_CHARS:,} characters, not {len(text):,}")


def check_wait(ids: object, mode: object, timeout: float | None) -> None:
    """Raise `TypeError` for a text as `ids`, `InvalidArguments` for an unknown mode or a negative number of seconds."""
    if isinstance(ids, str):
        raise TypeError(f"ids must be a list of ids, not the text {ids!r}")
    if mode not in ("any", "all"):
        raise InvalidArguments(f"mode must be 'any' or 'all', not {mode!r}")
    if timeout is not None and not timeout >= 0:
        raise InvalidArguments(f"timeout must be 0 or more seconds, not {timeout}")

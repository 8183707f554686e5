"""Checks of the arguments with which a model or an application directs sub-agents."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from agenticx.argument_types import check_sequence, check_str
from agenticx.errors import InvalidArguments

__all__ = ["check_spawn", "check_text"]

_MAX_CHARS = 200_000


def check_text(name: str, text: str) -> None:
    """Raise `TypeError` for anything but a text, and `InvalidArguments` for a blank one and one that is too long."""
    check_str(name, text)
    if not text.strip():
        raise InvalidArguments(f"{name} must not be blank")
    if len(text) > _MAX_CHARS:
        raise InvalidArguments(f"{name} must have at most {_MAX_CHARS:,} characters, not {len(text):,}")


def check_spawn(task: str, name: object, tools: object, model: object, context: object) -> None:
    """Raise `TypeError` for arguments of another type, and `InvalidArguments` as `check_text` does for the task."""
    check_text("task", task)
    check_str("name", name)
    if tools is not None:
        check_sequence("tools", tools, "names of tools")
        for position, tool in enumerate(cast("Sequence[object]", tools)):
            check_str(f"tools[{position}]", tool)
    for optional, value in (("model", model), ("context", context)):
        if value is not None:
            check_str(optional, value)

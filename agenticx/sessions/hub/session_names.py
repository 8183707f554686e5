"""Session names derived from the first message, without a model call."""

from __future__ import annotations

import re

from agenticx.tools.visible import visible

__all__ = ["derive_name"]

_MAX_NAME_CHARS = 60
_MARKS = re.compile(r"^(?:[#>*+-]+\s+|`+\w*\s*$|`+)+|[`\s]+$")


def derive_name(text: str) -> str | None:
    """Return the first line with a letter or digit, shortened at a word; None for a message without one.

    >>> derive_name("\\n## Fix the build\\nIt fails since yesterday.")
    'Fix the build'
    """
    lines = (_MARKS.sub("", " ".join(line.split())) for line in text[:10_000].splitlines())
    line = next((line for line in lines if any(character.isalnum() for character in line)), "")
    return visible(_shorten(line)) or None


def _shorten(line: str) -> str:
    if len(line) <= _MAX_NAME_CHARS:
        return line
    head = line[:_MAX_NAME_CHARS]
    at_a_word = head[: head.rfind(" ")] if " " in head[_MAX_NAME_CHARS // 2 :] else head
    return f"{at_a_word.rstrip(' ,;:.-')}…"

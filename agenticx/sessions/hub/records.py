"""The records of sessions: values of their fields, and names from the first message.

Such a name, made without a model call, is stored with the first event of its turn and announced (`session_changed`)
after the last one. The fact `name_derived` lists names that were not announced yet, so that the next start announces
them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, get_args

from agenticx.runtime import EventType, RuntimeEvent
from agenticx.sessions.store.records import Fact, SessionRecord
from agenticx.tools.permissions import PermissionMode
from agenticx.tools.visible import visible

__all__ = ["MAX_PROMPT_BYTES", "check_fields", "check_system_prompt", "derive_name", "name_announcement"]

MAX_PROMPT_BYTES = 64 * 1024
"""Limit of a session's own system prompt, in bytes of UTF-8."""

_CHANGEABLE = ("name", "model", "permission_mode", "tools", "system_prompt", "pinned", "archived")
_MAX_NAME_CHARS = 60
_MARKS = re.compile(r"^(?:[#>*+-]+\s+|`+\w*\s*$|`+)+|[`\s]+$")


def check_fields(fields: Mapping[str, Any]) -> None:
    """Raise `ValueError` for a field of a record that cannot be changed, or a value that cannot be stored."""
    for name, value in fields.items():
        if name not in _CHANGEABLE:
            raise ValueError(f"{name!r} of a session cannot be changed; these can: {', '.join(_CHANGEABLE)}")
        texts = (value or ()) if name == "tools" else (value,)
        if any(isinstance(text, str) and "\0" in text for text in texts):
            raise ValueError(f"the {name} of a session must not contain the character NUL")
    mode = fields.get("permission_mode", "default")
    if mode not in get_args(PermissionMode):
        raise ValueError(f"unknown permission mode {mode!r}; known modes: {', '.join(get_args(PermissionMode))}")
    if (prompt := fields.get("system_prompt")) is not None:
        check_system_prompt(prompt)


def check_system_prompt(prompt: str) -> str:
    """Return the prompt; raise `ValueError` for one that a session cannot have."""
    size = len(prompt.encode("utf-8", "surrogatepass"))
    if not prompt or size > MAX_PROMPT_BYTES:
        raise ValueError(f"a system prompt must have 1 to {MAX_PROMPT_BYTES} bytes, not {size}; null is the usual one")
    if "\0" in prompt:
        raise ValueError("a system prompt must not contain the character NUL")
    return prompt


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


def name_announcement(derived: Fact, record: SessionRecord) -> tuple[Sequence[RuntimeEvent], Fact]:
    """Return the events that announce a derived name, none if the user gave another one meanwhile, and their fact."""
    announced = Fact(kind="name_announced", key=derived.key, turn_id=derived.turn_id)
    name = derived.data["name"]
    return [RuntimeEvent(EventType.SESSION_CHANGED, {"name": name})] if record.name == name else [], announced

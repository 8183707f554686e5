"""Names that sessions get from their first message, without a model call.

Such a name is stored with the first event of its turn and announced (`session_changed`) after the last one. The fact
`name_derived` lists names that were not announced yet, so that the next start announces them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from agenticx.runtime import EventType, RuntimeEvent
from agenticx.sessions.store.records import Fact, SessionRecord
from agenticx.tools.visible import visible

__all__ = ["derive_name", "name_announcement"]

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


def name_announcement(derived: Fact, record: SessionRecord) -> tuple[Sequence[RuntimeEvent], Fact]:
    """Return the events that announce a derived name, none if the user gave another one meanwhile, and their fact."""
    announced = Fact(kind="name_announced", key=derived.key, turn_id=derived.turn_id)
    name = derived.data["name"]
    return [RuntimeEvent(EventType.SESSION_CHANGED, {"name": name})] if record.name == name else [], announced

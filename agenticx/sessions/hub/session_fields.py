"""The fields of a session's record: their checks, names from the first message, and the active agent.

Such a name, made without a model call, is stored with the first event of its turn and announced (`session_changed`)
after the last one. The fact `name_derived` lists names that were not announced yet, so that the next start announces
them.
"""

from __future__ import annotations

import os
import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, cast, get_args

from agenticx.errors import SettingsError
from agenticx.permissions.verdict import PermissionMode
from agenticx.runtime import EventType, RuntimeEvent
from agenticx.sessions.log.records import Fact, NameAnnounced, NameDerived
from agenticx.sessions.log.session_record import SessionRecord
from agenticx.tools.visible import is_one_line, visible

__all__ = [
    "MAX_NAME_CHARS",
    "MAX_PROMPT_BYTES",
    "WorkspaceGone",
    "check_agent_name",
    "check_fields",
    "check_folder",
    "check_model_name",
    "check_name",
    "check_system_prompt",
    "check_text",
    "derive_name",
    "name_announcement",
    "with_switch",
]

MAX_PROMPT_BYTES = 64 * 1024
"""Limit of a session's own system prompt, in bytes of UTF-8."""

MAX_NAME_CHARS = 200
"""Limit of the name of a session, a model or an agent, in characters."""

_MAX_DERIVED_CHARS = 60
_MARKS = re.compile(r"^(?:[#>*+-]+\s+|`+\w*\s*$|`+)+|[`\s]+$")


class WorkspaceGone(SettingsError):
    """Raised for a turn of a session whose workspace is not a folder any more."""


def check_folder(record: SessionRecord) -> None:
    """Raise `WorkspaceGone` unless the workspace of the session is a folder."""
    if not os.path.isdir(record.workspace):
        raise WorkspaceGone(
            f"session {record.id} works in {record.workspace!r}, which is not a folder any more; `agx sessions move "
            f"{record.id} FOLDER`, or PATCH /api/sessions/{record.id} with a workspace, moves it to another one"
        )


def check_fields(fields: Mapping[str, Any]) -> None:
    """Raise `TypeError` or `ValueError` for an unknown field, or a value that it cannot have."""
    for name, value in fields.items():
        if name not in _CHECKS:
            raise ValueError(f"{name!r} of a session cannot be changed; these can: {', '.join(_CHECKS)}")
        if value is not None or name in _REQUIRED:
            _CHECKS[name](value)


def check_name(name: str) -> str:
    """Return the name; raise `ValueError` for one that a session cannot have."""
    _encode("name", name)
    if len(name) > MAX_NAME_CHARS:
        raise ValueError(f"a name must have at most {MAX_NAME_CHARS} characters, not {len(name)}")
    if not any(char.isprintable() and not char.isspace() for char in name):
        raise ValueError("a name must have a visible character; null means no name")
    if not is_one_line(name) or any(map(_changes_direction, name)):
        raise ValueError("a name must be one line without control characters")
    return name


def check_model_name(name: str) -> str:
    """Return the name of a model; raise `ValueError` for one that no model has."""
    check_text("model", name)
    if not 1 <= len(name) <= MAX_NAME_CHARS:
        raise ValueError(f"the name of a model must have 1 to {MAX_NAME_CHARS} characters, not {len(name)}")
    return name


def check_agent_name(name: str) -> str:
    """Return the name of an agent; raise `ValueError` for one that no agent has."""
    check_text("agent", name)
    if not 1 <= len(name) <= MAX_NAME_CHARS:
        raise ValueError(f"the name of an agent must have 1 to {MAX_NAME_CHARS} characters, not {len(name)}")
    return name


def check_system_prompt(prompt: str) -> str:
    """Return the prompt; raise `ValueError` for one that a session cannot have."""
    size = len(check_text("system_prompt", prompt))
    if not 1 <= size <= MAX_PROMPT_BYTES:
        raise ValueError(f"a system prompt must have 1 to {MAX_PROMPT_BYTES} bytes, not {size}; null is the usual one")
    return prompt


def check_text(field: str, value: object) -> bytes:
    """Return a text as UTF-8; raise `TypeError` or `ValueError` for anything that cannot be stored as one."""
    encoded = _encode(field, value)
    if b"\0" in encoded:
        raise ValueError(f"{field} must not contain the character NUL")
    return encoded


def _encode(field: str, value: object) -> bytes:
    if not isinstance(value, str):
        raise TypeError(f"{field} must be a text, not {type(value).__name__}")
    try:
        return value.encode()
    except UnicodeEncodeError as exc:
        raise ValueError(f"{field} must not contain half of a surrogate pair") from exc


def _check_mode(mode: object) -> None:
    if mode not in get_args(PermissionMode):
        raise ValueError(f"unknown permission mode {mode!r}; known modes: {', '.join(get_args(PermissionMode))}")


def _check_names(field: str, names: object) -> None:
    if isinstance(names, str) or not isinstance(names, Sequence):
        raise TypeError(f"{field} must be a list of names, not {type(names).__name__}")
    for name in cast("Sequence[object]", names):
        check_text(field, name)


def _check_flag(value: object) -> None:
    if not isinstance(value, bool):
        raise TypeError(f"a session is pinned or archived with True or False, not {value!r}")


_CHECKS: Mapping[str, Callable[[Any], object]] = {
    "name": check_name,
    "model": check_model_name,
    "permission_mode": _check_mode,
    "tools": partial(_check_names, "tools"),
    "vaults": partial(_check_names, "vaults"),
    "system_prompt": check_system_prompt,
    "agent": check_agent_name,
    "workspace": partial(check_text, "workspace"),
    "pinned": _check_flag,
    "archived": _check_flag,
}
_REQUIRED = frozenset({"permission_mode", "workspace", "pinned", "archived"})

_DIRECTION_CONTROLS = frozenset({"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"})


def _changes_direction(character: str) -> bool:
    """Return True if the character changes the direction of the text after it."""
    return unicodedata.bidirectional(character) in _DIRECTION_CONTROLS


def derive_name(text: str) -> str | None:
    """Return the first line with a letter or digit, shortened at a word; None for a message without one.

    >>> derive_name("\\n## Fix the build\\nIt fails since yesterday.")
    'Fix the build'
    """
    lines = (_MARKS.sub("", " ".join(line.split())) for line in text[:10_000].splitlines())
    line = next((line for line in lines if any(character.isalnum() for character in line)), "")
    return visible(_shorten(line)) or None


def _shorten(line: str) -> str:
    if len(line) <= _MAX_DERIVED_CHARS:
        return line
    head = line[:_MAX_DERIVED_CHARS]
    at_a_word = head[: head.rfind(" ")] if " " in head[_MAX_DERIVED_CHARS // 2 :] else head
    return f"{at_a_word.rstrip(' ,;:.-')}…"


def with_switch(
    batch: Sequence[RuntimeEvent], record: SessionRecord, *, has_agent: Callable[[str], bool], has_guest: bool
) -> tuple[Sequence[RuntimeEvent], SessionRecord, bool]:
    """Return a batch with the changes of the session's active agent, the record, and whether a guest acts after it.

    The last handoff of the batch decides. A guest is an agent that the hub does not have (`has_agent`), so no later
    process could find it: the record keeps the main agent, and the end of the turn names it. `has_guest` is true if a
    guest acts before the batch.
    """
    events, agent = list(batch), record.agent
    places = [place for place, event in enumerate(events) if event.type is EventType.HANDOFF]
    if places:
        name = events[places[-1]].data["to_agent"]
        has_guest = not has_agent(name)
        agent = None if has_guest else name
        if not has_guest:
            events.insert(places[-1] + 1, _agent_change(name))
        elif record.agent is not None:  # before the handoff, which says who acts now
            events.insert(places[-1], _agent_change(None))
    if has_guest and events[-1].terminal:
        events.insert(len(events) - 1, _agent_change(agent))
        has_guest = False
    return events, replace(record, agent=agent), has_guest


def _agent_change(name: str | None) -> RuntimeEvent:
    return RuntimeEvent(EventType.SESSION_CHANGED, {"agent": name})


def name_announcement(derived: NameDerived, record: SessionRecord) -> tuple[Sequence[RuntimeEvent], Fact]:
    """Return the events that announce a derived name, none if the user gave another one meanwhile, and their fact."""
    announced = NameAnnounced(key=derived.key, turn_id=derived.turn_id)
    change = {"name": derived.name}
    return [RuntimeEvent(EventType.SESSION_CHANGED, change)] if record.name == derived.name else [], announced

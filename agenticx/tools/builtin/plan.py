"""The planning tools of an agent: a to-do list and a scratchpad, stored with the session."""

from __future__ import annotations

from collections import Counter
from typing import Annotated, Literal

from pydantic import ConfigDict, Field
from typing_extensions import TypedDict

from agenticx.errors import ToolError
from agenticx.tools.context import ToolContext
from agenticx.tools.plurals import pluralize
from agenticx.tools.registry import tool

__all__ = ["scratchpad_read", "scratchpad_write", "todo_write"]

_MAX_TODOS = 200
_MAX_KEY_CHARS = 100
_MAX_NOTE_CHARS = 20_000
_MAX_SCRATCHPAD_CHARS = 200_000


class Todo(TypedDict):  # its docstring is part of the schema that the model sees
    """One item; its fields are described where the model reads them."""

    __pydantic_config__ = ConfigDict(extra="forbid")  # type: ignore[misc]

    text: Annotated[str, Field(min_length=1, max_length=1_000)]
    status: Literal["pending", "in_progress", "done"]


# These tools write, so their calls run one after the other and their arguments are never repaired; but they change
# nothing outside the session, so the user is not asked.


@tool(risk="read", read_only=False)
async def todo_write(todos: Annotated[list[Todo], Field(max_length=_MAX_TODOS)], context: ToolContext) -> str:
    """Replace the whole to-do list. Use it for work of several steps and keep it up to date while working.

    Args:
        todos: All items in order, each with its text and its status.
    """
    context.state.todos = [{"text": todo["text"], "status": todo["status"]} for todo in todos]
    if not todos:
        return "The to-do list is empty."
    counts = Counter(todo["status"] for todo in todos)
    summary = ", ".join(f"{counts[status]} {status.replace('_', ' ')}" for status in _STATUSES if counts[status])
    return f"The to-do list has {len(todos)} item{'' if len(todos) == 1 else 's'}: {summary}."


_STATUSES = ("done", "in_progress", "pending")


@tool(risk="read", read_only=False)
async def scratchpad_write(
    key: Annotated[str, Field(min_length=1, max_length=_MAX_KEY_CHARS)],
    content: Annotated[str, Field(max_length=_MAX_NOTE_CHARS)],
    context: ToolContext,
) -> str:
    """Keep a note for later in this conversation. A note of the same key is replaced; an empty one is removed.

    Args:
        key: The name of the note.
        content: The note.
    """
    notes = context.state.scratchpad
    if not content:
        return f"Removed the note {key!r}." if notes.pop(key, None) is not None else f"There is no note {key!r}."
    other_chars = sum(len(note) for name, note in notes.items() if name != key)
    if other_chars + len(content) > _MAX_SCRATCHPAD_CHARS:
        raise ToolError(
            f"the scratchpad holds {_MAX_SCRATCHPAD_CHARS:,} characters at most; remove notes no longer needed"
        )
    notes[key] = content
    return f"Noted under {key!r} ({pluralize(len(content), 'character')})."


@tool(risk="read")
async def scratchpad_read(context: ToolContext, key: str | None = None) -> str:
    """Read a note kept earlier in this conversation; without a key, list the notes there are.

    Args:
        key: The key it was written under.
    """
    notes = context.state.scratchpad
    if key is None:
        return (
            "\n".join(f"{name} ({pluralize(len(note), 'character')})" for name, note in notes.items()) or "(no notes)"
        )
    if key not in notes:
        raise ToolError(f"there is no note {key!r}; notes: {', '.join(map(repr, notes)) or 'none'}")
    return notes[key]

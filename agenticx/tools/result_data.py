"""Details of a result for clients, beside its text: a changed file, the end of a command, what was read."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

from agenticx.messages import clean_text

__all__ = ["CommandEnd", "FileEdit", "FileExtract", "ResultDetails", "details_to_json"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FileEdit:
    """A file that a call has changed: the unified diff, and the numbers of lines that it adds and removes.

    The diff may be cut (`diff_cut`); the numbers are those of the whole one. After its last line the file has
    `unchanged_below` other lines.
    """

    kind: Literal["edit"] = "edit"
    path: str
    diff: str
    added: int
    removed: int
    diff_cut: bool = False
    unchanged_below: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandEnd:
    """A command that ran in the folder `cwd`; `exit_code` is None if it ended in another way, such as by a signal."""

    kind: Literal["command"] = "command"
    exit_code: int | None
    cwd: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FileExtract:
    """The lines of a file that a call has read: `lines` many, from `line_start` on."""

    kind: Literal["read"] = "read"
    path: str
    line_start: int
    lines: int


ResultDetails = FileEdit | CommandEnd | FileExtract


def details_to_json(details: ResultDetails) -> dict[str, Any]:
    """Return the details as `tool_result` has them."""
    fields = asdict(details)
    return {name: clean_text(value) if isinstance(value, str) else value for name, value in fields.items()}

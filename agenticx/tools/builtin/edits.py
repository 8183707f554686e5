"""The tools that change files: write a whole one, edit a piece of one."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agenticx.errors import ToolError
from agenticx.tools.amounts import counted
from agenticx.tools.base import Assessment, ToolContext
from agenticx.tools.builtin.files import file_version, is_binary, open_place
from agenticx.tools.diffs import unified_diff
from agenticx.tools.paths import Place, read_file, replace_file
from agenticx.tools.protected import makes_repository, protected_part, reason_for
from agenticx.tools.registry import tool
from agenticx.tools.visible import visible

__all__ = ["file_edit", "file_write"]

_EDITED_BYTES = 16 * 1024 * 1024
_HINTED_CHARS = 1024 * 1024

# --- file_write -------------------------------------------------------------------------------------------------------


def _assess_write(arguments: Mapping[str, Any], context: ToolContext) -> Assessment:
    place = open_place(arguments["path"], context)
    before = _look(place)
    content: str = arguments["content"]
    lines = content.count("\n") + (not content.endswith("\n") and content != "")
    amount = f"{counted(lines, 'line')}, {counted(len(_encoded(content)), 'byte')}"
    verb = "Create" if before is None else "Overwrite"
    reason = f"It {'creates a file' if before is None else 'replaces the whole file'}: {amount}."
    return _assessment(place, arguments["path"], context, before, f"{verb} {place.relative}?", reason, content)


@tool(risk="write", assess=_assess_write)
async def file_write(path: str, content: str, context: ToolContext) -> str:
    """Create a file, or replace all of an existing one. Missing folders are made. To change a part, use file_edit.

    Args:
        path: The file, relative to the workspace.
        content: What the file holds afterwards, to the last character.
    """
    place = open_place(path, context)
    before = _look(place)
    _refuse_stale(place, before, context, content)
    data = _encoded(content)
    _put(place, before, data, context)
    return f"{'Created' if before is None else 'Overwrote'} {visible(place.relative)} ({counted(len(data), 'byte')})."


# --- file_edit --------------------------------------------------------------------------------------------------------


def _assess_edit(arguments: Mapping[str, Any], context: ToolContext) -> Assessment:
    place = open_place(arguments["path"], context)
    before = _look_closely(place)
    edit = _edited(before, place, arguments["old_text"], arguments["new_text"], arguments.get("replace_all", False))
    reason = f"It changes {'one place' if edit.count == 1 else f'{edit.count:,} places'} of the file."
    return _assessment(place, arguments["path"], context, before, f"Edit {place.relative}?", reason, edit.after)


@tool(risk="write", assess=_assess_edit)
async def file_edit(path: str, old_text: str, new_text: str, context: ToolContext, replace_all: bool = False) -> str:
    """Replace a piece of a text file by another. Give enough of the old text that it occurs just once.

    Args:
        path: The file, relative to the workspace.
        old_text: The text to replace, exactly as it stands in the file, with its spaces and line breaks.
        new_text: What stands there afterwards.
        replace_all: Replace every occurrence instead of the only one.
    """
    place = open_place(path, context)
    before = _look_closely(place)
    edit = _edited(before, place, old_text, new_text, replace_all)
    _refuse_stale(place, before, context, edit.after)
    _put(place, before, _encoded(edit.after), context)
    return f"Replaced {counted(edit.count, 'occurrence')} in {visible(place.relative)}."


@dataclass(frozen=True, slots=True)
class _Edit:
    after: str
    count: int


def _edited(before: _Seen, place: Place, old: str, new: str, replace_all: bool) -> _Edit:
    text, shown = before.text, repr(place.relative)
    if text is None:
        raise ToolError(f"{shown} is not UTF-8 text of at most {_EDITED_BYTES:,} bytes, so it cannot be edited as such")
    if not old:
        raise ToolError("old_text is empty; give the text to replace, or create a file with file_write")
    if old == new:
        raise ToolError("old_text and new_text are the same; there is nothing to change")
    if "\r\n" in text and "\r" not in old:
        old, new = old.replace("\n", "\r\n"), new.replace("\n", "\r\n")
    count = text.count(old)
    if count == 0:
        raise ToolError(f"old_text does not occur in {shown}{_hint(text, old)}")
    if count > 1 and not replace_all:
        lines = ", ".join(str(line) for line in _lines_of(text, old)[:10])
        raise ToolError(
            f"old_text occurs {count:,} times in {shown} (lines {lines}{', …' if count > 10 else ''}); "
            "give more of the text around it, or set replace_all"
        )
    if len(text) + count * (len(new) - len(old)) > _EDITED_BYTES:
        raise ToolError(f"{shown} would have more than {_EDITED_BYTES:,} characters, which is too long to be edited")
    return _Edit(text.replace(old, new), count)


def _hint(text: str, old: str) -> str:
    """Return whether it is just the white space, which takes too long to say of a large file."""
    if len(text) + len(old) <= _HINTED_CHARS and " ".join(old.split()) in " ".join(text.split()):
        return " as it is written: spaces, tabs or line breaks differ; read the file and copy the text exactly"
    return "; read the file and copy the text exactly"


def _lines_of(text: str, old: str) -> list[int]:
    lines: list[int] = []
    index = text.find(old)
    while index >= 0 and len(lines) < 10:
        lines.append(text.count("\n", 0, index) + 1)
        index = text.find(old, index + len(old))
    return lines


def _encoded(content: str) -> bytes:
    try:
        return content.encode()
    except UnicodeEncodeError as exc:
        raise ToolError(
            f"the text holds half a character ({exc.object[exc.start]!r}); give it as UTF-8 has it"
        ) from exc


# --- what both ways of writing share ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Seen:
    """An existing file as it was when looked at; `text` is None for what is not UTF-8 or too large to compare.

    `content` has at most one byte more than what is still compared.
    """

    version: tuple[int, int]
    digest: str
    text: str | None
    content: bytes


def _look(place: Place) -> _Seen | None:
    """The file there, None if there is none."""
    try:
        content, status = read_file(place, _EDITED_BYTES + 1)
    except ToolError as exc:
        if isinstance(exc.__cause__, FileNotFoundError):
            return None
        raise
    if len(content) > _EDITED_BYTES:
        identity = [status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns]
        return _Seen(file_version(status), f"status {identity}", None, content)
    return _Seen(file_version(status), hashlib.sha256(content).hexdigest(), _text(content), content)


def _look_closely(place: Place) -> _Seen:
    before = _look(place)
    if before is None:
        raise ToolError(f"{visible(place.relative)!r} does not exist; list_files shows what does")
    return before


def _text(content: bytes) -> str | None:
    try:
        return None if is_binary(content) else content.decode()
    except UnicodeDecodeError:
        return None


def _assessment(
    place: Place, given: str, context: ToolContext, before: _Seen | None, question: str, reason: str, after: str
) -> Assessment:
    """Bound to where the path leads and to what is there now."""
    reasons = [reason]
    if place.named is not None:
        reasons.append(f"The path was given as {visible(given)!r}, which leads there through a link.")
    protected = protected_part(Path(*place.parts)) or protected_part(Path(*place.named or ()))
    if protected is not None:
        reasons.append(reason_for(protected))
    elif makes_repository(place.root, place.parts):
        protected = place.relative
        reasons.append("It belongs to a bare git repository, whose configuration decides what runs on this machine.")
    old = "" if before is None else before.text
    if old is None:
        reasons.append("What the file holds now is not text and cannot be compared.")
    return Assessment(
        risk="write",
        question=visible(question),
        reasons=tuple(reasons),
        protected=protected is not None,
        path=visible(place.relative),
        diff=unified_diff(old or "", after, place.relative),
        binding={"path": str(place.path), "before": None if before is None else before.digest},
    )


def _refuse_stale(place: Place, before: _Seen | None, context: ToolContext, after: str) -> None:
    """A file that changed since a tool last read or wrote it is not overwritten with what was made of its old self."""
    known = context.state.files.get(str(place.path))
    if known is None or before is None or before.version == known:
        return
    diff = unified_diff(before.text or "", after, place.relative)
    raise ToolError(
        f"{visible(place.relative)!r} was changed by somebody else since you last read or wrote it, so nothing was "
        f"done. Read it again first. This call would have changed what is there now like this:\n{diff}"
    )


def _put(place: Place, before: _Seen | None, content: bytes, context: ToolContext) -> None:
    """No await from looking to here, so that a stop finds the file written and answered for, or untouched."""
    if context.snapshots is not None:
        context.snapshots.edited(context.call_id, place.path, None if before is None else before.content, content)
    context.state.files[str(place.path)] = file_version(replace_file(place, content))

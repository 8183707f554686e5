"""The tools that change files: write a whole file, or replace text in it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from agenticx.errors import ToolError
from agenticx.threads import run_in_thread
from agenticx.tools.base import Assessment, ToolContext
from agenticx.tools.builtin.files import file_version, is_binary, resolve_accessible
from agenticx.tools.diffs import unified_diff
from agenticx.tools.paths import WorkspacePath, read_file, replace_file
from agenticx.tools.plurals import pluralize
from agenticx.tools.protected import changes_bare_repository, protected_part, protection_reason
from agenticx.tools.registry import tool
from agenticx.tools.secret_files import SecretFiles
from agenticx.tools.visible import visible_path

__all__ = ["file_edit", "file_write"]

_MAX_EDITED_BYTES = 16 * 1024 * 1024
_MAX_HINT_CHARS = 1024 * 1024

# --- file_write -------------------------------------------------------------------------------------------------------


def _assess_write(arguments: Mapping[str, Any], context: ToolContext) -> Assessment:
    target = resolve_accessible(arguments["path"], context)
    before = _read_current(target)
    content: str = arguments["content"]
    lines = content.count("\n") + (not content.endswith("\n") and content != "")
    amount = f"{pluralize(lines, 'line')}, {pluralize(len(_encode(content)), 'byte')}"
    verb = "Create" if before is None else "Overwrite"
    reason = f"It {'creates a file' if before is None else 'replaces the whole file'}: {amount}."
    return _assessment(target, arguments["path"], context, before, f"{verb} {target.shown}?", reason, content)


@tool(risk="write", assess=_assess_write)
async def file_write(path: str, content: str, context: ToolContext) -> str:
    """Create a file, or replace all of an existing one. Missing folders are made. To change a part, use file_edit.

    Args:
        path: The file, relative to the workspace.
        content: The complete new content of the file, to the last character.
    """
    target = await run_in_thread(resolve_accessible, path, context, name="agx path")
    before = _read_current(target)
    _refuse_stale(target, before, context, content)
    data = _encode(content)
    await _write(target, before, data, context)
    return f"{'Created' if before is None else 'Overwrote'} {target.shown} ({pluralize(len(data), 'byte')})."


# --- file_edit --------------------------------------------------------------------------------------------------------


def _assess_edit(arguments: Mapping[str, Any], context: ToolContext) -> Assessment:
    target = resolve_accessible(arguments["path"], context)
    before = _require_current(target)
    is_secret = SecretFiles(target.root).hold(target)
    try:
        edit = _apply_edit(
            before, target, arguments["old_text"], arguments["new_text"], arguments.get("replace_all", False)
        )
        reason = f"It changes {'one place' if edit.count == 1 else f'{edit.count:,} places'} of the file."
        after = edit.after
    except ToolError as exc:
        if not is_secret:
            raise
        # The error tells the model what the file contains, so the user is asked first; the tool raises it again.
        reason, after = f"It changes nothing: {exc}.", before.text or ""
    question = f"Edit {target.shown}?"
    assessment = _assessment(target, arguments["path"], context, before, question, reason, after)
    return replace(assessment, protected=True, reasons=(*assessment.reasons, _SECRET)) if is_secret else assessment


_SECRET = "It usually holds keys or passwords, and the model learns if the text to replace occurs in it."


@tool(risk="write", assess=_assess_edit)
async def file_edit(path: str, old_text: str, new_text: str, context: ToolContext, replace_all: bool = False) -> str:
    """Replace a piece of a text file by another. Give enough of the old text that it occurs just once.

    Args:
        path: The file, relative to the workspace.
        old_text: The text to replace, exactly as in the file, with its spaces and line breaks.
        new_text: The text to put there.
        replace_all: Replace every occurrence instead of the only one.
    """
    target = await run_in_thread(resolve_accessible, path, context, name="agx path")
    before = _require_current(target)
    edit = _apply_edit(before, target, old_text, new_text, replace_all)
    _refuse_stale(target, before, context, edit.after)
    await _write(target, before, _encode(edit.after), context)
    return f"Replaced {pluralize(edit.count, 'occurrence')} in {target.shown}."


@dataclass(frozen=True, slots=True)
class _TextEdit:
    after: str
    count: int


def _apply_edit(before: _CurrentFile, target: WorkspacePath, old: str, new: str, replace_all: bool) -> _TextEdit:
    text, shown = before.text, repr(target.shown)
    if text is None:
        raise ToolError(
            f"{shown} is not UTF-8 text of at most {_MAX_EDITED_BYTES:,} bytes, so it cannot be edited as such"
        )
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
    if len(text) + count * (len(new) - len(old)) > _MAX_EDITED_BYTES:
        raise ToolError(
            f"{shown} would have more than {_MAX_EDITED_BYTES:,} characters, which is too long to be edited"
        )
    return _TextEdit(text.replace(old, new), count)


def _hint(text: str, old: str) -> str:
    """Return the end of the error message for text that does not occur.

    It states whether only white space differs, except for large files, where the comparison would take too long.
    """
    if len(text) + len(old) <= _MAX_HINT_CHARS and " ".join(old.split()) in " ".join(text.split()):
        return " as it is written: spaces, tabs or line breaks differ; read the file and copy the text exactly"
    return "; read the file and copy the text exactly"


def _lines_of(text: str, old: str) -> list[int]:
    lines: list[int] = []
    index = text.find(old)
    while index >= 0 and len(lines) < 10:
        lines.append(text.count("\n", 0, index) + 1)
        index = text.find(old, index + len(old))
    return lines


def _encode(content: str) -> bytes:
    try:
        return content.encode()
    except UnicodeEncodeError as exc:
        raise ToolError(
            f"the text holds a lone surrogate ({exc.object[exc.start]!r}); give text that UTF-8 can encode"
        ) from exc


# --- shared by both tools ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _CurrentFile:
    """An existing file at the time of reading; `text` is None if it is not UTF-8 or too large to compare.

    `content` has at most one byte more than the largest file that is compared.
    """

    version: tuple[int, int]
    digest: str
    text: str | None
    content: bytes


def _read_current(target: WorkspacePath) -> _CurrentFile | None:
    """Return the existing file at `target`, or None."""
    try:
        content, status = read_file(target, _MAX_EDITED_BYTES + 1)
    except ToolError as exc:
        if isinstance(exc.__cause__, FileNotFoundError):
            return None
        raise
    if len(content) > _MAX_EDITED_BYTES:
        identity = [status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns]
        return _CurrentFile(file_version(status), f"status {identity}", None, content)
    return _CurrentFile(file_version(status), hashlib.sha256(content).hexdigest(), _decode(content), content)


def _require_current(target: WorkspacePath) -> _CurrentFile:
    before = _read_current(target)
    if before is None:
        raise ToolError(f"{target.shown!r} does not exist; list_files shows what does")
    return before


def _decode(content: bytes) -> str | None:
    try:
        return None if is_binary(content) else content.decode()
    except UnicodeDecodeError:
        return None


def _assessment(
    target: WorkspacePath,
    given_path: str,
    context: ToolContext,
    before: _CurrentFile | None,
    question: str,
    reason: str,
    after: str,
) -> Assessment:
    """Return an assessment bound to the resolved path and to the current content of the file."""
    reasons = [reason]
    if target.given_parts is not None:
        reasons.append(f"The path was given as {visible_path(given_path)!r}, which leads there through a link.")
    protected = protected_part(Path(*target.parts)) or protected_part(Path(*target.given_parts or ()))
    if protected is not None:
        reasons.append(protection_reason(protected))
    elif changes_bare_repository(target.root, target.parts):
        protected = target.relative
        reasons.append("It belongs to a bare git repository, whose configuration decides what runs on this machine.")
    old = "" if before is None else before.text
    if old is None:
        reasons.append("The current content of the file is not text and cannot be compared.")
    return Assessment(
        risk="write",
        question=question,
        reasons=tuple(reasons),
        protected=protected is not None,
        path=target.shown,
        diff=unified_diff(old or "", after, target.relative),
        binding={"path": str(target.path), "before": None if before is None else before.digest},
    )


def _refuse_stale(target: WorkspacePath, before: _CurrentFile | None, context: ToolContext, after: str) -> None:
    """Raise `ToolError` if the file changed since a tool last read or wrote it: `after` is based on old content."""
    known_version = context.state.files.get(str(target.path))
    if known_version is None or before is None or before.version == known_version:
        return
    sentence = (
        f"{target.shown!r} was changed by the user or another program since you last read or wrote it, "
        "so nothing was done. Read it again first."
    )
    if not SecretFiles(target.root).hold(target):
        diff = unified_diff(before.text or "", after, target.relative)
        sentence += f" This call would have changed the current file as follows:\n{diff}"
    raise ToolError(sentence)


async def _write(target: WorkspacePath, before: _CurrentFile | None, content: bytes, context: ToolContext) -> None:
    """Write `content` to `target`, after recording the edit, and remember the version of the file.

    A stop of the turn finds the file either written with its result reported, or untouched: nothing is awaited after
    the recording. Raises `ToolError` if the file was changed while that was awaited.
    """
    if context.snapshots is not None:
        before_content = None if before is None else before.content
        await context.snapshots.record_edit(context.call_id, target.path, before_content, content)
        current = _read_current(target)
        if (current and current.digest) != (before and before.digest):
            raise ToolError(
                f"{target.shown!r} was changed by the user or another program, so nothing was done; read it again first"
            )
    context.state.files[str(target.path)] = file_version(replace_file(target, content))

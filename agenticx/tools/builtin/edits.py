"""The tools that change files: write a whole file, or replace text in it."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Generator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from agenticx.errors import ToolError
from agenticx.logs import get_logger
from agenticx.threads import run_in_thread
from agenticx.tools.base import Assessment, ToolOutput
from agenticx.tools.builtin.files import file_version, resolve_accessible
from agenticx.tools.context import ToolContext
from agenticx.tools.diffs import MAX_DIFF_CHARS, Diff, unified_diff
from agenticx.tools.git_configuration import is_named_by_git
from agenticx.tools.lines import is_valid_utf8
from agenticx.tools.paths import (
    CannotReplace,
    WorkspacePath,
    is_replaceable,
    overwrite_file,
    read_file,
    replace_file,
)
from agenticx.tools.plurals import pluralize
from agenticx.tools.protected import changes_bare_repository, protected_part, protection_reason
from agenticx.tools.registry import tool
from agenticx.tools.result_data import FileEdit
from agenticx.tools.secret_files import SecretFiles
from agenticx.tools.text_files import (
    BYTE_ORDER_MARK,
    MAX_MIXED_PLACES,
    FileText,
    decode_text,
    differs_in_blanks,
    is_binary,
    line_ends,
    replace_text,
    with_line_end,
)
from agenticx.tools.visible import visible_path

__all__ = ["assess_write", "file_edit", "file_write", "write_file"]

_MAX_EDITED_BYTES = 16 * 1024 * 1024

_log = get_logger(__name__)

# --- file_write -------------------------------------------------------------------------------------------------------


def assess_write(path: str, content: str | bytes, context: ToolContext) -> Assessment:
    """Return the assessment of writing a whole file: text as `file_write` does, bytes just as they are.

    Blocks, and raises `ToolError` for a file that cannot be written.
    """
    change = _plan_write(path, content, context)
    is_new = change.before is None
    amount = pluralize(len(change.content), "byte")
    if isinstance(content, str):
        lines = content.count("\n") + (not content.endswith("\n") and content != "")
        amount = f"{pluralize(lines, 'line')}, {amount}"
    question = f"{'Create' if is_new else 'Overwrite'} {change.target.shown}?"
    reason = f"It {'creates a file' if is_new else 'replaces the whole file'}: {amount}."
    return _assessment(change, path, question, reason, context)


async def write_file(path: str, content: str | bytes, context: ToolContext) -> ToolOutput:
    """Write a whole file as `assess_write` has assessed it; return the result."""
    change = await run_in_thread(_plan_write, path, content, context, name="agx file_write")
    _refuse_stale(change, context)
    edit = await run_in_thread(_file_edit, change, name="agx file_write")
    notes = await _write(change, context)
    verb = "Created" if change.before is None else "Overwrote"
    size = pluralize(len(change.content), "byte")
    return ToolOutput(" ".join([f"{verb} {change.target.shown} ({size}).", *change.notes, *notes]), details=edit)


def _assess_file_write(arguments: Mapping[str, Any], context: ToolContext) -> Assessment:
    return assess_write(arguments["path"], arguments["content"], context)


@tool(risk="write", assess=_assess_file_write)
async def file_write(path: str, content: str, context: ToolContext) -> ToolOutput:
    """Create a file, or replace all of an existing one. Missing folders are made. To change a part, use file_edit.

    Args:
        path: The file, relative to the workspace.
        content: The complete new content of the file, to the last character. An existing file keeps its byte order
            mark, and CRLF at the end of its lines.
    """
    return await write_file(path, content, context)


def _plan_write(path: str, content: str | bytes, context: ToolContext) -> _Change:
    target = resolve_accessible(path, context)
    before = _read_current(target)
    if isinstance(content, bytes):
        return _plan_bytes(target, before, content)
    data = _encode(content)
    if before is None:
        return _Change(target, None, "", content, data)
    if not before.is_whole:
        note = "The file is too large to be looked at, so its line ends, byte order mark and encoding are not kept."
        _refuse_lost_bytes(target, before, content)
        return _Change(target, before, None, content, data, (note,))
    if before.text is None:
        _refuse_lost_bytes(target, before, content)
        after, notes = content, ["The file is not UTF-8 text, and becomes it."]
        if not is_binary(before.content):
            after, kept = _with_old_line_ends(content, before.content.decode("latin-1"))
            notes += kept
        return _Change(target, before, None, after, _encode(after), tuple(notes))
    old = before.text
    after, notes = _with_old_line_ends(content, old.text)
    after, mark_notes = _with_old_mark(after, old)
    notes += mark_notes
    return _Change(target, before, old.text, after, _encode(after, old.encoding), tuple(notes))


def _plan_bytes(target: WorkspacePath, before: _CurrentFile | None, content: bytes) -> _Change:
    text = content.decode() if is_valid_utf8(content) and not is_binary(content) else None
    if text is None or (before is not None and before.text is None):
        return _Change(target, before, None, "", content)
    return _Change(target, before, "" if before is None or before.text is None else before.text.text, text, content)


def _with_old_mark(content: str, old: FileText) -> tuple[str, list[str]]:
    """Return `content` with a byte order mark if `old` begins with one, and a sentence if it had none."""
    if not old.text.startswith(BYTE_ORDER_MARK) or content.startswith(BYTE_ORDER_MARK):
        return content, []
    what = "byte order mark is" if old.encoding == "utf-8" else "byte order mark and the encoding, UTF-16, are"
    return BYTE_ORDER_MARK + content, [f"The {what} kept."]


def _with_old_line_ends(content: str, old: str) -> tuple[str, list[str]]:
    """Return `content` with CRLF if that ends all lines of `old`, and a sentence if its line ends are other ones.

    A text with CR, and one for a file of mixed line ends, is what is to be written.
    """
    old_ends = line_ends(old)
    if old_ends == frozenset({"\r\n"}) and "\n" in content and "\r" not in content:
        return with_line_end(content, "\r\n"), ["The line ends of the file, CRLF, are kept."]
    new_ends = line_ends(content)
    if not old_ends or not new_ends or old_ends == new_ends:
        return content, []
    return content, [f"The line ends of the file change from {_name_ends(old_ends)} to {_name_ends(new_ends)}."]


def _name_ends(ends: frozenset[str]) -> str:
    return " and ".join(name for end, name in (("\n", "LF"), ("\r\n", "CRLF"), ("\r", "CR")) if end in ends)


def _refuse_lost_bytes(target: WorkspacePath, before: _CurrentFile, content: str) -> None:
    """Raise `ToolError` if the content has U+FFFD where the file may have bytes that are not UTF-8."""
    whole_characters = (before.content[: len(before.content) - cut] for cut in range(1 if before.is_whole else 4))
    if "\ufffd" in content and not any(map(is_valid_utf8, whole_characters)):
        raise ToolError(
            f"{target.shown!r} is not UTF-8, and the content has U+FFFD, which stands for bytes that could not be read:"
            f" they would be lost, so nothing was written; {_OTHER_ENCODING}"
        )


_OTHER_ENCODING = "convert the file to UTF-8 first, or change it with a command that knows its encoding"


# --- file_edit --------------------------------------------------------------------------------------------------------


def _assess_edit(arguments: Mapping[str, Any], context: ToolContext) -> Assessment:
    target = resolve_accessible(arguments["path"], context)
    before = _require_current(target)
    is_secret = SecretFiles(target.root).hold(target)
    try:
        change = _edit(
            target, before, arguments["old_text"], arguments["new_text"], arguments.get("replace_all", False)
        )
        reason = f"It changes {'one place' if change.count == 1 else f'{change.count:,} places'} of the file."
    except ToolError as exc:
        if not is_secret:
            raise
        # The error tells the model what the file contains, so the user is asked first; the tool raises it again.
        text = "" if before.text is None else before.text.text
        reason, change = f"It changes nothing: {exc}.", _Change(target, before, text, text, before.content)
    assessment = _assessment(change, arguments["path"], f"Edit {target.shown}?", reason, context)
    return replace(assessment, protected=True, reasons=(*assessment.reasons, _SECRET)) if is_secret else assessment


_SECRET = "It usually holds keys or passwords, and the model learns if the text to replace occurs in it."


@tool(risk="write", assess=_assess_edit)
async def file_edit(
    path: str, old_text: str, new_text: str, context: ToolContext, replace_all: bool = False
) -> ToolOutput:
    """Replace a piece of a text file by another. Give enough of the old text that it occurs just once.

    Args:
        path: The file, relative to the workspace.
        old_text: The text to replace, exactly as in the file, with its spaces and line breaks.
        new_text: The text to put there.
        replace_all: Replace every occurrence instead of the only one.
    """
    change = await run_in_thread(_plan_edit, path, old_text, new_text, replace_all, context, name="agx file_edit")
    _refuse_stale(change, context)
    edit = await run_in_thread(_file_edit, change, name="agx file_edit")
    notes = await _write(change, context)
    result = f"Replaced {pluralize(change.count, 'occurrence')} in {change.target.shown}."
    return ToolOutput(" ".join([result, *change.notes, *notes]), details=edit)


def _plan_edit(path: str, old: str, new: str, replace_all: bool, context: ToolContext) -> _Change:
    target = resolve_accessible(path, context)
    return _edit(target, _require_current(target), old, new, replace_all)


def _edit(target: WorkspacePath, before: _CurrentFile, old: str, new: str, replace_all: bool) -> _Change:
    shown = repr(target.shown)
    if before.text is None:
        raise ToolError(_why_no_text(shown, before))
    if not old:
        raise ToolError("old_text is empty; give the text to replace, or create a file with file_write")
    if old == new:
        raise ToolError("old_text and new_text are the same; there is nothing to change")
    text = before.text.text
    replaced = replace_text(text, old, new, every=replace_all, max_chars=_MAX_EDITED_BYTES)
    count, after = replaced.count, replaced.text
    if count == 0:
        raise ToolError(f"old_text does not occur in {shown}{_hint(text, old)}")
    if replaced.is_too_frequent:
        raise ToolError(
            f"old_text occurs more than {MAX_MIXED_PLACES:,} times in {shown}, which is too often in a file of mixed"
            " line ends; give more of the text"
        )
    if count > 1 and not replace_all:
        lines = ", ".join(map(str, replaced.lines))
        raise ToolError(
            f"old_text occurs {count:,} times in {shown} (lines {lines}{', …' if count > 10 else ''}); "
            "give more of the text around it, or set replace_all"
        )
    if after is None:
        raise ToolError(
            f"{shown} would have more than {_MAX_EDITED_BYTES:,} characters, which is too long to be edited"
        )
    after, notes = _with_old_mark(after, before.text)
    if after == text and notes:
        raise ToolError("old_text and new_text differ in the byte order mark only, which an edit keeps")
    if after == text:
        raise ToolError("old_text and new_text differ in line ends only, which the file has already")
    return _Change(target, before, text, after, _encode(after, before.text.encoding), tuple(notes), count=count)


def _why_no_text(shown: str, before: _CurrentFile) -> str:
    if not before.is_whole:
        return f"{shown} has more than {_MAX_EDITED_BYTES:,} bytes, which is too large to be edited"
    if is_binary(before.content) or is_valid_utf8(before.content):
        return f"{shown} is a binary file, so it cannot be edited as text"
    return f"{shown} is not UTF-8, so an edit would destroy bytes that cannot be read; {_OTHER_ENCODING}"


def _hint(text: str, old: str) -> str:
    """Return the end of the error message for text that does not occur."""
    if differs_in_blanks(text, old):
        return " as it is written: spaces, tabs or line breaks differ; read the file and copy the text exactly"
    return "; read the file and copy the text exactly"


def _encode(content: str, encoding: str = "utf-8") -> bytes:
    try:
        return content.encode(encoding)
    except UnicodeEncodeError as exc:
        raise ToolError(
            f"the text holds a lone surrogate ({exc.object[exc.start]!r}); give text that UTF-8 can encode"
        ) from exc


# --- shared by both tools ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _CurrentFile:
    """An existing file at the time of reading; `text` is None if it is no text, or too large to be looked at.

    `content` has at most one byte more than the largest file that is looked at; `is_whole` says if it is all.
    """

    version: tuple[int, int]
    digest: str
    content: bytes
    is_whole: bool
    has_other_names: bool
    text: FileText | None


@dataclass(frozen=True, slots=True)
class _Change:
    """The content that a call will write, also as text, and what was there; `old_text` is None if that is no text.

    `notes` are sentences on how the content differs from the model's, `count` is the number of an edit's places.
    """

    target: WorkspacePath
    before: _CurrentFile | None
    old_text: str | None
    new_text: str
    content: bytes
    notes: tuple[str, ...] = ()
    count: int = 0

    def diff(self, max_chars: int = MAX_DIFF_CHARS) -> Diff:
        return unified_diff(self.old_text or "", self.new_text, self.target.relative, max_chars=max_chars)


def _file_edit(change: _Change) -> FileEdit:
    diff = change.diff()
    return FileEdit(
        path=change.target.shown,
        diff=diff.text,
        added=diff.added,
        removed=diff.removed,
        diff_cut=diff.is_cut,
        unchanged_below=diff.unchanged_below,
    )


def _read_current(target: WorkspacePath) -> _CurrentFile | None:
    """Return the existing file at `target`, or None."""
    read = _read_content(target)
    if read is None:
        return None
    content, status = read
    is_whole = len(content) <= _MAX_EDITED_BYTES
    text = decode_text(content) if is_whole else None
    return _CurrentFile(
        file_version(status), _content_digest(content, status), content, is_whole, status.st_nlink > 1, text
    )


def _read_content(target: WorkspacePath) -> tuple[bytes, os.stat_result] | None:
    try:
        return read_file(target, _MAX_EDITED_BYTES + 1)
    except ToolError as exc:
        if isinstance(exc.__cause__, FileNotFoundError):
            return None
        raise


def _content_digest(content: bytes, status: os.stat_result) -> str:
    if len(content) > _MAX_EDITED_BYTES:
        return f"status {[status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns]}"
    return hashlib.sha256(content).hexdigest()


def _require_current(target: WorkspacePath) -> _CurrentFile:
    before = _read_current(target)
    if before is None:
        raise ToolError(f"{target.shown!r} does not exist; list_files shows what does")
    return before


def _assessment(change: _Change, given_path: str, question: str, reason: str, context: ToolContext) -> Assessment:
    """Return an assessment bound to the resolved path, to the current content of the file and to the new one."""
    target = change.target
    in_place = change.before is not None and not is_replaceable(target)
    reasons = [reason, *change.notes]
    if in_place:
        reasons.append(_IN_PLACE)
    elif change.before is not None and change.before.has_other_names:
        reasons.append(_OTHER_NAMES)
    if target.link_parts:
        reasons.append(f"The path was given as {visible_path(given_path)!r}, which leads there through a link.")
    paths = (target.parts, *target.link_parts)
    protected = next(filter(None, (protected_part(Path(*parts)) for parts in paths)), None)
    if protected is not None:
        reasons.append(protection_reason(protected))
    elif changes_bare_repository(target.root, target.parts):
        protected = target.relative
        reasons.append("It belongs to a bare git repository, whose configuration decides what runs on this machine.")
    elif is_named_by_git(target.root, target.parts):
        protected = target.relative
        reasons.append("The configuration of git names it: it decides what runs on this machine.")
    if change.old_text is None and change.before is not None and change.before.is_whole:
        reasons.append("The current content of the file is not text and cannot be compared.")
    diff = change.diff(context.diff_chars)
    return Assessment(
        risk="write",
        question=question,
        reasons=tuple(reasons),
        protected=protected is not None,
        path=target.shown,
        paths=("/".join(target.parts),),
        diff=diff.text,
        diff_cut=diff.is_cut,
        unchanged_below=diff.unchanged_below,
        binding={
            "path": str(target.path),
            "before": None if change.before is None else change.before.digest,
            "after": hashlib.sha256(change.content).hexdigest(),
            "in_place": in_place,
        },
    )


def _refuse_stale(change: _Change, context: ToolContext) -> None:
    """Raise `ToolError` if the file changed since a tool last read or wrote it: the change is based on old content."""
    target, before = change.target, change.before
    known_version = context.state.files.get(str(target.path))
    if known_version is None or before is None or before.version == known_version:
        return
    sentence = (
        f"{target.shown!r} was changed by the user or another program since you last read or wrote it, "
        "so nothing was done. Read it again first."
    )
    if not SecretFiles(target.root).hold(target):
        sentence += f" This call would have changed the current file as follows:\n{change.diff().text}"
    raise ToolError(sentence)


async def _write(change: _Change, context: ToolContext) -> list[str]:
    """Write the content, after recording the edit, and remember the version of the file; return notes for the result.

    A stop of the turn finds the file either written with its result reported, or untouched: nothing is awaited between
    the last recording and the writing. Raises `ToolError` if the file was changed while that was awaited.
    """
    target, before = change.target, change.before
    in_place = before is not None and not is_replaceable(target)
    await _record(change, context, in_place=in_place)
    try:
        status, notes = replace_file(target, change.content), []
        if before is not None and before.has_other_names:
            notes = [_OTHER_NAMES]
    except CannotReplace:
        if before is None or not before.is_whole:
            raise
        if not in_place:
            await _record(change, context, in_place=True)
        with nullcontext() if context.snapshots is not None else _copy_kept(target, before.content):
            status, notes = overwrite_file(target, before.content, change.content), [_IN_PLACE]
    context.state.files[str(target.path)] = file_version(status)
    return notes


_IN_PLACE = "It is not atomic: the file cannot be replaced by a new one, so it is written in place."
_OTHER_NAMES = "The file has other names (hard links), which keep the old content."


async def _record(change: _Change, context: ToolContext, *, in_place: bool) -> None:
    if context.snapshots is None:
        return
    target, before = change.target, change.before
    old_content = None if before is None else before.content
    await context.snapshots.record_edit(
        context.call_id, target.path, old_content, change.content, in_place=in_place, root=target.root
    )
    read = _read_content(target)
    if (read and _content_digest(*read)) != (before and before.digest):
        raise ToolError(
            f"{target.shown!r} was changed by the user or another program, so nothing was done; read it again first"
        )


@contextmanager
def _copy_kept(target: WorkspacePath, content: bytes) -> Generator[None]:
    """Keep a copy of a file's content, in the folder for temporary files, until the block has written the file.

    The copy stays, and the log names it, if the process ends meanwhile or the file is left with another content.
    """
    try:
        with tempfile.NamedTemporaryFile(prefix="agx-old-content-", delete=False) as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
    except OSError as exc:
        raise ToolError(
            f"nothing was changed: {target.shown!r} can only be written in place, and its old content cannot be stored"
            f" before that: {exc.strerror}"
        ) from exc
    _log.warning("file is written in place", path=target.shown, copy_of_old_content=file.name)
    try:
        yield
    except ToolError:
        read = _read_content(target)
        if read is not None and read[0] == content:
            os.unlink(file.name)
        raise
    os.unlink(file.name)

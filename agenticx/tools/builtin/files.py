"""The tools that read files: list a folder, read a text file."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from functools import partial
from itertools import islice
from typing import Annotated, Any

from pydantic import Field

from agenticx.errors import ToolError
from agenticx.tools.base import Assessment, ToolOutput
from agenticx.tools.context import ToolContext
from agenticx.tools.lines import TextLine, count_lines, is_valid_utf8, iter_lines
from agenticx.tools.paths import FolderEntry, WorkspacePath, read_file, resolve_as_shown, scan_folder
from agenticx.tools.plurals import pluralize
from agenticx.tools.registry import tool
from agenticx.tools.result_data import FileExtract
from agenticx.tools.secret_files import SecretFiles, is_private
from agenticx.tools.text_files import is_binary, to_utf8_lines, utf16_encoding
from agenticx.tools.visible import visible_path

__all__ = ["file_read", "file_version", "list_files", "resolve_accessible"]

_MAX_LISTED_ENTRIES = 500
_MAX_READ_BYTES = 64 * 1024 * 1024
_MAX_READ_CHARS = 24_000
_MAX_LINE_CHARS = 2_000


# --- list_files -------------------------------------------------------------------------------------------------------


def _assess_list(arguments: Mapping[str, Any], context: ToolContext) -> Assessment:
    target = resolve_accessible(arguments.get("path", "."), context)
    folder = "/".join(target.parts) or "."
    return Assessment(risk="read", path=target.shown, folders=((folder, arguments.get("depth", 1)),))


@tool(risk="read", assess=_assess_list)
def list_files(context: ToolContext, path: str = ".", depth: Annotated[int, Field(ge=1, le=20)] = 1) -> str:
    """List a folder of the workspace: one path per line, folders end in "/". Hidden files are shown.

    A name with invisible characters is shown with their code points, such as ⟨U+202F⟩, and may be given like that.

    Args:
        path: The folder, relative to the workspace.
        depth: How many levels to go down; 1 lists the folder itself.
    """
    lines: list[str] = []
    total = _list_entries(resolve_accessible(path, context), depth, context, lines)
    if not lines:
        return "(an empty folder)"
    if total > len(lines):
        lines.append(f"[… and {total - len(lines)} more; list a folder further down to see them]")
    return "\n".join(lines)


def _list_entries(target: WorkspacePath, depth: int, context: ToolContext, lines: list[str]) -> int:
    total = 0
    for entry in scan_folder(target):
        child = WorkspacePath(target.root, (*target.parts, entry.name))
        if is_private(child, context.protected_roots):
            continue
        total += 1
        if len(lines) < _MAX_LISTED_ENTRIES:
            lines.append(_format_entry(child, entry))
        if entry.is_folder and depth > 1 and entry.name != ".git":
            total += _list_entries(child, depth - 1, context, lines)
    return total


def _format_entry(target: WorkspacePath, entry: FolderEntry) -> str:
    link = "" if entry.link_target is None else f" -> {visible_path(entry.link_target)}"
    return target.shown + ("/" if entry.is_folder else link)


# --- file_read --------------------------------------------------------------------------------------------------------


def _assess_read(arguments: Mapping[str, Any], context: ToolContext) -> Assessment:
    target = resolve_accessible(arguments["path"], context)
    secret = SecretFiles(target.root).hold(target)
    reason = (
        "It usually holds keys or passwords, which the model's provider would see." if secret else "It reads a file."
    )
    return Assessment(
        risk="read",
        question=f"Read {target.shown}?",
        reasons=(reason,),
        protected=secret,
        path=target.shown,
        paths=("/".join(target.parts),),
        binding={"path": str(target.path)},
    )


@tool(risk="read", assess=_assess_read)
def file_read(
    path: str,
    context: ToolContext,
    offset: Annotated[int, Field(ge=1)] = 1,
    limit: Annotated[int, Field(ge=1)] = 2_000,
) -> ToolOutput:
    """Read a text file. A file that is shown only in part begins with a line in brackets that says which part.

    Args:
        path: The file, relative to the workspace.
        offset: The first line to read, counted from 1.
        limit: How many lines to read at most.
    """
    target = resolve_accessible(path, context)
    content, status = read_file(target, _MAX_READ_BYTES)
    if is_binary(content):
        raise ToolError(
            f"{target.shown!r} is a binary file of {pluralize(status.st_size, 'byte')} and cannot be shown as text"
        )
    context.state.files[str(target.path)] = file_version(status)
    return _page(content, status.st_size, offset, limit, target)


def _page(content: bytes, size: int, offset: int, limit: int, target: WorkspacePath) -> ToolOutput:
    text = to_utf8_lines(content)
    lines = count_lines(text)
    total = f"{lines:,}" if len(content) == size else f"more than {lines:,}"
    if offset > max(lines, 1):
        raise ToolError(
            f"{target.shown!r} has {total} {'line' if total == '1' else 'lines'}; offset {offset} is past its end"
        )
    shown, cut_lines = _fit_lines(islice(iter_lines(text, offset - 1, _MAX_LINE_CHARS), limit))
    extract = FileExtract(path=target.shown, line_start=offset, lines=len(shown))
    notes: list[str] = []
    last = offset - 1 + len(shown)
    if offset > 1 or last < lines or len(content) < size:
        more = f"; read on with offset {last + 1}" if last < lines else ""
        notes.append(f"lines {offset:,}-{last:,} of {total}, {pluralize(size, 'byte')}{more}")
    if cut_lines:
        notes.append(
            f"{cut_lines:,} of these lines {'is' if cut_lines == 1 else 'are'} cut at {_MAX_LINE_CHARS:,} characters"
        )
    if utf16_encoding(content) is not None:
        notes.append("the file is UTF-16")
    elif not is_valid_utf8(text):
        notes.append("some bytes are not UTF-8 and show as \ufffd")
    if b"\r" in content and b"\n" not in content:
        notes.append("the lines of the file end with CR")
    if not notes:
        return ToolOutput(text.decode() or "(an empty file)", details=extract)
    body = "\n".join(shown)
    return ToolOutput(f"[{'; '.join(notes)}]\n{body}", details=extract)


def _fit_lines(lines: Iterable[TextLine]) -> tuple[list[str], int]:
    """Return as many of the lines as fit into a result, at least one, and the number of lines that were cut."""
    texts: list[str] = []
    chars_left, cut_lines = _MAX_READ_CHARS, 0
    for line in lines:
        is_complete = line.length == len(line.text)
        fitted = line.text if is_complete else f"{line.text}… [{line.length:,} characters]"
        chars_left -= len(fitted) + 1
        if chars_left < 0 and texts:
            break
        texts.append(fitted)
        cut_lines += not is_complete
    return texts, cut_lines


# --- shared by the file tools -----------------------------------------------------------------------------------------


def resolve_accessible(path: str, context: ToolContext) -> WorkspacePath:
    """Resolve `path`; raise `ToolError` if it is private to AgenticX.

    The content of private files must not be revealed, not even by a diff or by a refusal that depends on it.
    """
    target = resolve_as_shown(path, context.workspace, partial(is_private, roots=context.protected_roots))
    if is_private(target, context.protected_roots):
        raise ToolError(
            f"{target.shown!r} holds keys, settings or sessions of AgenticX, which no tool reads or changes"
        )
    return target


def file_version(status: os.stat_result) -> tuple[int, int]:
    """Return (mtime_ns, size), the version of a file as stored in `ToolState.files`."""
    return (status.st_mtime_ns, status.st_size)

"""The search tool: lines of the workspace's text files that match a pattern."""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from agenticx.errors import ToolError
from agenticx.threads import run_in_thread
from agenticx.tools.base import Assessment
from agenticx.tools.builtin.files import resolve_accessible
from agenticx.tools.context import ToolContext
from agenticx.tools.ignore import IgnoreRules
from agenticx.tools.paths import WorkspacePath, read_file, scan_folder
from agenticx.tools.patterns import LinearPattern, compile_file_globs, compile_pattern
from agenticx.tools.plurals import pluralize
from agenticx.tools.registry import tool
from agenticx.tools.secret_files import SecretFiles, has_secret_name
from agenticx.tools.shown_names import name_forms
from agenticx.tools.text_files import is_binary, to_utf8_lines
from agenticx.tools.visible import control_pictures, visible_line
from agenticx.tools.workspace_files import VisibleFolder, inherited_rules

__all__ = ["file_search"]

_MAX_FILE_BYTES = 4 * 1024 * 1024
_MAX_LINE_CHARS = 300
_MAX_RESULT_CHARS = 24_000
_MAX_COUNTED_MATCHES = 10_000
_MAX_SECONDS = 30.0
_MAX_NAMED_FILES = 5
_MAX_CHARS_AT_ONCE = 64 * 1024  # a match in a longer text keeps other threads waiting
_OF_WHOLE_TEXT = re.compile(r"\\[Az]|\(\?[a-zA-Z]*-")  # what means something else in a text of several lines


def _assess(arguments: Mapping[str, Any], context: ToolContext) -> Assessment:
    target = resolve_accessible(arguments.get("path", "."), context)
    path = "/".join(target.parts)
    if path and not target.path.is_dir():
        return Assessment(risk="read", path=target.shown, paths=(path,))
    return Assessment(risk="read", path=target.shown, folders=((path or ".", None),))


@tool(risk="read", assess=_assess)
async def file_search(
    pattern: str,
    context: ToolContext,
    path: str = ".",
    glob: str | None = None,
    ignore_case: bool = False,
    literal: bool = False,
    limit: Annotated[int, Field(ge=1, le=1_000)] = 100,
) -> str:
    """Find lines that match a regular expression; gives path:line:text.

    Binary files, .git, what .gitignore names and files that usually hold keys or passwords are not searched.

    Args:
        pattern: The regular expression, without look-around and back-references; it is searched in each line.
        path: The folder or file to search in, relative to the workspace.
        glob: Search only in files whose path or name matches, such as "*.py" or "src/**/*.{ts,tsx}".
        ignore_case: Take upper and lower case as the same.
        literal: Take the pattern as plain text.
        limit: How many matches to show.
    """
    expression = _expression(pattern, ignore_case=ignore_case, literal=literal)
    search = _Search(
        pattern=compile_pattern(expression),
        in_lines=None if _OF_WHOLE_TEXT.search(expression) else compile_pattern(expression, is_multi_line=True),
        glob=_FileGlob(glob, context.workspace) if glob and glob.strip() else None,
        limit=limit,
        context=context,
        secrets=SecretFiles(context.workspace.resolve()),
    )
    try:
        return await run_in_thread(search.run, path, name="agx file_search")
    finally:
        search.stopped.set()


def _expression(pattern: str, *, ignore_case: bool, literal: bool) -> str:
    if not pattern:
        raise ToolError("the pattern is empty; give the text or the regular expression to find")
    expression = "".join(f"\\x{{{ord(character):x}}}" for character in pattern) if literal else pattern
    return f"(?i){expression}" if ignore_case else expression


class _FileGlob:
    """The glob of a search; it matches each shown form of a path."""

    def __init__(self, text: str, workspace: Path) -> None:
        self.text = text
        folder = str(workspace.resolve())
        self._pattern = compile_file_globs(text, folder, is_name=os.path.isfile(os.path.join(folder, text)))

    def matches(self, file: WorkspacePath, target: WorkspacePath) -> bool:
        """Return whether the path of `file` matches, from the workspace or from the searched folder `target`."""
        in_target = "/".join(file.parts[len(target.parts) :])
        forms = {*name_forms(file.relative), *name_forms(in_target)}
        return any(map(self._pattern.found_in, forms))


@dataclass(slots=True, kw_only=True)
class _Search:
    """One search, run in a thread; it checks `stopped` and the time limit before each file.

    `in_lines` is found in a text if `pattern` is found in one of its lines; None if no pattern can say that.
    """

    pattern: LinearPattern
    in_lines: LinearPattern | None
    glob: _FileGlob | None
    limit: int
    context: ToolContext
    secrets: SecretFiles
    stopped: threading.Event = field(default_factory=threading.Event)
    lines: list[str] = field(default_factory=list[str])
    chars_left: int = _MAX_RESULT_CHARS
    matches: int = 0
    files: int = 0
    unmatched: int = 0
    skipped: int = 0
    secret_files: list[str] = field(default_factory=list[str])

    def run(self, path: str) -> str:
        target = resolve_accessible(path, self.context)
        _require_exists(target)
        deadline = time.monotonic() + _MAX_SECONDS
        complete = True
        for file in _walk(target, inherited_rules(target), self.context):
            if self.stopped.is_set() or time.monotonic() > deadline or self.matches >= _MAX_COUNTED_MATCHES:
                complete = False
                break
            if self.glob is None or self.glob.matches(file, target):
                self._search_file(file)
            else:
                self.unmatched += 1
        return self._report(complete)

    def _search_file(self, file: WorkspacePath) -> None:
        if has_secret_name(file):
            self.secret_files.append(file.shown)
            return
        try:
            content, status = read_file(file, _MAX_FILE_BYTES)
        except ToolError:  # removed meanwhile, not a regular file, or not readable
            self.skipped += 1
            return
        if is_binary(content) or status.st_size > _MAX_FILE_BYTES:
            self.skipped += 1
            return
        text = to_utf8_lines(content)
        if self.secrets.hold_opened(file, content, status):
            self.secret_files.append(file.shown)
            return
        self.files += 1
        decoded = text.decode("utf-8", "replace")
        if self._has_no_match(decoded):
            return
        for number, line in enumerate(_lines(decoded), start=1):
            if self.pattern.found_in(line.removesuffix("\r")):
                self._add_match(file, number, line)

    def _has_no_match(self, text: str) -> bool:
        """Return whether it is known without a look at each line that none matches."""
        if self.in_lines is None or len(text) > _MAX_CHARS_AT_ONCE or "\r" in text:
            return False
        return not self.in_lines.found_in(text)

    def _add_match(self, file: WorkspacePath, number: int, line: str) -> None:
        self.matches += 1
        if len(self.lines) >= self.limit or self.chars_left <= 0:
            return
        text = control_pictures(line.removesuffix("\r"))
        if len(text) > _MAX_LINE_CHARS:
            text = f"{text[:_MAX_LINE_CHARS]}… [{len(text):,} characters]"
        row = f"{file.shown}:{number}:{text}"
        self.lines.append(row)
        self.chars_left -= len(row) + 1

    def _report(self, complete: bool) -> str:
        notes: list[str] = []
        if self.matches > len(self.lines):
            more = self.matches - len(self.lines)
            exact_count = pluralize(more, "further match", "further matches")
            further = exact_count if complete else f"{more:,} or more further matches"
            notes.append(f"{further}; narrow the pattern, path or glob")
        elif not complete:
            notes.append("the search was ended before it had looked at everything; narrow the path or glob")
        if self.glob is not None and not self.files + self.skipped + len(self.secret_files):
            notes.append(
                f"the glob {visible_line(self.glob.text)!r} matches none of {pluralize(self.unmatched, 'file')},"
                f" so nothing was searched; {_GLOB_HINT}"
            )
        elif not self.matches:
            notes.append(f"no match in {pluralize(self.files, 'file')}")
        if self.skipped:
            notes.append(f"not searched: {pluralize(self.skipped, 'binary, unreadable or very large file')}")
        if self.secret_files:
            shown = ", ".join(self.secret_files[:_MAX_NAMED_FILES]) + (
                ", …" if len(self.secret_files) > _MAX_NAMED_FILES else ""
            )
            notes.append(f"not searched, because such files usually hold keys or passwords: {shown}")
        return "\n".join([*self.lines, *(f"[{note}]" for note in notes)])


_GLOB_HINT = (
    'a glob is a name such as "*.py" or a path such as "src/**/*.ts"; "*.{ts,tsx}" and "*.js,*.ts" stand for several,'
    " and files that .gitignore names are left out"
)


def _lines(text: str) -> Iterator[str]:
    """Yield the items of `text.split("\\n")` one by one; splitting millions of lines at once blocks other threads."""
    start = 0
    while (end := text.find("\n", start)) >= 0:
        yield text[start:end]
        start = end + 1
    yield text[start:]


def _require_exists(target: WorkspacePath) -> None:
    """Raise `ToolError` for a path that is neither a folder nor a file."""
    try:
        scan_folder(target)
    except ToolError:
        read_file(target, 0)


def _walk(target: WorkspacePath, rules: IgnoreRules, context: ToolContext) -> Iterator[WorkspacePath]:
    """Yield the files in `target`, folder by folder in order of names, without ignored and private ones."""
    try:
        folder = VisibleFolder.open(target, rules, context.protected_roots)
    except ToolError:
        yield target  # it is a file; otherwise reading it raises the error to report
        return
    for child, is_folder in folder.entries:
        if is_folder:
            yield from _walk(child, folder.rules, context)
        else:
            yield child

"""The notes of a vault on disk: which files are notes, their versions, and their text."""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from agenticx.errors import AgenticXError, ToolError
from agenticx.tools.ignore import IgnoreRules
from agenticx.tools.paths import WorkspacePath, read_file
from agenticx.tools.visible import visible

__all__ = [
    "MAX_NOTE_BYTES",
    "NOTE_SUFFIXES",
    "NoteContent",
    "NoteProblem",
    "NoteVersion",
    "VaultMissing",
    "VaultScan",
    "decode_note",
    "read_note",
    "scan_vault",
    "skip_reason",
]

MAX_NOTE_BYTES = 8 * 1024 * 1024

NoteProblem = Literal[
    "binary",
    "control_characters",
    "frontmatter",
    "name",
    "not_a_file",
    "not_utf8",
    "symlink",
    "too_large",
    "unreadable",
]
"""The reason for which a file is skipped (binary, name, not_a_file, symlink, too_large, unreadable), or a defect of a
note that is indexed all the same (control_characters, frontmatter, not_utf8)."""

NOTE_SUFFIXES = (".md", ".markdown", ".txt")
_SKIPPED_FOLDERS = frozenset({"node_modules"})
_IGNORE_FILE = ".agxignore"
_MAX_IGNORE_BYTES = 256 * 1024
_MAX_DEPTH = 200
_PROBED_BYTES = 8_192
_LEAST_BINARY_SHARE = 0.1
_CONTROLS = bytes(code for code in range(32) if code not in b"\t\n\f\r")


class VaultMissing(AgenticXError):
    """Raised if the folder of a vault does not exist, is not a folder or cannot be read at the moment."""


NoteVersion = tuple[int, int, int]
"""Size, `mtime_ns` and inode of a file, from the listing of its folder: they show a change without reading the file.

A plain tuple, since each search makes one for each note: other objects would set off full garbage collections.
"""


@dataclass(frozen=True, slots=True)
class VaultScan:
    """The notes below a folder by their path, relative and with "/", and the problems of files that are no notes."""

    notes: dict[str, NoteVersion] = field(default_factory=dict[str, NoteVersion])
    problems: dict[str, NoteProblem] = field(default_factory=dict[str, NoteProblem])


@dataclass(frozen=True, slots=True)
class NoteContent:
    """The text of a note without its byte order mark, the SHA-256 of its bytes, and its defect if it has one."""

    text: str
    sha256: str
    problem: NoteProblem | None


def scan_vault(root: Path) -> VaultScan:
    """Return the notes below `root`, as their folders list them; no note is read.

    Folders that begin with a dot, `node_modules` and paths in `.agxignore` files (in the syntax of .gitignore, in any
    folder of the vault) are not searched. Raises `VaultMissing` if `root` cannot be listed; a subfolder that cannot be
    listed is one of the problems.
    """
    scan = VaultScan()
    waiting = [("", IgnoreRules(), 0)]
    while waiting:
        folder, rules, depth = waiting.pop()
        try:
            with os.scandir(root / folder) as listed:
                entries = list(listed)
        except OSError as exc:
            if not folder:
                missing = "is missing; it " if isinstance(exc, FileNotFoundError) else ""
                raise VaultMissing(
                    f"the vault's folder {visible(str(root))!r} {missing}cannot be read: {exc.strerror}"
                ) from exc
            scan.problems[folder] = "unreadable"
            continue
        if any(entry.name == _IGNORE_FILE for entry in entries):
            rules = rules.with_rules(_ignore_text(root, folder), folder)
        for entry in entries:
            path = f"{folder}/{entry.name}" if folder else entry.name
            if entry.is_dir(follow_symlinks=False):
                if _is_searched(path, entry.name, rules) and depth < _MAX_DEPTH:
                    waiting.append((path, rules, depth + 1))
            elif entry.is_symlink() or entry.name.lower().endswith(NOTE_SUFFIXES):
                _add_entry(scan, path, entry, rules)
    return scan


def skip_reason(root: Path, path: str) -> str | None:
    """Return why the scan would leave out a note at `path`, relative to `root`, whether or not it exists; else None.

    The reason is a sentence's end, such as "'.git' begins with a dot".
    """
    parts = path.split("/")
    if not _is_plain_name(path):
        return "it has control characters or is not valid Unicode"
    if any(part in ("", ".", "..") for part in parts):
        return "it is no path that goes down from the vault"
    if not path.lower().endswith(NOTE_SUFFIXES):
        return "its name must end in .md, .markdown or .txt"
    if len(parts) - 1 > _MAX_DEPTH:
        return f"it is more than {_MAX_DEPTH} folders down"
    rules = IgnoreRules()
    for depth, part in enumerate(parts):
        is_folder, inside = depth < len(parts) - 1, "/".join(parts[: depth + 1])
        if part.startswith("."):
            return f"{visible(part)!r} begins with a dot"
        if is_folder and part in _SKIPPED_FOLDERS:
            return f"{part!r} is left out"
        rules = rules.with_rules(_ignore_text(root, "/".join(parts[:depth])), "/".join(parts[:depth]))
        if rules.ignores(visible(inside), is_folder=is_folder):
            return f"{_IGNORE_FILE} names {visible(inside)!r}"
        if os.path.islink(root / inside):
            return f"{visible(inside)!r} is a symbolic link"
    return None


def read_note(root: Path, path: str) -> bytes:
    """Return the bytes of a note; raises `ToolError` if it is gone, too large or no regular file inside the vault."""
    try:
        content, status = read_file(WorkspacePath(root, tuple(path.split("/"))), MAX_NOTE_BYTES + 1)
    except ToolError as exc:
        if os.path.lexists(root / path):
            raise
        raise ToolError(f"there is no note {visible(path)!r} any more; note_list shows those that there are") from exc
    if status.st_size > MAX_NOTE_BYTES or len(content) > MAX_NOTE_BYTES:
        raise ToolError(f"the note {visible(path)!r} is larger than {MAX_NOTE_BYTES // 2**20} MiB")
    return content


def decode_note(content: bytes) -> NoteContent:
    """Return the text of a note's bytes; its defects are named in `problem`, and nothing is left out for them.

    UTF-16 is recognised by its byte order mark. Bytes that are not UTF-8 become U+FFFD.
    """
    sha256 = hashlib.sha256(content).hexdigest()
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        return NoteContent(content.decode("utf-16", "replace"), sha256, "not_utf8")
    has_controls = len(content.translate(None, _CONTROLS)) < len(content)
    if has_controls and _is_binary(content):
        return NoteContent("", sha256, "binary")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        return NoteContent(content.decode("utf-8-sig", "replace"), sha256, "not_utf8")
    return NoteContent(text, sha256, "control_characters" if has_controls else None)


def _is_binary(content: bytes) -> bool:
    """Return True if a tenth of the first 8 kB are control characters and no byte order mark says it is text."""
    probed = content[:_PROBED_BYTES]
    if probed.startswith(b"\xef\xbb\xbf"):
        return False
    return len(probed) - len(probed.translate(None, _CONTROLS)) >= max(len(probed) * _LEAST_BINARY_SHARE, 1)


def _add_entry(scan: VaultScan, path: str, entry: os.DirEntry[str], rules: IgnoreRules) -> None:
    if entry.name.startswith(".") or _are_ignoring(rules, path, is_folder=False):
        return
    if entry.is_symlink():
        scan.problems[path] = "symlink"
        return
    if not _is_plain_name(path):
        scan.problems[path] = "name"
        return
    try:
        status = entry.stat(follow_symlinks=False)
    except OSError as exc:
        if exc.errno != errno.ENOENT:  # otherwise it was removed meanwhile
            scan.problems[path] = "unreadable"
        return
    if not stat.S_ISREG(status.st_mode):
        scan.problems[path] = "not_a_file"
    elif status.st_size > MAX_NOTE_BYTES:
        scan.problems[path] = "too_large"
    else:
        scan.notes[path] = (status.st_size, status.st_mtime_ns, status.st_ino)


def _is_plain_name(path: str) -> bool:
    """Return True if a path has no control characters and is valid Unicode."""
    return path.isprintable() or all(
        ord(c) >= 32 and not 0x7F <= ord(c) < 0xA0 and not 0xD800 <= ord(c) < 0xE000 for c in path
    )


def _is_searched(path: str, name: str, rules: IgnoreRules) -> bool:
    is_skipped = name.startswith(".") or name in _SKIPPED_FOLDERS
    return not is_skipped and not _are_ignoring(rules, path, is_folder=True)


def _are_ignoring(rules: IgnoreRules, path: str, *, is_folder: bool) -> bool:
    return bool(rules.rules) and rules.ignores(visible(path), is_folder=is_folder)


def _ignore_text(root: Path, folder: str) -> str:
    parts = tuple(folder.split("/")) if folder else ()
    try:
        content, _ = read_file(WorkspacePath(root, (*parts, _IGNORE_FILE)), _MAX_IGNORE_BYTES)
    except ToolError:  # a link, a pipe, or removed meanwhile: no rules
        return ""
    return content.decode("utf-8", "replace")

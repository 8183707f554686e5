"""The rules for the paths of artifacts."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable

from agenticx.errors import InvalidArguments
from agenticx.tools.visible import visible_path

__all__ = ["MAX_PATH_CHARS", "check_artifact_path", "check_path_conflicts", "is_artifact_path"]

MAX_PATH_CHARS = 200

_MAX_NAME_BYTES = 255  # of ext4, APFS and most others; NTFS allows 255 UTF-16 units
# with the controls of lines and directions
_CONTROLS = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
_SURROGATES = re.compile("[\ud800-\udfff]")
_DRIVE = re.compile("[A-Za-z]:")
# https://learn.microsoft.com/en-us/windows/win32/fileio/naming-a-file
_FORBIDDEN = re.compile('[:<>"|?*]')
_DEVICE = re.compile("(?:CON|PRN|AUX|NUL|CONIN[$]|CONOUT[$]|(?:COM|LPT)[0-9¹²³]) *(?:[.].*)?", re.IGNORECASE)


def check_artifact_path(path: str) -> None:
    """Raise `InvalidArguments` unless `path` is a relative path like `images/logo.png` that names one file.

    It has at most 200 characters; no part of it is empty, `.` or `..`, is longer than 255 bytes, or is a name that
    Windows reserves (`nul.html`) or changes (a dot or blank at the end); it has no backslashes, drive letters,
    characters that Windows forbids in names, control characters and surrogates. So it means the same file in a URL, an
    archive and a folder of any system.
    """
    problem = _problem(path)
    if problem is not None:
        shown = visible_path(path[:MAX_PATH_CHARS])
        raise InvalidArguments(f"the path {shown!r} {problem}; give a relative one, such as 'index.html'")


def is_artifact_path(path: str) -> bool:
    """Return whether `check_artifact_path` accepts a path."""
    return _problem(path) is None


def check_path_conflicts(path: str, others: Iterable[str]) -> None:
    """Raise `InvalidArguments` if a file at `path` cannot be in one folder with files at the other paths.

    Some systems take names for the same that differ in case or Unicode form, so paths are compared without case and
    in one form; and a path cannot be both a file and a folder.
    """
    key = _caseless(path)
    for other in others:
        other_key = _caseless(other)
        is_inside, is_around = key.startswith(f"{other_key}/"), other_key.startswith(f"{key}/")
        if path == other or not (is_inside or is_around or key == other_key):
            continue
        shown, known = visible_path(path), visible_path(other)
        if key == other_key:
            raise InvalidArguments(
                f"the path {shown!r} is that of the file {known!r} to systems that ignore case; write {known!r} "
                "itself, or give a path that differs in more"
            )
        file, inner = (known, shown) if is_inside else (shown, known)
        raise InvalidArguments(
            f"the path {shown!r} cannot be beside the file {known!r}: {file!r} would be both a file and the folder of "
            f"{inner!r}; give another path"
        )


def _caseless(path: str) -> str:
    """Return the form in which equivalent paths are equal (Unicode, definition D145)."""
    return unicodedata.normalize("NFD", unicodedata.normalize("NFD", path).casefold())


def _problem(path: str) -> str | None:
    if not path:
        return "is empty"
    if len(path) > MAX_PATH_CHARS:
        return f"is longer than {MAX_PATH_CHARS} characters"
    if path.startswith("/") or _DRIVE.match(path):
        return "is absolute"
    if "\\" in path:
        return "has a backslash"
    if _CONTROLS.search(path):
        return "has a control character"
    if _SURROGATES.search(path):
        return "is not valid Unicode"
    if found := _FORBIDDEN.search(path):
        return f"has the character {found[0]!r}, which names of files on Windows cannot have"
    parts = path.split("/")
    if ".." in parts:
        return "has the part '..'"
    if "" in parts or "." in parts:
        return "has a part that is empty or '.'"
    return next(filter(None, map(_problem_of_part, parts)), None)


def _problem_of_part(part: str) -> str | None:
    if len(part.encode()) > _MAX_NAME_BYTES:
        return f"has a part that is longer than {_MAX_NAME_BYTES} bytes"
    if part[-1] in ". ":
        return f"has the part {visible_path(part)!r}, whose last character Windows would drop"
    if _DEVICE.fullmatch(part):
        return f"has the part {visible_path(part)!r}, which Windows reserves for a device"
    return None

"""The rule for the paths of artifacts."""

from __future__ import annotations

import re

from agenticx.errors import InvalidArguments
from agenticx.tools.visible import visible_path

__all__ = ["MAX_PATH_CHARS", "check_artifact_path"]

MAX_PATH_CHARS = 200

_CONTROLS = re.compile("[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")  # also those of lines and of directions
_SURROGATES = re.compile("[\ud800-\udfff]")
_DRIVE = re.compile("[A-Za-z]:")


def check_artifact_path(path: str) -> None:
    """Raise `InvalidArguments` unless `path` is a relative path such as `images/logo.png` that names one file.

    It has at most 200 characters; no part of it is empty, `.` or `..`; it has no backslashes, drive letters, control
    characters and surrogates, so that it means the same file in a URL, an archive and a folder of any system.
    """
    problem = _problem(path)
    if problem is not None:
        shown = visible_path(path[:MAX_PATH_CHARS])
        raise InvalidArguments(f"the path {shown!r} {problem}; give a relative one, such as 'index.html'")


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
    parts = path.split("/")
    if ".." in parts:
        return "has the part '..'"
    if "" in parts or "." in parts:
        return "has a part that is empty or '.'"
    return None

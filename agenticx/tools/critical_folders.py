"""Critical folders, whose deletion is always asked about, and the calls of tools that delete one by its path."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any, cast
from urllib.parse import unquote

from pydantic import BaseModel

from agenticx.tools.base import Assessment
from agenticx.tools.visible import visible_line

__all__ = [
    "CriticalFolders",
    "assess_deletion",
    "deletion_reason",
    "find_deleted_critical_folder",
    "names_deletion",
    "strip_match_all_globs",
]

_MAX_SHOWN_CHARS = 300
_MAX_PATH_CHARS = 4_096  # no file has a longer path

_DELETES = re.compile(
    r"(?:^|[_.-])(?:clear|del|delete|empty|erase|purge|remove|rm|rmdir|rmtree|trash|unlink|wipe)(?:[_.-]|$)"
)
_WORD_START = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_IS_PATH = re.compile(r"path|file|folder|dir|target|location|root")
_BEGINS_AS_PATH = re.compile(r"~|/.|\$\{?(?:HOME|PWD)\b|%USERPROFILE%|file:", re.IGNORECASE)
# A component that matches all names: `*`, `.*` or `*.*`.
_MATCHES_ALL = re.compile(r"(?:\.?(?:\?|\[[!^][^\]]*\])*\*)+")


class CriticalFolders:
    """`/`, the home folder, `workspace`, and the parents of both; `paths` are their paths with case folded."""

    def __init__(self, workspace: Path) -> None:
        home = os.path.expanduser("~")
        folders = {str(workspace), os.path.realpath(workspace), home, os.path.realpath(home), "/"}
        parents = {str(parent) for folder in folders for parent in Path(folder).parents}
        self.paths = frozenset(path.casefold() for path in folders | parents)

    def __contains__(self, path: str) -> bool:
        """Return whether the absolute `path` is one of them as written; links are not followed."""
        return f"/{os.path.normpath(path).lstrip('/')}".casefold() in self.paths


def deletion_reason(word: str) -> str:
    """Return the reason for asking about a deletion by `word`, a path or glob."""
    shown = visible_line(word, _MAX_SHOWN_CHARS)
    return f"It deletes {shown}, which may be the workspace, your home folder, a folder above, or all that is in one."


def strip_match_all_globs(path: str) -> str:
    """Return `folder` for a path like `folder/*`, which names all its files; any other path as it is."""
    parts = path.rstrip("/").split("/")
    while parts and _MATCHES_ALL.fullmatch(parts[-1]):
        parts.pop()
    return "/".join(parts) or ("/" if path.startswith("/") else ".")


def names_deletion(tool_name: str) -> bool:
    """Return whether the name of a tool says that it deletes, like `file_delete` or `removeFolder`."""
    return _DELETES.search(_WORD_START.sub("_", tool_name).lower()) is not None


def assess_deletion(
    assessment: Assessment, tool_name: str, arguments: Mapping[str, Any], workspace: Path
) -> Assessment:
    """Return the assessment of a call, protected if its tool deletes by its name and would delete a critical folder."""
    if assessment.risk == "read" or not names_deletion(tool_name):
        return assessment
    deleted = find_deleted_critical_folder(arguments, workspace)
    if deleted is None:
        return assessment
    return replace(assessment, protected=True, reasons=(*assessment.reasons, deletion_reason(deleted)))


def find_deleted_critical_folder(arguments: Mapping[str, Any], workspace: Path) -> str | None:
    """Return the argument of a deleting tool's call that names one of the `CriticalFolders`, or None.

    Relative paths start at `workspace`.
    """
    critical = CriticalFolders(workspace)
    for text in _path_texts(arguments):
        try:
            path = os.path.join(workspace, os.path.expanduser(strip_match_all_globs(_as_path(text))))
            resolved = os.path.realpath(path)
        except (OSError, ValueError):  # a name that no file can have
            continue
        if path in critical or resolved in critical:
            return text or "''"
    return None


def _as_path(text: str) -> str:
    """Return the path of a `file:` URL, or of a text that begins with `$HOME` or `$PWD`."""
    if (url := re.match(r"file:(?://(?:localhost)?(?=/))?", text, re.IGNORECASE)) is not None:
        return unquote(text[url.end() :])
    text = re.sub(r"^(?:\$HOME\b|\$\{HOME\}|%USERPROFILE%)", "~", text)
    return re.sub(r"^(?:\$PWD\b|\$\{PWD\})", ".", text)


def _path_texts(arguments: Mapping[str, Any]) -> Iterator[str]:
    """Yield the texts that are paths by the name of their argument or field, or by their beginning."""
    pending: list[tuple[str, object]] = list(arguments.items())[::-1]
    while pending:
        name, value = pending.pop()
        if isinstance(value, BaseModel):
            value = vars(value)
        elif is_dataclass(value):
            value = {one.name: getattr(value, one.name, None) for one in fields(value)}
        if isinstance(value, Mapping):
            items = cast("Mapping[object, object]", value).items()
            pending += [(str(key), item) for key, item in items]
        elif isinstance(value, list | tuple | set | frozenset):
            pending += [(name, item) for item in cast("Iterable[object]", value)]
        if isinstance(value, os.PathLike):
            value = os.fspath(cast("os.PathLike[str]", value))
        if not isinstance(value, str) or len(value) > _MAX_PATH_CHARS:
            continue
        text, names_path = value.strip(), _IS_PATH.search(name.lower()) is not None
        if names_path or _BEGINS_AS_PATH.match(text):
            yield text

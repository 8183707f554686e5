"""The live preview of `create_file`: the file, while the call is being received."""

from __future__ import annotations

from typing import TypedDict

from agenticx.llms.growing_arguments import GrowingArguments
from agenticx.tools.artifacts.paths import is_artifact_path

__all__ = ["DEFAULT_PATH", "FilePreview", "preview"]

DEFAULT_PATH = "index.html"
"""The path of a file that is made without one."""


class FilePreview(TypedDict):
    """A file that is being written: its path, and its text so far."""

    path: str
    content: str


def preview(arguments: GrowingArguments) -> FilePreview | None:
    """Return what can be shown of a `create_file` call; None if there is nothing yet.

    The path is known once its string is closed, even after the content. A call without a path makes `index.html`, but
    that is known only when its text has ended as one object. Later previews of the same call have the same path and
    at least this content. A path that the call will be refused for shows nothing.
    """
    content = arguments.get("content")
    path = _known_path(arguments)
    if path is None or not isinstance(content, str) or not content:
        return None
    return FilePreview(path=path, content=content)


def _known_path(arguments: GrowingArguments) -> str | None:
    if "path" not in arguments:
        return DEFAULT_PATH if arguments.is_complete else None
    path = arguments["path"]
    if arguments.open_key == "path" or not isinstance(path, str):
        return None
    return path if is_artifact_path(path) else None

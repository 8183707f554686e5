"""A file of a session's workspace as it is now, for the user to look at.

It is read as `file_read` would read it, without a link that leads out of the workspace. What a page of the agent could
send away is refused: files of AgenticX itself, files that hold keys or passwords, and those of the user's deny rules.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from agenticx.errors import AgenticXError, ToolError
from agenticx.llms.images.base import MAX_IMAGE_BYTES
from agenticx.permissions.rules import Call, Rule
from agenticx.permissions.verdict import decide
from agenticx.tools.artifacts.files import MAX_FILE_BYTES, artifact_media_type, is_image_type
from agenticx.tools.base import Assessment
from agenticx.tools.paths import WorkspacePath, read_file, resolve_as_shown
from agenticx.tools.secret_files import SecretFiles, has_secret_name, is_private
from agenticx.tools.text_files import decode_text

__all__ = ["FileNotFound", "FileRefused", "FileTooLarge", "ShownFile", "read_shown_file"]


class FileNotFound(AgenticXError):
    """Raised if the workspace has no file of a path that can be read."""


class FileRefused(AgenticXError):
    """Raised for a file that is private or secret, or that a deny rule of the user is about."""


class FileTooLarge(AgenticXError):
    """Raised for a file that is larger than what is shown."""


@dataclass(frozen=True, slots=True)
class ShownFile:
    """A file: its name, its content, and whether that is an image, text in UTF-8, or neither (None)."""

    name: str
    content: bytes
    media_type: str | None


def read_shown_file(
    workspace: Path, path: str, *, rules: Iterable[Rule] = (), private: Iterable[Path] = ()
) -> ShownFile:
    """Return a file of the workspace by its path relative to that, as tools show it; UTF-16 becomes UTF-8.

    An image has at most 10 MB, any other file 2 MB. `rules` are those of the user, `private` the paths of AgenticX's
    own data. Blocks; not for an event loop. Raises `FileNotFound`, `FileRefused` and `FileTooLarge`.
    """
    private = tuple(private)
    try:
        target = resolve_as_shown(path, workspace, partial(is_private, roots=private))
        _check_access(target, rules, private)
        media_type = artifact_media_type(target.parts[-1] if target.parts else "")
        limit = MAX_IMAGE_BYTES if is_image_type(media_type) else MAX_FILE_BYTES
        content, status = read_file(target, limit + 1)
    except ToolError as exc:
        raise FileNotFound(str(exc).partition("; ")[0]) from exc  # without the advice for the model
    if SecretFiles(target.root).hold_opened(target, content, status):
        raise _secret(target)
    if len(content) > limit:
        raise FileTooLarge(f"{target.shown!r} has {status.st_size:,} bytes, more than the {limit:,} that are shown")
    name = target.shown.rpartition("/")[2]
    if is_image_type(media_type):
        return ShownFile(name, content, media_type)
    text = decode_text(content)
    return ShownFile(name, content, None) if text is None else ShownFile(name, text.text.encode(), "text/plain")


def _check_access(target: WorkspacePath, rules: Iterable[Rule], private: Iterable[Path]) -> None:
    if is_private(target, private):
        raise FileRefused(f"{target.shown!r} holds keys, settings or sessions of AgenticX, which are not shown")
    if has_secret_name(target):
        raise _secret(target)
    assessment = Assessment(risk="read", path=target.shown, paths=("/".join(target.parts),))
    arguments = {"path": target.relative}
    call = Call(tool="file_read", assessment=assessment, arguments=arguments, workspace=target.root)
    verdict = decide("default", call, rules=rules)
    if verdict.decision == "deny":
        raise FileRefused(f"{target.shown!r} is not shown: a rule of the user denies to read it, {verdict.rules[0]}")


def _secret(target: WorkspacePath) -> FileRefused:
    return FileRefused(f"{target.shown!r} is not shown, as it usually holds keys or passwords")

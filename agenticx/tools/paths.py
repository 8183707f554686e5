"""File access for tools, restricted to the workspace and safe against links swapped in concurrently.

1. A path is resolved first, including all links, and must then lie inside the resolved workspace. It is opened
   component by component from the workspace down, each relative to the folder before it and without following links: a
   component that was a folder when it was checked and is a link when it is opened is refused, not followed.
2. `..` is refused rather than resolved: after a link, `..` is not the folder that holds the link.
3. An absolute path is accepted if it leads into the workspace; models often write absolute paths.
4. Only regular files are opened, and never by an `open` that could block.
5. If a part of a path does not exist, but is the shown form of exactly one entry of its folder, it means that entry:
   names with hidden characters are shown with code points, and models write some of them as plain blanks. Rules,
   requests and digests then concern the real name.
6. A file is replaced by renaming a new one over it. Only where that is refused, as for a file that is mounted into a
   container, a function of its own writes it in place: a crash then leaves parts of both contents.
"""

from __future__ import annotations

import errno
import io
import os
import re
import stat
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path

from agenticx.errors import ToolError, error_text
from agenticx.messages import new_id
from agenticx.tools.shown_names import entries_shown_as
from agenticx.tools.unfollowed_paths import FILE_FLAGS, NEW_FILE_FLAGS, descend
from agenticx.tools.visible import visible_path

__all__ = [
    "CannotReplace",
    "FolderEntry",
    "WorkspacePath",
    "is_replaceable",
    "overwrite_file",
    "read_file",
    "remove_file",
    "replace_file",
    "resolve_as_shown",
    "resolve_in_workspace",
    "scan_folder",
]

_SURPLUS_BYTES = 64 * 1024
_MAX_PATH_BYTES = 3_000
_MAX_COMPARED_NAMES = 200_000
_MAX_LINKS = 40  # as many as Linux follows
_KERNEL_FOLDERS = ("/proc", "/sys", "/dev")
_OLD_FILE_FLAGS = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_NOT_REPLACEABLE = frozenset({errno.EBUSY, errno.EACCES, errno.EPERM, errno.EROFS})


@dataclass(frozen=True, slots=True)
class WorkspacePath:
    """A path inside the workspace with all links resolved; it may not exist.

    `link_parts` are the parts of the paths on the way to it: if the given path has links, that path, and the target of
    each link but the last. Paths inside the root are relative to it.
    """

    root: Path
    parts: tuple[str, ...]
    link_parts: tuple[tuple[str, ...], ...] = ()

    @property
    def path(self) -> Path:
        return self.root.joinpath(*self.parts)

    @property
    def relative(self) -> str:
        """The path relative to the workspace, as a tool argument; "." for the workspace itself."""
        return "/".join(self.parts) or "."

    @property
    def shown(self) -> str:
        """The relative path for display: on one line, hidden characters as code points."""
        return visible_path(self.relative)


def resolve_in_workspace(text: str, workspace: Path) -> WorkspacePath:
    """Resolve `text`; raise `ToolError` unless the path is inside the workspace."""
    shown = visible_path(text[:_MAX_PATH_BYTES])
    if not text or "\0" in text[:_MAX_PATH_BYTES]:
        raise ToolError(
            f"the path {shown[:100]!r} is empty or holds a NUL; give one relative to the workspace, such as '.'"
        )
    try:
        size = max(len(text), len(os.fsencode(text[:_MAX_PATH_BYTES])))
    except UnicodeEncodeError as exc:
        raise ToolError(f"the path {shown[:100]!r} cannot be encoded as a file name; give another") from exc
    if size > _MAX_PATH_BYTES:
        raise ToolError(f"the path {shown[:100]!r}… is longer than {_MAX_PATH_BYTES:,} bytes; give a shorter one")
    if ".." in text.split("/"):
        raise ToolError(f"the path {shown!r} contains '..'; give a path that goes down from the workspace")
    try:
        root = workspace.resolve(strict=True)
        resolved = Path(os.path.realpath(root / text))
    except (OSError, RuntimeError) as exc:
        raise ToolError(f"the path {shown!r} cannot be resolved: {error_text(exc)}") from exc
    lexical = Path(os.path.normpath(root / text))
    if not resolved.is_relative_to(root) or any(resolved.is_relative_to(folder) for folder in _KERNEL_FOLDERS):
        leads = "" if lexical == resolved else f" (it leads to {visible_path(str(resolved))!r})"
        raise ToolError(
            f"the path {shown!r}{leads} is outside the workspace {visible_path(str(root))!r};"
            " give a path relative to it"
        )
    links = () if lexical == resolved else tuple(_parts_below(root, link) for link in _followed_links(lexical))
    return WorkspacePath(root, resolved.relative_to(root).parts, links)


def _parts_below(root: Path, path: Path) -> tuple[str, ...]:
    return path.relative_to(root).parts if path.is_relative_to(root) else path.parts


def _followed_links(path: Path) -> Iterator[Path]:
    """Yield the paths on the way to a path's target, one for each link, the path itself first."""
    resolved, remaining = Path(path.anchor), list(reversed(path.parts[1:]))
    links_left = _MAX_LINKS
    while remaining and links_left:
        part = remaining.pop()
        if part == "..":
            resolved = resolved.parent
            continue
        try:
            target = Path(os.readlink(resolved / part))
        except OSError:  # no link, or missing
            resolved /= part
            continue
        yield resolved.joinpath(part, *reversed(remaining))
        links_left -= 1
        if target.is_absolute():
            resolved = Path(target.anchor)
        remaining += reversed(target.parts[1:] if target.is_absolute() else target.parts)


def resolve_as_shown(
    text: str, workspace: Path, is_private: Callable[[WorkspacePath], bool], *, max_names: int = _MAX_COMPARED_NAMES
) -> WorkspacePath:
    """Resolve `text`, taking parts that do not exist as names in their shown form.

    `is_private` folders are not read; in other folders at most `max_names` names are compared. Raises `ToolError` as
    `resolve_in_workspace` does, and if such a part may mean several entries.
    """
    target = resolve_in_workspace(text, workspace)
    lexical = Path(os.path.normpath(target.root / text))
    if os.path.lexists(lexical) or not lexical.is_relative_to(target.root):
        return target
    found = target.root
    for part in lexical.relative_to(target.root).parts:
        if not os.path.lexists(found / part):
            folder = resolve_in_workspace(str(found), workspace)
            part = part if is_private(folder) else _entry_shown_as(part, folder, max_names)
        found /= part
    return target if found == lexical else resolve_in_workspace(str(found), workspace)


def _entry_shown_as(part: str, folder: WorkspacePath, max_names: int) -> str:
    """Return the name of the entry that is shown as `part`, or `part` itself if there is none."""
    try:
        with _open_folder(folder, folder.parts) as descriptor, os.scandir(descriptor) as entries:
            names = [entry.name for entry in islice(entries, max_names + 1)]
    except OSError:  # the folder does not exist, or is none
        return part
    if len(names) > max_names and "⟨" in part:
        raise ToolError(
            f"{folder.shown!r} has more than {max_names:,} entries, too many to find the one that is shown as"
            f" {visible_path(part)!r}; move it to a smaller folder"
        )
    candidates = entries_shown_as(part, names)
    if len(candidates) > 1:
        shown = {visible_path(name) for name in candidates}
        listed = " or ".join(sorted(map(repr, shown) if len(shown) == len(candidates) else map(ascii, candidates))[:5])
        raise ToolError(f"the name {visible_path(part)!r} in {folder.shown!r} may mean {listed}; give one of these")
    return candidates[0] if candidates else part


# --- reading ----------------------------------------------------------------------------------------------------------


def _open_in(folder: int, name: str, _flags: int) -> int:
    return os.open(name, FILE_FLAGS, dir_fd=folder)


def read_file(target: WorkspacePath, limit: int) -> tuple[bytes, os.stat_result]:
    """Return the first `limit` bytes of a regular file, and its status at the time of reading."""
    with _os_errors_as_tool_errors(target), _open_parent(target) as folder:
        _require_regular(os.stat(_name(target), dir_fd=folder, follow_symlinks=False), target)
        opener = partial(_open_in, folder)
        with open(_name(target), "rb", opener=opener) as file:
            status = os.fstat(file.fileno())
            _require_regular(status, target)
            expected = min(limit, status.st_size + _SURPLUS_BYTES)  # `read` makes room for all that it is asked for
            content = file.read(expected)
            if len(content) == expected < limit:
                content += file.read(limit - expected)
            return content, status


@dataclass(frozen=True, slots=True)
class FolderEntry:
    """One name in a folder; `link_target` is the unresolved target of a symbolic link, else None."""

    name: str
    is_folder: bool
    link_target: str | None


def scan_folder(target: WorkspacePath) -> list[FolderEntry]:
    """Return the entries of a folder, sorted by name; links are not followed, special files are included."""
    with _os_errors_as_tool_errors(target), _open_folder(target, target.parts) as folder, os.scandir(folder) as entries:
        result: list[FolderEntry] = []
        for entry in entries:
            link_target = None
            if entry.is_symlink():
                with suppress(OSError):
                    link_target = os.readlink(entry.name, dir_fd=folder)
            result.append(FolderEntry(entry.name, entry.is_dir(follow_symlinks=False), link_target))
        return sorted(result, key=lambda entry: entry.name)


# --- writing ----------------------------------------------------------------------------------------------------------


class CannotReplace(ToolError):
    """Raised if the system refuses to create a new file next to an existing one, or to rename it over that."""


def replace_file(target: WorkspacePath, content: bytes, *, mode: int | None = None) -> os.stat_result:
    """Replace a file atomically by `content`: readers see the old or the new file, also after a crash.

    Missing folders are created. An existing file keeps its permissions, and its owner where this process may set it;
    a new file gets `mode`. Raises `CannotReplace` if an existing file is a mount point, or if its folder may not
    be changed.
    """
    name = _name(target)
    with _os_errors_as_tool_errors(target), _open_parent(target, create=True) as folder:
        before = _stat_or_none(name, folder)
        if before is not None:
            _require_regular(before, target)
        temporary = f".{name[:40]}.{new_id('tmp')}"  # a character may have four of the 255 bytes of a name
        with _refusals_as_cannot_replace(target, before):
            descriptor = os.open(temporary, NEW_FILE_FLAGS, 0o666, dir_fd=folder)
        try:
            with open(descriptor, "wb") as file:
                if before is not None:
                    with suppress(PermissionError):
                        os.fchown(descriptor, before.st_uid, before.st_gid)
                    os.fchmod(descriptor, before.st_mode & 0o777)
                elif mode is not None:
                    os.fchmod(descriptor, mode)
                file.write(content)
                file.flush()
                os.fsync(descriptor)
                status = os.fstat(descriptor)
            with _refusals_as_cannot_replace(target, before):
                os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException:
            with suppress(OSError):
                os.unlink(temporary, dir_fd=folder)
            raise
        os.fsync(folder)
        return status


@contextmanager
def _refusals_as_cannot_replace(target: WorkspacePath, before: os.stat_result | None) -> Generator[None]:
    try:
        yield
    except OSError as exc:
        if before is None or exc.errno not in _NOT_REPLACEABLE:
            raise
        raise CannotReplace(f"{target.shown!r} cannot be replaced by a new file: {exc.strerror}") from exc


def overwrite_file(target: WorkspacePath, old: bytes, new: bytes) -> os.stat_result:
    """Write `new` over the content `old` of an existing file, in place; its names and its mount stay.

    This is not atomic. If the process ends meanwhile, the file has the beginning of `new` and the rest of `old`; after
    an error `old` is written again.
    """
    with _os_errors_as_tool_errors(target), _open_parent(target) as folder:
        descriptor = os.open(_name(target), _OLD_FILE_FLAGS, dir_fd=folder)
        with open(descriptor, "r+b", buffering=0) as file:
            _require_regular(os.fstat(descriptor), target)
            try:
                _write_all(file, new)
            except BaseException:
                with suppress(OSError):
                    _write_all(file, old)
                raise
            return os.fstat(descriptor)


def _write_all(file: io.FileIO, content: bytes) -> None:
    file.seek(0)
    remaining = memoryview(content)
    while remaining:
        remaining = remaining[file.write(remaining) :]
    file.truncate()  # last, so that at no time more of the old content is lost than was overwritten
    os.fsync(file.fileno())


def is_replaceable(target: WorkspacePath) -> bool:
    """Return whether `replace_file` can replace an existing file, as far as can be seen without trying it."""
    try:
        with _open_parent(target) as folder:
            status = _stat_or_none(_name(target), folder)
            if status is None:
                return True
            is_open = os.access(".", os.W_OK | os.X_OK, dir_fd=folder, effective_ids=_EFFECTIVE)
            return is_open and not _is_sticky(folder, status) and not _is_mounted(_name(target), folder)
    except OSError:
        return True


_EFFECTIVE = os.access in os.supports_effective_ids


def _is_sticky(folder: int, status: os.stat_result) -> bool:
    """Return whether only owners may replace files in the folder, as in /tmp, and this process is none."""
    folder_status = os.fstat(folder)
    return bool(folder_status.st_mode & stat.S_ISVTX) and os.geteuid() not in (0, status.st_uid, folder_status.st_uid)


def _is_mounted(name: str, folder: int) -> bool:
    """Return whether the file is a mount point, as one that is bound into a container; False if that is unknown."""
    try:
        descriptor = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
        try:
            return _mount_id(descriptor) != _mount_id(folder)
        finally:
            os.close(descriptor)
    except (AttributeError, OSError):  # there are neither O_PATH nor /proc elsewhere than on Linux
        return False


def _mount_id(descriptor: int) -> str:
    lines = Path(f"/proc/self/fdinfo/{descriptor}").read_text(encoding="ascii").splitlines()
    return next((line for line in lines if line.startswith("mnt_id:")), "")


def remove_file(target: WorkspacePath) -> None:
    """Remove a regular file; its folder stays."""
    name = _name(target)
    with _os_errors_as_tool_errors(target), _open_parent(target) as folder:
        _require_regular(os.stat(name, dir_fd=folder, follow_symlinks=False), target)
        os.unlink(name, dir_fd=folder)
        os.fsync(folder)


def _stat_or_none(name: str, folder: int) -> os.stat_result | None:
    try:
        return os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None


# --- opening folders without following links --------------------------------------------------------------------------


def _name(target: WorkspacePath) -> str:
    if not target.parts:
        raise ToolError("'.' is the workspace itself, a folder; name a file in it")
    return target.parts[-1]


def _open_parent(target: WorkspacePath, *, create: bool = False) -> AbstractContextManager[int]:
    return _open_folder(target, target.parts[:-1], create=create)


@contextmanager
def _open_folder(target: WorkspacePath, parts: Sequence[str], *, create: bool = False) -> Generator[int]:
    """Open the folder `parts` inside the root and yield its descriptor."""
    root = os.open(target.root, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    with descend(root, parts, lists=True, new_mode=0o777 if create else None) as folder:
        yield folder


def _require_regular(status: os.stat_result, target: WorkspacePath) -> None:
    if stat.S_ISREG(status.st_mode):
        return
    kinds = ((stat.S_ISDIR, "a folder"), (stat.S_ISFIFO, "a pipe"), (stat.S_ISSOCK, "a socket"))
    kind = next((word for test, word in kinds if test(status.st_mode)), "a device or link")
    raise ToolError(f"{target.shown!r} is {kind}, not a file; name a regular file")


@contextmanager
def _os_errors_as_tool_errors(target: WorkspacePath) -> Generator[None]:
    """Raise `OSError` of the block as `ToolError` with a sentence for the model."""
    try:
        yield
    except OSError as exc:
        shown = target.shown
        match exc.errno:
            case errno.ENOENT:
                globs = "; a path is no glob, which file_search takes" if re.search(r"[*?{]", shown) else ""
                raise ToolError(f"{shown!r} does not exist; list_files shows what does{globs}") from exc
            case errno.ENOTDIR | errno.ELOOP:
                raise ToolError(f"a part of {shown!r} is not a folder, or was changed into a link meanwhile") from exc
            case errno.ENAMETOOLONG:
                raise ToolError(f"the path {shown[:100]!r}… is too long") from exc
            case _:
                raise ToolError(f"{shown!r}: {exc.strerror}") from exc

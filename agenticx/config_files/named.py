"""The files of one kind by name: those of the user in a folder of AGX_HOME, then the packaged ones."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, Literal, TypeVar

from agenticx.errors import SettingsError, error_text
from agenticx.resource_exhaustion import raise_if_exhausted
from agenticx.settings import config_folders
from agenticx.tools.visible import visible_line

__all__ = ["NamedFile", "NamedFiles", "Origin"]

C = TypeVar("C")

_SUFFIX = ".toml"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_MAX_FILE_BYTES = 256 * 1024
_MAX_SHOWN_CHARS = 100

Origin = Literal["user", "packaged"]


@dataclass(frozen=True, slots=True)
class NamedFile(Generic[C]):
    """A file; `problem` says why it cannot be used, `config` is None if that is the file itself."""

    name: str
    path: Path
    origin: Origin
    config: C | None
    problem: str | None = None


class NamedFiles(Generic[C]):
    """The files of one kind: `NAME.toml` in a folder such as `teams` of AGX_HOME (`home`), then the packaged ones.

    `noun` is the kind in messages, such as `team`; `parse` reads the text of a file, whose path is its second argument.
    `error` is raised for a file that cannot be used, by `parse` too, and `unknown` for a name that no file has. Each
    call reads the files anew, and blocks.
    """

    def __init__(
        self,
        home: Path,
        folder: str,
        *,
        noun: str,
        parse: Callable[[str, str], C],
        error: type[SettingsError],
        unknown: type[SettingsError],
    ) -> None:
        self._folders: Sequence[tuple[Origin, Path]] = (
            ("user", home / folder),
            *(("packaged", config_folder / folder) for config_folder in config_folders()),
        )
        self._noun = noun
        self._one = f"an {noun}" if noun[0] in "aeiou" else f"a {noun}"
        self._parse = parse
        self._error = error
        self._unknown = unknown

    def names(self) -> list[str]:
        """Return the names of all files, sorted."""
        return sorted({path.stem for _, path in self._paths()})

    def list_all(self) -> list[NamedFile[C]]:
        """Return all files by name, those that cannot be used too; a file of the user hides a packaged one."""
        found: dict[str, NamedFile[C]] = {}
        for origin, path in self._files():
            if path.stem not in found:
                found[path.stem] = self._file(origin, path)
        return [found[name] for name in sorted(found)]

    def read(self, name: str) -> C:
        """Return the content of the file of that name; raise `unknown`, or `error` for one that cannot be used."""
        for _, path in self._paths():
            if path.stem == name:
                return self._read(path)
        known = ", ".join(self.names()) or f"none; add a file to {self._folders[0][1]}"
        raise self._unknown(f"unknown {self._noun} {name[:_MAX_SHOWN_CHARS]!r}; known {self._noun}s: {known}")

    def _file(self, origin: Origin, path: Path) -> NamedFile[C]:
        try:
            return NamedFile(self._checked_name(path.stem), path, origin, self._read(path))
        except (SettingsError, ValueError) as exc:
            return NamedFile(visible_line(path.stem, _MAX_SHOWN_CHARS), path, origin, None, str(exc))

    def _checked_name(self, name: str) -> str:
        """Return the name; raise `ValueError` for one that leads to no file."""
        if not _NAME.fullmatch(name):
            shown = repr(name[:_MAX_SHOWN_CHARS])
            raise ValueError(f"the name of {self._one} has 1 to 64 letters, digits, _ and -, not {shown}")
        return name

    def _paths(self) -> Iterator[tuple[Origin, Path]]:
        """Yield the files to which a name can lead, the ones that take precedence first."""
        return ((origin, path) for origin, path in self._files() if _NAME.fullmatch(path.stem))

    def _files(self) -> Iterator[tuple[Origin, Path]]:
        """Yield the files that may be of this kind, the ones that take precedence first."""
        for origin, folder in self._folders:
            try:
                paths = sorted(folder.iterdir())
            except (FileNotFoundError, NotADirectoryError):
                continue
            except OSError as exc:
                raise_if_exhausted(exc)
                raise self._error(f"{folder} cannot be read: {exc.strerror}") from exc
            for path in paths:
                if path.suffix == _SUFFIX and not path.name.startswith("."):
                    yield origin, path

    def _read(self, path: Path) -> C:
        try:
            resolved = path.resolve(strict=True)
            if not resolved.is_relative_to(path.parent.resolve()):
                raise self._error(f"{path} is a link to {resolved}; right would be a file in that folder itself")
            if not resolved.is_file():
                raise self._error(f"{path} is not a file")
            with resolved.open("rb") as file:
                content = file.read(_MAX_FILE_BYTES + 1)
        except (OSError, RuntimeError) as exc:  # RuntimeError: circular links
            raise_if_exhausted(exc)
            raise self._error(f"{path} cannot be read: {error_text(exc)}") from exc
        if len(content) > _MAX_FILE_BYTES:
            limit = f"the limit for the file of {self._one}"
            raise self._error(f"{path} is larger than {_MAX_FILE_BYTES} bytes, {limit}")
        try:
            text = content.decode("utf-8-sig")
        except UnicodeDecodeError as exc:
            raise self._error(f"{path} is not UTF-8: {exc}") from exc
        return self._parse(text, str(path))

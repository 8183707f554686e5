"""The files of configured teams: those of the user in AGX_HOME/teams, then the packaged ones."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from typing_extensions import TypedDict

from agenticx.errors import SettingsError
from agenticx.resource_exhaustion import raise_if_exhausted
from agenticx.settings import config_folders
from agenticx.teams.configured.config import TeamConfig, parse_team
from agenticx.teams.configured.errors import TeamConfigError, UnknownTeam
from agenticx.tools.visible import visible_line

__all__ = ["ConfiguredTeam", "TeamFiles", "TeamItem"]

_FOLDER = "teams"
_SUFFIX = ".toml"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_MAX_FILE_BYTES = 256 * 1024
_MAX_SHOWN_CHARS = 100

Origin = Literal["user", "packaged"]


class ParticipantItem(TypedDict):
    """A participant of a team: an agent (`assistant`), or the user."""

    name: str
    kind: Literal["assistant", "user"]
    description: str | None


class TeamItem(TypedDict):
    """A team; `problem` says why it cannot be used, `kind` is null if its file cannot be read.

    `origin` is `user` for a file in AGX_HOME/teams, else `packaged`.
    """

    name: str
    kind: Literal["round_robin", "selector", "swarm"] | None
    description: str | None
    participants: list[ParticipantItem]
    origin: Literal["user", "packaged"]
    problem: str | None


@dataclass(frozen=True, slots=True)
class ConfiguredTeam:
    """A team of a file; `problem` says why it cannot be used, `config` is None if that is the file itself."""

    name: str
    path: Path
    origin: Origin
    config: TeamConfig | None
    problem: str | None = None

    def to_json(self) -> TeamItem:
        """Return the team as clients read it."""
        config = self.config
        participants = () if config is None else config.participants
        return {
            "name": self.name,
            "kind": None if config is None else config.kind,
            "description": None if config is None else config.description,
            "participants": [
                {"name": one.name, "kind": one.kind, "description": one.description} for one in participants
            ],
            "origin": self.origin,
            "problem": self.problem,
        }


def _check_name(name: str) -> str:
    """Return the name; raise `ValueError` for one that no file of a team can have."""
    if not _NAME.fullmatch(name):
        shown = repr(name[:_MAX_SHOWN_CHARS])
        raise ValueError(f"the name of a team has 1 to 64 letters, digits, _ and -, not {shown}")
    return name


class TeamFiles:
    """The files of the teams; `home` is AGX_HOME. Each call reads them anew, and blocks."""

    def __init__(self, home: Path) -> None:
        self._folders: Sequence[tuple[Origin, Path]] = (
            ("user", home / _FOLDER),
            *(("packaged", folder / _FOLDER) for folder in config_folders()),
        )

    def names(self) -> list[str]:
        """Return the names of all teams, sorted."""
        return sorted({path.stem for _, path in self._paths()})

    def list_all(self) -> list[ConfiguredTeam]:
        """Return all teams by name, those whose file cannot be used too; a file of the user hides a packaged one."""
        found: dict[str, ConfiguredTeam] = {}
        for origin, path in self._files():
            if path.stem not in found:
                found[path.stem] = self._team(origin, path)
        return [found[name] for name in sorted(found)]

    def read(self, name: str) -> TeamConfig:
        """Return the configuration of a team; raise `UnknownTeam`, or `TeamConfigError` for an unusable file."""
        for _, path in self._paths():
            if path.stem == name:
                return self._parse(path)
        known = ", ".join(self.names()) or f"none; add a file to {self._folders[0][1]}"
        raise UnknownTeam(f"unknown team {name[:_MAX_SHOWN_CHARS]!r}; known teams: {known}")

    def _team(self, origin: Origin, path: Path) -> ConfiguredTeam:
        try:
            return ConfiguredTeam(_check_name(path.stem), path, origin, self._parse(path))
        except (SettingsError, ValueError) as exc:
            return ConfiguredTeam(visible_line(path.stem, _MAX_SHOWN_CHARS), path, origin, None, str(exc))

    def _paths(self) -> Iterator[tuple[Origin, Path]]:
        """Yield the files that a team's name can lead to, the ones that take precedence first."""
        return ((origin, path) for origin, path in self._files() if _NAME.fullmatch(path.stem))

    def _files(self) -> Iterator[tuple[Origin, Path]]:
        """Yield the files that may be those of teams, the ones that take precedence first."""
        for origin, folder in self._folders:
            try:
                paths = sorted(folder.iterdir())
            except (FileNotFoundError, NotADirectoryError):
                continue
            except OSError as exc:
                raise_if_exhausted(exc)
                raise TeamConfigError(f"{folder} cannot be read: {exc.strerror}") from exc
            for path in paths:
                if path.suffix == _SUFFIX and not path.name.startswith("."):
                    yield origin, path

    def _parse(self, path: Path) -> TeamConfig:
        try:
            resolved = path.resolve(strict=True)
            if not resolved.is_relative_to(path.parent.resolve()):
                raise TeamConfigError(f"{path} is a link to {resolved}; right would be a file in that folder itself")
            if not resolved.is_file():
                raise TeamConfigError(f"{path} is not a file")
            with resolved.open("rb") as file:
                content = file.read(_MAX_FILE_BYTES + 1)
        except (OSError, RuntimeError) as exc:  # RuntimeError: circular links
            raise_if_exhausted(exc)
            raise TeamConfigError(f"{path} cannot be read: {exc}") from exc
        if len(content) > _MAX_FILE_BYTES:
            raise TeamConfigError(f"{path} is larger than {_MAX_FILE_BYTES} bytes, the limit for the file of a team")
        try:
            return parse_team(content.decode("utf-8-sig"), str(path))
        except UnicodeDecodeError as exc:
            raise TeamConfigError(f"{path} is not UTF-8: {exc}") from exc

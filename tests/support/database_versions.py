"""Session databases of another version than this program's."""

from __future__ import annotations

from pathlib import Path

__all__ = ["set_version", "version_of"]


def version_of(database: Path) -> int:
    """Return the version in the header of a database."""
    return int.from_bytes(database.read_bytes()[60:64], "big", signed=True)


def set_version(database: Path, version: int) -> None:
    """Write the version into the header of a database: https://sqlite.org/fileformat2.html#the_database_header."""
    with database.open("r+b") as file:
        file.seek(60)
        file.write(version.to_bytes(4, "big", signed=True))

"""Session databases of another version than this program's."""

from __future__ import annotations

from pathlib import Path

__all__ = ["set_version"]


def set_version(database: Path, version: int) -> None:
    """Write the version into the header of a database: https://sqlite.org/fileformat2.html#the_database_header."""
    with database.open("r+b") as file:
        file.seek(60)
        file.write(version.to_bytes(4, "big", signed=True))

"""The version of the database: a file of another one is refused, as it is."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from agenticx.sessions import MemoryBlobs, SessionRecord, SqliteStore, VersionMismatch
from agenticx.sessions.store.sqlite.check import check_database
from agenticx.sessions.store.sqlite.reader import SqliteReader
from agenticx.sessions.store.sqlite.schema import SCHEMA_VERSION, create_schema
from tests.support.database_versions import set_version

pytestmark = pytest.mark.anyio


def contents(folder: Path) -> dict[str, tuple[bytes, int]]:
    return {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in sorted(folder.iterdir())}


@pytest.mark.parametrize("suffixes", [[""], ["", "-wal"], ["", "-wal", "-shm"]], ids=["closed", "with log", "killed"])
@pytest.mark.parametrize("version", [0, -1, SCHEMA_VERSION + 1])
@pytest.mark.parametrize("use", [SqliteStore, check_database, lambda path: SqliteReader(path, blobs=MemoryBlobs())])
async def test_a_database_of_another_version_is_refused_and_no_byte_is_changed(
    tmp_path: Path, use: Callable[[Path], object], version: int, suffixes: list[str]
) -> None:
    store = SqliteStore(tmp_path / "sessions.db")
    await store.create(SessionRecord(workspace="/", created_at="2026-01-01T00:00:00.000Z"))
    left = tmp_path / "left"
    left.mkdir()
    for suffix in suffixes:
        shutil.copy(tmp_path / f"sessions.db{suffix}", left)
    await store.aclose()
    set_version(left / "sessions.db", version)
    before = contents(left)
    with pytest.raises(VersionMismatch, match=f"version {version} of the session database") as raised:
        use(left / "sessions.db")
    assert (raised.value.found, contents(left)) == (version, before)


JOURNAL_SYNCED = bytes.fromhex("d9d505f920a163d7")
"""The begin of a journal once it is synced, before anything is written to the database; zeros until then.

https://sqlite.org/fileformat2.html#the_rollback_journal
"""


@pytest.mark.parametrize("pages", [0, 1, 5, 100])
async def test_a_database_whose_creation_was_cut_off_is_created_again(tmp_path: Path, pages: int) -> None:
    whole, left = tmp_path / "whole.db", tmp_path / "left.db"
    journals: list[bytes] = []

    def copy_journal(statement: str) -> None:
        if statement.strip() == "COMMIT;":
            journals.append(Path(f"{whole}-journal").read_bytes())

    with closing(sqlite3.connect(whole, isolation_level=None)) as connection:
        connection.set_trace_callback(copy_journal)
        create_schema(connection)
        connection.set_trace_callback(None)
        (log_id,) = connection.execute("SELECT value FROM meta WHERE key = 'log_id'").fetchone()
    (journal,) = journals
    Path(f"{left}-journal").write_bytes(JOURNAL_SYNCED + journal[len(JOURNAL_SYNCED) :])
    left.write_bytes(whole.read_bytes()[: pages * 4096])
    assert check_database(left) == ("has unapplied log" if pages else "missing")
    store = SqliteStore(left)
    assert store.log.log_id != log_id
    await store.aclose()
    assert sorted(path.name for path in tmp_path.glob("left.db*")) == ["left.db", "left.db.owner"]
    assert check_database(left) == "intact"

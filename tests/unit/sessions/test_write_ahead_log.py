"""The damaged write-ahead log of a killed process, of which SQLite's silent losses are reported."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from agenticx.errors import StoreError
from agenticx.sessions import SessionRecord, SqliteStore

pytestmark = pytest.mark.anyio

LOGGED = "write-ahead log damaged"
HEADER, FRAME = 32, 24 + 4096


async def killed(
    tmp_path: Path, *, begun_anew: bool = False, in_the_database: bool = False, only_header: bool = False
) -> Path:
    """Return the database of a store as a killed process leaves it.

    With `begun_anew` it was about to overwrite a log that is in the database, and with `only_header` had not gone on.
    """
    store = SqliteStore(tmp_path / "alive" / "sessions.db")
    names = [f"session {number}" for number in range(8)]
    for name in names:
        await store.create(SessionRecord(name=name, workspace="/", created_at="2026-01-01T00:00:00.000Z"))
    if begun_anew or in_the_database:
        with closing(sqlite3.connect(tmp_path / "alive" / "sessions.db")) as connection:
            assert connection.execute("PRAGMA wal_checkpoint(RESTART)").fetchone()[0] == 0
    before = (tmp_path / "alive" / "sessions.db-wal").read_bytes()
    if begun_anew:
        await store.create(SessionRecord(name="the ninth", workspace="/", created_at="2026-01-01T00:00:00.000Z"))
    left = tmp_path / "left"
    left.mkdir()
    for suffix in ("", "-wal"):
        shutil.copy(tmp_path / "alive" / f"sessions.db{suffix}", left / f"sessions.db{suffix}")
    if only_header:
        change(left / "sessions.db-wal", lambda content: content.__setitem__(slice(HEADER, None), before[HEADER:]))
    await store.aclose()
    return left


def change(log: Path, change: Callable[[bytearray], None]) -> bytes:
    content = bytearray(log.read_bytes())
    change(content)
    log.write_bytes(content)
    return bytes(content)


def flip(place: int) -> Callable[[bytearray], None]:
    def change(content: bytearray) -> None:
        content[place] ^= 0x40

    return change


def zeros(size: int) -> Callable[[bytearray], None]:
    def change(content: bytearray) -> None:
        content[:size] = bytes(size)

    return change


DAMAGES = {
    **{f"byte {place} of the header": flip(place) for place in (0, 3, 4, 9, 10, 14, 17, 21, 25, 31)},
    **{f"byte {place} of the first frame": flip(HEADER + place) for place in (0, 5, 9, 13, 17, 21, 24, 999)},
    **{f"byte {place} of the third frame": flip(HEADER + 2 * FRAME + place) for place in (0, 5, 9, 13, 17, 21, 24)},
    "the last transaction but for its last frame": flip(-FRAME - 100),
    "the first sector": zeros(512),
}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.cases(quick=4)
async def test_a_damaged_log_is_logged_and_copied_for_its_owner_alone(
    tmp_path: Path, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    left = await killed(tmp_path)
    content = change(left / "sessions.db-wal", DAMAGES[damage])
    store = SqliteStore(left / "sessions.db")
    assert [LOGGED in record.getMessage() for record in caplog.records] == [True]
    (kept,) = left.glob("sessions.db-wal.damaged-*")
    assert str(kept) in caplog.text
    assert (kept.read_bytes(), kept.stat().st_mode & 0o777) == (content, 0o600)
    assert len(await store.catalog.sessions()) < 8
    await store.create(SessionRecord(name="after", workspace="/", created_at="2026-01-01T00:00:00.000Z"))
    await store.aclose()
    caplog.clear()
    again = SqliteStore(left / "sessions.db")
    assert caplog.records == []
    assert (await again.catalog.sessions())[0].record.name == "after"
    await again.aclose()
    assert list(left.glob("*damaged*")) == [kept]


@pytest.mark.parametrize("damage", [flip(3), flip(17), zeros(17), zeros(32)])
@pytest.mark.parametrize("how", ["begun_anew", "in_the_database"])
async def test_the_damaged_header_of_a_log_whose_transactions_are_in_the_database_is_logged_too(
    tmp_path: Path, how: str, damage: Callable[[bytearray], None], caplog: pytest.LogCaptureFixture
) -> None:
    left = await killed(tmp_path, begun_anew=how == "begun_anew", in_the_database=True)
    change(left / "sessions.db-wal", damage)
    store = SqliteStore(left / "sessions.db")
    assert [LOGGED in record.getMessage() for record in caplog.records] == [True]
    assert len(await store.catalog.sessions()) == 8
    await store.aclose()


NORMAL: dict[str, tuple[dict[str, bool], Callable[[bytearray], None]]] = {
    "whole": ({}, lambda _: None),
    "with leftovers of an earlier generation behind its end": ({"begun_anew": True}, lambda _: None),
    "begun anew by its header alone": ({"begun_anew": True, "only_header": True}, lambda _: None),
    "that is in the database": ({"in_the_database": True}, lambda _: None),
    "whose last frame is cut off": ({}, lambda content: content.__delitem__(slice(-100, None))),
    "whose last frame is torn": ({}, flip(-100)),
    "with a header and no more": ({"in_the_database": True}, lambda content: content.__delitem__(slice(32, None))),
    "that ends in its header": ({"in_the_database": True}, lambda content: content.__delitem__(slice(9, None))),
}


@pytest.mark.parametrize("what", NORMAL)
async def test_a_log_left_by_a_kill_or_a_power_failure_is_not_damaged(
    tmp_path: Path, what: str, caplog: pytest.LogCaptureFixture
) -> None:
    how, tear = NORMAL[what]
    left = await killed(tmp_path, **how)
    change(left / "sessions.db-wal", tear)
    store = SqliteStore(left / "sessions.db")
    assert caplog.records == []
    assert len(await store.catalog.sessions()) >= 7
    await store.aclose()
    assert list(left.glob("*damaged*")) == []


@pytest.mark.parametrize("place", [3, HEADER + 2 * FRAME + 24])
async def test_a_damaged_log_that_cannot_be_copied_is_left_unchanged(tmp_path: Path, place: int) -> None:
    left = await killed(tmp_path)
    content = change(left / "sessions.db-wal", flip(place))
    database = left / f"{'x' * 230}.db"  # what is put aside would have too long a name
    for suffix in ("", "-wal"):
        (left / f"sessions.db{suffix}").rename(left / f"{database.name}{suffix}")
    with pytest.raises(StoreError, match="could not be copied"):
        SqliteStore(database)
    assert (left / f"{database.name}-wal").read_bytes() == content


async def test_a_log_whose_database_is_gone_is_logged_and_copied(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    left = await killed(tmp_path)
    content = (left / "sessions.db-wal").read_bytes()
    (left / "sessions.db").unlink()
    store = SqliteStore(left / "sessions.db")
    assert [LOGGED in record.getMessage() for record in caplog.records] == [True]
    assert [kept.read_bytes() for kept in left.glob("sessions.db-wal.damaged-*")] == [content]
    assert await store.catalog.sessions() == []
    await store.aclose()

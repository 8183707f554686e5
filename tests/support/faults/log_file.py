"""An independent reader of the database: it shares no code with AgenticX and asks no server."""

from __future__ import annotations

import json
import shutil
import sqlite3
import zlib
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

WAL = "-wal"


class LoggedEvent(NamedTuple):
    """An event as stored in the file."""

    session: str
    turn: str
    seq: int
    position: int
    type: str
    terminal: bool
    frame: bytes

    @property
    def envelope(self) -> dict[str, Any]:
        return json.loads(self.frame)

    @property
    def data(self) -> dict[str, Any]:
        return self.envelope["data"]


class LoggedFact(NamedTuple):
    """A fact as stored in the file."""

    session: str
    turn: str
    kind: str
    key: str
    data: Mapping[str, Any]


@dataclass
class LogFile:
    """The content of a database file; `events` by session, in the order of the file."""

    integrity: str
    events: dict[str, list[LoggedEvent]] = field(default_factory=dict[str, list[LoggedEvent]])
    facts: list[LoggedFact] = field(default_factory=list[LoggedFact])
    client_turn_ids: dict[str, str] = field(default_factory=dict[str, str])  # client_turn_id → turn
    running: dict[str, str] = field(default_factory=dict[str, str])  # session → turn

    def facts_of(self, kind: str) -> Iterator[LoggedFact]:
        return (fact for fact in self.facts if fact.kind == kind)


def snapshot(database: Path, folder: Path) -> Path:
    """Copy the database as a killed process left it: the file and its write-ahead log, untouched by SQLite."""
    folder.mkdir(parents=True, exist_ok=True)
    copy = folder / database.name
    for suffix in ("", WAL):
        part = database.with_name(database.name + suffix)
        if part.exists():
            shutil.copyfile(part, copy.with_name(copy.name + suffix))
        else:
            copy.with_name(copy.name + suffix).unlink(missing_ok=True)
    copy.with_name(copy.name + "-shm").unlink(missing_ok=True)
    return copy


def read_log(copy: Path) -> LogFile:
    """Return the content of a copy of the database; if it is damaged, only SQLite's error as `integrity`."""
    with closing(sqlite3.connect(copy)) as connection:
        try:
            integrity = "; ".join(text for (text,) in connection.execute("PRAGMA integrity_check(5)"))
            return _read_tables(LogFile(integrity), connection)
        except sqlite3.DatabaseError as exc:
            return LogFile(f"unreadable: {exc}")


def _read_tables(log: LogFile, connection: sqlite3.Connection) -> LogFile:
    names: dict[int, str] = {}
    for number, id_, running in connection.execute("SELECT number, id, running FROM sessions"):
        names[number] = id_
        log.events[id_] = []
        if running is not None:
            log.running[id_] = running
    rows = connection.execute(
        """SELECT session, last_seq, 1, body FROM segments
           UNION ALL SELECT session, last_seq, 0, body FROM commits ORDER BY 1, 2"""
    )
    for number, last_seq, packed, body in rows:
        text = zlib.decompress(body) if packed else body
        lines = text.split(b"\n") if text else []
        log.events[names[number]] += _events(names[number], last_seq - len(lines) + 1, lines)
    for number, turn, kind, key, data in connection.execute(
        """SELECT session, facts.turn, facts.kind, facts.key, data
           FROM facts JOIN records USING (session, rev, record_index) ORDER BY number"""
    ):
        log.facts.append(LoggedFact(names[number], turn, kind, key, json.loads(data)))
    query = "SELECT client_turn_id, id FROM turns WHERE client_turn_id IS NOT NULL"
    log.client_turn_ids.update(connection.execute(query).fetchall())
    return log


def _events(session: str, first_seq: int, lines: list[bytes]) -> Iterator[LoggedEvent]:
    for seq, line in enumerate(lines, first_seq):
        position, turn, type_, terminal, frame = line.split(b"\t", 4)
        yield LoggedEvent(session, turn.decode(), seq, int(position), type_.decode(), terminal == b"T", frame)

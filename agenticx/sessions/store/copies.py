"""Copies of whole sessions between stores: logs with their numbers, records, contents."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Literal, Protocol

from agenticx.errors import SessionNotFound
from agenticx.runtime.events import EventType
from agenticx.sessions.log.commits import LogEnd
from agenticx.sessions.log.damage import DamagedData, map_decode_errors
from agenticx.sessions.log.events import StoredEvent
from agenticx.sessions.log.records import EventsCopied, SessionChanged, StoredRecord
from agenticx.sessions.log.session_record import SessionRecord
from agenticx.sessions.store.base import SessionOwnedElsewhere
from agenticx.sessions.store.blobs import Blobs
from agenticx.sessions.store.segments import CommitRow, Segment, decode_segment, merge_commits, segment_lines

__all__ = [
    "CopiedEvents",
    "CopyableStore",
    "Outcome",
    "SessionCopies",
    "copied_commits",
    "copied_segment",
    "copy_sessions",
    "first_record",
]

Outcome = Literal["copied", "skipped", "refused"]
"""A session is skipped if the target has it with the same log, and refused if it has another one or it is in use."""


class SessionCopies(Protocol):
    """The sessions of a store as whole logs, to read them or to add them to the store.

    A copied event has the position 0, as an event of a fork has: it is not in the log of all sessions.
    """

    async def session_ids(self) -> Sequence[str]:
        """Return the ids of all sessions in the order in which they were made."""
        ...

    def claimed(self, session_id: str) -> AbstractAsyncContextManager[None]:
        """Own the session while the block runs; raises `SessionOwnedElsewhere`, `SessionNotFound`."""
        ...

    async def end(self, session_id: str) -> LogEnd | None:
        """Return the end of the session's log, None without such a session."""
        ...

    def segments(self, session_id: str) -> AsyncGenerator[Sequence[Segment]]:
        """Yield all commits of the session in pages of segments; raises `DamagedData`."""
        ...

    def records(self, session_id: str) -> AsyncGenerator[Sequence[StoredRecord]]:
        """Yield all records of the session in pages, in the order of its log; raises `DamagedData`."""
        ...

    async def add(
        self,
        record: SessionRecord,
        end: LogEnd,
        segments: AsyncGenerator[Sequence[Segment]],
        records: AsyncGenerator[Sequence[StoredRecord]],
    ) -> None:
        """Add a session with the log that these pages make, up to `end`; it appears whole, after the last one.

        `record` is that of its first commit.
        """
        ...


@dataclass(frozen=True, kw_only=True)
class CopyableStore:
    """A store from which and to which sessions can be copied.

    `databases` has the copies interface of each database; `copies_of` returns the one for a session's database.
    """

    databases: Sequence[SessionCopies]
    copies_of: Callable[[str], SessionCopies]
    blobs: Blobs | None
    aclose: Callable[[], Awaitable[None]]

    async def session_ids(self) -> Sequence[str]:
        """Return the ids of all sessions, by database in the order in which they were made."""
        return [session_id for copies in self.databases for session_id in await copies.session_ids()]


async def copy_sessions(
    source: CopyableStore,
    target: CopyableStore,
    session_ids: Sequence[str] | None,
    *,
    report: Callable[[str, Outcome, str], None],
) -> None:
    """Copy sessions, by default all; `report` is called with the id and outcome of each, and why it is refused.

    It can be repeated after an interruption. Raises `StoreError` if a store fails.
    """
    for session_id in await source.session_ids() if session_ids is None else session_ids:
        try:
            report(session_id, *await _copy(source, target, session_id))
        except (SessionNotFound, SessionOwnedElsewhere, DamagedData) as exc:
            report(session_id, "refused", str(exc))


async def _copy(source: CopyableStore, target: CopyableStore, session_id: str) -> tuple[Outcome, str]:
    read, written = source.copies_of(session_id), target.copies_of(session_id)
    async with read.claimed(session_id):
        end, known = await read.end(session_id), await written.end(session_id)
        if end is None:
            raise SessionNotFound(f"no session has the id {session_id!r}")
        if known is not None:
            if known == end:
                return "skipped", ""
            return "refused", "the target has another log of it; delete it there first"
        await _copy_contents(source, target, session_id)
        record = await first_record(read.records(session_id))
        await written.add(record, end, read.segments(session_id), read.records(session_id))
    return "copied", ""


async def _copy_contents(source: CopyableStore, target: CopyableStore, session_id: str) -> None:
    """Copy the session's contents; contents that stay on their host are copied from this host only."""
    if source.blobs is None or target.blobs is None:
        return
    known = set(await target.blobs.contents(session_id))  # both may keep them in one folder
    for digest, retention in await source.blobs.contents(session_id):
        if (digest, retention) in known:
            continue
        content = await source.blobs.get(session_id, digest)
        if content is not None:  # else it is damaged, as good as missing
            await target.blobs.put(session_id, content, retention=retention)


async def first_record(pages: AsyncGenerator[Sequence[StoredRecord]]) -> SessionRecord:
    """Return the record of a session's first commit; raises `DamagedData`."""
    try:
        async for page in pages:
            if page and isinstance(page[0].record, SessionChanged):
                return page[0].record.record
            break
    finally:
        await pages.aclose()
    raise DamagedData("the log of a session does not begin with its record")


# --- rows -------------------------------------------------------------------------------------------------------------


def copied_segment(segment: Segment) -> Segment:
    """Return a segment whose events have no position; raises `DamagedData`."""
    with map_decode_errors(f"the log up to event {segment.last_seq}"):
        body = _without_positions(segment_lines(segment.body, compressed=True))
    (made,) = merge_commits([_whole_row(segment.last_seq, segment.last_rev, segment.commit_id, body)])
    return made._replace(first_rev=segment.first_rev)


def copied_commits(commits: Iterable[tuple[int, int, str, bytes]]) -> Iterator[Segment]:
    """Yield segments of commits that follow each other: their last event, number, id and uncompressed body."""
    rows = list[CommitRow]()
    for last_seq, rev, commit_id, body in commits:
        with map_decode_errors(f"the log up to event {last_seq}"):
            rows.append(_whole_row(last_seq, rev, commit_id, _without_positions(segment_lines(body, compressed=False))))
    if rows:
        yield from merge_commits(rows)


def _whole_row(last_seq: int, rev: int, commit_id: str, body: bytes) -> CommitRow:
    return CommitRow(0, 0, rev, commit_id, last_seq, body)


def _without_positions(lines: Sequence[bytes]) -> bytes:
    return b"\n".join(b"0" + line[line.index(b"\t") :] for line in lines)


@dataclass
class CopiedEvents:
    """The events of copied segments that change tables: the ends of turns, and usage that counts in this session."""

    ended_turns: list[str] = field(default_factory=list[str])
    copied_count: int = 0
    _usage: list[StoredEvent] = field(default_factory=list[StoredEvent])

    def add_segments(self, session_id: str, segments: Iterable[Segment]) -> None:
        """Take the events of segments into account; raises `DamagedData`."""
        for segment in segments:
            for event in decode_segment(session_id, segment.last_seq, segment.body, compressed=True):
                if event.type is EventType.USAGE:
                    self._usage.append(event)
                elif event.terminal and event.turn_id is not None:
                    self.ended_turns.append(event.turn_id)

    def add_records(self, records: Iterable[StoredRecord]) -> None:
        """Apply the records about events that were copied from another session."""
        for stored in records:
            if isinstance(stored.record, EventsCopied):
                self.copied_count = stored.record.count

    @property
    def usage(self) -> list[StoredEvent]:
        """The usage of this session's own model calls."""
        return [event for event in self._usage if event.seq > self.copied_count]

"""Changes of files by the agent and by rewinds, and the facts of a session that record them.

Without one of these facts it is unknown which files are unchanged. So each has a checksum, and if one is not as it was
written all are refused (`DamagedData`): a rewind that would concern files then changes neither files nor the
conversation, and raises.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TypeAlias

from agenticx.logs import get_logger
from agenticx.messages import new_id
from agenticx.sessions.store.damage import DamagedData
from agenticx.sessions.store.entries import Fact, FileEdited, FileRewound
from agenticx.sessions.store.hosts import this_host

__all__ = [
    "FileChange",
    "FileEdit",
    "RewindEdit",
    "change_fact",
    "damaged_fact",
    "damaged_list_error",
    "is_path",
    "parse_change",
    "parse_changes",
]

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class FileEdit:
    """A call's change of one file of `host`: the digests of its content before and after (None: no file).

    One that was written `in_place` has parts of both contents if the process ended meanwhile. `root` is the folder in
    which the call could change files, such as a vault of notes, for a file outside the session's workspace.
    """

    call_id: str
    path: str
    before: str | None
    after: str | None
    host: str = field(default_factory=this_host)
    in_place: bool = False
    root: str | None = None

    @property
    def reverse(self) -> FileEdit:
        """The edit that cancels this one, which was recorded but not made."""
        return replace(self, before=self.after, after=self.before)


@dataclass(frozen=True, slots=True)
class RewindEdit:
    """A rewind's change of one file of `host`: the ids of the calls whose edits it undid, and those it redid.

    `mode` are the permissions of a file that it removed. One `in_place` may have been cut off, as that of a `FileEdit`.
    """

    path: str
    undone: Collection[str]
    redone: Collection[str]
    mode: int | None = None
    host: str = field(default_factory=this_host)
    in_place: bool = False


FileChange: TypeAlias = FileEdit | RewindEdit


def change_fact(change: FileChange) -> Fact:
    """Return the fact that records a change."""
    fact: FileEdited | FileRewound
    key = new_id("chg")
    if isinstance(change, FileEdit):
        fact = FileEdited(key=key, checksum="", **asdict(change))
    else:
        fact = FileRewound(
            key=key,
            path=change.path,
            undone=tuple(sorted(change.undone)),
            redone=tuple(sorted(change.redone)),
            mode=change.mode,
            host=change.host,
            in_place=change.in_place,
            checksum="",
        )
    return replace(fact, checksum=_checksum(fact))


def damaged_fact() -> Fact:
    """Return a fact that stands for changes which cannot be read."""
    return replace(change_fact(FileEdit("", "", None, None)), checksum="")


def parse_changes(facts: Sequence[Fact]) -> list[FileChange]:
    """Return the changes that facts record, in their order; raise `DamagedData`."""
    changes: list[FileChange] = []
    for fact in facts:
        change = parse_change(fact)
        if change is None:
            raise damaged_list_error(fact.kind, "a fact is not what was written")
        changes.append(change)
    return changes


def parse_change(fact: Fact) -> FileChange | None:
    """Return the change that a fact records, None if it is not as it was written."""
    if not isinstance(fact, FileEdited | FileRewound) or fact.checksum != _checksum(fact) or not is_path(fact.path):
        return None
    if isinstance(fact, FileEdited):
        return FileEdit(fact.call_id, fact.path, fact.before, fact.after, fact.host, fact.in_place, fact.root)
    mode = None if fact.mode is None else fact.mode & 0o777
    return RewindEdit(fact.path, frozenset(fact.undone), frozenset(fact.redone), mode, fact.host, fact.in_place)


def _checksum(fact: FileEdited | FileRewound) -> str:
    data = {name: value for name, value in fact.data().items() if name != "checksum"}
    return f"{zlib.crc32(json.dumps(data, sort_keys=True).encode()):08x}"


def damaged_list_error(name: str, why: str) -> DamagedData:
    """Return the error for a list of changes that cannot be read."""
    _log.error("list of changed files of a session is damaged", list=name, why=why)
    return DamagedData(
        f"the session's list of changed files is damaged ({name}: {why}), so neither files nor the conversation were"
        " rewound; a fork of the session leaves the files as they are"
    )


def is_path(text: str) -> bool:
    """Return whether the text can be the path of a file."""
    try:
        return b"\0" not in os.fsencode(text)
    except UnicodeEncodeError:
        return False

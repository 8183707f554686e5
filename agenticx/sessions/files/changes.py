"""The records of changes of files, by the agent and by rewinds, with their checksums.

Without one of these records it is unknown which files are unchanged. So each has a checksum, and if one is not as it
was written all are refused (`DamagedData`): a rewind that would concern files then changes neither files nor the
conversation, and raises.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import TypeAlias, TypeVar

from agenticx.logs import get_logger
from agenticx.messages import new_id
from agenticx.sessions.log.damage import DamagedData
from agenticx.sessions.log.records import Fact, FileEdited, FileRewound
from agenticx.sessions.store.hosts import this_host

__all__ = [
    "FileChange",
    "checked_changes",
    "damaged_change",
    "damaged_list_error",
    "file_edited",
    "file_rewound",
    "is_intact",
    "reversed_edit",
]

_log = get_logger(__name__)

FileChange: TypeAlias = FileEdited | FileRewound

_ChangeT = TypeVar("_ChangeT", FileEdited, FileRewound)


def file_edited(
    call_id: str, path: str, before: str | None, after: str | None, *, in_place: bool = False, root: str | None = None
) -> FileEdited:
    """Return the record of a call's change of a file of this host."""
    edit = FileEdited(
        key=new_id("chg"),
        call_id=call_id,
        path=path,
        before=before,
        after=after,
        host=this_host(),
        in_place=in_place,
        root=root,
        checksum="",
    )
    return _with_checksum(edit)


def reversed_edit(edit: FileEdited) -> FileEdited:
    """Return the record that cancels an edit which was recorded but not made."""
    return _with_checksum(replace(edit, key=new_id("chg"), before=edit.after, after=edit.before))


def file_rewound(
    path: str, undone: Collection[str], redone: Collection[str], *, mode: int | None = None, in_place: bool = False
) -> FileRewound:
    """Return the record of a rewind's change of a file of this host."""
    change = FileRewound(
        key=new_id("chg"),
        path=path,
        undone=tuple(sorted(undone)),
        redone=tuple(sorted(redone)),
        mode=mode,
        host=this_host(),
        in_place=in_place,
        checksum="",
    )
    return _with_checksum(change)


def damaged_change() -> FileEdited:
    """Return a record that stands for changes which cannot be read."""
    return replace(file_edited("", "", None, None), checksum="")


def checked_changes(facts: Sequence[Fact]) -> list[FileChange]:
    """Return the records of changes, in their order; raise `DamagedData` if one is not as it was written."""
    changes: list[FileChange] = []
    for fact in facts:
        if not isinstance(fact, FileEdited | FileRewound) or not is_intact(fact):
            raise damaged_list_error(fact.kind, "a fact is not what was written")
        changes.append(fact)
    return changes


def is_intact(change: FileChange) -> bool:
    """Return whether a record is as it was written."""
    return change.checksum == _checksum(change) and _is_path(change.path)


def damaged_list_error(name: str, why: str) -> DamagedData:
    """Return the error for a list of changes that cannot be read."""
    _log.error("list of changed files of a session is damaged", list=name, why=why)
    return DamagedData(
        f"the session's list of changed files is damaged ({name}: {why}), so neither files nor the conversation were"
        " rewound; a fork of the session leaves the files as they are"
    )


def _with_checksum(change: _ChangeT) -> _ChangeT:
    return replace(change, checksum=_checksum(change))


def _checksum(change: FileChange) -> str:
    data = {name: value for name, value in change.data().items() if name != "checksum"}
    return f"{zlib.crc32(json.dumps(data, sort_keys=True).encode()):08x}"


def _is_path(text: str) -> bool:
    try:
        return b"\0" not in os.fsencode(text)
    except UnicodeEncodeError:
        return False

"""Restoring of files that the agent's file tools changed, as they were at another message.

Each file's edits record its content before and after. A file with any other content was changed outside this
conversation since, and is not touched. If an edit does not begin with the content that the previous one left, the file
was changed outside in between: undoing stops at that change. A crash in the middle of a write in place leaves parts of
the old and the new content: such a mixture counts as the new content. Edits are redone only if a rewind undid
them: a file that was put back from outside before the rewind stays as it is. A file outside the session's workspace is
restored by the same rules in the folder that was recorded with its edit, if that is still a vault of notes.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from agenticx.errors import ToolError
from agenticx.sessions.files.changes import FileChange, file_rewound
from agenticx.sessions.files.snapshots import SessionSnapshots
from agenticx.sessions.log.records import Fact, FileEdited, FileRewound
from agenticx.sessions.store.blobs import LARGEST_CONTENT, TOO_LARGE, content_digest
from agenticx.threads import run_in_thread
from agenticx.tools.builtin.files import file_version
from agenticx.tools.paths import (
    CannotReplace,
    WorkspacePath,
    is_replaceable,
    overwrite_file,
    read_file,
    remove_file,
    replace_file,
    resolve_in_workspace,
)
from agenticx.tools.secret_files import is_private
from agenticx.tools.visible import visible_path

__all__ = ["RestoredFile", "restore_files"]


_PARTIAL_REASON = "Only in part: it was changed outside this conversation in between, and that change was kept."

_NO_VAULT_REASON = "It is outside the workspace, in a folder that is no vault of notes any more."

_CHANGED_REASON = "It was changed outside this conversation since; it was not overwritten."


@dataclass(frozen=True, slots=True)
class RestoredFile:
    """The outcome for one file; `reason` explains why it is not as it was then.

    `path` is relative to the workspace, and absolute for a file outside of it. `version` is the entry of
    `ToolState.files` for a file whose content the conversation knows.
    """

    path: str
    outcome: Literal["restored", "removed", "unchanged", "left"]
    reason: str | None = None
    version: tuple[int, int] | None = None

    @property
    def shown(self) -> str:
        """The path for display and JSON: hidden characters, and bytes that are not UTF-8, as code points."""
        return visible_path(self.path)


@dataclass(frozen=True, slots=True)
class _Transition:
    """The content that a file must have to be changed, and its content afterwards (digests; None: no file).

    It undoes the edits of the calls `undone`, and makes those of the calls `redone` again.
    """

    start: str | None
    end: str | None
    undone: frozenset[str] = frozenset()
    redone: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class _FilePlan:
    """The planned transition of a file.

    It is not `complete` if further steps would overwrite a change from outside; `mode` is for a file that is created
    again. The transition is not `permitted` if the edits that it would redo were undone from outside, not by a rewind.
    `in_place` are the digests of contents, before and after, of writes in place that a crash may have cut off. A file
    outside the workspace is in the folder `root`.
    """

    path: str
    transition: _Transition
    complete: bool = True
    mode: int | None = None
    permitted: bool = True
    in_place: tuple[tuple[str, str], ...] = ()
    root: str | None = None


@dataclass(frozen=True, slots=True)
class _Change:
    """A planned change of a file that is as the plan expects it; `mode` are its permissions, None without a file.

    `current` is its content if it cannot be replaced, so that it is to be written in place, else None.
    """

    place: WorkspacePath
    plan: _FilePlan
    start: str | None
    mode: int | None
    current: bytes | None = None

    @property
    def record(self) -> FileRewound:
        """The record of the change, with the permissions of a file that it removes."""
        transition = self.plan.transition
        mode = self.mode if transition.end is None else None
        in_place = self.current is not None
        return file_rewound(self.plan.path, transition.undone, transition.redone, mode=mode, in_place=in_place)


async def restore_files(
    snapshots: SessionSnapshots,
    workspace: Path,
    *,
    undone: Collection[str],
    redone: Collection[str],
    note_folders: Collection[Path] = (),
    private: Collection[Path] = (),
    began: Sequence[Fact] = (),
    is_here: Callable[[str], bool] = lambda _: True,
) -> list[RestoredFile]:
    """Undo the edits of the calls `undone` and redo those of the calls `redone`, each file as far as possible.

    The facts `began` are stored before the first one is changed. Files outside the workspace are restored only in
    `note_folders`, the folders of the vaults. Files in the folders `private` are neither changed nor read, and files of
    a host that is not `is_here` are not changed. Raises `DamagedData`, with nothing changed, if the changes of files
    cannot be read; and another `StoreError` if a change cannot be recorded: that file and all after it stay unchanged.
    """
    if not undone and not redone:
        return []
    changes = await snapshots.changes()
    here = [change for change in changes if is_here(change.host)]
    plans = _plan_files(here, undone, redone)
    restored = [await _restore_file(snapshots, workspace, plan, note_folders, private, began) for plan in plans]
    calls = {*undone, *redone}
    elsewhere = {
        (change.path, change.host): None
        for change in changes
        if not is_here(change.host) and isinstance(change, FileEdited) and change.call_id in calls
    }
    return restored + [
        RestoredFile(_display_path(path, workspace), "left", f"It was changed on another host, {other!r}.")
        for path, other in elsewhere
    ]


def _plan_files(changes: Sequence[FileChange], undone: Collection[str], redone: Collection[str]) -> list[_FilePlan]:
    """Return a plan for each file that these calls changed: first for those with edits to undo."""
    by_path: dict[str, list[FileChange]] = {}
    for change in changes:
        by_path.setdefault(change.path, []).append(change)
    edits = [change for change in changes if isinstance(change, FileEdited)]
    paths = dict.fromkeys(edit.path for calls in (undone, redone) for edit in edits if edit.call_id in calls)
    return [_plan_file(path, by_path[path], undone, redone) for path in paths]


def _plan_file(path: str, changes: Sequence[FileChange], undone: Collection[str], redone: Collection[str]) -> _FilePlan:
    """Return the plan for a file with these changes, some of which are edits of these calls."""
    edits = [change for change in changes if isinstance(change, FileEdited)]
    rewinds = [change for change in changes if isinstance(change, FileRewound)]
    undone_by_rewinds = set[str]()  # the calls whose edits are undone now
    for rewind in rewinds:
        undone_by_rewinds = undone_by_rewinds.difference(rewind.redone).union(rewind.undone)
    distinct = _distinct_edits(edits)
    undo_steps = [
        _Transition(edit.after, edit.before, undone=frozenset((edit.call_id,)))
        for edit in reversed(distinct)
        if edit.call_id in undone
    ]
    redo_steps = [
        _Transition(edit.before, edit.after, redone=frozenset((edit.call_id,)))
        for edit in distinct
        if edit.call_id in redone
    ]
    plan = _plan_steps(path, _join_steps(undo_steps), _join_steps(redo_steps), undone_by_rewinds)
    last, last_edit = changes[-1], edits[-1]
    cut_off: list[tuple[str | None, str | None]] = []
    if isinstance(last, FileRewound) and last.in_place:
        cut_off.append((plan.transition.start, plan.transition.end))
    if last.in_place and last_edit.in_place:
        cut_off.append((last_edit.before, last_edit.after))
    in_place = tuple((old, new) for old, new in cut_off if old is not None and new is not None)
    mode = next((rewind.mode for rewind in reversed(rewinds) if rewind.mode is not None), None)
    return replace(plan, mode=mode, in_place=in_place, root=last_edit.root)


def _distinct_edits(edits: Sequence[FileEdited]) -> list[FileEdited]:
    """Return the edits without second records, which are made if a file can only be written in place."""
    return [edit for last, edit in zip([None, *edits], edits, strict=False) if not _is_repeated(edit, last)]


def _is_repeated(edit: FileEdited, last: FileEdited | None) -> bool:
    return (
        last is not None
        and edit.in_place
        and replace(edit, in_place=False, key=last.key, checksum=last.checksum) == last
    )


def _join_steps(steps: Iterable[_Transition]) -> list[_Transition]:
    """Join steps as long as each begins with the content that the one before left.

    Where it does not, the file was changed outside this conversation: a→b b→c d→e becomes a→c d→e.
    """
    transitions: list[_Transition] = []
    for step in steps:
        if transitions and transitions[-1].end == step.start != TOO_LARGE:
            last = transitions[-1]
            transitions[-1] = _Transition(last.start, step.end, last.undone | step.undone, last.redone | step.redone)
        else:
            transitions.append(step)
    return transitions


def _plan_steps(
    path: str, undo_steps: list[_Transition], redo_steps: list[_Transition], undone_by_rewinds: set[str]
) -> _FilePlan:
    """Return the transition of a file from its joined undo steps and redo steps, either of which may be empty.

    Undo stops at the last change from outside, redo begins after it. Say the edits are a→b and x→y, and b was changed
    to x from outside in between: the undo steps are y→x and b→a, of which only the first is taken; the redo steps are
    a→b and x→y, of which only the last is needed, because a→b was never undone. Redo steps are taken only if a rewind
    has undone them (`undone_by_rewinds`).
    """
    if not undo_steps:
        return _FilePlan(path, redo_steps[-1], permitted=redo_steps[-1].redone <= undone_by_rewinds)
    if not redo_steps or len(undo_steps) > 1:
        return _FilePlan(path, undo_steps[0], complete=len(undo_steps) == 1)
    if not redo_steps[-1].redone <= undone_by_rewinds:
        return _FilePlan(path, undo_steps[0], complete=False)
    joined = _join_steps((undo_steps[0], redo_steps[-1]))
    return _FilePlan(path, joined[0], complete=len(joined) == 1)


async def _restore_file(
    snapshots: SessionSnapshots,
    workspace: Path,
    plan: _FilePlan,
    note_folders: Collection[Path],
    private: Collection[Path],
    began: Sequence[Fact],
) -> RestoredFile:
    """Apply the plan to the file; it is recorded in between, so the state of the file is read before and after that."""
    root = workspace if plan.root is None else Path(plan.root)
    if plan.root is not None and root not in note_folders:
        return RestoredFile(_display_path(plan.path, workspace), "left", _NO_VAULT_REASON)
    try:
        writes = [await _read_contents(snapshots, *digests) for digests in plan.in_place]
        change = await run_in_thread(_check, root, plan, private, [write for write in writes if write is not None])
        done = await _apply(snapshots, change, began) if isinstance(change, _Change) else change
    except ToolError as exc:
        return RestoredFile(_display_path(plan.path, workspace), "left", f"It cannot be restored: {exc}.")
    done = replace(done, path=_display_path(plan.path, workspace))
    return done if plan.complete or done.outcome == "left" else replace(done, reason=_PARTIAL_REASON, version=None)


async def _read_contents(snapshots: SessionSnapshots, before: str, after: str) -> tuple[bytes, bytes] | None:
    old, new = await snapshots.read_content(before), await snapshots.read_content(after)
    return None if old is None or new is None else (old, new)


def _display_path(path: str, workspace: Path) -> str:
    root = os.path.realpath(workspace)
    return os.path.relpath(path, root) if Path(path).is_relative_to(root) else path


def _check(
    root: Path, plan: _FilePlan, private: Collection[Path], writes: Sequence[tuple[bytes, bytes]]
) -> _Change | RestoredFile:
    """Return the change to make to the file, or the outcome if it is not to be changed; raise `ToolError`.

    `writes` are contents, before and after, of writes in place that a crash may have cut off.
    """
    place = resolve_in_workspace(plan.path, root)
    if str(place.path) != plan.path:
        return RestoredFile(plan.path, "left", "The path resolves to another file now.")
    if is_private(place, private):
        return RestoredFile(plan.path, "left", "It is one of AgenticX's own files, which a rewind does not change.")
    transition = plan.transition
    current, status, content = _read_current(place)
    if TOO_LARGE in (transition.start, transition.end):
        return RestoredFile(place.relative, "left", "Its content before or after is too large for a snapshot.")
    if current == transition.end:
        return RestoredFile(place.relative, "unchanged", version=None if status is None else file_version(status))
    if current != transition.start and not _is_cut_off(content, writes):
        return RestoredFile(place.relative, "left", _CHANGED_REASON)
    if not plan.permitted:
        return RestoredFile(place.relative, "left", "It was already like this before the rewind.")
    if status is None:
        return _Change(place, plan, current, None)
    in_place = transition.end is not None and not is_replaceable(place)
    return _Change(place, plan, current, status.st_mode & 0o777, content if in_place else None)


_PAGE_BYTES = 4_096


def _is_cut_off(content: bytes, writes: Sequence[tuple[bytes, bytes]]) -> bool:
    """Return whether writes in place, of new contents over old ones, may have left `content` when one was cut off.

    Each page is then old or new, or begins with the new content and goes on with the old one. A killed process leaves
    one such place in the file; after a power failure any page may be old.
    """
    sizes = [len(part) for write in writes for part in write]
    if not sizes or not min(sizes) <= len(content) <= max(sizes):
        return False
    starts = range(0, len(content), _PAGE_BYTES)
    return all(any(_is_page_of(content, start, old, new) for old, new in writes) for start in starts)


def _is_page_of(content: bytes, start: int, old: bytes, new: bytes) -> bool:
    page, old_page, new_page = (text[start : start + _PAGE_BYTES] for text in (content, old, new))
    pairs = enumerate(zip(page, new_page, strict=False))
    written = next((index for index, pair in pairs if pair[0] != pair[1]), min(len(page), len(new_page)))
    return page[written:] in (b"", old_page[written : len(page)])


async def _apply(snapshots: SessionSnapshots, change: _Change, began: Sequence[Fact]) -> RestoredFile:
    end, content = change.plan.transition.end, None
    if end is not None and (content := await snapshots.read_content(end)) is None:
        return RestoredFile(change.place.relative, "left", "No snapshot of its content is left.")
    if change.current is not None and content is not None:
        await snapshots.keep(change.current, content)
    await snapshots.record_rewind(began, change.record)
    return await run_in_thread(_write, change, content)


def _write(change: _Change, content: bytes | None) -> RestoredFile:
    """Write the content, None to remove the file, unless the file was changed since `_check`; raise `ToolError`."""
    place = change.place
    current, status, _ = _read_current(place)
    if current != change.start:
        return RestoredFile(place.relative, "left", _CHANGED_REASON)
    if content is None:
        remove_file(place)
        return RestoredFile(place.relative, "removed")
    mode = change.plan.mode if status is None else None
    try:
        written = replace_file(place, content, mode=mode)
    except CannotReplace:
        if change.current is None:  # as it seemed to be replaceable, its content is not stored
            raise
        written = overwrite_file(place, change.current, content)
    return RestoredFile(place.relative, "restored", version=file_version(written))


def _read_current(place: WorkspacePath) -> tuple[str | None, os.stat_result | None, bytes]:
    """Return the digest, the status and the content of the file; None, None and nothing if there is none."""
    try:
        content, status = read_file(place, LARGEST_CONTENT + 1)
    except ToolError as exc:
        if isinstance(exc.__cause__, FileNotFoundError):
            return None, None, b""
        raise
    return content_digest(content), status, content

"""Restoring of files that the agent's file tools changed, as they were at another message.

Each file's edits record its content before and after. A file with any other content was changed outside this
conversation since, and is not touched. If an edit does not begin with the content that the previous one left, the file
was changed outside in between: undoing stops at that change. Edits are redone only if a rewind undid them: a file that
was put back from outside before the rewind stays as it is.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from agenticx.errors import ToolError
from agenticx.sessions.files.changes import FileChange, FileEdit, RewindEdit
from agenticx.sessions.files.snapshots import SessionSnapshots
from agenticx.sessions.store.blobs import LARGEST_CONTENT, TOO_LARGE, content_digest
from agenticx.sessions.store.records import Fact
from agenticx.threads import run_in_thread
from agenticx.tools.builtin.files import file_version
from agenticx.tools.paths import WorkspacePath, read_file, remove_file, replace_file, resolve_in_workspace
from agenticx.tools.secret_files import is_private

__all__ = ["RestoredFile", "restore_files"]


_PARTIAL_REASON = "Only in part: it was changed outside this conversation in between, and that change was kept."

_CHANGED_REASON = "It was changed outside this conversation since; it was not overwritten."


@dataclass(frozen=True, slots=True)
class RestoredFile:
    """The outcome for one file; `path` is relative to the workspace, `reason` explains why it is not as it was then.

    `version` is the entry of `ToolState.files` for a file whose content the conversation knows.
    """

    path: str
    outcome: Literal["restored", "removed", "unchanged", "left"]
    reason: str | None = None
    version: tuple[int, int] | None = None


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
    """

    path: str
    transition: _Transition
    complete: bool = True
    mode: int | None = None
    permitted: bool = True


@dataclass(frozen=True, slots=True)
class _Change:
    """A planned change of a file that is as the plan expects it; `mode` are its permissions, None without a file."""

    place: WorkspacePath
    plan: _FilePlan
    mode: int | None

    @property
    def record(self) -> RewindEdit:
        """The record of the change, with the permissions of a file that it removes."""
        transition = self.plan.transition
        mode = self.mode if transition.end is None else None
        return RewindEdit(self.plan.path, transition.undone, transition.redone, mode)


async def restore_files(
    snapshots: SessionSnapshots,
    workspace: Path,
    *,
    undone: Collection[str],
    redone: Collection[str],
    private: Collection[Path] = (),
    began: Sequence[Fact] = (),
    is_here: Callable[[str], bool] = lambda _: True,
) -> list[RestoredFile]:
    """Undo the edits of the calls `undone` and redo those of the calls `redone`, each file as far as possible.

    The facts `began` are stored before the first one is changed. Files in the folders `private` are neither changed nor
    read. Files of a host that is not `is_here` are left. Raises `DamagedData`, with nothing changed, if the
    changes of files cannot be read; and another `StoreError` if one cannot be recorded: that file and those after it
    are not changed.
    """
    if not undone and not redone:
        return []
    changes = await snapshots.changes()
    here = [change for change in changes if is_here(change.host)]
    plans = _plan_files(here, undone, redone)
    restored = [await _restore_file(snapshots, workspace, plan, private, began) for plan in plans]
    calls = {*undone, *redone}
    elsewhere = {
        (change.path, change.host): None
        for change in changes
        if not is_here(change.host) and isinstance(change, FileEdit) and change.call_id in calls
    }
    return restored + [
        RestoredFile(_display_path(path, workspace), "left", f"It was changed on another host, {other!r}.")
        for path, other in elsewhere
    ]


def _plan_files(changes: Iterable[FileChange], undone: Collection[str], redone: Collection[str]) -> list[_FilePlan]:
    """Return a plan for each file that these calls changed."""
    undo_steps: dict[str, list[_Transition]] = {}
    redo_steps: dict[str, list[_Transition]] = {}
    undone_by_rewinds: dict[str, frozenset[str]] = {}  # by path, the calls whose edits are undone now
    modes: dict[str, int] = {}
    for change in changes:
        if isinstance(change, RewindEdit):
            already = undone_by_rewinds.get(change.path, frozenset())
            undone_by_rewinds[change.path] = already.difference(change.redone).union(change.undone)
            if change.mode is not None:
                modes[change.path] = change.mode
            continue
        call_ids = frozenset((change.call_id,))
        if change.call_id in undone:
            undo_steps.setdefault(change.path, []).insert(0, _Transition(change.after, change.before, undone=call_ids))
        elif change.call_id in redone:
            redo_steps.setdefault(change.path, []).append(_Transition(change.before, change.after, redone=call_ids))
    return [
        replace(
            _plan_file(
                path,
                _join_steps(undo_steps.get(path, [])),
                _join_steps(redo_steps.get(path, [])),
                undone_by_rewinds.get(path, frozenset()),
            ),
            mode=modes.get(path),
        )
        for path in undo_steps | redo_steps
    ]


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


def _plan_file(
    path: str, undo_steps: list[_Transition], redo_steps: list[_Transition], undone_by_rewinds: frozenset[str]
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
    snapshots: SessionSnapshots, workspace: Path, plan: _FilePlan, private: Collection[Path], began: Sequence[Fact]
) -> RestoredFile:
    """Apply the plan to the file; it is recorded in between, so the state of the file is read before and after that."""
    try:
        change = await run_in_thread(_check, workspace, plan, private)
        done = await _apply(snapshots, change, began) if isinstance(change, _Change) else change
    except ToolError as exc:
        return RestoredFile(_display_path(plan.path, workspace), "left", f"It cannot be restored: {exc}.")
    return done if plan.complete or done.outcome == "left" else replace(done, reason=_PARTIAL_REASON, version=None)


def _display_path(path: str, workspace: Path) -> str:
    root = os.path.realpath(workspace)
    return os.path.relpath(path, root) if Path(path).is_relative_to(root) else path


def _check(workspace: Path, plan: _FilePlan, private: Collection[Path]) -> _Change | RestoredFile:
    """Return the change to make to the file, or the outcome for one that is not changed; raise `ToolError`."""
    place = resolve_in_workspace(plan.path, workspace)
    if str(place.path) != plan.path:
        return RestoredFile(_display_path(plan.path, workspace), "left", "The path resolves to another file now.")
    if is_private(place, private):
        return RestoredFile(
            place.relative, "left", "It is one of AgenticX's own files, which a rewind does not change."
        )
    transition = plan.transition
    current, status = _read_current(place)
    if TOO_LARGE in (transition.start, transition.end):
        return RestoredFile(place.relative, "left", "Its content before or after is too large for a snapshot.")
    if current == transition.end:
        return RestoredFile(place.relative, "unchanged", version=None if status is None else file_version(status))
    if current != transition.start:
        return RestoredFile(place.relative, "left", _CHANGED_REASON)
    if not plan.permitted:
        return RestoredFile(place.relative, "left", "It was already like this before the rewind.")
    return _Change(place, plan, None if status is None else status.st_mode & 0o777)


async def _apply(snapshots: SessionSnapshots, change: _Change, began: Sequence[Fact]) -> RestoredFile:
    end, content = change.plan.transition.end, None
    if end is not None and (content := await snapshots.read_content(end)) is None:
        return RestoredFile(change.place.relative, "left", "No snapshot of its content is left.")
    await snapshots.record_rewind(began, change.record)
    return await run_in_thread(_write, change, content)


def _write(change: _Change, content: bytes | None) -> RestoredFile:
    """Write the content, None to remove the file, unless the file was changed since `_check`; raise `ToolError`."""
    place = change.place
    current, status = _read_current(place)
    if current != change.plan.transition.start:
        return RestoredFile(place.relative, "left", _CHANGED_REASON)
    if content is None:
        remove_file(place)
        return RestoredFile(place.relative, "removed")
    mode = change.plan.mode if status is None else None
    return RestoredFile(place.relative, "restored", version=file_version(replace_file(place, content, mode=mode)))


def _read_current(place: WorkspacePath) -> tuple[str | None, os.stat_result | None]:
    """Return the digest and the status of the file, or two times None if there is none."""
    try:
        content, status = read_file(place, LARGEST_CONTENT + 1)
    except ToolError as exc:
        if isinstance(exc.__cause__, FileNotFoundError):
            return None, None
        raise
    return content_digest(content), status

"""Files as they were at another place of a conversation: those that the agent's file tools changed, and only those.

Each file's edits say what it must hold now and what it held there. A file that holds anything else was changed by
somebody else since, and is left alone. Where one edit does not begin with what the one before it left, somebody else
changed the file in between: their change is as far as the way back leads. And only what a rewind took back is done
again: a file that was as it is before the rewind stays so.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from agenticx.errors import ToolError
from agenticx.sessions.snapshots import LARGEST_FILE, TOO_LARGE, Edit, Moved, SessionSnapshots, digest_of
from agenticx.tools.builtin.files import file_version, is_private
from agenticx.tools.paths import WorkspacePath, read_file, remove_file, replace_file, resolve_in_workspace

__all__ = ["RestoredFile", "restore_files"]


_KEPT_CHANGE = "As far as that goes: somebody else changed it in between, and what they made of it was kept."


@dataclass(frozen=True, slots=True)
class RestoredFile:
    """What became of one file; `path` is relative to the workspace, `reason` says why it is not as it was then.

    `version` is what `ToolState.files` has of a file that is as the conversation knows it.
    """

    path: str
    outcome: Literal["restored", "removed", "unchanged", "left"]
    reason: str | None = None
    version: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class _Way:
    """What a file must hold to be touched, and what it is to hold then (digests; None: no file).

    It takes back the edits of the calls `back`, and makes those of the calls `forth` again.
    """

    start: str | None
    end: str | None
    back: frozenset[str] = frozenset()
    forth: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class _Wish:
    """The way a file is to go.

    It is not the `whole` one where that would lead over somebody else's change; `mode` is for a file that is brought
    back. A file whose edits somebody else had taken back is not `ours` to change.
    """

    path: str
    way: _Way
    whole: bool = True
    mode: int | None = None
    ours: bool = True


def restore_files(
    snapshots: SessionSnapshots,
    workspace: Path,
    *,
    undone: Collection[str],
    redone: Collection[str],
    private: Collection[Path] = (),
) -> list[RestoredFile]:
    """Take back what the calls `undone` changed and do again what the calls `redone` did, each in as far as it can.

    Nothing in the folders `private` is touched, nor read. Raises `Damaged`, with nothing changed, where the lists of
    what calls and rewinds changed cannot be read.
    """
    if not undone and not redone:
        return []
    wishes = _wishes(snapshots.edits(), snapshots.moved(), undone, redone)
    return [_restored(snapshots, workspace, wish, private) for wish in wishes]


def _wishes(
    edits: Iterable[Edit], moved: Iterable[Moved], undone: Collection[str], redone: Collection[str]
) -> list[_Wish]:
    """One for each file that these calls changed."""
    back: dict[str, list[_Way]] = {}
    forth: dict[str, list[_Way]] = {}
    for edit in edits:
        call = frozenset((edit.call_id,))
        if edit.call_id in undone:
            back.setdefault(edit.path, []).insert(0, _Way(edit.after, edit.before, back=call))
        elif edit.call_id in redone:
            forth.setdefault(edit.path, []).append(_Way(edit.before, edit.after, forth=call))
    away: dict[str, frozenset[str]] = {}  # the calls whose edits of that file rewinds have taken back
    modes: dict[str, int] = {}
    for move in moved:
        away[move.path] = away.get(move.path, frozenset()).difference(move.forth).union(move.back)
        if move.mode is not None:
            modes[move.path] = move.mode
    return [
        replace(
            _wish(path, _joined(back.get(path, [])), _joined(forth.get(path, [])), away.get(path, frozenset())),
            mode=modes.get(path),
        )
        for path in back | forth
    ]


def _joined(steps: Iterable[_Way]) -> list[_Way]:
    """Steps as ways, each as long as the next step begins where the one before ended: a gap is somebody's change."""
    ways: list[_Way] = []
    for step in steps:
        if ways and ways[-1].end == step.start != TOO_LARGE:
            last = ways[-1]
            ways[-1] = _Way(last.start, step.end, last.back | step.back, last.forth | step.forth)
        else:
            ways.append(step)
    return ways


def _wish(path: str, back: list[_Way], forth: list[_Way], away: frozenset[str]) -> _Wish:
    """Back until the last gap; forth from there, as before the first gap the calls were not taken back.

    Forth only what is `away`, taken back by a rewind.
    """
    if not back:
        return _Wish(path, forth[-1], ours=forth[-1].forth <= away)
    if not forth or len(back) > 1:
        return _Wish(path, back[0], whole=len(back) == 1)
    if not forth[-1].forth <= away:
        return _Wish(path, back[0], whole=False)
    both = _joined((back[0], forth[-1]))
    return _Wish(path, both[0], whole=len(both) == 1)


def _restored(snapshots: SessionSnapshots, workspace: Path, wish: _Wish, private: Collection[Path]) -> RestoredFile:
    try:
        place = resolve_in_workspace(wish.path, workspace)
        if str(place.path) != wish.path:
            return RestoredFile(_shown(wish.path, workspace), "left", "The path leads elsewhere now.")
        if is_private(place, private):
            return RestoredFile(place.relative, "left", "It is AgenticX's own, which no conversation changes.")
        done = _put_back(snapshots, place, wish)
    except ToolError as exc:
        return RestoredFile(_shown(wish.path, workspace), "left", f"It cannot be restored: {exc}.")
    return done if wish.whole or done.outcome == "left" else replace(done, reason=_KEPT_CHANGE, version=None)


def _shown(path: str, workspace: Path) -> str:
    root = os.path.realpath(workspace)
    return os.path.relpath(path, root) if Path(path).is_relative_to(root) else path


def _put_back(snapshots: SessionSnapshots, place: WorkspacePath, wish: _Wish) -> RestoredFile:
    """Nothing lies between looking and writing but reading what is to be written, and noting what is done."""
    way = wish.way
    content = None if way.end is None else snapshots.content(way.end)
    current, status = _look(place)
    if TOO_LARGE in (way.start, way.end):
        return RestoredFile(place.relative, "left", "What it held, or was to hold, is too large to be kept.")
    if current == way.end:
        return RestoredFile(place.relative, "unchanged", version=None if status is None else file_version(status))
    if current != way.start:
        return RestoredFile(place.relative, "left", "Somebody else changed it since; it was not overwritten.")
    if not wish.ours:
        return RestoredFile(place.relative, "left", "It was like this before the conversation was taken back.")
    if way.end is None:
        taken = None if status is None else status.st_mode & 0o777
        snapshots.moving(Moved(wish.path, way.back, way.forth, taken))
        remove_file(place)
        return RestoredFile(place.relative, "removed")
    if content is None:
        return RestoredFile(place.relative, "left", "What it held then is not kept any more.")
    snapshots.moving(Moved(wish.path, way.back, way.forth))
    mode = wish.mode if status is None else None
    return RestoredFile(place.relative, "restored", version=file_version(replace_file(place, content, mode=mode)))


def _look(place: WorkspacePath) -> tuple[str | None, os.stat_result | None]:
    """The digest and the status of what is there."""
    try:
        content, status = read_file(place, LARGEST_FILE + 1)
    except ToolError as exc:
        if isinstance(exc.__cause__, FileNotFoundError):
            return None, None
        raise
    return digest_of(content), status

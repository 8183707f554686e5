"""Snapshots: stored outside the workspace, for the owner alone, up to a limit, and only there."""

from __future__ import annotations

import asyncio
import os
import random
import zlib
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from agenticx import builtin_tools
from agenticx.errors import ToolError
from agenticx.sessions import DamagedData, SessionRecord
from agenticx.sessions.files.changes import (
    FileChange,
    checked_changes,
    damaged_change,
    file_edited,
    file_rewound,
    is_intact,
)
from agenticx.sessions.files.restore import RestoredFile, restore_files
from agenticx.sessions.files.snapshots import SessionSnapshots, share_contents
from agenticx.sessions.history.fork import forked_facts
from agenticx.sessions.log.records import FileEdited, ForkedPath, decode_record, encode_record
from agenticx.sessions.store.blobs import LARGEST_CONTENT, content_digest
from agenticx.tools import ToolContext
from tests.support.snapshots import SnapshotSessions
from tests.support.unreplaceable import unwritable

pytestmark = pytest.mark.anyio

WRITE = next(tool for tool in builtin_tools() if tool.schema.name == "file_write")


async def write(folder: SnapshotSessions, workspace: Path, call_id: str, path: str, content: str) -> None:
    context = ToolContext(workspace=workspace, call_id=call_id, snapshots=await folder.session())
    await WRITE.run(WRITE.validate({"path": path, "content": content}), context)


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    return folder


@pytest.fixture(params=["memory", "over a network"])
def folder(request: pytest.FixtureRequest, tmp_path: Path, rng: random.Random) -> SnapshotSessions:
    return SnapshotSessions(tmp_path / "home" / "snapshots", None if request.param == "memory" else rng)


async def test_an_edit_stores_both_contents_and_its_call_id(folder: SnapshotSessions, workspace: Path) -> None:
    await write(folder, workspace, "call_1", "a.txt", "one")
    await write(folder, workspace, "call_2", "a.txt", "two")
    kept, path = await folder.session(), str(workspace / "a.txt")
    one, two = content_digest(b"one"), content_digest(b"two")
    expected = [file_edited("call_1", path, None, one), file_edited("call_2", path, one, two)]
    assert [replace(edit, key="") for edit in await kept.changes()] == [replace(edit, key="") for edit in expected]
    contents = [await kept.read_content(digest) for digest in (one, two, content_digest(b"three"))]
    assert contents == [b"one", b"two", None]
    other = await folder.session("ses_2")
    assert (await other.changes(), await other.read_content(one)) == ([], None)
    assert await restore_files(kept, workspace, undone={"call_2"}, redone=()) == [
        RestoredFile("a.txt", "restored", version=_version(workspace / "a.txt"))
    ]
    assert (workspace / "a.txt").read_text() == "one"


async def test_a_file_keeps_its_mode_and_a_deleted_one_is_not_restored(
    folder: SnapshotSessions, workspace: Path
) -> None:
    (workspace / "run.sh").write_text("old")
    (workspace / "run.sh").chmod(0o750)
    (workspace / "gone").write_text("old")
    await write(folder, workspace, "call_1", "run.sh", "new")
    await write(folder, workspace, "call_1", "gone", "new")
    (workspace / "gone").unlink()
    done = await restore_files(await folder.session(), workspace, undone={"call_1"}, redone=())
    assert [(file.path, file.outcome) for file in done] == [("run.sh", "restored"), ("gone", "left")]
    assert ((workspace / "run.sh").stat().st_mode & 0o777, (workspace / "run.sh").read_text()) == (0o750, "old")
    assert not (workspace / "gone").exists()


async def test_a_removed_file_is_restored_with_its_mode(folder: SnapshotSessions, workspace: Path) -> None:
    script, kept = workspace / "run.sh", await folder.session()
    await write(folder, workspace, "call_1", "run.sh", "echo")
    modes: list[int] = []
    for mode in (0o755, 0o600):
        script.chmod(mode)
        (away,) = await restore_files(kept, workspace, undone={"call_1"}, redone=())
        (back,) = await restore_files(kept, workspace, undone=(), redone={"call_1"})
        assert (away.outcome, back.outcome) == ("removed", "restored")
        modes.append(script.stat().st_mode & 0o777)
    assert modes == [0o755, 0o600]


async def test_a_rewind_stops_at_a_change_by_the_user_between_two_edits_and_can_be_undone(
    folder: SnapshotSessions, workspace: Path
) -> None:
    file, kept = workspace / "a.txt", await folder.session()
    file.write_text("first")
    await write(folder, workspace, "call_1", "a.txt", "by the agent")
    file.write_text("by a person")
    await write(folder, workspace, "call_2", "a.txt", "by the agent again")
    await write(folder, workspace, "call_3", "a.txt", "and again")
    calls = {"call_1", "call_2", "call_3"}
    stopped = "Only in part: it was changed outside this conversation in between, and that change was kept."

    for outcome in ("restored", "unchanged"):
        done = await restore_files(kept, workspace, undone=calls, redone=())
        assert (done, file.read_text()) == ([RestoredFile("a.txt", outcome, stopped)], "by a person")
    done = await restore_files(kept, workspace, undone=(), redone=calls)
    assert (done, file.read_text()) == ([RestoredFile("a.txt", "restored", version=_version(file))], "and again")


CUT_OFF = {
    "killed in the first page": (b"a" * 9_000, b"b" * 9_000, b"b" * 7 + b"a" * 8_993, "restored"),
    "killed before it was cut": (b"a" * 9_000, b"b" * 100, b"b" * 100 + b"a" * 8_900, "restored"),
    "killed behind the old end": (b"a" * 100, b"b" * 9_000, b"b" * 5_000, "restored"),
    "later pages written first": (b"a" * 9_000, b"b" * 9_000, b"a" * 4_096 + b"b" * 4_904, "restored"),
    "not begun": (b"a" * 9_000, b"b" * 9_000, b"a" * 9_000, "unchanged"),
    "done": (b"a" * 9_000, b"b" * 9_000, b"b" * 9_000, "restored"),
    "changed by a person": (b"a" * 9_000, b"b" * 9_000, b"a" * 7 + b"b" * 8_993, "left"),
    "with a line more": (b"a" * 9_000, b"b" * 9_000, b"b" * 9_000 + b"c", "left"),
}


@pytest.mark.promise("H2")
@pytest.mark.parametrize(("old", "new", "content", "outcome"), CUT_OFF.values(), ids=CUT_OFF)
async def test_what_a_write_in_place_left_is_restored_and_what_a_person_wrote_is_not(
    folder: SnapshotSessions, workspace: Path, old: bytes, new: bytes, content: bytes, outcome: str
) -> None:
    file, kept = workspace / "f", await folder.session()
    await kept.record_edit("call_1", file, old, new)
    file.write_bytes(content)
    (done,) = await restore_files(kept, workspace, undone={"call_1"}, redone=())
    as_replaced = "left" if content not in (old, new) else outcome  # writes that replace a file leave no parts
    assert done.outcome == as_replaced
    file.write_bytes(content)
    await kept.record_edit("call_1", file, old, new, in_place=True)
    for expected in (outcome, "left" if outcome == "left" else "unchanged"):
        (done,) = await restore_files(kept, workspace, undone={"call_1"}, redone=())
        assert (done.outcome, file.read_bytes()) == (expected, content if outcome == "left" else old)


async def test_contents_of_a_write_in_place_are_stored_whatever_room_is_left(tmp_path: Path, workspace: Path) -> None:
    kept = await SnapshotSessions(tmp_path / "full", session_bytes=1).session()
    await kept.record_edit("call_1", workspace / "f", b"one", b"two")
    assert [await kept.read_content(content_digest(content)) for content in (b"one", b"two")] == [None, None]
    await kept.record_edit("call_1", workspace / "f", b"one", b"two", in_place=True)
    assert [await kept.read_content(content_digest(content)) for content in (b"one", b"two")] == [b"one", b"two"]
    with pytest.raises(
        ToolError, match=r"^nothing was changed: the file can only be written in place, and contents of"
    ):
        await kept.record_edit("call_2", workspace / "f", b"one", b"x" * (LARGEST_CONTENT + 1), in_place=True)


async def test_a_rewind_writes_a_file_in_place_that_it_cannot_replace(
    folder: SnapshotSessions, workspace: Path
) -> None:
    file, kept = workspace / "f", await folder.session()
    file.write_text("old")
    await write(folder, workspace, "call_1", "f", "newer")
    inode = file.stat().st_ino
    with unwritable(workspace):
        (away,) = await restore_files(kept, workspace, undone={"call_1"}, redone=())
        assert (away.outcome, file.read_text()) == ("restored", "old")
        (back,) = await restore_files(kept, workspace, undone=(), redone={"call_1"})
    assert (back.outcome, file.read_text(), file.stat().st_ino) == ("restored", "newer", inode)


async def test_switching_branches_keeps_changes_by_the_user(folder: SnapshotSessions, workspace: Path) -> None:
    file, kept = workspace / "a.txt", await folder.session()
    file.write_text("first")
    await write(folder, workspace, "call_1", "a.txt", "one branch")
    await restore_files(kept, workspace, undone={"call_1"}, redone=())
    await write(folder, workspace, "call_2", "a.txt", "a second")
    done = await restore_files(kept, workspace, undone={"call_2"}, redone={"call_1"})
    assert ([one.outcome for one in done], file.read_text()) == (["restored"], "one branch")
    await restore_files(kept, workspace, undone={"call_1"}, redone=())
    file.write_text("by a person")
    await write(folder, workspace, "call_3", "a.txt", "a third")
    (one,) = await restore_files(kept, workspace, undone={"call_3"}, redone={"call_1"})
    assert (one.outcome, one.version, file.read_text()) == ("restored", None, "by a person")
    assert one.reason is not None
    assert "changed outside this conversation in between" in one.reason


async def test_a_file_that_the_user_deleted_between_two_edits_is_removed_and_not_restored(
    folder: SnapshotSessions, workspace: Path
) -> None:
    (workspace / "a.txt").write_text("first")
    await write(folder, workspace, "call_1", "a.txt", "second")
    (workspace / "a.txt").unlink()
    await write(folder, workspace, "call_2", "a.txt", "third")
    (one,) = await restore_files(await folder.session(), workspace, undone={"call_1", "call_2"}, redone=())
    assert (one.outcome, one.reason is None, (workspace / "a.txt").exists()) == ("removed", False, False)


async def test_private_files_are_not_restored(folder: SnapshotSessions, workspace: Path) -> None:
    await write(folder, workspace, "call_1", "home/token", "x")
    done = await restore_files(
        await folder.session(), workspace, undone={"call_1"}, redone=(), private=[workspace / "home"]
    )
    assert done == [
        RestoredFile("home/token", "left", "It is one of AgenticX's own files, which a rewind does not change.")
    ]
    assert (workspace / "home" / "token").read_text() == "x"


async def test_a_file_too_large_for_a_snapshot_is_edited_but_not_restored(
    folder: SnapshotSessions, workspace: Path
) -> None:
    (workspace / "big").write_bytes(b"x" * (LARGEST_CONTENT + 1))
    await write(folder, workspace, "call_1", "big", "small")
    (done,) = await restore_files(await folder.session(), workspace, undone={"call_1"}, redone=())
    assert (done.outcome, done.reason) == ("left", "Its content before or after is too large for a snapshot.")
    assert (workspace / "big").read_text() == "small"


async def test_a_full_session_stores_no_more_and_the_oldest_contents_are_deleted(
    tmp_path: Path, workspace: Path
) -> None:
    full = SnapshotSessions(tmp_path / "full", session_bytes=6_000)
    for number in range(3):
        await write(full, workspace, f"call_{number}", f"{number}.bin", os.urandom(2_000).hex())
    done = await restore_files(await full.session(), workspace, undone={"call_0", "call_1", "call_2"}, redone=())
    assert [file.outcome for file in done] == ["removed"] * 3
    done = await restore_files(await full.session(), workspace, undone=(), redone={"call_0", "call_1", "call_2"})
    assert [file.outcome for file in done] == ["restored", "restored", "left"]

    shared, contents = SnapshotSessions(tmp_path / "shared", all_bytes=6_000), [os.urandom(2_500) for _ in range(3)]
    for number in range(3):
        kept = await shared.session(f"ses_{number}")
        await kept.record_edit("call", workspace / "x", None, contents[number])
        os.utime(shared.folder(f"ses_{number}"), (number, number))
    left = [
        await (await shared.session(f"ses_{number}")).read_content(content_digest(contents[number]))
        for number in range(3)
    ]
    assert [content is not None for content in left] == [False, True, True]
    total = sum(path.stat().st_size for path in (tmp_path / "shared").rglob("*") if path.is_file())
    assert total < 6_500


async def test_the_undo_of_a_rewind_skips_files_that_the_user_had_reverted(
    folder: SnapshotSessions, workspace: Path
) -> None:
    (workspace / "both.txt").write_text("old")
    (workspace / "mine.txt").write_text("old")
    for name in ("both.txt", "mine.txt", "new.txt"):
        await write(folder, workspace, "call_1", name, "agent")
    (workspace / "mine.txt").write_text("old")
    (workspace / "new.txt").unlink()
    kept = await folder.session()
    for _ in range(2):
        back = await restore_files(kept, workspace, undone={"call_1"}, redone=())
        assert [file.outcome for file in back] == ["restored", "unchanged", "unchanged"]
        forth = await restore_files(kept, workspace, undone=(), redone={"call_1"})
        assert [file.outcome for file in forth] == ["restored", "left", "left"]
        assert (workspace / "both.txt").read_text() == "agent"
        assert (workspace / "mine.txt").read_text() == "old"
        assert not (workspace / "new.txt").exists()


@pytest.mark.parametrize(
    "change",
    [file_edited("call_1", "/a", None, "0" * 64), file_rewound("/a", {"call_1"}, (), mode=0o644)],
    ids=["edit", "rewind"],
)
def test_damage_of_any_byte_of_a_fact_is_never_ignored(change: FileChange) -> None:
    whole = encode_record(change).encode()
    assert checked_changes([change]) == [change]
    for place in range(len(whole)):
        for bits in (0x01, 0x04, 0x20, 0x80):
            damaged = bytearray(whole)
            damaged[place] ^= bits
            with suppress(ValueError, DamagedData):
                found = decode_record(change.kind, change.key, "", damaged.decode())
                assert found == change or not is_intact(cast("FileChange", found))


async def fork(folder: SnapshotSessions, session_id: str, other_id: str, calls: set[str]) -> SessionSnapshots:
    """Return the snapshots of a new session with the edits of these calls."""
    await folder.session(session_id)
    facts = await forked_facts(folder.store.log, session_id, ForkedPath(calls, lambda turn_id: turn_id), [])
    edits = [fact for fact in facts if isinstance(fact, FileEdited)]
    await share_contents(folder.blobs, session_id, other_id, edits)
    await folder.store.create(SessionRecord(id=other_id, workspace="/", created_at="2026-01-01"), facts=facts)
    return await folder.reopen(other_id)


async def test_a_file_outside_the_workspace_is_restored_in_its_vault_alone(tmp_path: Path, workspace: Path) -> None:
    folder, notes = SnapshotSessions(tmp_path / "home", workspace=workspace), tmp_path / "Notes"
    notes.mkdir()
    note = notes / "Lease.md"
    note.write_text("old")
    await write(folder, workspace, "call_1", "a.txt", "x")
    await write(folder, notes, "call_1", "Lease.md", "new")
    await write(folder, notes, "call_1", "Work/New.md", "new")
    kept = await folder.session()
    edits = [change for change in await kept.changes() if isinstance(change, FileEdited)]
    assert [edit.root for edit in edits] == [None, str(notes), str(notes)]
    forked = await fork(folder, "ses_1", "ses_2", {"call_1"})

    no_vault = "It is outside the workspace, in a folder that is no vault of notes any more."
    left = await restore_files(kept, workspace, undone={"call_1"}, redone=())
    assert [(file.path, file.outcome, file.reason) for file in left] == [
        ("a.txt", "removed", None),
        (str(note), "left", no_vault),
        (str(notes / "Work/New.md"), "left", no_vault),
    ]
    back = await restore_files(forked, workspace, undone={"call_1"}, redone=(), note_folders=[notes])
    assert back[1:] == [
        RestoredFile(str(note), "restored", version=_version(note)),
        RestoredFile(str(notes / "Work/New.md"), "removed"),
    ]
    assert (note.read_text(), (notes / "Work/New.md").exists()) == ("old", False)
    forth = await restore_files(forked, workspace, undone=(), redone={"call_1"}, note_folders=[notes])
    assert [file.outcome for file in forth[1:]] == ["restored", "restored"]

    outside = tmp_path / "outside.md"
    outside.write_text("new")
    note.unlink()
    note.symlink_to(outside)
    (notes / "Work/New.md").write_text("by a person")
    linked = await restore_files(forked, workspace, undone={"call_1"}, redone=(), note_folders=[notes])
    assert [file.outcome for file in linked[1:]] == ["left", "left"]
    notes.rename(tmp_path / "moved")
    gone = await restore_files(forked, workspace, undone={"call_1"}, redone=(), note_folders=[notes])
    notes.symlink_to(tmp_path / "moved")
    swapped = await restore_files(forked, workspace, undone={"call_1"}, redone=(), note_folders=[notes])
    private = await restore_files(
        forked, workspace, undone={"call_1"}, redone=(), note_folders=[notes], private=[notes]
    )
    assert {file.outcome for file in [*gone[1:], *swapped[1:], *private[1:]]} == {"left"}
    assert (outside.read_text(), (notes / "Work/New.md").read_text()) == ("new", "by a person")


async def test_rewinds_of_a_session_with_a_damaged_list_and_of_its_forks_change_nothing(
    folder: SnapshotSessions, workspace: Path
) -> None:
    await write(folder, workspace, "call_1", "a.txt", "one")
    await folder.commit("ses_1", [damaged_change()])
    await write(folder, workspace, "call_2", "a.txt", "two")
    first = await fork(folder, "ses_1", "ses_2", {"call_1"})
    second = await fork(folder, "ses_2", "ses_3", {"call_1"})
    for damaged in (await folder.reopen("ses_1"), first, second):
        with pytest.raises(DamagedData, match="list of changed files is damaged"):
            await restore_files(damaged, workspace, undone={"call_1", "call_2"}, redone=())
    assert (workspace / "a.txt").read_text() == "two"
    intact = await fork(folder, "ses_4", "ses_5", {"call_1"})
    assert await restore_files(intact, workspace, undone={"call_1"}, redone=()) == []


async def test_a_fork_has_the_edits_of_its_calls(folder: SnapshotSessions, workspace: Path) -> None:
    for number, (name, content) in enumerate([("a.txt", "one"), ("b.txt", "two"), ("a.txt", "three")], 1):
        await write(folder, workspace, f"call_{number}", name, content)
    first = await fork(folder, "ses_1", "ses_2", {"call_2"})
    second = await fork(folder, "ses_1", "ses_3", {"call_1", "call_3"})
    assert [[change.path for change in await kept.changes()] for kept in (first, second)] == [
        [str(workspace / "b.txt")],
        [str(workspace / "a.txt"), str(workspace / "a.txt")],
    ]
    done = await restore_files(second, workspace, undone={"call_3"}, redone=())
    assert ([file.outcome for file in done], (workspace / "a.txt").read_text()) == (["restored"], "one")


async def test_an_edit_whose_call_is_stopped_meanwhile_is_recorded_as_not_made(
    folder: SnapshotSessions, workspace: Path
) -> None:
    await write(folder, workspace, "call_1", "a.txt", "one")
    snapshots = await folder.session()
    stopped = asyncio.create_task(snapshots.record_edit("call_2", workspace / "a.txt", b"one", b"two"))
    await asyncio.sleep(0)
    stopped.cancel()
    with pytest.raises(asyncio.CancelledError):
        await stopped
    await write(folder, workspace, "call_3", "a.txt", "three")
    one, two, three = map(content_digest, (b"one", b"two", b"three"))
    edits = [change for change in await (await folder.session()).changes() if isinstance(change, FileEdited)]
    assert [(edit.call_id, edit.before, edit.after) for edit in edits] == [
        ("call_1", None, one),
        ("call_2", one, two),
        ("call_2", two, one),
        ("call_3", one, three),
    ]
    done = await restore_files(await folder.session(), workspace, undone={"call_1", "call_2", "call_3"}, redone=())
    assert done == [RestoredFile("a.txt", "removed")]


async def test_contents_of_an_edit_that_was_being_recorded_are_deleted_too(
    folder: SnapshotSessions, workspace: Path
) -> None:
    kept = await folder.session()
    stopped = asyncio.create_task(write(folder, workspace, "call_1", "a.txt", "one"))
    await asyncio.sleep(0)
    stopped.cancel()
    await asyncio.sleep(0)
    await kept.delete()
    assert not folder.folder().exists()
    with pytest.raises(asyncio.CancelledError):
        await stopped


async def test_no_file_is_changed_if_no_snapshot_can_be_stored(tmp_path: Path, workspace: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(ToolError, match="nothing was changed"):
        await write(SnapshotSessions(tmp_path / "file"), workspace, "call_1", "a.txt", "one")
    assert list(workspace.iterdir()) == []


async def test_a_snapshot_folder_that_is_a_link_is_not_followed(folder: SnapshotSessions, workspace: Path) -> None:
    mine = folder.folder()
    mine.parent.mkdir(parents=True)
    mine.symlink_to(workspace)
    with pytest.raises(ToolError, match="nothing was changed"):
        await write(folder, workspace, "call_1", "a.txt", "one")
    await folder.blobs.forget("ses_1")
    assert (list(workspace.iterdir()), workspace.is_dir()) == ([], True)


async def test_no_forged_edit_leads_out_of_the_workspace_or_out_of_the_snapshots(
    folder: SnapshotSessions, workspace: Path
) -> None:
    await write(folder, workspace, "call_1", "a.txt", "one")
    kept, outside = await folder.session(), workspace.parent / "outside.txt"
    outside.write_text("one")
    (folder.folder().parent / "stolen").write_bytes(zlib.compress(b"secret"))
    one = content_digest(b"one")
    forged = [
        file_edited("call_2", str(outside), None, one),
        file_edited("call_3", f"{workspace}/../outside.txt", None, one),
        file_edited("call_4", str(workspace / "a.txt"), "../stolen", one),
        file_edited("call_5", str(outside), None, one, root="/"),
    ]
    await folder.commit("ses_1", forged)
    calls = {f"call_{number}" for number in range(2, 6)}
    done = await restore_files(kept, workspace, undone=calls, redone=())
    assert [(file.path, file.outcome) for file in done] == [
        (str(outside), "left"),
        ("../outside.txt", "left"),
        ("a.txt", "left"),
    ]
    assert (outside.read_text(), (workspace / "a.txt").read_text()) == ("one", "one")


@pytest.mark.parametrize("session_id", ["../..", "/", ".", "", "ses_1/../../x", "a" * 5_000])
async def test_a_session_id_is_never_part_of_a_path(
    folder: SnapshotSessions, workspace: Path, tmp_path: Path, session_id: str
) -> None:
    assert folder.folder(session_id).parent == tmp_path / "home" / "snapshots"
    await folder.blobs.forget(session_id)
    assert workspace.is_dir()


def _version(path: Path) -> tuple[int, int]:
    return path.stat().st_mtime_ns, path.stat().st_size

"""Snapshots: stored outside the workspace, for the owner alone, up to a limit, and only there."""

from __future__ import annotations

import json
import os
import zlib
from pathlib import Path

import pytest

from agenticx.errors import ToolError
from agenticx.sessions.files.restore import RestoredFile, restore_files
from agenticx.sessions.files.snapshots import LARGEST_FILE, FileEdit, SnapshotFolder, content_digest
from agenticx.sessions.store.damage import DamagedData
from agenticx.tools import ToolContext
from agenticx.tools.builtin import builtin_tools

pytestmark = pytest.mark.anyio

WRITE = next(tool for tool in builtin_tools() if tool.schema.name == "file_write")


async def write(folder: SnapshotFolder, workspace: Path, call_id: str, path: str, content: str) -> None:
    context = ToolContext(workspace=workspace, call_id=call_id, snapshots=folder.for_session("ses_1"))
    await WRITE.run(WRITE.validate({"path": path, "content": content}), context)


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    return folder


@pytest.fixture
def folder(tmp_path: Path) -> SnapshotFolder:
    return SnapshotFolder(tmp_path / "home" / "snapshots")


async def test_an_edit_stores_both_contents_and_its_call_id(folder: SnapshotFolder, workspace: Path) -> None:
    await write(folder, workspace, "call_1", "a.txt", "one")
    await write(folder, workspace, "call_2", "a.txt", "two")
    kept, path = folder.for_session("ses_1"), str(workspace / "a.txt")
    one, two = content_digest(b"one"), content_digest(b"two")
    assert kept.edits() == [FileEdit("call_1", path, None, one), FileEdit("call_2", path, one, two)]
    assert [kept.read_content(digest) for digest in (one, two, content_digest(b"three"))] == [b"one", b"two", None]
    assert (folder.for_session("ses_2").edits(), folder.for_session("ses_2").read_content(one)) == ([], None)
    assert restore_files(kept, workspace, undone={"call_2"}, redone=()) == [
        RestoredFile("a.txt", "restored", version=_version(workspace / "a.txt"))
    ]
    assert (workspace / "a.txt").read_text() == "one"


async def test_a_file_keeps_its_mode_and_a_deleted_one_is_not_restored(folder: SnapshotFolder, workspace: Path) -> None:
    (workspace / "run.sh").write_text("old")
    (workspace / "run.sh").chmod(0o750)
    (workspace / "gone").write_text("old")
    await write(folder, workspace, "call_1", "run.sh", "new")
    await write(folder, workspace, "call_1", "gone", "new")
    (workspace / "gone").unlink()
    done = restore_files(folder.for_session("ses_1"), workspace, undone={"call_1"}, redone=())
    assert [(file.path, file.outcome) for file in done] == [("run.sh", "restored"), ("gone", "left")]
    assert ((workspace / "run.sh").stat().st_mode & 0o777, (workspace / "run.sh").read_text()) == (0o750, "old")
    assert not (workspace / "gone").exists()


async def test_a_removed_file_is_restored_with_its_mode(folder: SnapshotFolder, workspace: Path) -> None:
    script, kept = workspace / "run.sh", folder.for_session("ses_1")
    await write(folder, workspace, "call_1", "run.sh", "echo")
    modes: list[int] = []
    for mode in (0o755, 0o600):
        script.chmod(mode)
        (away,) = restore_files(kept, workspace, undone={"call_1"}, redone=())
        (back,) = restore_files(kept, workspace, undone=(), redone={"call_1"})
        assert (away.outcome, back.outcome) == ("removed", "restored")
        modes.append(script.stat().st_mode & 0o777)
    assert modes == [0o755, 0o600]


async def test_a_rewind_stops_at_a_change_by_the_user_between_two_edits_and_can_be_undone(
    folder: SnapshotFolder, workspace: Path
) -> None:
    file, kept = workspace / "a.txt", folder.for_session("ses_1")
    file.write_text("first")
    await write(folder, workspace, "call_1", "a.txt", "by the agent")
    file.write_text("by a person")
    await write(folder, workspace, "call_2", "a.txt", "by the agent again")
    await write(folder, workspace, "call_3", "a.txt", "and again")
    calls = {"call_1", "call_2", "call_3"}
    stopped = "Only in part: it was changed outside this conversation in between, and that change was kept."

    for outcome in ("restored", "unchanged"):
        done = restore_files(kept, workspace, undone=calls, redone=())
        assert (done, file.read_text()) == ([RestoredFile("a.txt", outcome, stopped)], "by a person")
    done = restore_files(kept, workspace, undone=(), redone=calls)
    assert (done, file.read_text()) == ([RestoredFile("a.txt", "restored", version=_version(file))], "and again")


async def test_switching_branches_keeps_changes_by_the_user(folder: SnapshotFolder, workspace: Path) -> None:
    file, kept = workspace / "a.txt", folder.for_session("ses_1")
    file.write_text("first")
    await write(folder, workspace, "call_1", "a.txt", "one branch")
    restore_files(kept, workspace, undone={"call_1"}, redone=())
    await write(folder, workspace, "call_2", "a.txt", "a second")
    done = restore_files(kept, workspace, undone={"call_2"}, redone={"call_1"})
    assert ([one.outcome for one in done], file.read_text()) == (["restored"], "one branch")
    restore_files(kept, workspace, undone={"call_1"}, redone=())
    file.write_text("by a person")
    await write(folder, workspace, "call_3", "a.txt", "a third")
    (one,) = restore_files(kept, workspace, undone={"call_3"}, redone={"call_1"})
    assert (one.outcome, one.version, file.read_text()) == ("restored", None, "by a person")
    assert one.reason is not None
    assert "changed outside this conversation in between" in one.reason


async def test_a_file_that_the_user_deleted_between_two_edits_is_removed_and_not_restored(
    folder: SnapshotFolder, workspace: Path
) -> None:
    (workspace / "a.txt").write_text("first")
    await write(folder, workspace, "call_1", "a.txt", "second")
    (workspace / "a.txt").unlink()
    await write(folder, workspace, "call_2", "a.txt", "third")
    (one,) = restore_files(folder.for_session("ses_1"), workspace, undone={"call_1", "call_2"}, redone=())
    assert (one.outcome, one.reason is None, (workspace / "a.txt").exists()) == ("removed", False, False)


async def test_private_files_are_not_restored(folder: SnapshotFolder, workspace: Path) -> None:
    await write(folder, workspace, "call_1", "home/token", "x")
    done = restore_files(
        folder.for_session("ses_1"), workspace, undone={"call_1"}, redone=(), private=[workspace / "home"]
    )
    assert done == [
        RestoredFile("home/token", "left", "It is one of AgenticX's own files, which a rewind does not change.")
    ]
    assert (workspace / "home" / "token").read_text() == "x"


async def test_a_file_too_large_for_a_snapshot_is_edited_but_not_restored(
    folder: SnapshotFolder, workspace: Path
) -> None:
    (workspace / "big").write_bytes(b"x" * (LARGEST_FILE + 1))
    await write(folder, workspace, "call_1", "big", "small")
    (done,) = restore_files(folder.for_session("ses_1"), workspace, undone={"call_1"}, redone=())
    assert (done.outcome, done.reason) == ("left", "Its content before or after is too large for a snapshot.")
    assert (workspace / "big").read_text() == "small"


async def test_a_full_session_stores_no_more_and_the_oldest_contents_are_deleted(
    tmp_path: Path, workspace: Path
) -> None:
    full = SnapshotFolder(tmp_path / "full", session_bytes=6_000)
    for number in range(3):
        await write(full, workspace, f"call_{number}", f"{number}.bin", os.urandom(2_000).hex())
    done = restore_files(full.for_session("ses_1"), workspace, undone={"call_0", "call_1", "call_2"}, redone=())
    assert [file.outcome for file in done] == ["removed"] * 3
    done = restore_files(full.for_session("ses_1"), workspace, undone=(), redone={"call_0", "call_1", "call_2"})
    assert [file.outcome for file in done] == ["restored", "restored", "left"]

    shared = SnapshotFolder(tmp_path / "shared", all_bytes=6_000)
    for number in range(3):
        kept = shared.for_session(f"ses_{number}")
        kept.record_edit("call", workspace / "x", None, os.urandom(2_500))
        os.utime(kept.folder / "edits.jsonl", (number, number))
    left = [
        shared.for_session(f"ses_{number}").read_content(shared.for_session(f"ses_{number}").edits()[0].after)
        for number in range(3)
    ]
    assert [content is not None for content in left] == [False, True, True]
    total = sum(path.stat().st_size for path in (tmp_path / "shared").rglob("*") if path.is_file())
    assert total < 6_500


async def test_the_undo_of_a_rewind_skips_files_that_the_user_had_reverted(
    folder: SnapshotFolder, workspace: Path
) -> None:
    (workspace / "both.txt").write_text("old")
    (workspace / "mine.txt").write_text("old")
    for name in ("both.txt", "mine.txt", "new.txt"):
        await write(folder, workspace, "call_1", name, "agent")
    (workspace / "mine.txt").write_text("old")
    (workspace / "new.txt").unlink()
    kept = folder.for_session("ses_1")
    for _ in range(2):
        back = restore_files(kept, workspace, undone={"call_1"}, redone=())
        assert [file.outcome for file in back] == ["restored", "unchanged", "unchanged"]
        forth = restore_files(kept, workspace, undone=(), redone={"call_1"})
        assert [file.outcome for file in forth] == ["restored", "left", "left"]
        assert (workspace / "both.txt").read_text() == "agent"
        assert (workspace / "mine.txt").read_text() == "old"
        assert not (workspace / "new.txt").exists()


NOT_OURS = [
    *("[" * 100_000, '[5,"x",5,5]', "null", "{}", '["call_1",["x"],null,"x"]', '["call_1","\\ud800",null,"x"]', "\0"),
    *('["call_1","a\\u0000b",null,"x"]', '["/x",5,5,5]', '["\\ud800",[],[],null]', "\x7f\x7f", '["call_1"'),
]


@pytest.mark.parametrize("name", ["edits.jsonl", "rewinds.jsonl"])
@pytest.mark.parametrize("row", NOT_OURS, ids=range(len(NOT_OURS)))
async def test_a_line_that_agenticx_did_not_write_refuses_a_rewind_and_changes_nothing(
    folder: SnapshotFolder, workspace: Path, name: str, row: str
) -> None:
    await write(folder, workspace, "call_1", "a.txt", "one")
    with (folder.for_session("ses_1").folder / name).open("a") as file:
        file.write(f"\n{row}\n")
    await write(folder, workspace, "call_2", "b.txt", "two")
    with pytest.raises(DamagedData, match=name):
        restore_files(folder.for_session("ses_1"), workspace, undone={"call_1", "call_2"}, redone=())
    assert ((workspace / "a.txt").read_text(), (workspace / "b.txt").read_text()) == ("one", "two")


async def test_damage_of_any_byte_of_a_list_is_never_ignored(folder: SnapshotFolder, workspace: Path) -> None:
    await write(folder, workspace, "call_1", "a.txt", "one")
    await write(folder, workspace, "call_2", "b.txt", "two")
    kept = folder.for_session("ses_1")
    restore_files(kept, workspace, undone={"call_2"}, redone=())
    restore_files(kept, workspace, undone=(), redone={"call_2"})
    silent: list[tuple[str, int, int]] = []
    for name in ("edits.jsonl", "rewinds.jsonl"):
        whole = (kept.folder / name).read_bytes()
        for place in range(len(whole)):
            for bits in (0x01, 0x04, 0x20, 0x80):
                damaged = bytearray(whole)
                damaged[place] ^= bits
                (kept.folder / name).write_bytes(damaged)
                try:
                    edits, moves = kept.edits(), kept.rewind_edits()
                except DamagedData:
                    continue
                if [edit.path for edit in edits] != [str(workspace / "a.txt"), str(workspace / "b.txt")]:
                    silent.append((name, place, bits))
                if len(moves) != 2:
                    silent.append((name, place, bits))
        (kept.folder / name).write_bytes(whole)
    assert silent == []
    assert len(restore_files(kept, workspace, undone={"call_1", "call_2"}, redone=())) == 2


@pytest.mark.parametrize("name", ["edits.jsonl", "rewinds.jsonl"])
@pytest.mark.parametrize("what", ["folder", "link", "pipe", "unreadable"])
async def test_a_list_that_is_no_regular_file_refuses_rewinds_and_edits_without_blocking(
    folder: SnapshotFolder, workspace: Path, name: str, what: str
) -> None:
    await write(folder, workspace, "call_1", "a.txt", "one")
    kept = folder.for_session("ses_1")
    (kept.folder / name).unlink(missing_ok=True)
    match what:
        case "folder":
            (kept.folder / name).mkdir()
        case "link":
            (kept.folder / name).symlink_to("/etc/passwd")
        case "pipe":
            os.mkfifo(kept.folder / name)
        case _:
            (kept.folder / name).write_bytes(b"\n" + os.urandom(2_000) + b"\n")
    with pytest.raises(DamagedData, match=name):
        restore_files(kept, workspace, undone={"call_1"}, redone=())
    if what != "unreadable" and name == "edits.jsonl":
        with pytest.raises(ToolError, match="nothing was changed"):
            await write(folder, workspace, "call_2", "a.txt", "two")
    assert (workspace / "a.txt").read_text() == "one"
    assert restore_files(kept, workspace, undone=(), redone=()) == []
    folder.delete("ses_1")
    assert not kept.folder.exists()


async def test_a_fork_of_a_damaged_list_is_damaged_too(folder: SnapshotFolder, workspace: Path) -> None:
    await write(folder, workspace, "call_1", "a.txt", "one")
    (folder.for_session("ses_1").folder / "edits.jsonl").write_text("\nnonsense\n")
    folder.copy("ses_1", "ses_2", {"call_1"})
    with pytest.raises(DamagedData):
        restore_files(folder.for_session("ses_2"), workspace, undone={"call_1"}, redone=())
    folder.copy("ses_3", "ses_4", {"call_1"})
    assert restore_files(folder.for_session("ses_4"), workspace, undone={"call_1"}, redone=()) == []


async def test_a_line_that_a_crash_left_unfinished_damages_no_other(folder: SnapshotFolder, workspace: Path) -> None:
    await write(folder, workspace, "call_1", "a.txt", "one")
    edits = folder.for_session("ses_1").folder / "edits.jsonl"
    with edits.open("ab") as file:
        file.write(b'\n["call_2", "/half')
    await write(folder, workspace, "call_3", "b.txt", "two")
    assert [edit.call_id for edit in folder.for_session("ses_1").edits()] == ["call_1", "call_3"]


async def test_no_file_is_changed_if_no_snapshot_can_be_stored(tmp_path: Path, workspace: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(ToolError, match="nothing was changed"):
        await write(SnapshotFolder(tmp_path / "file"), workspace, "call_1", "a.txt", "one")
    assert list(workspace.iterdir()) == []


async def test_a_snapshot_folder_that_is_a_link_is_not_followed(folder: SnapshotFolder, workspace: Path) -> None:
    mine = folder.for_session("ses_1").folder
    mine.parent.mkdir(parents=True)
    mine.symlink_to(workspace)
    with pytest.raises(ToolError, match="nothing was changed"):
        await write(folder, workspace, "call_1", "a.txt", "one")
    folder.delete("ses_1")
    assert (list(workspace.iterdir()), workspace.is_dir()) == ([], True)


async def test_no_forged_edit_leads_out_of_the_workspace_or_out_of_the_snapshots(
    folder: SnapshotFolder, workspace: Path
) -> None:
    await write(folder, workspace, "call_1", "a.txt", "one")
    kept, outside = folder.for_session("ses_1"), workspace.parent / "outside.txt"
    outside.write_text("one")
    (kept.folder.parent / "stolen").write_bytes(zlib.compress(b"secret"))
    one = content_digest(b"one")
    forged = [
        ["call_2", str(outside), None, one],
        ["call_3", f"{workspace}/../outside.txt", None, one],
        ["call_4", str(workspace / "a.txt"), "../stolen", one],
    ]
    with (kept.folder / "edits.jsonl").open("a") as file:
        file.writelines(json.dumps(line) + "\n" for line in forged)
    calls = {f"call_{number}" for number in range(2, 5)}
    done = restore_files(kept, workspace, undone=calls, redone=())
    assert [(file.path, file.outcome) for file in done] == [
        (str(outside), "left"),
        ("../outside.txt", "left"),
        ("a.txt", "left"),
    ]
    assert (outside.read_text(), (workspace / "a.txt").read_text()) == ("one", "one")


@pytest.mark.parametrize("session_id", ["../..", "/", ".", "", "ses_1/../../x", "a" * 5_000])
async def test_a_session_id_is_never_part_of_a_path(
    folder: SnapshotFolder, workspace: Path, tmp_path: Path, session_id: str
) -> None:
    assert folder.for_session(session_id).folder.parent == tmp_path / "home" / "snapshots"
    folder.delete(session_id)
    assert workspace.is_dir()


def _version(path: Path) -> tuple[int, int]:
    return path.stat().st_mtime_ns, path.stat().st_size

"""Tests of files that cannot be replaced by renaming: they are written in place, and that is said."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from pathlib import Path

import pytest

from agenticx.errors import ToolError
from agenticx.tools.builtin import file_edit, file_write
from tests.support.forked import ROOT, Process
from tests.support.program import PROGRAM
from tests.support.timeouts import PATIENCE
from tests.support.unreplaceable import unwritable

pytestmark = pytest.mark.anyio

IN_PLACE = "It is not atomic: the file cannot be replaced by a new one, so it is written in place."
OTHER_NAMES = "The file has other names (hard links), which keep the old content."


@pytest.fixture(autouse=True)
def temporary_files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    folder = tmp_path / "tmp"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


@pytest.mark.promise("H2")
async def test_a_writable_file_in_a_folder_that_is_not_is_written_in_place(runner, temporary_files) -> None:
    folder = runner.workspace / "folder"
    folder.mkdir()
    (folder / "f").write_text("one\ntwo\n")
    (folder / "f").chmod(0o640)
    os.link(folder / "f", runner.workspace / "same")
    inode = (folder / "f").stat().st_ino

    with unwritable(folder):
        edit = {"path": "folder/f", "old_text": "two", "new_text": "2"}
        assessment = runner.assess(file_edit, **edit)
        assert assessment.reasons[1:] == (IN_PLACE,)
        assert await runner.call(file_edit, **edit) == f"Replaced 1 occurrence in folder/f. {IN_PLACE}"
        assert await runner.call(file_write, path="folder/f", content="1\n") == (
            f"Overwrote folder/f (2 bytes). {IN_PLACE}"
        )
        with pytest.raises(ToolError, match="Permission denied"):
            await runner.call(file_write, path="folder/new", content="")
        (folder / "f").chmod(0o440)
        with pytest.raises(ToolError, match=r"^'folder/f': Permission denied$"):
            await runner.call(file_write, path="folder/f", content="none")
    status = (folder / "f").stat()
    assert ((runner.workspace / "same").read_text(), status.st_ino, status.st_nlink) == ("1\n", inode, 2)
    assert (sorted(os.listdir(folder)), os.listdir(temporary_files)) == (["f"], [])


async def test_nothing_is_written_in_place_if_the_old_content_cannot_be_stored(runner, temporary_files) -> None:
    (runner.workspace / "f").write_text("old")
    temporary_files.rmdir()
    with (
        unwritable(runner.workspace),
        pytest.raises(ToolError, match=r"^nothing was changed: 'f' can only be written in"),
    ):
        await runner.call(file_write, path="f", content="new")
    assert runner.files() == {"f": "old"}


@pytest.mark.promise("H2")
async def test_all_other_files_are_replaced_and_their_other_names_are_mentioned(runner) -> None:
    (runner.workspace / "f").write_text("old")
    os.link(runner.workspace / "f", runner.workspace / "other")
    assert runner.assess(file_write, path="f", content="new").reasons[1:] == (OTHER_NAMES,)
    assert await runner.call(file_write, path="f", content="new") == f"Overwrote f (3 bytes). {OTHER_NAMES}"
    assert runner.files() == {"f": "new", "other": "old"}
    assert await runner.call(file_write, path="f", content="newer") == "Overwrote f (5 bytes)."


def test_a_folder_that_is_closed_after_the_question_changes_the_binding(runner) -> None:
    (runner.workspace / "f").write_text("old")
    asked = runner.assess(file_write, path="f", content="new").binding
    with unwritable(runner.workspace):
        assert runner.assess(file_write, path="f", content="new").binding != asked


async def test_a_file_in_an_immutable_folder_is_written_in_place(runner) -> None:
    (runner.workspace / "f").write_text("old")
    if subprocess.run(["chattr", "+i", str(runner.workspace)], check=False, capture_output=True).returncode != 0:
        pytest.skip("chattr cannot make a folder immutable here")
    try:
        assert runner.assess(file_write, path="f", content="new").reasons[1:] == (IN_PLACE,)
        assert await runner.call(file_write, path="f", content="new") == f"Overwrote f (3 bytes). {IN_PLACE}"
    finally:
        subprocess.run(["chattr", "-i", str(runner.workspace)], check=True)
    assert runner.files() == {"f": "new"}


MOUNTED = """
import asyncio, json, os, sys
from pathlib import Path
from agenticx.tools import ToolContext
from agenticx.tools.builtin.edits import file_write
from tests.support.unreplaceable import bind_file, enter_mount_namespace, hide_proc

folder, kind = Path(sys.argv[1]), sys.argv[2]
source, file, arguments = folder.parent / "source", folder / "f", {"path": "f", "content": "new"}
file.touch()
source.write_text("old")
may_mount = enter_mount_namespace()
if may_mount:
    if kind == "sticky":
        file.write_text("old")
        file.chmod(0o666)
        folder.chmod(0o1777)
        for parent in folder.parents:
            if not parent.stat().st_mode & 0o001:
                parent.chmod(0o755)
        os.setuid(65534)
    else:
        bind_file(source, file, read_only_folder=kind == "read-only")
    if kind == "unseen":
        hide_proc()
    context = ToolContext(workspace=folder)
    reasons = file_write.assess(arguments, context).reasons
    result = asyncio.run(file_write.run(arguments, context))
    print(json.dumps([reasons[-1], result.text, file.read_text(), os.listdir(folder)]))
"""


@pytest.mark.promise("H2")
@pytest.mark.cases(quick=1)
@pytest.mark.parametrize("kind", ["mounted", "read-only", "sticky", "unseen"])
def test_a_file_that_is_mounted_or_of_another_owner_is_written_in_place(workspace, kind) -> None:
    with Process(PROGRAM, [MOUNTED, str(workspace), kind], cwd=ROOT, env=os.environ) as process:
        output, error = process.communicate("", PATIENCE)
    if not output and not error:
        pytest.skip("this process may not mount files")
    reason = "It replaces the whole file: 1 line, 3 bytes." if kind == "unseen" else IN_PLACE
    assert json.loads(output) == [reason, f"Overwrote f (3 bytes). {IN_PLACE}", "new", ["f"]], error

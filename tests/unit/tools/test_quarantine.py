"""Tests of the clean-up after a command in the sandbox, also while others swap folders of the workspace for links."""

from __future__ import annotations

import asyncio
import errno
import os
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest

from agenticx.tools.builtin import bash_exec
from agenticx.tools.shell.protected_files import changed_instructions, find_protected_files
from agenticx.tools.shell.quarantine import move_new_ones, newest_change
from tests.support.timeouts import PatientClock

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="there is a sandbox on Linux only"),
]


async def test_no_process_of_a_command_is_left_when_its_files_are_looked_at(each_world) -> None:
    """A process that ignores SIGTERM has a pipe open for reading: opening it for writing shows whether it runs."""
    sandboxed = each_world.sandbox.mode != "off"
    waits = "trap '' TERM; exec 3<>pipe >/dev/null 2>&1; echo > armed; while :; do sleep 1000; done"
    result = await each_world.call(bash_exec, command=f"mkfifo pipe; ({waits}) & until test -e armed; do :; done")
    assert "still running in the background and ended with the command" in result
    try:
        os.close(os.open(each_world.workspace / "pipe", os.O_WRONLY | os.O_NONBLOCK))
        runs = True
    except OSError as exc:
        runs = exc.errno != errno.ENXIO
    assert (runs, len(each_world.background_tasks)) == (not sandboxed, 0 if sandboxed else 1)
    await asyncio.gather(*each_world.background_tasks)


async def test_a_command_that_is_ended_by_its_time_out_leaves_no_protected_file(
    sandbox, make_runner, workspace
) -> None:
    runner = make_runner(workspace, sandbox=sandbox)
    clock = PatientClock({0.5: 4.0})  # by then the command has begun on a slow machine, too
    runner.context = replace(runner.context, clock=clock)
    with pytest.raises(Exception, match=r"ended after 0\.5 s(?s:.)*The command created .*\.envrc"):
        await runner.call(bash_exec, command="x=.env; echo > ${x}rc; sleep 1000", timeout=0.5)
    assert (os.listdir(workspace), runner.background_tasks) == ([], [])


def test_a_folder_that_became_a_link_is_not_followed(workspace, tmp_path) -> None:
    home = tmp_path / "me"
    home.mkdir()
    (home / ".bashrc").write_text("mine\n")
    for name in ("swapped", "honest", "other"):
        (workspace / name).mkdir()
    before = find_protected_files(workspace)
    for name in ("swapped", "honest", "other"):
        (workspace / name / ".bashrc").write_text("evil\n")
    after = find_protected_files(workspace)
    (workspace / "swapped").rename(workspace / "away")
    (workspace / "swapped").symlink_to(home)
    (workspace / "other").rename(workspace / "gone")
    (workspace / "other").mkdir()
    (workspace / "other/.bashrc").write_text("another file\n")
    found = move_new_ones(before, after, "", tmp_path / "agx/quarantine", home=tmp_path / "agx", were_mounted=True)
    assert found.moved == [workspace / "honest/.bashrc"]
    assert sorted(found.kept) == [workspace / "other/.bashrc", workspace / "swapped/.bashrc"]
    assert (tmp_path / "agx/quarantine/honest/.bashrc").read_text() == "evil\n"
    assert [path.name for path in home.iterdir()] == [".bashrc"]
    assert (home / ".bashrc").read_text() == "mine\n"
    assert newest_change(workspace / "honest") > 0
    assert newest_change(workspace / "swapped/.bashrc") == 0


def test_a_file_stays_that_a_search_without_enough_time_had_not_found_before(workspace, tmp_path) -> None:
    (workspace / "deep").mkdir()
    (workspace / "deep/.env").write_text("A=1\n")
    (workspace / "deep/AGENTS.md").write_text("Be brief.\n")
    before, after = find_protected_files(workspace, seconds=0), find_protected_files(workspace)
    found = move_new_ones(before, after, "", tmp_path / "agx/quarantine", home=tmp_path / "agx", were_mounted=True)
    assert (found.moved, found.kept, changed_instructions(before, after)) == ([], {}, [])
    assert (workspace / "deep/.env").read_text() == "A=1\n"


def test_a_link_that_was_replaced_comes_back_in_the_folder_in_which_it_was(workspace, tmp_path) -> None:
    (workspace / ".envrc").symlink_to("../shared/envrc")
    before = find_protected_files(workspace)
    (workspace / ".envrc").unlink()
    (workspace / ".envrc").write_text("evil\n")
    after = find_protected_files(workspace)
    move_new_ones(before, after, "", tmp_path / "agx/quarantine", home=tmp_path / "agx", were_mounted=True)
    assert os.readlink(workspace / ".envrc") == "../shared/envrc"


def test_files_are_moved_into_another_file_system_without_following_links(workspace, tmp_path) -> None:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as memory:
        if os.stat(memory).st_dev == os.stat(workspace).st_dev:
            pytest.skip("/dev/shm is the file system of the test")
        before = find_protected_files(workspace)
        (tmp_path / "key").write_text("secret\n")
        (workspace / ".vscode/deep").mkdir(parents=True)
        (workspace / ".vscode/deep/tasks.json").write_text("evil\n")
        (workspace / ".vscode/link").symlink_to(tmp_path / "key")
        os.mkfifo(workspace / ".vscode/pipe")
        after = find_protected_files(workspace)
        home = Path(memory, "agx")
        found = move_new_ones(before, after, "", home / "quarantine", home=home, were_mounted=True)
        moved = home / "quarantine/.vscode"
        assert (found.moved, found.kept, os.listdir(workspace)) == ([workspace / ".vscode"], {}, [])
        assert sorted(os.listdir(moved)) == ["deep", "link"]
        assert (moved / "deep/tasks.json").read_text() == "evil\n"
        assert os.readlink(moved / "link") == str(tmp_path / "key")
    assert (tmp_path / "key").read_text() == "secret\n"


def test_pipes_in_the_place_of_gits_files_do_not_block_the_search(workspace) -> None:
    (workspace / ".git").write_text("gitdir: own\n")
    (workspace / "own").mkdir()
    os.mkfifo(workspace / "own/gitdir")
    assert find_protected_files(workspace).repositories == ()

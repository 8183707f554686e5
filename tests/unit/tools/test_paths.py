"""Tests that file tools stay inside the workspace, for any path and for links swapped concurrently."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agenticx.errors import ToolError
from agenticx.tools.builtin import file_edit, file_read, file_search, file_write, list_files
from agenticx.tools.paths import read_file, replace_file, resolve_in_workspace
from tests.support.examples import examples
from tests.support.lanes import Count

pytestmark = [pytest.mark.anyio, pytest.mark.promise("H1")]

SECRET = "outside and secret"


@pytest.fixture
def outside(workspace: Path) -> Path:
    """Return a neighbour folder with a similar name, and create links in the workspace that leave it."""
    neighbour = workspace.with_name("work-neighbour")
    neighbour.mkdir()
    (neighbour / "secret.txt").write_text(SECRET)
    (workspace / "folder").mkdir()
    (workspace / "folder" / "file.txt").write_text("inside")
    (workspace / "link-file").symlink_to(neighbour / "secret.txt")
    (workspace / "link-folder").symlink_to(neighbour)
    (workspace / "link-relative").symlink_to(f"../{neighbour.name}/secret.txt")
    (workspace / "link-twice").symlink_to("link-folder")
    (workspace / "folder" / "link-up").symlink_to("..")
    (workspace / "folder" / "link-up-up").symlink_to("../..")
    (workspace / "dangling-out").symlink_to(neighbour / "not-there-yet.txt")
    (workspace / "loop").symlink_to("loop")
    (workspace / "proc").symlink_to("/proc")
    (workspace / "root").symlink_to("/")
    os.mkfifo(workspace / "pipe")
    (workspace / "null").symlink_to("/dev/null")
    return neighbour


ESCAPES = [
    "..",
    "../",
    "../work-neighbour/secret.txt",
    "folder/../../work-neighbour/secret.txt",
    "folder/..",
    "./../work-neighbour/secret.txt",
    "link-file",
    "link-folder/secret.txt",
    "./link-folder/./secret.txt",
    "link-folder//secret.txt",
    "link-relative",
    "link-twice/secret.txt",
    "folder/link-up-up/work-neighbour/secret.txt",
    "folder/link-up/link-file",
    "dangling-out",
    "/etc/passwd",
    "//etc/passwd",
    "/",
    "~/.bashrc",
    "proc/self/environ",
    "proc/self/root/etc/passwd",
    "proc/self/cwd",
    "proc/self/fd/0",
    "/proc/self/root/etc/passwd",
    "/proc/1/environ",
    "/dev/null",
    "/dev/stdin",
    "/sys/kernel",
    "null",
    "root/etc/passwd",
    "root",
    "loop",
    "loop/x",
    "pipe",
    "pipe/x",
    "folder/file.txt/x",
    "folder/file.txt/..",
    "",
    "\0",
    "folder\0/file.txt",
    "x" * 300,
    "x/" * 3000,
    "%2e%2e/work-neighbour/secret.txt",
    "..%2fwork-neighbour/secret.txt",
    "..\\work-neighbour\\secret.txt",
    "\u2025/work-neighbour/secret.txt",
    "．．/work-neighbour/secret.txt",
    "file:///etc/passwd",
    "$HOME/.bashrc",
]


WAYS = ["", "./", "folder/../", "folder/link-up/", ".//folder/./link-up//"]
"""Ways back to the workspace, which each path is tried behind."""


def escapes(neighbour: Path) -> list[str]:
    """Return the paths that lead out of the workspace, or to no file in it."""
    return [
        *(way + path for way in WAYS for path in ESCAPES),
        str(neighbour),
        f"{neighbour}/secret.txt",
        str(neighbour.parent),
        f"{neighbour.parent}/work/../work-neighbour/secret.txt",
        f"{neighbour.parent}/work/link-file",
        f"/proc/self/root{neighbour}/secret.txt",
        f"/proc/self/cwd/../..{neighbour}/secret.txt",
        f"{neighbour.parent}/WORK/folder/file.txt",
    ]


async def test_no_path_leads_out_of_the_workspace(runner, outside) -> None:
    before = (sorted(outside.iterdir()), (outside / "secret.txt").read_text())
    for path in escapes(outside):
        for tool, arguments in (
            (list_files, {"path": path}),
            (file_read, {"path": path}),
            (file_search, {"path": path, "pattern": "secret"}),
            (file_edit, {"path": path, "old_text": "secret", "new_text": "gone"}),
        ):
            try:
                result = await runner.call(tool, **arguments)
            except ToolError as exc:
                result = str(exc)
            assert SECRET not in result, (tool.schema.name, path)
            assert "root:" not in result, (tool.schema.name, path)
    assert (sorted(outside.iterdir()), (outside / "secret.txt").read_text()) == before


async def test_no_write_reaches_a_file_outside_the_workspace(runner, outside) -> None:
    before = {path: path.lstat().st_mtime_ns for path in runner.workspace.parent.iterdir()}
    for path in escapes(outside):
        try:
            await runner.call(file_write, path=path, content="mine")
        except ToolError:
            continue
        written = [name for name, text in runner.files().items() if text == "mine"]
        assert len(written) == 1, path  # an odd name, but a name inside
        (runner.workspace / written[0]).unlink()
    after = {path: path.lstat().st_mtime_ns for path in runner.workspace.parent.iterdir() if path != runner.workspace}
    assert after == {path: changed for path, changed in before.items() if path != runner.workspace}
    assert [path.name for path in outside.iterdir()] == ["secret.txt"]


@pytest.mark.parametrize(
    ("path", "sentence"),
    [
        ("../x", "the path '../x' contains '..'; give a path that goes down from the workspace"),
        ("a\0b", "the path 'a⟨U+0000⟩b' is empty or holds a NUL; give one relative to the workspace, such as '.'"),
        ("/etc/passwd", "the path '/etc/passwd' is outside the workspace '{root}'; give a path relative to it"),
        (
            "link-file",
            "the path 'link-file' (it leads to '{outside}/secret.txt') is outside the workspace '{root}'; "
            "give a path relative to it",
        ),
        ("pipe", "'pipe' is a pipe, not a file; name a regular file"),
        ("folder", "'folder' is a folder, not a file; name a regular file"),
        ("nowhere", "'nowhere' does not exist; list_files shows what does"),
        ("loop", "a part of 'loop' is not a folder, or was changed into a link meanwhile"),
    ],
)
async def test_an_error_states_the_accepted_form_of_a_path(runner, outside, path, sentence) -> None:
    with pytest.raises(ToolError) as caught:
        await runner.call(file_read, path=path)
    expected = sentence.format(root=runner.workspace, outside=outside)
    assert str(caught.value) in (expected, "'loop' is a device or link, not a file; name a regular file")


@pytest.mark.parametrize(
    "path", ["folder/file.txt", "./folder//file.txt", "folder/link-up/folder/file.txt", "{root}/folder/file.txt"]
)
async def test_paths_and_links_inside_the_workspace_are_followed(runner, outside, path) -> None:
    assert await runner.call(file_read, path=path.format(root=runner.workspace)) == "inside"


async def test_a_workspace_may_itself_be_a_link(runner, outside, tmp_path) -> None:
    link = tmp_path / "link-to-work"
    link.symlink_to(runner.workspace)
    assert resolve_in_workspace(f"{link}/folder/file.txt", link).relative == "folder/file.txt"


async def test_a_socket_and_a_pipe_are_refused_without_waiting(runner, monkeypatch) -> None:
    monkeypatch.chdir(runner.workspace)  # a socket's path is short
    os.mkfifo("pipe")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("socket")
        for path in ("pipe", "socket"):
            for call in (
                runner.call(file_read, path=path),
                runner.call(file_write, path=path, content="x"),
                runner.call(file_search, path=path, pattern="x"),
            ):
                with pytest.raises(ToolError, match=f"'{path}' is a {path}, not a file"):
                    await call
        assert await runner.call(file_search, pattern="x") == (
            "[no match in 0 files]\n[not searched: 2 binary, unreadable or very large files]"
        )


@pytest.mark.parametrize("swapped", ["folder", "file", "folder of the file"])
def test_a_link_that_appears_after_the_check_is_not_followed(workspace, outside, swapped) -> None:
    (workspace / "flip" / "deep").mkdir(parents=True)
    (workspace / "flip" / "deep" / "secret.txt").write_text("inside")
    (outside / "deep").mkdir()
    (outside / "deep" / "secret.txt").write_text(SECRET)
    target = resolve_in_workspace("flip/deep/secret.txt", workspace)
    match swapped:
        case "folder":
            (workspace / "flip").rename(workspace / "away")
            (workspace / "flip").symlink_to(outside)
        case "file":
            (workspace / "flip" / "deep" / "secret.txt").unlink()
            (workspace / "flip" / "deep" / "secret.txt").symlink_to(outside / "deep" / "secret.txt")
        case _:
            (workspace / "flip" / "deep").rename(workspace / "away")
            (workspace / "flip" / "deep").symlink_to(outside / "deep")

    for attempt in (lambda: read_file(target, 100), lambda: replace_file(target, b"mine")):
        with pytest.raises(ToolError, match=r"was changed into a link meanwhile|is a device or link, not a file"):
            attempt()
    assert (outside / "deep" / "secret.txt").read_text() == SECRET


def test_a_swapped_folder_detects_files_that_are_opened_through_links(workspace, outside, monkeypatch) -> None:
    (workspace / "flip").mkdir()
    (workspace / "flip/secret.txt").write_text("inside")
    target = resolve_in_workspace("flip/secret.txt", workspace)
    (workspace / "flip").rename(workspace / "away")
    (workspace / "flip").symlink_to(outside)
    monkeypatch.setattr("agenticx.tools.unfollowed_paths._FOLDER_FLAGS", os.O_DIRECTORY)
    assert read_file(target, 100)[0] == SECRET.encode()


SWAPPER = """
import itertools, os, shutil, sys
from contextlib import suppress
print(flush=True)
for target in itertools.cycle(sys.argv[1:]):
    # A writer may make the folder anew at any of these steps; then the next round goes on from there.
    for step, *arguments in (
        (os.symlink, target, "flip-link"), (os.rename, "flip", "flip-away"), (os.rename, "flip-link", "flip"),
        (os.unlink, "flip"), (os.rename, "flip-away", "flip"),
    ):
        with suppress(OSError):
            step(*arguments)
    shutil.rmtree("flip-away", ignore_errors=True)
"""


@pytest.mark.parametrize("swapped", ["folder", "file"])
@pytest.mark.ci_lane
def test_concurrently_swapped_links_never_lead_out_of_the_workspace(workspace, outside, swapped, count: Count) -> None:
    """Another process repeatedly replaces a folder or a file by a link that leads out, during reads and writes."""
    if swapped == "folder":
        (workspace / "flip").mkdir()
        path, targets = "flip/secret.txt", [outside, workspace / "folder"]
    else:
        path, targets = "flip", [outside / "secret.txt", workspace / "folder" / "file.txt"]
    (workspace / path).write_text("inside")
    arguments = [sys.executable, "-I", "-S", "-c", SWAPPER, *map(str, targets)]
    with subprocess.Popen(arguments, cwd=workspace, stdout=subprocess.PIPE) as swapper:
        assert swapper.stdout is not None
        swapper.stdout.readline()
        for _ in range(count(500, 10_000, 10_000)):
            try:
                target = resolve_in_workspace(path, workspace)
                content, _ = read_file(target, 100)
                assert content in (b"inside", b"mine")
                replace_file(target, b"mine")
            except ToolError:
                continue
        swapper.kill()
    assert (outside / "secret.txt").read_text() == SECRET
    assert [path.name for path in outside.iterdir()] == ["secret.txt"]


pieces = st.sampled_from(
    ["..", ".", "", "folder", "link-folder", "link-up", "link-up-up", "file.txt", "secret.txt", "root", "proc", "a b"]
)


@settings(examples(200, 500, 5_000), suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(st.lists(pieces, min_size=1, max_size=6), st.booleans())
def test_any_path_resolves_inside_the_workspace_or_is_refused(workspace, outside, parts, absolute) -> None:
    text = ("/" if absolute else "") + "/".join(parts)
    try:
        target = resolve_in_workspace(text, workspace)
    except ToolError:
        return
    assert Path(os.path.realpath(target.path)).is_relative_to(workspace.resolve())


@settings(examples(200, 500, 5_000), suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(st.text(st.characters(exclude_categories=("Cs",)), max_size=40))
def test_any_text_resolves_inside_the_workspace_or_is_refused(workspace, text) -> None:
    try:
        assert resolve_in_workspace(text, workspace).path.is_relative_to(workspace.resolve())
    except ToolError:
        return

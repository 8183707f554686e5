"""Tests of assessments: they are linear and bounded, and unexamined parts are asked about."""

from __future__ import annotations

import errno
import os
import random
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from agenticx.errors import ToolError
from agenticx.tools.builtin import bash_exec, file_edit, file_read, file_write
from agenticx.tools.shell.file_system_cache import FileSystemCache
from agenticx.tools.shell.globs import ShellGlob
from agenticx.tools.shell.named_paths import examine
from tests.linear.commands import SHELL_COMMANDS
from tests.support.lanes import Count
from tests.support.verdicts import decide

pytestmark = pytest.mark.promise("H4")

NOBODY = 65534


def decisions(runner, command: str) -> list[str]:
    assessment = runner.assess(bash_exec, command=command)
    edits = "default" if assessment.contained else "accept_edits"  # allowed in the sandbox
    return [decide(mode, assessment).decision for mode in ("default", edits, "auto")]


def last_reason(runner, command: str) -> str:
    return runner.assess(bash_exec, command=command).reasons[-1]


# --- what is too long -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "command",
    [
        "echo " + "x" * 4_097,
        "echo " + "é" * 2_049,
        "echo '" + "a'b" * 2_100 + "'",
        "echo " + "a:b" * 2_000,
        "echo " + "x" * 40_000,
        "cat " + "a/" * 3_000,
    ],
)
def test_a_word_of_more_than_4096_bytes_is_asked_about_in_every_mode(runner, command) -> None:
    assert decisions(runner, command) == ["ask"] * 3
    assert last_reason(runner, command) == "A word of it has more than 4,096 bytes, of which the rest is not checked."


def test_a_command_of_more_than_64_kib_is_asked_about_in_every_mode_and_shown_cut(runner) -> None:
    assert decisions(runner, "echo " + "word " * 13_000) == ["allow"] * 3
    for command in ("echo " + "word " * 14_000, "echo " + "é " * 30_000, "x" * 1_000_000):
        assessment = runner.assess(bash_exec, command=command)
        assert decide("auto", assessment).decided_by == "unchecked"
        size = f"{len(command.encode()):,}"
        sentence = f"The command has {size} bytes; one of more than 65,536 bytes is not checked."
        assert assessment.reasons[-1] == sentence
        assert len(assessment.command or "") < 66_000


def test_the_beginning_of_a_long_word_is_examined(runner) -> None:
    assessment = runner.assess(bash_exec, command="cat .git/" + "x" * 100 + "/" * 5_000)
    assert (assessment.protected, assessment.unchecked) == (True, True)


# --- what cannot be looked at -----------------------------------------------------------------------------------------


def test_a_word_longer_than_any_file_name_is_not_protected(runner) -> None:
    long = "a" * 300
    assert decisions(runner, f"echo {long}") == ["allow"] * 3
    for command in (f"echo {long * 5} | base64 -d", f'git commit -m "{long}"', f"cat {long}", f"cat x/{long}/y"):
        assert decisions(runner, command) == ["ask", "ask", "allow"], command


def test_the_rest_of_a_command_with_a_long_word_is_examined(runner) -> None:
    assert runner.assess(bash_exec, command=f"echo {'a' * 300} >> .bashrc").protected
    assert runner.assess(bash_exec, command=f"cat {'a' * 300}/.git/config").protected


@pytest.mark.parametrize("command", ["cat loop", "cat loop/x", "echo hello; ls a/loop", "cat lo*", "cd loop && ls"])
def test_a_path_that_cannot_be_examined_is_asked_about_in_every_mode(runner, command) -> None:
    (runner.workspace / "loop").symlink_to("loop")
    (runner.workspace / "a").mkdir()
    (runner.workspace / "a" / "loop").symlink_to("../loop")
    assert decisions(runner, command) == ["ask"] * 3
    assert last_reason(runner, command) == (
        f"It names {runner.workspace}/loop, which cannot be looked at: {os.strerror(errno.ELOOP)}."
    )


@contextmanager
def without_privileges() -> Iterator[None]:
    """Run the block as user nobody if this process is root, because file permissions do not apply to root."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.mark.parametrize("command", ["cat closed/x", "ls closed/*", "cat link", "grep -r x ."])
def test_a_folder_without_permission_is_asked_about(make_runner, command) -> None:
    with tempfile.TemporaryDirectory() as made:
        workspace = Path(os.path.realpath(made))
        (workspace / "closed").mkdir()
        (workspace / "link").symlink_to("closed/x")
        workspace.chmod(0o755)
        (workspace / "closed").chmod(0)
        runner = make_runner(workspace)
        try:
            with without_privileges():
                decided = decisions(runner, command)
                reason = last_reason(runner, command)
        finally:
            (workspace / "closed").chmod(0o700)
    if command.startswith("grep"):  # no word names it
        assert decided == ["ask", "ask", "allow"]
    else:
        assert decided == ["ask"] * 3
        assert reason.endswith(f"which cannot be looked at: {os.strerror(errno.EACCES)}.")


def test_a_path_below_a_file_counts_as_missing_and_not_as_unchecked(runner) -> None:
    (runner.workspace / "notes").touch()
    assert decisions(runner, "cat notes/x") == ["allow"] * 3


ODD = [
    "x" * 300,
    "y" * 5_000,
    "loop",
    "a/loop/../x",
    "/proc/self/fd/0",
    "\0",
    "\ud800",
    "é" * 200,
    "/",
    "//",
    "..",
    "~",
]
PIECES = [*ODD, *"*?[]{},!^-;&|<>$`'\"\\=: \t\n/.", "cd ", "cat ", "grep -r x ", "ls ", ".g", "*/*", "{a,b}", "[^a-]"]


def test_the_assessment_of_any_command_raises_no_error(runner, rng: random.Random, count: Count) -> None:
    (runner.workspace / "loop").symlink_to("loop")
    (runner.workspace / "a").mkdir()
    (runner.workspace / "a" / "loop").symlink_to("../loop")
    for _ in range(count(60, 2_000, 20_000)):
        command = "".join(rng.choices(PIECES, k=rng.randrange(1, 9)))
        assessment = bash_exec.assess({"command": command}, runner.context)
        assert decide("auto", assessment).decision in {"allow", "ask"}


@pytest.mark.parametrize("path", ["x" * 300, "\ud800", "loop", "loop/x", "a\0b", "x/" * 2_000])
def test_an_odd_path_is_refused_or_assessed_by_the_file_tools(runner, path) -> None:
    (runner.workspace / "loop").symlink_to("loop")
    for tool, arguments in (
        (file_read, {}),
        (file_write, {"content": "x"}),
        (file_edit, {"old_text": "a", "new_text": "b"}),
    ):
        with suppress(ToolError):
            assert tool.assess({"path": path, **arguments}, runner.context).path


def test_text_that_cannot_be_encoded_is_refused(runner) -> None:
    with pytest.raises(ToolError, match="lone surrogate"):
        file_write.assess({"path": "a", "content": "\ud800"}, runner.context)


# --- how much is looked at --------------------------------------------------------------------------------------------


@pytest.fixture
def listings(monkeypatch) -> list[str]:
    """Return a list that names each folder passed to `os.scandir`.

    An audit hook would see more, but stays for the whole process and lets threads switch within `sys.settrace`, which
    coverage calls in each new thread: two at once end one of them (`RuntimeError` of CPython 3.11).
    """
    listed: list[str] = []
    scandir = os.scandir

    def record_and_scan(path="."):
        listed.append(str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", record_and_scan)
    return listed


def test_each_folder_is_listed_once_and_only_for_globs(runner, listings) -> None:
    for name in ("a", "b", "c"):
        (runner.workspace / name).mkdir()
        (runner.workspace / name / "x").touch()
    runner.assess(bash_exec, command="ls a b c x y z")
    assert listings == []
    runner.assess(bash_exec, command=" ".join(f"*{n} */*{n} */x?{n} ./a/../*.{n} {{*,a/*}}" for n in range(64)))
    assert sorted(listings) == sorted(map(str, (runner.workspace, *map(runner.workspace.joinpath, "abc"))))


@pytest.fixture
def large_folder_runner(runner):
    """Return a runner whose workspace has a folder of more files than an assessment lists."""
    folder = runner.workspace / "many"
    folder.mkdir()
    for number in range(20_001):
        os.mknod(folder / f"f{number}")
    return runner


@pytest.mark.ci_lane
def test_a_folder_with_too_many_files_is_asked_about_if_a_glob_reaches_it(large_folder_runner, listings) -> None:
    assert decisions(large_folder_runner, "ls many") == ["allow"] * 3
    listings.clear()
    assert decisions(large_folder_runner, " ".join(f"many/f*{n}*" for n in range(64))) == ["ask"] * 3
    assert listings == [f"{large_folder_runner.workspace}/many"]
    assert (
        last_reason(large_folder_runner, "ls many/*")
        == "Its patterns reach more than the 20,000 files that can be checked."
    )
    assert decisions(large_folder_runner, "ls many/f1 *") == ["ask", "ask", "allow"]


def test_a_glob_of_many_parts_is_expanded(make_runner, workspace) -> None:
    home = workspace.with_name("agx-home")
    home.mkdir()
    (home / "token").touch()
    (workspace / "a" / "b" / "c").mkdir(parents=True)
    (workspace / "a" / "b" / "c" / "d").symlink_to(home)
    runner = make_runner(workspace, protected_roots=(home,))
    assert runner.assess(bash_exec, command="cat */*/*/*/token").protected
    assert not runner.assess(bash_exec, command="cat */*/*/token").protected


def test_a_link_is_found_after_any_number_of_words(make_runner, workspace) -> None:
    home = workspace.with_name("agx-home")
    home.mkdir()
    (workspace / "way-in").symlink_to(home)
    runner = make_runner(workspace, protected_roots=(home,))
    words = " ".join(f"word{n}" for n in range(2_000))
    assert runner.assess(bash_exec, command=f"cp {words} way-in/token").protected


@pytest.mark.parametrize("kind", SHELL_COMMANDS)
@pytest.mark.cases(quick=3)
def test_the_number_of_lookups_for_a_command_is_bounded(runner, kind) -> None:
    lookups = FileSystemCache()
    found = examine(SHELL_COMMANDS[kind](65_000), runner.workspace, (runner.workspace.parent / "agx-home",), lookups)
    assert len(lookups._statuses) <= 10_000
    assert set(lookups._listings) <= {str(runner.workspace), "/"}
    assert len(lookups._statuses) < 10_000 or found.unchecked is not None


@pytest.mark.parametrize(
    ("glob", "matching", "others"),
    [
        ("*", ["a", "ab"], [".a"]),
        ("a*", ["a", "ab"], ["ba"]),
        ("*.py", ["a.py"], [".py", "a.pyc"]),
        (".*", [".a", "."], ["a"]),
        ("a*b*c", ["abc", "a-b-bc", "abbcc"], ["ab", "acb", "abcd"]),
        ("?x", ["ax"], ["x", ".x", "aax"]),
        ("[ab]x", ["ax", "bx"], ["cx", "x"]),
        ("[^ab]x", ["cx"], ["ax", "bx"]),
        ("[!a-c]", ["d"], ["a", "b", "c"]),
        ("[]x]", ["]", "x"], ["[", ""]),
        ("[a", ["[a"], ["a"]),
        ("[a-]*", ["a1", "-1"], ["b"]),
        ("a**b", ["ab", "axxb"], ["a"]),
    ],
)
def test_a_glob_matches_as_in_bash(glob, matching, others) -> None:
    parsed = ShellGlob.parse(glob)
    assert [name for name in (*matching, *others) if parsed.match(name, lambda _: None)] == matching


# --- diffs ------------------------------------------------------------------------------------------------------------

TEXTS = {
    "one line": (lambda n: "a" * n, lambda n: "b" * n),
    "empty lines": (lambda n: "\n" * n, lambda n: "x" + "\n" * (n // 2)),
    "one change": (lambda n: "a\n" * n, lambda n: "a\n" * (n // 2) + "b\n" + "a\n" * (n // 2)),
    "all lines": (lambda n: "a\n" * n, lambda n: "b\n" * n),
    "two words": (lambda n: "a\nb\n" * (n // 2), lambda n: "b\na\n" * (n // 2)),
    "odd characters": (lambda n: "\u202e\n" * n, lambda n: "\u2028" * n),
}


def test_a_change_in_a_large_file_is_shown_at_its_line(runner) -> None:
    (runner.workspace / "f").write_text("line\n" * 200_000 + "here\n" + "line\n" * 200_000)
    diff = runner.assess(file_edit, path="f", old_text="here", new_text="there").diff
    lines = [" line"] * 3
    assert (diff or "").splitlines() == [
        "--- f",
        "+++ f",
        "@@ -199998,7 +199998,7 @@",
        *lines,
        "-here",
        "+there",
        *lines,
    ]


def test_an_edit_that_makes_a_file_huge_is_refused_before_it_is_made(runner) -> None:
    (runner.workspace / "f").write_text("a" * 100_000)
    with pytest.raises(ToolError, match="would have more than 16,777,216 characters"):
        runner.assess(file_edit, path="f", old_text="a", new_text="b" * 1_000_000, replace_all=True)

"""Tests of the shell tool: results of commands, and output of any size."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agenticx.errors import ToolError
from agenticx.tools.builtin import bash_exec
from agenticx.tools.command_output import HeadTailBuffer, ProgressEmitter, TerminalLines
from tests.support.timeouts import longest_hold

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="descendants are followed on Linux only"),
]


@pytest.mark.parametrize(
    ("command", "result"),
    [
        ("echo out; echo err >&2", "out\nerr\n[exit code 0]"),
        ("pwd", "{workspace}\n[exit code 0]"),
        ("printf 'no end'; exit 3", "no end\n[exit code 3]"),
        ("true", "(no output)\n[exit code 0]"),
        ("kill -KILL $$", "(no output)\n[ended by signal 9 (SIGKILL)]"),
        ("cat; read x || echo closed", "closed\n[exit code 0]"),
        ("nosuchcommand", "{bash}: line 1: nosuchcommand: command not found\n[exit code 127]"),
        ("yes | head -1", "y\n[exit code 0]"),
        ("-c 'echo x'", "{bash}: line 1: -c: command not found\n[exit code 127]"),
        ("printf 'a\\0b\\xff\\033[31mc'", "a␀b\ufffd␛[31mc\n[exit code 0]"),
        ('ulimit -v; printf %s "${BASH_ENV-unset}"', "unlimited\nunset\n[exit code 0]"),
        ("(sleep 0.02; echo late) &", "late\n[exit code 0]"),
        # its own session: that of bash, or that of the first process in the sandbox
        (
            "test -t 0 || test -t 1 || ps -o sid= -p $$ | tr -d ' ' | grep -qxE \"$$|1\" && echo alone",
            "alone\n[exit code 0]",
        ),
    ],
)
async def test_a_command_gives_its_output_and_how_it_ended(both_worlds, monkeypatch, command, result) -> None:
    runner = both_worlds
    monkeypatch.setenv("BASH_ENV", "/nowhere")
    if runner.sandbox.mode == "auto":  # bubblewrap ends with a code
        result = result.replace("ended by signal 9", "exit code 137, as after signal 9")
    assert await runner.call(bash_exec, command=command) == result.format(
        workspace=runner.workspace, bash=shutil.which("bash")
    )
    await asyncio.gather(*runner.background_tasks)


@pytest.mark.parametrize(
    ("command", "sentence"),
    [
        ("  ", "the command is empty or holds a NUL; give a command line for bash"),
        ("a\0b", "the command is empty or holds a NUL; give a command line for bash"),
        ("x" * 200_000, "the command is longer than 100,000 bytes; write it into a file with file_write and run that"),
    ],
)
async def test_a_command_that_cannot_be_run_is_refused(runner, command, sentence) -> None:
    with pytest.raises(ToolError) as caught:
        await runner.call(bash_exec, command=command)
    assert str(caught.value) == sentence


async def test_a_missing_workspace_is_an_error_of_the_call(runner) -> None:
    runner.workspace.rmdir()
    with pytest.raises(ToolError, match="the command could not be started: No such file or directory"):
        await runner.call(bash_exec, command="true")


async def test_secrets_of_the_environment_do_not_reach_the_command(runner, monkeypatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "canary-1")
    monkeypatch.setenv("SOME_TOKEN", "canary-2")
    monkeypatch.setenv("HARMLESS", "canary-3")
    result = await runner.call(bash_exec, command="env")
    assert [f"canary-{n}" in result for n in (1, 2, 3)] == [False, False, True]


CHANGING = """
BASH_ENV ENV SHELLOPTS BASHOPTS BASH_FUNC_ls%% CDPATH GLOBIGNORE GREP_OPTIONS LESSOPEN LESSCLOSE RIPGREP_CONFIG_PATH
GIT_DIR GIT_CONFIG_COUNT GIT_EXTERNAL_DIFF GIT_SSH_COMMAND GIT_EXEC_PATH GIT_PAGER
"""


async def test_variables_that_change_what_a_command_reads_or_runs_do_not_reach_it(runner, monkeypatch) -> None:
    changing = CHANGING.split()
    for name in (*changing, "HARMLESS"):
        monkeypatch.setenv(name, "() { true; }" if "%" in name else "canary")
    names = dict(line.partition("=")[::2] for line in (await runner.call(bash_exec, command="env")).splitlines())
    assert [name for name in (*changing, "HARMLESS") if name in names] == ["GIT_PAGER", "HARMLESS"]
    assert (names["GIT_PAGER"], names["HARMLESS"]) == ("cat", "canary")


async def test_output_is_emitted_in_batches_while_it_arrives_and_returned_completely(runner) -> None:
    emitted = asyncio.Event()
    emit = runner.context.emit

    def listen(type_, payload) -> None:
        emit(type_, payload)
        emitted.set()

    object.__setattr__(runner.context, "emit", listen)
    os.mkfifo(runner.workspace / "go")
    command = r"printf 'one\ntwo\n'; cat go; echo three"  # the two lines are written at once
    call = asyncio.ensure_future(runner.call(bash_exec, command=command))
    await emitted.wait()
    assert runner.emitted == [("tool_progress", {"output": "one\ntwo\n"})]
    (runner.workspace / "go").write_text("")
    assert await call == "one\ntwo\nthree\n[exit code 0]"


# --- output of any size -----------------------------------------------------------------------------------------------


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.promise("F3")
@pytest.mark.parametrize(
    ("command", "head", "tail", "size"),
    [
        ("seq 1000000", "1\n2\n3\n", "999999\n1000000\n[exit code 0]", "6,888,896"),
        ("head -c 20000000 /dev/zero", "␀␀␀", "␀␀␀\n[exit code 0]", "20,000,000"),
        ("head -c 5000000 /dev/urandom", "", "\n[exit code 0]", "5,000,000"),
        ("yes | tr -d '\\n' | head -c 30000000", "yyy", "yyy\n[exit code 0]", "30,000,000"),
        ("yes é | tr -d '\\n' | head -c 3000001", "ééé", "é\ufffd\n[exit code 0]", "3,000,001"),
    ],
)
@pytest.mark.cases(quick=2)
@pytest.mark.ci_lane
async def test_head_tail_and_total_size_are_kept_in_bounded_memory(runner, command, head, tail, size) -> None:
    await runner.call(bash_exec, command="true")
    before = resident_bytes()
    result = await runner.call(bash_exec, command=command)
    assert resident_bytes() - before < 16 * 1024**2
    assert result.startswith(head)
    assert result.endswith(tail)
    assert f" of {size} bytes left out …]" in result
    assert len(result) < 25_000
    assert sum(len(payload["output"]) for _, payload in runner.emitted) < 110_000
    result.encode()


@pytest.mark.promise("F3")
async def test_endless_output_is_bounded_and_does_not_block_the_event_loop(runner) -> None:
    before = resident_bytes()
    for seconds in (1, 4, 16, 64):
        async with longest_hold() as hold:
            with pytest.raises(ToolError, match=rf"\[the command was ended after {seconds} s") as caught:
                await runner.call(bash_exec, command="yes", timeout=float(seconds))
        if "bytes left out …]" in str(caught.value) and hold.longest < hold.total / 5:
            break  # a busy machine may need longer until there is so much, or until its start is a small part
    assert "bytes left out …]" in str(caught.value)
    await asyncio.gather(*runner.background_tasks)
    assert resident_bytes() - before < 16 * 1024**2
    assert hold.longest < hold.total / 5
    assert sum(len(payload["output"]) for _, payload in runner.emitted) < 110_000


def test_a_buffer_keeps_both_ends_for_any_chunk_size() -> None:
    text = "".join(f"{n:04}" for n in range(1000))
    for step in (1, 7, 100, 5000):
        buffer = HeadTailBuffer(40, 80)
        for start in range(0, len(text), step):
            buffer.add(text[start : start + step].encode())
        assert buffer.text() == f"{text[:40]}\n[… 3,880 of 4,000 bytes left out …]\n{text[-80:]}"
    small = HeadTailBuffer(40, 80)
    small.add(text[:120].encode())
    assert small.text() == text[:120]


BARS = "".join(f"\r{done / 30:5.1f}%|{'█' * (done // 100):30}| {done}/3000" for done in range(3001))
WIPE = "\x1b[2K"
UP = f"\x1b[1A{WIPE}" * 2
FRAMES = "".join(f"{UP * (n > 0)}a {n}\nb {n}\n" for n in range(300))
OVERWRITTEN = {
    "a progress bar": (f"{BARS}\ndone\n", f"100.0%|{'█' * 30}| 3000/3000\ndone\n"),
    "an unfinished bar": ("10%\r20%\r", "20%\r"),
    "a shorter frame": ("100%\r5%", "5%0%"),
    "wide letters": ("██ 100%\r█", "██ 100%"),
    "blanks over it": ("work\r    \rok\n", "ok\n"),
    "an erased rest": ("a long text\r\x1b[Kok\n", "ok\n"),
    "an erased line": ("a long text\x1b[2K\rok\n", "ok\n"),
    "an erased beginning": ("text\x1b[1K!\rok\n", "ok  !\n"),
    "a column": ("text\x1b[1Gok\x1b[Gn\n", "nkxt\n"),
    "a spinner": ("|\b/\b-\b\\\b \bdone\n", "done\n"),
    "colours": ("\x1b[31m5%\x1b[0m\r\x1b[32m10%\x1b[0m\n", "␛[32m10%␛[0m\n"),
    "an erasure without a move": ("\x1b[31m\x1b[Kfound\x1b[m\x1b[K\n", "␛[31m␛[Kfound␛[m␛[K\n"),
    "a backspace at the end": ("abc\b\ndef\b\b", "abc\ndef"),
    "CRLF alone": ("one\r\n\r\ntwo\r\n", "one\r\n\r\ntwo\r\n"),
    "CRLF": ("one\r\n1%\r2%\r\n\r\n", "one\r\n2%\r\n\r\n"),
    "a very long line": (f"{'a' * 99_999}\n", f"{'a' * 99_999}\n"),
    "very many frames": ("\r12345" * 19_999, "12345"),
    "frames of two lines": ("".join(f"{UP * (n > 0)}a {n}\n{WIPE}b {n}\n" for n in range(300)), "a 299\nb 299\n"),
    "frames after a text": (f"one\n{FRAMES}end\n", "one\na 299\nb 299\nend\n"),
    "frames that erase all below": ("".join(f"a {n}\nb\n\x1b[2A\x1b[1G\x1b[0J" for n in range(99)) + "ok\n", "ok\n"),
    "frames without an erasure": ("1\n22\n\x1b[2F33\n4\n", "33\n42\n"),
    "a line above": ("1 of 2\n2 of 2\x1b[A done\x1b[B!\n", "1 of 2 done\n2 of 2     !\n"),
    "a line out of reach": (
        f"first\n{'x' * 9}\n" + "y\n" * 99 + "\x1b[999Az",
        "first\n" + "x" * 9 + "\n" + "y\n" * 52 + "z\n" + "y\n" * 46,
    ),
}


@pytest.mark.promise("F3")
@pytest.mark.parametrize(("output", "shown"), OVERWRITTEN.values(), ids=OVERWRITTEN)
@pytest.mark.cases(quick=6)
def test_an_output_is_kept_as_a_terminal_shows_it_with_its_true_size(output: str, shown: str) -> None:
    content = output.encode()
    for step in (1, 7, 99_999):
        buffer = HeadTailBuffer(200_000, 0)
        for start in range(0, len(content), step):
            buffer.add(content[start : start + step])
        text = buffer.text()
        note = text[text.rfind("[") :] if text.endswith("as by a progress bar]\n") else ""
        assert text.removesuffix(note).rstrip("\n") == shown.rstrip("\n")
        assert (note != "") == (shown.replace("␛", "\x1b") != output)
        assert note == "" or f" of {len(content):,} bytes were overwritten, as" in note


def shown_by_a_terminal(text: str) -> list[str]:
    lines: list[list[str]] = [[]]
    row = column = 0
    for token in re.findall(r"\x1b\[\d?[A-Z]|.", text, re.DOTALL):
        if token in "\r\b":
            column = 0 if token == "\r" else max(column - 1, 0)
        elif token == "\n":
            row, column = row + 1, 0
            lines += [[]] * (row == len(lines))
        elif token in {"\x1b[A", "\x1b[2B"}:
            row = max(row - 1, 0) if token == "\x1b[A" else min(row + 2, len(lines) - 1)
        elif token == "\x1b[F":
            row, column = max(row - 1, 0), 0
        else:
            cells = lines[row] + [" "] * (column - len(lines[row]))
            lines[row] = [*cells[:column], token, *cells[column + 1 :]]
            column += 1
    return ["".join(cells).rstrip(" ") for cells in lines]


MOVES = ["a", "é", " ", "\r", "\b", "\n", "bcd", "\x1b[A", "\x1b[2B", "\x1b[F"]


@given(st.lists(st.sampled_from(MOVES), max_size=14), st.integers(1, 5))
def test_any_line_is_kept_as_a_terminal_shows_it(pieces: list[str], step: int) -> None:
    text, lines = "".join(pieces), TerminalLines()
    content = text.encode()
    shown = b"".join([lines.feed(content[start : start + step]) for start in range(0, len(content), step)])
    kept = (shown + lines.unfinished).decode().split("\n")
    assert [line.rstrip("\r ") for line in kept] == shown_by_a_terminal(text)


def test_a_buffer_splits_no_character() -> None:
    buffer = HeadTailBuffer(3, 3)
    buffer.add("éééééé".encode())
    assert buffer.text() == "é\n[… 6 of 12 bytes left out …]\né"


async def test_progress_is_bounded_per_batch_and_in_total() -> None:
    emitted: list[str] = []
    progress = ProgressEmitter(emitted.append, interval=60.0, batch_chars=10, total_chars=36)
    progress.add("é".encode()[:1])
    progress.add("é".encode()[1:] + b"x" * 30)
    progress.flush()
    progress.add(b"abc")
    progress.flush()
    progress.add(b"never")
    progress.flush()
    assert emitted == [
        "éxxxxxxxxx\n[… 21 characters …]\n",
        "abc",
        "never\n[… the rest of the output is not shown live …]\n",
    ]
    progress.add(b"more")
    progress.flush()
    assert len(emitted) == 3

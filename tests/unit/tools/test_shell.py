"""Tests of the shell tool: its assessment, its result, and that no process is left running."""

from __future__ import annotations

import asyncio
import itertools
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from agenticx.clocks import ScaledClock
from agenticx.errors import ToolError
from agenticx.tools import ToolContext, decide
from agenticx.tools.builtin.shell import bash_exec
from agenticx.tools.output import HeadTailBuffer, ProgressEmitter
from tests.support.patience import PATIENCE, comes_true, longest_hold

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="descendants are followed on Linux only"),
]

_numbers = itertools.count(os.getpid() * 1000)


# --- an ordinary command ----------------------------------------------------------------------------------------------


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
        ("test -t 0 || test -t 1 || ps -o sid= -p $$ | tr -d ' ' | grep -qx $$ && echo alone", "alone\n[exit code 0]"),
    ],
)
async def test_a_command_gives_its_output_and_how_it_ended(runner, monkeypatch, command, result) -> None:
    monkeypatch.setenv("BASH_ENV", "/nowhere")
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


async def test_output_is_emitted_live_in_batches_and_returned_whole(runner) -> None:
    emitted = asyncio.Event()
    emit = runner.context.emit

    def listen(type_, payload) -> None:
        emit(type_, payload)
        emitted.set()

    object.__setattr__(runner.context, "emit", listen)
    os.mkfifo(runner.workspace / "go")
    call = asyncio.ensure_future(runner.call(bash_exec, command="echo one; echo two; cat go; echo three"))
    await emitted.wait()
    assert runner.emitted == [("tool_progress", {"output": "one\ntwo\n"})]
    (runner.workspace / "go").write_text("")
    assert await call == "one\ntwo\nthree\n[exit code 0]"


# --- the assessment ---------------------------------------------------------------------------------------------------


def test_the_question_shows_the_command_and_its_possible_effects(runner) -> None:
    assessment = runner.assess(bash_exec, command="make test")
    assert (assessment.risk, assessment.question, assessment.command, assessment.protected) == (
        "execute",
        "Run this command?",
        "make test",
        False,
    )
    assert assessment.reasons == (
        f"It runs in {runner.workspace}.",
        "No sandbox holds it: it can do whatever you can, and could read AgenticX's access token.",
    )
    assert decide("auto", assessment).decision == "allow"


@pytest.mark.promise("E6")
def test_hidden_characters_of_a_command_are_shown_and_its_length_is_stated(runner) -> None:
    assessment = runner.assess(bash_exec, command="ls\x1b[2K" + " " * 300 + "; rm -rf \u202ex\n\ntrue")
    assert assessment.command == "ls⟨U+001B⟩[2K⟨300 spaces⟩; rm -rf ⟨U+202E⟩x\n\ntrue"
    assert assessment.reasons[2:] == (
        "The command has 323 characters in 3 lines.",
        "Invisible characters and long runs of blanks are shown in ⟨⟩.",
    )


def test_a_command_is_bound_to_the_files_and_programs_it_names(runner, tmp_path, monkeypatch) -> None:
    (runner.workspace / "script.sh").write_text("echo 1")
    (runner.workspace / "data").mkdir()
    (runner.workspace / "other").mkdir()
    (runner.workspace / "link").symlink_to("data")
    programs = tmp_path / "bin"
    programs.mkdir()
    command = "mytool ./script.sh <link/x ; cat 'data'"

    def change_script() -> None:
        (runner.workspace / "script.sh").write_text("echo 2")

    def change_link() -> None:
        (runner.workspace / "link").unlink()
        (runner.workspace / "link").symlink_to("other")
        (runner.workspace / "other" / "x").touch()

    def change_search_path() -> None:
        monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")

    def add_program() -> None:
        (programs / "mytool").write_text("#!/bin/sh\n")
        (programs / "mytool").chmod(0o755)

    def swap_program() -> None:
        (programs / "mytool").write_text("#!/bin/sh\nrm -rf /")

    def swap_workspace() -> None:
        runner.workspace.rename(tmp_path / "old")
        runner.workspace.mkdir()

    shown = runner.assess(bash_exec, command=command).binding
    assert runner.assess(bash_exec, command=command).binding == shown
    for change in (change_script, change_link, change_search_path, add_program, swap_program, swap_workspace):
        change()
        now = runner.assess(bash_exec, command=command).binding
        assert now != shown, change.__name__
        shown = now


@pytest.mark.promise("H3")
@pytest.mark.parametrize(
    "command",
    [
        "cat .git/config",
        "echo x > .git/hooks/pre-commit",
        "echo x>>.bashrc",
        "echo x >> ~/.zshrc",
        'echo x >> "$HOME/.profile"',
        "cd .git; rm config",
        'rm ".g""it"/config',
        "rm .g\\it/config",
        "rm .gi*/config",
        "rm .[g]it/config",
        "rm ./.git*",
        "cp x .{git,y}/config",
        "git --git-dir=.git config core.fsmonitor x",
        "tee .env",
        "cp a sub/.vscode/tasks.json",
        "rm .GIT/config",
        'python -c \'open(".mcp.json","w")\'',
        "ln -s .git x",
        "cat {home}/token",
        "cat ../agx-home/token",
        "cat $AGX_HOME/token",
        "true;\\\n rm .gi\\\nt/config",
        "echo `cat .ssh/id`",
        "cat .config/fish/config.fish",
        "cat {parent}/agx-h*me/tok*n",
        "cat {parent}/[^x]gx-home/token",
        "cat ../*/token",
        "cd ..; cat agx-home/token",
        "cd ..; cat a*/token",
        "cd {parent}; cd ag?-home && cat token",
        "cat $PWD/../agx-*/token",
        "cat ${{PWD}}/../agx-home/token",
        "grep -r . {parent}/agx-{{x,home}}",
        "cat way-in/token",
        "cat *-in/token",
        "echo x >> ~/.vim*",
        "echo x > .github/workflows/ci.yml",
        "cp x ~/.local/bin/ls",
    ],
)
def test_a_command_that_names_a_protected_path_is_asked_about_even_in_auto_mode(
    workspace, make_runner, command
) -> None:
    home = workspace.with_name("agx-home")
    home.mkdir()
    (home / "token").touch()
    (workspace / "way-in").symlink_to(home)
    runner = make_runner(workspace, protected_roots=(home,))
    command = command.replace("{home}", str(home)).replace("{parent}", str(home.parent))
    assessment = runner.assess(bash_exec, command=command.replace("{{", "{").replace("}}", "}"))
    assert decide("auto", assessment).decision == "ask"


@pytest.mark.promise("H3")
@pytest.mark.parametrize(
    "command",
    [
        "ls",
        "git status",
        "cat .gitignore",
        "ls *",
        "rm *.o",
        "echo git",
        "make env",
        "ls ./*",
        "echo .",
        "ls .github",
        "[ -f x ]",
        "cd .. && ls",
        "cd src; ls *",
        "ls ../*.txt",
        ". .venv/bin/activate && pytest tests/conftest.py",
        "git diff HEAD",
        "kubectl get secrets",
        "jq .a.key data.json",
        "cat id_rsa.pub",
        "ls /tmp/work/src",
    ],
)
def test_an_ordinary_command_names_nothing_protected(workspace, make_runner, command) -> None:
    (workspace / "src").mkdir()
    (workspace / "src" / "a.py").touch()
    (workspace / "id_rsa.pub").touch()
    runner = make_runner(workspace, protected_roots=(workspace.with_name("agx-home"),))
    assert not runner.assess(bash_exec, command=command).protected


@pytest.mark.promise("I1")
@pytest.mark.parametrize(
    "command",
    ["cat id_rsa", "cat *_rsa", "cat conf/*.pem", "cd conf; cat server.pem", "cat conf/innocent", "base64 {x,id_rsa}"],
)
def test_a_command_that_names_a_file_with_secrets_is_asked_about_even_in_auto_mode(runner, command) -> None:
    (runner.workspace / "id_rsa").touch()
    (runner.workspace / "conf").mkdir()
    (runner.workspace / "conf" / "server.pem").touch()
    (runner.workspace / "conf" / "innocent").symlink_to("server.pem")
    assessment = runner.assess(bash_exec, command=command)
    assert decide("auto", assessment).decision == "ask"
    assert assessment.reasons[-1].endswith(", a file that usually holds keys or passwords.")


# --- no process is left -----------------------------------------------------------------------------------------------

TREES = {
    "children": "sleep NNN & sleep NNN & echo ready; wait",
    "double fork": "( (sleep NNN &) & ) ; echo ready; sleep NNN",
    "setsid": "setsid sleep NNN & echo ready; wait",
    "double fork and setsid": "(setsid bash -c 'sleep NNN & wait; true NNN' &) ; echo ready; sleep NNN",
    "ignoring SIGTERM": "trap '' TERM HUP INT; (sleep NNN; sleep NNN) & echo ready; while :; do sleep NNN; done",
    "all of it": "(setsid bash -c 'trap \"\" TERM; (setsid sleep NNN &); sleep NNN; : NNN' &) ; echo ready; sleep NNN",
    "pipe held": "sleep NNN | cat & echo ready; exec sleep NNN >/dev/null",
    "emptied environment": "env -i setsid sleep NNN & echo ready; wait",
    "stopped": "sleep NNN & kill -STOP $!; echo ready; wait",
    "born while dying": "trap 'sleep NNN & wait' TERM; echo ready; while :; do sleep NNN & wait; done",
    "closed descriptors": "(exec setsid sleep NNN 0<&- 1<&- 2<&-) & echo ready; wait",
}


def command_tree(name: str) -> tuple[str, str]:
    """Return a command, and a marker that is part of the command line of each of its processes."""
    marker = f"1000.{next(_numbers)}"
    return TREES[name].replace("NNN", marker), marker


def find_processes(marker: str) -> list[int]:
    """Return the processes whose command line contains the marker, found independently of the code under test."""
    found = []
    for name in os.listdir("/proc"):
        try:
            if name.isdigit() and marker.encode() in Path("/proc", name, "cmdline").read_bytes():
                found.append(int(name))
        except OSError:
            continue
    return found


async def remaining_processes(marker: str) -> list[int]:
    """Wait until no process with the marker is alive; return those that a last check finds."""
    await comes_true(lambda: not find_processes(marker))
    return find_processes(marker)


def our_zombies() -> set[str]:
    found = set()
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            fields = Path("/proc", name, "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if fields[0] == "Z" and int(fields[1]) == os.getpid():
            found.add(name)
    return found


@asynccontextmanager
async def started_call(runner, command: str) -> AsyncIterator[asyncio.Task[str]]:
    """Yield the call as soon as its command has printed "ready"; await its background task at the end.

    The call itself waits for no process, because it adds a background task for that.
    """
    ready = asyncio.Event()
    background_tasks: list[Coroutine[Any, Any, None]] = []
    context = ToolContext(
        workspace=runner.workspace,
        call_id="call_1",
        emit=lambda _type, payload: ready.set() if "ready" in payload["output"] else None,
        add_background_task=background_tasks.append,
    )
    call = asyncio.ensure_future(bash_exec.run({"command": command}, context))
    await ready.wait()
    yield call
    assert len(background_tasks) == 1
    async with asyncio.timeout(PATIENCE):
        await background_tasks[0]


@pytest.mark.promise("F2")
async def test_a_stop_terminates_every_descendant_without_waiting(runner) -> None:
    async def stop(name: str) -> tuple[str, list[int]]:
        command, marker = command_tree(name)
        async with started_call(runner, command) as call:
            assert find_processes(marker), name
            call.cancel()
            assert (await call).text.endswith("[ended before it was done]"), "the output so far is returned"
        return name, await remaining_processes(marker)

    before = our_zombies()
    assert await asyncio.gather(*map(stop, TREES)) == [(name, []) for name in TREES]
    assert our_zombies() <= before


@pytest.mark.promise("F2")
async def test_a_time_out_terminates_every_descendant_and_keeps_the_output(runner) -> None:
    async def expire(name: str) -> tuple[str, list[int]]:
        command, marker = command_tree(name)
        for seconds in (1.5, 6, 24, 96):
            with pytest.raises(ToolError) as caught:
                await runner.call(bash_exec, command=command, timeout=seconds)
            if str(caught.value).startswith("ready\n"):  # this machine may need longer until it is
                break
        assert str(caught.value) == f"ready\n[the command was ended after {seconds:g} s, before it was done]"
        return name, await remaining_processes(marker)

    before = our_zombies()
    assert await asyncio.gather(*map(expire, TREES)) == [(name, []) for name in TREES]
    await asyncio.gather(*runner.background_tasks)
    assert our_zombies() <= before


@pytest.mark.promise("F2")
async def test_leftover_processes_are_terminated_and_reported(runner) -> None:
    left = {
        "sleep NNN &": "1 process was",
        "sleep NNN & setsid sleep NNN & (setsid sleep NNN &)": "3 processes were",
        "trap '' TERM; sleep NNN &": "1 process was",
        "env -i setsid sleep NNN & disown": "1 process was",
    }
    for command, many in left.items():
        marker = f"1000.{next(_numbers)}"
        result = await runner.call(bash_exec, command=f"echo done; {command.replace('NNN', marker)}")
        assert result == f"done\n[exit code 0; {many} still running in the background and ended with the command]"
        assert len(runner.background_tasks) == 1, "the call does not wait for them to end"
        await runner.background_tasks.pop()
        assert await remaining_processes(marker) == []


@pytest.mark.promise("F2")
async def test_a_leftover_process_that_keeps_writing_does_not_delay_the_result(runner) -> None:
    marker = f"1000.{next(_numbers)}"
    result = await runner.call(bash_exec, command=f"yes {marker} & echo done")
    assert "done\n" in result or "left out" in result
    assert result.endswith("[exit code 0; 1 process was still running in the background and ended with the command]")
    await asyncio.gather(*runner.background_tasks)
    assert await remaining_processes(marker) == []


@pytest.mark.promise("F2")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_processes_are_terminated_when_this_process_is_killed(workspace, number) -> None:
    command, marker = command_tree("all of it")
    program = (
        "import asyncio, sys; from pathlib import Path\n"
        "from agenticx.tools import ToolContext; from agenticx.tools.builtin.shell import bash_exec\n"
        "say = lambda type, payload: print(payload['output'], flush=True)\n"
        "context = ToolContext(workspace=Path(sys.argv[1]), emit=say)\n"
        "asyncio.run(bash_exec.run({'command': sys.argv[2]}, context))\n"
    )
    with subprocess.Popen([sys.executable, "-c", program, str(workspace), command], stdout=subprocess.PIPE) as ours:
        assert ours.stdout is not None
        assert ours.stdout.readline() == b"ready\n"
        watched = [os.pidfd_open(pid) for pid in find_processes(marker)]
        ours.send_signal(number)
    assert len(watched) >= 4
    poll = select.poll()
    deadline = time.monotonic() + PATIENCE
    for descriptor in watched:
        poll.register(descriptor, select.POLLIN)
    while watched and time.monotonic() < deadline:
        for descriptor, _ in poll.poll(100):
            poll.unregister(descriptor)
            os.close(descriptor)
            watched.remove(descriptor)
    while find_processes(marker) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert (watched, find_processes(marker)) == ([], [])


DAEMON = "import os\nfor _ in 'ab': os.fork() and os._exit(0)\nos.execve('/bin/sleep', ['sleep', 'NNN'], {})"
LEFT_BEHIND = {
    "marked": "trap '' TERM; setsid -f sleep NNN",
    "emptied environment": "env -i setsid -f sleep NNN",
    "double fork, emptied environment": (
        f'setsid {sys.executable} -ISc "{DAEMON}"; until pgrep -f "^sleep NNN"; do :; done'
    ),
}
ATTACKS = {
    "its parent": "kill -KILL $PPID",
    "its parent's parent": "kill -KILL $(ps -o ppid= -p $PPID)",
    "its parent's process group": "kill -KILL -- -$PPID",
    "the other process group": "kill -KILL -- -$(ps -o ppid= -p $PPID | tr -d ' ')",
}


@pytest.mark.promise("F2")
@pytest.mark.parametrize("attack", ATTACKS)
async def test_killing_guardian_or_supervisor_lets_no_process_escape(runner, attack) -> None:
    """They are the command's ancestors, so it can kill one of them; then the other one kills the rest."""

    async def kill(left: str) -> list[int]:
        marker = f"1000.{next(_numbers)}"
        leaving = LEFT_BEHIND[left].replace("NNN", marker)
        with pytest.raises(ToolError, match="the command was ended from outside"):
            await runner.call(bash_exec, command=f"{leaving}; {ATTACKS[attack]}; sleep {marker}")
        return await remaining_processes(marker)

    before = our_zombies()
    assert await asyncio.gather(*map(kill, LEFT_BEHIND)) == [[]] * len(LEFT_BEHIND)
    await asyncio.gather(*runner.background_tasks)
    assert our_zombies() <= before


@pytest.mark.promise("F2")
async def test_stopping_guardian_and_supervisor_lets_no_process_escape(runner) -> None:
    command = "env -i setsid -f sleep NNN; kill -STOP $PPID $(ps -o ppid= -p $PPID); echo ready; sleep NNN"
    marker = f"1000.{next(_numbers)}"
    async with started_call(runner, command.replace("NNN", marker)) as call:
        call.cancel()
        await asyncio.wait([call])
    assert await remaining_processes(marker) == []


@pytest.mark.promise("F2")
async def test_a_child_of_the_application_is_not_touched(runner) -> None:
    """The tool reaps and terminates the processes that a call started, and no others."""
    with subprocess.Popen(["sleep", "1000"], start_new_session=True) as own:
        quick = subprocess.Popen(["true"])
        await runner.call(bash_exec, command="sleep 1000 & setsid sleep 1000 &")
        await asyncio.gather(*runner.background_tasks)
        assert own.poll() is None
        assert quick.wait() == 0
        own.kill()


async def test_without_background_tasks_the_call_waits_for_the_termination_itself(runner) -> None:
    marker = f"1000.{next(_numbers)}"
    context = ToolContext(workspace=runner.workspace)
    with pytest.raises(ToolError, match=r"ended after 0\.2 s"):
        await bash_exec.run({"command": f"trap '' TERM; sleep {marker}; sleep {marker}", "timeout": 0.2}, context)
    assert await remaining_processes(marker) == []


async def test_a_time_out_uses_the_clock_of_the_context(runner) -> None:
    context = ToolContext(workspace=runner.workspace, clock=ScaledClock(100.0))
    with pytest.raises(ToolError, match="ended after 20 s"):
        await bash_exec.run({"command": "sleep 1000", "timeout": 20.0}, context)


async def test_calls_leave_no_descriptor_open(runner) -> None:
    await runner.call(bash_exec, command="true")
    await asyncio.gather(*runner.background_tasks)
    before, zombies = sorted(os.listdir("/proc/self/fd")), our_zombies()
    for command in ("true", "sleep 1000 &", "exit 3", "nosuch"):
        await runner.call(bash_exec, command=command)
    await asyncio.gather(*runner.background_tasks)
    await comes_true(lambda: sorted(os.listdir("/proc/self/fd")) == before)
    assert our_zombies() <= zombies


# --- any output -------------------------------------------------------------------------------------------------------


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
        if "bytes left out …]" in str(caught.value):  # this machine may need longer until there is so much
            break
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

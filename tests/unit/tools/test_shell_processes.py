"""Tests that no process of a shell call is left running: stop, time-out, crash, attacks."""

from __future__ import annotations

import asyncio
import itertools
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from agenticx.clocks import ScaledClock
from agenticx.errors import ToolError
from agenticx.sandbox import SandboxOptions
from agenticx.tools import ToolContext
from agenticx.tools.builtin import bash_exec
from tests.support.forked import Process
from tests.support.program import PROGRAM
from tests.support.timeouts import PATIENCE, wait_until

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="descendants are followed on Linux only"),
]


_numbers = itertools.count(os.getpid() * 1000)


@pytest.fixture
def runner(each_world):
    return each_world


@pytest.fixture
def bare_runner(workspace, make_runner):
    """Return a runner without the sandbox, whose commands see their supervisor."""
    return make_runner(workspace, sandbox=SandboxOptions(mode="off"))


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
    await wait_until(lambda: not find_processes(marker))
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
        sandbox=runner.sandbox,
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
@pytest.mark.ci_lane
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


@pytest.mark.ci_lane
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
        sandboxed = runner.assess(bash_exec, command="make").sandboxed
        assert len(runner.background_tasks) == (0 if sandboxed else 1), (
            "without a sandbox it does not wait for their end"
        )
        await asyncio.gather(*runner.background_tasks)
        runner.background_tasks.clear()
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
@pytest.mark.cases(quick=1)
def test_processes_are_terminated_when_this_process_is_killed(workspace, number) -> None:
    command, marker = command_tree("all of it")
    program = (
        "import asyncio, sys; from pathlib import Path\n"
        "from agenticx.tools import ToolContext; from agenticx.tools.builtin.shell import bash_exec\n"
        "say = lambda type, payload: print(payload['output'], flush=True)\n"
        "context = ToolContext(workspace=Path(sys.argv[1]), emit=say)\n"
        "asyncio.run(bash_exec.run({'command': sys.argv[2]}, context))\n"
    )
    with Process(PROGRAM, [program, str(workspace), command], cwd=workspace, env=os.environ) as ours:
        assert ours.stdout is not None
        assert ours.stdout.readline() == "ready\n"
        deadline = time.monotonic() + PATIENCE
        while len(find_processes(marker)) < 4 and time.monotonic() < deadline:  # those in the background begin later
            time.sleep(0.02)
        watched: list[int] = []
        for pid in find_processes(marker):
            with suppress(ProcessLookupError):  # a shell that has only started others
                watched.append(os.pidfd_open(pid))
        ours.send_signal(number)
    assert len(watched) >= 4
    poll = select.poll()
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
@pytest.mark.cases(quick=2)
async def test_killing_guardian_or_supervisor_lets_no_process_escape(bare_runner, attack) -> None:
    """They are the command's ancestors, so it can kill one of them; then the other one kills the rest."""

    async def kill(left: str) -> list[int]:
        marker = f"1000.{next(_numbers)}"
        leaving = LEFT_BEHIND[left].replace("NNN", marker)
        with pytest.raises(ToolError, match="the command was ended from outside"):
            await bare_runner.call(bash_exec, command=f"{leaving}; {ATTACKS[attack]}; sleep {marker}")
        return await remaining_processes(marker)

    before = our_zombies()
    assert await asyncio.gather(*map(kill, LEFT_BEHIND)) == [[]] * len(LEFT_BEHIND)
    await asyncio.gather(*bare_runner.background_tasks)
    assert our_zombies() <= before


@pytest.mark.promise("F2")
async def test_stopping_guardian_and_supervisor_lets_no_process_escape(bare_runner) -> None:
    command = "env -i setsid -f sleep NNN; kill -STOP $PPID $(ps -o ppid= -p $PPID); echo ready; sleep NNN"
    marker = f"1000.{next(_numbers)}"
    async with started_call(bare_runner, command.replace("NNN", marker)) as call:
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


@pytest.mark.ci_lane
async def test_without_background_tasks_the_call_waits_for_the_termination_itself(runner) -> None:
    marker = f"1000.{next(_numbers)}"
    context = ToolContext(workspace=runner.workspace, sandbox=runner.sandbox)
    with pytest.raises(ToolError, match=r"ended after 0\.2 s"):
        await bash_exec.run({"command": f"trap '' TERM; sleep {marker}; sleep {marker}", "timeout": 0.2}, context)
    assert await remaining_processes(marker) == []


async def test_a_time_out_uses_the_clock_of_the_context(runner) -> None:
    context = ToolContext(workspace=runner.workspace, sandbox=runner.sandbox, clock=ScaledClock(100.0))
    with pytest.raises(ToolError, match="ended after 20 s"):
        await bash_exec.run({"command": "sleep 1000", "timeout": 20.0}, context)


@pytest.mark.ci_lane
async def test_calls_leave_no_descriptor_open(runner) -> None:
    await runner.call(bash_exec, command="true")
    await asyncio.gather(*runner.background_tasks)
    before, zombies = sorted(os.listdir("/proc/self/fd")), our_zombies()
    for command in ("true", "sleep 1000 &", "exit 3", "nosuch"):
        await runner.call(bash_exec, command=command)
    await asyncio.gather(*runner.background_tasks)
    await wait_until(lambda: sorted(os.listdir("/proc/self/fd")) == before)
    assert our_zombies() <= zombies

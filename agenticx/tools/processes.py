"""Commands that are terminated with all their descendants.

Each command runs as a descendant of two small processes (`_process_supervisor.py`), child subreapers of all descendants
of the command; two, so that a command cannot escape by killing its parent. This process is not a subreaper: it adopts
no other processes, does not interfere with other uses of `waitpid` and needs no child watcher. If this process is
killed, the two see its end of their pipe close and terminate the command. Every descendant also has a mark in its
environment, to be found if both have been killed; an application that stores the result of
`RunningCommand.wait_started` can terminate the descendants even then and after a restart. Other systems than Linux have
neither subreapers nor marks: there the command's process group is terminated, and descendants that leave the group
continue to run.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path

from agenticx.errors import ToolError, error_text
from agenticx.logs import get_logger
from agenticx.messages import new_id
from agenticx.threads import run_in_thread

__all__ = [
    "MARK",
    "CommandExit",
    "RunningCommand",
    "StartedProcess",
    "find_marked_processes",
    "kill_leftovers",
    "start_command",
]

MARK = "AGX_CALL_MARK"
"""Name of the environment variable that marks every process of a call."""

_SUPERVISOR = Path(__file__).with_name("_process_supervisor.py")
_CLOSE_SECONDS = 2.7
_KILL_SECONDS = 0.3
_READ_BYTES = 65_536
_DRAIN_BYTES = 1024 * 1024

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class CommandExit:
    """The end of a command: its exit code (negative: the signal), and the number of descendants still running."""

    exit_code: int
    leftover_count: int


@dataclass(frozen=True, slots=True)
class StartedProcess:
    """The identity of a command: its process (a session leader), the start time of the process, and its mark.

    `started` is in clock ticks since the system booted (Linux; 0 where that is not known).
    """

    pid: int
    started: int
    mark: str


def start_command(
    arguments: Sequence[str],
    *,
    cwd: Path,
    environment: Mapping[str, str],
    call_id: str,
    on_output: Callable[[bytes], None],
    own_processes: int = 0,
    descriptors: Sequence[int] = (),
) -> RunningCommand:
    """Start a program (an absolute path and its arguments) under a supervisor of its own.

    Standard input is empty. `on_output` is called on the event loop with standard output and standard error, in
    the order of writing. `own_processes` of the program, not of the command in it, run as long as any other that it
    has left; they are not counted. It inherits `descriptors`. Raises `ToolError` if the program could not be started.
    """
    mark = f"{call_id}.{new_id('run')}"
    (control_read, control_write), (output_read, output_write), (status_read, status_write) = _pipes(3)
    try:
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", str(_SUPERVISOR), str(status_write), *arguments],
            stdin=control_read,
            stdout=output_write,
            stderr=output_write,
            pass_fds=[status_write, *descriptors],
            cwd=cwd,
            env={**environment, MARK: mark},
            start_new_session=True,
        )
    except (OSError, ValueError) as exc:
        for descriptor in (control_write, output_read, status_read):
            os.close(descriptor)
        raise ToolError(f"the command could not be started: {error_text(exc)}") from exc
    finally:
        for descriptor in (control_read, output_write, status_write):
            os.close(descriptor)
    return RunningCommand(process, mark, control_write, output_read, status_read, on_output, own_processes)


def _pipes(count: int) -> list[tuple[int, int]]:
    """Return `count` new pipes; raise `ToolError` and leave none open if that fails."""
    pipes: list[tuple[int, int]] = []
    try:
        for _ in range(count):
            pipes.append(os.pipe())
    except OSError as exc:
        for descriptor in chain.from_iterable(pipes):
            os.close(descriptor)
        raise ToolError(f"the command could not be started: {exc.strerror}") from exc
    return pipes


class RunningCommand:
    """A running command with all its descendants.

    The caller must call `terminate`, also after the command has ended, and may await `wait_closed` for its completion.
    """

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        mark: str,
        control: int,
        output: int,
        status: int,
        on_output: Callable[[bytes], None],
        own_processes: int,
    ) -> None:
        self.mark = mark
        self._process = process
        self._control: int | None = control
        self._output: int | None = output
        self._on_output = on_output
        self._own_processes = own_processes
        self._status_bytes = bytearray()
        self._loop = asyncio.get_running_loop()
        self._started: asyncio.Future[StartedProcess | None] = self._loop.create_future()
        self._exited: asyncio.Future[CommandExit | None] = self._loop.create_future()
        self._supervisor_exited: asyncio.Future[int] = self._loop.create_future()
        os.set_blocking(output, False)
        os.set_blocking(status, False)
        self._loop.add_reader(output, self._read_output)
        self._loop.add_reader(status, partial(self._read_status, status))

    async def wait_started(self) -> StartedProcess | None:
        """Wait until the command runs and return its identity; return None if it could not be started."""
        return await asyncio.shield(self._started)

    async def wait(self) -> CommandExit:
        """Wait until the command itself has ended and its output is read; do not wait for its descendants.

        Raises `ToolError` if its supervisor was killed.
        """
        end = await asyncio.shield(self._exited)
        if end is None:
            raise ToolError("the command was ended from outside, together with its supervisor process")
        return end

    def terminate(self) -> None:
        """Request the termination of all processes: SIGTERM now, SIGKILL after a second.

        Returns at once; the termination completes even if no one awaits `wait_closed`.
        """
        self._close_output()
        if self._control is not None:
            # Closing is not noticed while a forked child of this process has the pipe open: write a byte too.
            with suppress(BrokenPipeError):
                os.write(self._control, b"!")
            os.close(self._control)
            self._control = None
            self._process.send_signal(signal.SIGCONT)  # the command may have stopped the guardian

    async def wait_closed(self) -> None:
        """Wait until no process of this command is left, up to 3 real seconds after `terminate`; log remaining ones."""
        try:
            async with asyncio.timeout(_CLOSE_SECONDS):
                clean = await asyncio.shield(self._supervisor_exited) == 0
        except TimeoutError:
            clean = False
            self._process.kill()
            await run_in_thread(self._process.wait, name="agx ending processes")
        if not clean and sys.platform.startswith("linux"):
            await run_in_thread(_kill_marked, self.mark, name="agx ending processes")

    # --- output and status --------------------------------------------------------------------------------------------

    def _read_output(self) -> bool:
        """Read one chunk of the output; return whether more may be available now."""
        if self._output is None:
            return False
        try:
            chunk = os.read(self._output, _READ_BYTES)
        except BlockingIOError:
            return False
        if not chunk:
            self._close_output()
            return False
        self._on_output(chunk)
        return True

    def _close_output(self) -> None:
        if self._output is not None:
            self._loop.remove_reader(self._output)
            os.close(self._output)
            self._output = None

    def _read_status(self, descriptor: int) -> None:
        chunk = os.read(descriptor, _READ_BYTES)
        self._status_bytes += chunk
        reports = self._status_reports()
        if not self._started.done() and (reports or not chunk):
            self._started.set_result(_started_process(reports[0]["pid"], self.mark) if reports else None)
        if (not chunk or len(reports) > 1) and not self._exited.done():
            self._finish_command()
        if not chunk:
            self._loop.remove_reader(descriptor)
            os.close(descriptor)
            # The status pipe closes when the guardian and the supervisor exit, so this does not block for long.
            self._supervisor_exited.set_result(self._process.wait())

    def _finish_command(self) -> None:
        """Read the rest of the output and set the result of `wait`.

        The command has ended, so all its output is in the pipe; output that its descendants add later is not read.
        """
        for _ in range(_DRAIN_BYTES // _READ_BYTES):
            if not self._read_output():
                break
        reports = self._status_reports()
        if len(reports) < 2:
            self._exited.set_result(None)
            return
        report = reports[1]
        left = max(report["left"] - self._own_processes, 0)
        self._exited.set_result(CommandExit(os.waitstatus_to_exitcode(report["status"]), left))

    def _status_reports(self) -> list[dict[str, int]]:
        """Return the complete lines of the supervisor's status."""
        return [json.loads(line) for line in self._status_bytes.split(b"\n")[:-1]]


# --- finding processes by their mark ----------------------------------------------------------------------------------


def find_marked_processes(mark: str) -> list[int]:
    """Return the pids of the living processes whose environment contains `mark` (Linux)."""
    variable = f"{MARK}={mark}".encode()
    return [int(name) for name in os.listdir("/proc") if name.isdigit() and variable in _environment_of(name)]


def _environment_of(pid: str) -> list[bytes]:
    try:
        return Path("/proc", pid, "environ").read_bytes().split(b"\0")
    except OSError:  # the process has ended, or belongs to another user
        return []


def kill_leftovers(process: StartedProcess) -> None:
    """Kill the processes left over from a command of an earlier run; block for up to a third of a second.

    These are the processes that carry the mark, and the session of the recorded process, if the process with its pid
    is still the same, by its start time.
    """
    _kill_all(lambda: {*find_marked_processes(process.mark), *_session_members(process)})


def _started_process(pid: int, mark: str) -> StartedProcess:
    return StartedProcess(pid, _read_stat(str(pid)).started, mark)


def _session_members(process: StartedProcess) -> list[int]:
    if not process.started or _read_stat(str(process.pid)).started != process.started:
        return []
    return [int(name) for name in os.listdir("/proc") if name.isdigit() and _read_stat(name).session == process.pid]


@dataclass(frozen=True, slots=True)
class _ProcessStat:
    session: int = 0
    started: int = 0


def _read_stat(pid: str) -> _ProcessStat:
    """Return fields of /proc/PID/stat, all 0 for a zombie or a process that does not exist.

    Format: https://man7.org/linux/man-pages/man5/proc_pid_stat.5.html
    """
    try:
        fields = Path("/proc", pid, "stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return _ProcessStat()
    return _ProcessStat() if fields[0] == b"Z" else _ProcessStat(session=int(fields[3]), started=int(fields[19]))


def _kill_marked(mark: str) -> None:
    _kill_all(lambda: find_marked_processes(mark))


def _kill_all(find: Callable[[], Collection[int]]) -> None:
    """Kill the processes that `find` finds, until there are none, and wait for the end of those that were killed.

    One that is ending has no environment any more, so that it is not found, while it still ends what ran below it: the
    first process of a sandbox ends all others of it.
    """
    deadline = time.monotonic() + _KILL_SECONDS
    killed: dict[int, int] = {}  # start times by pid
    while (found := find()) or killed:
        for pid in found:
            killed[pid] = _read_stat(str(pid)).started
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        killed = {
            pid: started for pid, started in killed.items() if started and _read_stat(str(pid)).started == started
        }
        if time.monotonic() > deadline:
            _log.warning("processes of a call could not be ended", processes=sorted({*found, *killed}))
            return
        time.sleep(0.01)

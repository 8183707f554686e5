"""Commands as families of processes that end as a whole.

Each command runs below two small processes (`_supervisor.py`), child subreapers of all that the command starts; two, so
that a command that kills its parent is not free. Ours stays out of it: we adopt no strangers, disturb nobody's
`waitpid`, need no child watcher, and if we are killed they see our end of their pipe close and end the family all the
same. Every process of a family also carries a mark in its environment, by which it is found should both have been
killed; who keeps what `RunningCommand.begun` tells can end it even then and after a restart. Off Linux there is
neither; there the command's process group is ended, and descendants that leave the group get away.
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

from agenticx.errors import ToolError
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
"""The variable that every process of a call carries."""

_SUPERVISOR = Path(__file__).with_name("_supervisor.py")
_CLOSE_SECONDS = 2.7
_KILL_SECONDS = 0.3
_READ_BYTES = 65_536
_DRAIN_BYTES = 1024 * 1024

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class CommandExit:
    """How a command ended: its exit code (negative: the signal), and how many descendants it left running."""

    exit_code: int
    leftover_count: int


@dataclass(frozen=True, slots=True)
class StartedProcess:
    """A command as it can be found again: its process, which leads a session, when that started, and its mark.

    `started` is in clock ticks since the machine started (Linux; 0 where that is not known).
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
) -> RunningCommand:
    """Start a program (an absolute path and its arguments) below a supervisor of its own.

    Standard input is empty; standard output and error come mixed, as they were written, to `on_output` on the event
    loop. Raises `ToolError` if nothing could be started.
    """
    mark = f"{call_id}.{new_id('run')}"
    (control_read, control_write), (output_read, output_write), (status_read, status_write) = _pipes(3)
    try:
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", str(_SUPERVISOR), str(status_write), *arguments],
            stdin=control_read,
            stdout=output_write,
            stderr=output_write,
            pass_fds=[status_write],
            cwd=cwd,
            env={**environment, MARK: mark},
            start_new_session=True,
        )
    except (OSError, ValueError) as exc:
        for descriptor in (control_write, output_read, status_read):
            os.close(descriptor)
        raise ToolError(f"the command could not be started: {getattr(exc, 'strerror', None) or exc}") from exc
    finally:
        for descriptor in (control_read, output_write, status_write):
            os.close(descriptor)
    return RunningCommand(process, mark, control_write, output_read, status_read, on_output)


def _pipes(count: int) -> list[tuple[int, int]]:
    """As many pipes, or none: raises `ToolError`."""
    made: list[tuple[int, int]] = []
    try:
        for _ in range(count):
            made.append(os.pipe())
    except OSError as exc:
        for descriptor in chain.from_iterable(made):
            os.close(descriptor)
        raise ToolError(f"the command could not be started: {exc.strerror}") from exc
    return made


class RunningCommand:
    """A command with all its descendants. Whoever started it calls `end`, and `gone` to know that it worked."""

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        mark: str,
        control: int,
        output: int,
        status: int,
        on_output: Callable[[bytes], None],
    ) -> None:
        self.mark = mark
        self._process = process
        self._control: int | None = control
        self._output: int | None = output
        self._on_output = on_output
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
        """Until the command runs; None if that never came to be."""
        return await asyncio.shield(self._started)

    async def wait(self) -> CommandExit:
        """Until the command itself has ended and its output is read, whatever its descendants still do.

        Raises `ToolError` if its supervisor was ended from outside.
        """
        end = await asyncio.shield(self._exited)
        if end is None:
            raise ToolError("the command was ended from outside, together with the process that watched over it")
        return end

    def terminate(self) -> None:
        """Have everything ended: SIGTERM now, SIGKILL after a second. Returns at once, needs nobody to wait."""
        self._close_output()
        if self._control is not None:
            with suppress(BrokenPipeError):  # closing alone is not seen while a fork of ours holds the pipe too
                os.write(self._control, b"!")
            os.close(self._control)
            self._control = None
            self._process.send_signal(signal.SIGCONT)  # the command may have stopped the one that shall end it

    async def wait_closed(self) -> None:
        """Until no process of this command is left, at most 3 real seconds after `end`; what resists is logged."""
        try:
            async with asyncio.timeout(_CLOSE_SECONDS):
                clean = await asyncio.shield(self._supervisor_exited) == 0
        except TimeoutError:
            clean = False
            self._process.kill()
            await run_in_thread(self._process.wait, name="agx ending processes")
        if not clean and sys.platform.startswith("linux"):
            await run_in_thread(_kill_marked, self.mark, name="agx ending processes")

    # --- what comes from below ----------------------------------------------------------------------------------------

    def _read_output(self) -> bool:
        """Take in one piece of the output; whether there may be more right now."""
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
            self._supervisor_exited.set_result(self._process.wait())  # it closed its last descriptor by exiting

    def _finish_command(self) -> None:
        """The command has ended, so all that it printed is in the pipe; what its descendants add is not waited for."""
        for _ in range(_DRAIN_BYTES // _READ_BYTES):
            if not self._read_output():
                break
        reports = self._status_reports()
        if len(reports) < 2:
            self._exited.set_result(None)
            return
        report = reports[1]
        self._exited.set_result(CommandExit(os.waitstatus_to_exitcode(report["status"]), report["left"]))

    def _status_reports(self) -> list[dict[str, int]]:
        """The whole lines of the supervisor's report."""
        return [json.loads(line) for line in self._status_bytes.split(b"\n")[:-1]]


# --- by their mark ----------------------------------------------------------------------------------------------------


def find_marked_processes(mark: str) -> list[int]:
    """The living processes whose environment carries `mark` (Linux)."""
    wanted = f"{MARK}={mark}".encode()
    return [int(name) for name in os.listdir("/proc") if name.isdigit() and wanted in _environment_of(name)]


def _environment_of(pid: str) -> list[bytes]:
    try:
        return Path("/proc", pid, "environ").read_bytes().split(b"\0")
    except OSError:  # it has ended, or it is not ours
        return []


def kill_leftovers(process: StartedProcess) -> None:
    """End what is left of a command that an earlier process of ours started; blocks for up to a third of a second.

    Processes that carry the mark are ours, and so is the session of the process that was recorded, if it is still the
    one that started then.
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
    """What https://man7.org/linux/man-pages/man5/proc_pid_stat.5.html tells of a process that is no zombie."""
    try:
        fields = Path("/proc", pid, "stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return _ProcessStat()
    return _ProcessStat() if fields[0] == b"Z" else _ProcessStat(session=int(fields[3]), started=int(fields[19]))


def _kill_marked(mark: str) -> None:
    _kill_all(lambda: find_marked_processes(mark))


def _kill_all(find: Callable[[], Collection[int]]) -> None:
    deadline = time.monotonic() + _KILL_SECONDS
    while found := find():
        for pid in found:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        if time.monotonic() > deadline:
            _log.warning("processes of a call could not be ended", processes=sorted(found))
            return
        time.sleep(0.01)

"""A program that starts one command and terminates it with all its descendants.

    python -I -S _process_supervisor.py STATUS_FD SHELL ARGUMENT…

Two processes share the work, each the child subreaper of its descendants: the guardian, started by the caller, and its
child, the supervisor, which starts the command. A descendant that loses its parent becomes a child of the nearest
subreaper, so no process escapes by a double fork, a session of its own or an emptied environment, and "no children
left" means that all have ended. The command sees the supervisor as its parent and may kill or stop it: then the
guardian takes over and kills all processes with SIGKILL. If the guardian dies, the supervisor sees their pipe close and
terminates all. Only a command that finds both and kills them at nearly the same time can escape.

The guardian's standard input is a pipe. When the pipe becomes readable, because the caller writes to it or closes it,
or has died, all processes are terminated: with SIGTERM, and with SIGKILL after a second. A first line of JSON on
STATUS_FD reports the pid of the command, a second one its exit status and the number of its descendants that were still
running. Exit code 0: no process is left; 1: a process could not be terminated. STATUS_FD is open until guardian and
supervisor have both exited.

The module imports little, and nothing of AgenticX, because it starts once per command.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

TERM_SECONDS = 1.0
KILL_ROUNDS = 50
ROUND_SECONDS = 0.02
LINGER_SECONDS = 0.1
SUPERVISOR_SECONDS = TERM_SECONDS + 0.4
_PR_SET_CHILD_SUBREAPER = 36


def main() -> None:
    status_fd = int(sys.argv[1])
    os.set_inheritable(status_fd, False)
    lifeline_read, lifeline_write = os.pipe()
    is_subreaper = _become_subreaper()  # before any process can lose its parent
    supervisor = os.fork()
    if supervisor:
        os.close(lifeline_read)
        run_guardian(supervisor, is_subreaper, lifeline_write)
    else:
        os.setsid()  # so that one signal to a process group does not reach both
        os.dup2(lifeline_read, 0)
        os.close(lifeline_read)
        os.close(lifeline_write)
        run_supervisor(sys.argv[2:], status_fd)


def run_guardian(supervisor: int, is_subreaper: bool, lifeline_write: int) -> None:
    """Forward the caller's request to terminate, and kill all processes if the supervisor does not or cannot."""
    tree = ProcessTree(supervisor, is_subreaper, _wake_on_signals())
    _release_output()
    if not tree.wait_for_command():
        os.close(lifeline_write)
        _send_signal(os.kill, supervisor, signal.SIGCONT)
        tree.wait_for_all(SUPERVISOR_SECONDS)
    os._exit(0 if tree.is_empty or tree.kill() else 1)


def run_supervisor(arguments: list[str], status_fd: int) -> None:
    """Start the command, report its end, and terminate its descendants, or all on request."""
    is_subreaper = _become_subreaper()
    wake_fd = _wake_on_signals()
    tree = ProcessTree(_start_command(arguments), is_subreaper, wake_fd)
    os.write(status_fd, b'{"pid": %d}\n' % tree.command)
    _release_output()
    if tree.wait_for_command():
        tree.wait_for_all(LINGER_SECONDS)
        remaining = len(tree.descendants())
        os.write(status_fd, b'{"status": %d, "left": %d}\n' % (tree.status, remaining))
    os._exit(0 if tree.terminate() else 1)


class ProcessTree:
    """A process that the guardian or the supervisor started, and its descendants."""

    def __init__(self, command: int, is_subreaper: bool, wake_fd: int) -> None:
        self.command = command
        self.is_subreaper = is_subreaper
        self.wake_fd = wake_fd
        self.status = -1
        self.is_empty = False

    def wait_for_command(self) -> bool:
        """Wait until the command has ended and return True, or until termination is requested and return False."""
        while True:
            self.reap()
            if self.status >= 0:
                return True
            ready, _, _ = select.select([0, self.wake_fd], [], [])
            self._drain(ready)
            if 0 in ready:
                return False

    def wait_for_all(self, seconds: float) -> bool:
        """Wait up to `seconds` until no process is left; return whether that is so."""
        deadline = time.monotonic() + seconds
        while not self.is_empty:
            remaining = deadline - time.monotonic()
            if remaining <= 0:
                return False
            self._drain(select.select([self.wake_fd], [], [], remaining)[0])
            self.reap()
        return True

    def terminate(self) -> bool:
        """Terminate all processes that are left; return whether that worked."""
        self.reap()
        if self.is_empty:
            return True
        self._signal(signal.SIGTERM)
        self._signal(signal.SIGCONT)
        if self.wait_for_all(TERM_SECONDS):
            return True
        return self.kill()

    def kill(self) -> bool:
        """Kill all processes that are left; return whether that worked."""
        for _ in range(KILL_ROUNDS):  # not a time limit, which could pass while this process itself is stopped
            self._signal(signal.SIGKILL)
            if self.wait_for_all(ROUND_SECONDS):
                return True
        return False

    def reap(self) -> None:
        """Collect the processes that have ended; store the exit status of the command."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                self.is_empty = self.is_subreaper or not self._group_exists()
                return
            if pid == 0:
                return
            if pid == self.command:
                self.status = status

    def descendants(self) -> list[int]:
        """Return the pids of all descendants that still run."""
        if not self.is_subreaper:
            return [self.command] if self._group_exists() else []
        children: dict[int, list[int]] = {}
        for name in os.listdir("/proc"):
            if name.isdigit() and (parent := _parent_of_living(name)):
                children.setdefault(parent, []).append(int(name))
        pids: list[int] = []
        pending = [os.getpid()]
        while pending:
            child_pids = children.get(pending.pop(), [])
            pids += child_pids
            pending += child_pids
        return pids

    def _signal(self, number: int) -> None:
        if not self.is_subreaper:
            _send_signal(os.killpg, self.command, number)
            return
        for pid in self.descendants():
            _send_signal(os.kill, pid, number)

    def _group_exists(self) -> bool:
        return _send_signal(os.killpg, self.command, 0)

    def _drain(self, ready: list[int]) -> None:
        if self.wake_fd in ready:
            os.read(self.wake_fd, 4096)


def _parent_of_living(pid: str) -> int:
    """Return the parent of a process, or 0 if it is a zombie or does not exist."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            state, parent = file.read().rpartition(b")")[2].split()[:2]
    except (OSError, ValueError):
        return 0
    return 0 if state in (b"Z", b"X") else int(parent)


def _send_signal(send: Callable[[int, int], None], pid: int, number: int) -> bool:
    try:
        send(pid, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def _become_subreaper() -> bool:
    if not sys.platform.startswith("linux"):
        return False
    import ctypes

    try:
        return ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0
    except (OSError, AttributeError):
        return False


def _wake_on_signals() -> int:
    """Return a descriptor that becomes readable when a child ends; ignore signals that would end this process."""
    read_end, write_end = os.pipe()
    os.set_blocking(write_end, False)
    signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, _do_nothing)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_IGN)
    return read_end


def _do_nothing(_number: int, _frame: object) -> None:
    """Handle a signal by doing nothing; with the default action SIGCHLD would not wake up this process."""


def _start_command(arguments: list[str]) -> int:
    pid = os.fork()
    if pid:
        return pid
    try:
        os.setsid()
        signal.set_wakeup_fd(-1)
        for number in (
            signal.SIGCHLD,
            signal.SIGINT,
            signal.SIGTERM,
            signal.SIGHUP,
            signal.SIGQUIT,
            signal.SIGPIPE,
            signal.SIGXFSZ,
        ):
            signal.signal(number, signal.SIG_DFL)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.execv(arguments[0], arguments)
    except OSError as exc:
        os.write(2, f"{arguments[0]}: {exc.strerror}\n".encode())
    finally:
        os._exit(127)


def _release_output() -> None:
    """Redirect output to /dev/null, so that the output ends when the command and its descendants have closed it."""
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 1)
    os.dup2(null, 2)


if __name__ == "__main__":
    main()

"""Run as a program of its own: starts one command and ends everything that came of it.

    python -I -S _supervisor.py STATUS_FD SHELL ARGUMENT…

Two processes share the work, each the child subreaper of what is below it: the guardian, which the caller starts, and
below it the supervisor, which starts the command. A descendant that loses its parent becomes a child of the nearest of
them, so nothing gets away by a double fork, a session of its own or an emptied environment, and "no children left"
means that all is over. The command sees the supervisor as its parent and may kill or stop it: then the guardian takes
over and ends all, without mercy; if it is the guardian that dies, the supervisor sees their pipe close and ends all.
Only a command that looks for both and kills them within the same moment leaves them no time.

The guardian's standard input is a pipe that nobody writes to; when that closes, because the caller asks for it or is
itself dead, everything is ended: SIGTERM, and SIGKILL after a second. A line of JSON on STATUS_FD tells the command's
process, a second one how it ended and how many of its descendants were still there. Exit code 0: nothing is left; 1:
something could not be ended. STATUS_FD is open until both are done.

It imports little and nothing of AgenticX, because it starts once per command.
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
    is_subreaper = _become_subreaper()  # before there is anybody to lose a parent
    supervisor = os.fork()
    if supervisor:
        os.close(lifeline_read)
        run_guardian(supervisor, is_subreaper, lifeline_write)
    else:
        os.setsid()  # one signal to a process group does not reach both
        os.dup2(lifeline_read, 0)
        os.close(lifeline_read)
        os.close(lifeline_write)
        run_supervisor(sys.argv[2:], status_fd)


def run_guardian(supervisor: int, is_subreaper: bool, lifeline_write: int) -> None:
    """Pass on that the caller wants an end, and see to it myself where the supervisor does not or cannot."""
    tree = ProcessTree(supervisor, is_subreaper, _wake_on_signals())
    _release_output()
    if not tree.wait_for_command():
        os.close(lifeline_write)
        _send_signal(os.kill, supervisor, signal.SIGCONT)
        tree.wait_for_all(SUPERVISOR_SECONDS)
    os._exit(0 if tree.is_empty or tree.kill() else 1)


def run_supervisor(arguments: list[str], status_fd: int) -> None:
    """Start the command, tell how it ended, and end what it left or what is no longer wanted."""
    is_subreaper = _become_subreaper()
    wake_fd = _wake_on_signals()
    tree = ProcessTree(_start_command(arguments), is_subreaper, wake_fd)
    os.write(status_fd, b'{"pid": %d}\n' % tree.command)
    _release_output()
    if tree.wait_for_command():
        tree.wait_for_all(LINGER_SECONDS)
        left = len(tree.descendants())
        os.write(status_fd, b'{"status": %d, "left": %d}\n' % (tree.status, left))
    os._exit(0 if tree.terminate() else 1)


class ProcessTree:
    """A process that one of us started, and its descendants."""

    def __init__(self, command: int, is_subreaper: bool, wake_fd: int) -> None:
        self.command = command
        self.is_subreaper = is_subreaper
        self.wake_fd = wake_fd
        self.status = -1
        self.is_empty = False

    def wait_for_command(self) -> bool:
        """True when the command has ended, False when the caller wants an end first."""
        while True:
            self.reap()
            if self.status >= 0:
                return True
            ready, _, _ = select.select([0, self.wake_fd], [], [])
            self._drain(ready)
            if 0 in ready:
                return False

    def wait_for_all(self, seconds: float) -> bool:
        """Whether nothing is left before `seconds` are over."""
        deadline = time.monotonic() + seconds
        while not self.is_empty:
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            self._drain(select.select([self.wake_fd], [], [], left)[0])
            self.reap()
        return True

    def terminate(self) -> bool:
        """End whatever is left; whether that worked."""
        self.reap()
        if self.is_empty:
            return True
        self._signal(signal.SIGTERM)
        self._signal(signal.SIGCONT)
        if self.wait_for_all(TERM_SECONDS):
            return True
        return self.kill()

    def kill(self) -> bool:
        """End whatever is left, with SIGKILL; whether that worked."""
        for _ in range(KILL_ROUNDS):  # not a time, which may pass while this process itself stands still
            self._signal(signal.SIGKILL)
            if self.wait_for_all(ROUND_SECONDS):
                return True
        return False

    def reap(self) -> None:
        """Take in whoever has ended; the command's own status is kept."""
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
        """Every descendant that still runs."""
        if not self.is_subreaper:
            return [self.command] if self._group_exists() else []
        children: dict[int, list[int]] = {}
        for name in os.listdir("/proc"):
            if name.isdigit() and (parent := _parent_of_living(name)):
                children.setdefault(parent, []).append(int(name))
        found: list[int] = []
        pending = [os.getpid()]
        while pending:
            below = children.get(pending.pop(), [])
            found += below
            pending += below
        return found

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
    """The parent of a process that is no zombie, else 0."""
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
    """A descriptor that becomes readable when a child ends; other signals must not end the one who cleans up."""
    read_end, write_end = os.pipe()
    os.set_blocking(write_end, False)
    signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, _do_nothing)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_IGN)
    return read_end


def _do_nothing(_number: int, _frame: object) -> None:
    """A handler, so that the signal is delivered at all."""


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
    """The caller sees the end of the output when the command and its descendants have closed it."""
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 1)
    os.dup2(null, 2)


if __name__ == "__main__":
    main()

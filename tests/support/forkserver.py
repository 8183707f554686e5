"""A process with AgenticX imported that forks Python programs, which start in a tenth of the time.

    python -m tests.support.forkserver FD

`FD` is a Unix socket that listens: the workers of pytest-xdist connect to the same one, and the server ends with the
last connection. A request is a four-byte length and a JSON object, `Program` as a dict; with it come four descriptors:
standard input, output and error of the program, and a pipe to which its pid and, when it has ended, its exit status are
written as lines. The forked program runs `python -m MODULE ARGUMENTS` with its own environment, folder, session and
signal handlers. It differs from a true start in three ways: modules are imported already, what the interpreter reads
once at its start (PYTHON* variables but PYTHONPATH, the locale) is that of this process, and the demo model speaks five
times as fast.
With `brief` there is a fourth: a program that ended with an exit code does not take its modules down, which copies much
of the memory that it has in common with this process.
"""

from __future__ import annotations

import atexit
import fcntl
import gc
import importlib
import json
import os
import pkgutil
import resource
import runpy
import select
import signal
import socket
import struct
import sys
import termios
import threading
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

__all__ = ["HEADER", "Program"]

HEADER = struct.Struct("!I")
_PACKAGES = ("agenticx", "studio")
_IMPORTED_AT_WORK = (
    "anyio._backends._asyncio",
    "ctypes",
    "encodings.idna",
    "encodings.utf_8_sig",
    "markdown_it",
    "uvicorn.lifespan.on",
    "yaml",
)
_NOT_IMPORTED = (
    "agenticx.testing",
    "agenticx.__main__",
    "agenticx.cli.__main__",
    "agenticx.knowledge.embeddings",  # these import numpy, which may be missing and starts threads
    "agenticx.knowledge.vectors",
)
_SIGNALS = (signal.SIGCHLD, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE)


@dataclass(frozen=True)
class Program:
    """A request: `python -m module *arguments` in `folder`; `terminal`: input becomes the controlling terminal.

    `brief`: the end is brief, see above. `limits` has what `resource.getrlimit` returned for each resource.
    """

    module: str
    arguments: list[str]
    folder: str
    environment: dict[str, str]
    limits: list[tuple[int, tuple[int, int]]]
    new_session: bool = False
    terminal: bool = False
    brief: bool = False

    def encode(self) -> bytes:
        """Return the request's bytes, header included."""
        body = json.dumps(asdict(self)).encode()
        return HEADER.pack(len(body)) + body


def main() -> None:
    """Serve requests until all connections are closed; the forked programs go on."""
    listener = socket.socket(fileno=int(sys.argv[1]))
    _import_everything()
    handlers = {number: signal.getsignal(number) for number in _SIGNALS}
    ours, theirs = os.pipe()
    for end in (ours, theirs):
        os.set_blocking(end, False)
    signal.set_wakeup_fd(theirs, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
    running: dict[int, int] = {}  # pid → the pipe that its status is written to
    connections = [listener.accept()[0]]
    while connections:
        ready, _, _ = select.select([listener, ours, *connections], [], [])
        if ours in ready:
            os.read(ours, 4096)
            _report_ended(running)
        if listener in ready:
            connections.append(listener.accept()[0])
        for connection in [each for each in connections if each in ready]:
            received = _receive(connection)
            if received is None:
                connections.remove(connection)
                connection.close()
                continue
            program, descriptors = received
            pid = os.fork()
            if pid == 0:
                _undo_signals(handlers)
                sockets = [each.detach() for each in (listener, *connections)]
                for descriptor in (ours, theirs, *running.values(), descriptors[3], *sockets):
                    os.close(descriptor)
                return _become(program, descriptors[:3])
            for descriptor in descriptors[:3]:
                os.close(descriptor)
            running[pid] = descriptors[3]
            os.write(descriptors[3], b"%d\n" % pid)
    Path(listener.getsockname()).unlink(missing_ok=True)


def _undo_signals(handlers: dict[signal.Signals, Any]) -> None:
    signal.set_wakeup_fd(-1)
    for number, handler in handlers.items():
        signal.signal(number, handler)


def _import_everything() -> None:
    for name in _PACKAGES:
        package = importlib.import_module(name)
        for module in pkgutil.walk_packages(package.__path__, f"{name}."):
            if not module.name.startswith(_NOT_IMPORTED):
                importlib.import_module(module.name)
    for name in _IMPORTED_AT_WORK:
        importlib.import_module(name)
    importlib.import_module("agenticx.assembly").default_tools()  # makes and keeps the schemas of their arguments
    importlib.import_module("agenticx.llms.model_catalog").load_model_catalog()  # keeps what it has read
    vars(importlib.import_module("agenticx.llms.demo.model"))["_WORD_SECONDS"] /= 5
    importlib.import_module("agenticx.secret_detection").is_secret_file("any.txt")  # compiles and keeps its patterns
    gc.collect()
    gc.freeze()


def _receive(requests: socket.socket) -> tuple[Program, list[int]] | None:
    header, descriptors, _, _ = socket.recv_fds(requests, HEADER.size, 4)
    if not header:
        return None
    size = HEADER.unpack(header)[0]
    body = b""
    while len(body) < size:
        body += requests.recv(size - len(body))
    return Program(**json.loads(body)), descriptors


def _report_ended(running: dict[int, int]) -> None:
    while running:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == 0:
            return
        pipe = running.pop(pid)
        with suppress(BrokenPipeError):  # nobody waits for it any more
            os.write(pipe, b"%d\n" % os.waitstatus_to_exitcode(status))
        os.close(pipe)


def _become(program: Program, descriptors: list[int]) -> None:
    """Run the program in this process, which exits after it as the interpreter does."""
    for which, limit in program.limits:
        resource.setrlimit(which, (limit[0], limit[1]))
    if program.new_session:
        os.setsid()
    errors = [sys.stdin.errors, sys.stdout.errors, sys.stderr.errors]
    for number, descriptor in enumerate(descriptors):
        os.dup2(descriptor, number)
        os.close(descriptor)
    if program.terminal:
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    streams: list[Any] = [
        os.fdopen(number, mode, _buffering(number), encoding="utf-8", errors=error, closefd=False)
        for number, mode, error in zip(range(3), "rww", errors, strict=True)
    ]
    sys.stdin, sys.stdout, sys.stderr = sys.__stdin__, sys.__stdout__, sys.__stderr__ = streams
    os.chdir(program.folder)
    os.environ.clear()
    os.environ.update(program.environment)
    sys.path[:0] = filter(None, program.environment.get("PYTHONPATH", "").split(os.pathsep))
    sys.argv[1:] = program.arguments
    try:
        runpy.run_module(program.module, run_name="__main__", alter_sys=True)
    except SystemExit as exc:
        if program.brief and isinstance(exc.code, int | None):
            _end_briefly(exc.code or 0)
        raise


def _end_briefly(code: int) -> None:
    """Wait for threads, call what `atexit` has, flush the streams and exit; return if they cannot be flushed."""
    vars(threading)["_shutdown"]()
    vars(atexit)["_run_exitfuncs"]()
    with suppress(OSError, ValueError):
        for stream in (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__):
            if stream is not None:
                stream.flush()
        os._exit(code & 0xFF)


def _buffering(number: int) -> int:
    return 1 if number == 2 or os.isatty(number) else -1


if __name__ == "__main__":
    main()

"""Programs started by the fork server, with the process API that tests use.

It has the parts of `subprocess.Popen` and `asyncio.subprocess.Process` that are needed.
"""

from __future__ import annotations

import asyncio
import atexit
import errno
import io
import os
import resource
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from threading import Thread
from typing import IO, Any
from uuid import uuid4

from tests.support.forkserver import Program
from tests.support.timeouts import PATIENCE

__all__ = ["ROOT", "AsyncProcess", "Process", "end_briefly"]

ROOT = Path(__file__).parents[2]
_RESOURCES = [number for name, number in vars(resource).items() if name.startswith("RLIMIT_")]
_TEMPORARY_FILES = Path(tempfile.gettempdir())  # before a test sets another folder
_brief = False


def end_briefly() -> None:
    """Let programs end from now on without taking their modules down, which takes a third of their time."""
    global _brief
    _brief = True


@cache
def _server() -> socket.socket:
    """Return a connection to the fork server of this run, which the first call of its workers starts.

    Its name has the id of the run of pytest-xdist, so that only one worker imports everything. It ends with the last of
    the workers that use it.
    """
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID") or uuid4().hex
    address = str(_TEMPORARY_FILES / f"agx-forks-{run}")
    with socket.socket(socket.AF_UNIX) as listener:
        try:
            listener.bind(address)
        except OSError as exc:
            if exc.errno != errno.EADDRINUSE:
                raise
        else:
            listener.listen()
            _start_server(listener)
    connection = socket.socket(socket.AF_UNIX)
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            connection.connect(address)
        except ConnectionRefusedError:  # bound by another worker, which does not listen yet
            if time.monotonic() > deadline:
                raise
            time.sleep(0.001)
        else:
            break
    atexit.register(connection.close)
    return connection


def _start_server(listener: socket.socket) -> None:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("AGX_", "COV_", "PYTHONPATH"))}
    command = [sys.executable, "-m", "tests.support.forkserver", str(listener.fileno())]
    process = subprocess.Popen(
        command, cwd=ROOT, env=kept, pass_fds=[listener.fileno()], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
    )
    atexit.register(process.wait)  # after the connection is closed: the last that is registered is called first


class _Started:
    """A forked program: its pid, and the pipe to which its exit status is written."""

    def __init__(self, program: Program, descriptors: Sequence[int]) -> None:
        status, theirs = os.pipe()
        request = program.encode()
        sent = socket.send_fds(_server(), [request], [*descriptors, theirs])
        _server().sendall(request[sent:])
        os.close(theirs)
        self.status = os.fdopen(status, "rb", buffering=0)
        line = b""
        while not line.endswith(b"\n"):
            byte = self.status.read(1)
            if not byte:
                raise ChildProcessError("the fork server has ended; see its standard error")
            line += byte
        self.pid = int(line)
        self.returncode: int | None = None

    def ended(self) -> int | None:
        """Read and return the exit status; the pipe is readable, or closed if the fork server was killed."""
        if self.returncode is None:
            self.returncode = int(self.status.read(16) or -signal.SIGKILL)
            self.status.close()
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.returncode is None:
            with suppress(ProcessLookupError):  # it has ended, and its status was not read yet
                os.kill(self.pid, number)


class Process:
    """A program with the API of `subprocess.Popen` with text streams, whose modules are already imported."""

    def __init__(
        self,
        module: str,
        arguments: Sequence[str],
        *,
        cwd: Path,
        env: Mapping[str, str],
        stdin: int = subprocess.PIPE,
        stdout: int = subprocess.PIPE,
        stderr: int = subprocess.PIPE,
        terminal: bool = False,
    ) -> None:
        given = [_child_end(wanted, reading=index == 0) for index, wanted in enumerate((stdin, stdout, stderr))]
        program = Program(module, list(arguments), str(cwd), dict(env), _limits(), True, terminal, _brief)
        self._started = _Started(program, [theirs for theirs, _, _ in given])
        for theirs, _, made in given:
            if made:
                os.close(theirs)
        streams = [
            None if ours is None else _text(ours, writing=index == 0) for index, (_, ours, _) in enumerate(given)
        ]
        self.stdin, self.stdout, self.stderr = streams
        self.pid = self._started.pid

    @property
    def returncode(self) -> int | None:
        return self._started.returncode

    def poll(self) -> int | None:
        return self._wait(0.0)

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end and return the exit code; raise `subprocess.TimeoutExpired`."""
        code = self._wait(timeout)
        if code is None:
            raise subprocess.TimeoutExpired("forked program", timeout or 0.0)
        return code

    def _wait(self, timeout: float | None) -> int | None:
        if self.returncode is not None:
            return self.returncode
        with selectors.DefaultSelector() as selector:
            selector.register(self._started.status, selectors.EVENT_READ)
            return self._started.ended() if selector.select(timeout) else None

    def send_signal(self, number: int) -> None:
        self.poll()
        self._started.send_signal(number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def communicate(self, input: str = "", timeout: float | None = None) -> tuple[str, str]:
        """Write `input`, read both streams to their ends and wait; raises `subprocess.TimeoutExpired`."""
        read: dict[str, str] = {}
        streams = {"out": self.stdout, "err": self.stderr}
        work = [Thread(target=_send, args=(self.stdin, input), daemon=True)]
        work += [Thread(target=_read_into, args=(read, *each), daemon=True) for each in streams.items()]
        for thread in work:
            thread.start()
        self.wait(timeout)
        for thread in work:
            thread.join()
        return read["out"], read["err"]

    def __enter__(self) -> Process:
        return self

    def __exit__(self, type_: type[BaseException] | None, *_: object) -> None:
        """Close the streams and wait for the end; after a failure the program is killed, as nothing may end it then."""
        if type_ is not None:
            self.kill()
        for stream in (self.stdin, self.stdout, self.stderr):
            if stream is not None:
                _close_quietly(stream)
        self.wait()


class AsyncProcess:
    """A program with the API of `asyncio.subprocess.Process`; standard output and error are pipes.

    `stdin` is a blocking pipe, or None where standard input is empty.
    """

    def __init__(
        self,
        started: _Started,
        stdin: IO[bytes] | None,
        stdout: asyncio.StreamReader,
        stderr: asyncio.StreamReader,
    ) -> None:
        self._started = started
        self._ended = asyncio.get_running_loop().create_future()
        self.stdin, self.stdout, self.stderr = stdin, stdout, stderr
        self.pid = started.pid
        asyncio.get_running_loop().add_reader(started.status, self._take_end)

    @classmethod
    async def start(
        cls,
        module: str,
        arguments: Sequence[str],
        *,
        cwd: Path,
        env: Mapping[str, str],
        stdin: int = subprocess.DEVNULL,
        new_session: bool = False,
    ) -> AsyncProcess:
        """Start a program; `stdin` is `subprocess.DEVNULL` or `subprocess.PIPE`."""
        theirs, ours, _ = _child_end(stdin, reading=True)
        pipes = [os.pipe(), os.pipe()]
        program = Program(module, list(arguments), str(cwd), dict(env), _limits(), new_session, brief=_brief)
        started = _Started(program, [theirs, *(end for _, end in pipes)])
        for end in (theirs, *(end for _, end in pipes)):
            os.close(end)
        stdout, stderr = [await _reader(ours) for ours, _ in pipes]
        return cls(started, None if ours is None else os.fdopen(ours, "wb", buffering=0), stdout, stderr)

    def _take_end(self) -> None:
        asyncio.get_running_loop().remove_reader(self._started.status)
        self._ended.set_result(self._started.ended())

    @property
    def returncode(self) -> int | None:
        return self._started.returncode

    async def wait(self) -> int:
        return await asyncio.shield(self._ended)

    async def communicate(self) -> tuple[bytes, bytes]:
        out, err = await asyncio.gather(self.stdout.read(), self.stderr.read())
        await self.wait()
        return out, err

    def send_signal(self, number: int) -> None:
        """Send a signal; raises `ProcessLookupError` once the program has ended."""
        if self.returncode is not None:
            raise ProcessLookupError
        self._started.send_signal(number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)


def _limits() -> list[tuple[int, tuple[int, int]]]:
    """Return this process's resource limits, which a program started by it directly would inherit."""
    return [(which, resource.getrlimit(which)) for which in _RESOURCES]


def _child_end(wanted: int, *, reading: bool) -> tuple[int, int | None, bool]:
    """Return the program's descriptor, our end if there is a pipe, and True if the first was opened here."""
    if wanted == subprocess.PIPE:
        read, write = os.pipe()
        return (read, write, True) if reading else (write, read, True)
    if wanted == subprocess.DEVNULL:
        return os.open(os.devnull, os.O_RDWR), None, True
    return wanted, None, False


def _text(descriptor: int, *, writing: bool) -> IO[str]:
    raw: Any = os.fdopen(descriptor, "wb" if writing else "rb")
    return io.TextIOWrapper(raw, encoding="utf-8", write_through=writing)


def _send(stream: IO[str] | None, text: str) -> None:
    if stream is not None and not stream.closed:
        with suppress(BrokenPipeError):
            stream.write(text)
        _close_quietly(stream)


def _read_into(read: dict[str, str], name: str, stream: IO[str] | None) -> None:
    read[name] = ""
    if stream is not None and not stream.closed:
        with stream:
            read[name] = stream.read()


def _close_quietly(stream: IO[str]) -> None:
    with suppress(BrokenPipeError):
        stream.close()


async def _reader(descriptor: int) -> asyncio.StreamReader:
    reader = asyncio.StreamReader(limit=2**20)
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(descriptor, "rb", buffering=0)
    )
    return reader

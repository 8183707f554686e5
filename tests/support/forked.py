"""Programs started by the fork server: the parts of `subprocess.Popen` and `asyncio.subprocess.Process` tests use."""

from __future__ import annotations

import asyncio
import atexit
import io
import os
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from tests.support.forkserver import Program

__all__ = ["AsyncProcess", "Process"]

ROOT = Path(__file__).parents[2]


@cache
def _server() -> socket.socket:
    """The socket of this process's fork server, which is started by the first request and ends with this process."""
    ours, theirs = socket.socketpair()
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("AGX_", "COV_", "PYTHONPATH"))}
    command = [sys.executable, "-m", "tests.support.forkserver", str(theirs.fileno())]
    process = subprocess.Popen(
        command, cwd=ROOT, env=kept, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
    )
    theirs.close()

    def end() -> None:
        ours.close()
        process.wait()

    atexit.register(end)
    return ours


class _Started:
    """A forked program: its pid, and the pipe that tells when it has ended."""

    def __init__(self, program: Program, descriptors: Sequence[int]) -> None:
        status, theirs = os.pipe()
        request = program.encode()
        sent = socket.send_fds(_server(), [request], [*descriptors, theirs])
        _server().sendall(request[sent:])
        os.close(theirs)
        self.status = open(status, "rb", buffering=0)
        line = b""
        while not line.endswith(b"\n"):
            byte = self.status.read(1)
            if not byte:
                raise ChildProcessError("the fork server has ended; see its standard error")
            line += byte
        self.pid = int(line)
        self.returncode: int | None = None

    def ended(self) -> int | None:
        """Take the exit status, which can be read now or, if the fork server was killed, never."""
        if self.returncode is None:
            self.returncode = int(self.status.read(16) or -signal.SIGKILL)
            self.status.close()
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.returncode is None:
            os.kill(self.pid, number)


class Process:
    """A program as `subprocess.Popen` with text streams offers it, for programs whose modules are imported already."""

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
        program = Program(module, list(arguments), str(cwd), dict(env), new_session=True, terminal=terminal)
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
        """Return the exit code; raises `subprocess.TimeoutExpired`."""
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

    def communicate(self, input: str | None = None, timeout: float | None = None) -> tuple[str, str]:
        """Write `input`, read both streams to their ends and wait; raises `subprocess.TimeoutExpired`."""
        deadline = None if timeout is None else time.monotonic() + timeout
        unsent = memoryview((input or "").encode())
        if self.stdin is not None and not self.stdin.closed:
            _close_quietly(self.stdin) if not unsent else self.stdin.flush()
        read: dict[Any, list[bytes]] = {}
        with selectors.DefaultSelector() as selector:
            for stream in (self.stdout, self.stderr):
                read[stream] = []
                if stream is not None and not stream.closed:
                    selector.register(stream.buffer, selectors.EVENT_READ, stream)  # type: ignore[attr-defined]
            if unsent:
                os.set_blocking(self.stdin.fileno(), False)
                selector.register(self.stdin, selectors.EVENT_WRITE, self.stdin)
            while selector.get_map():
                left = None if deadline is None else deadline - time.monotonic()
                if left is not None and left <= 0:
                    raise subprocess.TimeoutExpired("forked program", timeout or 0.0)
                for key, _ in selector.select(left):
                    if key.data is self.stdin:
                        unsent = _write(key.fd, unsent)
                        if not unsent:
                            selector.unregister(key.fileobj)
                            _close_quietly(self.stdin)
                    elif data := key.fileobj.read1(65536):  # type: ignore[union-attr]
                        read[key.data].append(data)
                    else:
                        selector.unregister(key.fileobj)
        for stream in (self.stdout, self.stderr):
            if stream is not None:
                stream.close()
        self.wait(None if deadline is None else max(0.0, deadline - time.monotonic()))
        out, err = (_as_text(b"".join(read[stream])) for stream in (self.stdout, self.stderr))
        return out, err

    def __enter__(self) -> Process:
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _exc: BaseException | None, _tb: TracebackType | None
    ) -> None:
        for stream in (self.stdin, self.stdout, self.stderr):
            if stream is not None:
                _close_quietly(stream)
        self.wait()


class AsyncProcess:
    """A program as `asyncio.subprocess.Process` offers it; standard output and error are pipes, input is inherited."""

    def __init__(self, started: _Started, stdout: asyncio.StreamReader, stderr: asyncio.StreamReader) -> None:
        self._started = started
        self._ended = asyncio.get_running_loop().create_future()
        self.stdout, self.stderr = stdout, stderr
        self.pid = started.pid
        asyncio.get_running_loop().add_reader(started.status, self._take_end)

    @classmethod
    async def start(
        cls, module: str, arguments: Sequence[str], *, cwd: Path, env: Mapping[str, str], new_session: bool = False
    ) -> AsyncProcess:
        pipes = [os.pipe(), os.pipe()]
        with open(os.devnull, "rb") as nothing:
            descriptors = [nothing.fileno(), *(theirs for _, theirs in pipes)]
            program = Program(module, list(arguments), str(cwd), dict(env), new_session=new_session)
            started = _Started(program, descriptors)
        for _, theirs in pipes:
            os.close(theirs)
        stdout, stderr = [await _reader(ours) for ours, _ in pipes]
        return cls(started, stdout, stderr)

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


def _child_end(wanted: int, *, reading: bool) -> tuple[int, int | None, bool]:
    """The program's descriptor, ours if there is a pipe, and whether the first was opened here."""
    if wanted == subprocess.PIPE:
        read, write = os.pipe()
        return (read, write, True) if reading else (write, read, True)
    if wanted == subprocess.DEVNULL:
        return os.open(os.devnull, os.O_RDWR), None, True
    return wanted, None, False


def _text(descriptor: int, *, writing: bool) -> IO[str]:
    raw: Any = open(descriptor, "wb" if writing else "rb")
    return io.TextIOWrapper(raw, encoding="utf-8", write_through=writing, line_buffering=writing)


def _write(descriptor: int, data: memoryview) -> memoryview:
    """Return what is still to be written; nothing where nobody reads."""
    try:
        return data[os.write(descriptor, data[:65536]) :]
    except BrokenPipeError:
        return data[:0]


def _close_quietly(stream: IO[str]) -> None:
    try:
        stream.close()
    except BrokenPipeError:
        pass


def _as_text(data: bytes) -> str:
    return data.decode().replace("\r\n", "\n").replace("\r", "\n")


async def _reader(descriptor: int) -> asyncio.StreamReader:
    reader = asyncio.StreamReader(limit=2**20)
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), open(descriptor, "rb", buffering=0)
    )
    return reader

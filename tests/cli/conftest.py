"""Fixtures that run `agx` in a process of its own, with piped streams or at a pseudo-terminal."""

from __future__ import annotations

import os
import re
import select
import signal
import subprocess
import time
from codecs import IncrementalDecoder, getincrementaldecoder
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Thread

import pytest

from tests.support.forked import Process
from tests.support.program import AGX, PROGRAM
from tests.support.screen import Screen
from tests.support.server.cli_studio import CliStudio
from tests.support.timeouts import PATIENCE


@dataclass
class Shell:
    """A folder and a minimal environment in which `agx` commands run."""

    folder: Path
    environment: dict[str, str]

    def start(
        self,
        *words: str,
        prepare: str = "",
        stdin: int | None = None,
        stdout: int = subprocess.PIPE,
        stderr: int = subprocess.PIPE,
    ) -> Process:
        """Start `agx` in a process group of its own, forked from a process that has imported its modules.

        `prepare` is Python source that the process runs first. Without `stdin`, `agx run` gets an empty input: it
        waits 3 s for that of an open pipe.
        """
        if stdin is None:
            stdin = subprocess.DEVNULL if words[:1] == ("run",) and "-" not in words else subprocess.PIPE
        module, first = (PROGRAM, [prepare + AGX]) if prepare else ("agenticx.cli", [])
        every = [*first, *words]
        return Process(module, every, cwd=self.folder, env=self.environment, stdin=stdin, stdout=stdout, stderr=stderr)

    def __call__(
        self, *words: str, stdin: str | int = "", prepare: str = "", **streams: int
    ) -> subprocess.CompletedProcess[str]:
        text, descriptor = (stdin, subprocess.PIPE) if isinstance(stdin, str) else ("", stdin)
        process = self.start(*words, prepare=prepare, stdin=descriptor, **streams)
        try:
            out, err = process.communicate(text, timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            raise
        return subprocess.CompletedProcess(words, process.returncode, out, err)


@pytest.fixture
def agx(tmp_path: Path) -> Shell:
    folder = tmp_path / "work"
    folder.mkdir()
    kept = {name: value for name, value in os.environ.items() if name in ("PATH", "LANG", "LC_ALL", "PYTHONPATH")}
    environment = {"HOME": str(tmp_path), "AGX_HOME": str(tmp_path / "home"), "AGX_MODEL": "demo", "TERM": "xterm"}
    return Shell(folder, kept | environment)


@dataclass
class Terminal:
    """A process at a pseudo-terminal, with the text of its screen without colours."""

    process: Process | subprocess.Popen[bytes]
    descriptor: int
    columns: int = 200
    screen: str = field(default="", init=False)
    raw: str = field(default="", init=False)
    """The output received, including colours."""
    _decoder: IncrementalDecoder = field(default_factory=lambda: getincrementaldecoder("utf-8")("replace"), init=False)
    _seen: int = field(default=0, init=False)

    def wait_for(self, text: str) -> None:
        """Wait until `text` appears after the text that was last waited for."""
        deadline = time.monotonic() + PATIENCE
        while (at := self.screen.find(text, self._seen)) < 0:
            if not self._read(deadline - time.monotonic()):
                pytest.fail(f"{text!r} did not appear; the screen shows:\n{self.screen}")
        self._seen = at + len(text)

    def rows(self) -> str:
        """Return the text that the output received so far leaves on the screen."""
        screen = Screen(self.columns)
        screen.write(self.raw)
        return screen.text()

    def wait_for_rows(self, text: str) -> None:
        """Wait until `text` is on the screen."""
        deadline = time.monotonic() + PATIENCE
        while text not in self.rows():
            if not self._read(deadline - time.monotonic()):
                pytest.fail(f"{text!r} did not appear; the screen shows:\n{self.rows()}")

    def type(self, keys: str) -> None:
        os.write(self.descriptor, keys.encode())

    def interrupt(self) -> int:
        """Press Ctrl-C until the process ends, and return its exit code.

        Once is not always enough: a signal that arrives between Python's last check for signals and its blocking read
        of the terminal is handled when the read returns, that is, at the next key.
        """
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            self.type("\x03")
            while self._read(0.5):
                pass
            with suppress(subprocess.TimeoutExpired):
                return self.process.wait(0.5)
        return self.exit_code()

    def exit_code(self) -> int:
        deadline = time.monotonic() + PATIENCE
        while self._read(deadline - time.monotonic()):
            pass
        return self.process.wait(max(0.1, deadline - time.monotonic()))

    def _read(self, seconds: float) -> bool:
        if not select.select([self.descriptor], [], [], max(0.0, seconds))[0]:
            return False
        try:
            data = os.read(self.descriptor, 65536)
        except OSError:  # Linux: the other side is closed
            return False
        self.raw += self._decoder.decode(data)  # a read may end within a character or a control sequence
        lasting = re.sub(
            r"\r(?:\x1b\[[0-9;]*m)*… (?:waiting for the|summarising) [^\r\n]*\r\x1b\[K",
            "",
            self.raw,
        )
        self.screen = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", lasting).replace("\r\n", "\n")
        return bool(data)


@pytest.fixture
def terminal(agx: Shell) -> Iterator[Callable[..., Terminal]]:
    """Return a function that starts `agx` with its standard streams at one terminal, with `typed` as earlier input.

    `prepare` is Python source that the process runs first. The terminal has `columns`, 0 if it does not know.
    """
    termios = pytest.importorskip("termios", reason="needs pseudo-terminals")
    pty = pytest.importorskip("pty", reason="needs pseudo-terminals")
    opened: list[Terminal] = []

    def start(*words: str, typed: str = "", prepare: str = "", columns: int = 200) -> Terminal:
        ours, theirs = pty.openpty()
        if columns:
            termios.tcsetwinsize(theirs, (50, columns))
        os.write(ours, typed.encode())
        module, first = (PROGRAM, [prepare + AGX]) if prepare else ("agenticx.cli", [])
        process = Process(
            module,
            [*first, *words],
            cwd=agx.folder,
            env=agx.environment,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            terminal=True,
        )
        os.close(theirs)
        opened.append(Terminal(process, ours, columns))
        return opened[-1]

    yield start
    for one in opened:
        os.close(one.descriptor)
        with suppress(ProcessLookupError):
            os.killpg(one.process.pid, signal.SIGKILL)
        one.process.wait()


@pytest.fixture
def interactive_shell(agx: Shell) -> Iterator[Callable[[str], Terminal]]:
    """Return a function that starts a shell at a terminal, which it draws on without control sequences."""
    pty = pytest.importorskip("pty", reason="needs pseudo-terminals")
    opened: list[tuple[subprocess.Popen[bytes], int]] = []

    def start(program: str) -> Terminal:
        ours, theirs = pty.openpty()
        environment = {**agx.environment, "TERM": "dumb", "HISTFILE": ""}
        shell = subprocess.Popen(
            [program, "-i"],
            cwd=agx.folder,
            env=environment,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
        )
        os.close(theirs)
        opened.append((shell, ours))
        return Terminal(shell, ours)

    yield start
    for shell, descriptor in opened:
        os.close(descriptor)
        with suppress(ProcessLookupError):
            os.killpg(shell.pid, signal.SIGKILL)
        shell.wait()


@dataclass
class FixedProvider:
    """A loopback server that answers every POST with the same bytes.

    `hold` keeps the connection open after `body` until it is `released`, and `rest` follows then.
    """

    body: bytes = b""
    rest: bytes = b""
    status: int = 200
    hold: bool = False
    headers: dict[str, str] = field(default_factory=dict[str, str])
    requests: list[bytes] = field(default_factory=list[bytes])
    keys: list[str] = field(default_factory=list[str])
    """The Authorization header of each POST."""
    has_responses: bool = True
    released: Event = field(default_factory=Event)
    base_url: str = ""
    listing: bytes = b'{"data": [{"id": "tiny"}, {"id": "big"}]}'
    """The answer to each GET."""

    def events(self, *chunks: str, rest: Sequence[str] = ()) -> None:
        """Answer with these chunks, and with the `rest` of them once it is released."""
        self.body, self.rest = (b"".join(f"data: {chunk}\n\n".encode() for chunk in each) for each in (chunks, rest))


@pytest.fixture
def provider() -> Iterator[FixedProvider]:
    state = FixedProvider()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            state.keys.append(self.headers["authorization"] or "")
            state.requests.append(self.rfile.read(int(self.headers["content-length"])))
            kind = "text/event-stream" if state.status == 200 else "application/json"
            lacks = not state.has_responses and self.path.endswith("/responses")
            self.send_response(404 if lacks else state.status)
            self.send_header("content-type", kind)
            for header in state.headers.items():
                self.send_header(*header)
            self.end_headers()
            self.wfile.write(state.body)
            self.wfile.flush()
            if state.hold:
                state.released.wait(PATIENCE)
                self.wfile.write(state.rest)

        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(state.listing)

        def log_message(self, format: str, *args: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    state.base_url = f"http://127.0.0.1:{server.server_port}/v1"
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    yield state
    state.released.set()
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def studio(agx: Shell) -> Iterator[CliStudio]:
    served = CliStudio(agx)
    yield served
    with suppress(ProcessLookupError):
        os.killpg(served.process.pid, signal.SIGKILL)
    served.process.communicate()

"""The path of one plain message through our files: `python -m tests.repo.trace_message [--list]`.

It prints how many named functions and files run on the event loop from the POST to the terminal event at the reader,
and the crossings: pairs of successive calls in different files. A resumed coroutine counts as called again. The message
is answered with three tokens on the Chat wire, in a session that has had a turn; the turn with the fewest crossings of
three is shown. The provider is another process, and the client another thread.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import socket
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from types import CodeType, FrameType

from tests.benchmarks.peer import peer
from tests.benchmarks.studio_rows import TOKEN, studio

__all__ = ["Call", "Trace", "main", "trace_message"]

ROOT = Path(__file__).parents[2]
PACKAGES = ("agenticx", "studio")
MODEL = "burst:3"
TURNS = 3
SECONDS = 30
SETTLE_SECONDS = 0.3
"""After a turn, until the connection is closed and the state of the session is written."""


@dataclass(frozen=True)
class Call:
    """A call of a function of ours; `file` is relative to the repository."""

    file: str
    function: str


@dataclass(frozen=True)
class Trace:
    """The calls of one turn, in order."""

    calls: Sequence[Call]

    @property
    def functions(self) -> int:
        return len(set(self.calls))

    @property
    def files(self) -> int:
        return len({call.file for call in self.calls})

    @property
    def crossings(self) -> int:
        return sum(first.file != second.file for first, second in pairwise(self.calls))


async def trace_message(turns: int = TURNS) -> Trace:
    """Return the turn with the fewest crossings of `turns`, after one that is not counted.

    It must run on the main thread, which is the one that is traced.
    """
    async with peer() as provider, studio(provider) as port:
        client = _Client(port)
        session = await asyncio.to_thread(client.create_session)
        traces: list[Trace] = []
        for _ in range(turns + 1):
            await asyncio.sleep(SETTLE_SECONDS)
            traces.append(await _trace_turn(client, session))
    return min(traces[1:], key=lambda trace: trace.crossings)


async def _trace_turn(client: _Client, session: str) -> Trace:
    codes: list[CodeType] = []

    def record(frame: FrameType, event: str, _argument: object) -> None:
        if event == "call":
            codes.append(frame.f_code)

    turn = asyncio.get_running_loop().run_in_executor(None, client.run_turn, session, codes)
    sys.setprofile(record)
    try:
        recorded = await turn
    finally:
        sys.setprofile(None)
    return Trace([call for code in codes[:recorded] if (call := _own_call(code))])


def _own_call(code: CodeType) -> Call | None:
    """Return the call of a named function of ours, else None; Python 3.12 no longer calls comprehensions."""
    path = Path(code.co_filename)
    if code.co_name.startswith("<") or not path.is_relative_to(ROOT):
        return None
    file = path.relative_to(ROOT)
    return Call(file.as_posix(), code.co_qualname) if file.parts[0] in PACKAGES else None


class _Client:
    """A client of the studio at `port` that blocks its thread."""

    def __init__(self, port: int) -> None:
        self._port = port

    def create_session(self) -> str:
        answer = self._post("/api/sessions", {"name": "Named", "model": MODEL}, until=b'"id"')
        return json.loads(answer.partition(b"\r\n\r\n")[2])["id"]

    def run_turn(self, session: str, recorded: Sequence[CodeType]) -> int:
        """Post a message, read events up to the terminal one, and return how many calls were recorded by then."""
        length = 0

        def take_length() -> None:
            nonlocal length
            length = len(recorded)

        path = f"/api/sessions/{session}/turns"
        self._post(path, {"input": "go"}, until=b'"type":"final"', at_end=take_length)
        return length

    def _post(self, path: str, body: object, *, until: bytes, at_end: Callable[[], None] = lambda: None) -> bytes:
        content = json.dumps(body).encode()
        head = f"POST {path} HTTP/1.1\r\nhost: 127.0.0.1:{self._port}\r\nauthorization: Bearer {TOKEN}\r\n"
        head += f"accept: text/event-stream\r\ncontent-type: application/json\r\ncontent-length: {len(content)}\r\n\r\n"
        received = b""
        with socket.create_connection(("127.0.0.1", self._port), timeout=SECONDS) as connection:
            connection.sendall(head.encode() + content)
            while until not in received:
                data = connection.recv(65_536)
                if not data:
                    raise RuntimeError(f"the studio answered {received!r}")
                received += data
            at_end()
        return received


def main() -> None:
    """Trace a message and print the three numbers, with `--list` after all its calls."""
    parser = argparse.ArgumentParser(prog="python -m tests.repo.trace_message", description=__doc__)
    parser.add_argument("--list", action="store_true", help="print each call; a line with a file begins a crossing")
    listed = parser.parse_args().list
    trace = asyncio.run(trace_message())
    if listed:
        file = ""
        for call in trace.calls:
            if call.file != file:
                print(file := call.file)
            print(f"    {call.function}")
    print(f"{trace.functions} functions in {trace.files} files, {trace.crossings} crossings")


if __name__ == "__main__":
    main()

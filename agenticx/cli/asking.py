"""The person at the terminal: questions of the gate are put on the screen and answered from the keyboard."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Protocol

from agenticx.cli.render import Output
from agenticx.errors import AgenticXError
from agenticx.runtime.confirm import AsyncConfirmGate, ConfirmAnswer, ConfirmGate, ConfirmRequest, Remember
from agenticx.threads import run_in_thread

__all__ = ["AtTheTerminal", "Audience", "NobodyGate", "Silent", "someone_to_ask"]

_PROMPT = "Allow this? [y]es, yes to the [s]ame call for this session, [N]o: "
_ANSWERS: Mapping[str, tuple[bool, Remember]] = {
    "y": (True, "once"),
    "yes": (True, "once"),
    "s": (True, "session"),
    "same": (True, "session"),
}


def someone_to_ask() -> bool:
    """Whether a question can be read (stderr) and answered (stdin) by a person."""
    return sys.stdin.isatty() and sys.stderr.isatty()


class Audience(Protocol):
    """Who hears of questions as they are asked and closed, in the order of the events."""

    def asked(self, data: Mapping[str, Any]) -> None:
        """A `confirm_required` payload came out of the turn."""
        ...

    def closed(self, request_id: str) -> None:
        """That question was decided, by whomever."""
        ...


class Silent:
    """Nobody; the gate decides alone."""

    def asked(self, data: Mapping[str, Any]) -> None:
        return

    def closed(self, request_id: str) -> None:
        return


class NobodyGate(ConfirmGate):
    """Always no: there is no terminal to ask at, and `--yes` was not given."""

    def request_confirm(self, question: str, context: Mapping[str, Any]) -> bool:
        return False

    async def ask(self, request: ConfirmRequest, announce: Callable[[], None]) -> ConfirmAnswer:
        announce()
        reason = "there is no terminal to ask at; --yes would allow it"
        return ConfirmAnswer(approved=False, by="policy", reason=reason)


class AtTheTerminal:
    """Shows each question when its event comes out, so never before what led to it, and resolves it in the gate.

    Only a line typed after its question counts: what was typed ahead is thrown away, and a question that is closed
    otherwise (expired, stopped) stops reading. Questions that come at once are put one after the other.
    """

    def __init__(self, gate: AsyncConfirmGate, output: Output) -> None:
        self._gate = gate
        self._output = output
        self._one_at_a_time = asyncio.Lock()
        self._open: dict[str, asyncio.Task[None]] = {}

    def asked(self, data: Mapping[str, Any]) -> None:
        self._open[data["id"]] = asyncio.create_task(self._ask(data))

    def closed(self, request_id: str) -> None:
        task = self._open.pop(request_id, None)
        if task is not None:
            task.cancel()

    async def _ask(self, data: Mapping[str, Any]) -> None:
        approved, remember = False, "once"
        try:
            async with self._one_at_a_time:
                _forget_typed_ahead()
                self._output.question(data, _PROMPT)
                line = await _read_line()
            approved, remember = _ANSWERS.get(line.strip().lower(), (False, "once"))
        finally:
            with suppress(AgenticXError):  # it was closed while the person typed; the gate's decision stands
                self._gate.resolve(data["id"], approved, digest=data["digest"], remember=remember)


def _forget_typed_ahead() -> None:
    with suppress(ImportError, OSError):
        import termios

        termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)


async def _read_line() -> str:
    """The next line typed at the terminal; "" at end of input. Cancelling it takes no input away."""
    loop = asyncio.get_running_loop()
    readable: asyncio.Future[None] = loop.create_future()
    descriptor = sys.stdin.fileno()
    try:
        loop.add_reader(descriptor, lambda: readable.done() or readable.set_result(None))
    except NotImplementedError:  # Windows: a thread that is left behind where nobody types any more
        return await run_in_thread(sys.stdin.readline, name="agx-confirm")
    try:
        await readable
    finally:
        loop.remove_reader(descriptor)
    return os.read(descriptor, 4096).decode(errors="replace")  # a terminal hands out one line at a time

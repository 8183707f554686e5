"""The person at the terminal: questions of a turn are put on the screen and answered from the keyboard."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, Protocol

from agenticx.cli.narrate import ALLOWED_BY_YES, NOBODY_TO_ASK
from agenticx.cli.render import Output
from agenticx.errors import AgenticXError
from agenticx.runtime.confirm import ConfirmAnswer, Remember
from agenticx.threads import run_in_thread

__all__ = ["Answer", "AtTheTerminal", "Audience", "Silent", "Unasked", "answer_unasked", "someone_to_ask"]

Answer = Callable[[str, str, ConfirmAnswer], Awaitable[None]]
"""Gives an answer to a question by its id and digest; raises an `AgenticXError` where it comes too late."""

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


def answer_unasked(*, yes: bool) -> ConfirmAnswer | None:
    """What every question is answered without a person: yes by `--yes`, no without a terminal; None if one is asked."""
    if yes:
        return ConfirmAnswer(approved=True, by="policy")
    if someone_to_ask():
        return None
    return ConfirmAnswer(approved=False, by="policy", reason=NOBODY_TO_ASK)


class Audience(Protocol):
    """Who hears of questions as they are asked and closed, in the order of the events."""

    def asked(self, data: Mapping[str, Any]) -> None:
        """A `confirm_required` payload came out of the turn."""
        ...

    def closed(self, request_id: str) -> None:
        """That question was decided, by whomever."""
        ...


class Silent:
    """Nobody; questions are decided where the turn runs."""

    def asked(self, data: Mapping[str, Any]) -> None:
        return

    def closed(self, request_id: str) -> None:
        return


class Unasked:
    """Gives each question the same answer as soon as it is put; the reason says that no person did."""

    def __init__(self, answer: Answer, given: ConfirmAnswer) -> None:
        self._answer = answer
        self._given = given if given.reason is not None else replace(given, reason=ALLOWED_BY_YES)
        self._answering: set[asyncio.Task[None]] = set()

    def asked(self, data: Mapping[str, Any]) -> None:
        task = asyncio.create_task(self._decide(data["id"], data["digest"]))
        self._answering.add(task)
        task.add_done_callback(self._answering.discard)

    def closed(self, request_id: str) -> None:
        return

    async def _decide(self, request_id: str, digest: str) -> None:
        with suppress(AgenticXError):  # somebody else was quicker
            await self._answer(request_id, digest, self._given)


class AtTheTerminal:
    """Shows each question when its event comes out, so never before what led to it, and answers it as the person does.

    Only a line typed after its question counts: what was typed ahead is thrown away, and a question that is closed
    otherwise (expired, stopped, answered in another window) stops reading. Questions that come at once are put one
    after the other.
    """

    def __init__(self, answer: Answer, output: Output) -> None:
        self._answer = answer
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
        async with self._one_at_a_time:
            _forget_typed_ahead()
            self._output.question(data, _PROMPT)
            line = await _read_line()
            self._output.answered()
        approved, remember = _ANSWERS.get(line.strip().lower(), (False, "once"))
        with suppress(AgenticXError):  # it was closed while the person typed; that decision stands
            await self._answer(data["id"], data["digest"], ConfirmAnswer(approved=approved, remember=remember))


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
    try:
        return os.read(descriptor, 4096).decode(errors="replace")  # a terminal hands out one line at a time
    except OSError:  # it was closed
        return ""

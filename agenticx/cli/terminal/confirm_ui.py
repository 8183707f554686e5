"""Confirmations at the terminal: a turn's questions are shown and the user's answers are sent."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, Protocol

from agenticx.cli.terminal.event_text import ALLOWED_BY_YES, NO_TERMINAL
from agenticx.cli.terminal.output import Output
from agenticx.errors import AgenticXError
from agenticx.runtime.confirm import ConfirmAnswer, Remember, discard_typed_ahead
from agenticx.threads import run_in_thread

__all__ = [
    "AutomaticConfirmResponder",
    "ConfirmResponder",
    "NullConfirmResponder",
    "SendAnswer",
    "TerminalConfirmResponder",
    "automatic_answer",
    "can_prompt",
]

SendAnswer = Callable[[str, str, ConfirmAnswer], Awaitable[None]]
"""Send the answer to a question, given its id and digest; raises an `AgenticXError` if the question is closed."""

_PROMPT = "Allow this? [y]es, yes to the [s]ame call for this session, [N]o: "
_ANSWERS: Mapping[str, tuple[bool, Remember]] = {
    "y": (True, "once"),
    "yes": (True, "once"),
    "s": (True, "session"),
    "same": (True, "session"),
}


def can_prompt() -> bool:
    """Return whether a user can read a question (stderr) and answer it (stdin)."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def automatic_answer(*, yes: bool) -> ConfirmAnswer | None:
    """Return the answer to every question if no user is asked: yes with `--yes`, no without a terminal; else None."""
    if yes:
        return ConfirmAnswer(approved=True, by="policy")
    if can_prompt():
        return None
    return ConfirmAnswer(approved=False, by="policy", reason=NO_TERMINAL)


class ConfirmResponder(Protocol):
    """A responder to a turn's questions, called in the order of the events."""

    def on_required(self, data: Mapping[str, Any]) -> None:
        """Handle the payload of a `confirm_required` event."""
        ...

    def on_closed(self, request_id: str) -> None:
        """Handle the end of that question, with any answer, from any client."""
        ...


class NullConfirmResponder:
    """A responder that ignores questions, because a policy where the turn runs answers them."""

    def on_required(self, data: Mapping[str, Any]) -> None:
        return

    def on_closed(self, request_id: str) -> None:
        return


class AutomaticConfirmResponder:
    """A responder that gives each question the same answer at once; its reason shows that no user gave it."""

    def __init__(self, send_answer: SendAnswer, answer: ConfirmAnswer) -> None:
        self._send_answer = send_answer
        self._answer = answer if answer.reason is not None else replace(answer, reason=ALLOWED_BY_YES)
        self._tasks: set[asyncio.Task[None]] = set()

    def on_required(self, data: Mapping[str, Any]) -> None:
        task = asyncio.create_task(self._decide(data["id"], data["digest"]))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def on_closed(self, request_id: str) -> None:
        return

    async def _decide(self, request_id: str, digest: str) -> None:
        with suppress(AgenticXError):  # another client answered first
            await self._send_answer(request_id, digest, self._answer)


class TerminalConfirmResponder:
    """A responder that shows each question at the terminal and sends the answer that the user types.

    A question is shown when its event arrives, so never before the events that led to it. Only a line typed after its
    question counts: earlier input is discarded, and a question that is closed otherwise (expired, stopped, answered in
    another window) stops reading. Concurrent questions are shown one after the other.
    """

    def __init__(self, send_answer: SendAnswer, output: Output) -> None:
        self._send_answer = send_answer
        self._output = output
        self._prompt_lock = asyncio.Lock()
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def on_required(self, data: Mapping[str, Any]) -> None:
        self._tasks[data["id"]] = asyncio.create_task(self._ask(data))

    def on_closed(self, request_id: str) -> None:
        task = self._tasks.pop(request_id, None)
        if task is not None:
            task.cancel()

    async def _ask(self, data: Mapping[str, Any]) -> None:
        async with self._prompt_lock:
            discard_typed_ahead()
            self._output.show_question(data, _PROMPT)
            line = await _read_line()
            self._output.prompt_answered()
        approved, remember = _ANSWERS.get(line.strip().lower(), (False, "once"))
        with suppress(AgenticXError):  # closed while the user typed; the earlier decision holds
            await self._send_answer(data["id"], data["digest"], ConfirmAnswer(approved=approved, remember=remember))


async def _read_line() -> str:
    """Return the next line typed at the terminal, "" at end of input; cancelling the call consumes no input."""
    loop = asyncio.get_running_loop()
    readable: asyncio.Future[None] = loop.create_future()
    descriptor = sys.stdin.fileno()
    try:
        loop.add_reader(descriptor, lambda: readable.done() or readable.set_result(None))
    except NotImplementedError:  # Windows: a thread, which outlives a cancelled call until a line is typed
        return await run_in_thread(sys.stdin.readline, name="agx-confirm")
    try:
        await readable
    finally:
        loop.remove_reader(descriptor)
    try:
        return os.read(descriptor, 4096).decode(errors="replace")  # a terminal returns one line per read
    except OSError:  # it was closed
        return ""

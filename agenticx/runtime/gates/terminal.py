"""The gates that ask at the terminal: `SyncConfirmGate`, and the default of an application that gives no gate."""

from __future__ import annotations

import asyncio
import select
import sys
import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from io import UnsupportedOperation
from typing import Any

from agenticx.argument_types import check_callable
from agenticx.call_errors import explain_calls
from agenticx.logs import get_logger
from agenticx.messages import MAIN_AGENT
from agenticx.runtime.gates.base import ConfirmGate
from agenticx.runtime.user_requests.request_text import confirm_lines, parse_choice, question_lines
from agenticx.runtime.user_requests.requests import (
    ConfirmAnswer,
    ConfirmRequest,
    QuestionAnswer,
    QuestionRequest,
    UserRequest,
)
from agenticx.threads import start_thread

__all__ = ["DefaultConfirmGate", "SyncConfirmGate", "discard_typed_ahead", "has_typed_more"]

_log = get_logger(__name__)

_ASKING: ContextVar[Sequence[str]] = ContextVar("agenticx_asking_agents", default=())
"""The agents of the request that a `SyncConfirmGate` is asked, as `agent_path`; empty for the main agent."""


@contextmanager
def _asked_by(request: UserRequest) -> Generator[None]:
    own_path = () if request.agent_id == MAIN_AGENT else (request.agent_id,)
    token = _ASKING.set(request.agent_path or own_path)
    try:
        yield
    finally:
        _ASKING.reset(token)


@explain_calls
class SyncConfirmGate(ConfirmGate):
    """A gate that asks at the terminal: y or yes approves, anything else (several lines, end of input) denies.

    If standard input is a pipe or a file, its lines are the answers.
    A confirmation shows the call, with long texts shortened, and the agent if it is not the main one; none
    of its text can hide or imitate other lines (`confirm_lines`). One daemon thread does all reading, so neither the
    event loop nor the end of the process waits for Enter. A line typed while no request is open is dropped.
    """

    def __init__(self, read_line: Callable[[str], str] | None = None) -> None:
        if read_line is not None:
            check_callable("read_line", read_line, "a function that takes the prompt and returns a line")
        self._read_line = read_line or _read_line
        self._lock = asyncio.Lock()
        self._started = False
        self._line_requested = threading.Semaphore(0)
        self._prompt = ""
        self._waiting: tuple[asyncio.AbstractEventLoop, asyncio.Future[str | None]] | None = None
        self._reading = False

    async def ask(self, request: ConfirmRequest, announce: Callable[[], None]) -> ConfirmAnswer:
        with _asked_by(request):
            return await super().ask(request, announce)

    async def ask_question(self, request: QuestionRequest, announce: Callable[[], None]) -> QuestionAnswer:
        with _asked_by(request):
            return await super().ask_question(request, announce)

    async def request_confirm(self, question: str, context: Mapping[str, Any]) -> bool:
        request_text = "\n".join(line.text for line in confirm_lines(question, context, _ASKING.get()))
        async with self._lock:
            line = await self._prompt_for_line(f"{request_text}\nAllow this? [y/N] ")
        return line is not None and line.strip().lower() in {"y", "yes"}

    async def request_answer(self, text: str, options: Sequence[str]) -> str | None:
        """Return the line that the user types, or the option with that number; None at the end of a pipe."""
        request_text = "\n".join(line.text for line in question_lines(text, options, _ASKING.get()))
        async with self._lock:
            line = await self._prompt_for_line(f"{request_text}\nYour answer: ")
        if line is None:
            return "" if _has_terminal() else None
        return parse_choice(line, options)

    async def _prompt_for_line(self, prompt: str) -> str | None:
        """Return the next line of input, None at its end."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[str | None] = loop.create_future()
        self._waiting = (loop, future)
        try:
            if self._reading:  # the thread still reads for an expired request: its next line answers this one
                sys.stderr.write(prompt)
                sys.stderr.flush()
            else:
                self._prompt, self._reading = prompt, True
                self._line_requested.release()
            if not self._started:
                start_thread(self._read_forever, name="agx-confirm")
                self._started = True
            return await future
        finally:
            self._waiting = None

    def _read_forever(self) -> None:
        while True:
            self._line_requested.acquire()
            try:
                line = self._read_line(self._prompt)
            except (EOFError, OSError, ValueError):  # no terminal, or it was closed
                line = None
            self._reading = False
            waiting = self._waiting
            if waiting is not None:
                loop, future = waiting
                try:
                    loop.call_soon_threadsafe(_set_line, future, line)
                except RuntimeError:  # the loop is closed: no request is pending
                    return


class DefaultConfirmGate(SyncConfirmGate):
    """The gate of an application that gives none: it asks at the terminal, and without one it denies.

    A turn with this gate has none as far as calls of undeclared risk go: they run without a confirmation.
    """

    @property
    def is_given(self) -> bool:
        return False

    async def ask(self, request: ConfirmRequest, announce: Callable[[], None]) -> ConfirmAnswer:
        if _has_terminal():
            return await super().ask(request, announce)
        announce()
        tool_name = request.context.get("tool")
        _log.warning("a call is denied: there is no confirm gate and no terminal", tool_name=tool_name)
        return ConfirmAnswer(approved=False, by="policy", reason=_NOBODY_TO_ASK)

    async def request_answer(self, text: str, options: Sequence[str]) -> str | None:
        return await super().request_answer(text, options) if _has_terminal() else None


_NOBODY_TO_ASK = (
    "Nobody can be asked: the application gave no confirm gate, and there is no terminal. To allow such calls, it can "
    "pass confirm_gate=AutoApproveConfirmGate(), or a gate of its own."
)


def _has_terminal() -> bool:
    """Return whether standard input is a terminal; False also if it is closed or missing."""
    try:
        return sys.stdin.isatty()
    except (AttributeError, ValueError):
        return False


def _set_line(future: asyncio.Future[str | None], line: str | None) -> None:
    if not future.done():
        future.set_result(line)


def _read_line(prompt: str) -> str:
    if sys.stdin is None:  # pyright: ignore[reportUnnecessaryComparison]  # of a process without one
        raise EOFError
    discard_typed_ahead()
    sys.stderr.write(prompt)
    sys.stderr.flush()
    lines = [sys.stdin.readline()]
    while lines[-1] and has_typed_more():  # one answer, so that its first line alone is none
        lines.append(sys.stdin.readline())
    if not lines[0]:
        raise EOFError
    return "".join(lines)


def discard_typed_ahead() -> None:
    """Discard input typed at a terminal before the request was shown; lines from a pipe are all kept."""
    if not sys.stdin.isatty():
        return
    try:
        import termios
    except ImportError:  # Windows
        return
    with suppress(termios.error, UnsupportedOperation):  # of a stream without a descriptor, as in an IDE
        termios.tcflush(sys.stdin, termios.TCIFLUSH)


def has_typed_more() -> bool:
    """Return whether a terminal has more input than the lines that were read: they are the beginning of a paste."""
    if not sys.stdin.isatty():
        return False
    try:
        import termios
    except ImportError:  # Windows
        return False
    try:
        descriptor = sys.stdin.fileno()
        attributes = termios.tcgetattr(descriptor)
        without_lines = [*attributes[:3], attributes[3] & ~termios.ICANON, *attributes[4:]]
        termios.tcsetattr(descriptor, termios.TCSANOW, without_lines)  # otherwise a line without its end is not there
        try:
            return bool(select.select([descriptor], [], [], 0)[0])
        finally:
            termios.tcsetattr(descriptor, termios.TCSANOW, attributes)
    except (termios.error, UnsupportedOperation):  # it was closed, or has no descriptor, as in an IDE
        return False

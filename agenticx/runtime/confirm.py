"""Who may say yes: the gate protocol and the gates for a terminal, for a server, and for nobody."""

from __future__ import annotations

import asyncio
import hashlib
import sys
import threading
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from inspect import isawaitable, iscoroutinefunction
from typing import Any, Literal

from agenticx.errors import AgenticXError
from agenticx.runtime.canonical_json import write_json
from agenticx.runtime.question import question_lines
from agenticx.threads import run_in_thread, start_thread

__all__ = [
    "AnsweredBy",
    "AsyncConfirmGate",
    "AutoApproveConfirmGate",
    "ConfirmAnswer",
    "ConfirmClosed",
    "ConfirmGate",
    "ConfirmRequest",
    "DigestMismatch",
    "Remember",
    "SyncConfirmGate",
    "UnknownConfirm",
    "confirm_digest",
]

AnsweredBy = Literal["user", "policy", "timeout", "stop", "restart"]
Remember = Literal["once", "session", "always"]


class UnknownConfirm(AgenticXError):
    """No confirmation has that id (in that session)."""


class DigestMismatch(AgenticXError):
    """The answer was given for something other than what is being asked."""


class ConfirmClosed(AgenticXError):
    """The confirmation was already answered otherwise, expired, or its turn was stopped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfirmRequest:
    """One question to a person. `context` is the payload of `confirm_required.context`; `digest` covers all of it."""

    id: str
    question: str
    context: Mapping[str, Any]
    digest: str
    expires_at: datetime
    session_id: str = ""
    agent_id: str = "meta"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfirmAnswer:
    """What was decided. `arguments` replaces the call's own (they are validated and assessed anew)."""

    approved: bool
    by: AnsweredBy = "user"
    remember: Remember = "once"
    arguments: Mapping[str, Any] | None = None
    reason: str | None = None


def confirm_digest(tool: str, arguments: Mapping[str, Any], binding: Mapping[str, Any]) -> str:
    """Return the SHA-256 of what will run: the tool, its arguments and all that its assessment bound them to.

    It is that of the compact ASCII JSON of `[tool, arguments, binding]` with sorted keys.
    """
    digest = hashlib.sha256()
    write_json([tool, arguments, binding], lambda text: digest.update(text.encode("ascii")))
    return digest.hexdigest()


class ConfirmGate(ABC):
    """Decides on risky calls. Implement `request_confirm`; override `ask` to see ids, digests and expiry.

    The runtime bounds every question by its confirm time-out: a gate that has not answered by then is cancelled
    and the answer is no. Whatever a gate raises counts as no.
    """

    @abstractmethod
    def request_confirm(self, question: str, context: Mapping[str, Any]) -> bool | Awaitable[bool]:
        """Whether the call that `context` describes may run: True or False; what is neither counts as a failed gate.

        A plain function runs in a thread, so it may block.
        """

    async def ask(self, request: ConfirmRequest, announce: Callable[[], None]) -> ConfirmAnswer:
        """Park the question, then call `announce` once (it emits `confirm_required`), then wait for the answer."""
        announce()
        ask = self.request_confirm
        if iscoroutinefunction(ask):
            approved: object = await ask(request.question, request.context)
        else:
            approved = await run_in_thread(ask, request.question, request.context, name="agx confirm gate")
            if isawaitable(approved):
                approved = await approved
        if not isinstance(approved, bool):
            given = type(approved).__name__
            raise AgenticXError(
                f"the gate {type(self).__name__} returned {given}, which is no answer: True or False is"
            )
        return ConfirmAnswer(approved=approved)

    def decided(self, request_id: str) -> ConfirmAnswer | None:
        """What a question was answered whose asking was cut short, by a stop or its time-out, at that very moment."""
        return None


class AutoApproveConfirmGate(ConfirmGate):
    """Always yes, by policy; for work that must not wait for a person. `last_request` stays unset."""

    last_request: ConfirmRequest | None = None

    def request_confirm(self, question: str, context: Mapping[str, Any]) -> bool:
        return True

    async def ask(self, request: ConfirmRequest, announce: Callable[[], None]) -> ConfirmAnswer:
        announce()
        return ConfirmAnswer(approved=True, by="policy")


@dataclass(slots=True)
class _PendingConfirm:
    request: ConfirmRequest
    answer: asyncio.Future[ConfirmAnswer]


@dataclass
class AsyncConfirmGate(ConfirmGate):
    """Questions wait as futures until somebody calls `resolve`: a server's route, a test, a window.

    Not thread-safe: call it on the event loop that runs the turn. The last `remembered` decisions are kept, so that
    an answer that is repeated gets the same decision back.
    """

    remembered: int = 10_000
    last_request: ConfirmRequest | None = field(default=None, init=False)
    _pending: dict[str, _PendingConfirm] = field(default_factory=dict[str, _PendingConfirm], init=False, repr=False)
    _closed: OrderedDict[str, tuple[ConfirmRequest, ConfirmAnswer | None]] = field(
        default_factory=OrderedDict[str, tuple[ConfirmRequest, ConfirmAnswer | None]], init=False, repr=False
    )

    async def request_confirm(self, question: str, context: Mapping[str, Any]) -> bool:
        raise AgenticXError("AsyncConfirmGate is asked through ask(), which gives the question an id")

    async def ask(self, request: ConfirmRequest, announce: Callable[[], None]) -> ConfirmAnswer:
        parked = _PendingConfirm(request, asyncio.get_running_loop().create_future())
        self._pending[request.id] = parked
        self.last_request = request
        try:
            announce()
            return await parked.answer
        finally:
            del self._pending[request.id]
            self._closed[request.id] = (request, parked.answer.result() if _is_answered(parked.answer) else None)
            if len(self._closed) > self.remembered:
                self._closed.popitem(last=False)

    def pending(self, session_id: str | None = None) -> list[ConfirmRequest]:
        """The questions that wait, oldest first; of one session if it is named."""
        return [
            parked.request
            for parked in self._pending.values()
            if not parked.answer.done() and (session_id is None or parked.request.session_id == session_id)
        ]

    def decided(self, request_id: str) -> ConfirmAnswer | None:
        """The answer that a question was given; None if it waits, was closed without one, or is unknown."""
        parked = self._pending.get(request_id)
        if parked is not None:
            return parked.answer.result() if _is_answered(parked.answer) else None
        return self._closed[request_id][1] if request_id in self._closed else None

    def resolve(
        self,
        request_id: str,
        approved: bool,
        *,
        digest: str | None = None,
        session_id: str | None = None,
        remember: Remember = "once",
        arguments: Mapping[str, Any] | None = None,
        reason: str | None = None,
    ) -> ConfirmAnswer:
        """Answer a question; the first valid answer wins and the same answer again, with any `reason`, returns it.

        Raises `UnknownConfirm`, `DigestMismatch` (if `digest` is given and is another) or `ConfirmClosed`.
        """
        answer = ConfirmAnswer(approved=approved, remember=remember, arguments=arguments, reason=reason)
        parked = self._pending.get(request_id)
        if parked is not None:
            request = parked.request
            decided = parked.answer.result() if _is_answered(parked.answer) else None
            waiting = not parked.answer.done()
        elif request_id in self._closed:
            request, decided = self._closed[request_id]
            waiting = False
        else:
            raise UnknownConfirm(f"no confirmation has the id {request_id!r}")
        if session_id is not None and request.session_id != session_id:
            raise UnknownConfirm(f"no confirmation of this session has the id {request_id!r}")
        if digest is not None and digest != request.digest:
            raise DigestMismatch(f"the digest is not the one of confirmation {request_id!r}; read the question again")
        if waiting and parked is not None:
            parked.answer.set_result(answer)
            return answer
        if decided is not None and _is_same_answer(decided, answer):
            return decided
        raise ConfirmClosed(f"confirmation {request_id!r} is closed: it was answered, it expired, or its turn ended")


def _is_same_answer(one: ConfirmAnswer, other: ConfirmAnswer) -> bool:
    return replace(one, reason=None) == replace(other, reason=None)


def _is_answered(future: asyncio.Future[ConfirmAnswer]) -> bool:
    return future.done() and not future.cancelled()


class SyncConfirmGate(ConfirmGate):
    """Asks at the terminal: y or yes is yes, anything else (and end of input) is no.

    The question shows all that will run or be written, and nothing in it can hide or pretend (`question_lines`).
    One daemon thread does all reading, so neither the event loop nor the end of the process waits for Enter. A line
    typed while no question is open belongs to none and is dropped.
    """

    def __init__(self, read_line: Callable[[str], str] | None = None) -> None:
        self._read_line = read_line or _read_line
        self._lock = asyncio.Lock()
        self._started = False
        self._line_requested = threading.Semaphore(0)
        self._prompt = ""
        self._waiting: tuple[asyncio.AbstractEventLoop, asyncio.Future[str]] | None = None
        self._reading = False

    async def request_confirm(self, question: str, context: Mapping[str, Any]) -> bool:
        shown = "\n".join(line.text for line in question_lines(question, context))
        async with self._lock:
            line = await self._prompt_for_line(f"{shown}\nAllow this? [y/N] ")
        return line.strip().lower() in {"y", "yes"}

    async def _prompt_for_line(self, prompt: str) -> str:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[str] = loop.create_future()
        self._waiting = (loop, future)
        try:
            if self._reading:  # an expired question left the thread at the prompt: its next line is ours
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
                line = ""
            self._reading = False
            waiting = self._waiting
            if waiting is not None:
                loop, future = waiting
                try:
                    loop.call_soon_threadsafe(_set_line, future, line)
                except RuntimeError:  # the loop is closed: nobody waits any more
                    return


def _set_line(future: asyncio.Future[str], line: str) -> None:
    if not future.done():
        future.set_result(line)


def _read_line(prompt: str) -> str:
    _discard_typed_ahead()
    sys.stderr.write(prompt)
    sys.stderr.flush()
    line = sys.stdin.readline()
    if not line:
        raise EOFError
    return line


def _discard_typed_ahead() -> None:
    """What was typed at a terminal before a question was shown cannot be its answer; a pipe's lines are all kept."""
    if not sys.stdin.isatty():
        return
    try:
        import termios
    except ImportError:  # Windows
        return
    with suppress(termios.error):
        termios.tcflush(sys.stdin, termios.TCIFLUSH)

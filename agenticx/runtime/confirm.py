"""Confirmation gates: the protocol, and gates for a terminal, a server and automatic approval."""

from __future__ import annotations

import asyncio
import sys
import threading
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from inspect import isawaitable, iscoroutinefunction
from typing import Any, Literal, cast

from agenticx.argument_types import check_callable, check_int, check_type
from agenticx.errors import AgenticXError
from agenticx.messages import new_id
from agenticx.runtime.questions.confirm_digest import confirm_digest
from agenticx.runtime.questions.question_text import question_lines
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
    "discard_typed_ahead",
]

_NEVER = datetime.max.replace(tzinfo=UTC)

AnsweredBy = Literal["user", "policy", "timeout", "stop", "restart"]
Remember = Literal["once", "session", "always"]


class UnknownConfirm(AgenticXError):
    """Raised when no confirmation has that id (in that session)."""


class DigestMismatch(AgenticXError):
    """Raised when an answer was given for something other than what is being asked."""


class ConfirmClosed(AgenticXError):
    """Raised when the confirmation was already answered otherwise, has expired, or its turn was stopped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfirmRequest:
    """One question to the user.

    `context` is the payload of `confirm_required.context`. `digest` covers the tool, its arguments and all that the
    tool's assessment bound them to (`confirm_digest`), but not the other keys of `context`. `agent_path` has the ids of
    the agents from the turn at the top to the one that asks; it is empty for the turn at the top.
    """

    id: str
    question: str
    context: Mapping[str, Any]
    digest: str
    expires_at: datetime
    session_id: str = ""
    agent_id: str = "meta"
    agent_path: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfirmAnswer:
    """A decision. `arguments` replaces the call's own; they are validated and assessed again."""

    approved: bool
    by: AnsweredBy = "user"
    remember: Remember = "once"
    arguments: Mapping[str, Any] | None = None
    reason: str | None = None


class ConfirmGate(ABC):
    """A base class of gates that decide on risky calls.

    Implement `request_confirm`; override `ask` to see ids, digests and expiry. The runtime limits every question by its
    confirm time-out: a gate that has not answered in that time is cancelled and the answer is no. An exception of a
    gate counts as no.
    """

    @abstractmethod
    def request_confirm(
        self, question: str, context: Mapping[str, Any]
    ) -> bool | ConfirmAnswer | Awaitable[bool | ConfirmAnswer]:
        """Return whether the call that `context` describes may run; a `ConfirmAnswer` also says why.

        Any other value counts as a failed gate. A plain function runs in a thread, so it may block.
        """

    async def ask(self, request: ConfirmRequest, announce: Callable[[], None]) -> ConfirmAnswer:
        """Register the question, then call `announce` once (it emits `confirm_required`), then wait for the answer.

        The order matters: a client may answer as soon as it has the event, and its answer needs a registered question.
        """
        announce()
        ask = self.request_confirm
        if iscoroutinefunction(ask):
            answer: object = await ask(request.question, request.context)
        else:
            answer = await run_in_thread(ask, request.question, request.context, name="agx confirm gate")
            if isawaitable(answer):
                answer = await answer
        if isinstance(answer, ConfirmAnswer):
            return answer
        if not isinstance(answer, bool):
            given = f"the gate {type(self).__name__} returned {type(answer).__name__}"
            raise AgenticXError(f"{given}; it must return True, False or a ConfirmAnswer")
        return ConfirmAnswer(approved=answer)

    def decided(self, request_id: str) -> ConfirmAnswer | None:
        """Return the answer to a question if it was given just as the question was cancelled, else None.

        A stop or the time-out cancels a question.
        """
        return None


class AutoApproveConfirmGate(ConfirmGate):
    """A gate that approves every call by policy, for work that must not wait for the user.

    `last_request` is never set.
    """

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
    """A gate whose questions wait as futures until `resolve` is called: by a server's route, a test or a window.

    Not thread-safe: call it on the event loop that runs the turn. The last `remembered` decisions are kept, so that a
    repeated answer gets the same decision again.
    """

    remembered: int = 10_000
    last_request: ConfirmRequest | None = field(default=None, init=False)
    _pending: dict[str, _PendingConfirm] = field(default_factory=dict[str, _PendingConfirm], init=False, repr=False)
    _closed: OrderedDict[str, tuple[ConfirmRequest, ConfirmAnswer | None]] = field(
        default_factory=OrderedDict[str, tuple[ConfirmRequest, ConfirmAnswer | None]], init=False, repr=False
    )

    def __post_init__(self) -> None:
        check_int("remembered", self.remembered)

    async def request_confirm(self, question: str, context: Mapping[str, Any] | None = None) -> bool:
        """Wait until the question is answered by `resolve`, and return the decision.

        This is for questions outside of turns, which call `ask`. `last_request` and `pending` have the question with
        its new id. It does not expire: cancelling the caller, as `asyncio.timeout` does, closes it. Raises
        `AgenticXError` if the answer has other arguments, which a yes or no cannot pass on.
        """
        context = dict(context or {})
        given: object = context.get("arguments")
        arguments = dict(cast("Mapping[str, Any]", given)) if isinstance(given, Mapping) else dict[str, Any]()
        request = ConfirmRequest(
            id=new_id("cnf"),
            question=question,
            context=context,
            digest=confirm_digest(str(context.get("tool", "")), arguments, {}),
            expires_at=_NEVER,
        )
        answer = await self.ask(request, lambda: None)
        if answer.arguments is not None:
            raise AgenticXError("the answer has other arguments; request_confirm can only be answered with yes or no")
        return answer.approved

    async def ask(self, request: ConfirmRequest, announce: Callable[[], None]) -> ConfirmAnswer:
        pending = _PendingConfirm(request, asyncio.get_running_loop().create_future())
        self._pending[request.id] = pending
        self.last_request = request
        try:
            announce()
            return await pending.answer
        finally:
            del self._pending[request.id]
            self._closed[request.id] = (request, pending.answer.result() if _is_answered(pending.answer) else None)
            if len(self._closed) > self.remembered:
                self._closed.popitem(last=False)

    def pending(self, session_id: str | None = None) -> list[ConfirmRequest]:
        """Return the pending questions, oldest first; only those of one session if it is named."""
        return [
            pending.request
            for pending in self._pending.values()
            if not pending.answer.done() and (session_id is None or pending.request.session_id == session_id)
        ]

    def decided(self, request_id: str) -> ConfirmAnswer | None:
        """Return the answer to a question; None if it is pending, was closed without one, or is unknown."""
        pending = self._pending.get(request_id)
        if pending is not None:
            return pending.answer.result() if _is_answered(pending.answer) else None
        return self._closed[request_id][1] if request_id in self._closed else None

    def resolve(
        self,
        request_id: str,
        approved: bool,
        *,
        digest: str | None = None,
        session_id: str | None = None,
        by: Literal["user", "policy"] = "user",
        remember: Remember = "once",
        arguments: Mapping[str, Any] | None = None,
        reason: str | None = None,
    ) -> ConfirmAnswer:
        """Answer a question and return the answer that counts.

        The first valid answer counts; the same answer again, with any `reason`, returns the first one. Answer `by`
        policy where nobody was asked: the model is told which it was.

        Raises `UnknownConfirm`, `DigestMismatch` (if `digest` is given and is another) or `ConfirmClosed`.
        """
        check_type("approved", approved, bool, "True or False")
        answer = ConfirmAnswer(approved=approved, by=by, remember=remember, arguments=arguments, reason=reason)
        pending = self._pending.get(request_id)
        if pending is not None:
            request = pending.request
            decided = pending.answer.result() if _is_answered(pending.answer) else None
            is_pending = not pending.answer.done()
        elif request_id in self._closed:
            request, decided = self._closed[request_id]
            is_pending = False
        else:
            raise UnknownConfirm(f"no confirmation has the id {request_id!r}")
        if session_id is not None and request.session_id != session_id:
            raise UnknownConfirm(f"no confirmation of this session has the id {request_id!r}")
        if digest is not None and digest != request.digest:
            raise DigestMismatch(f"the digest is not the one of confirmation {request_id!r}; read the question again")
        if is_pending and pending is not None:
            pending.answer.set_result(answer)
            return answer
        if decided is not None and _is_same_answer(decided, answer):
            return decided
        raise ConfirmClosed(f"confirmation {request_id!r} is closed: it was answered, it expired, or its turn ended")


def _is_same_answer(left: ConfirmAnswer, right: ConfirmAnswer) -> bool:
    return replace(left, reason=None) == replace(right, reason=None)


def _is_answered(future: asyncio.Future[ConfirmAnswer]) -> bool:
    return future.done() and not future.cancelled()


class SyncConfirmGate(ConfirmGate):
    """A gate that asks at the terminal: y or yes approves, anything else (and end of input) denies.

    The question shows the call, with long texts shortened, and none of its text can hide or imitate other lines
    (`question_lines`). One daemon thread does all reading, so neither the event loop nor the end of the process waits
    for Enter. A line typed while no question is open is dropped.
    """

    def __init__(self, read_line: Callable[[str], str] | None = None) -> None:
        if read_line is not None:
            check_callable("read_line", read_line, "a function that takes the prompt and returns a line")
        self._read_line = read_line or _read_line
        self._lock = asyncio.Lock()
        self._started = False
        self._line_requested = threading.Semaphore(0)
        self._prompt = ""
        self._waiting: tuple[asyncio.AbstractEventLoop, asyncio.Future[str]] | None = None
        self._reading = False

    async def request_confirm(self, question: str, context: Mapping[str, Any]) -> bool:
        question_text = "\n".join(line.text for line in question_lines(question, context))
        async with self._lock:
            line = await self._prompt_for_line(f"{question_text}\nAllow this? [y/N] ")
        return line.strip().lower() in {"y", "yes"}

    async def _prompt_for_line(self, prompt: str) -> str:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[str] = loop.create_future()
        self._waiting = (loop, future)
        try:
            if self._reading:  # the thread still reads for an expired question: its next line answers this one
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
                except RuntimeError:  # the loop is closed: no question is pending
                    return


def _set_line(future: asyncio.Future[str], line: str) -> None:
    if not future.done():
        future.set_result(line)


def _read_line(prompt: str) -> str:
    discard_typed_ahead()
    sys.stderr.write(prompt)
    sys.stderr.flush()
    line = sys.stdin.readline()
    if not line:
        raise EOFError
    return line


def discard_typed_ahead() -> None:
    """Discard input typed at a terminal before the question was shown; lines from a pipe are all kept."""
    if not sys.stdin.isatty():
        return
    try:
        import termios
    except ImportError:  # Windows
        return
    with suppress(termios.error):
        termios.tcflush(sys.stdin, termios.TCIFLUSH)

"""Confirmation gates: the protocol, and those of functions, terminals, servers and policies.

A gate also puts the agent's own questions (`ask_user`) to the user.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import UTC, datetime
from inspect import isawaitable, iscoroutinefunction, signature
from typing import Any, Literal, cast

from agenticx.argument_types import check_callable, check_int, check_str, check_type
from agenticx.errors import AgenticXError
from agenticx.logs import get_logger
from agenticx.messages import MAIN_AGENT, new_id
from agenticx.runtime.user_requests.confirm_digest import confirm_digest
from agenticx.runtime.user_requests.kinds import CONFIRMATION, QUESTION, AnswerT, kind_of
from agenticx.runtime.user_requests.pending import PendingRequests
from agenticx.runtime.user_requests.request_text import confirm_lines, parse_choice, question_lines
from agenticx.runtime.user_requests.requests import (
    ConfirmAnswer,
    ConfirmRequest,
    QuestionAnswer,
    QuestionRequest,
    Remember,
    UserRequest,
)
from agenticx.threads import run_in_thread, start_thread

__all__ = [
    "AsyncConfirmGate",
    "AutoApproveConfirmGate",
    "ConfirmGate",
    "DefaultConfirmGate",
    "GateFunction",
    "SyncConfirmGate",
    "checked_gate",
    "discard_typed_ahead",
]

_log = get_logger(__name__)


GateFunction = Callable[[ConfirmRequest], bool | ConfirmAnswer | Awaitable[bool | ConfirmAnswer]]
"""A gate as a function, plain or async. A plain one runs in a thread, so it may block."""

_NEVER = datetime.max.replace(tzinfo=UTC)


class ConfirmGate(ABC):
    """A base class of gates that decide on risky calls, and put the agent's own questions to the user.

        class OnlyColleagues(ConfirmGate):
            def request_confirm(self, question, context):  # True or False; may be async
                return context["arguments"]["to"].endswith("@example.com")

    `Agent(confirm_gate=OnlyColleagues())` uses it; a function of the request does for most:
    `Agent(confirm_gate=lambda request: request.tool == "mail")`. `SyncConfirmGate` asks at the terminal,
    `AsyncConfirmGate` waits for `resolve`, `AutoApproveConfirmGate` approves everything.

    Implement `request_confirm`; override `ask` to see ids, digests and expiry. The runtime limits every confirmation by
    its time-out: a gate that has not answered in that time is cancelled and the answer is no. An exception of a
    gate counts as no.

    Implement `request_answer` too (or `ask_question`, with ids and expiry) if there is a user who can be asked in the
    agent's words (`ask_user`). Without an answer, be it for a time-out or an exception, the model is told so and the
    turn goes on.
    """

    @property
    def is_given(self) -> bool:
        """False for the gate of an application that gave none: calls of undeclared risk run unasked there."""
        return True

    @abstractmethod
    def request_confirm(
        self, question: str, context: Mapping[str, Any]
    ) -> bool | ConfirmAnswer | Awaitable[bool | ConfirmAnswer]:
        """Return whether the call that `context` describes may run; a `ConfirmAnswer` also says why.

        Any other value counts as a failed gate. A plain function runs in a thread, so it may block.
        """

    async def ask(self, request: ConfirmRequest, announce: Callable[[], None]) -> ConfirmAnswer:
        """Register the confirmation, then call `announce` once (it emits `confirm_required`), then wait for the answer.

        The order matters: a client may answer as soon as it has the event, and its answer needs a registered request.
        """
        announce()
        answer = await _call(self.request_confirm, request.question, request.context)
        return _checked_answer(answer, type(self).__name__)

    def decided(self, request_id: str) -> ConfirmAnswer | None:
        """Return the answer to a confirmation if it was given just as that was cancelled, else None.

        A stop or the time-out cancels a confirmation.
        """
        return None

    def request_answer(self, text: str, options: Sequence[str]) -> str | Awaitable[str | None] | None:
        """Return the user's answer to a question of the agent; None, the default, if nobody can be asked.

        The answer may be one of `options` or any other text, "" for none. A plain function runs in a thread, so it may
        block.
        """
        return None

    async def ask_question(self, request: QuestionRequest, announce: Callable[[], None]) -> QuestionAnswer:
        """Do for a question of the agent what `ask` does for a confirmation; `announce` emits `question_asked`."""
        announce()
        answer = await _call(self.request_answer, request.text, request.options)
        if answer is None:
            return QuestionAnswer(by="policy")
        if not isinstance(answer, str):
            type_name = type(answer).__name__
            raise AgenticXError(f"the gate {type(self).__name__} returned {type_name}; it must return a text or None")
        return QuestionAnswer(answer=answer)

    def answered(self, question_id: str) -> QuestionAnswer | None:
        """Do for a question of the agent what `decided` does for a confirmation."""
        return None


def _checked_answer(answer: object, gate_name: str) -> ConfirmAnswer:
    if isinstance(answer, ConfirmAnswer):
        return answer
    if not isinstance(answer, bool):
        given = f"the gate {gate_name} returned {type(answer).__name__}"
        raise AgenticXError(f"{given}; it must return True, False or a ConfirmAnswer")
    return ConfirmAnswer(approved=answer)


async def _call(function: Callable[..., object], *args: object) -> object:
    if iscoroutinefunction(function):
        return await function(*args)
    value = await run_in_thread(function, *args, name="agx confirm gate")
    return await value if isawaitable(value) else value


class _FunctionGate(ConfirmGate):
    """The gate of a function; it is no user who could be asked in the agent's words."""

    def __init__(self, function: GateFunction) -> None:
        self._function = function

    def request_confirm(self, question: str, context: Mapping[str, Any]) -> bool:
        raise NotImplementedError  # `ask` calls the function with the whole request

    async def ask(self, request: ConfirmRequest, announce: Callable[[], None]) -> ConfirmAnswer:
        announce()
        name = getattr(self._function, "__name__", type(self._function).__name__)
        return _checked_answer(await _call(self._function, request), name)


def checked_gate(gate: ConfirmGate | GateFunction | None) -> ConfirmGate | None:
    """Return a gate, also for a function; None for None.

    Raises `TypeError` for anything else, such as the class of a gate or a function that does not take one argument.
    """
    given: object = gate
    if given is None or isinstance(given, ConfirmGate):
        return given
    expected = "a ConfirmGate, or a function of the request that returns True, False or a ConfirmAnswer"
    if isinstance(given, type):
        raise TypeError(f"confirm_gate must be {expected}, not the class {given.__name__}; write {given.__name__}()")
    check_callable("confirm_gate", given, expected)
    assert gate is not None
    assert not isinstance(gate, ConfirmGate)
    with suppress(ValueError):  # a callable without a signature
        try:
            signature(gate).bind(None)
        except TypeError as exc:
            name = getattr(gate, "__name__", type(gate).__name__)
            raise TypeError(f"confirm_gate {name} must take one argument, the ConfirmRequest: {exc}") from None
    return _FunctionGate(gate)


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


@dataclass
class AsyncConfirmGate(ConfirmGate):
    """A gate whose requests wait as futures until `resolve` is called: by a server's route, a test or a window.

    Not thread-safe: call it on the event loop that runs the turn. The last `remembered` decisions are kept, so that a
    repeated answer gets the same decision again.
    """

    remembered: int = 10_000
    last_request: ConfirmRequest | None = field(default=None, init=False)
    _requests: PendingRequests = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_int("remembered", self.remembered)
        self._requests = PendingRequests(self.remembered)

    async def request_confirm(self, question: str, context: Mapping[str, Any] | None = None) -> bool:
        """Wait until the confirmation is answered by `resolve`, and return the decision.

        This is for confirmations outside of turns, which call `ask`. `last_request` and `pending` have the request
        with its new id. It does not expire: cancelling the caller, as `asyncio.timeout` does, closes it. Raises
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
        self.last_request = request
        return await self._requests.ask(CONFIRMATION, request, announce)

    def pending_requests(self, session_id: str | None = None) -> list[UserRequest]:
        """Return the pending requests to the user, oldest first; only those of one session if it is named."""
        return self._requests.waiting(session_id)

    def pending(self, session_id: str | None = None) -> list[ConfirmRequest]:
        """Return the confirmations among the `pending_requests`."""
        return [one for one in self._requests.waiting(session_id) if isinstance(one, ConfirmRequest)]

    def decided(self, request_id: str) -> ConfirmAnswer | None:
        """Return the answer to a confirmation; None if it is pending, was closed without one, or is unknown."""
        return self._requests.decided(CONFIRMATION, request_id)

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
        """Answer a confirmation and return the answer that counts.

        The first valid answer counts; the same answer again, with any `reason`, returns the first one. Answer `by`
        policy where nobody was asked: the model is told which it was.

        Raises `UnknownConfirm`, `DigestMismatch` (if `digest` is given and is another) or `ConfirmClosed`.
        """
        check_type("approved", approved, bool, "True or False")
        answer = ConfirmAnswer(approved=approved, by=by, remember=remember, arguments=arguments, reason=reason)
        return self._answer_request(request_id, answer, digest, session_id)

    def decide(self, request_id: str, answer: AnswerT) -> AnswerT | None:
        """Answer a confirmation or a question of the agent, and return the answer that counts; None if it is closed."""
        return self._requests.answer(request_id, answer)

    async def ask_question(self, request: QuestionRequest, announce: Callable[[], None]) -> QuestionAnswer:
        return await self._requests.ask(QUESTION, request, announce)

    def pending_questions(self, session_id: str | None = None) -> list[QuestionRequest]:
        """Return the questions of agents among the `pending_requests`."""
        return [one for one in self._requests.waiting(session_id) if isinstance(one, QuestionRequest)]

    def answered(self, question_id: str) -> QuestionAnswer | None:
        """Return the answer to a question of the agent; None if it is pending, has none, or is unknown."""
        return self._requests.decided(QUESTION, question_id)

    def answer_question(
        self, question_id: str, answer: str, *, by: Literal["user", "policy"] = "user"
    ) -> QuestionAnswer:
        """Answer a question of the agent and return the answer that counts: the first one; the same again returns it.

        An empty answer is none; give it `by` policy where nobody can be asked. Raises `UnknownQuestion` or
        `QuestionClosed`.
        """
        check_str("answer", answer)
        return self._answer_request(question_id, QuestionAnswer(answer=answer, by=by))

    def _answer_request(
        self, request_id: str, answer: AnswerT, digest: str | None = None, session_id: str | None = None
    ) -> AnswerT:
        kind = kind_of(answer)
        request = self._requests.find(kind, request_id, session_id)
        if request is None:
            raise kind.unknown_id(request_id, in_session=session_id is not None)
        if digest is not None:
            kind.check_digest(request_id, request.digest, digest)
        return kind.effective_answer(request_id, self.decide(request_id, answer), answer)


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


class SyncConfirmGate(ConfirmGate):
    """A gate that asks at the terminal: y or yes approves, anything else (and end of input) denies.

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
        """Return the line that the user types, or the option whose number it is; None at the end of a pipe."""
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
    line = sys.stdin.readline()
    if not line:
        raise EOFError
    return line


def discard_typed_ahead() -> None:
    """Discard input typed at a terminal before the request was shown; lines from a pipe are all kept."""
    if not sys.stdin.isatty():
        return
    try:
        import termios
    except ImportError:  # Windows
        return
    with suppress(termios.error):
        termios.tcflush(sys.stdin, termios.TCIFLUSH)

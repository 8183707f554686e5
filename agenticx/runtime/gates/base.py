"""The protocol of confirm gates, and the gates that decide without a person: a function, and one that approves all.

A gate also puts the agent's own questions (`ask_user`) to the user.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from inspect import isawaitable, iscoroutinefunction, signature
from typing import Any

from agenticx.argument_types import check_callable
from agenticx.errors import AgenticXError
from agenticx.runtime.user_requests.requests import ConfirmAnswer, ConfirmRequest, QuestionAnswer, QuestionRequest
from agenticx.threads import run_in_thread

__all__ = ["AutoApproveConfirmGate", "ConfirmGate", "GateFunction", "checked_gate"]

GateFunction = Callable[[ConfirmRequest], bool | ConfirmAnswer | Awaitable[bool | ConfirmAnswer]]
"""A gate as a function, plain or async. A plain one runs in a thread, so it may block."""


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
    agent's words (`ask_user`); else an agent with this gate has its questions put to the user by the gate of its turn.
    Without an answer, be it for a time-out or an exception, the model is told so and the turn goes on.
    """

    @property
    def is_given(self) -> bool:
        """False for the gate of an application that gave none: calls of undeclared risk run unasked there."""
        return True

    @property
    def answers_questions(self) -> bool:
        """True if the gate puts the agent's own questions to somebody; else the gate of the turn does."""
        own = type(self)
        return (own.request_answer, own.ask_question) != (ConfirmGate.request_answer, ConfirmGate.ask_question)

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

    Raises `TypeError` for anything else, for example the class of a gate or a function that takes no argument.
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

"""A confirm gate that gives scripted answers and records its requests."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from types import TracebackType
from typing import Any, Literal, Self

from agenticx.argument_types import check_type
from agenticx.runtime.gates.base import ConfirmGate
from agenticx.runtime.user_requests.requests import ConfirmAnswer, ConfirmRequest, QuestionAnswer, QuestionRequest

__all__ = ["GateAnswer", "ScriptedGate"]

GateAnswer = bool | ConfirmAnswer | QuestionAnswer | Literal["silent"] | Exception
"""Yes or no, a whole answer, no answer at all, or an exception that the gate raises."""


class ScriptedGate(ConfirmGate):
    """A gate that answers confirmations and questions in order, and records them in `requests` and `questions`.

    A question of the agent (`ask_user`) takes a `QuestionAnswer`; for any other answer nobody can be asked. A request
    beyond the script is answered no and reported by `assert_done`. In a `with` block the gate raises `AssertionError`
    at the end if there were more or fewer requests than answers.
    """

    def __init__(self, *answers: GateAnswer) -> None:
        for number, answer in enumerate(answers):
            _check_answer(f"answers[{number}]", answer)
        self._answers: deque[GateAnswer] = deque(answers)
        self._planned = len(self._answers)
        self.requests: list[ConfirmRequest] = []
        self.questions: list[QuestionRequest] = []

    async def request_confirm(self, question: str, context: Mapping[str, Any]) -> bool:
        return _decision(await self._next()).approved

    async def ask(self, request: ConfirmRequest, announce: Callable[[], None]) -> ConfirmAnswer:
        self.requests.append(request)
        announce()
        return _decision(await self._next())

    async def ask_question(self, request: QuestionRequest, announce: Callable[[], None]) -> QuestionAnswer:
        self.questions.append(request)
        announce()
        answer = await self._next()
        return answer if isinstance(answer, QuestionAnswer) else QuestionAnswer(by="policy")

    async def _next(self) -> bool | ConfirmAnswer | QuestionAnswer:
        answer = self._answers.popleft() if self._answers else False
        if isinstance(answer, Exception):
            raise answer
        if isinstance(answer, str):
            return await _nothing()
        return answer

    def assert_done(self) -> None:
        """Raise `AssertionError` unless there were exactly as many requests as answers."""
        asked = [*(one.question for one in self.requests), *(one.text for one in self.questions)]
        if len(asked) != self._planned:
            raise AssertionError(f"the gate has {self._planned} answers and was asked {len(asked)} times: {asked!r}")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if exc_type is None:
            self.assert_done()


def _check_answer(name: str, answer: object) -> None:
    expected = 'True, False, a ConfirmAnswer, a QuestionAnswer, "silent" or an exception'
    if isinstance(answer, str) and answer != "silent":
        raise ValueError(f"{name} must be {expected}, not {answer!r}")
    check_type(name, answer, (bool, ConfirmAnswer, QuestionAnswer, str, Exception), expected)


def _decision(answer: bool | ConfirmAnswer | QuestionAnswer) -> ConfirmAnswer:
    return answer if isinstance(answer, ConfirmAnswer) else ConfirmAnswer(approved=answer is True)


def _nothing() -> Awaitable[bool]:
    return asyncio.get_running_loop().create_future()

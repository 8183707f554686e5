"""A confirm gate that gives scripted answers and records its requests."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from types import TracebackType
from typing import Any, Literal, Self

from agenticx.runtime.confirm import ConfirmAnswer, ConfirmGate, ConfirmRequest

__all__ = ["GateAnswer", "ScriptedGate"]

GateAnswer = bool | ConfirmAnswer | Literal["silent"] | Exception
"""Yes or no, a whole answer, no answer at all, or an exception that the gate raises."""


class ScriptedGate(ConfirmGate):
    """A gate that answers questions in order and records them in `requests`.

    A question beyond the script is answered no and reported by `assert_done`. In a `with` block the gate raises
    `AssertionError` at the end if there were more or fewer questions than answers.
    """

    def __init__(self, *answers: GateAnswer) -> None:
        self._answers: deque[GateAnswer] = deque(answers)
        self._planned = len(self._answers)
        self.requests: list[ConfirmRequest] = []

    async def request_confirm(self, question: str, context: Mapping[str, Any]) -> bool:
        return (await self._next()).approved

    async def ask(self, request: ConfirmRequest, announce: Callable[[], None]) -> ConfirmAnswer:
        self.requests.append(request)
        announce()
        return await self._next()

    async def _next(self) -> ConfirmAnswer:
        answer = self._answers.popleft() if self._answers else False
        if isinstance(answer, Exception):
            raise answer
        if answer == "silent":
            await _nothing()
        return answer if isinstance(answer, ConfirmAnswer) else ConfirmAnswer(approved=answer is True)

    def assert_done(self) -> None:
        """Raise `AssertionError` unless there were exactly as many questions as answers."""
        if len(self.requests) != self._planned:
            questions = [request.question for request in self.requests]
            raise AssertionError(
                f"the gate has {self._planned} answers and was asked {len(questions)} times: {questions!r}"
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if exc_type is None:
            self.assert_done()


def _nothing() -> Awaitable[None]:
    return asyncio.get_running_loop().create_future()

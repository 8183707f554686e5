"""Requests to the user that wait as futures for their answers."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

__all__ = ["PendingRequests"]


class _Request(Protocol):
    @property
    def id(self) -> str: ...
    @property
    def session_id(self) -> str: ...


RequestT = TypeVar("RequestT", bound=_Request)
AnswerT = TypeVar("AnswerT")


@dataclass(slots=True)
class _Pending(Generic[RequestT, AnswerT]):
    request: RequestT
    answer: asyncio.Future[AnswerT]

    @property
    def given(self) -> AnswerT | None:
        """The answer that was given, None if there is none."""
        return self.answer.result() if self.answer.done() and not self.answer.cancelled() else None


class PendingRequests(Generic[RequestT, AnswerT]):
    """The requests of one kind that wait for an answer, and the last `remembered` closed ones."""

    def __init__(self, remembered: int) -> None:
        self._remembered = remembered
        self._pending: dict[str, _Pending[RequestT, AnswerT]] = {}
        self._closed: OrderedDict[str, tuple[RequestT, AnswerT | None]] = OrderedDict()

    async def ask(self, request: RequestT, announce: Callable[[], None]) -> AnswerT:
        """Register the request, call `announce`, and wait for the answer; a cancellation closes the request."""
        pending = _Pending[RequestT, AnswerT](request, asyncio.get_running_loop().create_future())
        self._pending[request.id] = pending
        try:
            announce()
            return await pending.answer
        finally:
            del self._pending[request.id]
            self._closed[request.id] = (request, pending.given)
            if len(self._closed) > self._remembered:
                self._closed.popitem(last=False)

    def waiting(self, session_id: str | None = None) -> list[RequestT]:
        """Return the requests without an answer, oldest first; only those of one session if it is named."""
        return [
            pending.request
            for pending in self._pending.values()
            if not pending.answer.done() and (session_id is None or pending.request.session_id == session_id)
        ]

    def find(self, request_id: str, session_id: str | None = None) -> RequestT | None:
        """Return the pending or closed request of that id (in that session), None if there is none."""
        if (pending := self._pending.get(request_id)) is not None:
            request = pending.request
        elif request_id in self._closed:
            request = self._closed[request_id][0]
        else:
            return None
        return request if session_id is None or request.session_id == session_id else None

    def decided(self, request_id: str) -> AnswerT | None:
        """Return the answer to a request; None if it is pending, was closed without one, or is unknown."""
        if (pending := self._pending.get(request_id)) is not None:
            return pending.given
        return self._closed[request_id][1] if request_id in self._closed else None

    def answer(self, request_id: str, answer: AnswerT) -> AnswerT | None:
        """Answer the request unless it has an answer or is closed; return the answer that counts, if there is one."""
        pending = self._pending.get(request_id)
        if pending is not None and not pending.answer.done():
            pending.answer.set_result(answer)
        return self.decided(request_id)

"""Requests to the user that wait as futures for their answers."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from agenticx.runtime.user_requests.kinds import AnswerT, RequestKind, RequestT, kind_of
from agenticx.runtime.user_requests.requests import UserRequest

__all__ = ["PendingRequests"]


@dataclass(slots=True)
class _Asked:
    """A request and the future of its answer, which is cancelled if the request is closed without one."""

    request: UserRequest
    answer: asyncio.Future[Any]

    @property
    def given(self) -> Any:
        """The answer that was given, None if there is none."""
        return self.answer.result() if self.answer.done() and not self.answer.cancelled() else None


class PendingRequests:
    """The requests that wait for an answer, and the last `remembered` closed ones."""

    def __init__(self, remembered: int) -> None:
        self._remembered = remembered
        self._pending: dict[str, _Asked] = {}
        self._closed: OrderedDict[str, _Asked] = OrderedDict()

    async def ask(
        self, kind: RequestKind[RequestT, AnswerT], request: RequestT, announce: Callable[[], None]
    ) -> AnswerT:
        """Register the request, call `announce`, and wait for the answer; a cancellation closes the request."""
        asked = self._pending[request.id] = _Asked(request, asyncio.get_running_loop().create_future())
        try:
            announce()
            return await asked.answer
        finally:
            asked.answer.cancel()
            self._closed[request.id] = self._pending.pop(request.id)
            if len(self._closed) > self._remembered:
                self._closed.popitem(last=False)

    def waiting(self, session_id: str | None = None) -> list[UserRequest]:
        """Return the requests without an answer, oldest first; only those of one session if it is named."""
        waiting = (asked.request for asked in self._pending.values() if not asked.answer.done())
        return [request for request in waiting if session_id is None or request.session_id == session_id]

    def find(
        self, kind: RequestKind[RequestT, AnswerT], request_id: str, session_id: str | None = None
    ) -> RequestT | None:
        """Return the pending or closed request of that kind and id (in that session), None if there is none."""
        asked = self._find(request_id)
        if asked is None or not isinstance(asked.request, kind.request_type):
            return None
        return asked.request if session_id is None or asked.request.session_id == session_id else None

    def decided(self, kind: RequestKind[RequestT, AnswerT], request_id: str) -> AnswerT | None:
        """Return the answer to a request; None if it is pending, was closed without one, or is unknown."""
        asked = self._find(request_id)
        return asked.given if asked is not None and isinstance(asked.request, kind.request_type) else None

    def answer(self, request_id: str, answer: AnswerT) -> AnswerT | None:
        """Answer the request unless it has an answer or is closed; return the answer that counts, if there is one."""
        kind = kind_of(answer)
        asked = self._pending.get(request_id)
        if asked is not None and isinstance(asked.request, kind.request_type) and not asked.answer.done():
            asked.answer.set_result(answer)
        return self.decided(kind, request_id)

    def _find(self, request_id: str) -> _Asked | None:
        return self._pending.get(request_id) or self._closed.get(request_id)

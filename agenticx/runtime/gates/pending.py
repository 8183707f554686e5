"""`AsyncConfirmGate`, whose requests wait as futures for their answers."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal, cast

from agenticx.argument_types import check_int, check_str, check_type
from agenticx.call_errors import explain_calls
from agenticx.errors import AgenticXError
from agenticx.messages import new_id
from agenticx.runtime.gates.base import ConfirmGate
from agenticx.runtime.user_requests.confirm_digest import confirm_digest
from agenticx.runtime.user_requests.kinds import CONFIRMATION, QUESTION, AnswerT, RequestKind, RequestT, kind_of
from agenticx.runtime.user_requests.requests import (
    ConfirmAnswer,
    ConfirmRequest,
    QuestionAnswer,
    QuestionRequest,
    Remember,
    UserRequest,
)

__all__ = ["AsyncConfirmGate"]

_NEVER = datetime.max.replace(tzinfo=UTC)


@explain_calls
@dataclass
class AsyncConfirmGate(ConfirmGate):
    """A gate whose requests wait as futures until `resolve` is called: by a server's route, a test or a window.

    Not thread-safe: call it on the event loop that runs the turn. The last `remembered` decisions are kept, so that a
    repeated answer gets the same decision again.
    """

    remembered: int = 10_000
    last_request: ConfirmRequest | None = field(default=None, init=False)
    _requests: _PendingRequests = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_int("remembered", self.remembered)
        self._requests = _PendingRequests(self.remembered)

    async def request_confirm(self, question: str, context: Mapping[str, Any] | None = None) -> bool:
        """Wait until the confirmation is answered by `resolve`, and return the decision.

        It is for confirmations outside of turns; turns call `ask`. `last_request` and `pending` have the request with
        its new id. It does not expire: cancelling the caller, as `asyncio.timeout` does, closes it. Raises
        `AgenticXError` if the answer has other arguments, because a yes or no cannot pass them on.
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
        """Return the pending requests to the user, oldest first, of all sessions or one."""
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
        policy if no person decided; the model is told that.

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


@dataclass(slots=True)
class _Asked:
    """A request and the future of its answer; closing the request without an answer cancels the future."""

    request: UserRequest
    answer: asyncio.Future[Any]

    @property
    def given(self) -> Any:
        """The answer that was given, None if there is none."""
        return self.answer.result() if self.answer.done() and not self.answer.cancelled() else None


class _PendingRequests:
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
        """Return the requests without an answer, oldest first, of all sessions or one."""
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

"""The methods of a hub for confirmations and questions of agents that wait for the user."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Literal

from agenticx.argument_types import check_str, check_type, is_encodable
from agenticx.messages import clean_text
from agenticx.runtime import ConfirmAnswer, ConfirmRequest, EventType, QuestionAnswer, QuestionRequest
from agenticx.sessions.history.interrupted import confirm_request, question_request
from agenticx.sessions.hub.commands import Answer, AnswerQuestion, Command
from agenticx.sessions.hub.confirmations import RequestT, asked_request, unknown_id
from agenticx.sessions.hub.turn_services import TurnServices
from agenticx.sessions.store.base import Store
from agenticx.sessions.store.entries import QuestionAsked

__all__ = ["QuestionMethods"]


class QuestionMethods(ABC):
    """A base class of hubs with the list of open questions, and their answers."""

    store: Store
    _services: TurnServices

    @abstractmethod
    async def _perform(self, session_id: str, command: Command) -> Any: ...

    async def open_confirms(self, session_id: str | None = None) -> list[ConfirmRequest]:
        """Return the open confirmations of a session or of all whose `confirm_required` is stored, oldest first.

        One that has expired is not open, also if its turn waits for its work and takes notice of that later only.
        """
        return await self._open(session_id, EventType.CONFIRM_REQUIRED, confirm_request)

    async def open_questions(self, session_id: str | None = None) -> list[QuestionRequest]:
        """Return the open questions of agents (`ask_user`) in the same way."""
        return await self._open(session_id, EventType.QUESTION_ASKED, question_request)

    async def _open(
        self, session_id: str | None, type_: EventType, read: Callable[[dict[str, Any], str, str], RequestT]
    ) -> list[RequestT]:
        if session_id is not None:
            check_type("session_id", session_id, str, "the id of a session, which is a str")
        asked = await self.store.catalog.open_questions(session_id)
        requests = [asked_request(event, read) for event in asked if event.type == type_]
        return [request for request in requests if request.expires_at > self._services.clock.now()]

    async def answer_confirm(self, request_id: str, answer: ConfirmAnswer, *, digest: str) -> ConfirmAnswer:
        """Answer a confirmation and return the decision, which is durable; the first valid answer counts.

        Raises `UnknownConfirm`, `DigestMismatch`, or `ConfirmClosed` for another answer that comes too late.
        """
        for name, value in (("request_id", request_id), ("digest", digest)):
            check_str(name, value)
        check_type("answer", answer, ConfirmAnswer, "a ConfirmAnswer")
        check_type("approved of answer", answer.approved, bool, "True or False")
        return await self._answer(Answer(request_id=request_id, answer=answer, digest=digest))

    async def answer_question(
        self, question_id: str, answer: str, *, by: Literal["user", "policy"] = "user"
    ) -> QuestionAnswer:
        """Answer a question of an agent (`question_asked`) and return the answer that counts, which is the first one.

        It is durable. An empty answer is none; give it `by` policy where nobody can be asked. Raises `UnknownQuestion`,
        or `QuestionClosed` for another answer that comes too late.
        """
        for name, value in (("question_id", question_id), ("answer", answer)):
            check_str(name, value)
        if by not in ("user", "policy"):
            raise ValueError(f"by must be 'user' or 'policy', not {by!r}")
        given = QuestionAnswer(answer=clean_text(answer), by=by)
        return await self._answer(AnswerQuestion(request_id=question_id, answer=given))

    async def _answer(self, command: Answer | AnswerQuestion) -> Any:
        session_id, request_id = None, command.request_id
        if is_encodable(request_id):
            session_id = await self.store.catalog.session_of(QuestionAsked, request_id)
        if session_id is None:
            raise unknown_id(command.request_id, command.answer)
        return await self._perform(session_id, command)

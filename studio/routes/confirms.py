"""Questions to the user over HTTP: the pending ones, and their answers."""

from __future__ import annotations

from typing import Any, Literal, NotRequired

from pydantic import Field
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from typing_extensions import TypedDict

from agenticx.clocks import rfc3339
from agenticx.runtime.confirm import AnsweredBy, ConfirmAnswer, ConfirmRequest
from studio.http.bodies import LARGE_BODY_BYTES, RequestBody, read_body
from studio.http.problems import Problem
from studio.http.queries import RequestQuery, read_query
from studio.services import services

__all__ = [
    "ConfirmAnswerBody",
    "ConfirmDecisionResponse",
    "ConfirmListQuery",
    "ConfirmListResponse",
    "answer",
    "index",
]


class ConfirmListQuery(RequestQuery):
    """The query of the list of pending questions."""

    session_id: str | None = Field(None, description="Only questions of this session.")


class ConfirmAnswerBody(RequestBody):
    """The answer to the question whose content has this digest; `arguments` replaces the call's own."""

    max_bytes = LARGE_BODY_BYTES  # `arguments` may hold a whole file

    approved: bool
    digest: str
    remember: Literal["once", "session", "always"] = "once"
    arguments: dict[str, Any] | None = None
    reason: str | None = Field(None, max_length=4000)


class ConfirmItem(TypedDict):
    """A question that waits for a yes or no; `context` is that of the `confirm_required` event."""

    id: str
    session_id: str
    agent_id: str
    question: str
    context: dict[str, Any]
    digest: str
    expires_at: str


class ConfirmListResponse(TypedDict):
    confirms: list[ConfirmItem]


class ConfirmDecisionResponse(TypedDict):
    """The decision that is in effect."""

    id: str
    approved: bool
    by: AnsweredBy
    remember: Literal["once", "session", "always"]
    arguments: NotRequired[dict[str, Any]]
    reason: NotRequired[str]


async def index(request: Request) -> Response:
    studio, session_id = services(request), read_query(request, ConfirmListQuery).session_id
    if session_id is not None:
        await studio.store.catalog.get(session_id)
    pending = await studio.hub.open_confirms(session_id)
    return JSONResponse({"confirms": [_confirm_item(question) for question in pending]})


async def answer(request: Request) -> Response:
    request_id, body = request.path_params["request_id"], await read_body(request, ConfirmAnswerBody)
    if body.remember == "always":
        sentence = "remember 'always' is not available yet; 'once' and 'session' are."
        raise Problem("remember_unavailable", sentence, field="remember")
    confirm_answer = ConfirmAnswer(
        approved=body.approved, remember=body.remember, arguments=body.arguments, reason=body.reason
    )
    decision = await services(request).hub.answer_confirm(request_id, confirm_answer, digest=body.digest)
    return JSONResponse(_decision_response(request_id, decision))


def _confirm_item(question: ConfirmRequest) -> ConfirmItem:
    return {
        "id": question.id,
        "session_id": question.session_id,
        "agent_id": question.agent_id,
        "question": question.question,
        "context": dict(question.context),
        "digest": question.digest,
        "expires_at": rfc3339(question.expires_at),
    }


def _decision_response(request_id: str, decision: ConfirmAnswer) -> ConfirmDecisionResponse:
    response: ConfirmDecisionResponse = {
        "id": request_id,
        "approved": decision.approved,
        "by": decision.by,
        "remember": decision.remember,
    }
    if decision.arguments is not None:
        response["arguments"] = dict(decision.arguments)
    if decision.reason is not None:
        response["reason"] = decision.reason
    return response

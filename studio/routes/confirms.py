"""Confirmations over HTTP: the pending ones, and their answers."""

from __future__ import annotations

from typing import Any, Literal, NotRequired

from pydantic import Field
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from typing_extensions import TypedDict

from agenticx.clocks import rfc3339
from agenticx.runtime.questions.requests import AnsweredBy, ConfirmAnswer, ConfirmRequest, Remember
from studio.http.bodies import LARGE_BODY_BYTES, RequestBody, read_body
from studio.http.problems import Problem
from studio.routes.session_filter import read_session_filter
from studio.services import services

__all__ = [
    "ConfirmAnswerBody",
    "ConfirmDecisionResponse",
    "ConfirmListResponse",
    "answer",
    "index",
]


class ConfirmAnswerBody(RequestBody):
    """The answer to the question whose content has this digest; `arguments` replaces the call's own.

    The model is told the `reason` of a denial, and by whom it was: `by` is `policy` if a rule of the client decided and
    nobody was asked. `remember` is `once`, or `session` to allow the same call with the same arguments for the session.
    """

    max_bytes = LARGE_BODY_BYTES  # `arguments` may hold a whole file

    approved: bool
    digest: str
    by: Literal["user", "policy"] = "user"
    remember: Literal["once", "session", "always"] = "once"
    arguments: dict[str, Any] | None = None
    reason: str | None = Field(None, max_length=4000)


class ConfirmItem(TypedDict):
    """A question that waits for a yes or no; `context` and `agent_path` are those of the `confirm_required` event."""

    id: str
    session_id: str
    agent_id: str
    question: str
    context: dict[str, Any]
    digest: str
    expires_at: str
    agent_path: NotRequired[list[str]]


class ConfirmListResponse(TypedDict):
    confirms: list[ConfirmItem]


class ConfirmDecisionResponse(TypedDict):
    """The decision that is in effect."""

    id: str
    approved: bool
    by: AnsweredBy
    remember: Remember
    arguments: NotRequired[dict[str, Any]]
    reason: NotRequired[str]


async def index(request: Request) -> Response:
    """List the questions that wait for an answer, of all sessions or one."""
    pending = await services(request).hub.open_confirms(await read_session_filter(request))
    return JSONResponse({"confirms": [_confirm_item(question) for question in pending]})


async def answer(request: Request) -> Response:
    """Answer a question; the first valid answer counts, in whichever window it is given.

    The same answer again is a 200, any other late one a 410. A 409 means that the digest is not the question's.
    """
    request_id, body = request.path_params["request_id"], await read_body(request, ConfirmAnswerBody)
    if body.remember == "always":
        sentence = "remember must be 'once' or 'session', not 'always': no decision outlives its session."
        raise Problem("remember_unavailable", sentence, field="remember")
    confirm_answer = ConfirmAnswer(
        approved=body.approved, by=body.by, remember=body.remember, arguments=body.arguments, reason=body.reason
    )
    decision = await services(request).hub.answer_confirm(request_id, confirm_answer, digest=body.digest)
    return JSONResponse(_decision_response(request_id, decision))


def _confirm_item(question: ConfirmRequest) -> ConfirmItem:
    item: ConfirmItem = {
        "id": question.id,
        "session_id": question.session_id,
        "agent_id": question.agent_id,
        "question": question.question,
        "context": dict(question.context),
        "digest": question.digest,
        "expires_at": rfc3339(question.expires_at),
    }
    if question.agent_path:
        item["agent_path"] = list(question.agent_path)
    return item


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

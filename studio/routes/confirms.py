"""Questions to the person over HTTP: which ones wait, and the answer."""

from __future__ import annotations

from typing import Any, Literal, NotRequired

from pydantic import Field
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from typing_extensions import TypedDict

from agenticx.clocks import rfc3339
from agenticx.runtime.confirm import AnsweredBy, ConfirmAnswer, ConfirmRequest
from studio.bodies import LARGE_BODY_BYTES, Body, read_body
from studio.openapi import Parameter
from studio.problems import Problem
from studio.services import services

__all__ = ["QUERY", "Answer", "Decision", "Questions", "answer", "index"]

QUERY = (Parameter("session_id", "Only those of this session."),)


class Answer(Body):
    """Yes or no to exactly what the digest stands for; `arguments` replaces the call's own."""

    max_bytes = LARGE_BODY_BYTES  # `arguments` may hold a whole file

    approved: bool
    digest: str
    remember: Literal["once", "session", "always"] = "once"
    arguments: dict[str, Any] | None = None
    reason: str | None = Field(None, max_length=4000)


class Question(TypedDict):
    """What waits for a yes or no; `context` is that of `confirm_required`."""

    id: str
    session_id: str
    agent_id: str
    question: str
    context: dict[str, Any]
    digest: str
    expires_at: str


class Questions(TypedDict):
    confirms: list[Question]


class Decision(TypedDict):
    """What counts from now on."""

    id: str
    approved: bool
    by: AnsweredBy
    remember: Literal["once", "session", "always"]
    arguments: NotRequired[dict[str, Any]]
    reason: NotRequired[str]


async def index(request: Request) -> Response:
    studio, session_id = services(request), request.query_params.get("session_id")
    if session_id is not None:
        await studio.store.get(session_id)
    pending = await studio.hub.confirms.pending(session_id)
    return JSONResponse({"confirms": [_question(question) for question in pending]})


async def answer(request: Request) -> Response:
    request_id, body = request.path_params["request_id"], await read_body(request, Answer)
    if body.remember == "always":
        sentence = "remember 'always' is not available yet; 'once' and 'session' are."
        raise Problem(422, "remember_unavailable", sentence, field="remember")
    given = ConfirmAnswer(approved=body.approved, remember=body.remember, arguments=body.arguments, reason=body.reason)
    decision = await services(request).hub.confirms.answer(request_id, given, digest=body.digest)
    return JSONResponse(_decision(request_id, decision))


def _question(question: ConfirmRequest) -> Question:
    return {
        "id": question.id,
        "session_id": question.session_id,
        "agent_id": question.agent_id,
        "question": question.question,
        "context": dict(question.context),
        "digest": question.digest,
        "expires_at": rfc3339(question.expires_at),
    }


def _decision(request_id: str, decision: ConfirmAnswer) -> Decision:
    shown: Decision = {
        "id": request_id,
        "approved": decision.approved,
        "by": decision.by,
        "remember": decision.remember,
    }
    if decision.arguments is not None:
        shown["arguments"] = dict(decision.arguments)
    if decision.reason is not None:
        shown["reason"] = decision.reason
    return shown

"""Questions of agents (`ask_user`) over HTTP: the pending ones, and their answers."""

from __future__ import annotations

from typing import Literal, NotRequired

from pydantic import Field
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from typing_extensions import TypedDict

from agenticx.clocks import rfc3339
from agenticx.runtime import QuestionRequest
from agenticx.runtime.questions.requests import AnsweredBy
from studio.http.bodies import LARGE_BODY_BYTES, MAX_TEXT_CHARS, RequestBody, read_body
from studio.routes.session_filter import read_session_filter
from studio.services import services

__all__ = [
    "QuestionAnswerBody",
    "QuestionAnswerResponse",
    "QuestionListResponse",
    "answer",
    "index",
]


class QuestionAnswerBody(RequestBody):
    """The answer: one of the options or any other text; an empty one is none.

    `by` is `policy` if nobody could be asked: the model is told so.
    """

    max_bytes = LARGE_BODY_BYTES

    answer: str = Field(max_length=MAX_TEXT_CHARS)
    by: Literal["user", "policy"] = "user"


class QuestionItem(TypedDict):
    """A question of an agent that waits for an answer; `tool_call_id` is the call that asks."""

    id: str
    session_id: str
    agent_id: str
    text: str
    options: NotRequired[list[str]]
    expires_at: str
    tool_call_id: NotRequired[str]
    agent_path: NotRequired[list[str]]


class QuestionListResponse(TypedDict):
    questions: list[QuestionItem]


class QuestionAnswerResponse(TypedDict):
    """The answer that is in effect."""

    id: str
    answer: str
    by: AnsweredBy


async def index(request: Request) -> Response:
    """List the questions of agents that wait for an answer, of all sessions or one."""
    pending = await services(request).hub.open_questions(await read_session_filter(request))
    return JSONResponse({"questions": [_item(question) for question in pending]})


async def answer(request: Request) -> Response:
    """Answer a question of an agent; the first answer counts, in whichever window it is given.

    The same answer again is a 200, any other late one a 410.
    """
    question_id, body = request.path_params["question_id"], await read_body(request, QuestionAnswerBody)
    decided = await services(request).hub.answer_question(question_id, body.answer, by=body.by)
    response: QuestionAnswerResponse = {"id": question_id, "answer": decided.answer, "by": decided.by}
    return JSONResponse(response)


def _item(question: QuestionRequest) -> QuestionItem:
    item: QuestionItem = {
        "id": question.id,
        "session_id": question.session_id,
        "agent_id": question.agent_id,
        "text": question.text,
        "expires_at": rfc3339(question.expires_at),
    }
    if question.options:
        item["options"] = list(question.options)
    if question.tool_call_id:
        item["tool_call_id"] = question.tool_call_id
    if question.agent_path:
        item["agent_path"] = list(question.agent_path)
    return item

"""Requests to the user over HTTP: pending confirmations and questions of agents, and their answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NotRequired

from pydantic import Field
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from typing_extensions import TypedDict

from agenticx.argument_types import is_encodable
from agenticx.errors import InvalidArguments
from agenticx.permissions.rules import Rule
from agenticx.runtime.calls.validation import validate_arguments
from agenticx.runtime.user_requests.kinds import CONFIRMATION, QUESTION, RequestKind
from agenticx.runtime.user_requests.requests import (
    AnsweredBy,
    ConfirmAnswer,
    ConfirmRequest,
    QuestionAnswer,
    Remember,
)
from agenticx.threads import run_in_thread
from studio.http.bodies import LARGE_BODY_BYTES, MAX_TEXT_CHARS, RequestBody, read_body
from studio.http.problems import Problem
from studio.http.queries import RequestQuery, read_query
from studio.routes.permissions import read_rules, tools_by_name
from studio.services import Services, services

__all__ = [
    "ConfirmAnswerBody",
    "ConfirmDecisionResponse",
    "ConfirmListResponse",
    "QuestionAnswerBody",
    "QuestionAnswerResponse",
    "QuestionListResponse",
    "SessionFilter",
    "answer_confirm",
    "answer_question",
    "list_confirms",
    "list_questions",
]

_MAX_RULES = 100


class SessionFilter(RequestQuery):
    """The query of a list that can be limited to one session."""

    session_id: str | None = Field(None, description="Only requests of this session.")


class ConfirmAnswerBody(RequestBody):
    """The answer to the confirmation whose content has this digest; `arguments` replaces the call's own.

    The model is told the `reason` of a denial, and by whom it was: `by` is `policy` if a rule of the client decided and
    nobody was asked. With `remember` a yes stores the rules that the confirmation shows, `session` for the session,
    `always` for its workspace. `rule` or `rules` are stored instead: one of them, `exact_rule`, or narrower ones. One
    of scope `user` holds in all workspaces.
    """

    max_bytes = LARGE_BODY_BYTES  # `arguments` may hold a whole file

    approved: bool
    digest: str
    by: Literal["user", "policy"] = Field("user", description="By default `user`.")
    remember: Literal["once", "session", "always"] = Field("once", description="By default `once`.")
    arguments: dict[str, Any] | None = None
    rule: dict[str, Any] | None = Field(None, description="The rule to store instead of those that are shown.")
    rules: list[dict[str, Any]] | None = Field(None, max_length=_MAX_RULES, description="Several such rules.")
    reason: str | None = Field(None, max_length=4000)


class QuestionAnswerBody(RequestBody):
    """The answer: one of the options or any other text; an empty one is none.

    `by` is `policy` if nobody could be asked: the model is told so.
    """

    max_bytes = LARGE_BODY_BYTES

    answer: str = Field(max_length=MAX_TEXT_CHARS)
    by: Literal["user", "policy"] = Field("user", description="By default `user`.")


class ConfirmItem(TypedDict):
    """A confirmation that waits for a yes or no; `context` and `agent_path` come from `confirm_required`."""

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


class ConfirmDecisionResponse(TypedDict):
    """The decision that is in effect; `rules` are those that are stored with it."""

    id: str
    approved: bool
    by: AnsweredBy
    remember: Remember
    rules: NotRequired[list[dict[str, Any]]]
    arguments: NotRequired[dict[str, Any]]
    reason: NotRequired[str]


class QuestionAnswerResponse(TypedDict):
    """The answer that is in effect."""

    id: str
    answer: str
    by: AnsweredBy


async def list_confirms(request: Request) -> Response:
    """List the confirmations that wait for an answer, of all sessions or one."""
    return await _list(request, CONFIRMATION)


async def list_questions(request: Request) -> Response:
    """List the questions of agents that wait for an answer, of all sessions or one."""
    return await _list(request, QUESTION)


async def answer_confirm(request: Request) -> Response:
    """Answer a confirmation; the first valid answer counts, in whichever window it is given.

    The same answer again is a 200, any other late one a 410. A 409 means that the digest is not the confirmation's. A
    rule that covers more than the confirmation shows, or arguments that the tool does not take, are a 422, and nothing
    is decided.
    """
    request_id, body = request.path_params["request_id"], await read_body(request, ConfirmAnswerBody)
    if body.approved and body.arguments is not None:
        await _check_arguments(services(request), request_id, body.arguments)
    given = ConfirmAnswer(
        approved=body.approved,
        by=body.by,
        remember=body.remember,
        arguments=body.arguments,
        reason=body.reason,
        rules=_rules(body),
    )
    answer = await services(request).hub.answer(request_id, given, digest=body.digest)
    return JSONResponse({"id": request_id, **CONFIRMATION.answer_data(answer), "remember": answer.remember})


async def _check_arguments(studio: Services, request_id: str, arguments: Mapping[str, Any]) -> None:
    """Raise `Problem` for arguments that the tool does not take; those for tools of other agents are checked later."""
    session_id = await studio.store.catalog.session_of_request(request_id) if is_encodable(request_id) else None
    if session_id is None:
        return
    session = await studio.store.catalog.get(session_id)
    asked = next((one for one in await studio.hub.open_requests(session_id) if one.id == request_id), None)
    if not isinstance(asked, ConfirmRequest) or asked.agent_path or session.agent or session.team:
        return
    if (tool := tools_by_name(studio).get(asked.tool)) is None:
        return
    try:
        await run_in_thread(validate_arguments, tool, arguments, name="agx reading a call")
    except InvalidArguments as exc:
        raise Problem("invalid_body", f"'arguments': {exc}.", field="arguments") from exc


def _rules(body: ConfirmAnswerBody) -> tuple[Rule, ...]:
    if body.rule is None:
        return read_rules(body.rules or (), "rules")
    if body.rules is not None:
        raise Problem("bad_rule", "Give 'rule' for one rule or 'rules' for several, not both.", field="rules")
    return read_rules([body.rule], "rule")


async def answer_question(request: Request) -> Response:
    """Answer a question of an agent; the first answer counts, in whichever window it is given.

    The same answer again is a 200, any other late one a 410.
    """
    question_id, body = request.path_params["question_id"], await read_body(request, QuestionAnswerBody)
    answer = await services(request).hub.answer(question_id, QuestionAnswer(answer=body.answer, by=body.by))
    return JSONResponse({"id": question_id, **QUESTION.answer_data(answer)})


async def _list(request: Request, kind: RequestKind[Any, Any]) -> Response:
    """List the open requests to the user of one kind, each a `ConfirmItem` or a `QuestionItem`.

    Raises `SessionNotFound` if the query names a session that does not exist.
    """
    session_id = read_query(request, SessionFilter).session_id
    if session_id is not None:
        await services(request).store.catalog.get(session_id)
    items = [
        {"id": one.id, "session_id": one.session_id, "agent_id": one.agent_id, **kind.request_data(one)}
        for one in await services(request).hub.open_requests(session_id)
        if isinstance(one, kind.request_type)
    ]
    return JSONResponse({kind.resource: items})

"""Requests to the user over HTTP: pending confirmations and questions of agents, and their answers."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, NotRequired

from pydantic import Field
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from typing_extensions import TypedDict

from agenticx.argument_types import is_encodable
from agenticx.errors import InvalidArguments, ToolError
from agenticx.permissions.rules import Rule
from agenticx.runtime.calls.explaining import describe_call
from agenticx.runtime.calls.validation import validate_arguments
from agenticx.runtime.user_requests.kinds import CONFIRMATION, QUESTION, RequestKind
from agenticx.runtime.user_requests.requests import (
    AnsweredBy,
    ConfirmAnswer,
    ConfirmClosed,
    ConfirmRequest,
    QuestionAnswer,
    Remember,
    UnknownConfirm,
)
from agenticx.sandbox.options import sandbox_options
from agenticx.threads import run_in_thread
from agenticx.tools.context import ToolContext
from studio.http.bodies import LARGE_BODY_BYTES, MAX_TEXT_CHARS, RequestBody, read_body
from studio.http.problems import Problem
from studio.http.queries import RequestQuery, read_query
from studio.routes.permissions import read_rules, tools_by_name
from studio.services import Services, services

__all__ = [
    "ConfirmAnswerBody",
    "ConfirmDecisionResponse",
    "ConfirmDiffResponse",
    "ConfirmListResponse",
    "QuestionAnswerBody",
    "QuestionAnswerResponse",
    "QuestionListResponse",
    "SessionFilter",
    "answer_confirm",
    "answer_question",
    "list_confirms",
    "list_questions",
    "show_diff",
]

_MAX_RULES = 100
_WHOLE_DIFF_CHARS = 4_000_000


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

    approved: bool = Field(description="true: the call may run.")
    digest: str = Field(description="The digest of the confirmation that was shown.")
    by: Literal["user", "policy"] = Field("user", description="By default `user`.")
    remember: Literal["once", "session", "always"] = Field("once", description="By default `once`.")
    arguments: dict[str, Any] | None = Field(None, description="Arguments that replace those of the call.")
    rule: dict[str, Any] | None = Field(None, description="The rule to store instead of those that are shown.")
    rules: list[dict[str, Any]] | None = Field(None, max_length=_MAX_RULES, description="Several such rules.")
    reason: str | None = Field(None, max_length=4000, description="A reason for the model.")


class QuestionAnswerBody(RequestBody):
    """The answer: one of the options or any other text; an empty one is none.

    `by` is `policy` if nobody could be asked: the model is told so.
    """

    max_bytes = LARGE_BODY_BYTES

    answer: str = Field(max_length=MAX_TEXT_CHARS, description="The answer.")
    by: Literal["user", "policy"] = Field("user", description="By default `user`.")


class ConfirmItem(TypedDict):
    """A confirmation that waits for a yes or no; `context` and `agent_path` come from `confirm_required`."""

    id: Annotated[str, Field(description="The id of the confirmation.")]
    session_id: Annotated[str, Field(description="Its session.")]
    agent_id: Annotated[str, Field(description="The agent whose call it is.")]
    question: Annotated[str, Field(description="The question as a sentence.")]
    context: Annotated[dict[str, Any], Field(description="The call and the reasons, as in `confirm_required`.")]
    digest: Annotated[str, Field(description="The digest of what is shown; an answer repeats it.")]
    expires_at: Annotated[str, Field(description="The time at which it counts as denied, in RFC 3339, UTC.")]
    agent_path: NotRequired[
        Annotated[list[str], Field(description="The agents from the main agent to the one that asks.")]
    ]


class ConfirmListResponse(TypedDict):
    confirms: Annotated[
        list[ConfirmItem], Field(description="The confirmations, in the order in which they were asked.")
    ]


class ConfirmDiffResponse(TypedDict):
    """The change of a file that waits for a yes or no, as a whole."""

    path: Annotated[str | None, Field(description="The path of the file; null if the call changes none.")]
    diff: Annotated[str | None, Field(description="The unified diff; null if the call changes no file.")]
    diff_cut: Annotated[bool, Field(description="true: it is longer than 4,000,000 characters.")]


class QuestionItem(TypedDict):
    """A question of an agent that waits for an answer; `tool_call_id` is the call that asks."""

    id: Annotated[str, Field(description="The id of the question.")]
    session_id: Annotated[str, Field(description="Its session.")]
    agent_id: Annotated[str, Field(description="The agent that asks.")]
    text: Annotated[str, Field(description="The question.")]
    options: NotRequired[Annotated[list[str], Field(description="Answers to choose from; others are possible.")]]
    expires_at: Annotated[str, Field(description="The time at which it counts as not answered, in RFC 3339, UTC.")]
    tool_call_id: NotRequired[Annotated[str, Field(description="The call that asks.")]]
    agent_path: NotRequired[
        Annotated[list[str], Field(description="The agents from the main agent to the one that asks.")]
    ]


class QuestionListResponse(TypedDict):
    questions: Annotated[list[QuestionItem], Field(description="The questions, in the order in which they were asked.")]


class ConfirmDecisionResponse(TypedDict):
    """The decision that is in effect; `rules` are those that are stored with it."""

    id: Annotated[str, Field(description="The id of the confirmation.")]
    approved: Annotated[bool, Field(description="true: the call may run.")]
    by: Annotated[AnsweredBy, Field(description="Who or what decided.")]
    remember: Annotated[Remember, Field(description="For how long a yes was stored.")]
    rules: NotRequired[Annotated[list[dict[str, Any]], Field(description="The rules that were stored.")]]
    arguments: NotRequired[
        Annotated[dict[str, Any], Field(description="The arguments with which the call runs, if they were replaced.")]
    ]
    reason: NotRequired[Annotated[str, Field(description="The reason that the model was given.")]]


class QuestionAnswerResponse(TypedDict):
    """The answer that is in effect."""

    id: Annotated[str, Field(description="The id of the question.")]
    answer: Annotated[str, Field(description="The answer.")]
    by: Annotated[AnsweredBy, Field(description="Who or what answered.")]


async def list_confirms(request: Request) -> Response:
    """List the confirmations that wait for an answer, of all sessions or one."""
    return await _list(request, CONFIRMATION)


async def show_diff(request: Request) -> Response:
    """Return the whole diff of a confirmation whose `context.diff` is cut (`diff_cut`).

    A 409 means that the file has changed since the question was asked; a yes to that one would not count.
    """
    studio, request_id = services(request), request.path_params["request_id"]
    session_id = await studio.store.catalog.session_of_request(request_id) if is_encodable(request_id) else None
    if session_id is None:
        raise UnknownConfirm(f"no confirmation has the id {request_id!r}")
    asked = next((one for one in await studio.hub.open_requests(session_id) if one.id == request_id), None)
    if not isinstance(asked, ConfirmRequest):
        raise ConfirmClosed(f"confirmation {request_id!r} does not wait any more")
    shown = ConfirmDiffResponse(
        path=asked.context.get("path"), diff=asked.diff, diff_cut=asked.context.get("diff_cut", False)
    )
    tool = tools_by_name(studio).get(asked.tool)
    if not shown["diff_cut"] or tool is None:
        return JSONResponse(shown)
    session = await studio.store.catalog.get(session_id)
    context = ToolContext(
        workspace=Path(session.workspace),
        protected_roots=studio.settings.private_paths,
        sandbox=sandbox_options(studio.settings),
        diff_chars=_WHOLE_DIFF_CHARS,
    )
    try:
        call = await run_in_thread(describe_call, tool, asked.arguments, context, name="agx diff")
    except ToolError as exc:
        raise Problem("digest_mismatch", f"The file has changed since: {exc}.") from exc
    if call.digest != asked.digest:
        raise Problem("digest_mismatch", "The file has changed since the question was asked.")
    assessment = call.assessment
    return JSONResponse(shown | {"diff": assessment.diff, "diff_cut": bool(assessment.diff_cut)})


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

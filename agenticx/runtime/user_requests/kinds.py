"""The kinds of requests to the user: confirmations, and questions of agents.

A kind reads, writes and compares its requests and answers, and names the methods of a gate that ask and decide them,
their time limit, and the errors of answers. The code that asks, limits, stores and resumes requests is the same for all
kinds.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, ClassVar, Generic, Protocol, TypeVar, cast, get_args

from agenticx.clocks import rfc3339
from agenticx.errors import AgenticXError
from agenticx.messages import clean_text
from agenticx.permissions.offers import Offer, is_narrower
from agenticx.permissions.rules import Rule, with_scope
from agenticx.runtime.events import EventType
from agenticx.runtime.user_requests.confirm_digest import jsonable
from agenticx.runtime.user_requests.requests import (
    GIVEN_BY,
    AnsweredBy,
    ConfirmAnswer,
    ConfirmClosed,
    ConfirmRequest,
    DigestMismatch,
    QuestionAnswer,
    QuestionClosed,
    QuestionRequest,
    Remember,
    RememberUnavailable,
    RuleTooWide,
    UnknownConfirm,
    UnknownQuestion,
    UserAnswer,
    UserRequest,
)
from agenticx.settings import Settings

__all__ = [
    "CONFIRMATION",
    "KINDS",
    "QUESTION",
    "AnswerT",
    "RequestGate",
    "RequestKind",
    "RequestT",
    "kind_of",
    "kind_of_event",
]

RequestT = TypeVar("RequestT", bound=UserRequest)
AnswerT = TypeVar("AnswerT", bound=UserAnswer)


class RequestGate(Protocol):
    """The methods of a `ConfirmGate` that ask the user, and return an answer that was given just before."""

    async def ask(self, request: ConfirmRequest, announce: Callable[[], None]) -> ConfirmAnswer: ...

    def decided(self, request_id: str) -> ConfirmAnswer | None: ...

    async def ask_question(self, request: QuestionRequest, announce: Callable[[], None]) -> QuestionAnswer: ...

    def answered(self, question_id: str) -> QuestionAnswer | None: ...


class RequestKind(ABC, Generic[RequestT, AnswerT]):
    """A base class of the kinds of requests.

    `request_type` and `answer_type` are the classes of its requests and answers. `resource` is the name of its route in
    the API, `/api/{resource}/{id}`, and of its list; `asked` and `answered` are the types of its events; `unknown` and
    `closed` are the errors of an answer to an unknown request and of one that comes too late. `without_answer` names
    the effect of a request without an answer. If there is a `stall_phase`, an expired request is also a `stall` event.
    """

    request_type: type[RequestT]
    answer_type: type[AnswerT]
    name: ClassVar[str]
    resource: ClassVar[str]
    asked: ClassVar[EventType]
    answered: ClassVar[EventType]
    unknown: ClassVar[type[AgenticXError]]
    closed: ClassVar[type[AgenticXError]]
    without_answer: ClassVar[str]
    stall_phase: ClassVar[str | None] = None

    @abstractmethod
    def timeout_seconds(self, settings: Settings) -> float:
        """Return the seconds until a request expires."""

    @abstractmethod
    def ask_method(self, gate: RequestGate) -> Callable[[RequestT, Callable[[], None]], Awaitable[AnswerT]]:
        """Return the method of the gate that asks a request of this kind; see `ConfirmGate.ask`."""

    @abstractmethod
    def decided(self, gate: RequestGate, request_id: str) -> AnswerT | None:
        """Return the answer that the gate got while the request was cancelled; see `ConfirmGate.decided`."""

    @abstractmethod
    def read_request(self, data: Mapping[str, Any], session_id: str, agent_id: str) -> RequestT:
        """Return the request in the payload of `asked`; `agent_id` is the agent that asks."""

    @abstractmethod
    def request_data(self, request: RequestT) -> dict[str, Any]:
        """Return the payload of `asked`."""

    @abstractmethod
    def read_answer(self, data: Mapping[str, Any]) -> AnswerT:
        """Return the answer of `answer_data`, or in the payload of `answered`."""

    @abstractmethod
    def answer_data(self, answer: AnswerT) -> dict[str, Any]:
        """Return the payload of `answered`, without the id of the request."""

    @abstractmethod
    def no_answer(self, by: AnsweredBy, reason: str | None = None) -> AnswerT:
        """Return the answer to a request that the user has not answered."""

    @abstractmethod
    def problem(self, value: object) -> str | None:
        """Return a clause that says why a gate's return value is no answer, and what it must be; None for an answer."""

    @abstractmethod
    def call_fields(self, request: RequestT) -> dict[str, Any]:
        """Return the fields of a log line that name the asking call."""

    def checked_answer(self, answer: AnswerT) -> AnswerT:
        """Return an answer of a client as it is stored; raise `TypeError` or `ValueError` if a field is wrong."""
        if answer.by not in GIVEN_BY:
            raise ValueError(f"by must be 'user' or 'policy', not {answer.by!r}")
        if (problem := self.problem(answer)) is not None:
            raise TypeError(f"answer must be a valid one, not {problem}")
        return answer

    def completed_answer(self, request: RequestT, answer: AnswerT, workspace: str) -> AnswerT:
        """Return an answer to this request with all that it stores, for calls in this workspace.

        Raises an `AgenticXError` for one that cannot count.
        """
        return answer

    def answer_body(self, answer: AnswerT, digest: str) -> dict[str, Any]:
        """Return the body of a request to the API that gives an answer."""
        return self.answer_data(answer)

    def is_same(self, left: AnswerT, right: AnswerT) -> bool:
        """Return whether one answer repeats the other."""
        return left == right

    def check_digest(self, request_id: str, digest: str, given: str) -> None:
        """Raise `DigestMismatch` unless the digest `given` with an answer is the request's."""
        if given != digest:
            raise DigestMismatch(f"the digest is not the one of {self.name} {request_id!r}; read the request again")

    def effective_answer(self, request_id: str, first: AnswerT | None, given: AnswerT) -> AnswerT:
        """Return the `first` answer to a request if the answer `given` now is the same.

        Raises the error `closed` for any other answer, and if the request was closed without one.
        """
        if first is None or not self.is_same(first, given):
            raise self.closed(f"{self.name} {request_id!r} is closed: it was answered, it expired, or its turn ended")
        return first

    def unknown_id(self, request_id: str, *, in_session: bool = False) -> AgenticXError:
        """Return the error for an answer to a request that is unknown, or not `in_session`."""
        where = " of this session" if in_session else ""
        return self.unknown(f"no {self.name}{where} has the id {request_id!r}")


class _Confirmation(RequestKind[ConfirmRequest, ConfirmAnswer]):
    """The request to confirm a call; without an answer the call is denied."""

    request_type, answer_type = ConfirmRequest, ConfirmAnswer
    name, resource = "confirmation", "confirms"
    asked, answered = EventType.CONFIRM_REQUIRED, EventType.CONFIRM_RESPONSE
    unknown, closed = UnknownConfirm, ConfirmClosed
    without_answer = "the call is denied"
    stall_phase = "confirm"

    def timeout_seconds(self, settings: Settings) -> float:
        return settings.confirm_timeout_seconds

    def ask_method(self, gate: RequestGate) -> Callable[[ConfirmRequest, Callable[[], None]], Awaitable[ConfirmAnswer]]:
        return gate.ask

    def decided(self, gate: RequestGate, request_id: str) -> ConfirmAnswer | None:
        return gate.decided(request_id)

    def read_request(self, data: Mapping[str, Any], session_id: str, agent_id: str) -> ConfirmRequest:
        own = {"question": data["question"], "context": data["context"], "digest": data["digest"]}
        return ConfirmRequest(**own, **_common_fields(data, session_id, agent_id))

    def request_data(self, request: ConfirmRequest) -> dict[str, Any]:
        data = {
            "id": request.id,
            "question": request.question,
            "context": dict(request.context),
            "digest": request.digest,
            "expires_at": rfc3339(request.expires_at),
        }
        return data | _agent_path(request)

    def read_answer(self, data: Mapping[str, Any]) -> ConfirmAnswer:
        return ConfirmAnswer(
            approved=data["approved"],
            by=data.get("by", "user"),
            remember=data.get("remember", "once"),
            arguments=data.get("arguments"),
            reason=data.get("reason"),
            rules=tuple(map(Rule.model_validate, data.get("rules", ()))),
        )

    def answer_data(self, answer: ConfirmAnswer) -> dict[str, Any]:
        data: dict[str, Any] = {"approved": answer.approved, "by": answer.by}
        if answer.by == "user" or answer.remember != "once":
            data["remember"] = answer.remember
        if answer.rules:
            data["rules"] = [rule.to_json() for rule in answer.rules]
        if answer.arguments is not None:
            data["arguments"] = jsonable(answer.arguments)
        if answer.reason is not None:
            data["reason"] = answer.reason
        return data

    def no_answer(self, by: AnsweredBy, reason: str | None = None) -> ConfirmAnswer:
        return ConfirmAnswer(approved=False, by=by, reason=reason)

    def problem(self, value: object) -> str | None:
        if not isinstance(value, ConfirmAnswer):
            return f"{type(value).__name__}; it must return a ConfirmAnswer"
        answer: Any = value  # made by user code, with values of any type
        return _wrong_field(
            answer,
            {
                "approved": (isinstance(answer.approved, bool), "True or False"),
                "by": (answer.by in get_args(AnsweredBy), "one of " + ", ".join(get_args(AnsweredBy))),
                "remember": (answer.remember in get_args(Remember), "one of " + ", ".join(get_args(Remember))),
                "arguments": (answer.arguments is None or isinstance(answer.arguments, Mapping), "a mapping or None"),
                "rules": (_is_rules(answer.rules), "a tuple of rules"),
                "reason": (answer.reason is None or isinstance(answer.reason, str), "a text or None"),
            },
        )

    def call_fields(self, request: ConfirmRequest) -> dict[str, Any]:
        return {"tool_name": request.context.get("tool"), "call_id": request.context.get("tool_call_id")}

    def answer_body(self, answer: ConfirmAnswer, digest: str) -> dict[str, Any]:
        return self.answer_data(answer) | {"digest": digest}

    def completed_answer(self, request: ConfirmRequest, answer: ConfirmAnswer, workspace: str) -> ConfirmAnswer:
        """Return the answer with the rules that it stores.

        Without rules of its own it stores those that the request shows. Only those of its kind are known here of a call
        whose arguments it replaces. Raises `RememberUnavailable` and `RuleTooWide`.
        """
        if not answer.approved or (answer.remember == "once" and not answer.rules):
            return replace(answer, remember="once", rules=())
        if answer.remember == "once":
            raise RuleTooWide("a rule is stored with remember 'session' or 'always', not with 'once'")
        offer = Offer(tuple(request.rules), request.exact_rule)
        if not offer.shown:
            raise RememberUnavailable(
                f"a call like this is asked about each time ({request.decided_by or 'no rule covers it'}): "
                "answer with remember 'once'"
            )
        for rule in answer.rules:
            if not is_narrower(rule, offer):
                shown = ", ".join(str(one) for one in offer.shown)
                raise RuleTooWide(f"the rule {rule} covers more than was shown: {shown}")
        chosen = answer.rules or (offer.shown if answer.arguments is None else ())
        return replace(answer, rules=tuple(_as_stored(rule, answer.remember, workspace) for rule in chosen))

    def is_same(self, left: ConfirmAnswer, right: ConfirmAnswer) -> bool:
        return replace(left, reason=None) == replace(right, reason=None)


class _Question(RequestKind[QuestionRequest, QuestionAnswer]):
    """The question of an agent; without an answer the model is told why there is none."""

    request_type, answer_type = QuestionRequest, QuestionAnswer
    name, resource = "question", "questions"
    asked, answered = EventType.QUESTION_ASKED, EventType.QUESTION_ANSWERED
    unknown, closed = UnknownQuestion, QuestionClosed
    without_answer = "the question has no answer"

    def timeout_seconds(self, settings: Settings) -> float:
        return settings.question_timeout_seconds

    def ask_method(
        self, gate: RequestGate
    ) -> Callable[[QuestionRequest, Callable[[], None]], Awaitable[QuestionAnswer]]:
        return gate.ask_question

    def decided(self, gate: RequestGate, request_id: str) -> QuestionAnswer | None:
        return gate.answered(request_id)

    def read_request(self, data: Mapping[str, Any], session_id: str, agent_id: str) -> QuestionRequest:
        return QuestionRequest(
            text=data["text"],
            options=tuple(data.get("options", ())),
            tool_call_id=data.get("tool_call_id", ""),
            **_common_fields(data, session_id, agent_id),
        )

    def request_data(self, request: QuestionRequest) -> dict[str, Any]:
        data: dict[str, Any] = {"id": request.id, "text": request.text}
        if request.options:
            data["options"] = list(request.options)
        data["expires_at"] = rfc3339(request.expires_at)
        if request.tool_call_id:
            data["tool_call_id"] = request.tool_call_id
        return data | _agent_path(request)

    def read_answer(self, data: Mapping[str, Any]) -> QuestionAnswer:
        return QuestionAnswer(answer=data["answer"], by=data["by"])

    def answer_data(self, answer: QuestionAnswer) -> dict[str, Any]:
        return {"answer": clean_text(answer.answer), "by": answer.by}

    def no_answer(self, by: AnsweredBy, reason: str | None = None) -> QuestionAnswer:
        return QuestionAnswer(by=by)

    def problem(self, value: object) -> str | None:
        if not isinstance(value, QuestionAnswer):
            return f"{type(value).__name__}; it must return a QuestionAnswer"
        answer: Any = value
        return _wrong_field(
            answer,
            {
                "answer": (isinstance(answer.answer, str), "a text"),
                "by": (answer.by in get_args(AnsweredBy), "one of " + ", ".join(get_args(AnsweredBy))),
            },
        )

    def call_fields(self, request: QuestionRequest) -> dict[str, Any]:
        return {"call_id": request.tool_call_id}

    def checked_answer(self, answer: QuestionAnswer) -> QuestionAnswer:
        return replace(super().checked_answer(answer), answer=clean_text(answer.answer))


CONFIRMATION, QUESTION = _Confirmation(), _Question()

KINDS: Mapping[str, RequestKind[Any, Any]] = {kind.name: kind for kind in (CONFIRMATION, QUESTION)}
"""The kinds by name."""

_KINDS_BY_EVENT: Mapping[str, RequestKind[Any, Any]] = {
    type_: kind for kind in KINDS.values() for type_ in (kind.asked, kind.answered)
}


def kind_of(one: UserRequest | UserAnswer) -> RequestKind[Any, Any]:
    """Return the kind of a request or an answer."""
    return next(kind for kind in KINDS.values() if isinstance(one, kind.request_type | kind.answer_type))


def kind_of_event(type_: str) -> RequestKind[Any, Any]:
    """Return the kind of request that an event of that type, one of `REQUEST_EVENTS`, asks or answers."""
    return _KINDS_BY_EVENT[type_]


def _common_fields(data: Mapping[str, Any], session_id: str, agent_id: str) -> dict[str, Any]:
    return {
        "id": data["id"],
        "expires_at": datetime.fromisoformat(data["expires_at"]),
        "session_id": session_id,
        "agent_id": agent_id,
        "agent_path": tuple(data.get("agent_path", ())),
    }


def _as_stored(rule: Rule, remember: Remember, workspace: str) -> Rule:
    if remember == "session":
        return with_scope(rule, "session", None)
    return with_scope(rule, "user" if rule.scope == "user" else "workspace", workspace)


def _is_rules(value: object) -> bool:
    return isinstance(value, tuple) and all(isinstance(one, Rule) for one in cast("Sequence[object]", value))


def _wrong_field(answer: object, expected: Mapping[str, tuple[bool, str]]) -> str | None:
    for name, (is_valid, right) in expected.items():
        if not is_valid:
            return f"an answer whose {name} is {type(getattr(answer, name)).__name__}; it must be {right}"
    return None


def _agent_path(request: UserRequest) -> dict[str, Any]:
    return {"agent_path": list(request.agent_path)} if request.agent_path else {}

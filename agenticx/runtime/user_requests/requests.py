"""Requests to the user: confirmations of calls and questions of agents, their answers and errors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, get_args

from agenticx.call_errors import explain_calls
from agenticx.errors import AgenticXError
from agenticx.messages import MAIN_AGENT
from agenticx.permissions.rules import Rule
from agenticx.tools.base import Risk

__all__ = [
    "ASKED_ANEW",
    "GIVEN_BY",
    "AnsweredBy",
    "ConfirmAnswer",
    "ConfirmClosed",
    "ConfirmRequest",
    "DigestMismatch",
    "QuestionAnswer",
    "QuestionClosed",
    "QuestionRequest",
    "Remember",
    "RememberUnavailable",
    "RuleTooWide",
    "UnknownConfirm",
    "UnknownQuestion",
    "UserAnswer",
    "UserRequest",
]

AnsweredBy = Literal["user", "policy", "timeout", "stop", "restart"]

GIVEN_BY: tuple[AnsweredBy, ...] = ("user", "policy")
"""The values of `by` in answers that were given; a request with another one was closed without an answer."""

ASKED_ANEW = "The reasons for the question have changed: it is asked anew."
"""The reason in the answer that closes a confirmation in favour of another one about the same call."""

Remember = Literal["once", "session", "always"]


class UnknownConfirm(AgenticXError):
    """Raised when no confirmation has that id (in that session)."""


class DigestMismatch(AgenticXError):
    """Raised when the digest of an answer is not the request's."""


class ConfirmClosed(AgenticXError):
    """Raised when the confirmation was already answered otherwise, has expired, or its turn was stopped."""


class RememberUnavailable(AgenticXError):
    """Raised for an answer that is to be remembered where the confirmation offers nothing that can be stored."""


class RuleTooWide(AgenticXError):
    """Raised for an answer with a rule that covers more than the confirmation shows, or that cannot be stored."""


class UnknownQuestion(AgenticXError):
    """Raised when no question of an agent has that id (in that session)."""


class QuestionClosed(AgenticXError):
    """Raised when the question was already answered otherwise, has expired, or its turn was stopped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfirmRequest:
    """A request to confirm a call.

    `tool`, `arguments`, `risk`, `reasons`, `decided_by` and, where it has them, `command`, `path` and `diff` describe
    the call; `rules` and `exact_rule` are what a yes can store. All are in `context`, the payload of
    `confirm_required.context`. `arguments` are those that the model gave, without the defaults of the function:
    `request.arguments.get("n", 1)` reads one that the model may leave out. `digest` covers the tool, its arguments and
    all that the tool's assessment bound them to (`confirm_digest`), but not the other keys of `context`. `agent_path`
    has the ids of the agents from the turn at the top to the one that asks; it is empty for the turn at the top.
    """

    id: str
    question: str
    context: Mapping[str, Any]
    digest: str
    expires_at: datetime
    session_id: str = ""
    agent_id: str = MAIN_AGENT
    agent_path: tuple[str, ...] = ()

    @property
    def tool_call_id(self) -> str:
        """The id of the call that asks, "" outside of turns."""
        return self.context.get("tool_call_id", "")

    @property
    def tool(self) -> str:
        """The name of the tool, "" outside of turns."""
        return self.context.get("tool", "")

    @property
    def arguments(self) -> Mapping[str, Any]:
        """The arguments that the model gave, as JSON values; the function's defaults are not among them."""
        return self.context.get("arguments", {})

    @property
    def risk(self) -> Risk:
        """The effect of the call: "read", "write" or "execute"."""
        return self.context.get("risk", "execute")

    @property
    def reasons(self) -> Sequence[str]:
        """Sentences about the call that help to decide."""
        return self.context.get("reasons", ())

    @property
    def decided_by(self) -> str:
        """The reason to ask (`Verdict.decided_by`), "" outside of turns."""
        return self.context.get("decided_by", "")

    @property
    def rules(self) -> Sequence[Rule]:
        """The rules that together cover the call with others of its kind; empty if there are none to offer."""
        return tuple(map(Rule.model_validate, self.context.get("rules", ())))

    @property
    def exact_rule(self) -> Rule | None:
        """The rule that covers exactly this call, None if there is none."""
        rule = self.context.get("exact_rule")
        return None if rule is None else Rule.model_validate(rule)

    @property
    def command(self) -> str | None:
        """The command that would run, None if the call runs none."""
        return self.context.get("command")

    @property
    def path(self) -> str | None:
        """The file that would change, None if the call names none."""
        return self.context.get("path")

    @property
    def diff(self) -> str | None:
        """The change of that file, None if there is none to show."""
        return self.context.get("diff")


@explain_calls
@dataclass(frozen=True, slots=True, kw_only=True)
class ConfirmAnswer:
    """A decision. `arguments` replaces the call's own; they are validated and assessed again.

    With `remember` `"session"` the rules that the request offers are stored for the session, with `"always"` for its
    workspace; calls that they cover are not asked about any more. `rules` are stored instead of those, if they cover no
    more; one of scope user holds in all workspaces. With `arguments`, of which no rule was shown, only `rules` are
    stored. Raises `ValueError` for another word.
    """

    approved: bool
    by: AnsweredBy = "user"
    remember: Remember = "once"
    arguments: Mapping[str, Any] | None = None
    reason: str | None = None
    rules: tuple[Rule, ...] = ()

    def __post_init__(self) -> None:
        remember: Any = self.remember  # of a value of another type the gate's caller says so
        if isinstance(remember, str) and remember not in get_args(Remember):
            raise ValueError(f"remember must be 'once', 'session' or 'always', not {remember!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionRequest:
    """A question of the agent to the user, who may choose one of `options` or answer in other words.

    `tool_call_id` is the call that asks, "" for the work of a turn. `agent_path` has the ids of the agents from the
    main one to the one that asks, if that is another.
    """

    id: str
    text: str
    options: tuple[str, ...] = ()
    expires_at: datetime
    session_id: str = ""
    agent_id: str = MAIN_AGENT
    tool_call_id: str = ""
    agent_path: tuple[str, ...] = ()

    @property
    def digest(self) -> str:
        """The digest of a question is "": its answer runs nothing."""
        return ""


@explain_calls
@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionAnswer:
    """The user's answer; an empty one is none, for the reason that `by` names.

    `by` is `policy` if nobody could be asked.
    """

    answer: str = ""
    by: AnsweredBy = "user"


UserRequest = ConfirmRequest | QuestionRequest
"""A request to the user: it has an id, a digest, an expiry, and one answer, of the same kind."""

UserAnswer = ConfirmAnswer | QuestionAnswer

"""A question of the agent to the user (`ask_user`): the request, and the answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from agenticx.errors import AgenticXError

__all__ = [
    "AnsweredBy",
    "QuestionAnswer",
    "QuestionClosed",
    "QuestionRequest",
    "UnknownQuestion",
    "answer_text",
    "parse_choice",
]

AnsweredBy = Literal["user", "policy", "timeout", "stop", "restart"]


class UnknownQuestion(AgenticXError):
    """Raised when no question of an agent has that id (in that session)."""


class QuestionClosed(AgenticXError):
    """Raised when the question was already answered otherwise, has expired, or its turn was stopped."""


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
    agent_id: str = "meta"
    tool_call_id: str = ""
    agent_path: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionAnswer:
    """The user's answer; an empty one is none, for the reason that `by` names.

    `by` is `policy` if nobody could be asked.
    """

    answer: str = ""
    by: AnsweredBy = "user"


def answer_text(answer: QuestionAnswer) -> str:
    """Return the result of the call that asked."""
    return answer.answer or _NO_ANSWER[answer.by]


_NO_ANSWER: dict[AnsweredBy, str] = {
    "user": "No answer: the user did not want to give one.",
    "policy": "No answer: nobody can be asked now. Go on without it, or say in your reply what you need to know.",
    "timeout": "No answer: none was given in time. Go on without it, or say in your reply what you need to know.",
    "stop": "No answer: the turn was stopped.",
    "restart": "No answer: the program was restarted before one was given.",
}


def parse_choice(line: str, options: Sequence[str]) -> str:
    """Return the answer in a line that the user typed: the option of that number, else the line itself.

    >>> parse_choice(" 2 ", ["red", "blue"]), parse_choice("neither", ["red", "blue"]), parse_choice("3", [])
    ('blue', 'neither', '3')
    """
    text = line.strip()
    number = int(text) if text.isascii() and text.isdecimal() and len(text) < _MAX_DIGITS else 0
    return options[number - 1] if 0 < number <= len(options) else text


_MAX_DIGITS = 10

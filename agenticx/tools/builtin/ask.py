"""The tool for questions of the agent to the user."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field

from agenticx.errors import ToolError
from agenticx.tools.base import Assessment, UserQuestion
from agenticx.tools.context import ToolContext
from agenticx.tools.registry import tool

__all__ = ["ask_user"]

_MAX_TEXT_CHARS = 10_000
_MAX_OPTIONS = 20
_MAX_OPTION_CHARS = 500


def _assess(arguments: Mapping[str, Any], _context: ToolContext) -> Assessment:
    question = UserQuestion(arguments["text"], tuple(arguments.get("options") or ()))
    return Assessment(risk="read", reasons=("ask_user only asks.",), asks=question)


@tool(risk="read", read_only=False, parallel=True, assess=_assess)
async def ask_user(
    text: Annotated[str, Field(min_length=1, max_length=_MAX_TEXT_CHARS)],
    options: Annotated[
        list[Annotated[str, Field(min_length=1, max_length=_MAX_OPTION_CHARS)]], Field(max_length=_MAX_OPTIONS)
    ]
    | None = None,
) -> str:
    """Ask the user a question and wait for the answer, for what only they can know or decide.

    Args:
        text: The question.
        options: Possible answers; the user may also give another one.
    """
    raise ToolError("only a turn can ask the user")

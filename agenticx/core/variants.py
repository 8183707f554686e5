"""The tools for several versions of a page: make options of the user's message, and look at one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Annotated, Any

from pydantic import Field

from agenticx.errors import SettingsError, ToolError
from agenticx.runtime import current_turn
from agenticx.runtime.budgets.budget import BudgetExceeded
from agenticx.runtime.options import DEFAULT_COUNT, MAX_OPTIONS, MIN_OPTIONS, check_variants, run_options
from agenticx.runtime.turn_agent import ToolResult
from agenticx.sessions.files.options import UnknownOption, find_option
from agenticx.tools.artifacts.files import is_image_type
from agenticx.tools.base import Assessment
from agenticx.tools.context import ToolContext
from agenticx.tools.registry import FunctionTool, tool
from agenticx.untrusted_text import MATERIAL, frame_text, one_line

__all__ = ["variant_tools"]

_SECONDS = 24 * 3_600.0  # the options have limits of their own
_MAX_FILE_CHARS = 60_000

Count = Annotated[int, Field(ge=MIN_OPTIONS, le=MAX_OPTIONS)]
Models = Annotated[list[str], Field(min_length=MIN_OPTIONS, max_length=MAX_OPTIONS)]


def _variants(count: int | None, models: Sequence[str] | None) -> int | Sequence[str]:
    if models is None:
        return DEFAULT_COUNT if count is None else count
    if count is not None and count != len(models):
        raise ToolError(f"count is {count}, but {len(models)} models are given; give one of the two")
    return models


def _assess(arguments: Mapping[str, Any], _context: ToolContext) -> Assessment:
    variants = _variants(arguments.get("count"), arguments.get("models"))
    count = variants if isinstance(variants, int) else len(variants)
    names = "" if isinstance(variants, int) else f" with {', '.join(map(one_line, variants))}"
    return Assessment(
        risk="execute",
        question=f"Make {count} versions at once{names}?",
        reasons=(f"Each is made by a turn of its own: together they cost about {count} times as much as one answer.",),
    )


@tool(risk="execute", assess=_assess, timeout=_SECONDS)
async def run_variants(
    context: ToolContext, count: Count | None = None, models: Models | None = None, prompt: str | None = None
) -> ToolResult:
    """Make several versions of what the user asks for, so that they pick one. It ends your turn with a list of them.

    Each version is made by an agent with your instructions and tools, from the files as they are now. Only for users
    who ask for several versions: it costs as much as so many answers.

    Args:
        count: How many versions, 3 by default.
        models: The names of the models that make them, one for each version, instead of a count.
        prompt: What to make, instead of the user's message.
    """
    turn = current_turn()
    if turn is None:
        raise ToolError("versions are made in a turn only")
    variants = _variants(count, models)
    try:
        check_variants(variants)
        text = await run_options(turn, variants, prompt)
    except (SettingsError, BudgetExceeded) as exc:
        raise ToolError(str(exc)) from exc
    return ToolResult(text=text, ending="answer", answer=text)


@tool(risk="read")
async def retrieve_option(option_number: Annotated[int, Field(ge=1)], context: ToolContext) -> str:
    """Return the files and the answer of a version that was made with run_variants, picked or not.

    Args:
        option_number: The number of the version, from 1 on.
    """
    turn = current_turn()
    try:
        option = find_option([] if turn is None else turn.lineage.root.session.options, option_number)
    except UnknownOption as exc:
        raise ToolError(str(exc)) from exc
    parts = [f"Option {option.number} ({one_line(option.model)}): {option.text or 'it has no answer.'}"]
    for artifact in option.artifacts.listed():
        if is_image_type(artifact.media_type):
            parts.append(f"{one_line(artifact.path)}: an image of {artifact.size:,} bytes")
            continue
        text = (await option.artifacts.read(artifact)).decode()
        cut = "" if len(text) <= _MAX_FILE_CHARS else f"\n[{len(text) - _MAX_FILE_CHARS:,} more characters]"
        parts.append(frame_text(f"{artifact.path} of option {option.number}", text[:_MAX_FILE_CHARS] + cut, MATERIAL))
    return "\n\n".join(parts)


@cache
def variant_tools() -> Sequence[FunctionTool]:
    """Return the tools for several versions."""
    return (run_variants, retrieve_option)

"""Assessment of a call: the tool's code says what the call would do, and a digest binds a confirmation to that."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from agenticx import user_code
from agenticx.errors import AgenticXError, InvalidArguments, ToolError
from agenticx.messages import ToolOutcome
from agenticx.permissions.rules import Call
from agenticx.runtime.calls.validation import CallRefused
from agenticx.runtime.turn import Turn
from agenticx.runtime.user_requests.confirm_digest import confirm_digest, jsonable
from agenticx.tools.assessments import checked_assessment
from agenticx.tools.base import Assessment, Tool
from agenticx.tools.context import ToolContext
from agenticx.tools.critical_folders import assess_deletion, names_deletion
from agenticx.tools.registry import FunctionTool

__all__ = ["CallAssessor", "bind_call"]


@dataclass(frozen=True, slots=True)
class CallAssessor:
    """The assessment of a call, as often as it is needed: before the user is asked, and before the call runs.

    The tool's code runs in a thread that a stop abandons; its errors are raised as `CallRefused`.
    """

    turn: Turn
    tool: Tool
    context: ToolContext

    async def assess(self, arguments: Mapping[str, Any]) -> Assessment:
        """Return the tool's assessment; raise `CallRefused` if it fails or returns anything else.

        A function without an assessor has its declared risk. If the name of a tool says that it deletes, and it would
        delete a whole important folder, it is asked about like a protected path.
        """
        tool, context = self.tool, self.context
        name = tool.schema.name
        if isinstance(tool, FunctionTool) and tool.assessor is None:
            assessment = tool.assess(arguments, context)
        else:
            what = f"the assessment of tool {name!r}"
            given: object = await self._in_thread(tool.assess, arguments, context, what=what)
            try:
                assessment = checked_assessment(given, name)
            except ToolError as exc:
                raise CallRefused(str(exc), "error") from exc
        is_unasked = assessment.undeclared and not self.turn.permissions.gate.is_given
        if is_unasked or not names_deletion(name):
            return assessment
        what = f"the paths of tool {name!r}"
        return await self._in_thread(assess_deletion, assessment, name, arguments, context.workspace, what=what)

    async def bind(self, call: Call) -> Call:
        """Return the call with its arguments as JSON, and the digest of all that a confirmation of it covers."""
        if call.digest:
            return call
        bound: Call = await self._in_thread(bind_call, call, what=f"the confirmation of tool {call.tool!r}")
        return bound

    async def _in_thread(self, function: Callable[..., Any], /, *args: Any, what: str) -> Any:
        turn = self.turn
        try:
            limit = turn.clock.real(turn.settings.tool_timeout_seconds)
            return await user_code.call(function, *args, what=what, limit=limit)
        except AgenticXError as exc:
            outcome: ToolOutcome = "invalid_arguments" if isinstance(exc, InvalidArguments) else "error"
            raise CallRefused(str(exc), outcome, exc.sources if isinstance(exc, ToolError) else ()) from exc


def bind_call(call: Call) -> Call:
    """Return the call with its arguments as JSON and its digest; raise `ToolError` if what it binds is not JSON."""
    try:
        arguments = jsonable(call.arguments)
        digest = confirm_digest(call.tool, arguments, call.assessment.binding)
    except (TypeError, ValueError, RecursionError) as exc:
        raise ToolError(f"the assessment of tool {call.tool!r} has a binding that is not JSON: {exc}") from exc
    return replace(call, arguments=arguments, digest=digest)

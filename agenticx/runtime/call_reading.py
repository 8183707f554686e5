"""The calls of a reply, read: known tool, arguments that parse and fit, or the answer that the call gets instead."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from agenticx import foreign
from agenticx.errors import AgenticXError, InvalidArguments
from agenticx.llms.arguments import check_value_count, parse_arguments, repair_arguments
from agenticx.messages import ToolCall, ToolOutcome
from agenticx.runtime.output import Verdict
from agenticx.runtime.tool_output import jsonable
from agenticx.runtime.turn import Turn
from agenticx.threads import run_in_thread
from agenticx.tools.base import Tool, is_parallel
from agenticx.tools.fitting import fit

__all__ = ["CallOutcome", "PendingCall", "Validated", "read_call", "validated"]

CUT = "The answer broke off or was cut by its limit, so this call may be incomplete and was not run; make it again."

_READ_AT_ONCE = 2 * 1024
"""Characters of arguments that are read on the event loop; longer ones are read in a thread."""


@dataclass(frozen=True, slots=True)
class CallOutcome:
    """How one call was answered."""

    text: str
    outcome: ToolOutcome = "ok"
    truncated: bool = False


@dataclass(frozen=True, slots=True)
class Validated:
    """Arguments as a tool takes them; `repaired` tells that they are not quite what was sent."""

    arguments: dict[str, Any]
    repaired: bool = False


@dataclass(slots=True)
class PendingCall:
    """One call on its way.

    `said` are its arguments as the model wrote them: the object, or the text where that does not parse. `arguments` are
    those of a call that may run, `problem` is the answer of one that may not; before it is read a call has neither.
    `value` is what the tool returned and `outcome` what the hooks left of it, both kept even if nobody waits for them
    any more; `partial` is what a tool gave when it was cancelled. `failure` is an error of the engine's own in what the
    tool asked of it: it ends the turn, whatever the tool made of it.
    """

    call: ToolCall
    said: Any
    tool: Tool | None = None
    arguments: dict[str, Any] | None = None
    problem: CallOutcome | None = None
    repaired: bool = False
    started: float | None = None
    ended: float | None = None
    value: list[object] = field(default_factory=list[object])
    partial: list[object] = field(default_factory=list[object])
    outcome: CallOutcome | None = None
    failure: AgenticXError | None = None
    over: bool = False

    @property
    def parallel(self) -> bool:
        return self.problem is not None or (self.tool is not None and is_parallel(self.tool))


async def read_call(turn: Turn, one: PendingCall, *, cut: bool, verdict: Verdict | None = None) -> None:
    """Fill in what comes of reading the call; a `verdict` is the answer of a call that nobody runs."""
    if len(one.call.arguments) > _READ_AT_ONCE:
        await run_in_thread(_read, turn, one, cut, verdict, name="agx reading a call")
    else:
        _read(turn, one, cut, verdict)


def _read(turn: Turn, one: PendingCall, cut: bool, verdict: Verdict | None) -> None:
    malformed: InvalidArguments | None = None
    try:
        one.said = parse_arguments(one.call.arguments)
    except InvalidArguments as exc:
        malformed = exc
    if verdict is not None:
        one.problem = CallOutcome(verdict.text, verdict.outcome)
        return
    one.tool = turn.tools.find(one.call.name)
    if one.tool is None:
        one.problem = _unknown_tool(turn, one.call)
    elif cut:
        one.problem = CallOutcome(CUT, "invalid_arguments")
    else:
        try:
            sent = one.said if malformed is None else _repaired(one.tool, one.call, malformed)
            taken = validated(one.tool, sent)
        except InvalidArguments as exc:
            one.problem = CallOutcome(f"Invalid arguments: {exc}", "invalid_arguments")
        else:
            one.arguments, one.repaired = taken.arguments, taken.repaired or malformed is not None


def _repaired(tool: Tool, call: ToolCall, malformed: InvalidArguments) -> dict[str, Any]:
    """The arguments that a malformed text most likely means, for a tool that only reads; else raises `malformed`."""
    if not tool.read_only:
        raise malformed
    try:
        return repair_arguments(call.arguments)
    except InvalidArguments:
        raise malformed from None


def _unknown_tool(turn: Turn, call: ToolCall) -> CallOutcome:
    known = ", ".join([*turn.tools.names, *turn.output.tool_names]) or "none"
    return CallOutcome(f"unknown tool {call.name!r}; known tools: {known}", "unknown_tool")


def validated(tool: Tool, arguments: Mapping[str, Any]) -> Validated:
    """Return what the tool's own validation makes of the arguments, numbers in another form converted if need be.

    Raises `InvalidArguments`, whatever that validation does.
    """
    check_value_count(arguments)
    try:
        return Validated(_validate(tool, arguments))
    except InvalidArguments:
        fitted, changed = fit(tool.schema.parameters, dict(arguments))
        if not changed:
            raise
    return Validated(_validate(tool, fitted), repaired=True)


def _validate(tool: Tool, arguments: Mapping[str, Any]) -> dict[str, Any]:
    what = f"the validation of tool {tool.schema.name!r}"
    try:
        value: object = foreign.call_now(tool.validate, arguments, what=what)
        if not isinstance(value, dict):
            raise InvalidArguments(f"{what} returned {type(value).__name__}, not a dict")
        foreign.call_now(jsonable, value, what=what)  # events, questions and digests are made of it
    except InvalidArguments:
        raise
    except AgenticXError as exc:
        raise InvalidArguments(str(exc)) from exc
    return cast("dict[str, Any]", value)

"""Parsing and validation of a reply's calls, and the answers to calls that cannot run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, Final, cast

from agenticx import user_code
from agenticx.attachments import Attachment
from agenticx.errors import AgenticXError, InvalidArguments
from agenticx.llms.arguments import check_value_count, parse_arguments, repair_arguments
from agenticx.messages import ToolCall, ToolOutcome
from agenticx.permissions.rules import Rule
from agenticx.runtime.structured_output import OutputCallResult
from agenticx.runtime.turn import Turn
from agenticx.runtime.turn_agent import ToolResult
from agenticx.runtime.user_requests.confirm_digest import jsonable
from agenticx.threads import run_in_thread
from agenticx.tools.base import Risk, Tool, is_parallel
from agenticx.tools.coercion import coerce_numbers
from agenticx.tools.result_data import ResultDetails

__all__ = [
    "NO_VALUE",
    "CallOutcome",
    "CallRefused",
    "PendingCall",
    "ValidatedArguments",
    "read_call",
    "validate_arguments",
]

_CUT = "The answer broke off or was cut by its limit, so this call may be incomplete and was not run; make it again."

NO_VALUE: Final = object()
"""The return value of a tool that has returned none yet, which may be None."""

_MAX_CHARS_ON_LOOP = 2 * 1024
"""Characters of arguments that are parsed on the event loop; longer ones are parsed in a thread."""


class CallRefused(AgenticXError):
    """Raised when the call may not run; the model reads the message, `outcome` is the outcome of its result.

    `sources` name the texts of others that the message quotes.
    """

    def __init__(self, message: str, outcome: ToolOutcome, sources: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.outcome: ToolOutcome = outcome
        self.sources = tuple(sources)


@dataclass(frozen=True, slots=True)
class CallOutcome:
    """The answer of one call.

    `effect` is a result that may change the turn, `sources` name untrusted texts in the result, `attachments` are its
    images and files, and `details` are for clients.
    """

    text: str
    outcome: ToolOutcome = "ok"
    _: KW_ONLY
    truncated: bool = False
    effect: ToolResult | None = None
    sources: tuple[str, ...] = ()
    attachments: tuple[Attachment, ...] = ()
    details: ResultDetails | None = None


@dataclass(frozen=True, slots=True)
class ValidatedArguments:
    """Arguments as a tool accepts them; `repaired` is true if they differ from what the model sent.

    `risk` is the risk of the call that was permitted. `edited` are the arguments as the user gave them, if they differ
    from those that were shown. `rules` are those of the user that allowed the call, so that nobody was asked.
    """

    arguments: dict[str, Any]
    repaired: bool = False
    edited: Mapping[str, Any] | None = None
    risk: Risk = "execute"
    rules: tuple[Rule, ...] = ()


@dataclass(slots=True)
class PendingCall:
    """One call and the state of its execution.

    - `parsed_arguments` are its arguments as the model wrote them: the object, or the text if that does not parse.
    - `arguments` are the validated arguments of a call that may run, and `problem` is the answer of a call that may
      not; both are None until the call is read.
    - `edited` are the arguments with which the user let the call run, if they are other ones.
    - `rules` are those of the user that allowed the call.
    - `value` is the return value of the tool, and `outcome` is the result after the hooks; both are kept even if
      nothing waits for them any more. `partial` is the return value of a tool that was cancelled.
    - `failure` is an error of the engine in a service that the tool called: it ends the turn, even if the tool catches
      it.
    - A `closed` call emits no more events.
    """

    call: ToolCall
    parsed_arguments: Any
    tool: Tool | None = None
    arguments: dict[str, Any] | None = None
    problem: CallOutcome | None = None
    repaired: bool = False
    edited: Mapping[str, Any] | None = None
    rules: tuple[Rule, ...] = ()
    started: float | None = None
    ended: float | None = None
    value: object = NO_VALUE
    partial: object = NO_VALUE
    outcome: CallOutcome | None = None
    failure: AgenticXError | None = None
    closed: bool = False

    def keep(self, value: object, *, late: bool) -> None:
        """Keep the return value of the tool as `value`, or as `partial` if it is `late`, after a cancellation."""
        if late:
            self.partial = value
        else:
            self.value = value

    @property
    def parallel(self) -> bool:
        return self.problem is not None or (self.tool is not None and is_parallel(self.tool))


async def read_call(
    turn: Turn, pending: PendingCall, *, cut: bool, output_result: OutputCallResult | None = None
) -> None:
    """Parse and validate the call and fill in its fields; `output_result` answers a call that no tool runs."""
    if len(pending.call.arguments) > _MAX_CHARS_ON_LOOP:
        await run_in_thread(_read, turn, pending, cut, output_result, name="agx reading a call")
    else:
        _read(turn, pending, cut, output_result)


def _read(turn: Turn, pending: PendingCall, cut: bool, output_result: OutputCallResult | None) -> None:
    malformed: InvalidArguments | None = None
    try:
        pending.parsed_arguments = parse_arguments(pending.call.arguments)
    except InvalidArguments as exc:
        malformed = exc
    if output_result is not None:
        pending.problem = CallOutcome(output_result.text, output_result.outcome)
        return
    pending.tool = turn.agent.tools.find(pending.call.name)
    if pending.tool is None:
        pending.problem = _unknown_tool(turn, pending.call)
    elif cut:
        pending.problem = CallOutcome(_CUT, "invalid_arguments")
    else:
        try:
            arguments = (
                pending.parsed_arguments if malformed is None else _repair(pending.tool, pending.call, malformed)
            )
            validated = validate_arguments(pending.tool, arguments)
        except InvalidArguments as exc:
            pending.problem = CallOutcome(f"Invalid arguments: {exc}", "invalid_arguments")
        else:
            pending.arguments, pending.repaired = validated.arguments, validated.repaired or malformed is not None


def _repair(tool: Tool, call: ToolCall, malformed: InvalidArguments) -> dict[str, Any]:
    """Return the arguments that a malformed text most likely means, if the tool only reads; else raise `malformed`."""
    if not tool.read_only:
        raise malformed
    try:
        return repair_arguments(call.arguments)
    except InvalidArguments:
        raise malformed from None


def _unknown_tool(turn: Turn, call: ToolCall) -> CallOutcome:
    tool_names = ", ".join([*turn.agent.tools.names, *turn.output.tool_names]) or "none"
    return CallOutcome(f"unknown tool {call.name!r}; known tools: {tool_names}", "unknown_tool")


def validate_arguments(tool: Tool, arguments: Mapping[str, Any]) -> ValidatedArguments:
    """Return the arguments after the tool's own validation, with numbers in another form converted if needed.

    Any error of that validation is raised as `InvalidArguments`.
    """
    check_value_count(arguments)
    try:
        return ValidatedArguments(_validate(tool, arguments))
    except InvalidArguments:
        fitted, changed = coerce_numbers(tool.schema.parameters, dict(arguments))
        if not changed:
            raise
    return ValidatedArguments(_validate(tool, fitted), repaired=True)


def _validate(tool: Tool, arguments: Mapping[str, Any]) -> dict[str, Any]:
    what = f"the validation of tool {tool.schema.name!r}"
    try:
        value: object = user_code.call_sync(tool.validate, arguments, what=what)
        if not isinstance(value, dict):
            raise InvalidArguments(f"{what} returned {type(value).__name__}, not a dict")
        user_code.call_sync(jsonable, value, what=what)  # events, requests and digests use its JSON
    except InvalidArguments:
        raise
    except AgenticXError as exc:
        raise InvalidArguments(str(exc)) from exc
    return cast("dict[str, Any]", value)

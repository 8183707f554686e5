"""Rows for the runtime: history, calls, results, questions, events, logs."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Generator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from agenticx.clocks import SystemClock
from agenticx.errors import InvalidArguments
from agenticx.llms import (
    Delta,
    Finished,
    ModelRequest,
    Reply,
    ScriptedModel,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
    ToolSchema,
)
from agenticx.llms.reply_limits import MAX_VALUES
from agenticx.messages import Message, ToolCall, clean_text
from agenticx.runtime import (
    AutoApproveConfirmGate,
    ContextCompactor,
    EventType,
    HookRegistry,
    LoopDetector,
    RuntimeEvent,
    Session,
    Turn,
    encode_envelope,
    sanitize,
)
from agenticx.runtime.calls.inline import parse_function_calls, parse_inline_calls
from agenticx.runtime.calls.result_rendering import is_large, render_value, render_value_async, truncate
from agenticx.runtime.calls.validation import validate_arguments
from agenticx.runtime.calls_as_text import calls_of_others_as_text
from agenticx.runtime.events import check_payload
from agenticx.runtime.history_sizes import estimate_tokens, message_count_size
from agenticx.runtime.reply_writer import ReplyWriter
from agenticx.runtime.sanitizing import is_valid
from agenticx.runtime.structured_output import TurnOutput
from agenticx.runtime.summaries import render_transcript, snippets
from agenticx.runtime.turn_agent import TurnAgent, TurnAgents
from agenticx.runtime.user_requests.confirm_digest import confirm_digest, jsonable, write_json
from agenticx.runtime.user_requests.request_text import confirm_lines, question_lines
from agenticx.settings import load_settings
from agenticx.tools import Toolbox, tool
from agenticx.tools.coercion import coerce_numbers
from agenticx.user_code import describe_exception
from tests.linear.case import LinearCase, Make
from tests.linear.histories import LONG_HISTORIES
from tests.linear.llm_cases import parsed
from tests.linear.texts import JSON, LINES, TEXTS

__all__ = ["RUNTIME_CASES"]

_MODEL = ScriptedModel()
_LOOK = ToolSchema("look", "", {"type": "object", "properties": {"at": {"type": "string"}}})
_COMPACTOR = ContextCompactor()
_ROWS = {
    name: make for name, make in LONG_HISTORIES.items() if "shuffled" not in name
}  # the compactor receives repaired histories
_VALUES: dict[str, Make] = {name: parsed(make) for name, make in JSON.items()}
_LARGE_VALUES: dict[str, Make] = {
    **_VALUES,
    "rows": lambda size: [{"name": "a", "size": number, "tags": []} for number in range(size // 40)],
    "numbers": lambda size: list(range(size // 8)),
    "long numbers": lambda size: [10**4000 - 1] * (size // 4000),
    "objects": lambda size: [Path("a")] * (size // 8),
}
"""Values that a tool may return."""


class _Said(BaseModel):
    """An object that a tool may return."""

    text: str


class _Table(BaseModel):
    """An output type of numbers, each of which may be invalid."""

    a: list[int]


def _fault(text: str) -> object:
    return TurnOutput(_Table, _MODEL, ()).submit_text(Reply(text=text, complete=True))


def _settled(text: str) -> object:
    call = ToolCall(id="a", name="submit_output", arguments=text)
    return TurnOutput(_Table, _Unheld(), ("look",)).submit_calls([call], cut=False)


@dataclass(frozen=True)
class _Unheld(ScriptedModel):
    """A model that supports no output schema and returns its answer as a call."""

    def takes_output_schema(self, output: object, *, with_tools: bool) -> bool:
        return False


def _written(deltas: list[Any]) -> Generator[None]:
    writer = ReplyWriter(_turn(), "model")
    for start in range(0, len(deltas), 512):
        writer.write(deltas[start : start + 512])
        yield
    writer.reply()
    writer.keep_partial()
    yield


def _turn() -> Turn:
    hooks = HookRegistry()
    return Turn(
        session=Session(workspace=Path()),
        agent=TurnAgent(name="meta", model=_MODEL, tools=Toolbox(), hooks=hooks),
        agents=TurnAgents(lambda _: _MODEL, hooks),
        output=TurnOutput(None, _MODEL, ()),
        max_rounds=1,
        on_exhausted="error",
        clock=SystemClock(),
        loop_detector=LoopDetector(),
        gate=AutoApproveConfirmGate(),
        settings=load_settings(environ={}),
    )


def _deltas(delta: Callable[[str], Any]) -> dict[str, Make]:
    def letters(size: int) -> list[Any]:
        return [delta("a")] * (size // 10)

    def whole(make: Make) -> Make:
        return lambda size: [delta(make(size))]

    return {"letters": letters, **{name: whole(make) for name, make in LINES.items()}}


def _encoded(data: dict[str, Any]) -> bytes:
    event = RuntimeEvent(EventType.TOOL_CALL, data)
    return encode_envelope(event, session_id="s", turn_id="t", seq=1, ts="2026-01-01T00:00:00Z")


def _checked(text: str) -> None:
    try:
        check_payload(EventType.ARTIFACT, {"path": text, "content": text, "final": True, "more": text})
    except ValueError:
        return


def _confirm(text: str) -> object:
    context = {"tool": text, "command": text, "arguments": {"a": text, "b": text}, "diff": text, "reasons": [text]}
    return list(confirm_lines(text, context))


def _contexts() -> dict[str, Make]:
    return {name: (lambda size, make=make: make(size // 5)) for name, make in TEXTS.items()}


@dataclass(frozen=True)
class _Summariser:
    """A model whose summary of any history is short or empty."""

    text: str
    name: str = "summariser"
    context_window: int | None = 100_000

    async def stream(self, request: ModelRequest) -> AsyncIterator[Sequence[Delta]]:
        yield [TextDelta(self.text), Finished("end" if self.text.strip() else "length", None)]


def _compacted(text: str) -> Callable[[list[Message]], object]:
    """Return a function that compacts a history with the summary `text`."""
    return lambda messages: _COMPACTOR.compact(messages, _Summariser(text))


@tool(risk="read")
def _take(numbers: list[int | None], text: str = "", more: Any = None) -> str:
    """Take anything."""
    return f"{numbers}{text}{more}"


def _validated(arguments: Any) -> object:
    try:
        return validate_arguments(_take, arguments)
    except InvalidArguments:
        return None


_ARGUMENTS: dict[str, Make] = {
    **_VALUES,
    "numerals": lambda size: {"numbers": ["1"] * min(size // 4, MAX_VALUES - 1)},
    "wrong numerals": lambda size: {"numbers": ["1x" * 100] * min(size // 200, MAX_VALUES - 1)},
    "long numerals": lambda size: {"numbers": ["9" * (size // 8)] * 8},
    "anything": lambda size: {"numbers": [], "more": [{"a": "1.0"}] * min(size // 12, MAX_VALUES // 3)},
}
_ANYTHING: dict[str, Any] = {
    "anyOf": [{"$ref": "#"}, {"type": "array", "items": {"$ref": "#"}}, {"type": "integer"}],
    "properties": {name: {"$ref": "#"} for name in ("a", "path", "text", "content", "numbers", "more")},
    "additionalProperties": {"$ref": "#"},
}
"""A schema in which every alternative applies at every position."""


RUNTIME_CASES = [
    LinearCase(
        of=calls_of_others_as_text,
        run=lambda history: calls_of_others_as_text((), (), history),
        inputs=LONG_HISTORIES,
        where="thread",
    ),
    LinearCase(of=sanitize, run=sanitize, inputs=LONG_HISTORIES, where="thread", also=(is_valid,)),
    LinearCase(
        of=ContextCompactor,
        variant="is it due",
        run=lambda messages: _COMPACTOR.is_due(messages, _Summariser("")),
        inputs=_ROWS,
        where="thread",
    ),
    LinearCase(
        of=ContextCompactor,
        variant="is it worth it",
        run=_COMPACTOR.worth_asking,
        inputs=_ROWS,
        where="thread",
    ),
    LinearCase(of=ContextCompactor, variant="a summary", run=_compacted("all is well"), inputs=_ROWS, where="awaited"),
    LinearCase(of=ContextCompactor, variant="no summary", run=_compacted(" "), inputs=_ROWS, where="awaited"),
    LinearCase(of=estimate_tokens, run=estimate_tokens, inputs=_ROWS, where="thread", also=(message_count_size,)),
    LinearCase(of=render_transcript, run=render_transcript, inputs=_ROWS, where="thread"),
    LinearCase(of=snippets, run=snippets, inputs=_ROWS, where="thread"),
    LinearCase(of=parse_inline_calls, run=lambda text: parse_inline_calls(text, ("look",)), inputs=TEXTS),
    LinearCase(
        of=parse_function_calls,
        run=lambda text: parse_function_calls(f"<function=look><parameter=at>{text}", (_LOOK,)),
        inputs=TEXTS,
    ),
    LinearCase(
        of=parse_inline_calls,
        variant="JSON",
        run=lambda text: parse_inline_calls(f"<tool_code>{text}</tool_code>", ("look",)),
        inputs=JSON,
    ),
    LinearCase(of=validate_arguments, run=_validated, inputs=_ARGUMENTS, where="thread"),
    LinearCase(
        of=coerce_numbers, run=lambda value: coerce_numbers(_ANYTHING, value), inputs=_ARGUMENTS, where="thread"
    ),
    LinearCase(of=write_json, run=lambda value: write_json(value, len), inputs=_VALUES, where="thread"),
    LinearCase(of=TurnOutput, variant="answers in text", run=_fault, inputs=JSON | TEXTS, where="thread"),
    LinearCase(of=TurnOutput, variant="answers in calls", run=_settled, inputs=JSON, where="thread"),
    LinearCase(
        of=ReplyWriter,
        variant="text",
        run=_written,
        inputs=_deltas(TextDelta),
    ),
    LinearCase(of=ReplyWriter, variant="thinking", run=_written, inputs=_deltas(ThinkingDelta)),
    LinearCase(
        of=ReplyWriter, variant="calls", run=_written, inputs=_deltas(lambda text: ToolCallDelta(0, arguments=text))
    ),
    LinearCase(
        of=render_value, variant="text", run=lambda text: render_value(text, 30_000), inputs=TEXTS, also=(truncate,)
    ),
    LinearCase(
        of=render_value_async,
        run=lambda value: render_value_async(value, 30_000),
        inputs=_LARGE_VALUES,
        where="awaited",
    ),
    LinearCase(
        of=render_value_async,
        variant="objects",
        run=lambda text: render_value_async(_Said(text=clean_text(text)), 9),
        inputs=LINES,
        where="awaited",
    ),
    LinearCase(of=is_large, run=is_large, inputs=_LARGE_VALUES),
    LinearCase(
        of=jsonable, run=jsonable, inputs={name: _VALUES[name] for name in ("a file", "numbers", "objects", "keys")}
    ),
    LinearCase(of=confirm_digest, run=lambda value: confirm_digest("look", value, {}), inputs=_VALUES, where="thread"),
    LinearCase(of=confirm_lines, run=_confirm, inputs=_contexts(), where="program"),
    LinearCase(of=question_lines, run=lambda text: list(question_lines(text, [text])), inputs=TEXTS, where="program"),
    LinearCase(of=check_payload, run=_checked, inputs=LINES),
    LinearCase(of=encode_envelope, run=lambda value: _encoded({"arguments": value}), inputs=_VALUES | LINES),
    LinearCase(of=describe_exception, run=lambda text: describe_exception(ValueError(text)), inputs=TEXTS),
]

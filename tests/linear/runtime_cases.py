"""What a turn does with what was written: history, calls, results, questions, events, logs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Generator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from agenticx.clocks import SystemClock
from agenticx.foreign import describe
from agenticx.llms.base import Delta, Finished, ModelRequest, Reply, TextDelta, ThinkingDelta, ToolCallDelta
from agenticx.llms.scripted import ScriptedModel
from agenticx.logs import redact
from agenticx.messages import Message, ToolCall
from agenticx.runtime.compactor import ContextCompactor, estimate_tokens
from agenticx.runtime.confirm import confirm_digest
from agenticx.runtime.events import EventType, RuntimeEvent, check_payload, encode_envelope
from agenticx.runtime.inline_calls import inline_calls
from agenticx.runtime.loop_detector import LoopDetector
from agenticx.runtime.output import TurnOutput
from agenticx.runtime.question import question_lines
from agenticx.runtime.reply_writer import ReplyWriter
from agenticx.runtime.sanitize import is_valid, sanitize
from agenticx.runtime.session import Session
from agenticx.runtime.tool_output import bounded, jsonable, render
from agenticx.runtime.turn import Turn
from agenticx.tools.registry import Toolbox
from tests.linear.case import Case, Make
from tests.linear.histories import LONG_HISTORIES
from tests.linear.llm_cases import parsed
from tests.linear.texts import JSON, LINES, TEXTS

__all__ = ["RUNTIME_CASES"]

_MODEL = ScriptedModel()
_COMPACTOR = ContextCompactor()
_ROWS = {name: make for name, make in LONG_HISTORIES.items() if "shuffled" not in name}  # those only miss caches
_VALUES: dict[str, Make] = {name: parsed(make) for name, make in JSON.items()}


class _Table(BaseModel):
    """An answer of numbers, each of which may be wrong."""

    a: list[int]


def _fault(text: str) -> object:
    return TurnOutput(_Table, _MODEL, ()).fault(Reply(text=text, complete=True))


def _settled(text: str) -> object:
    call = ToolCall(id="a", name="submit_output", arguments=text)
    return TurnOutput(_Table, _Unheld(), ("look",)).verdicts([call], cut=False)


@dataclass(frozen=True)
class _Unheld(ScriptedModel):
    """A model that can be held to no schema, and gives its answer as a call."""

    def takes_output_schema(self, output: object, *, with_tools: bool) -> bool:
        return False


def _written(deltas: list[Any]) -> Generator[None]:
    writer = ReplyWriter(_turn())
    for start in range(0, len(deltas), 512):
        writer.write(deltas[start : start + 512])
        yield
    writer.reply()
    writer.keep_partial()
    yield


def _turn() -> Turn:
    return Turn(
        session=Session(workspace=Path()),
        agent_id="meta",
        tools=Toolbox(),
        output=TurnOutput(None, _MODEL, ()),
        system_prompt=None,
        model_name="m",
        max_rounds=1,
        clock=SystemClock(),
        loops=LoopDetector(),
    )


def _deltas(delta: Callable[[str], Any]) -> dict[str, Make]:
    def letters(size: int) -> list[Any]:
        return [delta("a")] * (size // 10)

    def whole(make: Make) -> Make:
        return lambda size: [delta(make(size))]

    return {"letters": letters, **{name: whole(make) for name, make in LINES.items()}}


def _recorded(signatures: list[tuple[str, str]]) -> Generator[None]:
    detector = LoopDetector()
    for arguments, result in signatures:
        detector.record_call("look", arguments, result)
        detector.check()
        yield


def _encoded(data: dict[str, Any]) -> bytes:
    event = RuntimeEvent(EventType.TOOL_CALL, data)
    return encode_envelope(event, session_id="s", turn_id="t", seq=1, ts="2026-01-01T00:00:00Z")


def _checked(text: str) -> None:
    try:
        check_payload(EventType.ARTIFACT, {"path": text, "content": text, "final": True, "more": text})
    except ValueError:
        return


def _question(text: str) -> object:
    context = {"tool": text, "command": text, "arguments": {"a": text, "b": text}, "diff": text, "reasons": [text]}
    return list(question_lines(text, context))


def _contexts() -> dict[str, Make]:
    return {name: (lambda size, make=make: make(size // 5)) for name, make in TEXTS.items()}


@dataclass(frozen=True)
class _Summariser:
    """A model whose summary of anything is short, or is none."""

    text: str
    name: str = "summariser"
    context_window: int | None = 100_000

    async def stream(self, request: ModelRequest) -> AsyncIterator[Sequence[Delta]]:
        yield [TextDelta(self.text), Finished("end" if self.text.strip() else "length", None)]


def _compacted(text: str, messages: list[Message]) -> object:
    return asyncio.run(_COMPACTOR.compact(messages, _Summariser(text)))


RUNTIME_CASES = [
    Case(of=sanitize, run=sanitize, inputs=LONG_HISTORIES, also=(is_valid,)),
    Case(
        of=ContextCompactor,
        variant="is it due",
        run=lambda messages: _COMPACTOR.is_due(messages, _Summariser("")),
        inputs=_ROWS,
    ),
    Case(of=ContextCompactor, variant="a summary", run=partial(_compacted, "all is well"), inputs=_ROWS),
    Case(of=ContextCompactor, variant="no summary", run=partial(_compacted, " "), inputs=_ROWS),
    Case(of=estimate_tokens, run=estimate_tokens, inputs=_ROWS),
    Case(of=inline_calls, run=lambda text: inline_calls(text, ("look",)), inputs=TEXTS),
    Case(
        of=inline_calls,
        variant="JSON",
        run=lambda text: inline_calls(f"<tool_code>{text}</tool_code>", ("look",)),
        inputs=JSON,
    ),
    Case(
        of=LoopDetector,
        run=_recorded,
        inputs={
            "many calls": lambda size: [(str(number), "a") for number in range(size // 100)],
            "long calls": lambda size: [("a" * (size // 20), "b" * (size // 20)) for _ in range(10)],
        },
    ),
    Case(of=TurnOutput, variant="answers in text", run=_fault, inputs=JSON | TEXTS, where="thread"),
    Case(of=TurnOutput, variant="answers in calls", run=_settled, inputs=JSON, where="thread"),
    Case(
        of=ReplyWriter,
        variant="text",
        run=_written,
        inputs=_deltas(TextDelta),
    ),
    Case(of=ReplyWriter, variant="thinking", run=_written, inputs=_deltas(ThinkingDelta)),
    Case(of=ReplyWriter, variant="calls", run=_written, inputs=_deltas(lambda text: ToolCallDelta(0, arguments=text))),
    Case(of=render, variant="text", run=lambda text: render(text, 30_000), inputs=TEXTS, also=(bounded,)),
    Case(of=render, variant="values", run=lambda value: render(value, 30_000), inputs=_VALUES),
    Case(of=jsonable, run=jsonable, inputs={name: _VALUES[name] for name in ("a file", "numbers", "objects", "keys")}),
    Case(of=confirm_digest, run=lambda value: confirm_digest("look", value, {}), inputs=_VALUES),
    Case(of=question_lines, run=_question, inputs=_contexts(), where="program"),
    Case(of=check_payload, run=_checked, inputs=LINES),
    Case(of=encode_envelope, run=lambda value: _encoded({"arguments": value}), inputs=_VALUES | LINES),
    Case(of=describe, run=lambda text: describe(ValueError(text)), inputs=TEXTS),
    Case(of=redact, run=redact, inputs=TEXTS),
]

"""Rows for the judgement of results between rounds (loops, pending jobs) and for logging."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from typing import Any

from agenticx.clocks import SystemClock
from agenticx.logs import LogLine, excerpt, is_secret_field, redact
from agenticx.messages import ToolCall
from agenticx.runtime import EventType, LoopDetector, RecordedCall
from agenticx.runtime.arguments_preview import preview_arguments
from agenticx.runtime.loop_detector import call_signature
from agenticx.runtime.polling import PollBackoff
from agenticx.runtime.tool_result_text import (
    exit_code,
    is_empty,
    mask_counts,
    mask_echo,
    mask_times,
    reports_success,
    reports_verdict,
)
from agenticx.runtime.turn_log import LlmCallLine, TurnLog, log_interrupted_turn
from agenticx.runtime.user_requests.edited_arguments import edited_arguments, with_edited_arguments
from agenticx.tools.shell.read_only_heuristic import seems_read_only
from tests.linear.case import LinearCase, Make
from tests.linear.llm_cases import parsed
from tests.linear.texts import JSON, TEXTS, repeated

__all__ = ["RESULT_CASES"]

_RESULTS: dict[str, Make] = {
    **TEXTS,
    **JSON,
    "nearly a check": repeated("no a a "),
    "times": repeated("2026-11-22T10:00:0"),
    "seconds": repeated("1.1"),
    "not passed": repeated("not ok "),
    "exit codes": repeated("[exit code 1]\n"),
}


def _pieces(size_of_piece: int, makes: dict[str, Make]) -> dict[str, Make]:
    def pieces(make: Make) -> Make:
        def cut(size: int) -> list[str]:
            text = make(size)
            return [text[start : start + size_of_piece] for start in range(0, len(text), size_of_piece)]

        return cut

    return {name: pieces(make) for name, make in makes.items()}


def _judged(texts: list[str]) -> Generator[None]:
    """Judge each text as the result of a read-only call."""
    for text in texts:
        is_empty(text, read_only=True)
        exit_code(text), reports_success(text), reports_verdict(text), mask_counts(text)
        mask_times(text), mask_echo(text, ("lorem", "ipsum", "a"))
        yield


def _recorded(signatures: list[tuple[str, str]]) -> Generator[None]:
    detector = LoopDetector()
    for arguments, result in signatures:
        detector.record_call("look", arguments, result)
        detector.check()
        yield


def _rounds(calls: int) -> Make:
    """Return a maker of rounds with that many calls, each of up to 4,000 characters."""

    def make(size: int) -> list[list[RecordedCall]]:
        room = min(size // calls, 4_000)
        arguments, result = json.dumps({"a": "b" * (room // 2)}), "running " * (room // 16)
        one = RecordedCall(tool="look", arguments=arguments, result=result, read_only=True)
        return [[one] * calls for _ in range(size // (calls * room))]

    return make


def _recorded_rounds(rounds: list[list[RecordedCall]]) -> Generator[None]:
    detector = LoopDetector()
    for calls in rounds:
        detector.record_round(calls)
        detector.check()
        yield


def _call(arguments: str) -> ToolCall:
    return ToolCall(id="a", name="look", arguments=arguments)


def _polled(results: list[tuple[ToolCall, str]]) -> Generator[None]:
    polls = PollBackoff()
    for number, (call, text) in enumerate(results):
        polls.record(call, text, now=number, round_number=number)
        yield


def _looked(commands: list[str]) -> Generator[None]:
    for command in commands:
        seems_read_only(command)
        yield


class _Silent(logging.Handler):
    """A handler that formats each line and writes none."""

    def emit(self, record: logging.LogRecord) -> None:
        record.getMessage()


@contextmanager
def _at_debug() -> Iterator[None]:
    logger, handler, before = logging.getLogger(TurnLog.__module__), _Silent(), logging.root.manager.disable
    logging.disable(logging.NOTSET)
    logger.setLevel(logging.DEBUG)
    logger.addHandler(handler)
    logger.propagate = False
    try:
        yield
    finally:
        logger.propagate = True
        logger.removeHandler(handler)
        logger.setLevel(logging.NOTSET)
        logging.disable(before)


def _logged(arguments: Any) -> None:
    with _at_debug():
        log, call = TurnLog(SystemClock()), {"tool_call_id": "a", "name": "look", "arguments": arguments}
        log.record(EventType.TOOL_CALL, call)
        log.record(EventType.TOOL_RESULT, {**call, "outcome": "ok", "duration_ms": 1.0})


def _line(text: str) -> str:
    return str(LogLine({"event": text, "error": text, "api_key": text, "nested": [text, {text[:200]: text}]}))


_JUDGES: tuple[Callable[..., object], ...] = (
    reports_success,
    exit_code,
    reports_verdict,
    mask_echo,
    mask_counts,
    mask_times,
)

RESULT_CASES = [
    LinearCase(of=is_empty, run=_judged, inputs=_pieces(1 << 30, _RESULTS), also=_JUDGES),
    LinearCase(of=is_empty, variant="4,096 characters", run=_judged, inputs=_pieces(4_096, _RESULTS)),
    LinearCase(of=is_empty, variant="300 characters", run=_judged, inputs=_pieces(300, _RESULTS)),
    LinearCase(
        of=LoopDetector,
        run=_recorded,
        inputs={
            "many calls": lambda size: [(str(number), "a") for number in range(size // 100)],
            "long calls": lambda size: [("a" * (size // 20), "b" * (size // 20)) for _ in range(10)],
        },
        also=(call_signature,),
    ),
    LinearCase(
        of=LoopDetector, variant="large rounds", run=_recorded_rounds, inputs={"calls": _rounds(256)}, where="thread"
    ),
    LinearCase(of=LoopDetector, variant="rounds", run=_recorded_rounds, inputs={"calls": _rounds(24)}),
    LinearCase(
        of=PollBackoff,
        run=_polled,
        inputs={
            "many calls": lambda size: [(_call(f"{number}"), "running") for number in range(size // 100)],
            "the same call": lambda size: [(_call("{}"), "running")] * (size // 100),
            "long calls": lambda size: [(_call("a" * (size // 8)), "running")] * 4,
            "long results": lambda size: [(_call("{}"), "running " * (size // 32))] * 4,
            "odd calls": lambda size: [(_call('{"a":' + "[" * 4_000), "status: x\n" * 400)] * (size // 8_000),
        },
    ),
    LinearCase(of=seems_read_only, run=seems_read_only, inputs=TEXTS),
    LinearCase(of=seems_read_only, variant="2,000 characters", run=_looked, inputs=_pieces(2_000, TEXTS)),
    LinearCase(
        of=TurnLog,
        variant="at debug",
        run=_logged,
        inputs={**{name: parsed(make) for name, make in JSON.items()}, **TEXTS},
        also=(LlmCallLine, log_interrupted_turn),
    ),
    LinearCase(
        of=with_edited_arguments,
        run=lambda value: with_edited_arguments("ok", edited_arguments([({}, {"text": value})]) or {}),
        inputs={**{name: parsed(make) for name, make in JSON.items()}, **TEXTS},
        also=(edited_arguments, preview_arguments),
    ),
    LinearCase(of=redact, run=redact, inputs=TEXTS, where="program"),
    LinearCase(of=excerpt, run=lambda text: excerpt(text, 2_000), inputs=TEXTS),
    LinearCase(of=LogLine, run=_line, inputs=TEXTS),
    LinearCase(of=is_secret_field, run=is_secret_field, inputs=TEXTS),
]

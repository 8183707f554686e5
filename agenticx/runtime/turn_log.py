"""The log lines of a turn at level info: `llm_call`, `tool_call`, `confirm`, `agent_handoff`, `turn`.

Each is written once. The names are taken from the `LoggerManager` of the published MetaChain interface; its `retry` is
written by `llms.opening_policy`. Session, turn and agent are on every line (`logs.bound_ids`). The fields:

- `turn`: model, rounds, reason (`answer`, `partial`, `paused`, `suspended` or an error's code), seconds, tokens, cost
  in USD; a turn that is `suspended` waits for a person and goes on after the program's next start
- `llm_call`: model, outcome (`ok`, `failed`, `cancelled`), code, seconds, tokens, cost, purpose
- `tool_call`: tool_name, call_id, outcome, seconds; at debug also arguments, shortened and redacted
- `confirm`: tool_name, call_id, approved, by, seconds
- `retry`: attempt, model, wait_seconds, code, error
- `agent_handoff`: from_agent, to_agent

`agx serve` writes them to stderr; `agx run` and `agx chat` only if AGX_LOG_LEVEL is set.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from agenticx.clocks import Clock
from agenticx.errors import InvalidArguments, ModelError, UserCodeError
from agenticx.llms.arguments import parse_arguments
from agenticx.llms.base import Usage
from agenticx.logs import get_logger
from agenticx.runtime.arguments_preview import preview_arguments
from agenticx.runtime.events import ConfirmRequiredEvent, EventType, RuntimeEvent
from agenticx.runtime.events.types import AskingEvent
from agenticx.runtime.resume import ResumePoint
from agenticx.runtime.user_requests.requests import ConfirmRequest

__all__ = ["LlmCallLine", "TurnLog", "log_interrupted_turn"]

_ARGUMENTS_CHARS = 200

_log = get_logger(__name__)


class TurnLog:
    """A writer of log lines from the events of one turn. Durations are nominal seconds of `clock`."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._started = clock.monotonic()
        self._confirms: dict[str, tuple[float, Mapping[str, Any]]] = {}
        self._arguments: dict[str, object] = {}
        self._ending: dict[str, Any] = {}
        self._is_suspended = False

    def suspend(self) -> None:
        """Record no more events, as none is stored: the turn goes on after the program's next start."""
        self._is_suspended, self._ending = True, {"reason": "suspended"}

    def resume(self, point: ResumePoint) -> None:
        """Restore the calls and requests of the events from before the interruption."""
        for request in (resumed.request for resumed in point.requests.values()):
            if isinstance(request, ConfirmRequest):
                self._confirms[request.id] = (self._clock.monotonic(), request.context)
        for call in point.calls if _log.is_enabled("debug") else ():
            self._arguments[call.id] = _parse_or_keep(call.arguments)

    def record(self, type_: EventType, data: Mapping[str, Any]) -> None:
        """Record one of the `LOGGED_EVENTS`."""
        if self._is_suspended:
            return
        match type_:
            case EventType.TOOL_CALL:
                if _log.is_enabled("debug"):
                    self._arguments[data["tool_call_id"]] = data["arguments"]
            case EventType.TOOL_RESULT:
                self._tool_call(data)
            case EventType.CONFIRM_REQUIRED:
                self._confirms[data["id"]] = (self._clock.monotonic(), data["context"])
            case EventType.CONFIRM_RESPONSE:
                self._confirm(data)
            case EventType.HANDOFF:
                _log.info("agent_handoff", from_agent=data["from_agent"], to_agent=data["to_agent"])
            case _:
                self._ending = _ending_fields(type_, data) or self._ending

    def end(self, task: asyncio.Task[None], *, model: str, rounds: int, usage: Usage | None) -> None:
        """Write `turn`. A `task` that ended without a terminal event was cancelled or failed by an internal bug."""
        if not _log.is_enabled("info"):
            return
        ending = self._ending or {"reason": "interrupted" if task.cancelled() else "internal"}
        seconds = self._seconds_since(self._started)
        _log.info("turn", model=model, rounds=rounds, **ending, seconds=seconds, **_usage_fields(usage or Usage()))

    def _tool_call(self, data: Mapping[str, Any]) -> None:
        call_id, more = data["tool_call_id"], dict[str, Any]()
        if "duration_ms" in data:
            more["seconds"] = round(data["duration_ms"] / 1000, 3)
        if call_id in self._arguments:
            more["arguments"] = preview_arguments(self._arguments.pop(call_id), _ARGUMENTS_CHARS)
        _log.info("tool_call", **_call_fields(data), **more)

    def _confirm(self, data: Mapping[str, Any]) -> None:
        asked_at, context = self._confirms.pop(data["id"])
        _log.info("confirm", **_answer_fields(context, data), seconds=self._seconds_since(asked_at))
        call_id = context.get("tool_call_id")
        if "arguments" in data and call_id in self._arguments:  # the call runs with the user's changed arguments
            self._arguments[call_id] = data["arguments"]

    def _seconds_since(self, moment: float) -> float:
        return round(self._clock.monotonic() - moment, 3)


class LlmCallLine:
    """A context manager that writes `llm_call` when its block ends, whether or not it raises.

    `current_usage` returns the name of the model that was called last and its token counts so far. `fields` are added
    to the line.
    """

    def __init__(self, clock: Clock, current_usage: Callable[[], tuple[str, Usage]], **fields: object) -> None:
        self._clock = clock
        self._current_usage = current_usage
        self._fields = fields

    def __enter__(self) -> Self:
        self._started = self._clock.monotonic()
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if not _log.is_enabled("info"):
            return
        model, usage = self._current_usage()
        seconds = round(self._clock.monotonic() - self._started, 3)
        _log.info(
            "llm_call", model=model, **_outcome_fields(exc), seconds=seconds, **_usage_fields(usage), **self._fields
        )


def log_interrupted_turn(
    events: Sequence[RuntimeEvent],
    requests: Mapping[str, AskingEvent],
    *,
    rounds: int,
    usage: Usage | None,
) -> None:
    """Write the lines that a dead process left out, from the `events` that end its turn; durations are unknown.

    `requests` are the requests to the user that the turn has asked, by id.
    """
    for event in events:
        data = event.data
        if event.type is EventType.TOOL_RESULT:
            _log.info("tool_call", **_call_fields(data))
        elif event.type is EventType.CONFIRM_RESPONSE:
            asked = requests[data["id"]]
            if isinstance(asked, ConfirmRequiredEvent):
                _log.info("confirm", **_answer_fields(asked.data["context"], data))
        elif ending := _ending_fields(event.type, data):
            _log.info("turn", rounds=rounds, **ending, **_usage_fields(usage or Usage()))


def _call_fields(result: Mapping[str, Any]) -> dict[str, Any]:
    return {"tool_name": result["name"], "call_id": result["tool_call_id"], "outcome": result["outcome"]}


def _answer_fields(context: Mapping[str, Any], response: Mapping[str, Any]) -> dict[str, Any]:
    fields = {"tool_name": context.get("tool"), "call_id": context.get("tool_call_id")}
    return {**fields, "approved": response["approved"], "by": response["by"]}


def _ending_fields(type_: EventType, data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a terminal event for `turn`; empty for any other event."""
    match type_:
        case EventType.FINAL:
            return {"reason": data["reason"]}
        case EventType.SUBAGENT_PAUSED:
            return {"reason": "paused"}
        case EventType.ERROR if data["fatal"]:
            return {"reason": data["code"], "error": data["text"]}
        case _:
            return {}


def _outcome_fields(exc: BaseException | None) -> dict[str, Any]:
    match exc:
        case None:
            return {"outcome": "ok"}
        case asyncio.CancelledError():
            return {"outcome": "cancelled"}
        case ModelError():
            return {"outcome": "failed", "code": exc.code, "error": str(exc)}
        case UserCodeError():
            return {"outcome": "failed", "code": exc.kind, "error": str(exc)}
        case _:
            return {"outcome": "failed", "code": "internal", "error": str(exc)}


def _usage_fields(usage: Usage) -> dict[str, Any]:
    """Return the fields of a `Usage`: counts that the provider did not report are absent, cost is in US dollars."""
    input_tokens, output_tokens = usage.total_input_tokens, usage.total_output_tokens
    fields: dict[str, Any] = {"input_tokens": input_tokens, "output_tokens": output_tokens}
    if input_tokens is not None and output_tokens is not None:
        fields = {"tokens": input_tokens + output_tokens, **fields}
    if usage.cost_usd is not None:
        fields["cost"] = float(usage.cost_usd)
    return {name: value for name, value in fields.items() if value is not None}


# --- arguments --------------------------------------------------------------------------------------------------------


def _parse_or_keep(arguments: str) -> object:
    try:
        return parse_arguments(arguments)
    except InvalidArguments:
        return arguments

"""The log lines of a turn, each written once and at info: `llm_call`, `tool_call`, `confirm`, `agent_handoff`, `turn`.

The names are those of the MetaChain page (`LoggerManager`); its `retry` is written where retries are made
(`llms.retrying`). Arguments of calls are part of `tool_call` at debug only. Session, turn and agent stand on every line
(`logs.bound_ids`).
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Self, cast

from agenticx.clocks import Clock
from agenticx.errors import InvalidArguments, ModelError, UserCodeError
from agenticx.llms.arguments import parse_arguments
from agenticx.llms.base import Usage
from agenticx.logs import HIDDEN, excerpt, get_logger, hidden_members, is_secret_field
from agenticx.runtime.events import EventType, RuntimeEvent
from agenticx.runtime.resuming import ResumePoint
from agenticx.secret_names import is_secret_name, is_secret_value

__all__ = ["LOGGED", "LlmCallLine", "TurnLog", "log_cut_turn"]

LOGGED = frozenset(
    {
        EventType.TOOL_CALL,
        EventType.TOOL_RESULT,
        EventType.CONFIRM_REQUIRED,
        EventType.CONFIRM_RESPONSE,
        EventType.HANDOFF,
        EventType.FINAL,
        EventType.SUBAGENT_PAUSED,
        EventType.ERROR,
    }
)
"""The events that `TurnLog.see` wants. Tokens are not among them: a turn looks here first."""

_ARGUMENTS_CHARS = 200
_LONGEST_NAME = 200

_log = get_logger(__name__)


class TurnLog:
    """Turns the events of one turn into its lines. Durations are nominal seconds of `clock`."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._started = clock.monotonic()
        self._asked: dict[str, tuple[float, Mapping[str, Any]]] = {}
        self._arguments: dict[str, object] = {}
        self._ending: dict[str, Any] = {}

    def resume(self, point: ResumePoint) -> None:
        """Take over calls and questions of which the events came before the turn was cut off."""
        for question in point.questions.values():
            self._asked[question.request.id] = (self._clock.monotonic(), question.request.context)
        for call in point.calls if _log.is_enabled("debug") else ():
            self._arguments[call.id] = _parsed(call.arguments)

    def see(self, type_: EventType, data: Mapping[str, Any]) -> None:
        """Take one of the `LOGGED` events."""
        match type_:
            case EventType.TOOL_CALL:
                if _log.is_enabled("debug"):
                    self._arguments[data["tool_call_id"]] = data["arguments"]
            case EventType.TOOL_RESULT:
                self._tool_call(data)
            case EventType.CONFIRM_REQUIRED:
                self._asked[data["id"]] = (self._clock.monotonic(), data["context"])
            case EventType.CONFIRM_RESPONSE:
                self._confirm(data)
            case EventType.HANDOFF:
                _log.info("agent_handoff", from_agent=data["from_agent"], to_agent=data["to_agent"])
            case _:
                self._ending = _ending(type_, data) or self._ending

    def end(self, task: asyncio.Task[None], *, model: str, rounds: int, usage: Usage | None) -> None:
        """Write `turn`. A `task` that ended without a terminal event was cancelled or failed by a bug of ours."""
        if not _log.is_enabled("info"):
            return
        ending = self._ending or {"reason": "interrupted" if task.cancelled() else "internal"}
        seconds = self._seconds_since(self._started)
        _log.info("turn", model=model, rounds=rounds, **ending, seconds=seconds, **_spent(usage or Usage()))

    def _tool_call(self, data: Mapping[str, Any]) -> None:
        call_id, more = data["tool_call_id"], dict[str, Any]()
        if "duration_ms" in data:
            more["seconds"] = round(data["duration_ms"] / 1000, 3)
        if call_id in self._arguments:
            more["arguments"] = _preview(self._arguments.pop(call_id))
        _log.info("tool_call", **_call_fields(data), **more)

    def _confirm(self, data: Mapping[str, Any]) -> None:
        asked_at, context = self._asked.pop(data["id"])
        _log.info("confirm", **_answer_fields(context, data), seconds=self._seconds_since(asked_at))
        call_id = context.get("tool_call_id")
        if "arguments" in data and call_id in self._arguments:  # what runs is what the person made of them
            self._arguments[call_id] = data["arguments"]

    def _seconds_since(self, moment: float) -> float:
        return round(self._clock.monotonic() - moment, 3)


class LlmCallLine:
    """Writes `llm_call` when the block under it ends, however it ends.

    `spent` gives the name of the model that was asked last and what it had counted by then. `fields` come on top.
    """

    def __init__(self, clock: Clock, spent: Callable[[], tuple[str, Usage]], **fields: object) -> None:
        self._clock = clock
        self._spent = spent
        self._fields = fields

    def __enter__(self) -> Self:
        self._started = self._clock.monotonic()
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if not _log.is_enabled("info"):
            return
        model, usage = self._spent()
        seconds = round(self._clock.monotonic() - self._started, 3)
        _log.info("llm_call", model=model, **_outcome(exc), seconds=seconds, **_spent(usage), **self._fields)


def log_cut_turn(
    events: Sequence[RuntimeEvent], questions: Mapping[str, Mapping[str, Any]], *, rounds: int, usage: Usage | None
) -> None:
    """Write the lines that a dead process owed, by the `events` that end its turn; how long things took is not known.

    `questions` are the turn's payloads of `confirm_required`, by id.
    """
    for event in events:
        data = event.data
        if event.type is EventType.TOOL_RESULT:
            _log.info("tool_call", **_call_fields(data))
        elif event.type is EventType.CONFIRM_RESPONSE:
            _log.info("confirm", **_answer_fields(questions[data["id"]]["context"], data))
        elif ending := _ending(event.type, data):
            _log.info("turn", rounds=rounds, **ending, **_spent(usage or Usage()))


def _call_fields(result: Mapping[str, Any]) -> dict[str, Any]:
    return {"tool_name": result["name"], "call_id": result["tool_call_id"], "outcome": result["outcome"]}


def _answer_fields(context: Mapping[str, Any], response: Mapping[str, Any]) -> dict[str, Any]:
    fields = {"tool_name": context.get("tool"), "call_id": context.get("tool_call_id")}
    return {**fields, "approved": response["approved"], "by": response["by"]}


def _ending(type_: EventType, data: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that a terminal event gives `turn`; none for any other event."""
    match type_:
        case EventType.FINAL:
            return {"reason": data["reason"]}
        case EventType.SUBAGENT_PAUSED:
            return {"reason": "paused"}
        case EventType.ERROR if data["fatal"]:
            return {"reason": data["code"], "error": data["text"]}
        case _:
            return {}


def _outcome(exc: BaseException | None) -> dict[str, Any]:
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


def _spent(usage: Usage) -> dict[str, Any]:
    """The fields of a `Usage`: what the provider did not count is absent, cost is in US dollars."""
    counted, written = usage.total_input_tokens, usage.total_output_tokens
    fields: dict[str, Any] = {"input_tokens": counted, "output_tokens": written}
    if counted is not None and written is not None:
        fields = {"tokens": counted + written, **fields}
    if usage.cost_usd is not None:
        fields["cost"] = float(usage.cost_usd)
    return {name: value for name, value in fields.items() if value is not None}


# --- arguments --------------------------------------------------------------------------------------------------------


def _parsed(arguments: str) -> object:
    try:
        return parse_arguments(arguments)
    except InvalidArguments:
        return arguments


def _preview(arguments: object) -> str:
    """Return the beginning of `arguments` without secrets; costs no more for a megabyte than for a line."""
    if isinstance(arguments, str):  # not JSON: nothing is left of it where it names a secret
        return _leaf(arguments, hidden=any(map(_is_secret, _NAMES.findall(arguments[: 2 * _ARGUMENTS_CHARS]))))
    pieces, length = list[str](), 0
    for piece in _pieces(arguments):
        pieces.append(piece)
        length += len(piece)
        if length > _ARGUMENTS_CHARS:
            break
    text = "".join(pieces)
    return text if length <= _ARGUMENTS_CHARS else f"{text[:_ARGUMENTS_CHARS]}…"


_NAMES = re.compile(r"(?<![\w-])[\w-]++(?=[\"']?\s*[:=])")
"""Names before a colon or an equals sign."""


def _pieces(value: object) -> Iterator[str]:
    """JSON text from left to right, made only as far as it is asked for."""
    match value:
        case dict():
            yield "{"
            members = cast("dict[str, object]", value)
            hidden = hidden_members(members, _is_secret)
            for place, (name, inner) in enumerate(members.items()):
                yield f"{', ' if place else ''}{_leaf(name)}: "
                if hidden(name):
                    yield f'"{HIDDEN}"'
                else:
                    yield from _pieces(inner)
            yield "}"
        case list():
            yield "["
            before: object = None
            for place, inner in enumerate(cast("list[object]", value)):
                yield ", " if place else ""
                if isinstance(inner, str) and _names_secret(before):
                    yield f'"{HIDDEN}"'
                else:
                    yield from _pieces(inner)
                before = inner
            yield "]"
        case str():
            yield _leaf(value)
        case _:
            yield json.dumps(value)


def _is_secret(name: object) -> bool:
    """Return whether an argument of that name is hidden: rather one too many than one too few."""
    return isinstance(name, str) and (len(name) > _LONGEST_NAME or is_secret_field(name) or is_secret_name(name))


def _names_secret(value: object) -> bool:
    """Return whether a text is a name of a secret alone, as in `["--password", "…"]`."""
    return isinstance(value, str) and _NAME.fullmatch(value) is not None and _is_secret(value)


_NAME = re.compile(r"[\w.-]{1,64}")


def _leaf(text: str, *, hidden: bool = False) -> str:
    """A string in quotes; hidden as a whole where it still looks like a secret without those that were recognised."""
    shown = excerpt(text, 2 * _ARGUMENTS_CHARS)
    if hidden or is_secret_value(shown.replace(f"={HIDDEN}", "=hidden").replace(HIDDEN, "")):
        return f'"{HIDDEN}"'
    return json.dumps(shown, ensure_ascii=False)

"""The parts of scripted replies, their constructors, and the steps to play them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import assert_never, cast

from agenticx.argument_types import check_int, check_str, check_type, wrong_type
from agenticx.errors import ModelError
from agenticx.llms.base import (
    Delta,
    Finished,
    ModelRequest,
    StopKind,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
    Usage,
    UsageDelta,
)
from agenticx.messages import ProviderState

__all__ = [
    "Fail",
    "Hang",
    "Part",
    "Pause",
    "Script",
    "Step",
    "call",
    "check_script",
    "cut",
    "fail",
    "finish",
    "hang",
    "pause",
    "raw",
    "say",
    "script_steps",
    "stall_after",
    "think",
    "usage",
]


# --- parts of a reply ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Batches:
    batches: tuple[tuple[Delta, ...], ...]


@dataclass(frozen=True, slots=True)
class _Call:
    name: str
    pieces: tuple[str, ...]
    id: str | None


@dataclass(frozen=True, slots=True)
class Pause:
    seconds: float


@dataclass(frozen=True, slots=True)
class Fail:
    error: ModelError


@dataclass(frozen=True, slots=True)
class Hang:
    after: int | None = None


@dataclass(frozen=True, slots=True)
class _Cut:
    pass


Part = _Batches | _Call | Pause | Fail | Hang | _Cut
"""A part of a reply, as returned by the constructors."""

Step = tuple[Delta, ...] | Pause | Fail | Hang
"""One step of a played reply: a batch of deltas, a pause, an error, or silence until the stream is closed."""

Script = str | Part | ModelError | Sequence["Script"] | Callable[[ModelRequest], "Script"]
"""A whole reply: a text, a part, an error, a list of these, or a function of the request that returns one."""


def say(text: str, *, pieces: int | Sequence[str] | None = None) -> Part:
    """Return visible text, in one delta, in `pieces` deltas of about the same length, or in the given pieces."""
    check_str("text", text)
    return _Batches(tuple((TextDelta(piece),) for piece in _split(text, pieces)))


def think(text: str, *, pieces: int | Sequence[str] | None = None) -> Part:
    """Return reasoning text, split as `say` splits text."""
    check_str("text", text)
    return _Batches(tuple((ThinkingDelta(piece),) for piece in _split(text, pieces)))


def call(
    name: str,
    arguments: Mapping[str, object] | str | None = None,
    *,
    id: str | None = None,  # noqa: A002
    pieces: int | Sequence[str] | None = None,
) -> Part:
    """Return a tool call; `arguments` as a string is sent unchanged, well-formed or not.

    Calls without `id` are numbered call_1, call_2, …
    """
    check_str("name", name)
    if arguments is not None:
        check_type("arguments", arguments, (Mapping, str), "a dict, or a str that is sent unchanged")
    if id is not None:
        check_str("id", id)
    text = arguments if isinstance(arguments, str) else json.dumps(arguments or {}, ensure_ascii=False)
    return _Call(name, _split(text, pieces), id)


def usage(
    input_tokens: int | None = None,
    output_tokens: int | None = None,
    *,
    cached_tokens: int | None = None,
    reasoning_tokens: int | None = None,
) -> Part:
    """Return the token counts that the provider reports for this reply; without this part it reports none."""
    return raw(UsageDelta(Usage(input_tokens, output_tokens, cached_tokens, reasoning_tokens)))


def finish(
    stop: StopKind = "end", *, finish_reason: str | None = None, provider_state: ProviderState | None = None
) -> Part:
    """Return an explicit end marker: `finish("length")` ends a reply that hit the output limit."""
    return raw(Finished(stop, finish_reason or stop, provider_state))


def raw(*deltas: Delta) -> Part:
    """Return these deltas as one batch, unchanged."""
    return _Batches((deltas,))


def pause(seconds: float) -> Part:
    """Return a silence of `seconds` nominal seconds of the model's clock."""
    return Pause(seconds)


def hang() -> Part:
    """Return a silence from here on, until the stream is closed."""
    return Hang()


def stall_after(batches: int) -> Part:
    """Return a silence after the first `batches` deltas of the reply, wherever this part appears in it."""
    check_int("batches", batches)
    return Hang(batches)


def cut() -> Part:
    """Return an end of the reply without an end marker."""
    return _Cut()


def fail(error: ModelError) -> Part:
    """Return an end of the reply by `error`."""
    check_type("error", error, ModelError, "a ModelError")
    return Fail(error)


def _split(text: str, pieces: int | Sequence[str] | None) -> tuple[str, ...]:
    if pieces is None:
        return (text,) if text else ()
    if not isinstance(pieces, int):
        if "".join(pieces) != text:
            raise ValueError(f"pieces {list(pieces)!r} do not add up to {text!r}")
        return tuple(piece for piece in pieces if piece)
    if pieces < 1:
        raise ValueError(f"pieces must be at least 1, not {pieces}")
    cuts = [len(text) * number // pieces for number in range(pieces + 1)]
    return tuple(text[start:end] for start, end in pairwise(cuts) if end > start)


def check_script(name: str, script: object) -> None:
    """Raise `TypeError` if `script`, called `name` in the message, is no reply."""
    if isinstance(script, str | ModelError | Part) or callable(script):
        return
    if isinstance(script, bytes | bytearray) or not isinstance(script, Sequence):
        raise wrong_type(name, script, "a text, a part such as say(…) or call(…), a ModelError, a function or a list")
    for number, part in enumerate(cast("Sequence[object]", script)):
        check_script(f"{name}[{number}]", part)


# --- playing ---------------------------------------------------------------------------------------------------------


def script_steps(script: Script, request: ModelRequest, next_id: Callable[[], str]) -> list[Step]:
    """Return the steps of `script`, with calls numbered, a missing end marker added and a `stall_after` applied."""
    steps: list[Step] = []
    calls = 0
    stall_after_batches: int | None = None
    needs_end_marker = True
    for part in _flatten(script, request):
        match part:
            case _Batches():
                steps += part.batches
                needs_end_marker = needs_end_marker and not any(_has_end_marker(batch) for batch in part.batches)
            case _Call():
                steps += _call_batches(part, calls, next_id)
                calls += 1
            case Hang(after=int(after)):
                stall_after_batches = after
            case Pause():
                steps.append(part)
            case Hang() | Fail():
                steps.append(part)
                needs_end_marker = False
            case _Cut():
                needs_end_marker = False
                break
            case _:
                assert_never(part)
    if needs_end_marker:
        has_calls = calls or any(_has_call(step) for step in steps if isinstance(step, tuple))
        steps.append((Finished("tool_calls", "tool_calls") if has_calls else Finished("end", "stop"),))
    return steps if stall_after_batches is None else _stall_steps(steps, stall_after_batches)


def _call_batches(part: _Call, index: int, next_id: Callable[[], str]) -> list[tuple[Delta, ...]]:
    id_ = next_id() if part.id is None else part.id
    first = ToolCallDelta(index, id_, part.name, "".join(part.pieces[:1]))
    rest = (ToolCallDelta(index, arguments=piece) for piece in part.pieces[1:])
    return [(delta,) for delta in (first, *rest)]


def _flatten(script: Script, request: ModelRequest) -> Iterator[Part]:
    if isinstance(script, str):
        yield say(script)
    elif isinstance(script, ModelError):
        yield fail(script)
    elif isinstance(script, Part):
        yield script
    elif callable(script):
        made = script(request)
        check_script("the reply that a function returns", made)
        yield from _flatten(made, request)
    else:
        for part in script:
            yield from _flatten(part, request)


def _has_end_marker(batch: tuple[Delta, ...]) -> bool:
    return any(isinstance(delta, Finished) for delta in batch)


def _has_call(batch: tuple[Delta, ...]) -> bool:
    return any(isinstance(delta, ToolCallDelta) for delta in batch)


def _stall_steps(steps: list[Step], batches: int) -> list[Step]:
    """Return the steps up to the first `batches` deltas, followed by silence."""
    stalled: list[Step] = []
    for step in steps:
        if isinstance(step, tuple) and batches == 0:
            break
        batches -= isinstance(step, tuple)
        stalled.append(step)
    return [*stalled, Hang()]

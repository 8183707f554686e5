"""A model that plays a script: replies and faults in order, every request kept, unplayed replies complained about.

A reply is one part or a list of parts, and parts nest:

    ScriptedModel([
        [think("I should look."), call("file_read", {"path": "a.txt"})],
        say("It says hello.", pieces=3),
        [say("half an ans"), cut()],
    ])

A reply that no `cut`, `hang`, `fail` or `finish` ended gets its end marker by itself.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from types import TracebackType
from typing import Self, assert_never

from agenticx.clocks import Clock, SystemClock
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
    "Part",
    "Script",
    "ScriptExhausted",
    "ScriptedModel",
    "call",
    "cut",
    "fail",
    "finish",
    "hang",
    "pause",
    "raw",
    "say",
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
class _Pause:
    seconds: float


@dataclass(frozen=True, slots=True)
class _Fail:
    error: ModelError


@dataclass(frozen=True, slots=True)
class _Hang:
    after: int | None = None


@dataclass(frozen=True, slots=True)
class _Cut:
    pass


Part = _Batches | _Call | _Pause | _Fail | _Hang | _Cut
"""A piece of a reply, as the constructors below make it."""

_Step = tuple[Delta, ...] | _Pause | _Fail | _Hang

Script = str | Part | ModelError | Sequence["Script"] | Callable[[ModelRequest], "Script"]
"""A whole reply: a text, a part, an error, a list of these, or a function of the request that returns one."""


def say(text: str, *, pieces: int | Sequence[str] | None = None) -> Part:
    """Visible text, in one delta, in `pieces` deltas of about the same length, or in the deltas given."""
    return _Batches(tuple((TextDelta(piece),) for piece in _split(text, pieces)))


def think(text: str, *, pieces: int | Sequence[str] | None = None) -> Part:
    """Reasoning text, cut like that of `say`."""
    return _Batches(tuple((ThinkingDelta(piece),) for piece in _split(text, pieces)))


def call(
    name: str,
    arguments: Mapping[str, object] | str | None = None,
    *,
    id: str | None = None,  # noqa: A002
    pieces: int | Sequence[str] | None = None,
) -> Part:
    """A tool call. A string is sent as it is, well-formed or not; without `id` calls are call_1, call_2, …"""
    text = arguments if isinstance(arguments, str) else json.dumps(arguments or {}, ensure_ascii=False)
    return _Call(name, _split(text, pieces), id)


def usage(
    input_tokens: int | None = None,
    output_tokens: int | None = None,
    *,
    cached_tokens: int | None = None,
    reasoning_tokens: int | None = None,
) -> Part:
    """The token counts that the provider reports for this reply; without this part it reports none."""
    return raw(UsageDelta(Usage(input_tokens, output_tokens, cached_tokens, reasoning_tokens)))


def finish(
    stop: StopKind = "end", *, finish_reason: str | None = None, provider_state: ProviderState | None = None
) -> Part:
    """The end marker, said explicitly: `finish("length")` is a reply that hit the output limit."""
    return raw(Finished(stop, finish_reason or stop, provider_state))


def raw(*deltas: Delta) -> Part:
    """These deltas as one batch, unchanged."""
    return _Batches((deltas,))


def pause(seconds: float) -> Part:
    """Silence for `seconds` nominal seconds of the model's clock."""
    return _Pause(seconds)


def hang() -> Part:
    """Silence from here on, until the stream is closed."""
    return _Hang()


def stall_after(batches: int) -> Part:
    """The reply falls silent after its first `batches` deltas, wherever this part stands in it."""
    return _Hang(batches)


def cut() -> Part:
    """The reply ends here without an end marker."""
    return _Cut()


def fail(error: ModelError) -> Part:
    """The reply ends here in `error`."""
    return _Fail(error)


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


# --- the model -----------------------------------------------------------------------------------------------------


class ScriptExhausted(ModelError, AssertionError):
    """The model was asked more often than the script has replies."""


class ScriptedModel:
    """Plays `replies` in order, one per call; `requests` keeps what was asked.

    Used in a `with` block (or by the `scripted_model` fixture) it raises `AssertionError` at the end if replies
    were left unplayed or if it was asked for more than there were. `clock` is what `pause` waits on.
    """

    def __init__(
        self,
        replies: Iterable[Script] = (),
        *,
        name: str = "scripted",
        context_window: int | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._replies: deque[Script] = deque(replies)
        self._planned = len(self._replies)
        self._name = name
        self._context_window = context_window
        self._clock: Clock = clock or SystemClock()
        self._calls_made = 0
        self.requests: list[ModelRequest] = []
        self.open_streams = 0

    @property
    def name(self) -> str:
        return self._name

    @property
    def context_window(self) -> int | None:
        return self._context_window

    def stream(self, request: ModelRequest) -> AsyncGenerator[Sequence[Delta], None]:
        """Play the next reply; its first delta is a `ScriptExhausted` error when there is none."""
        self.requests.append(replace(request, messages=tuple(request.messages), tools=tuple(request.tools)))
        return self.play(self._replies.popleft() if self._replies else self._exhausted(), request)

    async def play(self, script: Script, request: ModelRequest) -> AsyncGenerator[Sequence[Delta], None]:
        """Play one reply that is not part of the script."""
        self.open_streams += 1
        try:
            for step in self._steps(_flatten(script, request)):
                match step:
                    case tuple():
                        yield step
                    case _Pause():
                        await self._clock.sleep(step.seconds)
                    case _Hang():
                        await asyncio.get_running_loop().create_future()
                    case _Fail():
                        raise step.error
                    case _:
                        assert_never(step)
        finally:
            self.open_streams -= 1

    def _steps(self, parts: Iterable[Part]) -> list[_Step]:
        """What is played for `parts`: calls numbered, an end marker where the script left it out, the stall put in."""
        steps: list[_Step] = []
        calls = 0
        stall: int | None = None
        open_ended = True
        for part in parts:
            match part:
                case _Batches():
                    steps += part.batches
                    open_ended = open_ended and not any(_ends(batch) for batch in part.batches)
                case _Call():
                    steps += self._call_batches(part, calls)
                    calls += 1
                case _Hang(after=int(after)):
                    stall = after
                case _Pause():
                    steps.append(part)
                case _Hang() | _Fail():
                    steps.append(part)
                    open_ended = False
                case _Cut():
                    open_ended = False
                    break
                case _:
                    assert_never(part)
        if open_ended:
            calls_seen = calls or any(_has_call(step) for step in steps if isinstance(step, tuple))
            steps.append((Finished("tool_calls", "tool_calls") if calls_seen else Finished("end", "stop"),))
        return steps if stall is None else _stalled(steps, stall)

    def _call_batches(self, part: _Call, index: int) -> list[tuple[Delta, ...]]:
        self._calls_made += 1
        id_ = f"call_{self._calls_made}" if part.id is None else part.id
        first = ToolCallDelta(index, id_, part.name, "".join(part.pieces[:1]))
        rest = (ToolCallDelta(index, arguments=piece) for piece in part.pieces[1:])
        return [(delta,) for delta in (first, *rest)]

    def _exhausted(self) -> ScriptExhausted:
        return ScriptExhausted(
            f"model {self.name!r} has {self._planned} scripted replies and was asked for reply {len(self.requests)}",
            code="provider.bad_request",
            provider_type="script_exhausted",
        )

    @property
    def unplayed(self) -> int:
        """How many replies nobody has asked for yet."""
        return len(self._replies)

    def assert_done(self) -> None:
        """Raise `AssertionError` unless the model was asked exactly as often as the script has replies."""
        if self._replies:
            raise AssertionError(
                f"{self.unplayed} of {self._planned} replies of model {self.name!r} were never asked for; "
                f"the first: {self._replies[0]!r}"
            )
        if len(self.requests) > self._planned:
            raise self._exhausted()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if exc_type is None:
            self.assert_done()


def _flatten(script: Script, request: ModelRequest) -> Iterator[Part]:
    if isinstance(script, str):
        yield say(script)
    elif isinstance(script, ModelError):
        yield fail(script)
    elif isinstance(script, Part):
        yield script
    elif callable(script):
        yield from _flatten(script(request), request)
    else:
        for part in script:
            yield from _flatten(part, request)


def _ends(batch: tuple[Delta, ...]) -> bool:
    return any(isinstance(delta, Finished) for delta in batch)


def _has_call(batch: tuple[Delta, ...]) -> bool:
    return any(isinstance(delta, ToolCallDelta) for delta in batch)


def _stalled(steps: list[_Step], batches: int) -> list[_Step]:
    """The steps up to the first `batches` deltas, then silence."""
    kept: list[_Step] = []
    for step in steps:
        if isinstance(step, tuple) and batches == 0:
            break
        batches -= isinstance(step, tuple)
        kept.append(step)
    return [*kept, _Hang()]

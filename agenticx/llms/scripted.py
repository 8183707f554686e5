"""A model that replays scripted replies and faults in order and records every request.

At the end of a test it fails if replies are left unplayed. A reply is one part or a list of parts, and parts nest:

    ScriptedModel([
        [think("I should look."), call("file_read", {"path": "a.txt"})],
        say("It says hello.", pieces=3),
        [say("half an ans"), cut()],
    ])

A reply that does not end in `cut`, `hang`, `fail` or `finish` gets its end marker automatically.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Self, assert_never

from agenticx.argument_types import check_iterable
from agenticx.call_errors import explain_calls
from agenticx.clocks import Clock, SystemClock
from agenticx.errors import ModelError
from agenticx.llms.base import Delta, InlineForm, ModelRequest
from agenticx.llms.sampling import Sampling, SamplingField
from agenticx.llms.script_parts import (
    Fail,
    Hang,
    Part,
    Pause,
    Script,
    call,
    check_script,
    cut,
    fail,
    finish,
    hang,
    pause,
    raw,
    say,
    script_steps,
    stall_after,
    think,
    usage,
)

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


class ScriptExhausted(ModelError, AssertionError):
    """Raised when the model is called more often than the script has replies."""


@explain_calls
class ScriptedModel:
    """A model that plays `replies` in order, one per call; `requests` records the requests.

    Used in a `with` block (or by the `scripted_model` fixture) it raises `AssertionError` at the end if replies
    are left unplayed or if it was called more often than it has replies. `pause` waits on `clock`.
    """

    def __init__(
        self,
        replies: Iterable[Script] = (),
        *,
        name: str = "scripted",
        context_window: int | None = None,
        inline_calls: Sequence[InlineForm] = (),
        clock: Clock | None = None,
    ) -> None:
        check_iterable("replies", replies, "replies, each a text, a part or a list of parts")
        self._replies: deque[Script] = deque(replies)
        for number, reply in enumerate(self._replies):
            check_script(f"replies[{number}]", reply)
        self._planned = len(self._replies)
        self.name = name
        self.context_window = context_window
        self.inline_calls = tuple(inline_calls)
        self._clock: Clock = clock or SystemClock()
        self._calls_made = 0
        self.requests: list[ModelRequest] = []
        self.open_streams = 0

    def stream(self, request: ModelRequest) -> AsyncGenerator[Sequence[Delta], None]:
        """Play the next reply; the stream raises `ScriptExhausted` if there is none."""
        self.requests.append(replace(request, messages=tuple(request.messages), tools=tuple(request.tools)))
        return self.play(self._replies.popleft() if self._replies else self._exhausted(), request)

    async def play(self, script: Script, request: ModelRequest) -> AsyncGenerator[Sequence[Delta], None]:
        """Play one reply that is not part of the script."""
        self.open_streams += 1
        try:
            for step in script_steps(script, request, self._next_id):
                match step:
                    case tuple():
                        yield step
                    case Pause():
                        await self._clock.sleep(step.seconds)
                    case Hang():
                        await asyncio.get_running_loop().create_future()
                    case Fail():
                        raise step.error
                    case _:
                        assert_never(step)
        finally:
            self.open_streams -= 1

    def _next_id(self) -> str:
        self._calls_made += 1
        return f"call_{self._calls_made}"

    def _exhausted(self) -> ScriptExhausted:
        return ScriptExhausted(
            f"model {self.name!r} has {self._planned} scripted replies and was asked for reply {len(self.requests)}",
            code="provider.bad_request",
            provider_type="script_exhausted",
        )

    def sampling_problems(self, sampling: Sampling) -> Mapping[SamplingField, str]:
        """Return nothing: any sampling is accepted, and recorded in `requests`."""
        return {}

    @property
    def unplayed(self) -> int:
        """The number of replies that were not requested yet."""
        return len(self._replies)

    def assert_done(self) -> None:
        """Raise `AssertionError` unless the model was called exactly as often as the script has replies."""
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

"""Tests that every exception of a tool becomes the result of its call and the turn goes on."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import dataclass

import pytest

from agenticx import load_attachment
from agenticx.errors import (
    AttachmentRefused,
    ClockExpired,
    HookFailed,
    InvalidArguments,
    ModelError,
    SessionBusy,
    SettingsError,
    StoreError,
    ToolError,
    UserCodeError,
)
from agenticx.runtime import TurnContext, TurnInterrupted
from agenticx.runtime.calls.validation import CallRefused
from agenticx.runtime.resume import NullCallJournal
from agenticx.testing import ScriptedModel, call, outline
from agenticx.tools import ToolContext, tool
from tests.support.odd_tools import Panic, one_result
from tests.support.timeouts import PATIENCE

pytestmark = [pytest.mark.anyio, pytest.mark.promise("F4")]


class Unspeakable(Exception):
    """An exception whose text cannot be read."""

    def __str__(self):
        raise RuntimeError("no")

    __repr__ = __str__


@pytest.mark.parametrize(
    "exc",
    [
        ValueError("bad"),
        ToolError("be kinder"),
        SystemExit(3),
        Panic("boo"),
        StopIteration(1),
        StopAsyncIteration(1),
        GeneratorExit(),
        asyncio.CancelledError(),
        Unspeakable(),
        RecursionError("deep"),
        MemoryError(),
        ExceptionGroup("several", [ValueError("a"), TypeError("b")]),
        ValueError("x" * 1_000_000),
        ValueError("\ud800"),
    ],
    ids=lambda exc: type(exc).__name__,
)
@pytest.mark.parametrize("kind", ["async", "plain"])
async def test_an_exception_of_a_tool_is_an_error_result(play, exc, kind):
    async def later():
        """Raise."""
        raise exc

    def now():
        """Raise."""
        raise exc

    data = await one_result(play, later if kind == "async" else now)

    assert (data["is_error"], data["outcome"]) == (True, "error")
    assert len(data["result"]) < 40_000


class Unsayable(StoreError):
    def __str__(self):
        raise RuntimeError("no")


@pytest.mark.parametrize(
    ("exc", "outcome", "text"),
    [
        (ToolError("try b"), "error", "try b"),
        (InvalidArguments("b is no"), "invalid_arguments", "Invalid arguments: b is no"),
        (AttachmentRefused("no such file"), "error", "Error: no such file"),
        (SessionBusy("busy"), "error", "Error: busy"),
        (StoreError("no disk"), "error", "Error: no disk"),
        (ModelError("no key", code="provider.auth"), "error", "Error: no key"),
        (
            ClockExpired("slow", code="timeout.hard", elapsed_seconds=1, limit_seconds=1),
            "error",
            "Error: slow",
        ),
        (HookFailed("hook"), "error", "Error: hook"),
        (SettingsError("setting"), "error", "Error: setting"),
        (UserCodeError("late", what="it", kind="timed_out"), "error", "Error: late"),
        (TurnInterrupted("stopped"), "error", "Error: the turn was stopped"),
        (CallRefused("no", "denied"), "error", "Error: no"),
        (Unsayable(), "error", "Error: tool 'odd' raised RuntimeError: no"),
        (StoreError("\ud800"), "error", "Error: \ufffd"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
@pytest.mark.parametrize("kind", ["async", "plain"])
async def test_agenticx_errors_are_results_like_any_other_error(play, exc, outcome, text, kind):
    async def later():
        """Raise."""
        raise exc

    def now():
        """Raise."""
        raise exc

    data = await one_result(play, later if kind == "async" else now)

    assert (data["is_error"], data["outcome"], data["result"]) == (True, outcome, text)


@pytest.mark.parametrize("error", [ToolError, InvalidArguments, StoreError])
async def test_a_long_message_of_an_error_is_shortened(play, error):
    async def fail():
        """Raise."""
        raise error("x" * 1_000_000)

    data = await one_result(play, fail)

    assert (data["truncated"], len(data["result"]) < 31_000) == (True, True)


async def test_an_attachment_that_is_refused_is_a_result(play):
    def load():
        """Load."""
        return load_attachment("missing.png")

    data = await one_result(play, load)

    assert data["outcome"] == "error"
    assert data["result"].startswith("Error: ")
    assert "missing.png" in data["result"]


async def test_a_turn_of_the_same_session_inside_a_tool_is_a_result_and_the_outer_turn_goes_on(play):
    session = play.session()

    async def nest():
        """Run a turn of the session that runs this one."""
        return [event async for event in play.runtime(ScriptedModel([])).run_turn("again", session)]

    data = await one_result(play, nest, session=session)

    assert data["outcome"] == "error"
    assert data["result"] == f"Error: session {session.id!r} already runs a turn; wait for its terminal event"


async def test_a_turn_of_another_session_inside_a_tool_works(play):
    async def nest():
        """Run a turn."""
        return outline([event async for event in play.runtime(ScriptedModel(["hi"])).run_turn("go", play.session())])

    data = await one_result(play, nest)

    assert data["result"] == '["turn_started","round_start","token","final"]'


async def test_a_keyboard_interrupt_of_a_plain_functions_own_is_a_result(play):
    def interrupt():
        """Raise what no signal caused: signals reach the main thread only."""
        raise KeyboardInterrupt

    data = await one_result(play, interrupt)

    assert data["outcome"] == "error"
    assert data["result"].endswith("raised RuntimeError: interrupt raised KeyboardInterrupt")


async def test_a_tool_that_cancels_its_task_is_an_error(play):
    async def give_up():
        """Give up."""
        asyncio.current_task().cancel()
        await asyncio.sleep(0)

    data = await one_result(play, give_up)

    assert data["outcome"] == "error"


async def test_a_tool_that_ignores_cancellation_is_timed_out(play):
    release, ended = asyncio.Event(), asyncio.Event()

    @tool(risk="read", name="odd", timeout=1)
    async def deaf() -> str:
        """Hear nothing."""
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue
        ended.set()
        return "late"

    model = ScriptedModel([call("odd"), "ok"])
    runtime = play.runtime(model)
    session = play.session()
    events = [event async for event in runtime.run_turn("go", session, tools=[deaf])]
    release.set()
    await ended.wait()

    assert [event.data["outcome"] for event in events if event.type == "tool_result"] == ["timed_out"]
    assert [message.role for message in session.messages] == ["user", "assistant", "tool", "assistant"]


async def test_a_tool_that_blocks_its_thread_is_timed_out(play):
    release = threading.Event()

    @tool(risk="read", name="odd", timeout=1)
    def block() -> None:
        """Block."""
        release.wait(PATIENCE)

    data = await one_result(play, block)
    release.set()

    assert data["outcome"] == "timed_out"


# --- errors of the engine in a tool -----------------------------------------------------------------------------------


@dataclass
class FullDisk(NullCallJournal):
    """A journal that cannot record processes."""

    async def record_process(self, call, process):
        raise StoreError("no space left")


@pytest.mark.parametrize("reaction", ["pass", "swallow", "replace"])
async def test_an_error_of_the_journal_ends_the_turn_even_if_the_tool_catches_it(play, reaction):
    @tool(risk="read", name="odd")
    async def launch(context: ToolContext):
        """Start a process."""
        try:
            await context.record_process({"pid": 1, "started": 1, "mark": "m"})
        except StoreError:
            if reaction == "pass":
                raise
            if reaction == "replace":
                raise ToolError("try again") from None
        return "launched"

    runtime = play.runtime(ScriptedModel([call("odd")]))
    events = [
        event
        async for event in runtime.run_turn(
            "go", play.session(), tools=[launch], context=TurnContext(journal=FullDisk())
        )
    ]

    outcome = "ok" if reaction == "swallow" else "cancelled"  # a finished call keeps its outcome
    assert outline(events, detail=True)[-2:] == [f"tool_result:{outcome}", "error:storage"]
    assert events[-1].data["text"] == "no space left"


async def test_the_engines_error_in_one_of_several_calls_ends_the_others_at_once(play):
    @tool(risk="read")
    async def launch(context: ToolContext, n: int):
        """Start a process, or hang."""
        if n != 2:
            await asyncio.Event().wait()
        await context.record_process({"pid": 1, "started": 1, "mark": "m"})

    runtime = play.runtime(ScriptedModel([[call("launch", {"n": n}) for n in range(4)]]))
    began = asyncio.get_running_loop().time()
    events = [
        event
        async for event in runtime.run_turn(
            "go", play.session(), tools=[launch], context=TurnContext(journal=FullDisk())
        )
    ]

    assert outline(events, detail=True)[-5:] == [*["tool_result:cancelled"] * 4, "error:storage"]
    assert asyncio.get_running_loop().time() - began < 1

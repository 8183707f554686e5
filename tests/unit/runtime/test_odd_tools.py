"""Misbehaving tools: whatever they do is one result, and the turn goes on."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import dataclass

import pytest
from pydantic import BaseModel

from agenticx.attachments import load_attachment
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
from agenticx.llms.base import ToolSchema
from agenticx.runtime import AutoApproveConfirmGate, encode_envelope
from agenticx.runtime.calls.authorization import CallRefused
from agenticx.runtime.interrupts import TurnInterrupted
from agenticx.runtime.resume import NullCallJournal
from agenticx.testing import ScriptedModel, call, outline
from agenticx.tools.base import Assessment, ToolContext
from agenticx.tools.registry import tool
from tests.support.patience import PATIENCE

pytestmark = [pytest.mark.anyio, pytest.mark.promise("F4")]


class Panic(BaseException):
    """An exception that is neither an Exception nor a SystemExit."""


class Unspeakable(Exception):
    """An exception whose text cannot be read."""

    def __str__(self):
        raise RuntimeError("no")

    __repr__ = __str__


class Unshowable:
    def __repr__(self):
        raise RuntimeError("no")


class Shown:
    def __repr__(self):
        return "<Shown>"


class Point(BaseModel):
    x: int
    y: int


def cyclic():
    value: dict = {"a": 1}
    value["self"] = value
    return value


def deep():
    value: list = []
    for _ in range(100_000):
        value = [value]
    return value


async def one_result(play, function, **options):
    """Run a turn with one call of `function` and return its result's data."""
    options.setdefault("gate", AutoApproveConfirmGate())
    made = tool(risk="read", name="odd")(function) if not hasattr(function, "schema") else function
    run = await play([call("odd"), "ok"], tools=[made], **options)
    assert run.outline[-3:] == ["round_start", "token", "final:answer"]
    for event in run.events:
        encode_envelope(event, session_id="s", turn_id="t", seq=1, ts="now")
    [result] = run.events_of("tool_result")
    return result.data


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
async def test_raising(play, exc, kind):
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

    assert data["result"] == '["turn_started", "round_start", "token", "final"]'


async def test_a_keyboard_interrupt_of_a_plain_functions_own_is_a_result(play):
    def interrupt():
        """Raise what no signal caused: signals reach the main thread only."""
        raise KeyboardInterrupt

    data = await one_result(play, interrupt)

    assert (data["outcome"], "KeyboardInterrupt" in data["result"]) == ("error", True)


async def test_a_plain_function_may_start_background_work(play):
    done = []

    async def clean_up():
        done.append(threading.current_thread())

    def odd(context: ToolContext):
        """Hand over work, from a thread."""
        context.add_background_task(clean_up())

    data = await one_result(play, odd)

    assert (data["outcome"], done) == ("ok", [threading.current_thread()])


async def test_background_work_that_exits_ends_neither_the_turn_nor_the_program(play):
    done = []

    async def leave():
        done.append(True)
        raise SystemExit(3)

    async def odd(context: ToolContext):
        """Hand over work."""
        context.add_background_task(leave())

    data = await one_result(play, odd)

    assert (data["outcome"], done) == ("ok", [True])


# --- generators -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["async", "plain"])
@pytest.mark.parametrize("begun", [True, False])
async def test_a_returned_generator_is_closed_and_reported_as_an_error(play, kind, begun):
    closed = []

    def count():
        try:
            yield 1
            yield 2
        finally:
            closed.append(threading.get_ident())

    def begin():
        generator = count()
        if begun:
            next(generator)
        return generator

    async def later():
        """Return a generator."""
        return begin()

    def now():
        """Return a generator."""
        return begin()

    data = await one_result(play, later if kind == "async" else now)

    assert data["outcome"] == "error"
    assert data["result"] == ("Error: the tool returned a generator; it must collect what it yields and return that.")
    assert len(closed) == begun
    assert threading.get_ident() not in closed, "its code runs beside the loop"


@pytest.mark.parametrize("kind", ["async", "plain"])
async def test_a_returned_async_generator_is_closed_and_reported_as_an_error(play, kind):
    closed = []

    async def count():
        try:
            yield 1
        finally:
            await asyncio.sleep(0)
            closed.append(True)

    generator = count()
    assert await anext(generator) == 1

    async def later():
        """Return an async generator."""
        return generator

    def now():
        """Return an async generator."""
        return generator

    data = await one_result(play, later if kind == "async" else now)

    assert (data["outcome"], "an async generator" in data["result"]) == ("error", True)
    assert closed == [True]


async def test_a_coroutine_that_was_not_awaited_is_closed_and_reported_as_an_error(play):
    async def inner():
        return "never"

    async def forgetful():
        """Forget to await."""
        return inner()

    data = await one_result(play, forgetful)

    assert (data["outcome"], "a coroutine" in data["result"]) == ("error", True)


async def test_a_generator_that_cannot_be_closed_is_timed_out(play):
    async def stuck():
        try:
            yield 1
        finally:
            await asyncio.Event().wait()

    generator = stuck()
    await anext(generator)

    @tool(risk="read", name="odd", timeout=1)
    async def give():
        """Return it."""
        return generator

    data = await one_result(play, give)

    assert data["outcome"] == "timed_out"


# --- errors of the engine behind a tool -------------------------------------------------------------------------------


@dataclass
class FullDisk(NullCallJournal):
    """A journal that cannot record processes."""

    async def record_process(self, call, process):
        raise StoreError("no space left")


@pytest.mark.parametrize("reaction", ["pass", "swallow", "replace"])
async def test_what_the_journal_raises_inside_a_tool_ends_the_turn_whatever_the_tool_does(play, reaction):
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
    events = [event async for event in runtime.run_turn("go", play.session(), tools=[launch], journal=FullDisk())]

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
    events = [event async for event in runtime.run_turn("go", play.session(), tools=[launch], journal=FullDisk())]

    assert outline(events, detail=True)[-5:] == [*["tool_result:cancelled"] * 4, "error:storage"]
    assert asyncio.get_running_loop().time() - began < 1


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, ""),
        ("text", "text"),
        ("a\ud800b\x00", "a\ufffdb\x00"),
        (b"bytes \xff", "bytes \ufffd"),
        (7, "7"),
        (True, "true"),
        (float("nan"), "NaN"),
        ({"a": [1, None]}, '{"a": [1, null]}'),
        ({1: {2, 3}}, '{"1": "{2, 3}"}'),
        (Point(x=1, y=2), '{"x":1,"y":2}'),
        (Shown(), '"<Shown>"'),
        ([], "[]"),
        ("", ""),
    ],
    ids=repr,
)
async def test_returning(play, value, text):
    async def give():
        """Give."""
        return value

    data = await one_result(play, give)

    assert (data["outcome"], data["result"]) == ("ok", text)


@pytest.mark.parametrize("make", [cyclic, deep, Unshowable, lambda: iter([1]), lambda: (n for n in "ab")])
async def test_returning_a_value_without_a_usable_repr(play, make):
    async def give():
        """Give."""
        return make()

    data = await one_result(play, give)

    assert len(data["result"]) < 40_000


@pytest.mark.parametrize("value", ["x" * 100_000_000, b"x" * 100_000_000, ["x" * 1000] * 10_000], ids=type)
async def test_returning_something_huge_keeps_head_and_tail_and_says_so(play, value):
    async def give():
        """Give."""
        return value

    data = await one_result(play, give)

    assert data["truncated"] is True
    assert len(data["result"]) < 31_000
    assert "left out" in data["result"]


async def test_cancelling_itself(play):
    async def give_up():
        """Give up."""
        asyncio.current_task().cancel()
        await asyncio.sleep(0)

    data = await one_result(play, give_up)

    assert data["outcome"] == "error"


async def test_hanging_and_ignoring_cancellation(play):
    release = asyncio.Event()

    @tool(risk="read", name="odd", timeout=1)
    async def deaf() -> str:
        """Hear nothing."""
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue
        return "late"

    before = asyncio.all_tasks()
    model = ScriptedModel([call("odd"), "ok"])
    runtime = play.runtime(model)
    session = play.session()
    events = [event async for event in runtime.run_turn("go", session, tools=[deaf])]
    release.set()
    await asyncio.wait(asyncio.all_tasks() - before)

    assert [event.data["outcome"] for event in events if event.type == "tool_result"] == ["timed_out"]
    assert [message.role for message in session.messages] == ["user", "assistant", "tool", "assistant"]


async def test_blocking_its_thread_past_the_time_out(play):
    release = threading.Event()

    @tool(risk="read", name="odd", timeout=1)
    def block() -> None:
        """Block."""
        release.wait(PATIENCE)

    data = await one_result(play, block)
    release.set()

    assert data["outcome"] == "timed_out"


# --- events of their own ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("type_", "payload"),
    [
        ("final", {"text": "done"}),
        ("error", {"fatal": True, "code": "stopped", "text": ""}),
        ("token", {"text": "x"}),
        ("tool_result", {}),
        ("subagent_paused", {}),
        ("no_such_event", {}),
        ("", {}),
        (None, {}),
        (["artifact"], {}),
        ("artifact", {}),
        ("artifact", {"path": 7, "final": "yes"}),
        ("artifact", {"path": "a", "final": True, "extra": 1}),
        ("artifact", None),
        ("artifact", 7),
        ("artifact", cyclic()),
        ("artifact", {"path": "a", "content": float("nan"), "final": True}),
        ("artifact", {"path": "a", "content": object(), "final": True}),
        ("citation", {"quote": "x"}),
        ("handoff", {"from_agent": "a"}),
        ("subagent_started", {"task": "x"}),
        ("tool_progress", [1]),
    ],
)
async def test_emitting_a_forbidden_or_invalid_event_is_an_error_of_the_tool(play, type_, payload):
    async def odd(context: ToolContext):
        """Emit."""
        context.emit(type_, payload)

    data = await one_result(play, odd)

    assert data["outcome"] == "error"


async def test_emitted_text_is_cleaned(play):
    @tool(risk="read", name="odd")
    async def odd(context: ToolContext):
        """Emit."""
        context.emit("tool_progress", {"output": "a\ud800"})
        context.emit("artifact", {"path": "b\ud800", "content": "c\udfff", "final": True})

    run = await play([call("odd"), "ok"], tools=[odd])

    assert run.events_of("tool_progress")[0].data["output"] == "a\ufffd"
    assert run.events_of("artifact")[0].data == {"path": "b\ufffd", "content": "c\ufffd", "final": True}


async def test_emitting_from_many_threads_keeps_each_threads_order(play):
    @tool(risk="read")
    def work(context: ToolContext) -> str:
        """Emit from threads."""

        def emit(name):
            for n in range(50):
                context.emit("tool_progress", {"output": f"{name}{n}"})

        threads = [threading.Thread(target=emit, args=(name,)) for name in "abcd"]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return "done"

    run = await play([call("work"), "ok"], tools=[work])

    outputs = [event.data["output"] for event in run.events_of("tool_progress")]
    assert len(outputs) == 200
    for name in "abcd":
        assert [text for text in outputs if text[0] == name] == [f"{name}{n}" for n in range(50)]


async def test_emitting_after_the_end_is_dropped(play):
    kept: list[ToolContext] = []

    @tool(risk="read")
    async def leave(context: ToolContext) -> str:
        """Keep the context."""
        kept.append(context)
        return "left"

    @tool(risk="read")
    async def late() -> str:
        """Emit for a call that is over."""
        kept[0].emit("tool_progress", {"output": "late"})
        return "late"

    run = await play([call("leave"), call("late"), "ok"], tools=[leave, late])

    assert run.events_of("tool_progress") == []


# --- tools that are no function ---------------------------------------------------------------------------------------


@dataclass
class Handmade:
    """A tool that implements the protocol directly, with parts that can misbehave."""

    assessment: object = None
    verdict: object = None
    result: object = "made"
    timeout: float | None = None
    read_only: bool = False
    schema = ToolSchema("odd", "Odd.", {"type": "object"})

    def assess(self, arguments, context):
        return self.assessment() if callable(self.assessment) else self.assessment or Assessment(risk="read")

    def validate(self, arguments):
        return self.verdict() if callable(self.verdict) else dict(arguments)

    def run(self, arguments, context):
        return self.result() if callable(self.result) else self._later()

    async def _later(self):
        return self.result


def _raise(exc):
    def function():
        raise exc

    return function


async def test_a_handmade_tool_works(play):
    data = await one_result(play, Handmade())

    assert (data["outcome"], data["result"]) == ("ok", "made")


async def test_a_run_that_returns_plainly_works(play):
    data = await one_result(play, Handmade(result=lambda: "plain"))

    assert (data["outcome"], data["result"]) == ("ok", "plain")


@pytest.mark.parametrize(
    "odd",
    [
        Handmade(assessment=_raise(RuntimeError("no"))),
        Handmade(assessment=_raise(Panic())),
        Handmade(assessment=lambda: "fine"),
        Handmade(assessment=lambda: None),
        Handmade(result=_raise(RuntimeError("no"))),
        Handmade(result=_raise(SystemExit())),
        Handmade(result=_raise(SessionBusy("no"))),
        Handmade(result=lambda: (n for n in "ab")),
    ],
    ids=[
        "assess raises",
        "assess panics",
        "assess junk",
        "assess none",
        "run raises",
        "run exits",
        "run raises ours",
        "run returns a generator",
    ],
)
async def test_a_handmade_tool_that_fails_is_an_error_of_the_tool(play, odd):
    data = await one_result(play, odd)

    assert data["outcome"] == "error"


@pytest.mark.parametrize(
    "verdict",
    [
        _raise(RuntimeError("no")),
        _raise(Panic()),
        _raise(GeneratorExit()),
        _raise(asyncio.CancelledError()),
        _raise(StoreError("no")),
        _raise(ToolError("no")),
        lambda: None,
        lambda: [1],
        lambda: {"a": Unshowable()},
        lambda: cyclic(),
    ],
)
async def test_a_handmade_tool_whose_validation_fails_does_not_run(play, verdict):
    data = await one_result(play, Handmade(verdict=verdict))

    assert data["outcome"] == "invalid_arguments"


async def test_a_binding_that_is_not_json_does_not_run(play):
    odd = Handmade(assessment=lambda: Assessment(risk="write", binding={"a": object()}))
    data = await one_result(play, odd)

    assert data["outcome"] == "error"

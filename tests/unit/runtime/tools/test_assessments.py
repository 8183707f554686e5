"""Assessments of calls run in threads: they do not block the event loop, and a stop abandons them."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import random
import threading
from datetime import timedelta

import pytest

from agenticx import AgenticXError, UserMessage
from agenticx.messages import AssistantMessage, ToolCall
from agenticx.runtime import AsyncConfirmGate, ConfirmRequest
from agenticx.runtime.resume import ResumedRequest, ResumePoint
from agenticx.runtime.user_requests.confirm_digest import confirm_digest, write_json
from agenticx.runtime.user_requests.request_text import confirm_lines
from agenticx.testing import ScriptedGate, ScriptedModel, call
from agenticx.tools import Assessment, tool
from agenticx.tools.builtin import bash_exec, file_edit, file_write
from tests.support.jumping_clock import LoopClock
from tests.support.lanes import Count
from tests.support.timed_stop import LIMIT, STOPPED, TimedStop
from tests.support.timeouts import PATIENCE, longest_hold, wait_until
from tests.support.turn_player import collector

pytestmark = pytest.mark.anyio

MOST_SECONDS = 0.05
"""CPU seconds for which an assessment may block the event loop."""
MEGABYTE = 1_000_000


class BlockingAssessment:
    """A tool's assessment that blocks until it is released."""

    def __init__(self):
        self.begun = threading.Event()
        self.go_on = threading.Event()
        self.threads: list[int] = []

    def __call__(self, arguments, context):
        self.threads.append(threading.get_ident())
        self.begun.set()
        self.go_on.wait(PATIENCE)
        return Assessment(risk="read")


# --- a stop -----------------------------------------------------------------------------------------------------------


@pytest.mark.promise("C8")
async def test_a_stop_ends_the_turn_while_an_assessment_runs(play):
    held, stop, loop = BlockingAssessment(), TimedStop(), asyncio.get_running_loop()

    def assess(arguments, context):
        loop.call_soon_threadsafe(stop.press_soon)
        return held(arguments, context)

    @tool(risk="read", assess=assess)
    async def look() -> str:
        """Look."""
        return "seen"

    run = await play([[call("look"), call("look")]], tools=[look], stop=stop.signal, on=stop)
    held.go_on.set()

    assert [outcome for _, outcome, _ in run.results] == ["cancelled", "cancelled"]
    assert run.terminal == STOPPED
    assert stop.seconds < LIMIT
    assert threading.get_ident() not in held.threads


async def test_an_assessment_that_does_not_end_is_an_error_of_its_call(play):
    held = BlockingAssessment()

    @tool(risk="read", assess=held)
    async def look() -> str:
        """Look."""
        return "seen"

    run = await play([call("look"), "ok"], tools=[look], settings={"tool_timeout_seconds": 1})
    held.go_on.set()

    [(_, outcome, text)] = run.results
    assert (outcome, text) == ("error", "the assessment of tool 'look' did not answer within 1 s")


async def test_every_assessment_runs_in_a_thread_of_its_own(play):
    threads: list[int] = []

    def assess(arguments, context):
        threads.append(threading.get_ident())
        return Assessment(risk="execute")

    @tool(risk="execute", assess=assess)
    async def work() -> str:
        """Work."""
        return "done"

    run = await play([call("work"), "ok"], tools=[work], gate=ScriptedGate(True))

    assert [outcome for _, outcome, _ in run.results] == ["ok"]
    assert len(threads) == 2, "before the question and after the answer"
    assert threading.get_ident() not in threads


async def test_an_agenticx_error_raised_by_an_assessment_is_the_result_of_its_call(play):
    def assess(arguments, context):
        raise AgenticXError("the other session is busy")

    @tool(risk="read", assess=assess)
    async def look() -> str:
        """Look."""
        return "seen"

    run = await play([call("look"), "ok"], tools=[look])

    assert run.results == [("call_1", "error", "the other session is busy")]
    assert run.outline[-1] == "final:answer"


@pytest.mark.promise("E2")
@pytest.mark.parametrize("risk", ["execute", "read"])
@pytest.mark.parametrize("approved", [True, False])
async def test_a_question_from_before_a_restart_can_be_answered_while_its_call_is_assessed(play, approved, risk):
    """Its readers know it from the log, so they may answer at any moment."""
    held = BlockingAssessment()
    asked = AsyncConfirmGate()

    def assess(arguments, context):
        held(arguments, context)
        return Assessment(risk=risk)

    @tool(risk="execute", assess=assess)
    async def work() -> str:
        """Work."""
        return "done"

    binding = {"schema": work.schema_digest}
    request = ConfirmRequest(
        id="cnf_1",
        question="Allow work?",
        context={},
        digest=confirm_digest("work", {}, binding),
        expires_at=LoopClock().now() + timedelta(hours=1),
    )
    made = ToolCall(id="call_1", name="work")
    session = play.session(messages=[UserMessage(content="go"), AssistantMessage(tool_calls=(made,))])
    point = ResumePoint(round=1, calls=(made,), requests={"call_1": ResumedRequest(request=request)})
    events = []

    runtime = play.runtime(ScriptedModel(["ok"]), asked)
    turn = asyncio.create_task(runtime.write_turn(point, session, collector(events), tools=[work]))
    await wait_until(held.begun.is_set)
    asked.resolve("cnf_1", approved)
    held.go_on.set()
    await turn

    responses = [(one.data["approved"], one.data["by"]) for one in events if one.type == "confirm_response"]
    assert responses == [(approved, "user")]
    assert [one.data["outcome"] for one in events if one.type == "tool_result"] == ["ok" if approved else "denied"]


# --- real tools, real time --------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def large_folder(tmp_path_factory):
    """Create a folder with more files than an assessment reads."""
    folder = tmp_path_factory.mktemp("large")
    for number in range(20_001):
        os.mknod(folder / f"f{number}")
    return folder


@pytest.fixture
def play_with_large_folder(play, large_folder):
    (play.workspace / "many").symlink_to(large_folder)
    (play.workspace / "large").write_text("a\n" * (MEGABYTE // 2))
    return play


CALLS = {
    "a long word": (bash_exec, {"command": "echo " + "x" * 120_000}),
    "globs": (bash_exec, {"command": " ".join(f"many/f*{n}*" for n in range(64))}),
    "dotted globs": (bash_exec, {"command": " ".join(f".{n}f*" for n in range(8_000))}),
    "a megabyte": (bash_exec, {"command": "é " * (MEGABYTE // 2)}),
    "a new file": (file_write, {"path": "new", "content": "\n" * MEGABYTE}),
    "another file": (file_write, {"path": "large", "content": "b\n" * (MEGABYTE // 2)}),
    "an edit": (file_edit, {"path": "large", "old_text": "a\n" * 1_000, "new_text": "b", "replace_all": True}),
    "what is not there": (file_edit, {"path": "large", "old_text": "c" * MEGABYTE, "new_text": "b"}),
}


REFUSED = {"what is not there"}


@pytest.mark.parametrize("kind", CALLS)
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.cases(quick=1)
@pytest.mark.ci_lane
async def test_the_event_loop_runs_while_a_call_is_assessed(play_with_large_folder, anyio_backend, kind):
    made, arguments = CALLS[kind]
    holds = []
    for _ in range(3):  # a machine with more to do may let other threads wait once
        async with longest_hold() as hold:
            script = [call(made.schema.name, arguments), "ok"]
            run = await play_with_large_folder(
                script, tools=[made], gate=ScriptedGate(*[False] * (kind not in REFUSED))
            )
        assert [outcome for _, outcome, _ in run.results] == ["error" if kind in REFUSED else "denied"]
        holds.append(hold.longest)
        if hold.longest < MOST_SECONDS:
            break
    assert min(holds) < MOST_SECONDS, holds


@pytest.mark.promise("C8")
@pytest.mark.parametrize("kind", sorted(CALLS.keys() - REFUSED))
async def test_a_stop_ends_the_turn_whatever_is_assessed(play_with_large_folder, kind):
    made, arguments = CALLS[kind]
    stop = TimedStop("tool_call")
    gate = ScriptedGate("silent")
    runtime = play_with_large_folder.runtime(ScriptedModel([call(made.schema.name, arguments)]), gate)
    events = []
    async for event in runtime.run_turn("go", play_with_large_folder.session(), stop.signal, tools=[made]):
        stop(event)
        events.append(event)
    assert events[-1].data == STOPPED
    assert stop.seconds < LIMIT


# --- what is made of arguments ----------------------------------------------------------------------------------------

ARGUMENTS = {
    "text": lambda size: "a" * size,
    "accents": lambda size: "é" * size,
    "controls": lambda size: "\x01" * size,
    "blanks": lambda size: " " * size,
    "empty lines": lambda size: "\n" * size,
    "numbers": lambda size: [1] * (size // 2),
    "fractions": lambda size: [1.5e300] * (size // 8),
    "lists": lambda size: [[] for _ in range(size // 3)],
    "objects": lambda size: [{"a": 1} for _ in range(size // 8)],
    "names": lambda size: {f"k{n}": "v" for n in range(size // 12)},
    "long numbers": lambda size: [int("9" * 4_000)] * (size // 4_000),
}


def question(given) -> int:
    arguments = given if isinstance(given, dict) else {"value": given, "command": "ls\u202e", "other": given}
    diff = "+x\n" * 6_000
    lines = confirm_lines("Run?", {"tool": "t", "arguments": arguments, "command": "ls⟨U+202E⟩", "diff": diff})
    return sum(len(line.text) for line in lines)


def test_the_digest_is_that_of_plain_json(rng: random.Random, count: Count):
    for _ in range(count(100, 500, 5_000)):
        value = {"a": _value(rng, 0), "b": [_value(rng, 0)] * rng.randrange(3)}
        pieces: list[str] = []
        write_json(value, pieces.append)
        assert "".join(pieces) == json.dumps(value, sort_keys=True, separators=(",", ":"))
    text = json.dumps(["t", {"é": [1] * 2_500}, {"b": None}], sort_keys=True, separators=(",", ":"))
    assert confirm_digest("t", {"é": [1] * 2_500}, {"b": None}) == hashlib.sha256(text.encode()).hexdigest()


def _value(choose: random.Random, depth: int) -> object:
    match choose.randrange(8 if depth < 4 else 5):
        case 0:
            return choose.choice([1, -5, 2.5, 1e300, True, None, False, ""])
        case 1 | 2:
            return "".join(choose.choices('aé\ud800😀"\\\n', k=choose.randrange(5)))
        case 3 | 4:
            return choose.randrange(10**9)
        case 5:
            return {choose.choice("abé") + str(n): _value(choose, depth + 1) for n in range(choose.randrange(6))}
        case 6:
            return {n: _value(choose, depth + 1) for n in range(choose.randrange(6))}
        case _:
            return [_value(choose, depth + 1) for _ in range(choose.randrange(6))]

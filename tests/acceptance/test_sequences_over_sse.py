"""The complete event sequences of turns, as a client of a running studio reads them.

Those of an agent other than "meta", with `subagent_checkpoint` and `subagent_paused`, are not here: the studio runs no
such agent. tests/unit/runtime/test_endings.py checks them with `run_turn`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from agenticx.llms import ScriptedModel
from agenticx.runtime import AgentHook, Block
from agenticx.testing import call, check_grammar, hang, outline, pause, say, usage
from agenticx.tools import ToolContext, tool
from tests.support.server.running_studio import Frame, RunningStudio, running_studio
from tests.support.timeouts import PATIENCE, PatientClock

pytestmark = [pytest.mark.anyio, pytest.mark.promise("B7")]


@tool(risk="read")
def look(n: int) -> str:
    """Look at one of many things."""
    return f"the {n}th of many things, " * 40


@tool(risk="read", read_only=False)
def count(n: int) -> str:
    """Count a visit, which nobody is asked about."""
    return f"visit of {n}"


@tool(risk="write")
def note(text: str) -> str:
    """Write a note."""
    return f"noted {text}"


@tool(risk="read")
async def wait(context: ToolContext) -> None:
    """Say that it runs, and go on for ever."""
    context.emit("tool_progress", {"output": "waiting"})
    await asyncio.get_running_loop().create_future()


class BlockLook(AgentHook):
    """A hook that blocks the tool `look`."""

    async def before_tool_call(self, name, arguments, context):
        return Block("not today") if name == "look" else None


# --- actions of the user ----------------------------------------------------------------------------------------------


async def approve(studio: RunningStudio, asked: Frame) -> None:
    await answer(studio, asked, True)


async def deny(studio: RunningStudio, asked: Frame) -> None:
    await answer(studio, asked, False)


async def answer(studio: RunningStudio, asked: Frame, approved: bool) -> None:
    question = asked.data["data"]
    body = {"approved": approved, "digest": question["digest"]}
    assert (await studio.client.post(f"/api/confirms/{question['id']}", json=body)).status_code == 200


async def stop(studio: RunningStudio, seen: Frame) -> None:
    assert (await studio.client.post(f"/api/sessions/{seen.data['session_id']}/stop")).status_code == 202


async def resume_model(studio: RunningStudio, _seen: Frame) -> None:
    clock = studio.services.clock
    assert isinstance(clock, ModelClock)
    clock.runs.set()


@dataclass(frozen=True)
class ModelClock(PatientClock):
    """A `PatientClock` whose sleeps, those of the model, start once `runs` is set."""

    runs: asyncio.Event = field(default_factory=asyncio.Event)

    async def sleep(self, seconds: float) -> None:
        await self.runs.wait()
        await super().sleep(seconds)


# --- the sequences ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SequenceCase:
    """The script of a model and the events that a client reads, with `whole` also states and usage.

    `on` has the user's action at the first event of a type; with `held` the model's pauses start only when an action
    resumes it. Timeouts of a studio with a `PatientClock` take ten times as long, some seconds more than the events
    that must come before them.
    """

    script: list[Any]
    expected: list[str]
    whole: bool = False
    on: dict[str, Any] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    hooks: tuple[AgentHook, ...] = ()
    held: bool = False


BEGIN = ["turn_started", "round_start"]
ANSWER = ["round_start", "token", "final:answer"]
ASKS = [*BEGIN, "tool_call_delta", "tool_call:note", "confirm_required"]
LOOKS = ["round_start", "tool_call_delta", "tool_call:look", "tool_result:ok"]
COUNTS = ["round_start", "tool_call_delta", "tool_call:count", "tool_result:ok"]

CASES = {
    "text": SequenceCase([say("Hello there.", pieces=3)], [*BEGIN, "token", "final:answer"]),
    "text, whole": SequenceCase(
        [[say("Hello there.", pieces=3), usage(9, 3)]],
        [*BEGIN, "state:planning", "state:responding", "token", "usage", "state:done", "final:answer"],
        whole=True,
    ),
    "tool": SequenceCase(
        [[say("I look."), call("look", {"n": 1})], "Seen."],
        [*BEGIN, "token", "tool_call_delta", "tool_call:look", "tool_result:ok", *ANSWER],
    ),
    "tool, whole": SequenceCase(
        [[call("look", {"n": 1}), usage(9, 3)], [say("Seen."), usage(99, 2)]],
        [
            *(*BEGIN, "state:planning", "tool_call_delta", "usage", "state:executing", "tool_call:look"),
            *("tool_result:ok", "state:observing", "round_start", "state:planning", "state:responding", "token"),
            *("usage", "state:done", "final:answer"),
        ],
        whole=True,
    ),
    "unknown tool": SequenceCase(
        [call("nope"), "Then not."], [*BEGIN, "tool_call_delta", "tool_call:nope", "tool_result:unknown_tool", *ANSWER]
    ),
    "blocked by a hook": SequenceCase(
        [call("look", {"n": 1}), "Then not."],
        [*BEGIN, "tool_call_delta", "tool_call:look", "tool_result:blocked", *ANSWER],
        hooks=(BlockLook(),),
    ),
    "confirm approved": SequenceCase(
        [call("note", {"text": "x"}), "Done."],
        [*ASKS, "confirm_response:approved", "tool_result:ok", *ANSWER],
        on={"confirm_required": approve},
    ),
    "confirm denied": SequenceCase(
        [call("note", {"text": "x"}), "Then not."],
        [*ASKS, "confirm_response:denied", "tool_result:denied", *ANSWER],
        on={"confirm_required": deny},
    ),
    "confirm expired": SequenceCase(
        [call("note", {"text": "x"}), "Nobody is there."],
        [*ASKS, "stall:confirm", "confirm_response:denied", "tool_result:denied", *ANSWER],
        settings={"confirm_timeout_seconds": 0.1},
    ),
    "compaction": SequenceCase(
        [*[call("look", {"n": n}) for n in range(4)], "They looked.", "Seen."],
        ["turn_started", *LOOKS * 4, "round_start", "compaction", "token", "final:answer"],
        settings={"compaction_threshold_messages": 8, "compaction_retain_messages": 4},
    ),
    "loop warning": SequenceCase(
        [*[call("count", {"n": 1})] * 4, "I stop."], ["turn_started", *COUNTS * 4, "error:loop_warning", *ANSWER]
    ),
    "loop critical": SequenceCase(
        [call("count", {"n": 1})] * 8,
        ["turn_started", *COUNTS * 4, "error:loop_warning", *COUNTS * 4, "error:loop_detected"],
    ),
    "out of rounds": SequenceCase(
        [call("look", {"n": n}) for n in range(10)],
        ["turn_started", *LOOKS * 10, "error:max_rounds"],
        settings={"max_tool_rounds": 10},
    ),
    "stopped in the stream": SequenceCase(
        [[say("I was say"), hang()]], [*BEGIN, "token", "error:stopped"], on={"token": stop}
    ),
    "stopped in a tool": SequenceCase(
        [call("wait")],
        [*BEGIN, "tool_call_delta", "tool_call:wait", "tool_progress", "tool_result:cancelled", "error:stopped"],
        on={"tool_progress": stop},
    ),
    "stopped in a confirm": SequenceCase(
        [call("note", {"text": "x"})],
        [*ASKS, "confirm_response:denied", "tool_result:cancelled", "error:stopped"],
        on={"confirm_required": stop},
    ),
    "first feedback": SequenceCase(
        [[pause(0.1), say("Ah.")]],
        [*BEGIN, "token:waiting", "token", "final:answer"],
        on={"token": resume_model},
        settings={"llm_first_feedback_seconds": 0.2},
        held=True,
    ),
    "first chunk": SequenceCase(
        [hang()],
        [*BEGIN, "stall:first_chunk", "error:timeout.first_chunk"],
        settings={"llm_invoke_timeout_seconds": 0.05},
    ),
    "heartbeat": SequenceCase(
        [[say("Well"), hang()]],
        [*BEGIN, "token", "stall:heartbeat", "error:timeout.heartbeat"],
        settings={"llm_heartbeat_timeout_seconds": 0.05},
    ),
    "hard": SequenceCase(
        [[[say("x"), pause(0.1)] * 200]],
        [*BEGIN, "token", "stall:hard", "error:timeout.hard"],
        settings={"llm_hard_timeout_seconds": 0.2},
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
@pytest.mark.cases(quick=2)
async def test_the_event_stream_has_the_expected_sequence(case: SequenceCase, tmp_path: Path) -> None:
    clock = ModelClock()
    if not case.held:
        clock.runs.set()
    model = ScriptedModel(case.script, clock=clock)
    tools = [look, count, note, wait]
    async with running_studio(tmp_path, model, tools=tools, hooks=case.hooks, clock=clock, **case.settings) as studio:
        envelopes = [envelope async for envelope in events_of_turn(studio, case)]
    model.assert_done()
    check_grammar(envelopes)
    assert outline(envelopes, state=case.whole, usage=case.whole, detail=True) == [*case.expected, "session_changed"]
    assert [envelope["seq"] for envelope in envelopes] == list(range(1, len(envelopes) + 1))


async def events_of_turn(studio: RunningStudio, case: SequenceCase) -> AsyncIterator[dict[str, Any]]:
    """Yield the session's envelopes from the first to a change of its name, which is made once the turn has ended.

    Reading ends at that change, because an event that the turn sent after its terminal event would precede it.
    """
    session_id = await studio.session()
    assert (await studio.turn(session_id, "go")).status_code == 202
    waiting = dict(case.on)
    async with asyncio.timeout(PATIENCE), studio.events(session_id) as frames:
        async for frame in frames:
            if frame.type == "comment":
                continue
            yield frame.data
            if frame.type == "session_changed":
                return
            if act := waiting.pop(frame.type, None):
                await act(studio, frame)
            if frame.type == "final" or (frame.type == "error" and frame.data["data"]["fatal"]):
                assert (await studio.client.patch(f"/api/sessions/{session_id}", json={"name": "over"})).is_success

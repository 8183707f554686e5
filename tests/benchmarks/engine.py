"""Benchmarks of a turn, from the provider's bytes to the events that `run_turn` yields."""

from __future__ import annotations

import asyncio
import math
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

from agenticx import UserMessage
from agenticx.llms import OpenAIChatModel
from agenticx.messages import AssistantMessage, Message, ToolCall, ToolMessage
from agenticx.runtime import AgentRuntime, AutoApproveConfirmGate, ContextCompactor, EventType, Session
from agenticx.settings import load_settings
from agenticx.tools import tool
from tests.benchmarks.floor import Job, RawClient, medians
from tests.benchmarks.peer import Peer
from tests.benchmarks.rows import Row, Scale

__all__ = ["engine_rows", "import_rows", "stream_rows"]

MICRO = 1e6


@tool(risk="read")
async def look(number: int) -> str:
    """Return at once."""
    return f"seen {number}"


def runtime(peer: Peer, model: str, **more: Any) -> AgentRuntime:
    never = ContextCompactor(threshold_messages=10**9, threshold_chars=10**12)
    return AgentRuntime(
        OpenAIChatModel(model, base_url=peer.base_url),
        AutoApproveConfirmGate(),
        compactor=never,
        settings=load_settings(environ={}),
        **more,
    )


async def turn(agent: AgentRuntime, messages: Sequence[Message] = ()) -> None:
    session = Session(workspace=Path.cwd(), messages=list(messages))
    async for event in agent.run_turn("go", session, tools=[look]):
        if event.type is EventType.ERROR:
            raise RuntimeError(f"the turn went wrong: {event.data}")


async def engine_rows(peer: Peer, scale: Scale) -> list[Row]:
    """Measure tokens in a burst, tool rounds, bare turns and history, each beside its floor."""
    raw = await RawClient.connect(peer.port)

    def floor(model: str, times: int = 1) -> Job:
        async def job() -> None:
            for _ in range(times):
                await raw.ask(model)

        return job

    def cost(model: str, times: int = 1, messages: Sequence[Message] = (), **more: Any) -> Job:
        agent = runtime(peer, model, **more)

        async def job() -> None:
            for _ in range(times):
                await turn(agent, messages)

        return job

    jobs = {
        "bare": cost("burst:1", scale.turns),
        "bare floor": floor("burst:1", scale.turns),
        "burst": cost(f"burst:{scale.tokens}"),
        "burst floor": floor(f"burst:{scale.tokens}"),
        "rounds": cost(f"tools:{scale.rounds}", max_tool_rounds=scale.rounds + 1),
        "rounds floor": floor("call", scale.rounds),
        "history": cost("burst:1", 3, conversation(scale.messages)),
    }
    took = await medians(scale.repeats, jobs)
    bare, bare_floor = took["bare"] / scale.turns, took["bare floor"] / scale.turns
    burst, burst_floor = (took["burst"] - bare) / scale.tokens, (took["burst floor"] - bare_floor) / scale.tokens
    rounds, rounds_floor = (took["rounds"] - bare) / scale.rounds, took["rounds floor"] / scale.rounds
    history = (took["history"] / 3 - bare) / scale.messages
    await raw.close()
    return [
        Row(
            name="provider byte → RuntimeEvent, burst, per token",
            value=burst * MICRO,
            unit="µs",
            floor=burst_floor * MICRO,
            first_light=15,
            goal=3,
        ),
        Row(
            name="tool round (instant tool)",
            value=rounds * 1e3,
            unit="ms",
            floor=rounds_floor * 1e3,
            first_light=20,
            goal=6,
        ),
        Row(name="fixed cost of a turn", value=bare * 1e3, unit="ms", floor=bare_floor * 1e3, first_light=25, goal=7),
        Row(name="history, per message and model call", value=history * MICRO, unit="µs", first_light=20, goal=1),
    ]


def conversation(length: int) -> list[Message]:
    """Return `length` messages as in a session: requests, calls with results, answers."""
    rows: list[Message] = []
    for number in range(math.ceil(length / 4)):
        call = ToolCall(id=f"old_{number}", name="look", arguments=f'{{"number": {number}}}')
        rows += [
            UserMessage(content=f"What is in file number {number}, and why is it there?"),
            AssistantMessage(content="I shall look.", tool_calls=(call,)),
            ToolMessage(tool_call_id=call.id, name="look", content="a line of what it says\n" * 5),
            AssistantMessage(content="It holds five lines, all of them the same."),
        ]
    return rows[:length]


# --- importing ------------------------------------------------------------------------------------------------------

_IMPORT = """
import time; began = time.process_time()
{}
print(time.process_time() - began)
print(next(int(line.split()[1]) for line in open('/proc/self/status') if line.startswith('VmRSS')))
"""

_PYDANTIC_MODEL = """
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, field_validator
class Model(BaseModel):
    model_config = ConfigDict(defer_build=True)
    name: str = Field(default="", min_length=1)
"""


def import_rows(scale: Scale) -> list[Row]:
    """Measure imports in new processes, and the memory after that of the runtime.

    The floor of `Agent`, which is a pydantic model, is the import of what another one takes.
    """
    statements = ("from agenticx import Agent", _PYDANTIC_MODEL, "from agenticx.runtime import AgentRuntime")
    figures = [[_imported(statement) for statement in statements] for _ in range(scale.repeats)]
    (agent, _), (floor, _), (runtime, kilobytes) = (_medians(runs) for runs in zip(*figures, strict=True))
    return [
        Row(name="import Agent", value=agent, unit="s", floor=floor, first_light=1.5, goal=1.2),
        Row(name="import AgentRuntime", value=runtime, unit="s", first_light=0.35, goal=0.2),
        Row(name="memory after it", value=kilobytes / 1024, unit="MB", first_light=60, goal=45),
    ]


def _imported(statement: str) -> tuple[float, float]:
    """Return the CPU seconds of a statement in a new process, and the kilobytes of that process."""
    done = subprocess.run([sys.executable, "-c", _IMPORT.format(statement)], capture_output=True, text=True, check=True)
    seconds, kilobytes = done.stdout.split()
    return float(seconds), float(kilobytes)


def _medians(runs: Sequence[tuple[float, float]]) -> tuple[float, float]:
    seconds, kilobytes = zip(*runs, strict=True)
    return median(seconds), median(kilobytes)


# --- how many streams a core carries --------------------------------------------------------------------------------


async def stream_rows(peer: Peer) -> list[Row]:
    """Measure the most streams of one token per 10 ms whose p99 latency is at most 50 ms."""
    carried = 0
    for streams in (50, 100, 150, 200, 250, 300, 400, 500, 600, 800):
        late = await _p99(peer, streams)
        print(f"  {streams} streams: p99 {late * 1e3:.1f} ms", file=sys.stderr)
        if late > 0.05:
            break
        carried = streams
    return [
        Row(
            name="10-ms streams on one core, p99 ≤ 50 ms",
            value=carried,
            unit="streams",
            first_light=150,
            goal=500,
            at_least=True,
        )
    ]


async def _p99(peer: Peer, streams: int) -> float:
    agent, delays = runtime(peer, "stamped:300"), list[float]()

    async def one(number: int) -> None:
        await asyncio.sleep(number * 0.01 / streams)
        async for event in agent.run_turn("go", Session()):
            if event.type is EventType.TOKEN:
                arrived = time.monotonic_ns()
                delays.extend((arrived - int(sent)) / 1e9 for sent in event.data["text"].split())

    await asyncio.gather(*(one(number) for number in range(streams)))
    delays.sort()
    return delays[int(len(delays) * 0.99)]

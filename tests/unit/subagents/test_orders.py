"""Random orders of the ends of sub-agents and of their parent, also in processes that die."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Collection, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from agenticx import AgenticXError, UserMessage
from agenticx.errors import ModelError
from agenticx.runtime import ConfirmAnswer
from agenticx.sessions import MemoryStore, TurnRequest
from agenticx.sessions.log.commits import LoadedSession
from agenticx.sessions.log.records import SubagentDelivered, SubagentStarted
from agenticx.teams import SubagentEnding
from agenticx.testing import call, check_grammar, fail, hang, pause
from agenticx.tools import Tool, tool
from tests.support.commits import load
from tests.support.jumping_clock import VIRTUAL_TIME, LoopClock
from tests.support.lanes import Count
from tests.support.memory_store import expire_lease
from tests.support.teams.subagent_sessions import MortalStore, SubagentSession, spawn

pytestmark = pytest.mark.anyio

SECONDS = 2.0  # the time limit of a sub-agent
ENDS = ("nothing", "stop", "close", "kill", "kill at a commit")  # of a process
COMMITS = 60  # of a process, at most


@pytest.fixture
def anyio_backend() -> Any:
    """Return an event loop whose time passes only while a turn waits."""
    return VIRTUAL_TIME


def running_clock() -> LoopClock:
    """Return a clock of the running loop, which threads can use from the start."""
    clock = LoopClock()
    clock.monotonic()
    return clock


class Order:
    """A process that starts sub-agents and ends in some way, and one after it whose agent is told of all endings."""

    def __init__(self, folder: Path, rng: random.Random, end: str) -> None:
        self.rng = rng
        self.memory = MemoryStore()
        self.end = end
        self.acted: list[str] = []
        self.session = SubagentSession(
            folder,
            lambda: self._store,
            [self._act()],
            subagent_max_running=rng.randint(1, 4),
            subagent_timeout_seconds=SECONDS,
        )

    def _act(self) -> Tool:
        @tool(risk="execute")
        def act(name: str) -> str:
            """Act."""
            self.acted.append(name)
            return "acted"

        return act

    async def run(self) -> LoadedSession:
        """Run both processes and return what the session has at the end."""
        rng = self.rng
        names = [f"w{number}" for number in range(rng.randint(1, 5))]
        workers = {name: self._script(name, names) for name in names}
        waiting = rng.choice([[], [call("wait_subagents", {"mode": "any"})], [call("wait_subagents")], [pause(1), "x"]])
        main = [[spawn(name) for name in names if rng.random() < 0.8 or name == "w0"], waiting, "done", "again"]
        self._store = MortalStore(self.memory, rng.randint(1, COMMITS) if self.end == "kill at a commit" else 0)
        await self.memory.create(self.session.record)
        hub = self.session.new_hub([part for part in main if part], workers, clock=running_clock())
        await hub.recover()
        with suppress(AgenticXError):
            await hub.start(self.session.id, TurnRequest(input="go"))
            await asyncio.sleep(rng.random() * 3)
            if self.end == "stop":
                await hub.stop(self.session.id)
            elif self.end == "nothing":
                await asyncio.sleep(3 * SECONDS)
                await hub.start(self.session.id, TurnRequest(input="again", when_busy="queue"))
                await asyncio.sleep(3 * SECONDS)
        if self.end.startswith("kill"):
            self._store.die(self.session.id)
        await hub.close()
        await self._next_process()
        return await load(self.memory.other_worker(), self.session.id)

    async def _next_process(self) -> None:
        """Have the main agent told of all that has ended."""
        expire_lease(self.memory, self.session.id)
        self._store = MortalStore(self.memory.other_worker())
        workers = {f"w{number}": ["acts at last"] * 2 for number in range(5)}
        hub = self.session.new_hub(["yes", "no"], workers, clock=running_clock())
        await hub.recover()
        while any(one["state"] == "running" for one in await hub.subagents(self.session.id)):
            for question in await hub.open_requests(self.session.id):
                await hub.answer(question.id, ConfirmAnswer(approved=True), digest=question.digest)
            await asyncio.sleep(0.1)
        for _ in range(2):
            await self.session.run(hub, "and now?")
        await hub.close()
        expire_lease(self.memory, self.session.id)

    def _script(self, name: str, names: list[str]) -> list[Any]:
        """Return the script of a sub-agent; the first one may start others of its own."""
        rng = self.rng
        if name == "w0" and rng.random() < 0.5:
            waiting = [call("wait_subagents")] if rng.random() < 0.5 else []
            return [[spawn(other, tools=["list_subagents"]) for other in names[1:]] or "none", *waiting, "w0 ends"]
        script: list[list[Any]] = [
            ["ok"],
            [[pause(rng.random()), "late"]],
            [call("list_subagents"), [pause(rng.random()), "later"]],
            [hang()],
            [fail(ModelError("down", code="provider.overloaded"))],
            [call("act", {"name": name}), "acts"],
        ]
        return rng.choice(script)


def delivered_to_main(loaded: LoadedSession) -> Counter[str]:
    """Return how often the main agent was told of each sub-agent."""
    told = [one.content for one in loaded.state.messages if isinstance(one, UserMessage) and one.injected]
    return Counter(part.split()[1] for text in told for part in text.split("\n\n") if part.startswith("[sub-agent "))


def outcome(ending: SubagentEnding) -> str:
    """Return the code of an ending, its state if it has none."""
    return ending.code or ending.state


def outcomes_in(log: Sequence[dict[str, Any]], turn_ids: Collection[str]) -> dict[str, str]:
    """Return the outcomes of these turns by their terminal events."""
    fatal = {one["turn_id"]: one["data"]["code"] for one in log if one["type"] == "error" and one["data"]["fatal"]}
    final = {one["turn_id"]: "completed" for one in log if one["type"] == "final"}
    return {turn_id: found for turn_id, found in (fatal | final).items() if turn_id in turn_ids}


def reported(log: Sequence[dict[str, Any]]) -> Counter[tuple[str, str]]:
    """Return how often the log has an event of an ending, by agent and outcome."""
    ends = [one for one in log if one["type"] in ("subagent_completed", "subagent_error")]
    return Counter((one["agent_id"], one["data"].get("code", "completed")) for one in ends)


@pytest.mark.ci_lane
async def test_each_ending_is_delivered_and_reported_once_in_any_order(
    tmp_path: Path, rng: random.Random, count: Count
) -> None:
    ends, acted = Counter[str](), Counter[str]()
    orders = count(10, 100, 1_000)
    for number in range(orders):
        order = Order(tmp_path, rng, ENDS[number % len(ENDS)])
        loaded = await order.run()
        started = {fact.key: fact.run for fact in loaded.subagent_facts if isinstance(fact, SubagentStarted)}
        deliveries = [fact for fact in loaded.subagent_facts if isinstance(fact, SubagentDelivered)]
        delivered = Counter(fact.key for fact in deliveries)
        assert delivered == dict.fromkeys(started, 1), (number, order.end)
        told = delivered_to_main(loaded)
        for run in started.values():
            assert told[run.agent_id] == 1 or (run.depth > 1 and told[run.agent_id] == 0), (number, order.end)
        if log := await order.session.envelopes():
            check_grammar(log)
        assert (loaded.main_turn, list(loaded.child_turns)) == (None, [])
        outcomes = {fact.key: outcome(fact.ending) for fact in deliveries}
        assert outcomes.items() >= outcomes_in(log, outcomes).items()
        ended = Counter((run.agent_id, outcomes[turn_id]) for turn_id, run in started.items())
        assert reported(log) == ended, (number, order.end)
        starts = Counter(one["agent_id"] for one in log if one["type"] == "subagent_started")
        assert starts == Counter(run.agent_id for run in started.values()), (number, order.end)
        assert all(times == 1 for times in Counter(order.acted).values())
        acted.update(order.acted)
        ends.update(outcomes.values())
    assert {"completed", "interrupted"} <= ends.keys(), ends
    assert orders < 100 or "stopped" in ends  # rare: few sub-agents still work when they are stopped
    assert acted

"""Concurrent calls: how many at once, each after its confirmation, answered in call order."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import dataclass, field

import pytest

from agenticx.runtime import (
    AgentHook,
    AsyncConfirmGate,
    AutoApproveConfirmGate,
    ConfirmGate,
    HookRegistry,
    StopSignal,
    TurnContext,
)
from agenticx.runtime.calls.concurrency import MAX_CONCURRENT_CALLS, slots
from agenticx.testing import ScriptedGate, ScriptedModel, call
from agenticx.tools import Assessment, tool
from tests.support.timeouts import PATIENCE

pytestmark = [pytest.mark.anyio, pytest.mark.promise("D7")]


@dataclass
class Counter:
    """A count of the running calls and of the most that ran at once."""

    running: int = 0
    most: int = 0
    began: list[int] = field(default_factory=list)

    def __enter__(self):
        self.running += 1
        self.most = max(self.most, self.running)

    def __exit__(self, *_):
        self.running -= 1


def batch(name, count):
    return [call(name, {"n": n}) for n in range(count)]


@pytest.mark.parametrize("count", [2, 8, 9, 20, 100])
@pytest.mark.parametrize("marked", [True, False])
@pytest.mark.cases(quick=4)
async def test_at_most_eight_calls_run_at_once(play, count, marked):
    counter = Counter()
    options = {"risk": "execute", "parallel": True} if marked else {"risk": "read"}

    @tool(**options)
    async def work(n: int) -> int:
        """Wait until no other call can begin."""
        with counter:
            counter.began.append(n)
            while counter.most < min(count, MAX_CONCURRENT_CALLS):  # a missing one is found by the tool's time-out
                await asyncio.sleep(0.001)
            for _ in range(200):
                await asyncio.sleep(0)
        return n

    run = await play([batch("work", count), "ok"], tools=[work], gate=AutoApproveConfirmGate())

    assert counter.most == min(count, MAX_CONCURRENT_CALLS)
    assert sorted(counter.began) == list(range(count))
    assert [text for *_, text in run.results] == [str(n) for n in range(count)]


async def test_plain_functions_run_concurrently_too(play):
    together = threading.Barrier(MAX_CONCURRENT_CALLS)

    @tool(parallel=True)
    def work(n: int) -> int:
        """Wait for the others."""
        together.wait(PATIENCE)
        return n

    run = await play([batch("work", 2 * MAX_CONCURRENT_CALLS), "ok"], tools=[work], gate=AutoApproveConfirmGate())

    assert [outcome for _, outcome, _ in run.results] == ["ok"] * 2 * MAX_CONCURRENT_CALLS


async def test_marked_and_read_only_neighbours_run_together_and_others_stay_alone(play):
    counter, alone = Counter(), Counter()

    @tool(risk="read")
    async def look(n: int) -> None:
        """Look."""
        with counter:
            await asyncio.sleep(1)

    @tool(risk="write", parallel=True)
    async def send(n: int) -> None:
        """Send."""
        with counter:
            await asyncio.sleep(1)

    @tool(risk="write")
    async def change(n: int) -> None:
        """Change."""
        with alone:
            assert counter.running == 0
            await asyncio.sleep(1)

    calls = [
        call(name, {"n": n}) for n, name in enumerate(["look", "send", "look", "change", "change", "send", "look"])
    ]
    run = await play([calls, "ok"], tools=[look, send, change], gate=AutoApproveConfirmGate())

    assert (counter.most, alone.most) == (3, 1)
    assert [outcome for _, outcome, _ in run.results] == ["ok"] * 7


async def test_a_read_only_tool_can_be_declared_sequential(play):
    counter = Counter()

    @tool(risk="read", parallel=False)
    async def look(n: int) -> None:
        """Look."""
        with counter:
            await asyncio.sleep(1)

    await play([batch("look", 3), "ok"], tools=[look])

    assert counter.most == 1


async def test_the_duration_of_a_call_is_its_own_and_not_that_of_those_before_it(play):
    @tool(risk="read")
    async def work(n: int) -> None:
        """Work for so many seconds."""
        await asyncio.sleep(n)

    run = await play([[call("work", {"n": n}) for n in (9, 1, 3)], "ok"], tools=[work])

    assert [event.data["duration_ms"] for event in run.events_of("tool_result")] == pytest.approx([9000, 1000, 3000])


# --- each subset of a batch -------------------------------------------------------------------------------------------

WAYS = ["ok", "failing", "denied", "hung", "invalid", "blocked"]
OUTCOMES = {
    "ok": "ok",
    "failing": "error",
    "denied": "denied",
    "hung": "timed_out",
    "invalid": "invalid_arguments",
    "blocked": "blocked",
}


@dataclass
class Gate(ConfirmGate):
    """A gate that denies the calls marked to be denied."""

    ways: list[str]

    async def request_confirm(self, question, context):
        return self.ways[context["arguments"]["n"]] != "denied"


@dataclass
class Blocking(AgentHook):
    """A hook that blocks the calls marked to be blocked."""

    ways: list[str]

    async def before_tool_call(self, name, arguments, context):
        if self.ways[arguments["n"]] == "blocked":
            raise ValueError("no")


@pytest.mark.parametrize("count", [8, 20])
@pytest.mark.parametrize("case", range(20))
@pytest.mark.cases(quick=10)
async def test_every_call_of_a_parallel_batch_is_answered_whatever_happens_to_the_others(play, rng, count, case):
    ways = [rng.choice(WAYS) for _ in range(count)]
    counter = Counter()

    @tool(parallel=True, timeout=1)
    async def work(n: int) -> str:
        """Work."""
        with counter:
            if ways[n] == "hung":
                await asyncio.Event().wait()
            await asyncio.sleep(rng.random() / 2)
            if ways[n] == "failing":
                raise ValueError("wrong")
            return f"did {n}"

    calls = [call("work", {"n": "x" if way == "invalid" else n}) for n, way in enumerate(ways)]
    run = await play([calls, "ok"], tools=[work], gate=Gate(ways), hooks=HookRegistry([Blocking(ways)]))

    assert [id_ for id_, *_ in run.results] == [f"call_{n + 1}" for n in range(count)]
    assert [outcome for _, outcome, _ in run.results] == [OUTCOMES[way] for way in ways]
    assert [text for n, (*_, text) in enumerate(run.results) if ways[n] == "ok"] == [
        f"did {n}" for n in range(count) if ways[n] == "ok"
    ]
    assert counter.most <= MAX_CONCURRENT_CALLS


async def test_calls_that_time_out_free_their_slot_for_the_next(play):
    @tool(risk="read", timeout=1)
    async def work(n: int) -> int:
        """Hang, or not."""
        if n < 16:
            await asyncio.Event().wait()
        return n

    began = asyncio.get_running_loop().time()
    run = await play([batch("work", 20), "ok"], tools=[work])

    assert [outcome for _, outcome, _ in run.results] == ["timed_out"] * 16 + ["ok"] * 4
    assert asyncio.get_running_loop().time() - began == pytest.approx(2, abs=0.5)


# --- the person -------------------------------------------------------------------------------------------------------


async def test_all_questions_are_asked_at_once_in_call_order_and_each_call_begins_when_answered(play):
    gate, began = AsyncConfirmGate(), []

    class Uneven(AgentHook):
        async def before_tool_call(self, name, arguments, context):
            await asyncio.sleep((20 - arguments["n"]) / 10)

    @tool(parallel=True)
    async def work(n: int) -> int:
        """Work; whoever comes last is answered first."""
        began.append(n)
        pending = gate.pending()
        if pending:
            gate.resolve(pending[-1].id, approved=True)
        return n

    def answer(event):
        if event.type == "confirm_required" and len(gate.pending()) == 20:
            gate.resolve(gate.pending()[-1].id, approved=True)

    hooks = HookRegistry([Uneven()])
    run = await play([batch("work", 20), "ok"], tools=[work], gate=gate, on=answer, hooks=hooks)

    assert [event.data["context"]["arguments"]["n"] for event in run.events_of("confirm_required")] == list(range(20))
    assert began == list(reversed(range(20)))
    assert [text for *_, text in run.results] == [str(n) for n in range(20)]


async def test_calls_that_need_no_question_do_not_wait_for_one(play):
    gate, done, asked = AsyncConfirmGate(), [], asyncio.Event()

    @tool(parallel=True, assess=lambda arguments, _: Assessment(risk="read" if arguments["n"] else "execute"))
    async def work(n: int) -> None:
        """Work; the last one has the first one's question answered."""
        done.append(n)
        await asked.wait()
        if len(done) == 3 and gate.pending():
            gate.resolve(gate.pending()[0].id, approved=False)

    def note_question(event):
        if event.type == "confirm_required":
            asked.set()

    run = await play([batch("work", 4), "ok"], tools=[work], gate=gate, on=note_question)

    assert sorted(done) == [1, 2, 3]
    assert [outcome for _, outcome, _ in run.results] == ["denied", "ok", "ok", "ok"]


async def test_a_call_that_waited_for_a_slot_is_assessed_again_right_before_it_runs(play):
    versions = {"now": 1}

    def assess(arguments, context):
        return Assessment(risk="execute", binding={"version": versions["now"]})

    @tool(parallel=True, assess=assess)
    async def work(n: int) -> None:
        """Change what the others depend on."""
        await asyncio.sleep(1)
        versions["now"] += 1

    run = await play([batch("work", MAX_CONCURRENT_CALLS + 2), "ok"], tools=[work], gate=AutoApproveConfirmGate())

    outcomes = [outcome for _, outcome, _ in run.results]
    assert outcomes == ["ok"] * MAX_CONCURRENT_CALLS + ["denied"] * 2
    assert "changed after the user was asked" in run.results[-1][2]


# --- the end of the turn ----------------------------------------------------------------------------------------------


async def test_a_stop_in_the_middle_answers_every_call_and_begins_none(play):
    stop, began = StopSignal(), []

    @tool(risk="read")
    async def work(n: int) -> int:
        """End at once, hang, or stop the turn."""
        began.append(n)
        if n == 9:
            stop.set()
        if n != 1:
            await asyncio.Event().wait()
        return n

    @tool(risk="read")
    async def quick(n: int) -> int:
        """End at once."""
        return n

    calls = [call("quick", {"n": 0}), *batch("work", 20)[1:]]
    run = await play([calls], tools=[work, quick], stop=stop)

    assert began == list(range(1, 10))
    assert [outcome for _, outcome, _ in run.results] == ["ok", "ok", *["cancelled"] * 18]
    texts = [text for *_, text in run.results]
    assert all("whether it took effect is not known" in text for text in texts[2:10])
    assert all("before this call began to run" in text for text in texts[10:])
    assert run.outline[-1] == "error:stopped"


async def test_a_stop_while_questions_wait_closes_them_all(play):
    stop, gate = StopSignal(), ScriptedGate(*["silent"] * 12)

    @tool(parallel=True)
    async def work(n: int) -> None:
        """Work."""

    def press(event):
        if event.type == "confirm_required" and len(gate.requests) == 12:
            stop.set()

    run = await play([batch("work", 12)], tools=[work], gate=gate, stop=stop, on=press)

    assert [event.data["by"] for event in run.events_of("confirm_response")] == ["stop"] * 12
    assert {outcome for _, outcome, _ in run.results} == {"cancelled"}


async def test_each_execution_is_journalled_before_it_begins(play):
    order = []

    class Journal:
        async def record_call(self, one):
            order.append(("journal", one.id))

        async def record_process(self, one, process): ...

    @tool(risk="read")
    async def work(n: int) -> None:
        """Work."""
        order.append(("run", f"call_{n + 1}"))

    runtime = play.runtime(ScriptedModel([batch("work", 20), "ok"]))
    async for _ in runtime.run_turn("go", play.session(), tools=[work], context=TurnContext(journal=Journal())):
        pass

    for n in range(20):
        assert order.index(("journal", f"call_{n + 1}")) < order.index(("run", f"call_{n + 1}"))


# --- slots ------------------------------------------------------------------------------------------------------------


async def test_closing_a_slot_twice_or_without_acquiring_it_frees_nothing():
    first, *others = slots(MAX_CONCURRENT_CALLS + 1)
    others[0].close()
    await first.acquire()
    first.close()
    first.close()
    for slot in others[:MAX_CONCURRENT_CALLS]:
        await slot.acquire()

    waiting = asyncio.ensure_future(first.acquire())
    await asyncio.sleep(1)
    assert not waiting.done()
    others[0].close()
    await waiting

"""Promises C4 and D7: no call runs on what was cut or guessed, and calls of one round are independent."""

from __future__ import annotations

import asyncio
import json
from itertools import combinations

import pytest

from agenticx.errors import ModelError
from agenticx.runtime import ConfirmGate
from agenticx.testing import call, cut, fail, finish, say
from agenticx.tools import Assessment, tool
from tests.support.jumping_clock import VIRTUAL_TIME

pytestmark = pytest.mark.anyio

BROKEN = ModelError("connection reset", code="provider.transport")


@pytest.fixture
def anyio_backend():
    """Return a backend whose time passes only while a turn waits."""
    return VIRTUAL_TIME


def random_arguments(rng):
    text = "".join(rng.choice('abc "\\{}[],:\n🎉é') for _ in range(rng.randint(0, 30)))
    value = rng.choice([text, [text, 1], {"in": text}, 17, -2.5, True, None])
    return {"text": text, "more": json.dumps(value)}


@pytest.mark.promise("C4")
async def test_a_truncated_call_is_never_executed(play, rng, count):
    executed = []

    @tool(risk="write")
    async def write(text: str, more: str) -> str:
        """Write."""
        executed.append((text, more))
        return "written"

    for _ in range(count(80, 1_000, 10_000)):
        whole = json.dumps(random_arguments(rng), ensure_ascii=rng.random() < 0.5)
        at = rng.randrange(len(whole))
        pieces = call("write", whole[:at], pieces=rng.randint(1, 5))
        how, outcome = rng.choice(
            [
                (cut(), "provider.truncated"),
                (fail(BROKEN), "provider.transport"),
                (finish("content_filter"), "provider.content_filter"),
                (finish("length"), "invalid_arguments"),
                (finish("tool_calls"), "invalid_arguments"),
                (finish("end"), "invalid_arguments"),
            ]
        )
        continues = outcome == "invalid_arguments"
        run = await play(
            [[say("x"), pieces, how], *(["Sorry."] if continues else [])],
            tools=[write],
            session=play.session(permission_mode="auto"),
        )

        assert run.outline[-1] == ("final:answer" if continues else f"error:{outcome}"), whole[:at]
        assert [result for _, result, _ in run.results] == ([outcome] if continues else []), whole[:at]
    assert executed == []


@pytest.mark.promise("C4")
async def test_complete_calls_next_to_a_truncated_one_run_only_if_the_reply_is_complete(play, rng, count):
    executed = []

    @tool(risk="write")
    async def write(n: int) -> None:
        """Write."""
        executed.append(n)

    for case in range(count(40, 200, 2_000)):
        executed.clear()
        broken = rng.randrange(3)
        calls = [call("write", '{"n":' if n == broken else {"n": n}) for n in range(3)]
        stop = rng.choice(["tool_calls", "length"])
        ended = case % 2 == 0
        script = [[*calls, finish(stop) if ended else cut()], *(["ok"] if ended else [])]
        await play(script, tools=[write], session=play.session(permission_mode="auto"))

        runs = ended and stop == "tool_calls"
        assert executed == ([n for n in range(3) if n != broken] if runs else [])


# --- D7 ---------------------------------------------------------------------------------------------------------------

EIGHT = range(8)
SUBSETS = [set(chosen) for size in range(9) for chosen in combinations(EIGHT, size)]


class DenyingGate(ConfirmGate):
    """A gate that allows the calls whose `n` is not among the denied."""

    def __init__(self, denied):
        self.denied = denied

    async def request_confirm(self, question, context):
        return context["arguments"]["n"] not in self.denied


@pytest.mark.promise("D7")
@pytest.mark.parametrize("how", ["failing", "denied", "hung", "invalid"])
@pytest.mark.cases(quick=1)
async def test_unsuccessful_calls_of_a_parallel_batch_do_not_affect_the_others(play, rng, count, how):
    expected = {"failing": "error", "denied": "denied", "hung": "timed_out", "invalid": "invalid_arguments"}[how]
    subsets = count(12, 60, 256) if how == "hung" else count(12, 256, 256)
    for wrong in rng.sample(SUBSETS, subsets):

        @tool(
            risk="read",
            timeout=1,
            assess=lambda arguments, context: Assessment(risk="read", protected=how == "denied"),
        )
        async def look(n: int, wrong=wrong) -> str:
            """Look."""
            await asyncio.sleep(0)
            if n in wrong and how == "failing":
                raise ValueError(f"{n} is wrong")
            if n in wrong and how == "hung":
                await asyncio.Event().wait()
            return f"saw {n}"

        calls = [call("look", {"n": f"x{n}" if how == "invalid" and n in wrong else n}) for n in EIGHT]
        run = await play([calls, "ok"], tools=[look], gate=DenyingGate(wrong))

        assert [id_ for id_, *_ in run.results] == [f"call_{n + 1}" for n in EIGHT]
        assert [outcome for _, outcome, _ in run.results] == [expected if n in wrong else "ok" for n in EIGHT]
        assert [text for n, (*_, text) in enumerate(run.results) if n not in wrong] == [
            f"saw {n}" for n in EIGHT if n not in wrong
        ]

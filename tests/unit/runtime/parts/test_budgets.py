"""Model calls within budgets of tokens, money and time."""

from __future__ import annotations

import asyncio
import random
from datetime import date
from decimal import Decimal

import pytest

from agenticx.errors import ModelError
from agenticx.llms import Price, PricedModel, RetryingModel, Sampling, Usage
from agenticx.llms.wrappers.sampling import SampledModel
from agenticx.runtime import Budget, BudgetExceeded, TurnContext
from agenticx.testing import ScriptedGate, ScriptedModel, call, cut, fail, hang, pause, say, usage
from agenticx.tools import tool
from tests.support.histories import conversation
from tests.support.jumping_clock import LoopClock
from tests.support.timed_stop import TimedStop

pytestmark = pytest.mark.anyio


@tool(risk="read")
def look() -> str:
    """Look."""
    return "seen"


@tool(risk="read")
async def wait_long() -> str:
    """Wait for a minute."""
    await asyncio.sleep(60)
    return "waited"


@tool(risk="execute")
def act() -> str:
    """Act."""
    return "done"


DOWN = ModelError("down", code="provider.overloaded", retryable=True)


def model(*replies, price="10") -> PricedModel:
    """Return a scripted model whose million input tokens cost `price` dollars, output three times as much."""
    rates = Price(input=Decimal(price), output=3 * Decimal(price), read=date(2026, 1, 1))
    return PricedModel(ScriptedModel(replies, clock=LoopClock()), rates, LoopClock())


def within(budget: Budget) -> TurnContext:
    return TurnContext(budget=budget)


async def test_a_turn_ends_once_its_tokens_are_used(play):
    budget = Budget(tokens=2_000)
    calls = [[call("look"), usage(900, 90)], [call("look"), usage(950, 50)]]
    run = await play(ScriptedModel(calls), tools=[look], context=within(budget))

    assert run.terminal["code"] == "budget_exceeded"
    assert run.terminal["text"].startswith("the budget of 2000 tokens is exceeded: 1990 are used and ")
    assert len(run.events_of("usage")) == 2 == len(run.model.requests)
    assert budget.spent.tokens == 1_990


async def test_a_call_is_limited_to_half_of_what_is_left(play):
    budget = Budget(tokens=10_000)
    replies = [[call("look"), usage(500, 500)], [say("ok"), usage(1_000, 10)]]
    run = await play(ScriptedModel(replies), tools=[look], context=within(budget))

    limits = [request.sampling.max_output_tokens for request in run.model.requests]
    assert 4_900 <= limits[0] <= 5_000
    assert 4_400 <= limits[1] <= 4_500
    assert budget.spent.tokens == 2_010


async def test_a_large_budget_leaves_requests_as_they_are_where_the_limit_is_the_models(play):
    inner = ScriptedModel([[say("ok"), usage(10, 10)]])
    await play(SampledModel(inner, Sampling(max_output_tokens=300)), context=within(Budget(tokens=10_000)))

    assert inner.requests[0].sampling.max_output_tokens == 300


@pytest.mark.parametrize(
    ("reply", "spent"),
    [
        ([fail(ModelError("no key", code="provider.auth"))], 0),
        ([say("hal"), cut()], "reserved"),
        ([say("hello"), usage(20, 5)], 25),
        ([say("hello"), usage(output_tokens=5)], "input"),
    ],
)
async def test_what_the_provider_does_not_report_counts_as_reserved(play, reply, spent):
    budget = Budget(tokens=1_000)
    run = await play(ScriptedModel([reply]), context=within(budget))
    reserved_output = run.model.requests[0].sampling.max_output_tokens
    used = budget.spent.tokens

    match spent:
        case "reserved":
            assert used > reserved_output
        case "input":
            assert 5 < used < reserved_output
        case _:
            assert used == spent


@pytest.mark.parametrize(
    ("reply", "counts"), [([say("hal"), cut()], (None, None)), ([say("hal"), usage(20), cut()], (20, None))]
)
async def test_what_only_the_budget_counts_is_marked_in_the_usage(play, reply, counts):
    budget = Budget(tokens=1_000)
    run = await play(model(reply), context=within(budget))
    (data,) = [event.data for event in run.events_of("usage")]

    assert (data["input_tokens"], data["output_tokens"]) == counts
    assert data["reserved_tokens"] == budget.spent.tokens - (counts[0] or 0)
    assert Decimal(data["reserved_usd"]) == budget.spent.cost_usd


async def test_a_cut_reply_without_counts_and_without_a_budget_has_no_usage(play):
    run = await play([[say("hal"), cut()]])

    assert run.events_of("usage") == []


async def test_a_stopped_call_counts_as_reserved(play):
    budget, stop = Budget(tokens=1_000), TimedStop("token")
    run = await play([[say("hal"), hang()]], context=within(budget), stop=stop.signal, on=stop)

    assert run.terminal["code"] == "stopped"
    assert [event.data["reserved_tokens"] for event in run.events_of("usage")] == [budget.spent.tokens]


async def test_a_cut_summary_counts_as_reserved(play):
    budget = Budget(tokens=100_000)
    replies = [[say("They"), cut()], [say("Hi."), usage(50, 1)]]
    run = await play(replies, session=play.session(messages=conversation()), context=within(budget))

    assert [event.data.get("reserved_tokens") for event in run.events_of("usage")] == [budget.spent.tokens - 51, None]


async def test_a_failed_attempt_is_spent_beside_the_one_that_answers(play):
    budget = Budget(tokens=100_000)
    replies = [[usage(1_000, 1), fail(DOWN)], [say("ok"), usage(100, 10)]]
    run = await play(RetryingModel(model(*replies), clock=LoopClock()), context=within(budget))

    assert [event.data["cost_usd"] for event in run.events_of("usage")] == ["0.01003", "0.0013"]
    assert (budget.spent.tokens, budget.spent.cost_usd) == (1_111, Decimal("0.01133"))


async def test_no_attempt_is_made_beyond_the_budget(play):
    budget = Budget(tokens=1_500)
    inner = ScriptedModel([[usage(1_000, 1), fail(DOWN)], "never"])
    run = await play(RetryingModel(inner, clock=LoopClock()), context=within(budget))

    assert run.terminal["code"] == "budget_exceeded"
    assert len(inner.requests) == 1
    assert budget.spent.tokens == 1_001
    assert len(run.events_of("usage")) == 1


async def test_a_failed_attempt_without_counts_costs_nothing(play):
    budget = Budget(tokens=100_000)
    inner = ScriptedModel([DOWN, [say("ok"), usage(100, 10)]])
    await play(RetryingModel(inner, clock=LoopClock()), context=within(budget))

    assert budget.spent.tokens == 110


async def test_a_cost_is_reserved_at_the_models_price_and_settled_by_the_usage(play):
    budget = Budget(cost_usd="0.05")
    inner = model([call("look"), usage(1_000, 1_000)], [call("look"), usage(500, 100)])
    run = await play(inner, tools=[look], context=within(budget))

    assert [event.data["cost_usd"] for event in run.events_of("usage")] == ["0.04", "0.008"]
    assert run.terminal["code"] == "budget_exceeded"
    assert budget.spent.cost_usd == Decimal("0.048")


async def test_a_cost_cannot_be_limited_where_the_price_is_unknown(play):
    run = await play(ScriptedModel([], name="mine"), context=within(Budget(cost_usd=1)))

    assert run.terminal["code"] == "budget_exceeded"
    assert "the price of mine is unknown" in run.terminal["text"]


async def test_the_time_of_a_budget_ends_a_call(play):
    budget = Budget(seconds=30)
    run = await play([call("wait_long")], tools=[wait_long], context=within(budget))

    assert run.outline[-2:] == ["tool_result:cancelled", "error:budget_exceeded"]
    assert budget.spent.seconds == pytest.approx(30, abs=1)


async def test_waiting_for_a_person_does_not_count(play):
    class SlowGate(ScriptedGate):
        async def ask(self, request, announce):
            announce()
            await asyncio.sleep(300)
            return await super().ask(request, announce)

    budget = Budget(seconds=30)
    run = await play([call("act"), [pause(10), say("ok")]], tools=[act], gate=SlowGate(True), context=within(budget))

    assert run.outline[-1] == "final:answer"
    assert budget.spent.seconds == pytest.approx(10, abs=1)


async def test_agents_at_work_at_the_same_time_spend_time_once(play):
    budget = Budget(seconds=50)
    await asyncio.gather(
        *(play([[pause(20), say("ok")]], context=within(budget.child()), session=play.session()) for _ in range(3))
    )

    assert budget.spent.seconds == pytest.approx(20, abs=1)


async def test_a_compaction_is_part_of_the_budget(play):
    budget = Budget(tokens=100_000)
    replies = [[say("They asked 0 to 11."), usage(100, 9)], [say("Hi."), usage(50, 1)]]
    run = await play(replies, session=play.session(messages=conversation()), context=within(budget))

    assert len(run.events_of("compaction")) == 1
    assert budget.spent.tokens == 160


def test_a_child_is_limited_by_all_budgets_above():
    top = Budget(tokens=10_000)
    middle = top.child(tokens=4_000)
    leaf = middle.child()
    scripted = ScriptedModel()

    reservation = leaf.reserve(scripted, 100, None)
    assert reservation.usage.output_tokens == 1_950
    assert [budget.spent.tokens for budget in (top, middle, leaf)] == [2_050] * 3
    reservation.settle(Usage(100, 3_700))
    assert middle.spent.tokens == 3_800
    with pytest.raises(BudgetExceeded, match="of 4000 tokens"):
        leaf.reserve(scripted, 100, 1_000)
    assert top.reserve(scripted, 100, 1_000).usage.output_tokens == 1_000


def test_joined_budgets_count_each_call_once_at_each():
    team, own = Budget(tokens=10_000), Budget(tokens=5_000)
    joined = Budget.joined(own.child(), None, team, team.child())

    assert joined is not None
    joined.reserve(ScriptedModel(), 100, 900).settle(Usage(100, 200))
    assert (team.spent.tokens, own.spent.tokens) == (300, 300)
    assert Budget.joined(None, team) is team
    assert Budget.joined(None) is None


def test_nothing_else_can_be_spent_of_a_share():
    top, scripted = Budget(tokens=10_000), ScriptedModel()
    top.reserve(scripted, 100, 900).settle(Usage(100, 900))
    with top.divided([scripted] * 3, input_tokens=100) as shares:
        assert [share.tokens for share in shares] == [3_000] * 3
        with pytest.raises(BudgetExceeded, match="10000 are used"):
            top.reserve(scripted, 1, 100)
        joined = Budget.joined(shares[0], top)
        assert joined is not None
        joined.reserve(scripted, 500, 500).settle(Usage(500, 500))
        with pytest.raises(BudgetExceeded, match="of 3000 tokens"):
            joined.reserve(scripted, 1_900, 200)
        assert shares[1].reserve(scripted, 2_700, 300).usage.output_tokens == 256
    assert (top.spent.tokens, top.reserve(scripted, 100, 900).usage.output_tokens) == (4_956, 900)


async def test_a_budget_that_is_too_small_is_not_divided():
    top, priced = Budget(tokens=10_000, cost_usd=1), model()
    for divided, models, why in (
        (top, [priced, ScriptedModel(name="free")], "the price of free is unknown"),
        (Budget(tokens=1_000), [priced] * 4, "the budget of 250 tokens is exceeded: 0 are used and 356 needed"),
        (Budget(tokens=3), [priced] * 4, "the budget of 3 tokens is exceeded"),
        (Budget(cost_usd="0.01"), [priced] * 2, r"the budget of \$0.005 is exceeded"),
    ):
        with (
            pytest.raises(BudgetExceeded, match=f"cannot be divided among {len(models)} agents: {why}"),
            divided.divided(models, 100),
        ):
            pass
    with top.divided([priced] * 2, 100) as shares:
        assert [(share.tokens, share.cost_usd) for share in shares] == [(5_000, Decimal("0.5"))] * 2
    assert top.spent.tokens == 0


def test_random_trees_never_reserve_more_than_they_have(count):
    for seed in range(count(20, 200, 5_000)):
        check_random_tree(random.Random(seed))


def check_random_tree(chance: random.Random) -> None:
    nodes = [Budget(tokens=chance.randint(500, 20_000))]
    for _ in range(chance.randint(0, 8)):
        limit = chance.choice([None, chance.randint(300, 20_000)])
        nodes.append(chance.choice(nodes).child(tokens=limit))
    scripted, running, used = ScriptedModel(), [], 0
    for _ in range(100):
        if running and chance.random() < 0.5:
            reservation = running.pop(chance.randrange(len(running)))
            counts = (reservation.usage.input_tokens, chance.randint(0, reservation.usage.output_tokens))
            failed = chance.random() < 0.3
            reservation.settle(None if failed else Usage(*counts))
            used += 0 if failed else sum(counts)
        else:
            try:
                node, wanted = chance.choice(nodes), chance.choice([None, 500])
                running.append(node.reserve(scripted, chance.randint(1, 400), wanted))
            except BudgetExceeded:
                continue
        for node in nodes:
            assert node.tokens is None or 0 <= node.spent.tokens <= node.tokens
    for reservation in running:
        reservation.settle(None)
    assert nodes[0].spent.tokens == used


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"tokens": 0}, ValueError, "tokens must be above 0, not 0"),
        ({"tokens": 1.5}, TypeError, "tokens must be an int, not float"),
        ({"cost_usd": "much"}, ValueError, "cost_usd must be a number of US dollars, not 'much'"),
        ({"cost_usd": True}, TypeError, "cost_usd must be a number of US dollars, not bool"),
        ({"cost_usd": float("nan")}, ValueError, "cost_usd must be a finite number"),
        ({"seconds": "60"}, TypeError, "seconds must be a number of seconds, not str"),
        ({"seconds": -1}, ValueError, "seconds must be above 0, not -1"),
    ],
)
def test_limits_must_be_numbers_above_zero(arguments, error, words):
    with pytest.raises(error, match=words):
        Budget(**arguments)

"""Costs of calls: a decimal if every part is known, else None, never too low."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from typing import Any

import pytest

from agenticx import UserMessage
from agenticx.clocks import SystemClock
from agenticx.errors import ModelError
from agenticx.llms import LongInputRates, ModelRequest, Price, PricedModel, RetryingModel, Usage, UsageDelta, complete
from agenticx.messages import Message
from agenticx.runtime import AgentRuntime, EventType, Session
from agenticx.testing import ScriptedModel, call, collect, cut, fail, raw, say, usage
from agenticx.tools import tool

TODAY = date(2026, 11, 21)
PRICE = Price(
    input=Decimal("2.50"),
    output=Decimal("10"),
    cached=Decimal("0.25"),
    cache_write=Decimal("3.125"),
    read=date(2026, 11, 1),
)
LONG = LongInputRates(tokens=1000, input=Decimal(5), output=Decimal(20))


@pytest.mark.parametrize(
    ("usage", "price", "dollars"),
    [
        (Usage(1_000_000, 100_000), PRICE, "3.5"),
        (Usage(1_000_000, 0, cached_tokens=800_000), PRICE, "0.7"),
        (Usage(200_000, 0, 800_000, input_excludes_cached=True), PRICE, "0.7"),
        (Usage(1_000_000, 0, cache_write_tokens=400_000), PRICE, "2.75"),
        (Usage(0, 10_000, reasoning_tokens=9_000), PRICE, "0.1"),
        (Usage(0, 1_000, reasoning_tokens=9_000, output_excludes_reasoning=True), PRICE, "0.1"),
        (Usage(1, 0), PRICE, "0.0000025"),
        (Usage(0, 0), PRICE, "0"),
        (Usage(10, 0, cached_tokens=20), PRICE, "0.000005"),
        (Usage(1_000_000, 0, 500_000), PRICE.model_copy(update={"cached": None}), "2.5"),
        (Usage(1000, 1000), PRICE.model_copy(update={"over": LONG}), "0.0125"),
        (Usage(1001, 1000), PRICE.model_copy(update={"over": LONG}), "0.025005"),
        (Usage(1, 1000, 1000, input_excludes_cached=True), PRICE.model_copy(update={"over": LONG}), "0.025005"),
        (Usage(1_000_000, 0), PRICE.model_copy(update={"until": TODAY}), "2.5"),
        (Usage(1_000_000, 0), PRICE.model_copy(update={"until": date(2026, 11, 20)}), None),
        (Usage(None, 5), PRICE, None),
        (Usage(5, None), PRICE, None),
    ],
)
def test_the_cost_of_a_call_is_the_cost_of_its_tokens(usage: Usage, price: Price, dollars: str | None) -> None:
    cost = price.cost(usage, TODAY)
    assert (cost if cost is None else format(cost.normalize(), "f")) == dollars


# --- around a model ---------------------------------------------------------------------------------------------------


def priced(model: ScriptedModel, price: Price = PRICE) -> PricedModel:
    return PricedModel(model, price, SystemClock())


@pytest.mark.anyio
async def test_a_complete_reply_has_a_cost() -> None:
    with ScriptedModel([[say("hi"), usage(1000, 10)]]) as model:
        reply, error = await complete(priced(model), ModelRequest(messages=[]))
    assert (error, reply.usage) == (None, Usage(1000, 10, cost_usd=Decimal("0.0026")))


@pytest.mark.anyio
@pytest.mark.parametrize("ending", [cut(), fail(ModelError("broke", code="provider.transport"))])
async def test_a_reply_that_was_cut_off_has_no_cost(ending: Any) -> None:
    with ScriptedModel([[say("hi"), usage(1000, 1), ending]]) as model:
        reply, _ = await complete(priced(model), ModelRequest(messages=[]))
    assert reply.usage == Usage(1000, 1)


@pytest.mark.anyio
async def test_a_cost_reported_by_the_provider_is_kept() -> None:
    reported = Usage(1000, 10, cost_usd=Decimal("0.5"))
    with ScriptedModel([[say("hi"), raw(UsageDelta(reported))]]) as model:
        reply, _ = await complete(priced(model), ModelRequest(messages=[]))
    assert reply.usage == reported


# --- in turns ---------------------------------------------------------------------------------------------------------


@tool
def look() -> str:
    """Look."""
    return "nothing"


async def turn_costs(model: Any, **options: Any) -> tuple[list[str | None], str | None]:
    """Return the cost in each `usage` event of a turn, and that in its `final`."""
    events = await collect(AgentRuntime(model, **options).run_turn("hi", Session(), tools=[look]))
    calls = [event.data.get("cost_usd") for event in events if event.type is EventType.USAGE]
    return calls, events[-1].data["usage"].get("cost_usd")


@pytest.mark.anyio
async def test_a_turn_s_total_is_the_sum_of_its_calls() -> None:
    with ScriptedModel([[call("look", {}), usage(1000, 10)], [say("done"), usage(2000, 1)]]) as model:
        assert await turn_costs(priced(model)) == (["0.0026", "0.00501"], "0.00761")


@pytest.mark.anyio
async def test_a_total_with_an_unknown_cost_is_unknown() -> None:
    with ScriptedModel([[call("look", {}), usage(1000, 10)], say("done")]) as model:
        assert await turn_costs(priced(model)) == (["0.0026", None], None)


@pytest.mark.anyio
async def test_models_without_a_price_have_no_cost() -> None:
    with ScriptedModel([[say("done"), usage(1000, 10)]]) as model:
        assert await turn_costs(model) == ([None], None)


@pytest.mark.anyio
async def test_calls_of_several_models_add_up_at_their_own_prices() -> None:
    busy = ModelError("busy", code="provider.overloaded")
    dear = PRICE.model_copy(update={"input": Decimal(25)})
    with (
        ScriptedModel([[call("look", {}), usage(1000, 0)], fail(busy)]) as first,
        ScriptedModel([[say("done"), usage(1000, 0)]], name="dear") as second,
    ):
        model = RetryingModel(priced(first), [priced(second, dear)])
        assert await turn_costs(model) == (["0.0025", "0.025"], "0.0275")


@pytest.mark.anyio
async def test_the_cost_of_a_summary_is_part_of_the_total() -> None:
    history: list[Message] = [UserMessage(content="x" * 900) for _ in range(30)]
    with ScriptedModel([[say("A summary."), usage(3000, 0)], [say("done"), usage(1000, 0)]]) as model:
        events = await collect(AgentRuntime(priced(model)).run_turn("hi", Session(messages=history)))
    assert events[-1].data["usage"]["cost_usd"] == "0.01"

"""Tools that use paid services, and tools whose results have images."""

from __future__ import annotations

from datetime import date
from decimal import Decimal

import pytest

from agenticx import UserMessage
from agenticx.clocks import SystemClock
from agenticx.llms import Price, PricedModel, Usage
from agenticx.runtime import Budget, BudgetExceeded, TurnContext
from agenticx.testing import ScriptedModel, call, say, usage
from agenticx.tools import ToolContext, tool
from tests.support.wires.files import GIF, JPEG, PNG

pytestmark = pytest.mark.anyio


def paint(price: str | None, *, cost: str | None = "0.03"):
    """Return a tool that reserves `price` dollars and uses `cost`; its attribute `sent` counts what it sent."""
    sent: list[str] = []

    @tool(risk="read")
    async def paint(text: str, context: ToolContext) -> str:
        """Paint."""
        settle = context.reserve_cost("acme:painter", None if price is None else Decimal(price))
        sent.append(text)
        settle(Usage(100, 50, cost_usd=None if cost is None else Decimal(cost)))
        return "painted"

    return paint, sent


async def test_what_a_tool_pays_counts_in_the_usage_and_the_budget_of_the_turn(play):
    painter, sent = paint("0.04")
    budget = Budget(cost_usd="0.10")
    free = Price(input=Decimal(0), output=Decimal(0), read=date(2026, 1, 1))
    replies = [[call("paint", {"text": text}), usage(10, 10)] for text in "abcd"]
    model = PricedModel(ScriptedModel([*replies, [say("Done."), usage(10, 10)]]), free, SystemClock())
    run = await play(model, tools=[painter], context=TurnContext(budget=budget))

    *_, refused = run.events_of("tool_result")
    assert refused.data["result"] == (
        "Error: the budget of $0.10 is exceeded: $0.09 are used and $0.04 needed for acme:painter"
    )
    assert (sent, budget.spent.cost_usd, run.terminal["text"]) == (["a", "b", "c"], Decimal("0.09"), "Done.")
    assert run.terminal["usage"] == {"input_tokens": 350, "output_tokens": 200, "cost_usd": "0.09"}
    (paid, *_) = [event.data for event in run.events_of("usage") if event.data["model"] == "acme:painter"]
    assert paid == {"input_tokens": 100, "output_tokens": 50, "cost_usd": "0.03", "model": "acme:painter"}


async def test_an_unknown_price_is_refused_only_where_a_cost_is_limited(play):
    painter, sent = paint(None, cost=None)
    script, context = [call("paint", {"text": "a"}), "Done."], TurnContext(budget=Budget(tokens=100_000))
    await play(ScriptedModel(script), tools=[painter], context=context)
    assert sent == ["a"]
    with pytest.raises(BudgetExceeded, match="the price of acme:painter is unknown, so its calls cannot be kept"):
        Budget(cost_usd=1).child().reserve_cost("acme:painter", None)


async def test_a_cost_that_is_not_reported_stays_reserved():
    budget = Budget(cost_usd="1")
    reservation = budget.reserve_cost("acme:painter", Decimal("0.25"))
    assert budget.spent.cost_usd == Decimal("0.25")
    assert reservation.settle(Usage()).cost_usd == Decimal("0.25")
    budget.reserve_cost("acme:painter", Decimal("0.75")).settle(None)
    assert budget.spent.cost_usd == Decimal("0.25")


async def test_a_tool_finds_the_files_that_the_user_attached_newest_first(play):
    @tool(risk="read")
    async def names(context: ToolContext) -> list[str]:
        """Return the names."""
        return [file.name for file in context.attachments()]

    session = play.session(messages=[UserMessage(content="one", attachments=(PNG,))])
    message = UserMessage(content="two", attachments=(GIF, JPEG))
    run = await play(ScriptedModel([call("names"), say("ok")]), user=message, tools=[names], session=session)
    assert run.events_of("tool_result")[0].data["result"] == '["c.gif","b.jpg","a.png"]'

"""The triage example: its handoffs, and the model calls and tokens that it takes."""

from __future__ import annotations

from agenticx.testing import ScriptedModel, call, say, usage
from tests.examples.triage import answer, orders, triage


def test_a_question_about_an_order_takes_three_model_calls() -> None:
    replies = [
        [call("transfer_to_orders"), usage(40, 5)],
        [call("find_order", {"number": 7}), usage(60, 8)],
        [say("It was shipped on Monday."), usage(80, 7)],
    ]
    with ScriptedModel(replies) as model:
        result = answer("Where is my order 7?", model)
    assert (result.agent, result.result) == (orders, "It was shipped on Monday.")
    assert result.context_variables == {"customer": "Ann", "seen": [7]}
    assert result.stats.usage == {"input_tokens": 180, "output_tokens": 20}
    assert [request.messages[0].content.partition(".")[0] for request in model.requests] == [
        "Find the agent for the question",
        "Answer Ann's questions about orders",
        "Answer Ann's questions about orders",
    ]


def test_the_specialist_hands_back_what_is_not_for_it() -> None:
    replies = [call("transfer_to_triage"), "Ask me about orders."]
    with ScriptedModel(replies) as model:
        result = answer("What is the weather?", model, agent=orders)
    assert (result.agent, result.result, result.stats.rounds) == (triage, "Ask me about orders.", 2)

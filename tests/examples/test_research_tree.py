"""The research tree: its calls, its tokens, and the questions that its budget leaves out."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence

import pytest

from agenticx.llms import Delta, ModelRequest
from agenticx.runtime import Budget
from agenticx.testing import ScriptedModel, call, say, usage
from tests.examples.research_tree import explore

pytestmark = pytest.mark.anyio

OPEN = {"Rivers?": ["Rhône?", "Saône?"], "Rhône?": ["Geneva?"], "Saône?": []}
"""The questions that each question opens."""


class Researching(ScriptedModel):
    """A model that answers each question by its name, for 400 tokens."""

    def stream(self, request: ModelRequest) -> AsyncGenerator[Sequence[Delta], None]:
        self.requests.append(request)
        question = request.messages[-1].content.splitlines()[-1]
        finding = {"answer": f"{question} known.", "open_questions": OPEN.get(question, [])}
        reply = call("submit_output", finding) if request.tools else say(f"{question} answered.")
        return self.play([reply, usage(350, 50)], request)


def asked(model: ScriptedModel) -> Sequence[str]:
    return sorted(request.messages[-1].content.splitlines()[-1] for request in model.requests)


async def test_a_question_takes_a_call_and_another_one_for_what_it_opened() -> None:
    model, budget = Researching(), Budget(tokens=50_000)
    assert await explore("Rivers?", budget, model) == "Rivers? answered."
    assert asked(model) == ["Geneva?", "Rhône?", "Rhône?", "Rivers?", "Rivers?", "Saône?"]
    assert budget.spent.tokens == 6 * 400
    assert "Rivers? known.\n\nRhône? answered.\n\nSaône? known." in model.requests[-1].messages[-1].content


async def test_what_cannot_be_afforded_is_left_out_and_named() -> None:
    model, budget = Researching(), Budget(tokens=3_000)
    assert await explore("Rivers?", budget, model) == "Rivers? answered."
    assert asked(model) == ["Rhône?", "Rhône?", "Rivers?", "Rivers?", "Saône?"]
    assert budget.spent.tokens == 5 * 400
    answered = next(request for request in model.requests if "Geneva" in request.messages[-1].content)
    assert "Geneva? Not explored: budget_exceeded" in answered.messages[-1].content


async def test_without_a_budget_for_a_single_call_nothing_is_explored() -> None:
    model = Researching()
    assert (await explore("Rivers?", Budget(tokens=100), model)).startswith("Rivers? Not explored: budget_exceeded")
    assert model.requests == []

"""A research tree with a budget: each question may open others, as far as the tokens last.

    python -m tests.examples.research_tree openai:gpt-4o "How clean are the rivers of Lyon?"

Takes one model call for each question that is explored, and one more for each that opened others. A question gets an
equal part of what is left to the one above it. What cannot be afforded is left out, and named.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from pydantic import BaseModel

from agenticx.core import Agent, AgentExecutor, Task
from agenticx.runtime import Budget

DEPTH = 2
researcher = Agent(name="Researcher", instructions="Answer the question, and list what must be explored to be sure.")
writer = Agent(name="Writer", instructions="Answer the question from the findings.")


class Finding(BaseModel):
    """The answer to a question as far as it is known, and the questions that it opens."""

    answer: str
    open_questions: list[str] = []


async def explore(question: str, budget: Budget, model: Any = None, depth: int = DEPTH) -> str:
    """Return the answer to a question within a budget of tokens."""
    executor = AgentExecutor(model, budget=budget)
    found = await executor.arun(researcher, Task(description=question, output_type=Finding))
    if not found.success:
        return f"{question} Not explored: {found.error}"
    if not depth or not found.output.open_questions:
        return found.output.answer
    opened = found.output.open_questions
    share = max(1, (budget.tokens - budget.spent.tokens) // (len(opened) + 1)) if budget.tokens else None
    parts = await asyncio.gather(*(explore(each, budget.child(tokens=share), model, depth - 1) for each in opened))
    answer = await executor.arun(writer, Task(description=question, context=(found.output.answer, *parts)))
    return answer.result if answer.success else "\n".join((found.output.answer, *parts))


if __name__ == "__main__":
    print(asyncio.run(explore(sys.argv[2], Budget(tokens=100_000), sys.argv[1])))

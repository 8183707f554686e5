"""Triage with handoffs: one agent finds the right specialist, who may give the conversation back.

    python -m tests.examples.triage "Where is my order 7?"

Takes one model call to hand over, one per tool call, and one for the answer.
"""

from __future__ import annotations

import sys
from typing import Any

from agenticx.core import Agent, AgentExecutor, ExecutionResult, Result, Task
from agenticx.tools import tool

ORDERS = {7: "shipped on Monday", 8: "waiting for payment"}


@tool(risk="read")
def find_order(number: int, context_variables: dict[str, Any]) -> Result:
    """Find an order by its number."""
    seen = [*context_variables.get("seen", []), number]
    return Result(value=ORDERS.get(number, "no such order"), context_variables={"seen": seen})


@tool(risk="read")
def transfer_to_orders() -> Agent:
    """Hand over questions about orders."""
    return orders


@tool(risk="read")
def transfer_to_triage() -> Agent:
    """Hand back whatever is not about orders."""
    return triage


def order_instructions(context_variables: dict[str, Any]) -> str:
    """Return the instructions of the order agent, who is told the customer's name."""
    return f"Answer {context_variables['customer']}'s questions about orders. Hand back all others."


orders = Agent(name="Orders", instructions=order_instructions, tools=(find_order, transfer_to_triage))
triage = Agent(name="Triage", instructions="Find the agent for the question.", tools=(transfer_to_orders,))


def answer(question: str, model: Any = None, agent: Agent = triage, customer: str = "Ann") -> ExecutionResult:
    """Answer a question, beginning with `agent`; the result names the agent to begin with next time."""
    task = Task(description=question)
    return AgentExecutor(model).run(agent, task, context_variables={"customer": customer})


if __name__ == "__main__":
    result = answer(" ".join(sys.argv[1:]))
    print(f"{result.agent.name}: {result.result}")

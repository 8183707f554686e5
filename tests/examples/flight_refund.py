"""A swarm that refunds flights.

Ported: "Customer Support Example" of the guide to Swarm of autogen-agentchat's user guide.

    python -m tests.examples.flight_refund openai:gpt-4o "I need a refund for my flight."

The two agents hand over to each other and to the user, by tools named `handoff_to_X`. Takes one model call for each
handoff, tool call and answer.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from agenticx.teams import AssistantAgent, Console, HandoffMessage, HandoffTermination, Swarm, TextMentionTermination


def refund_flight(flight_id: str) -> str:
    """Refund a flight."""
    return f"Flight {flight_id} refunded"


def refund_swarm(model: Any) -> Swarm:
    """Return the swarm."""
    travel_agent = AssistantAgent(
        "travel_agent",
        model,
        handoffs=["refunder", "user"],
        system_message="Hand refunds over to the refunder. Say TERMINATE when the request is done.",
    )
    refunder = AssistantAgent(
        "refunder",
        model,
        handoffs=["travel_agent", "user"],
        tools=[refund_flight],
        system_message="Refund flights. Hand over to the user to ask for the flight, to the travel agent when done.",
    )
    end = HandoffTermination("user") | TextMentionTermination("TERMINATE", sources=["travel_agent"])
    return Swarm([travel_agent, refunder], termination_condition=end, max_turns=20)


async def converse(model: Any, task: str) -> None:
    """Run the swarm, and ask at the terminal as long as it hands over to the user."""
    swarm = refund_swarm(model)
    result = await Console(swarm.run_stream(task=task))
    while isinstance(last := result.messages[-1], HandoffMessage):
        answer = HandoffMessage(content=await asyncio.to_thread(input, "> "), target=last.source)
        result = await Console(swarm.run_stream(task=answer))


if __name__ == "__main__":
    asyncio.run(converse(*sys.argv[1:3]))

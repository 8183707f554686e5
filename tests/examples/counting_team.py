"""A team of one agent that calls a tool again and again.

Ported: "Single-Agent Team" of the tutorial "Teams" of autogen-agentchat's user guide.

    python -m tests.examples.counting_team openai:gpt-4o "Count from 5 to 10."

With `max_tool_iterations=1` each speech is one round of tools, as it is in autogen-agentchat by default; a text instead
of a call ends the run. Takes one model call for each step, and one for the answer.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from agenticx.teams import AssistantAgent, Console, MaxMessageTermination, RoundRobinGroupChat, TextMessageTermination


def increment(number: int) -> int:
    """Add one to a number."""
    return number + 1


def counting_team(model: Any) -> RoundRobinGroupChat:
    """Return the team."""
    counter = AssistantAgent(
        "counter",
        model,
        tools=[increment],
        system_message="Count with the tool, one step at a time, and say when you are done.",
        max_tool_iterations=1,
    )
    return RoundRobinGroupChat(
        [counter], termination_condition=TextMessageTermination("counter") | MaxMessageTermination(30)
    )


if __name__ == "__main__":
    asyncio.run(Console(counting_team(sys.argv[1]).run_stream(task=sys.argv[2])))

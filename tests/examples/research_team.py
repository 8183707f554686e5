"""A team whose next speaker a model chooses.

Ported: "Web Search/Analysis" of the guide to SelectorGroupChat of autogen-agentchat's user guide.

    python -m tests.examples.research_team openai:gpt-4o "How did Lyon's population change from 1999 to 2020?"

Each choice is one model call; the planner begins and speaks after each worker without one, by `candidate_func`.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from typing import Any

from agenticx.teams import (
    AssistantAgent,
    BaseAgentEvent,
    BaseChatMessage,
    Console,
    MaxMessageTermination,
    SelectorGroupChat,
    TextMentionTermination,
)

POPULATION = {1999: 445_000, 2020: 522_000}


def search(year: int) -> str:
    """Find the population of Lyon in a year."""
    return str(POPULATION.get(year, "unknown"))


def percentage_change(start: float, end: float) -> float:
    """Compute a change in percent."""
    return round((end - start) / start * 100, 1)


def candidates(messages: Sequence[BaseAgentEvent | BaseChatMessage]) -> Sequence[str]:
    """Return the planner after the task and after each worker, else the workers."""
    return ["searcher", "analyst"] if messages[-1].source == "planner" else ["planner"]


def research_team(model: Any) -> SelectorGroupChat:
    """Return the team."""
    plan = "Break the task into steps for the searcher and the analyst; sum up and say TERMINATE when all is done."
    return SelectorGroupChat(
        [
            AssistantAgent("planner", model, description="Plans the work and sums it up.", system_message=plan),
            AssistantAgent("searcher", model, tools=[search], description="Finds populations."),
            AssistantAgent("analyst", model, tools=[percentage_change], description="Does calculations."),
        ],
        model,
        candidate_func=candidates,
        termination_condition=TextMentionTermination("TERMINATE", sources=["planner"]) | MaxMessageTermination(25),
    )


if __name__ == "__main__":
    asyncio.run(Console(research_team(sys.argv[1]).run_stream(task=sys.argv[2])))

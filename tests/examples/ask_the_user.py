"""A team that stops to ask its user.

Ported: "Using Termination Conditions" of the tutorial "Human-in-the-Loop" of autogen-agentchat's user guide.

    python -m tests.examples.ask_the_user openai:gpt-4o "What is the weather in New York?"

A handoff to "user", who is no participant, ends the run. The user's answer is the task of the next run, which goes on
with the same conversation. Takes one model call to ask, and one for the answer.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from agenticx.teams import (
    AssistantAgent,
    Console,
    Handoff,
    HandoffMessage,
    HandoffTermination,
    RoundRobinGroupChat,
    TextMentionTermination,
)


def asking_team(model: Any) -> RoundRobinGroupChat:
    """Return the team."""
    assistant = AssistantAgent(
        "assistant",
        model,
        handoffs=[Handoff(target="user", message="I need the user's help.")],
        system_message="Hand over to the user whatever you cannot know. Say TERMINATE when you are done.",
    )
    end = HandoffTermination("user") | TextMentionTermination("TERMINATE", sources=["assistant"])
    return RoundRobinGroupChat([assistant], termination_condition=end, max_turns=10)


def user_answer(text: str) -> HandoffMessage:
    """Return the user's answer, which hands back to the assistant."""
    return HandoffMessage(content=text, target="assistant")


async def converse(model: Any, task: str) -> None:
    """Run the team, and ask at the terminal as long as it hands over to the user."""
    team = asking_team(model)
    result = await Console(team.run_stream(task=task))
    while isinstance(result.messages[-1], HandoffMessage):
        result = await Console(team.run_stream(task=user_answer(await asyncio.to_thread(input, "> "))))


if __name__ == "__main__":
    asyncio.run(converse(*sys.argv[1:3]))

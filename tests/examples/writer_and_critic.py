"""Writer and critic: a text is written anew until the critic approves it.

    python -m tests.examples.writer_and_critic openai:gpt-4o "Write a haiku about autumn."

Takes two model calls for each draft. Each of the two is sent what is new since it last spoke.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from agenticx.teams import AssistantAgent, RoundRobinGroupChat, TaskResult, TextMentionTermination

MOST_DRAFTS = 5


def writers(model: Any) -> RoundRobinGroupChat:
    """Return the team."""
    writer = AssistantAgent("writer", model, system_message="Write the text, and rewrite it as the critic asks.")
    critic = AssistantAgent("critic", model, system_message="Say what to improve, or only APPROVE if nothing is left.")
    approved = TextMentionTermination("APPROVE", sources=["critic"])
    return RoundRobinGroupChat([writer, critic], termination_condition=approved, max_turns=2 * MOST_DRAFTS)


def last_draft(result: TaskResult) -> str:
    """Return what the writer said last."""
    return next(message.to_text() for message in reversed(result.messages) if message.source == "writer")


async def main(model: Any, task: str) -> None:
    """Print the approved text."""
    result = await writers(model).run(task=task)
    print(last_draft(result), f"({result.stop_reason})", sep="\n\n")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:3]))

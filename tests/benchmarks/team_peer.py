"""A team of 5 agents that answer at once, in AgenticX or in autogen-agentchat.

    python team_peer.py agenticx|autogen MESSAGES RUNS

The names are the same in both. It imports nothing else of this project, so that autogen-agentchat may be installed in
an environment of its own. It prints the CPU seconds of each run of a new team over so many messages; a first run is not
counted.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING or sys.argv[1:2] != ["autogen"]:
    from agenticx.teams import BaseChatAgent, Response, RoundRobinGroupChat, TextMessage
else:
    from autogen_agentchat.agents import BaseChatAgent
    from autogen_agentchat.base import Response
    from autogen_agentchat.messages import TextMessage
    from autogen_agentchat.teams import RoundRobinGroupChat


class Answering(BaseChatAgent):
    """An agent that says something new at once."""

    def __init__(self, name: str) -> None:
        super().__init__(name, "An agent that answers.")
        self._said = 0

    @property
    def produced_message_types(self) -> Any:
        return (TextMessage,)

    async def on_messages(self, messages: Any, cancellation_token: Any) -> Response:
        self._said += 1
        return Response(chat_message=TextMessage(content=f"{self.name} says {self._said}.", source=self.name))

    async def on_reset(self, cancellation_token: Any) -> None:
        self._said = 0


async def seconds(messages: int) -> float:
    """Return the CPU seconds of a run."""
    team = RoundRobinGroupChat([Answering(name) for name in "abcde"], max_turns=messages)
    begun = time.process_time()
    result = await team.run(task="go")
    spent = time.process_time() - begun
    assert len(result.messages) == messages + 1
    return spent


async def main(messages: int, runs: int) -> list[float]:
    """Return the CPU seconds of each run."""
    await seconds(messages)
    return [await seconds(messages) for _ in range(runs)]


if __name__ == "__main__":
    print(json.dumps(asyncio.run(main(*map(int, sys.argv[2:])))))

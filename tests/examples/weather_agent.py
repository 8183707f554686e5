"""An agent with a tool, whose answer comes in chunks.

Ported: the quickstart of autogen-agentchat's user guide.

    python -m tests.examples.weather_agent openai:gpt-4o "What is the weather in New York?"

`reflect_on_tool_use` is not needed: the tools run until the model answers. Takes two model calls.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from agenticx.teams import AssistantAgent, Console


async def get_weather(city: str) -> str:
    """Get the weather in a city."""
    return f"73 degrees and sunny in {city}"


def weather_agent(model: Any) -> AssistantAgent:
    """Return the agent."""
    return AssistantAgent(
        "weather_agent",
        model,
        tools=[get_weather],
        system_message="Answer questions about the weather.",
        model_client_stream=True,
    )


if __name__ == "__main__":
    asyncio.run(Console(weather_agent(sys.argv[1]).run_stream(task=sys.argv[2])))

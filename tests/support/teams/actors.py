"""Agents for tests of the actor runtime."""

from __future__ import annotations

import asyncio
from typing import Any

from agenticx.teams import AgentId, MessageContext, SingleThreadedAgentRuntime

__all__ = ["Echo", "Held", "Recorder", "Words", "registered"]


class Echo:
    """A duck-typed agent that answers with the message."""

    async def on_message(self, message: Any, ctx: MessageContext) -> Any:
        return message


class Recorder:
    """A duck-typed agent that keeps what it gets, and raises the exceptions among it."""

    def __init__(self) -> None:
        self.got: list[Any] = []
        self.contexts: list[MessageContext] = []

    async def on_message(self, message: Any, ctx: MessageContext) -> None:
        self.got.append(message)
        self.contexts.append(ctx)
        if isinstance(message, BaseException):
            raise message


class Held:
    """A duck-typed agent whose handlers wait for `release`; it counts them as they begin and end."""

    def __init__(self) -> None:
        self.release = asyncio.Event()
        self.begun = self.ended = 0

    async def on_message(self, message: Any, ctx: MessageContext) -> Any:
        self.begun += 1
        try:
            await self.release.wait()
        finally:
            self.ended += 1
        return message


class Words:
    """A duck-typed agent with a state: the words that it got."""

    def __init__(self) -> None:
        self.words: list[str] = []

    async def on_message(self, message: str, ctx: MessageContext) -> int:
        self.words.append(message)
        return len(self.words)

    async def save_state(self) -> dict[str, Any]:
        return {"words": self.words}

    async def load_state(self, state: dict[str, Any]) -> None:
        self.words = state["words"]


async def registered(runtime: SingleThreadedAgentRuntime, agent: Any, name: str = "agent") -> AgentId:
    """Register an instance under the key "default" and return its id."""
    return await runtime.register_agent_instance(agent, AgentId(name, "default"))

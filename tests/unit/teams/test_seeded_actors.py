"""The examples of actors and conditions that the project began with, adapted in names only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from agenticx.teams import (
    AgentId,
    HandoffMessage,
    HandoffTermination,
    MaxMessageTermination,
    MessageContext,
    SingleThreadedAgentRuntime,
    TextMentionTermination,
    TextMessage,
    TopicId,
    TypeSubscription,
)

pytestmark = pytest.mark.anyio


@dataclass
class TaskMessage:
    content: str


class AssistantAgent:
    def __init__(self, tasks: list[tuple[str, str]]) -> None:
        self._tasks = tasks

    async def on_message(self, message: Any, ctx: MessageContext) -> Any:
        if isinstance(message, TextMessage):
            return TextMessage(content=f"{message.content}, too", source="assistant")
        assert ctx.topic_id is not None
        self._tasks.append((ctx.topic_id.source, message.content))
        return None


class UserProxyAgent:
    async def on_message(self, message: Any, ctx: MessageContext) -> Any:
        raise AssertionError("nobody writes to the user")


async def test_agents_communicate_via_messages():
    tasks: list[tuple[str, str]] = []
    runtime = SingleThreadedAgentRuntime()

    # Register agents
    await runtime.register("assistant", lambda: AssistantAgent(tasks), [TypeSubscription("tasks", "assistant")])
    await runtime.register("user", lambda: UserProxyAgent())

    # Send message (RPC style)
    response = await runtime.send_message(
        message=TextMessage(content="Hello"),
        recipient=AgentId("assistant", "default"),
    )

    # Or publish (pub/sub style)
    await runtime.publish_message(
        message=TaskMessage(content="Do this"),
        topic_id=TopicId("tasks", "project1"),
    )

    await runtime.stop_when_idle()
    assert (response.content, response.source) == ("Hello, too", "assistant")
    assert tasks == [("project1", "Do this")]


async def test_conditions_are_combined():
    termination = (
        MaxMessageTermination(max_messages=10)
        | TextMentionTermination("TERMINATE")
        | HandoffTermination(target="Human")
    )
    assert await termination([TextMessage(content="Hello")]) is None
    stop = await termination([HandoffMessage(content="Please help.", target="Human", source="assistant")])
    assert stop is not None
    assert stop.content == "Handoff to Human from assistant detected."

"""The examples of agents and teams that the project began with, adapted in names only."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from typing import Any

import pytest

from agenticx.teams import (
    AgentId,
    AgentMetadata,
    AssistantAgent,
    BaseAgentEvent,
    BaseChatAgent,
    BaseChatMessage,
    CancellationToken,
    HandoffTermination,
    MaxMessageTermination,
    MessageContext,
    Response,
    RoundRobinGroupChat,
    SelectorGroupChat,
    SingleThreadedAgentRuntime,
    TextMentionTermination,
    TextMessage,
    UserProxyAgent,
)
from agenticx.testing import ScriptedModel, call, say
from tests.unit.teams.chat_agents import lines

pytestmark = pytest.mark.anyio

termination = (
    MaxMessageTermination(max_messages=10) | TextMentionTermination("TERMINATE") | HandoffTermination(target="Human")
)


class Agent:
    """An agent of the runtime: its metadata, and a handler of any message."""

    @property
    def metadata(self) -> AgentMetadata:
        return AgentMetadata(key="default", type="upper", description="Writes in capitals.")

    async def on_message(
        self,
        message: Any,
        ctx: MessageContext,
    ) -> Any:
        return message.upper() if ctx.is_rpc and ctx.sender is None and ctx.topic_id is None else None


async def test_an_agent_has_metadata_and_answers_messages() -> None:
    runtime = SingleThreadedAgentRuntime()
    agent_type = await runtime.register("upper", Agent)
    recipient = AgentId(agent_type, "default")
    assert await runtime.send_message("hello", recipient, cancellation_token=CancellationToken()) == "HELLO"
    assert (await runtime.agent_metadata(recipient)).description == "Writes in capitals."
    assert isinstance(await runtime.get_agent(recipient), Agent)
    await runtime.stop()


class PersonAgent(BaseChatAgent):
    """Agent that can request human input."""

    def __init__(
        self,
        name: str,
        input_func: Callable[[str], Awaitable[str]],
    ) -> None:
        super().__init__(name, "Human proxy")
        self._input_func = input_func
        self.printed: list[str] = []

    @property
    def produced_message_types(self) -> Sequence[type[BaseChatMessage]]:
        return (TextMessage,)

    async def on_messages(
        self,
        messages: Sequence[BaseChatMessage],
        cancellation_token: CancellationToken,
    ) -> Response:
        # Show messages to human
        for msg in messages:
            self.printed.append(f"{msg.source}: {msg.to_text()}")

        # Get human input
        user_input = await self._input_func("Your response: ")

        return Response(chat_message=TextMessage(content=user_input, source=self.name))

    async def on_reset(self, cancellation_token: CancellationToken) -> None:
        """Reset agent state."""


class StreamingAgent(PersonAgent):
    """An agent that overrides the stream, as the base class has it."""

    async def on_messages_stream(
        self,
        messages: Sequence[BaseChatMessage],
        cancellation_token: CancellationToken,
    ) -> AsyncGenerator[BaseAgentEvent | BaseChatMessage | Response, None]:
        yield await self.on_messages(messages, cancellation_token)


async def yes(prompt: str) -> str:
    return f"{prompt}yes, TERMINATE"


@pytest.mark.parametrize("kind", [PersonAgent, StreamingAgent])
async def test_a_person_takes_part_in_a_team(kind: type[PersonAgent]) -> None:
    user = kind("user_proxy", yes)
    with ScriptedModel([say("Shall I?")]) as model:
        assistant = AssistantAgent(name="Assistant", model_client=model)
        team = RoundRobinGroupChat(
            participants=[assistant, user],
            termination_condition=termination,
        )
        result = await team.run(task="Help me.")
    assert user.printed == ["user: Help me.", "Assistant: Shall I?"]
    assert lines(result.messages)[-1] == "user_proxy: Your response: yes, TERMINATE"
    assert result.stop_reason == "Text 'TERMINATE' mentioned"


async def test_a_function_asks_the_person() -> None:
    user = UserProxyAgent("user_proxy", input_func=yes)
    assert lines((await user.run(task="Help me.")).messages)[-1] == "user_proxy: Enter your response: yes, TERMINATE"


async def test_an_assistant_runs_its_tools_and_answers() -> None:
    def add(left: int, right: int) -> int:
        """Add two numbers."""
        return left + right

    with ScriptedModel([call("add", {"left": 1, "right": 2}), say("It is 3.")]) as model:
        agent = AssistantAgent(
            "assistant",
            model,
            tools=[add],
            system_message="Add.",
            description="An AI assistant.",
            handoffs=None,
        )
        answer = await agent.on_messages([TextMessage(content="1+2?")], CancellationToken())
    assert answer.chat_message.to_text() == "It is 3."
    assert [message.content for message in model.requests[1].messages] == ["Add.", "1+2?", "", "3"]


async def test_a_handoff_to_a_person_ends_the_run() -> None:
    with ScriptedModel([call("handoff_to_Human")]) as model:
        assistant = AssistantAgent(
            name="Assistant",
            model_client=model,
            handoffs=["Specialist", "Human"],  # Can hand off to these
        )
        result = await RoundRobinGroupChat([assistant], termination_condition=termination).run(task="Help me.")
    assert [tool.name for tool in model.requests[0].tools] == ["handoff_to_Specialist", "handoff_to_Human"]
    assert result.stop_reason == "Handoff to Human from Assistant detected."


async def test_a_model_selects_the_next_speaker() -> None:
    with ScriptedModel([say("writer"), say("Once upon a time. TERMINATE")]) as model:
        team = SelectorGroupChat(
            [AssistantAgent("critic", model), AssistantAgent("writer", model)],
            model,
            termination_condition=termination,
            selector_prompt="{history}\nNext of {participants}:",
        )
        result = await team.run(task="A story.")
    assert lines(result.messages) == ["user: A story.", "writer: Once upon a time. TERMINATE"]
    assert model.requests[0].messages[0].content == "user: A story.\nNext of ['critic', 'writer']:"

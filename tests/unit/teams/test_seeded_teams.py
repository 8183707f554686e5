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
    BaseGroupChat,
    CancellationToken,
    HandoffTermination,
    MaxMessageTermination,
    MessageContext,
    Response,
    RoundRobinGroupChat,
    SelectorGroupChat,
    SingleThreadedAgentRuntime,
    TeamError,
    TerminationCondition,
    TextMentionTermination,
    TextMessage,
    UserProxyAgent,
)
from agenticx.testing import ScriptedModel, call, say
from tests.unit.teams.chat_agents import Saying, lines

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
    agent_type = await runtime.register("upper", agent_factory=Agent)
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
    user = UserProxyAgent("user_proxy", yes)
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
        result = await RoundRobinGroupChat([assistant], termination).run(task="Help me.")
    assert [tool.name for tool in model.requests[0].tools] == ["handoff_to_Specialist", "handoff_to_Human"]
    assert result.stop_reason == "Handoff to Human from Assistant detected."


async def test_a_model_selects_the_next_speaker() -> None:
    with ScriptedModel([say("writer"), say("Once upon a time. TERMINATE")]) as model:
        team = SelectorGroupChat(
            [AssistantAgent("critic", model), AssistantAgent("writer", model)],
            model,
            termination,
            "{history}\nNext of {participants}:",
        )
        result = await team.run(task="A story.")
    assert lines(result.messages) == ["user: A story.", "writer: Once upon a time. TERMINATE"]
    assert model.requests[0].messages[0].content == "user: A story.\nNext of ['critic', 'writer']:"


class InTurn(BaseGroupChat):
    """A team of the application's own, as the base class has it, that ends after two speeches of each."""

    def __init__(
        self,
        participants: list[Any],
        termination_condition: TerminationCondition | None = None,
    ) -> None:
        super().__init__(participants, termination_condition)
        self._current_index = 0

    def _select_speaker(
        self,
        messages: Sequence[BaseAgentEvent | BaseChatMessage],
    ) -> str | Awaitable[str | None] | None:
        if len(messages) > 2 * len(self._participants):
            return None
        # Get next speaker in round-robin order
        speaker = self._participants[self._current_index]
        self._current_index = (self._current_index + 1) % len(self._participants)
        return speaker.name


class InTurnAsync(InTurn):
    async def _select_speaker(
        self,
        messages: Sequence[BaseAgentEvent | BaseChatMessage],
    ) -> str | None:
        speaker = super()._select_speaker(messages)
        assert not isinstance(speaker, Awaitable)
        return speaker


class FirstAgain(RoundRobinGroupChat):
    def _select_speaker(self, messages: Sequence[BaseAgentEvent | BaseChatMessage]) -> str:
        return "a" if messages[-1].to_text() == "again" else super()._select_speaker(messages)


class Wrong(InTurn):
    def _select_speaker(self, messages: Sequence[BaseAgentEvent | BaseChatMessage]) -> str | None:
        return "nobody" if len(self._participants) == 1 else {}["next"]


@pytest.mark.parametrize("kind", [InTurn, InTurnAsync])
async def test_a_team_of_the_applications_own_selects_its_speakers_and_ends_the_run(kind: type[InTurn]) -> None:
    result = await kind([Saying("a"), Saying("b")]).run(task="go")
    assert lines(result.messages) == ["user: go", "a: a here", "b: b here", "a: a here", "b: b here"]
    assert result.stop_reason == "No next speaker was selected."
    result = await kind([Saying("a"), Saying("b", "APPROVE")], TextMentionTermination("APPROVE")).run(task="go")
    assert (len(result.messages), result.stop_reason) == (3, "Text 'APPROVE' mentioned")


async def test_the_selection_of_a_team_can_be_overridden_in_part_and_its_wrong_name_ends_the_run() -> None:
    team = FirstAgain([Saying("a", "once", "again", "done"), Saying("b")], max_turns=4)
    said = lines((await team.run(task="go")).messages)[1:]
    assert said == ["a: once", "b: b here", "a: again", "a: done"]
    with pytest.raises(TeamError, match=r"_select_speaker of team 'Wrong' returned 'nobody', .* known: \['a'\]"):
        await Wrong([Saying("a")]).run(task="go")
    with pytest.raises(TeamError, match="_select_speaker of team 'Wrong' raised KeyError: 'next'"):
        await Wrong([Saying("a"), Saying("b")]).run(task="go")
    outer = RoundRobinGroupChat([InTurn([Saying("a")]), Saying("z")], max_turns=2)
    assert lines((await outer.run(task="go")).messages)[-2:] == ["a: a here", "z: z here"]

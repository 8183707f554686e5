"""A person as a participant, and agents as actors."""

from __future__ import annotations

import asyncio
import io
from ast import literal_eval
from typing import Any

import pytest

from agenticx.messages import AssistantMessage
from agenticx.runtime import AgentRuntime, Session
from agenticx.teams import (
    AgentId,
    CancellationToken,
    HandoffMessage,
    Response,
    RoundRobinGroupChat,
    SingleThreadedAgentRuntime,
    TextMessage,
    UserInputFailed,
    UserInputRequestedEvent,
    UserProxyAgent,
)
from agenticx.testing import ScriptedModel, call, say
from agenticx.tools import tool
from tests.unit.teams.chat_agents import Saying

pytestmark = pytest.mark.anyio

QUESTION = TextMessage(content="How high?", source="helper")


async def answer(agent: UserProxyAgent, *messages: Any) -> Any:
    return (await agent.on_messages(messages or [QUESTION], CancellationToken())).chat_message


async def test_the_answer_of_a_function_is_the_persons_message() -> None:
    prompts: list[str] = []

    def ask(prompt: str) -> str:
        prompts.append(prompt)
        return "324 m"

    message = await answer(UserProxyAgent("person", input_func=ask))
    assert (type(message), message.content, message.source) == (TextMessage, "324 m", "person")
    assert prompts == ["Enter your response: "]


async def test_the_question_is_an_event_before_the_answer() -> None:
    async def ask(prompt: str) -> str:
        return "yes"

    agent = UserProxyAgent("person", input_func=ask)
    first, last = [item async for item in agent.on_messages_stream([QUESTION], CancellationToken())]
    assert isinstance(first, UserInputRequestedEvent)
    assert isinstance(last, Response)
    assert last.inner_messages == [first]


async def test_after_a_handoff_to_the_person_the_answer_hands_back() -> None:
    handoff = HandoffMessage(content="Yours.", source="helper", target="person")
    message = await answer(UserProxyAgent("person", input_func=lambda prompt: prompt), QUESTION, handoff)
    assert isinstance(message, HandoffMessage)
    assert (message.target, message.content) == ("helper", "Handoff received from helper. Enter your response: ")
    beside = handoff.model_copy(update={"context": [AssistantMessage(content="A draft.", sender="helper")]})
    message = await answer(UserProxyAgent("person", lambda prompt: prompt), QUESTION, beside)
    assert message.content == "Handoff received from helper. A draft. Enter your response: "
    asking = handoff.model_copy(update={"metadata": {"reason": "Which size?"}})
    message = await answer(UserProxyAgent("person", input_func=lambda prompt: prompt), asking)
    assert message.to_text() == "Handoff received from helper. Which size? Enter your response: "


async def test_a_last_handoff_to_someone_else_is_an_error() -> None:
    handoff = HandoffMessage(content="Yours.", source="helper", target="critic")
    agent = UserProxyAgent("person", input_func=lambda prompt: "x")
    with pytest.raises(RuntimeError, match="hands over to 'critic', not to 'person'"):
        await answer(agent, handoff)
    assert isinstance(await answer(agent, handoff, QUESTION), TextMessage)


async def test_a_function_that_fails_is_named() -> None:
    def broken(prompt: str) -> str:
        raise EOFError("closed")

    with pytest.raises(UserInputFailed, match=r"Failed to get user input: .*EOFError: closed") as raised:
        await answer(UserProxyAgent("person", input_func=broken))
    assert isinstance(raised.value, RuntimeError)
    assert isinstance(raised.value.__cause__, EOFError)
    unusable: Any = lambda prompt: 3  # noqa: E731
    with pytest.raises(UserInputFailed, match="returned a <class 'int'>, not text"):
        await answer(UserProxyAgent("person", input_func=unusable))


async def test_a_cancelled_question_ends_and_its_function_gets_the_token() -> None:
    token, begun = CancellationToken(), asyncio.Event()
    given: list[CancellationToken] = []

    async def ask(prompt: str, cancellation_token: CancellationToken) -> str:
        given.append(cancellation_token)
        begun.set()
        return await asyncio.get_running_loop().create_future()

    asking = asyncio.ensure_future(UserProxyAgent("person", input_func=ask).on_messages([QUESTION], token))
    await begun.wait()
    token.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert given == [token]


async def test_an_agent_answers_as_an_actor() -> None:
    runtime = SingleThreadedAgentRuntime()
    agent_id = await runtime.register_agent_instance(Saying("a"), AgentId("a", "1"))
    response = await runtime.send_message(QUESTION, agent_id)
    assert response.chat_message.to_text() == "a here"
    await runtime.stop()


def optional_second(prompt: str, stream: Any = None) -> str:
    return repr(stream)


async def keyword_only(prompt: str, *, cancellation_token: CancellationToken) -> str:
    return type(cancellation_token).__name__


def optional_token(prompt: str, cancel: CancellationToken | None = None) -> str:
    return type(cancel).__name__


def second_by_place(prompt: str, token: Any, /) -> str:
    return type(token).__name__


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (optional_second, "None"),
        *((each, "CancellationToken") for each in (keyword_only, optional_token, second_by_place)),
    ],
)
async def test_only_a_parameter_for_the_token_gets_it(function: Any, said: str) -> None:
    assert (await answer(UserProxyAgent("person", input_func=function))).content == said


@pytest.mark.parametrize("way", ["alone", "in a team", "in a session", "in a tool"])
async def test_without_a_function_the_lines_of_a_pipe_are_the_answers(way: str, monkeypatch: Any) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("324 m\n\nlast line"))
    person = UserProxyAgent("person")
    team = RoundRobinGroupChat([person], max_turns=4, session=Session() if way == "in a session" else None)

    async def run_team() -> list[str]:
        messages = (await team.run(task="How high?")).messages
        return [message.content for message in messages if isinstance(message, TextMessage)][1:]

    @tool(risk="read")
    async def ask() -> str:
        """Ask."""
        return repr(await run_team())

    if way == "in a tool":
        with ScriptedModel([call("ask"), say("Thanks.")]) as model:
            await AgentRuntime(model, tools=[ask]).run("Go")
        said = literal_eval(model.requests[1].messages[-1].content)
    else:
        said = [(await answer(person)).content for _ in range(4)] if way == "alone" else await run_team()
    no_answer = ["The user did not want to answer.", "The user did not answer: nobody can be asked now."]
    assert said == ["324 m", no_answer[0], "last line", no_answer[1]]

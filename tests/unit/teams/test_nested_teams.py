"""Teams in teams: tasks that are sent again, types of messages, tokens."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any, cast

import pytest
from pydantic import BaseModel, create_model

from agenticx.teams import (
    AssistantAgent,
    BaseChatMessage,
    CancellationToken,
    RequestUsage,
    RoundRobinGroupChat,
    Run,
    SingleThreadedAgentRuntime,
    TeamError,
    TerminationCondition,
    TextMessage,
)
from agenticx.testing import ScriptedModel, say, usage
from tests.unit.teams.chat_agents import Saying, Thinking, Waiting, cancel_while_waiting, lines

pytestmark = pytest.mark.anyio


class Answer(BaseModel):
    n: int


class Note(BaseChatMessage, frozen=True):
    text: str

    def to_text(self) -> str:
        return self.text


def in_two_teams(*members: Any) -> RoundRobinGroupChat:
    inner = RoundRobinGroupChat(members, max_turns=len(members), name="inner")
    return RoundRobinGroupChat([inner], max_turns=1, name="outer")


# --- tasks that are sent again ----------------------------------------------------------------------------------------


async def test_after_a_failure_an_inner_team_does_not_get_its_task_again() -> None:
    b = Saying("b", ValueError("boo"), "b ok")
    with ScriptedModel([say("c ok")]) as model:
        team = in_two_teams(Saying("a"), b, AssistantAgent("c", model, system_message=None))
        stream = team.run_stream(task="go")
        assert lines([cast("Any", await anext(stream)) for _ in range(2)]) == ["user: go", "a: a here"]
        with pytest.raises(TeamError, match="boo"):
            await anext(stream)
        assert lines((await team.run()).messages) == ["b: b ok", "c: c ok"]
    assert b.sent == [["user: go", "a: a here"]] * 2
    assert model.requests[0].messages[0].content == "go"
    assert len(model.requests[0].messages) == 3


async def test_after_a_cancellation_an_inner_team_does_not_get_its_task_again_also_if_it_was_loaded() -> None:
    def team() -> tuple[Waiting, RoundRobinGroupChat]:
        b = Waiting("b")
        return b, in_two_teams(Saying("a"), b)

    b, first = team()
    await cancel_while_waiting(first, b)
    loaded_b, loaded = team()
    loaded_b.begun.set()
    await loaded.load_state(json.loads(json.dumps(await first.save_state())))
    for speaker, each in ((b, first), (loaded_b, loaded)):
        await each.run()
        assert speaker.sent[-1] == ["user: go", "a: a here"]


async def test_the_same_message_is_a_new_task_after_a_run_that_was_finished() -> None:
    a, task = Saying("a"), TextMessage(content="go")
    team = in_two_teams(a)
    results = [await team.run(task=task) for _ in range(2)]
    assert a.sent == [["user: go"]] * 2
    assert len({message.id for result in results for message in result.messages}) == 4


@pytest.mark.parametrize("is_loaded", [False, True], ids=["", "in a loaded team"])
async def test_the_speech_of_an_inner_team_goes_on_after_a_cancellation(is_loaded: bool) -> None:
    def team() -> tuple[Waiting, Saying, RoundRobinGroupChat]:
        b, d = Waiting("b"), Saying("d")
        inner = RoundRobinGroupChat([Saying("a"), b, Saying("c")], max_turns=2, name="inner")
        return b, d, RoundRobinGroupChat([inner, d], max_turns=2, name="outer")

    b, d, outer = team()
    await cancel_while_waiting(outer, b)
    if is_loaded:
        state = json.loads(json.dumps(await outer.save_state()))
        b, d, outer = team()
        b.begun.set()
        await outer.load_state(state)
    shown_again = ["a: a here"] if is_loaded else []
    assert lines((await outer.run()).messages) == [*shown_again, "b: b here", "d: d here"]
    assert d.sent == [["user: go", "b: b here"]]
    assert lines((await outer.run()).messages) == ["c: c here", "a: a here", "d: d here"]


async def test_a_run_that_was_to_go_on_is_forgotten_by_a_reset_and_by_a_task() -> None:
    inner = RoundRobinGroupChat([Saying("a"), Saying("b")], max_turns=1, name="inner")
    await inner.run(task="first")
    assert inner.continue_run([]) is not None
    assert lines((await inner.run(task="second")).messages) == ["user: second", "b: b here"]
    assert inner.continue_run([]) is not None
    await inner.reset()
    assert lines((await inner.run()).messages) == ["a: a here"]


async def test_a_new_task_begins_a_new_run_of_an_inner_team_that_was_cancelled() -> None:
    b = Waiting("b")
    outer = in_two_teams(Saying("a"), b)
    await cancel_while_waiting(outer, b)
    assert lines((await outer.run(task="no, stop")).messages) == ["user: no, stop", "b: b here", "a: a here"]


@pytest.mark.parametrize("depth", [1, 2, 3])
async def test_what_an_inner_team_says_is_shown_as_its_next_speech_begins(depth: int) -> None:
    b = Waiting("b")
    outer = in_two_teams(Thinking("a"), b)
    for number in range(1, depth):
        outer = RoundRobinGroupChat([outer, Saying("c")], max_turns=2, name=f"outer{number}")
    token = CancellationToken()
    stream = outer.run_stream(task="go", cancellation_token=token)
    assert lines([cast("Any", await anext(stream)) for _ in range(3)]) == ["user: go", "a: Hm.", "a: a here"]
    following = asyncio.ensure_future(anext(stream))
    await b.begun.wait()
    assert not following.done()
    token.cancel()
    with pytest.raises(asyncio.CancelledError):
        await following
    assert lines((await outer.run()).messages) == ["b: b here", *["c: c here"] * (depth - 1)]


# --- types of messages ------------------------------------------------------------------------------------------------


async def talk(team: RoundRobinGroupChat, task: Any = "go") -> list[str]:
    """Run the team, and check that its state can be loaded."""
    said = lines((await team.run(task=task)).messages)
    state = json.loads(json.dumps(await team.save_state()))
    await team.load_state(state)
    assert await team.save_state() == state
    return said


async def test_a_structured_answer_in_an_inner_team_is_one_of_the_outer_team() -> None:
    agent = AssistantAgent("a", ScriptedModel([say('{"n": 1}')]), output_content_type=Answer)
    assert await talk(in_two_teams(agent)) == ["user: go", 'a: {"n":1}']


async def test_an_inner_team_is_sent_structured_answers_and_messages_of_types_that_the_outer_team_knows() -> None:
    agent = AssistantAgent("a", ScriptedModel([say('{"n": 1}')]), output_content_type=Answer)
    b = Saying("b")
    inner = RoundRobinGroupChat([b], max_turns=1, name="inner")
    team = RoundRobinGroupChat([agent, inner], max_turns=2, custom_message_types=[Note])
    assert await talk(team, Note(text="go")) == ["user: go", 'a: {"n":1}', "b: b here"]
    assert b.sent == [["user: go", 'a: {"n":1}']]


async def test_two_types_of_structured_messages_may_have_one_name() -> None:
    def agent(name: str, field: str) -> AssistantAgent:
        fields: Any = {field: int}
        model = ScriptedModel([say(json.dumps({field: 1}))])
        return AssistantAgent(name, model, output_content_type=create_model("Answer", **fields))

    agents = [agent("a", "x"), agent("b", "y")]
    assert await talk(RoundRobinGroupChat(agents, max_turns=2)) == ["user: go", 'a: {"x":1}', 'b: {"y":1}']


# --- tokens, names ----------------------------------------------------------------------------------------------------


async def test_the_tokens_of_all_inner_agents_count_for_the_outer_team() -> None:
    seen: list[RequestUsage] = []

    class Noting(TerminationCondition):
        def check(self, run: Run) -> None:
            seen.append(run.usage)

    model = ScriptedModel([[say("1"), usage(10, 5)]])
    members: Sequence[Any] = [AssistantAgent("a", model), Saying("b", usage=RequestUsage(100, 100))]
    inner = RoundRobinGroupChat(members, max_turns=2, name="inner")
    await RoundRobinGroupChat([inner], max_turns=1, termination_condition=Noting()).run(task="go")
    assert seen[-1] == RequestUsage(110, 105)


async def test_the_name_of_an_inner_team_may_have_any_characters() -> None:
    inner = RoundRobinGroupChat([Saying("a")], max_turns=1, name="Research team: é")
    team = RoundRobinGroupChat([inner], max_turns=1, runtime=SingleThreadedAgentRuntime())
    assert lines((await team.run(task="go")).messages) == ["user: go", "a: a here"]

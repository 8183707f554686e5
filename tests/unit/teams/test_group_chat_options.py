"""Group chats: options, gates, and failures of the application's conditions and messages."""

from __future__ import annotations

import inspect
import io
from typing import Any

import pytest

from agenticx.runtime import Session
from agenticx.sessions import SessionRecord
from agenticx.teams import (
    AssistantAgent,
    BaseChatMessage,
    MaxMessageTermination,
    Response,
    RoundRobinGroupChat,
    SelectorGroupChat,
    SingleThreadedAgentRuntime,
    Swarm,
    TeamError,
    TerminationCondition,
    TextMentionTermination,
    ThoughtEvent,
)
from agenticx.testing import ScriptedModel, call, say
from tests.unit.teams.chat_agents import Saying

pytestmark = pytest.mark.anyio


class Silent(BaseChatMessage, frozen=True):
    """A message whose text cannot be read."""

    def to_text(self) -> str:
        raise KeyError("no text")


class BadReset(TerminationCondition):
    """A condition of another library, whose reset fails."""

    @property
    def terminated(self) -> bool:
        return False

    async def __call__(self, messages: Any) -> None:
        return None

    async def reset(self) -> None:
        raise KeyError("no reset")


async def test_a_reset_or_a_text_that_fails_ends_the_run_as_a_team_error() -> None:
    failing: list[tuple[dict[str, Any], Any]] = [
        ({"termination_condition": BadReset()}, "go"),
        ({"custom_message_types": [Silent]}, Silent()),
        ({"custom_message_types": [Silent], "termination_condition": TextMentionTermination("x")}, Silent()),
    ]
    for options, task in failing:
        with pytest.raises(TeamError) as caught:
            await RoundRobinGroupChat([Saying("a")], max_turns=1, **options).run(task=task)
        assert isinstance(caught.value.__cause__, KeyError)


@pytest.mark.parametrize("where", ["alone", "in a team", "in a message runtime", "in a session"])
async def test_a_participant_that_raises_what_closes_generators_ends_the_run_as_a_team_error(where: str) -> None:
    agent = Saying("a", GeneratorExit("done"), "again")
    options: dict[str, dict[str, Any]] = {
        "in a message runtime": {"runtime": SingleThreadedAgentRuntime()},
        "in a session": {"session": Session()},
    }
    team = RoundRobinGroupChat([agent], max_turns=1, **options.get(where, {}))
    if where == "in a team":
        team = RoundRobinGroupChat([team], name="outer", max_turns=1)
    with pytest.raises(TeamError, match="participant 'a' raised GeneratorExit: done") as caught:
        await team.run(task="go")
    assert (caught.value.participant, type(caught.value.__cause__)) == ("a", GeneratorExit)
    assert (await team.run()).messages[-1].to_text() == "again"


async def test_a_response_with_an_event_is_refused() -> None:
    class Thought(Saying):
        async def on_messages(self, messages: Any, cancellation_token: Any) -> Response:
            event: Any = ThoughtEvent(content="Hm.", source=self.name)
            return Response(chat_message=event)

    with pytest.raises(TeamError, match="must be a chat message"):
        await RoundRobinGroupChat([Thought("a")], max_turns=1).run(task="go")


@pytest.mark.parametrize(
    "options",
    [
        *({"max_turns": value} for value in ("3", 1.5, True)),
        *({"custom_message_types": [value]} for value in (int, "TextMessage")),
        *({"termination_condition": value} for value in ("x", MaxMessageTermination, print)),
        *({"session": value} for value in (3, SessionRecord(workspace="/", created_at=""))),
        *({name: 3} for name in ("runtime", "name", "description")),
    ],
)
async def test_an_option_of_another_type_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(TypeError, match=next(iter(options))):
        RoundRobinGroupChat([Saying("a")], **options)


async def test_the_record_of_a_session_is_refused_with_what_would_be_right() -> None:
    record: Any = SessionRecord(workspace="/", created_at="")
    with pytest.raises(TypeError, match=r"a Session or the id of a session \(record\.id\), not SessionRecord"):
        RoundRobinGroupChat([Saying("a")], session=record)


@pytest.mark.parametrize("team", [SelectorGroupChat, Swarm])
def test_every_team_has_the_options_of_all_teams_in_its_signature(team: Any) -> None:
    common = inspect.signature(RoundRobinGroupChat).parameters
    assert {*common} <= {*inspect.signature(team).parameters}


@pytest.mark.parametrize("in_team", [False, True])
async def test_an_agent_in_a_tool_of_an_agent_without_a_gate_runs_its_own_functions_unasked(
    in_team: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(""))  # at its end: no
    ran: list[str] = []

    def act() -> str:
        """Act."""
        ran.append("act")
        return "done"

    async def delegate() -> str:
        """Have another agent act."""
        agent = AssistantAgent("inner", ScriptedModel([call("act"), say("Acted.")]), tools=[act])
        worker = RoundRobinGroupChat([agent], max_turns=1) if in_team else agent
        return (await worker.run(task="act")).messages[-1].to_text()

    with ScriptedModel([call("delegate"), say("Delegated.")]) as model:
        result = await AssistantAgent("outer", model, tools=[delegate]).run(task="go")
    assert (result.messages[-1].to_text(), ran) == ("Delegated.", ["act"])


async def test_an_agent_that_answers_without_a_response_is_told_what_is_right() -> None:
    class Silent(Saying):
        async def on_messages(self, messages: object, cancellation_token: object) -> Any:
            return None

    with pytest.raises(TeamError, match="the result of on_messages of 'a' must be a Response, not NoneType"):
        await RoundRobinGroupChat([Silent("a")]).run(task="Go.")

"""Group chats: order, context, ends and errors of their runs; inner teams, and swarms."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncGenerator, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import BaseModel

from agenticx import ConfirmGate, QuestionAnswer, builtin_tools
from agenticx.runtime import Session
from agenticx.settings import load_settings
from agenticx.teams import (
    AssistantAgent,
    BaseAgentEvent,
    BaseChatMessage,
    CancellationToken,
    CostTermination,
    DefaultInterventionHandler,
    ExternalTermination,
    FunctionalTermination,
    HandoffMessage,
    HandoffTermination,
    MaxMessageTermination,
    RequestUsage,
    Response,
    RoundRobinGroupChat,
    Run,
    SelectorGroupChat,
    SelectSpeakerEvent,
    SingleThreadedAgentRuntime,
    SourceMatchTermination,
    StopMessage,
    StructuredMessage,
    Swarm,
    TaskResult,
    TeamError,
    TerminationCondition,
    TextMentionTermination,
    TextMessage,
    TimeoutTermination,
    TokenUsageTermination,
    UserProxyAgent,
)
from agenticx.testing import ScriptedGate, ScriptedModel, call, say, think, usage
from tests.support.jumping_clock import VIRTUAL_TIME, LoopClock
from tests.unit.teams.chat_agents import Handing, Saying, Thinking, lines

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> Any:
    return VIRTUAL_TIME


async def talk(team: Any, task: Any = None, **options: Any) -> list[str]:
    return lines((await team.run(task=task, **options)).messages)


# --- runs -------------------------------------------------------------------------------------------------------------


async def test_participants_speak_in_order_and_a_run_without_a_task_goes_on() -> None:
    team = RoundRobinGroupChat([Saying("a"), Saying("b"), Saying("c")], max_turns=2)
    result = await team.run(task="go")
    assert lines(result.messages) == ["user: go", "a: a here", "b: b here"]
    assert result.stop_reason == "Maximum number of turns 2 reached."
    assert await talk(team) == ["c: c here", "a: a here"]
    await team.reset()
    assert await talk(team, "again", output_task_messages=False) == ["a: a here", "b: b here"]


async def test_each_participant_gets_what_others_said_since_it_spoke() -> None:
    a, b = Thinking("a", "1", "2", "3"), Saying("b", "x", "y")
    team = RoundRobinGroupChat([a, b], max_turns=5)
    assert (await talk(team, "go"))[:4] == ["user: go", "a: Hm.", "a: 1", "b: x"]
    assert a.sent == [["user: go"], ["b: x"], ["b: y"]]
    assert b.sent == [["user: go", "a: 1"], ["a: 2"]]


async def test_a_message_that_is_said_again_is_a_new_one() -> None:
    class Repeating(Saying):
        again = TextMessage(content="Go on.", source="a")

        async def on_messages(self, messages: Sequence[Any], cancellation_token: CancellationToken) -> Response:
            return Response(chat_message=self.again)

    with ScriptedModel([say("one"), say("two")]) as model:
        team = RoundRobinGroupChat([Repeating("a"), AssistantAgent("b", model)], max_turns=4)
        result = await team.run(task="go")
    assert lines(result.messages) == ["user: go", "a: Go on.", "b: one", "a: Go on.", "b: two"]
    assert len({message.id for message in result.messages}) == 5
    read = [message.content for message in model.requests[1].messages]
    assert read[-3:] == ["a said:\nGo on.", "one", "a said:\nGo on."]


async def test_a_single_participant_with_nothing_new_gets_no_message() -> None:
    a = Saying("a")
    await RoundRobinGroupChat([a], max_turns=2).run(task=[TextMessage(content="one"), TextMessage(content="two")])
    assert a.sent == [["user: one", "user: two"], []]


@pytest.mark.parametrize("participants", [2, 5, 10])
@pytest.mark.cases(quick=1)
@pytest.mark.ci_lane
async def test_what_a_model_reads_stays_bounded_however_long_the_talk(participants: int) -> None:
    model = ScriptedModel([say(f"{number}. " + "A thought. " * 40) for number in range(200)])
    agents = [AssistantAgent(f"agent_{number}", model) for number in range(participants)]
    await RoundRobinGroupChat(agents, max_turns=120).run(task="go")
    longest = [max(len(request.messages) for request in model.requests[at : at + 40]) for at in (40, 80, 120)]
    assert max(longest) <= 40  # of 121: recent messages, those of the others, and summaries


async def test_with_neither_condition_nor_limit_a_run_ends_after_a_hundred_speeches() -> None:
    result = await RoundRobinGroupChat([Saying("a"), Saying("b")]).run(task="go")
    assert (len(result.messages), result.stop_reason) == (101, "Maximum number of turns 100 reached.")


async def test_the_limit_without_conditions_is_a_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGX_TEAM_MAX_TURNS", "3")
    result = await RoundRobinGroupChat([Saying("a")], settings=load_settings()).run(task="go")
    assert result.stop_reason == "Maximum number of turns 3 reached."


async def test_participants_that_repeat_themselves_are_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "agenticx")
    await RoundRobinGroupChat([Saying("a", "Thanks!"), Saying("b", "Thank you.")], max_turns=12).run(task="go")
    repeated = [record for record in caplog.records if "only repeat themselves" in record.getMessage()]
    assert len(repeated) == 1


async def test_the_stream_has_the_messages_of_the_result_and_then_the_result() -> None:
    team = RoundRobinGroupChat([Saying("a"), Saying("b")], max_turns=2, emit_team_events=True)
    items = [item async for item in team.run_stream(task="go")]
    result = items[-1]
    assert isinstance(result, TaskResult)
    assert items[:-1] == list(result.messages)
    speakers = [item.content for item in items if isinstance(item, SelectSpeakerEvent)]
    assert speakers == [["a"], ["b"]]
    assert lines(items[:3]) == ["user: go", "RoundRobinGroupChat: a", "a: a here"]


async def test_no_speech_begins_before_the_consumer_asks_for_the_next_message() -> None:
    a = Saying("a")
    stream = RoundRobinGroupChat([a], max_turns=2).run_stream(task="go")
    assert lines([await anext(stream)]) == ["user: go"]
    for _ in range(20):
        await asyncio.sleep(0)
    assert a.spoken == 0
    await stream.aclose()


@pytest.mark.parametrize(
    ("task", "problem"),
    [
        ([], "Task list cannot be empty"),
        (["text"], "All messages in task list must be valid BaseChatMessage types"),
        (3, "a task must be text"),
    ],
)
async def test_a_task_that_cannot_be_used_is_refused(task: Any, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        await RoundRobinGroupChat([Saying("a")], max_turns=1).run(task=task)


async def test_participants_are_checked() -> None:
    with pytest.raises(ValueError, match="at least one participant"):
        RoundRobinGroupChat([])
    with pytest.raises(ValueError, match=r"names must be unique: \['a', 'a'\]"):
        RoundRobinGroupChat([Saying("a"), Saying("a")])
    for meta in (Saying("meta"), RoundRobinGroupChat([Saying("a")], name="meta")):
        with pytest.raises(
            ValueError, match="cannot have the name 'meta', which is that of the turn of the team's run"
        ):
            RoundRobinGroupChat([meta])
    unusable: Any = 3
    with pytest.raises(TypeError, match="Participant 3 must be a ChatAgent or a Team"):
        RoundRobinGroupChat([unusable])
    unusable = SimpleNamespace(**{name: None for name in dir(Saying("a")) if name not in ("on_reset", "on_pause")})
    with pytest.raises(TypeError, match="must be a ChatAgent or a Team; as a ChatAgent it lacks on_pause, on_reset"):
        RoundRobinGroupChat([unusable])
    with pytest.raises(TypeError, match=r"Participant .* must be a ChatAgent"):
        Swarm([RoundRobinGroupChat([Saying("a")])])
    with pytest.raises(ValueError, match="max_turns must be at least 1"):
        RoundRobinGroupChat([Saying("a")], max_turns=0)
    with pytest.raises(TypeError, match="confirm_gate must be a ConfirmGate"):
        RoundRobinGroupChat([Saying("a")], confirm_gate=unusable)


# --- ends -------------------------------------------------------------------------------------------------------------


async def test_a_condition_sees_the_run_so_far_and_may_end_it_at_the_task() -> None:
    team = RoundRobinGroupChat([Saying("a")], termination_condition=TextMentionTermination("go", ["user"]))
    result = await team.run(task="go")
    assert (lines(result.messages), result.stop_reason) == (["user: go"], "Text 'go' mentioned")


async def test_a_text_that_the_task_mentions_does_not_end_the_run() -> None:
    condition = TextMentionTermination("APPROVE")
    task = [TextMessage(content="Say APPROVE."), TextMessage(content="APPROVE", source="a")]
    inner = RoundRobinGroupChat([Saying("x", "no", "APPROVE")], condition, name="inner", max_turns=5)
    assert len((await inner.run(task=task)).messages) == 4
    assert [len((await inner.run(task=None)).messages) for _ in range(2)] == [1, 1]
    outer = RoundRobinGroupChat([Saying("a", "APPROVE?"), inner], MaxMessageTermination(4))
    assert await talk(outer, "go") == ["user: go", "a: APPROVE?", "x: APPROVE", "a: APPROVE?"]
    assert await condition(task) is not None

    failing = RoundRobinGroupChat([Saying("a", RuntimeError("no"), "then", "APPROVE")], condition, name="failing")
    retried = RoundRobinGroupChat([failing], max_turns=1)
    with pytest.raises(TeamError, match="no"):
        await retried.run(task=task)
    assert await talk(retried) == ["a: then", "a: APPROVE"]


async def test_conditions_begin_anew_with_each_run_and_serve_two_teams_at_once() -> None:
    condition = MaxMessageTermination(3)
    teams = [RoundRobinGroupChat([Saying("a")], termination_condition=condition) for _ in range(2)]
    results = await asyncio.gather(*[team.run(task="go") for team in teams])
    assert [len(result.messages) for result in results] == [3, 3]
    assert len((await teams[0].run()).messages) == 3


async def test_a_condition_without_check_is_reset_and_called_with_what_is_new() -> None:
    calls: list[list[str] | str] = []

    class Foreign(TerminationCondition):
        async def __call__(self, messages: Sequence[BaseAgentEvent | BaseChatMessage]) -> StopMessage | None:
            calls.append(lines(messages))
            return StopMessage(content="enough", source="x") if len(calls) == 4 else None

        async def reset(self) -> None:
            calls.append("reset")

    result = await RoundRobinGroupChat([Saying("a"), Saying("b")], termination_condition=Foreign()).run(task="go")
    assert calls == ["reset", ["user: go"], ["a: a here"], ["b: b here"]]
    assert result.stop_reason == "enough"


async def test_each_message_is_looked_at_once_unless_a_subclass_looks_at_all() -> None:
    class Twice(TextMentionTermination):
        def check(self, run: Run) -> StopMessage | None:
            spoken = [message for message in run.messages if message.to_text() == "one"]
            return StopMessage(content="twice", source="x") if len(spoken) == 2 else None

    a = Saying("a", "one", "two", "one", "three")
    condition = TextMentionTermination("two") & SourceMatchTermination(["a"]) & Twice("one")
    result = await RoundRobinGroupChat([a], termination_condition=condition).run(task="go")
    assert (lines(result.messages)[-1], result.stop_reason) == ("a: one", "Text 'two' mentioned, 'a' answered, twice")


async def test_a_run_counts_speeches_tokens_cost_and_time() -> None:
    runs: list[Run] = []

    class Watch(TerminationCondition):
        def check(self, run: Run) -> None:
            runs.append(run)

    with ScriptedModel([[say("Hi."), usage(7, 2)]]) as model:
        agents = [AssistantAgent("a", model), Saying("b", usage=RequestUsage(5, 1))]
        await RoundRobinGroupChat(agents, termination_condition=Watch(), max_turns=2).run(task="go")
    assert [(run.turns, run.usage, run.cost_usd) for run in runs] == [
        (0, RequestUsage(), 0.0),
        (1, RequestUsage(7, 2), None),
        (2, RequestUsage(12, 3), None),
    ]


async def test_tokens_of_an_inner_team_and_of_the_choice_of_a_speaker_count() -> None:
    replies = [[say("b"), usage(3, 1)], [say("Hi."), usage(7, 2)]]
    with ScriptedModel(replies) as model:
        inner = SelectorGroupChat([Saying("a"), AssistantAgent("b", model)], model, name="inner", max_turns=1)
        outer = RoundRobinGroupChat([inner], termination_condition=TokenUsageTermination(max_total_token=13))
        result = await outer.run(task="go")
    assert result.stop_reason == (
        "Token usage limit reached, total token count: 13, prompt token count: 10, completion token count: 3."
    )


async def test_an_unknown_price_ends_a_run_with_a_cost_limit() -> None:
    with ScriptedModel([[say("Hi."), usage(7, 2)]]) as model:
        team = RoundRobinGroupChat([AssistantAgent("a", model)], termination_condition=CostTermination(1.0))
        assert str((await team.run(task="go")).stop_reason).startswith("Cost unknown")


class Slow(Saying):
    async def on_messages(self, messages: Any, cancellation_token: CancellationToken) -> Any:
        await asyncio.sleep(4)
        return await super().on_messages(messages, cancellation_token)


async def test_a_time_limit_ends_a_run_after_a_speech() -> None:
    condition = TimeoutTermination(10)
    result = await RoundRobinGroupChat([Slow("a")], termination_condition=condition, clock=LoopClock()).run(task="go")
    assert (len(result.messages), result.stop_reason) == (4, "Timeout of 10 seconds reached")


class LateGate(ConfirmGate):
    async def request_confirm(self, question: str, context: Any) -> bool:
        await asyncio.sleep(100)
        return False

    async def request_answer(self, text: str, options: Sequence[str]) -> str:
        await asyncio.sleep(100)
        return "Yes."


async def answer_late(prompt: str) -> str:
    await asyncio.sleep(100)
    return "Yes."


@pytest.mark.parametrize("person", ["participant", "confirmation", "question"])
async def test_waiting_for_a_person_is_not_counted(person: str) -> None:
    risky, asking = call("file_write", {"path": "a.txt", "content": "x"}), call("ask_user", {"text": "Which?"})
    model = ScriptedModel([asking if person == "question" else risky, *[say("Well.")] * 3])
    proxy = UserProxyAgent("a", input_func=answer_late)
    assistant = AssistantAgent("a", model, tools=builtin_tools(), confirm_gate=LateGate())
    inner = RoundRobinGroupChat([proxy if person == "participant" else assistant, Slow("b")], max_turns=2)
    team = RoundRobinGroupChat([inner], termination_condition=TimeoutTermination(10), clock=LoopClock())
    result = await team.run(task="go")
    assert result.stop_reason == "Timeout of 10 seconds reached"
    assert [message.source for message in result.messages].count("b") == 3


async def test_an_external_stop_ends_a_run_after_the_speech_at_work() -> None:
    stop = ExternalTermination()
    team = RoundRobinGroupChat([Saying("a"), Saying("b")], termination_condition=stop)
    async for item in team.run_stream(task="go"):
        if isinstance(item, TextMessage) and item.source == "b":
            stop.set()
        if isinstance(item, TaskResult):
            assert (len(item.messages), item.stop_reason) == (3, "External termination requested")


# --- errors -----------------------------------------------------------------------------------------------------------


async def test_an_exception_of_a_participant_is_raised_and_its_speech_made_again() -> None:
    a, b = Saying("a"), Saying("b", ValueError("broken"), "fine")
    team = RoundRobinGroupChat([a, b], max_turns=2)
    with pytest.raises(TeamError, match="participant 'b' raised ValueError: broken") as raised:
        await team.run(task="go")
    assert isinstance(raised.value, RuntimeError)
    assert isinstance(raised.value.__cause__, ValueError)
    assert await talk(team) == ["b: fine", "a: a here"]
    assert b.sent == [["user: go", "a: a here"], ["user: go", "a: a here"]]


async def test_a_cancellation_by_a_participants_own_code_is_an_error() -> None:
    with pytest.raises(TeamError, match="cancelled by its own code"):
        await RoundRobinGroupChat([Saying("a", asyncio.CancelledError())], max_turns=1).run(task="go")


async def test_an_exception_of_a_condition_is_raised() -> None:
    def broken(messages: Any) -> bool:
        raise LookupError("no such thing")

    team = RoundRobinGroupChat([Saying("a")], termination_condition=FunctionalTermination(broken))
    with pytest.raises(TeamError, match="no such thing") as raised:
        await team.run(task="go")
    assert isinstance(raised.value.__cause__, LookupError)


async def test_an_agent_that_ends_without_a_response_is_an_error() -> None:
    class Silent(Saying):
        async def on_messages_stream(self, messages: Any, cancellation_token: Any) -> AsyncGenerator[Any, None]:
            for nothing in ():
                yield nothing

    with pytest.raises(TeamError, match="ended without a Response"):
        await RoundRobinGroupChat([Silent("a")], max_turns=1).run(task="go")


class Note(BaseChatMessage, frozen=True):
    """A message of an application's own."""

    content: str

    def to_text(self) -> str:
        return self.content


class Place(BaseModel):
    city: str


class Noting(Saying):
    """An agent that produces notes."""

    async def on_messages(self, messages: Any, cancellation_token: Any) -> Any:
        return Response(chat_message=Note(content="n", source=self.name))


async def test_message_types_that_are_not_registered_are_refused() -> None:
    team = RoundRobinGroupChat([Noting("a")], max_turns=1)
    with pytest.raises(ValueError, match=r"Message type .*Note.* is not registered"):
        await team.run(task=Note(content="go"))
    with pytest.raises(TeamError, match=r"Message type .*Note.* is not registered"):
        await team.run(task="go")
    with pytest.raises(ValueError, match=r"StructuredMessage\[Place\]"):
        await team.run(task=StructuredMessage[Place](content=Place(city="Lyon")))


async def test_custom_message_types_are_spoken_and_saved() -> None:
    types = [Note, StructuredMessage[Place]]
    teams = [RoundRobinGroupChat([Noting("a")], max_turns=1, custom_message_types=types) for _ in range(2)]
    task = [Note(content="go"), StructuredMessage[Place](content=Place(city="Lyon"))]
    assert await talk(teams[0], task) == ["user: go", 'user: {"city":"Lyon"}', "a: n"]
    state = await teams[0].save_state()
    await teams[1].load_state(json.loads(json.dumps(state)))
    assert await teams[1].save_state() == state


# --- inner teams, runtime ---------------------------------------------------------------------------------------------


async def test_an_inner_team_speaks_with_its_last_message_and_its_inner_messages_are_seen() -> None:
    inner = RoundRobinGroupChat([Thinking("a"), Thinking("b")], max_turns=2, name="inner")
    c = Saying("c")
    assert await talk(RoundRobinGroupChat([inner, c], max_turns=2), "go") == [
        "user: go",
        "a: Hm.",
        "a: a here",
        "b: Hm.",
        "b: b here",
        "c: c here",
    ]
    assert c.sent == [["user: go", "b: b here"]]


async def test_the_reason_to_stop_of_an_inner_team_that_says_nothing_is_no_text_that_ends_the_outer_one() -> None:
    at_task = TextMentionTermination("go", ["user"])
    inner = RoundRobinGroupChat([Saying("a")], termination_condition=at_task, name="inner")
    ends = TextMentionTermination("go", sources=["inner"])
    result = await RoundRobinGroupChat([inner], termination_condition=ends, max_turns=1).run(task="go")
    assert lines(result.messages) == ["user: go", "inner: (no message)"]
    assert result.messages[-1].metadata == {"stop_reason": "Text 'go' mentioned"}
    assert result.stop_reason == "Maximum number of turns 1 reached."


async def test_with_a_runtime_each_speech_is_a_message_of_it() -> None:
    recipients: list[str] = []

    class Watch(DefaultInterventionHandler):
        async def on_send(self, message: Any, *, message_context: Any, recipient: Any) -> Any:
            recipients.append(recipient.type.split("_team_")[0])
            return message

    runtime = SingleThreadedAgentRuntime(intervention_handlers=[Watch()])
    b = Saying("b", ValueError("broken"), "fine")
    inner = RoundRobinGroupChat([Saying("a")], max_turns=1, runtime=runtime, name="inner")
    team = RoundRobinGroupChat([inner, b], max_turns=2, runtime=runtime)
    with pytest.raises(TeamError, match="broken"):
        await team.run(task="go")
    assert await talk(team) == ["b: fine", "a: a here"]
    assert recipients == ["inner", "a", "b", "b", "inner", "a"]
    await runtime.stop()


@pytest.mark.parametrize("as_actors", [False, True])
@pytest.mark.parametrize(("inner_gate", "own_gate"), [(False, False), (True, False), (True, True)])
async def test_the_gate_of_an_agent_is_its_own_or_that_of_the_innermost_team_with_one(
    as_actors: bool, inner_gate: bool, own_gate: bool
) -> None:
    outer, inner, own = ScriptedGate(False), ScriptedGate(False), ScriptedGate(False)
    with ScriptedModel([call("file_write", {"path": "a.txt", "content": "x"}), say("Denied.")]) as model:
        agent = AssistantAgent("a", model, tools=builtin_tools(), confirm_gate=own if own_gate else None)
        options: dict[str, Any] = {"max_turns": 1, "runtime": SingleThreadedAgentRuntime() if as_actors else None}
        team = RoundRobinGroupChat([agent], confirm_gate=inner if inner_gate else None, name="inner", **options)
        result = await RoundRobinGroupChat([team], confirm_gate=outer, **options).run(task="go")
    assert lines(result.messages)[-1] == "a: Denied."
    asked = own if own_gate else inner if inner_gate else outer
    assert [request.agent_id for gate in (outer, inner, own) for request in gate.requests] == ["a"]
    assert len(asked.requests) == 1


# --- swarm ------------------------------------------------------------------------------------------------------------


async def test_in_a_swarm_the_target_of_the_last_handoff_speaks() -> None:
    swarm = Swarm([Handing("a", "c"), Saying("b"), Saying("c")], max_turns=3)
    assert await talk(swarm, "go") == ["user: go", "a: To c", "c: c here", "c: c here"]


async def test_after_a_handoff_to_no_participant_a_run_needs_a_handoff_as_its_task() -> None:
    swarm = Swarm([Handing("a", "human"), Saying("b")], termination_condition=HandoffTermination("human"), max_turns=2)
    assert (await swarm.run(task="go")).stop_reason == "Handoff to human from a detected."
    for task in (None, "more"):
        with pytest.raises(ValueError, match="'human', which is no participant"):
            await swarm.run(task=task)
    answer = HandoffMessage(content="Go on.", target="b")
    assert await talk(swarm, answer) == ["user: Go on.", "b: b here", "b: b here"]


async def test_a_handoff_to_no_participant_that_ends_nothing_is_an_error() -> None:
    with pytest.raises(TeamError, match="'x', which is no participant"):
        await Swarm([Handing("a", "x")], max_turns=2).run(task="go")


async def test_assistants_hand_over_by_their_tools() -> None:
    with ScriptedModel([call("handoff_to_b", {}), say("Done.")]) as model:
        swarm = Swarm([AssistantAgent("a", model, handoffs=["b"]), AssistantAgent("b", model)], max_turns=2)
        messages = (await swarm.run(task="go")).messages
    assert [f"{message.source}: {message.type}" for message in messages] == [
        "user: TextMessage",
        "a: ToolCallRequestEvent",
        "a: ToolCallExecutionEvent",
        "a: HandoffMessage",
        "b: TextMessage",
    ]


def handing_poet(to: str, **options: Any) -> tuple[ScriptedModel, AssistantAgent]:
    reply = [think("APPROVE?"), say("DRAFT: roses. Shall I?"), call(f"handoff_to_{to}")]
    model = ScriptedModel([reply, say("Red ones.")])
    return model, AssistantAgent("poet", model, handoffs=[to], **options)


@pytest.mark.parametrize(("text", "speeches"), [("DRAFT", 1), ("APPROVE", 2)])
async def test_text_beside_a_handoff_is_looked_at_and_reasoning_is_not(text: str, speeches: int) -> None:
    model, poet = handing_poet("critic")
    swarm = Swarm([poet, AssistantAgent("critic", model)], TextMentionTermination(text, ["poet"]), max_turns=2)
    result = await swarm.run(task="go")
    spoken = [message.source for message in result.messages if message.type.endswith("Message")]
    assert spoken == ["user", "poet", "critic"][: speeches + 1]
    asked = [row.content for row in model.requests[-1].messages]
    assert ("poet said:\nDRAFT: roses. Shall I?" in asked) == (speeches == 2)


async def test_text_beside_a_handoff_reaches_a_person_and_the_model_that_selects() -> None:
    gate = ScriptedGate(QuestionAnswer(answer="yes"))
    _, poet = handing_poet("person")
    await Swarm([poet, UserProxyAgent("person")], max_turns=2, confirm_gate=gate).run(task="go")
    assert "poet: DRAFT: roses. Shall I?\n" in gate.questions[0].text
    _, poet = handing_poet("person")
    with ScriptedModel([say("poet"), say("b")]) as chooser:
        await SelectorGroupChat([poet, Saying("b"), Saying("c")], chooser, max_turns=2).run(task="go")
    assert "poet: DRAFT: roses. Shall I?\nTransferred to" in chooser.requests[1].messages[0].content
    session, (_, poet) = Session(), handing_poet("person")
    await Swarm([poet], HandoffTermination("person"), session=session).run(task="go")
    assert session.messages[-1].content.startswith("DRAFT: roses. Shall I?\nTransferred to person")

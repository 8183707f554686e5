"""Teams in sessions: a run is a turn, and a speech is a child turn of it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from agenticx import builtin_tools, open_hub
from agenticx.errors import ModelError, SessionBusy, SessionNotFound
from agenticx.llms import ScriptedModel
from agenticx.runtime import AgentRuntime, AutoApproveConfirmGate, Budget, ConfirmAnswer, Session
from agenticx.settings import load_settings
from agenticx.teams import (
    AssistantAgent,
    BaseChatMessage,
    CancellationToken,
    MaxMessageTermination,
    RoundRobinGroupChat,
    SelectorGroupChat,
    Swarm,
    TaskResult,
    TeamError,
    TextMessage,
    UserProxyAgent,
)
from agenticx.testing import call, check_grammar, hang, outline
from agenticx.tools import tool
from tests.support.sessions import wait_for_event, wait_for_turn_end
from tests.support.teams.child_turns import turns_by_agent
from tests.support.teams.sessions import by_agent, log_of, open_session
from tests.support.timeouts import PATIENCE, wait_until
from tests.unit.teams.chat_agents import Saying, Waiting, cancel_while_waiting, lines

pytestmark = pytest.mark.anyio


def agent(name: str, *script: Any, **options: Any) -> AssistantAgent:
    return AssistantAgent(name, ScriptedModel(list(script)), **options)


def shown_to(model: ScriptedModel) -> list[str]:
    return [message.content for message in model.requests[-1].messages if message.role != "system"]


def texts(result: TaskResult) -> list[str]:
    return [message.to_text() for message in result.messages]


async def test_a_run_is_a_turn_and_each_speech_is_a_turn_below_it(tmp_path: Path) -> None:
    async with open_session(tmp_path) as (hub, session_id):
        writer, critic = agent("writer", "A poem."), agent("critic", "Too short.")
        team = RoundRobinGroupChat([writer, critic], name="Poets", max_turns=2, session=session_id)
        result = await team.run(task="Write.")
        assert (texts(result), result.stop_reason) == (
            ["Write.", "A poem.", "Too short."],
            "Maximum number of turns 2 reached.",
        )
        log = await log_of(hub, session_id)
        turns = by_agent(log)
        ((run,), (first,), (second,)) = turns["meta"], turns["writer"], turns["critic"]
        assert outline(run) == [
            *("turn_started", "team_message"),
            *("speaker_selected", "team_message") * 2,
            *("token", "final"),
        ]
        assert [event["data"] for event in run if event["type"] == "speaker_selected"] == [
            {"team": "Poets", "speakers": [name]} for name in ("writer", "critic")
        ]
        said = [event["data"]["message"] for event in run if event["type"] == "team_message"]
        assert [(one["source"], one["content"]) for one in said] == [
            ("user", "Write."), ("writer", "A poem."), ("critic", "Too short.")
        ]  # fmt: skip
        for speech in (first, second):
            assert speech[0]["data"]["parent_turn_id"] == run[0]["turn_id"]
            assert outline(speech) == ["turn_started", "round_start", "token", "final"]
        assert (run[-1]["data"]["text"], run[-1]["data"]["usage"]["input_tokens"]) == ("Too short.", None)
        usage = {row.agent_id: row.counts.calls for row in await hub.store.catalog.usage(session_id=session_id)}
        assert usage == {"writer": 1, "critic": 1}
        messages = [(one.get("sender"), one["content"]) for one in await hub.messages(session_id)]
        assert messages == [(None, "Write."), ("writer", "A poem."), ("critic", "Too short.")]


async def test_a_confirm_of_a_participant_is_answered_through_the_hub(tmp_path: Path) -> None:
    ran: list[str] = []

    def post(text: str) -> str:
        """Post a text."""
        ran.append(text)
        return "posted"

    async with open_session(tmp_path) as (hub, session_id):
        writer = agent("writer", call("post", {"text": "x"}), "Done.", tools=[post])
        running = asyncio.create_task(RoundRobinGroupChat([writer], max_turns=1, session=session_id).run(task="Go"))
        asked = await wait_for_event(hub.store, session_id, "confirm_required")
        assert asked["agent_path"] == ["meta", "writer"]
        (question,) = await hub.open_requests(session_id)
        with pytest.raises(SessionBusy):
            [event async for event in hub.run_turn(session_id, "hello")]
        await hub.answer(question.id, ConfirmAnswer(approved=True), digest=question.digest)
        assert texts(await running)[-1] == "Done."
        assert ran == ["x"]
        await log_of(hub, session_id)


async def test_a_speech_that_uses_up_the_seconds_of_the_budget_ends_the_turn_of_the_run(tmp_path: Path) -> None:
    async with open_session(tmp_path) as (hub, session_id):
        team = RoundRobinGroupChat([Waiting("a")], max_turns=1, budget=Budget(seconds=0.01), session=session_id)
        with pytest.raises(TeamError, match=r"the budget of 0\.01 s is exceeded"):
            await team.run(task="Go")
        assert (await log_of(hub, session_id))[-1]["data"]["code"] == "budget_exceeded"


@pytest.mark.parametrize("by", ["hub", "token", "task"])
async def test_a_stopped_run_ends_all_its_turns_and_can_be_run_again_at_once(tmp_path: Path, by: str) -> None:
    async with open_session(tmp_path) as (hub, session_id):
        inner = RoundRobinGroupChat([agent("inner", hang(), "Again.")], name="pair", max_turns=1)
        team, token = RoundRobinGroupChat([inner], max_turns=1, session=session_id), CancellationToken()
        running = asyncio.create_task(team.run(task="Go", cancellation_token=token))

        async def has_begun() -> bool:
            return len(await hub.store.log.read(session_id, 0, 1000)) >= 9

        await wait_until(has_begun)
        began = asyncio.get_running_loop().time()
        if by == "hub":
            await hub.stop(session_id)
        else:
            (token if by == "token" else running).cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert asyncio.get_running_loop().time() - began < 2.5  # after 3 s it is left behind
        assert texts(await team.run())[-1] == "Again."
        turns = by_agent(await log_of(hub, session_id))
        ends = [(name, [events[-1]["data"].get("code") for events in runs]) for name, runs in turns.items()]
        assert ends == [(name, ["stopped", None]) for name in ("meta", "pair", "inner")]


async def test_a_run_follows_a_stopped_one_whose_participant_ignores_that(tmp_path: Path) -> None:
    class Stubborn(Saying):
        async def on_messages(self, messages: Sequence[BaseChatMessage], cancellation_token: CancellationToken) -> Any:
            is_first = not begun.is_set()
            begun.set()
            while is_first and not over.is_set():
                with suppress(asyncio.CancelledError):
                    await over.wait()
            return await super().on_messages(messages, cancellation_token)

    begun, over = asyncio.Event(), asyncio.Event()
    async with open_session(tmp_path) as (_, session_id):
        team, token = RoundRobinGroupChat([Stubborn("a")], max_turns=1, session=session_id), CancellationToken()
        running = asyncio.create_task(team.run(task="Go", cancellation_token=token))
        await begun.wait()
        token.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert lines((await team.run()).messages) == ["a: a here"]
        over.set()


async def test_a_team_of_the_next_process_goes_on_with_the_right_speaker(tmp_path: Path) -> None:
    ran: list[str] = []

    @tool(risk="read")
    def look() -> str:
        """Look."""
        ran.append("look")
        return "seen"

    async with open_session(tmp_path) as (hub, session_id):
        hanging = ScriptedModel([call("look"), hang()])
        members = [agent("a", call("look"), "One.", tools=[look]), AssistantAgent("b", hanging, tools=[look])]
        team = RoundRobinGroupChat(members, max_turns=4, session=session_id)
        running = asyncio.create_task(team.run(task="Go"))
        await wait_until(lambda: len(hanging.requests) == 2)
        await hub.stop(session_id)
        with pytest.raises(asyncio.CancelledError):
            await running
    settings = load_settings({"home": tmp_path / "home"}, environ={})
    url = f"sqlite:///{tmp_path}/sessions.db"
    async with open_hub(url, model=ScriptedModel([]), tools=[], workspace=tmp_path, settings=settings) as hub:
        first, second = ScriptedModel(["Three."]), ScriptedModel(["Two."])
        members = [AssistantAgent("a", first, tools=[look]), AssistantAgent("b", second, tools=[look])]
        result = await RoundRobinGroupChat(members, max_turns=2, session=session_id).run()
        assert (texts(result), ran) == (["Two.", "Three."], ["look", "look"])
        shown = [
            [(message.role, message.content) for message in model.requests[0].messages[1:]] for model in (second, first)
        ]
        calls, found = ("assistant", ""), ("tool", "seen")
        assert shown == [
            [("user", "Go"), ("user", "a said:\nOne."), calls, found, ("user", "Continue.")],
            [("user", "Go"), calls, found, ("assistant", "One."), ("user", "b said:\nTwo.")],
        ]
        with pytest.raises(ValueError, match="speeches of"):
            await RoundRobinGroupChat([agent("c")], max_turns=1, session=session_id).run()


async def test_the_context_of_a_handoff_is_restored(tmp_path: Path) -> None:
    @tool(risk="read")
    def look() -> str:
        """Look."""
        return "seen"

    seen: list[list[str]] = []
    async with open_session(tmp_path) as (_, session_id):
        for task in ("go", "and?"):
            first, second = (
                agent("a", [call("look"), call("handoff_to_b")], tools=[look], handoffs=["b"]),
                ScriptedModel(["B."]),
            )
            team = Swarm([first, AssistantAgent("b", second)], max_turns=2 - len(seen), session=session_id)
            await team.run(task=task)
            seen.append(shown_to(second))
    assert "seen" in seen[0][1]
    assert seen[1] == [*seen[0], "B.", "and?"]


async def test_the_failure_of_a_participant_ends_the_turn_of_the_run(tmp_path: Path) -> None:
    async with open_session(tmp_path) as (hub, session_id):
        broken = agent("broken", *[ModelError("no model", code="provider.auth")] * 9)
        with pytest.raises(TeamError, match="no model"):
            await RoundRobinGroupChat([broken], max_turns=1, session=session_id).run(task="Go")
        turns = by_agent(await log_of(hub, session_id))
        assert [events[0][-1]["type"] for events in turns.values()] == ["error", "error"]


async def test_a_session_in_memory_keeps_the_task_and_the_answer_and_asks_nobody_about_own_functions() -> None:
    session = Session()
    ran: list[str] = []

    def note() -> str:
        """Note something."""
        ran.append("note")
        return "noted"

    team = RoundRobinGroupChat([agent("writer", call("note"), "Noted.", tools=[note])], max_turns=1, session=session)
    await team.run(task="Go")
    assert (ran, [message.content for message in session.messages]) == (["note"], ["Go", "Noted."])


async def test_the_choice_of_a_speaker_is_spent_in_the_turn_of_the_run(tmp_path: Path) -> None:
    async with open_session(tmp_path) as (hub, session_id):
        members = [agent("a", "from a"), agent("b", "from b")]
        chooser = ScriptedModel(["b"])
        team = SelectorGroupChat(members, chooser, max_turns=1, session=session_id)
        await team.run(task="Go")
        turns = by_agent(await log_of(hub, session_id))
        assert list(turns) == ["meta", "b"]
        assert sum(event["type"] == "usage" for event in turns["meta"][0]) == 1


async def test_a_team_in_a_tool_runs_below_the_turn_that_calls_it(tmp_path: Path) -> None:
    @tool(risk="read")
    async def discuss(topic: str) -> str:
        """Discuss a topic."""
        members = [agent("one", "First."), agent("two", "Second.")]
        team = RoundRobinGroupChat(members, name="Pair", termination_condition=MaxMessageTermination(3))
        return (await team.run(task=topic)).messages[-1].to_text()

    model = ScriptedModel([call("discuss", {"topic": "x"}), "Done."])
    runtime = AgentRuntime(model, AutoApproveConfirmGate(), tools=[discuss])
    events = [event async for event in runtime.run_turn("go", Session(workspace=tmp_path))]
    check_grammar(events)
    turns = turns_by_agent(events)
    assert list(turns) == ["meta", "Pair", "one", "two"]
    assert turns["one"][0].data["parent_turn_id"] == turns["Pair"][0].turn_id
    (result,) = [event.data["result"] for event in turns["meta"] if event.type == "tool_result"]
    assert result == "Second."


async def test_the_log_has_the_words_of_a_model_that_named_no_speaker(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    async with open_session(tmp_path) as (hub, session_id):
        members = [agent("a", "One."), agent("b", "Two.", "Four."), agent("c", "Three.")]
        chooser = ScriptedModel(["b", "Hm.", "b again\ud800", "c", "b"])
        team = SelectorGroupChat(
            members, chooser, name="Team", max_turns=3, max_selector_attempts=2, session=session_id
        )
        await team.run(task="Go.")
        log = await log_of(hub, session_id)
    assert [event["data"] for event in log if event["type"] == "speaker_selected"] == [
        {"team": "Team", "speakers": ["b"]},
        {"team": "Team", "speakers": ["b"], "fallback": "b again\N{REPLACEMENT CHARACTER}"},
        {"team": "Team", "speakers": ["c"]},
    ]
    assert [record.levelname for record in caplog.records if "no speaker was chosen" in record.getMessage()] == ["INFO"]


async def test_a_session_of_no_open_hub_is_refused() -> None:
    with pytest.raises(SessionNotFound, match="no open hub has a session with the id 'ses_1'"):
        await RoundRobinGroupChat([agent("a")], max_turns=1, session="ses_1").run(task="Go")


async def test_an_inner_team_has_the_workspace_and_the_permissions_of_the_session(tmp_path: Path) -> None:
    script = [call("file_write", {"path": "out.txt", "content": "hello"}), "done"]
    async with open_session(tmp_path) as (hub, session_id):
        await hub.change(session_id, {"permission_mode": "auto"})
        writer = AssistantAgent("writer", ScriptedModel(script), tools=list(builtin_tools()))
        inner = RoundRobinGroupChat([writer], max_turns=1, name="inner")
        await RoundRobinGroupChat([inner], max_turns=1, session=session_id).run(task="go")
        (event,) = [one for one in await log_of(hub, session_id) if one["type"] == "tool_result"]
    assert (event["data"]["outcome"], (tmp_path / "out.txt").read_text()) == ("ok", "hello")


async def test_the_speech_of_an_inner_team_goes_on_after_a_restart(tmp_path: Path) -> None:
    def team(session_id: str) -> tuple[Waiting, RoundRobinGroupChat]:
        b = Waiting("b")
        inner = RoundRobinGroupChat([Saying("a"), b, Saying("c")], max_turns=2, name="inner")
        return b, RoundRobinGroupChat([inner, Saying("d")], max_turns=2, name="outer", session=session_id)

    async with open_session(tmp_path) as (hub, session_id):
        b, outer = team(session_id)
        await cancel_while_waiting(outer, b)
        await wait_for_turn_end(hub.store, session_id, ends=2)
        b, outer = team(session_id)
        b.begun.set()
        assert lines((await outer.run()).messages) == ["a: a here", "b: b here", "d: d here"]
        _, outer = team(session_id)
        assert lines((await outer.run()).messages) == ["c: c here", "a: a here", "d: d here"]


@pytest.mark.parametrize("durable", [True, False])
async def test_half_a_surrogate_pair_in_what_is_said_is_replaced(tmp_path: Path, durable: bool) -> None:
    half, model = "half \ud83d of it", ScriptedModel(["Fine."])
    async with open_session(tmp_path) as (_, session_id):
        person = UserProxyAgent("person", input_func=lambda _: half)
        members = [Saying("custom", half), person, AssistantAgent("a", model)]
        team = RoundRobinGroupChat(members, max_turns=3, session=session_id if durable else None)
        result = await team.run(task=TextMessage(content=half, source=half, metadata={half: half}))
    clean = "half \ufffd of it"
    assert texts(result) == [clean, clean, "", clean, "Fine."]
    assert result.messages[0].source == clean
    assert shown_to(model) == [f"{clean} said:\n{clean}", f"custom said:\n{clean}", f"person said:\n{clean}"]


# --- names that are used twice ----------------------------------------------------------------------------------------


async def test_teams_and_participants_of_the_same_names_are_restored_apart(tmp_path: Path) -> None:
    def team(session_id: str) -> tuple[ScriptedModel, ScriptedModel, RoundRobinGroupChat]:
        below, above = ScriptedModel(["Below."]), ScriptedModel(["Above."])
        inner = RoundRobinGroupChat([AssistantAgent("a", below), agent("b", "B.")], max_turns=2)
        return below, above, RoundRobinGroupChat([inner, AssistantAgent("a", above)], max_turns=2, session=session_id)

    async with open_session(tmp_path) as (hub, session_id):
        for task in ("go", "again"):
            below, above, outer = team(session_id)
            assert texts(await outer.run(task=task)) == [task, "Below.", "B.", "Above."]
        assert shown_to(below) == ["go", "Below.", "b said:\nB.", "a said:\nAbove.", "again"]
        assert shown_to(above) == ["go", "b said:\nB.", "Above.", "again", "b said:\nB."]
        await log_of(hub, session_id)


async def test_a_team_does_not_have_the_talk_of_another_team_of_its_session(tmp_path: Path) -> None:
    async with open_session(tmp_path) as (_, session_id):
        for name in ("one", "two"):
            model = ScriptedModel(["Hello."])
            team = RoundRobinGroupChat([AssistantAgent("a", model)], max_turns=1, session=session_id, name=name)
            await team.run(task=f"for {name}")
            assert shown_to(model) == [f"for {name}"]


async def test_a_team_in_a_tool_goes_on_with_its_own_talk(tmp_path: Path) -> None:
    models: list[ScriptedModel] = []

    @tool(risk="read")
    async def discuss() -> str:
        """Discuss."""
        models.append(ScriptedModel(["First."]))
        team = RoundRobinGroupChat([AssistantAgent("x", models[-1])], max_turns=1, session=session_id)
        return (await team.run(task="inner")).messages[-1].to_text()

    async with open_session(tmp_path) as (_, session_id):
        for _ in range(2):
            writer = agent("writer", call("discuss"), "Done.", tools=[discuss])
            await RoundRobinGroupChat([writer], max_turns=1, session=session_id).run(task="go")
    assert [shown_to(model) for model in models] == [["inner"], ["inner", "First.", "inner"]]


@pytest.mark.parametrize("is_stored", [False, True], ids=["in memory", "in a hub"])
async def test_a_run_ends_at_the_time_limit_of_its_turn(tmp_path: Path, is_stored: bool) -> None:
    settings = load_settings({"home": tmp_path / "home", "turn_timeout_seconds": 0.1}, environ={})
    url = f"sqlite:///{tmp_path}/sessions.db"
    async with open_hub(url, model=ScriptedModel([]), workspace=tmp_path, settings=settings) as hub:
        session = (await hub.create()).id if is_stored else Session()
        team = RoundRobinGroupChat([Waiting("a")], max_turns=1, session=session, settings=settings)
        with pytest.raises(TeamError) as raised:
            await asyncio.wait_for(team.run(task="go"), PATIENCE)
    assert raised.value.code == "timeout.turn"


async def test_a_team_in_a_tool_runs_in_the_other_session_that_it_names(tmp_path: Path) -> None:
    async with open_session(tmp_path) as (hub, session_id):
        other_id = (await hub.create(name="Other")).id

        @tool(risk="read")
        async def discuss() -> str:
            """Discuss."""
            team = RoundRobinGroupChat([agent("x", "First.")], name="inner", max_turns=1, session=other_id)
            return (await team.run(task="inner")).messages[-1].to_text()

        writer = agent("writer", call("discuss"), "Done.", tools=[discuss])
        await RoundRobinGroupChat([writer], max_turns=1, session=session_id).run(task="go")
        assert list(by_agent(await log_of(hub, session_id))) == ["meta", "writer"]
        assert list(by_agent(await log_of(hub, other_id))) == ["meta", "x"]

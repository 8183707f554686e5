"""The demo model: driven by the user's words, with the real tools; it says that it is a script."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from typing_extensions import TypedDict

from agenticx import UserMessage, builtin_tools
from agenticx.clocks import ScaledClock
from agenticx.core import Agent, AgentExecutor, Task
from agenticx.llms import DemoModel, ModelRequest, ToolSchema, complete
from agenticx.messages import AssistantMessage
from agenticx.runtime import AgentRuntime, ContextCompactor
from agenticx.teams import (
    AgentTeamManager,
    AssistantAgent,
    BaseChatMessage,
    RoundRobinGroupChat,
    SelectorGroupChat,
    Swarm,
    TextMentionTermination,
)
from agenticx.testing import ScriptedGate, assert_sequence, check_grammar, collect, outline

pytestmark = pytest.mark.anyio

README = Path(__file__).parents[3] / "README.md"
DEMO = DemoModel(ScaledClock(math.inf))
TOOLS = [tool.schema for tool in builtin_tools()]


async def turn(words, session, *answers, tools=None):
    with ScriptedGate(*answers) as gate:
        runtime = AgentRuntime(DEMO, gate)
        events = await collect(runtime.run_turn(words, session, tools=builtin_tools() if tools is None else tools))
    check_grammar(events)
    return events


def calls(events):
    return [(event.data["name"], event.data["arguments"]) for event in events if event.type == "tool_call"]


async def first_call(words):
    reply, error = await complete(DEMO, ModelRequest(messages=[UserMessage(content=words)], tools=TOOLS))
    assert error is None
    return [(call.name, call.arguments) for call in reply.tool_calls]


@pytest.mark.parametrize("words", ["hello", "help", "What is the meaning of life?", ""])
async def test_an_unknown_request_is_answered_with_a_note_that_it_is_a_script(words, agx_session):
    events = await turn(words, agx_session)
    assert outline(events) == ["turn_started", "round_start", "token", "final"]
    assert "script" in events[-1].data["text"]


FOLDER, NOTES = ("list_files", {}), ("file_read", {"path": "notes.md"})


@pytest.mark.parametrize(
    ("words", "planned"),
    [
        ("What is in this folder? Read notes.md and summarise it", [FOLDER, NOTES]),
        ("Read the file notes.md. What's in the folder?", [NOTES, FOLDER]),
        ("Look through this project and tell me what it is about.", [FOLDER]),
        ("Which files are here?", [FOLDER]),
        ("Summarize notes.md, please", [NOTES]),
        ("What does notes.md say?", [NOTES]),
        ("What is in the notes.md file?", [NOTES]),
    ],
)
async def test_the_first_things_that_people_ask_are_understood(words, planned, agx_session):
    (agx_session.workspace / "notes.md").write_text("one\n")
    assert calls(await turn(words, agx_session)) == planned


async def test_a_request_to_list_and_write_asks_before_it_writes(agx_session):
    (agx_session.workspace / "notes.txt").write_text("one\n")
    events = await turn("list the files and then write a.txt with the text hi", agx_session, True)
    assert_sequence(
        events,
        [
            *("turn_started", "round_start", "token+", "tool_call_delta+", "tool_call:list_files", "tool_result:ok"),
            *("round_start", "token+", "tool_call_delta+"),
            ("tool_call", {"name": "file_write", "arguments": {"path": "a.txt", "content": "hi"}}),
            *("confirm_required", "confirm_response:approved", "tool_result:ok"),
            *("round_start", "token+", "final"),
        ],
    )
    assert "notes.txt" in events[-1].data["text"]
    assert (agx_session.workspace / "a.txt").read_text() == "hi"


@pytest.mark.parametrize(
    "text",
    ["TEXT", "two words.", "first; then run ls and read b.txt", '"quoted"', "  spaced  ", "line\nline\n", "ä 🍕"],
)
async def test_the_text_to_write_is_taken_unchanged_to_the_end(text, agx_session):
    events = await turn(f"Write NAME with the text {text}", agx_session, True)
    assert calls(events) == [("file_write", {"path": "NAME", "content": text})]
    assert (agx_session.workspace / "NAME").read_bytes() == text.encode()


LONG = "first; then run ls and read b.txt\n" * 1000


@pytest.mark.parametrize(
    ("words", "tool", "argument", "expected"),
    [
        (f"write a.txt with the text {LONG}", "file_write", "content", LONG),
        (f"remember k: {LONG}", "scratchpad_write", "content", LONG.strip()),
        (f"run cat << X\n{'x ' * 10_000}", "bash_exec", "command", f"cat << X\n{'x ' * 10_000}".strip()),
        (f"read a.txt and then read b.txt. {'x' * 10_000}", "file_read", "path", "a.txt"),
    ],
    ids=["write", "remember", "run", "read"],
)
@pytest.mark.cases(quick=1)
async def test_an_argument_that_extends_to_the_end_of_the_message_may_be_long(words, tool, argument, expected):
    (call,) = await first_call(words)
    assert (call[0], json.loads(call[1])[argument]) == (tool, expected)


async def test_a_long_text_is_streamed_completely_with_its_rest_in_one_delta():
    reply, _ = await complete(DEMO, ModelRequest(messages=[UserMessage(content=f"say {'word ' * 100_000}end")]))
    assert reply.text == f"{'word ' * 100_000}end"
    assert reply.usage is not None
    assert reply.usage.output_tokens == 2_002


async def test_a_denied_call_is_reported_and_later_steps_are_skipped(agx_session):
    events = await turn("run touch b.txt and then list the files", agx_session, False)
    assert calls(events) == [("bash_exec", {"command": "touch b.txt"})]
    assert "was not allowed, so it did not run" in events[-1].data["text"]
    assert "So I did not list the files." in events[-1].data["text"]
    assert not (agx_session.workspace / "b.txt").exists()


async def test_a_failed_call_is_reported(agx_session):
    events = await turn("read missing.txt", agx_session)
    assert_sequence(events, ["...", "tool_result:error", "...", "final"])
    assert "`file_read` failed" in events[-1].data["text"]


async def test_a_missing_tool_is_reported(agx_session):
    events = await turn("list the files", agx_session, tools=[])
    assert (
        events[-1].data["text"]
        == "I could not list the files: that takes the tool `list_files`, which I was not given."
    )


async def test_every_tool_can_be_reached_by_words(agx_session):
    (agx_session.workspace / "a.txt").write_text("old wine\n")
    words = [
        ("search for wine in a.txt", ()),
        ("replace old with new in a.txt", (True,)),
        ("read a.txt", ()),
        ("todo: one, two, three", ()),
        ("remember color: blue", ()),
        ("recall color", ()),
        ("run printf hi > b.txt", (True,)),
    ]
    seen = []
    for sentence, answers in words:
        events = await turn(sentence, agx_session, *answers)
        seen += [(event.data["name"], event.data["is_error"]) for event in events if event.type == "tool_result"]
        last = events[-1].data["text"]
    names = ["file_search", "file_edit", "file_read", "todo_write", "scratchpad_write", "scratchpad_read", "bash_exec"]
    assert seen == [(name, False) for name in names]
    assert "`bash_exec`" in last
    assert (agx_session.workspace / "a.txt").read_text() == "new wine\n"
    assert (agx_session.workspace / "b.txt").read_text() == "hi"
    assert [row["text"] for row in agx_session.state.todos] == ["one", "two", "three"]
    assert agx_session.state.scratchpad == {"color": "blue"}


async def test_the_same_words_again_make_the_same_calls_again(agx_session):
    first = await turn("list the files", agx_session)
    second = await turn("list the files", agx_session)
    assert calls(first) == calls(second) == [("list_files", {})]


async def test_the_same_thing_is_done_once_within_a_request(agx_session):
    events = await turn("list the files and list files and then ls", agx_session)
    assert calls(events) == [("list_files", {})]


async def test_thinking_is_streamed_as_thinking(agx_session):
    events = await turn("think about cheese and then list the files", agx_session)
    assert outline(events)[2:5] == ["thinking", "token", "tool_call_delta"]
    assert "cheese" in "".join(event.data["text"] for event in events if event.type == "thinking")


async def test_text_is_streamed_word_by_word_and_usage_is_reported(agx_session):
    events = await turn("count to 5", agx_session)
    assert [event.data["text"] for event in events if event.type == "token"] == ["1", " 2", " 3", " 4", " 5"]
    assert_sequence(events, ["...", ("usage", {"input_tokens": 3, "output_tokens": 5, "model": "demo"}), "..."])


async def test_a_reminder_of_the_engine_is_not_taken_for_the_user():
    history = [UserMessage(content="say one"), AssistantMessage(content="one")]
    request = ModelRequest(messages=[*history, UserMessage(content="run ls", injected=True)], tools=TOOLS)
    reply, error = await complete(DEMO, request)
    assert (reply.text, reply.tool_calls, error) == ("one", (), None)


async def test_a_summary_request_gets_an_extract():
    history = [UserMessage(content=f"write f{number}.txt with the text {'x' * 200}") for number in range(30)]
    compacted = await ContextCompactor().maybe_compact(history, DEMO)
    assert compacted is not None
    assert "The demo model cannot summarise" in compacted.summary


@pytest.mark.parametrize(
    ("words", "tool", "arguments"),
    [
        ("Please list the files in src.", "list_files", '{"path": "src"}'),
        ("list files in ..", "list_files", '{"path": ".."}'),
        ("What files are there?", "list_files", "{}"),
        ("show me README.md and summarise it", "file_read", '{"path": "README.md"}'),
        ('find "def main" in the files', "file_search", '{"pattern": "def main", "literal": true}'),
        ("run echo a; cat b", "bash_exec", '{"command": "echo a; cat b"}'),
        ("run `ls; pwd` and then read a", "bash_exec", '{"command": "ls; pwd"}'),
        ("run ls . and then read a", "bash_exec", '{"command": "ls ."}'),
        ("in a.txt replace x with y", "file_edit", '{"path": "a.txt", "old_text": "x", "new_text": "y"}'),
        ("write a file called b c.txt with the text x", "file_write", '{"path": "b c.txt", "content": "x"}'),
        ("hi, list the files", "list_files", "{}"),
    ],
)
async def test_requests_are_understood_in_several_wordings(words, tool, arguments):
    assert await first_call(words) == [(tool, arguments)]


async def test_a_tool_that_is_not_offered_is_not_called():
    only_reading = [schema for schema in TOOLS if isinstance(schema, ToolSchema) and schema.name == "file_read"]
    request = ModelRequest(messages=[UserMessage(content="run ls and then read a.txt")], tools=only_reading)
    reply, _ = await complete(DEMO, request)
    assert [call.name for call in reply.tool_calls] == ["file_read"]


async def test_an_object_is_returned_if_the_user_dictates_it_and_refused_otherwise(agx_session):
    class Place(TypedDict):
        name: str

    async def ended(words):
        events = await collect(
            AgentRuntime(DEMO).run_turn(words, agx_session, tools=builtin_tools(), output_type=Place)
        )
        return outline(events, detail=True), events[-1].data

    outlined, data = await ended('say {"name": "Lyon"}')
    assert (outlined[-1], data["output"]) == ("final:answer", {"name": "Lyon"})
    outlined, data = await ended("Where is Lyon?")
    assert outlined == ["turn_started", "round_start", "error:provider.bad_request"]
    assert "The demo model is a script" in data["text"]


def transfer_to_billing() -> Agent:
    """Hand over questions about invoices."""
    return Agent(name="Billing")


@pytest.mark.parametrize(
    ("words", "agent", "answer"),
    [
        ("hand over to billing", "Billing", "I have taken over."),
        ("Billing, say hello", "Billing", "hello"),
        ("Hand over to Billing, and then say hello", "Billing", "hello"),
        ("Billing, count to 3", "Billing", "1 2 3"),
        ("say hello", "Triage", "hello"),
        ("hand over to nobody", "Triage", "I could not hand over to nobody: "),
    ],
)
async def test_it_hands_over_to_the_agent_that_the_request_names(words, agent, answer):
    triage = Agent(name="Triage", tools=[transfer_to_billing])
    result = await AgentExecutor(DEMO).arun(triage, Task(description=words))
    assert result.agent.name == agent
    assert result.result.startswith(answer)


async def team_run(task, *members, ending="DONE", kind=RoundRobinGroupChat):
    condition = TextMentionTermination(ending, [member.name for member in members])
    result = await kind([*members], termination_condition=condition, max_turns=6).run(task=task)
    return [(message.source, message.to_text()) for message in result.messages if isinstance(message, BaseChatMessage)]


async def test_in_a_team_it_quotes_no_speech_and_says_the_word_that_ends_the_run():
    members = [AssistantAgent("writer", DEMO), AssistantAgent("critic", DEMO, system_message="Say if it is fine: DONE")]
    members.append(AssistantAgent("editor", DEMO, system_message="End with the word DONE."))
    _, first, second, third = await team_run("Write about rain. " * 100, *members)
    assert "“Write about rain." in first[1]
    assert all(len(text) < 500 and text.count("“") == 1 for _, text in (first, second, third))
    assert (second[0], third[0]) == ("critic", "editor")
    assert second[1].startswith("I have read what writer said about “Write about rain.")
    assert third[1].endswith("\n\nDONE")


@pytest.mark.parametrize(
    ("task", "expected"),
    [
        ("hand over to clerk", "I have taken over."),
        ("hand over to clerk: count to 3", "1 2 3"),
        ("count to 3, clerk", "1 2 3"),
        ("clerk, count to 3", "1 2 3"),
        (
            "Where is my order?",
            "I am a demo model, a script without understanding, and your words “Where is my order?”",
        ),
    ],
)
async def test_in_a_swarm_it_hands_over_and_the_target_works_on_the_task(task, expected):
    desk = AssistantAgent("desk", DEMO, handoffs=["helper", "clerk"], system_message="Hand over.")
    helper = AssistantAgent("helper", DEMO, system_message="End with DONE.")
    clerk = AssistantAgent("clerk", DEMO, handoffs=["desk"], system_message="End with DONE.")
    *_, last = await team_run(task, desk, helper, clerk, kind=Swarm)
    assert last[0] == ("desk" if task.startswith("count") else "helper" if "order" in task else "clerk")
    assert last[1].startswith(expected)


async def test_as_a_selector_it_chooses_who_has_spoken_least():
    members = [AssistantAgent(name, DEMO, description=f"{name}s things") for name in ("reader", "judge", "reporter")]
    team = SelectorGroupChat(members, DEMO, max_turns=4, allow_repeated_speaker=True)
    result = await team.run(task="Look into it.")
    assert [message.source for message in result.messages] == ["user", "reader", "judge", "reporter", "reader"]


async def test_the_readme_and_the_help_have_a_sentence_that_starts_sub_agents(agx_session):
    sentence = "start a sub-agent that lists the files and then start a sub-agent that counts to 3"
    assert f'"{sentence}"' in " ".join(README.read_text().split())
    assert sentence in (await collect(AgentRuntime(DEMO).run_turn("help", agx_session)))[-1].data["text"]
    manager = AgentTeamManager(AgentRuntime(DEMO), session=agx_session)
    events = await collect(AgentRuntime(DEMO).run_turn(sentence.capitalize(), agx_session, tools=manager.meta_tools()))
    await manager.aclose()
    started = [arguments for name, arguments in calls(events) if name == "spawn_subagent"]
    assert started == [{"task": "list the files"}, {"task": "count to 3"}]


async def test_it_starts_sub_agents_and_waits_for_them(agx_session):
    runtime = AgentRuntime(DEMO)
    manager = AgentTeamManager(runtime, session=agx_session)
    words = "start a sub-agent that counts to 3 and then start a sub-agent to say hello"
    events = await collect(runtime.run_turn(words, agx_session, tools=manager.meta_tools()))
    await manager.aclose()
    assert [call for call in calls(events) if call[0].endswith(("subagent", "subagents"))] == [
        ("spawn_subagent", {"task": "count to 3"}),
        ("spawn_subagent", {"task": "say hello"}),
        ("wait_subagents", {}),
    ]
    text = events[-1].data["text"]
    assert "[sub-agent agent-1 completed]\n1 2 3" in text
    assert "[sub-agent agent-2 completed]\nhello" in text

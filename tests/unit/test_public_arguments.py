"""Wrong arguments, each refused with a `TypeError` that names it and what is taken."""

# pyright: reportCallIssue=false, reportArgumentType=false

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
from pydantic import ValidationError

from agenticx import (
    Agent,
    AgentRuntime,
    AsyncConfirmGate,
    AutoApproveConfirmGate,
    Block,
    ConfirmAnswer,
    QuestionAnswer,
    Sampling,
    Session,
    SyncConfirmGate,
    UserMessage,
    load_attachment,
    open_hub,
    resolve_model,
    tool,
)
from agenticx.core import AgentExecutor, Result, Task
from agenticx.errors import SettingsError
from agenticx.llms import resolve_wire
from agenticx.settings import load_settings
from agenticx.teams import (
    AgentId,
    AgentTeamManager,
    AssistantAgent,
    Handoff,
    MaxMessageTermination,
    RoundRobinGroupChat,
    SelectorGroupChat,
    SubagentLimits,
    Swarm,
    TextMessage,
    UserProxyAgent,
)
from agenticx.testing import ScriptedGate, ScriptedModel, call, fail, say, stall_after, think
from studio import create_app

pytestmark = pytest.mark.anyio


def runtime(**arguments: Any) -> AgentRuntime:
    return AgentRuntime("demo", AutoApproveConfirmGate(), **{"settings": load_settings(), **arguments})


def made_tool(**options: Any) -> object:
    return tool(**options)(open)


def manager(**arguments: Any) -> AgentTeamManager:
    given: dict[str, Any] = {"runtime_for": runtime(), "session": Session(), "settings": load_settings()}
    return AgentTeamManager(**{**given, **arguments})


CONSTRUCTED: list[tuple[Callable[..., object], dict[str, Any], str]] = [
    (runtime, {"tools": 5}, "tools must be a list of tools and functions, not int"),
    (runtime, {"tools": "ls"}, "tools must be a list of tools and functions, not str"),
    (runtime, {"tools": {}}, "tools must be a list of tools and functions, not dict"),
    (runtime, {"settings": 5}, "settings must be Settings, as load_settings returns them, not int"),
    (runtime, {"settings": {}}, "settings must be Settings, as load_settings returns them, not dict"),
    (runtime, {"system_prompt": 5}, "system_prompt must be a str, not int"),
    (runtime, {"max_tool_rounds": "3"}, "max_tool_rounds must be an int, not str"),
    (runtime, {"max_tool_rounds": True}, "max_tool_rounds must be an int, not bool"),
    (runtime, {"loop_warning_threshold": "3"}, "loop_warning_threshold must be an int, not str"),
    (runtime, {"loop_critical_threshold": 4.5}, "loop_critical_threshold must be an int, not float"),
    (runtime, {"compactor": 5}, "compactor must be a ContextCompactor, not int"),
    (runtime, {"hooks": 5}, "hooks must be a HookRegistry or a list of hooks, not int"),
    (Session, {"messages": "x"}, "messages must be a list of messages of agenticx.messages or dict rows, not str"),
    (Session, {"messages": {}}, "messages must be a list of messages of agenticx.messages or dict rows, not dict"),
    (Session, {"messages": iter([])}, "messages must be a list of messages of agenticx.messages or dict rows, not"),
    (
        Session,
        {"messages": [{"role": "user"}]},
        "messages[0]: the row with role 'user' has no content; content must be",
    ),
    (
        Session,
        {"messages": [{"role": "user", "content": None}]},
        "messages[0]: the row with role 'user' has no content",
    ),
    (Session, {"messages": [{"role": "system"}]}, "messages[0]: the row with role 'system' has no content"),
    (Session, {"messages": [{"role": "assistant"}]}, "messages[0]: the row with role 'assistant' has no content"),
    (Session, {"id": 5}, "id must be a str, not int"),
    (Session, {"workspace": 5}, "workspace must be a str or a Path, not int"),
    (Session, {"state": {"a": 1}}, "state must be a ToolState, not dict"),
    (resolve_model, {"name": 5}, "the name of a model must be a str, not int"),
    (resolve_model, {"name": "ollama:x", "base_url": 5}, "base_url must be a str, not int"),
    (resolve_model, {"name": "ollama:x", "api_key": b"x"}, "api_key must be a str, not bytes"),
    (resolve_model, {"name": "ollama:x", "settings": 5}, "settings must be Settings"),
    (resolve_model, {"name": "openai:x", "sampling": {}}, "sampling must be a Sampling, not dict"),
    (resolve_wire, {"spec": None}, "the name of a model must be a str, not NoneType"),
    (made_tool, {"name": 5}, "name must be a str, not int"),
    (made_tool, {"description": 5}, "description must be a str, not int"),
    (made_tool, {"timeout": "5"}, "timeout must be a number of seconds, not str"),
    (made_tool, {"timeout": True}, "timeout must be a number of seconds, not bool"),
    (made_tool, {"read_only": 1}, "read_only must be True, False or None, not int"),
    (made_tool, {"idempotent": "yes"}, "idempotent must be True, False or None, not str"),
    (made_tool, {"parallel": "no"}, "parallel must be True, False or None, not str"),
    (made_tool, {"assess": "read"}, "assess must be a function or None, not str"),
    (load_attachment, {"path": 5}, "path must be a str or a Path, not int"),
    (AsyncConfirmGate().resolve, {"request_id": "c", "approved": "yes"}, "approved must be True or False, not str"),
    (AsyncConfirmGate().answer_question, {"question_id": "q", "answer": 5}, "answer must be a str, not int"),
    (Block, {"reason": 5}, "reason must be a str, not int"),
    (AsyncConfirmGate, {"remembered": "x"}, "remembered must be an int, not str"),
    (SyncConfirmGate, {"read_line": "x"}, "read_line must be a function that takes the prompt and returns a line, not"),
    (create_app, {"settings": 5}, "settings must be Settings"),
    (AgentExecutor, {"hooks": 5}, "hooks must be a list of hooks, not int"),
    (AgentExecutor, {"llm_provider": 5}, "5 is not a model: it has none of the methods"),
    (say, {"text": 5}, "text must be a str, not int"),
    (think, {"text": None}, "text must be a str, not NoneType"),
    (call, {"name": 5, "arguments": {}}, "name must be a str, not int"),
    (call, {"name": "ls", "arguments": 5}, "arguments must be a dict, or a str that is sent unchanged, not int"),
    (call, {"name": "ls", "id": 5}, "id must be a str, not int"),
    (fail, {"error": "cut"}, "error must be a ModelError, not str"),
    (stall_after, {"batches": "2"}, "batches must be an int, not str"),
    (ScriptedModel, {"replies": "hello"}, "replies must be a list of replies, each a text, a part or a list of parts,"),
    (ScriptedModel, {"replies": 5}, "replies must be a list of replies, each a text, a part or a list of parts, not"),
    (ScriptedModel, {"replies": ["hi", {}]}, "replies[1] must be a text, a part such as say(…) or call(…), a Model"),
    (
        ScriptedModel,
        {"replies": [["hi", 5]]},
        "replies[0][1] must be a text, a part such as say(…) or call(…)",
    ),
    (lambda answer: ScriptedGate(True, answer), {"answer": 5}, "answers[1] must be True, False, a ConfirmAnswer, a"),
    (create_app, {"tools": 5}, "tools must be a list of tools and functions, not int"),
    (
        manager,
        {"runtime_for": 5},
        "runtime_for must be an Agent, an AgentRuntime or a function that returns one, not int",
    ),
    (manager, {"session": "x"}, "session must be a Session, not str"),
    (manager, {"limits": 5}, "limits must be SubagentLimits, not int"),
    (manager, {"budget": "x"}, "budget must be a Budget, not str"),
    (manager, {"settings": {}}, "settings must be Settings, as load_settings returns them, not dict"),
    (SubagentLimits, {"depth": "3"}, "depth must be an int, not str"),
    (SubagentLimits, {"running": None}, "running must be an int, not NoneType"),
    (SubagentLimits, {"seconds": "3"}, "seconds must be a number of seconds, not str"),
]


@pytest.mark.parametrize(("make", "arguments", "problem"), CONSTRUCTED)
def test_an_argument_of_a_wrong_type_is_named(
    make: Callable[..., object], arguments: dict[str, Any], problem: str
) -> None:
    with pytest.raises(TypeError) as raised:
        make(**arguments)
    assert problem in str(raised.value)


MODEL: Any = ScriptedModel([])
CALLED: list[tuple[Callable[[], object], str]] = [
    (lambda: Agent("demo"), "Agent takes its arguments by name, as in Agent(model='demo')"),
    (lambda: Agent(modle="demo"), "Agent has no argument modle; did you mean model?"),
    (lambda: Agent(system_prompt="x"), "Agent has no argument system_prompt; did you mean instructions?"),
    (lambda: Agent(hooks=[], llm_hooks=[]), "Agent was given hooks and llm_hooks, which are one argument"),
    (lambda: Agent(tools=None), "tools must be a list of tools and functions, not NoneType"),
    (lambda: Task("do it"), "Task takes its arguments by name, as in Task(description='do it')"),
    (lambda: Task(descripton="do it"), "Task has no argument descripton; did you mean description?"),
    (lambda: Task(), "Task needs the argument description"),
    (lambda: Task(description=None), "description must be a str, not NoneType"),
    (lambda: Result("x"), "Result takes its arguments by name, as in Result(value='x')"),
    (lambda: UserMessage("hello"), "UserMessage takes its arguments by name, as in UserMessage(content='hello')"),
    (lambda: TextMessage(content=5), "content must be a str, not int"),
    (lambda: AgentRuntime(), "AgentRuntime needs the argument llm"),
    (lambda: AgentRuntime(model=MODEL), "AgentRuntime has no argument model; did you mean llm?"),
    (lambda: AgentRuntime(MODEL, tool=[]), "AgentRuntime has no argument tool; did you mean tools?"),
    (lambda: AgentRuntime(MODEL, tools=made_tool()), "tools must be a list of tools and functions; write tools=[open]"),
    (lambda: AgentExecutor(model=MODEL), "AgentExecutor has no argument model; did you mean llm_provider?"),
    (lambda: AssistantAgent("a", model=MODEL), "AssistantAgent has no argument model; did you mean model_client?"),
    (lambda: AssistantAgent("a", MODEL, system_message=5), "system_message must be a str, not int"),
    (lambda: RoundRobinGroupChat(), "RoundRobinGroupChat needs the argument participants"),
    (lambda: RoundRobinGroupChat(Agent()), "participants must be a list of agents and teams, not Agent"),
    (
        lambda: Swarm([Agent()], None, 5),
        "Swarm takes participants, termination_condition by position, and its other arguments by name: name, descr",
    ),
    (lambda: SelectorGroupChat([Agent()], MODEL, selector_func=5), "selector_func must be a function of the messages"),
    (lambda: MaxMessageTermination(max_message=5), "MaxMessageTermination has no argument max_message; did you mean"),
    (lambda: Handoff(None), "target must be a str, not NoneType"),
    (lambda: UserProxyAgent("user", 5), "input_func must be a function of the prompt, not int"),
    (lambda: AgentId(5, "key"), "type must be a str or an AgentType, not int"),
    (lambda: AgentTeamManager(MODEL, sesion=None), "AgentTeamManager has no argument sesion; did you mean session?"),
    (lambda: Session(workspce="x"), "Session has no argument workspce; did you mean workspace?"),
    (lambda: Sampling(0.2), "Sampling takes its arguments by name: temperature, "),
    (lambda: ConfirmAnswer(True), "ConfirmAnswer takes its arguments by name, as in ConfirmAnswer(approved=True)"),
    (lambda: ConfirmAnswer(approve=True), "ConfirmAnswer has no argument approve; did you mean approved?"),
    (lambda: AsyncConfirmGate(timeout=5), "AsyncConfirmGate has no argument timeout; its arguments: remembered"),
    (lambda: tool(rsk="read"), "tool has no argument rsk; did you mean risk?"),
    (
        lambda: Agent(model="demo").run_sync("hello", sesion=None),
        "Agent.run_sync has no argument sesion; did you mean",
    ),
    (lambda: asyncio.run(Agent(model="demo").run("x", 5)), "Agent.run takes user_input by position, and its other arg"),
    (lambda: Agent(model="demo").stream(), "Agent.stream needs the argument user_input"),
    (lambda: AgentExecutor(MODEL).run("do it"), "agent must be an Agent, given here or with the task, not str"),
    (
        lambda: AgentExecutor(MODEL).run(Agent(), "x", max_turn=5),
        "AgentExecutor.arun has no argument max_turn; did",
    ),
    (
        lambda: asyncio.run(RoundRobinGroupChat([Agent(name="a")]).run("do it")),
        "RoundRobinGroupChat.run takes its arguments by name, as in RoundRobinGroupChat.run(task='do it')",
    ),
    (lambda: open_hub(modle="demo"), "open_hub has no argument modle; did you mean model?"),
    (lambda: resolve_model("openai:x", key="x"), "resolve_model has no argument key; did you mean api_key?"),
]


@pytest.mark.parametrize(("wrong_call", "problem"), CALLED)
def test_a_wrong_call_says_what_would_be_right(wrong_call: Callable[[], object], problem: str) -> None:
    with pytest.raises(TypeError) as raised:
        wrong_call()
    assert str(raised.value).startswith(problem)


def test_an_error_inside_of_a_constructor_and_of_a_validated_dict_is_as_it_was() -> None:
    class Team(RoundRobinGroupChat):
        def __init__(self) -> None:
            super().__init__([Agent()], max_turns=len(5))  # type: ignore[arg-type]

    with pytest.raises(TypeError, match=r"object of type 'int' has no len\(\)"):
        Team()
    with pytest.raises(ValidationError, match="Extra inputs are not permitted"):
        Task.model_validate({"description": "x", "agnt": None})


@pytest.mark.parametrize("seconds", [-1, 0, float("nan"), float("inf")])
def test_a_time_out_that_never_or_always_fires_is_refused_when_the_tool_is_made(seconds: float) -> None:
    with pytest.raises(ValueError, match=f"timeout must be a positive number of seconds, not {seconds}"):
        made_tool(timeout=seconds)


def test_a_text_that_is_no_answer_of_a_gate_is_refused_when_the_gate_is_made() -> None:
    with pytest.raises(ValueError, match=r"answers\[0\] must be True, .*, \"silent\" or an exception, not 'yes'"):
        ScriptedGate(cast("Any", "yes"))


def test_an_empty_name_of_a_tool_is_refused() -> None:
    with pytest.raises(ValueError, match="'' cannot be a tool's name"):
        made_tool(name="")


def test_an_unknown_risk_is_refused_when_the_tool_is_made() -> None:
    with pytest.raises(ValueError, match="risk must be one of read, write, execute, not 'none'"):
        made_tool(risk="none")


@pytest.mark.parametrize(
    ("argument", "problem"),
    [
        ({"should_stop": 5}, "should_stop must be a StopSignal or a function, not int"),
        ({"agent_id": 5}, "agent_id must be a str, not int"),
        ({"tools": 5}, "tools must be a list of tools and functions, not int"),
        ({"system_prompt": 5}, "system_prompt must be a str, not int"),
        ({"context": {}}, "context must be a TurnContext, not dict"),
        ({"sampling": {"seed": 1}}, "sampling must be a Sampling, not dict"),
        ({"output_type": ""}, "output_type must be a type, such as a BaseModel class, not str"),
        ({"output_type": "\0"}, "output_type must be a type, such as a BaseModel class, not str"),
    ],
)
async def test_an_argument_of_a_turn_is_named_before_the_turn_begins(argument: dict[str, Any], problem: str) -> None:
    session, runs = Session(), runtime()
    with pytest.raises(TypeError) as raised:
        await anext(runs.run_turn("hi", session, **argument))
    assert problem in str(raised.value)
    assert (await runs.run("say hello", session)).reason == "answer"  # the session is free


@pytest.mark.parametrize(
    ("argument", "problem"),
    [
        ({"url": 5}, "url must be a str such as 'sqlite:///chat.db', not int"),
        ({"url": Path("chat.db")}, "url must be a str such as 'sqlite:///chat.db', not PosixPath"),
        ({"tools": 5}, "tools must be a list of tools and functions, not int"),
        ({"workspace": 5}, "workspace must be a str or a Path, not int"),
        ({"settings": 5}, "settings must be Settings, as load_settings returns them, not int"),
    ],
)
async def test_an_argument_of_open_hub_is_named(argument: dict[str, Any], problem: str) -> None:
    with pytest.raises(TypeError) as raised:
        async with open_hub(**{"url": "memory://", **argument}):
            pass
    assert problem in str(raised.value)


@pytest.mark.parametrize(
    ("argument", "problem"),
    [
        ({"model": ""}, "model '' is not provider:name, as in "),
        ({"workspace": "/none/such"}, "the workspace '/none/such' is not a folder"),
        ({"workspace": __file__}, f"the workspace {__file__!r} is not a folder"),
        ({"workspace": "~nobody-here/x"}, "~nobody-here/x' is not a folder"),
    ],
)
async def test_a_model_or_workspace_that_cannot_be_used_is_refused_when_the_hub_is_opened(
    argument: dict[str, Any], problem: str
) -> None:
    with pytest.raises(SettingsError) as raised:
        async with open_hub("memory://", settings=load_settings(), **argument):
            pass
    assert problem in str(raised.value)


async def test_a_session_without_a_folder_is_refused_before_its_run(tmp_path: Path) -> None:
    session = Session(workspace=tmp_path / "none")
    for run in (
        lambda: Agent(model="demo").run("say hi", session=session),
        lambda: runtime().run("say hi", session=session),
    ):
        with pytest.raises(SettingsError, match=r"the workspace of the session, '.*none', is not a folder"):
            await run()
    assert session.messages == []


async def test_the_arguments_of_the_methods_of_a_hub_are_named(tmp_path: Path) -> None:
    settings = load_settings({"home": tmp_path}, environ={})
    async with open_hub("memory://", model="demo", settings=settings) as opened:
        hub: Any = opened
        session = await hub.create(name="Named")
        doubtful, unclear = ConfirmAnswer(approved=cast("Any", "yes")), QuestionAnswer(answer=cast("Any", True))
        an_id = "session_id must be the id of a session, which is a str, not "
        calls: list[tuple[Callable[[], Any], str]] = [
            (lambda: anext(hub.follow(session)), an_id + "SessionRecord"),
            (lambda: anext(hub.run_turn(session, "hi")), an_id + "SessionRecord"),
            (lambda: anext(hub.run_turn(session.id, "hi", client_turn_id=5)), "client_turn_id must be a str, not int"),
            (lambda: hub.submit(session.id, "hi"), "request must be a TurnRequest, not str"),
            (lambda: hub.create(workspace=5), "workspace must be a str or a Path, not int"),
            (lambda: hub.messages(5), an_id + "int"),
            (lambda: hub.stop(5), an_id + "int"),
            (lambda: hub.change(session.id, ["name"]), "changes must be a dict of the fields to change, not list"),
            (lambda: hub.open_requests(5), an_id + "int"),
            (
                lambda: hub.answer("cnf_1", True, digest="d"),
                "answer must be a ConfirmAnswer or a QuestionAnswer",
            ),
            (lambda: hub.answer("cnf_1", doubtful, digest="d"), "an answer whose approved is str; it must be True or"),
            (lambda: hub.answer("qst_1", unclear), "an answer whose answer is bool; it must be a text"),
        ]
        for operation, problem in calls:
            with pytest.raises(TypeError) as raised:
                await operation()
            assert problem in str(raised.value)
        with pytest.raises(ValueError, match="by must be 'user' or 'policy', not 'timeout'"):
            await hub.answer("cnf_1", ConfirmAnswer(approved=True, by="timeout"), digest="d")
        with pytest.raises(ValueError, match="when_busy must be one of reject, queue, steer, interrupt, not 'later'"):
            await anext(hub.run_turn(session.id, "hi", when_busy="later"))
        with pytest.raises(ValueError, match=r"unknown permission mode \{\}"):
            await hub.create(permission_mode={})
        events = [event async for event in hub.run_turn(session.id, "say hello", sampling=Sampling())]
        assert events[-1].type == "final"


@pytest.mark.parametrize(
    ("call_of", "problem"),
    [
        (lambda team: team.spawn(5), "task must be a str, not int"),
        (lambda team: team.spawn("x", name=5), "name must be a str, not int"),
        (lambda team: team.spawn("x", tools="abc"), "tools must be a list of names of tools, not str"),
        (lambda team: team.spawn("x", tools=[5]), "tools[0] must be a str, not int"),
        (lambda team: team.spawn("x", model=5), "model must be a str, not int"),
        (lambda team: team.spawn("x", budget=5), "budget must be a Budget, not int"),
        (lambda team: team.spawn("x", context=5), "context must be a str, not int"),
        (lambda team: team.message("a-1", 5), "text must be a str, not int"),
    ],
)
async def test_the_arguments_of_a_manager_of_subagents_are_named(call_of: Callable[[Any], Any], problem: str) -> None:
    team = manager()
    with pytest.raises(TypeError) as raised:
        await call_of(team)
    assert problem in str(raised.value)
    assert team.list() == []

"""One rule for asking in every way to run: with a gate, at the terminal, with nobody to ask."""

from __future__ import annotations

import io
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from agenticx import AgentRuntime, AutoApproveConfirmGate, ConfirmAnswer, Session, builtin_tools, open_hub
from agenticx.core import Agent, AgentExecutor, Task
from agenticx.runtime import ConfirmGate
from agenticx.sessions import MemoryStore
from agenticx.settings import load_settings
from agenticx.teams import AgentTeamManager, AssistantAgent, RoundRobinGroupChat
from agenticx.testing import ScriptedGate, ScriptedModel, call, collect
from agenticx.tools import Assessment, ToolContext, as_tool, tool
from tests.support.verdicts import decide

pytestmark = pytest.mark.anyio


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


ran: list[str] = []


@tool(risk="read")
def look() -> str:
    """Look."""
    ran.append("look")
    return "done"


@tool(risk="write")
def change() -> str:
    """Change."""
    ran.append("change")
    return "done"


@tool(risk="execute")
def execute() -> str:
    """Execute."""
    ran.append("execute")
    return "done"


@tool
def decorated() -> str:
    """Do anything."""
    ran.append("decorated")
    return "done"


def bare() -> str:
    """Do anything."""
    ran.append("bare")
    return "done"


TOOLS = (look, change, execute, decorated, bare)
NAMES = ["look", "change", "execute", "decorated", "bare"]

# --- the ways to run --------------------------------------------------------------------------------------------------

Way = Callable[[ScriptedModel, Sequence[Any], "ConfirmGate | None", Session], Awaitable[Any]]


async def in_runtime(model: ScriptedModel, tools: Sequence[Any], gate: ConfirmGate | None, session: Session) -> None:
    await collect(AgentRuntime(model, gate, tools=tools).run_turn("Go", session))


async def in_executor(model: ScriptedModel, tools: Sequence[Any], gate: ConfirmGate | None, session: Session) -> None:
    executor = AgentExecutor(model, confirm_gate=gate, session=session)
    await executor.arun(Agent(tools=tools), Task(description="Go"))


async def in_chat(model: ScriptedModel, tools: Sequence[Any], gate: ConfirmGate | None, session: Session) -> None:
    await AgentExecutor(model, confirm_gate=gate).achat(Agent(tools=tools), [{"role": "user", "content": "Go"}])


# In memory alone: what asks is the same code over any store, and tests/unit/sessions/test_confirms.py has the stores.
async def in_stored_run(model: ScriptedModel, tools: Sequence[Any], gate: ConfirmGate | None, session: Session) -> None:
    folder = session.workspace
    overrides = {"home": folder / "home", "workspace_root": folder, "permission_mode": session.permission_mode}
    executor = AgentExecutor(
        model, confirm_gate=gate, store=MemoryStore(), settings=load_settings(overrides, environ={})
    )
    await executor.arun(Agent(tools=tools), Task(description="Go"))
    await executor.aclose()


async def in_assistant_agent(
    model: ScriptedModel, tools: Sequence[Any], gate: ConfirmGate | None, session: Session
) -> None:
    await AssistantAgent("helper", model, tools=tools, confirm_gate=gate).run(task="Go")


async def in_team(model: ScriptedModel, tools: Sequence[Any], gate: ConfirmGate | None, session: Session) -> None:
    agent = AssistantAgent("helper", model, tools=tools)
    await RoundRobinGroupChat([agent], max_turns=1, confirm_gate=gate).run(task="Go")


async def in_team_with_session(
    model: ScriptedModel, tools: Sequence[Any], gate: ConfirmGate | None, session: Session
) -> None:
    agent = AssistantAgent("helper", model, tools=tools)
    await RoundRobinGroupChat([agent], max_turns=1, confirm_gate=gate, session=session).run(task="Go")


async def in_executor_in_a_tool(
    model: ScriptedModel, tools: Sequence[Any], gate: ConfirmGate | None, session: Session
) -> None:
    @tool(risk="read")
    async def delegate() -> str:
        """Delegate."""
        return (await AgentExecutor(model).arun(Agent(tools=tools), Task(description="Go"))).result

    outer = AgentRuntime(ScriptedModel([call("delegate"), "Done."]), gate, tools=[delegate])
    await collect(outer.run_turn("Go", session))


async def in_subagent(model: ScriptedModel, tools: Sequence[Any], gate: ConfirmGate | None, session: Session) -> None:
    manager = AgentTeamManager(AgentRuntime(model), session=session)
    outer = ScriptedModel([call("spawn_subagent", {"task": "Go"}), call("wait_subagents"), "Done."])
    runtime = AgentRuntime(outer, gate, tools=[*tools, *manager.meta_tools()])
    await collect(runtime.run_turn("Go", session))


WAYS = [
    in_runtime,
    in_executor,
    in_chat,
    in_stored_run,
    in_assistant_agent,
    in_team,
    in_team_with_session,
    in_executor_in_a_tool,
    in_subagent,
]


async def run(way: Way, gate: ConfirmGate | None, folder: Path) -> list[str]:
    """Return the results of a call of each tool."""
    ran.clear()
    model = ScriptedModel([[call(name) for name in NAMES], "Done."])
    await way(model, TOOLS, gate, Session(workspace=folder))
    return [message.content for message in model.requests[-1].messages if message.role == "tool"]


@pytest.fixture(params=WAYS, ids=lambda way: way.__name__)
def way(request: pytest.FixtureRequest) -> Way:
    return request.param


# --- without a gate ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stdin", [io.StringIO("y\n" * 5), None], ids=["a pipe", "none"])
async def test_with_nobody_to_ask_a_declared_risk_is_denied_with_how_to_allow_it(
    way: Way, stdin: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", stdin)
    results = await run(way, None, tmp_path)
    assert ran == ["look", "decorated", "bare"]
    denied = (
        "Denied by policy. Reason: Nobody can be asked: the application gave no confirm gate, and there is no terminal."
        " To allow such calls, it can pass confirm_gate=AutoApproveConfirmGate(), or a gate of its own."
    )
    assert results == ["done", denied, denied, "done", "done"]


async def test_at_the_terminal_a_declared_risk_is_asked_about(
    way: Way, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", Terminal("y\nn\n"))
    results = await run(way, None, tmp_path)
    assert ran == ["look", "change", "decorated", "bare"]
    assert results == ["done", "done", "Denied by the user.", "done", "done"]
    assert capsys.readouterr().err.count("Allow this? [y/N]") == 2


def test_a_tool_of_undeclared_risk_is_never_taken_for_one_that_reads() -> None:
    for made in (decorated, as_tool(bare)):
        assessment = made.assess({}, ToolContext(workspace=Path()))
        assert (assessment.risk, assessment.undeclared) == ("execute", True)
        assert (made.read_only, made.parallel, made.idempotent) == (False, False, False)
        for mode in ("default", "accept_edits"):
            assert [decide(mode, assessment, has_gate=given).decision for given in (True, False)] == ["ask", "allow"]
        assert decide("plan", assessment, has_gate=False).decision == "deny"


# --- with a gate ------------------------------------------------------------------------------------------------------


async def test_a_gate_is_asked_about_all_that_is_not_declared_to_read(way: Way, tmp_path: Path) -> None:
    with ScriptedGate(True, False, True, False) as gate:
        results = await run(way, gate, tmp_path)
    assert ran == ["look", "change", "decorated"]
    assert [request.context["tool"] for request in gate.requests] == ["change", "execute", "decorated", "bare"]
    assert results == ["done", "done", "Denied by the user.", "done", "Denied by the user."]


async def test_a_hub_keeps_the_question_until_it_is_answered(tmp_path: Path) -> None:
    ran.clear()
    settings = load_settings({"home": tmp_path / "home", "workspace_root": tmp_path}, environ={})
    model, asked = ScriptedModel([[call("look"), call("bare")], "Done."]), list[str]()
    async with open_hub("memory://", model=model, tools=TOOLS, settings=settings) as hub:
        session = await hub.create()
        async for event in hub.run_turn(session.id, "Go"):
            if event.type == "confirm_required":
                asked += [event.data["context"]["tool"], *ran]
                await hub.answer(event.data["id"], ConfirmAnswer(approved=True), digest=event.data["digest"])
    assert (asked, ran) == (["bare", "look"], ["look", "bare"])


# --- protected paths --------------------------------------------------------------------------------------------------

HOOK = ".git/hooks/post-commit"


@pytest.mark.promise("H3")
@pytest.mark.parametrize("gate", [None, AutoApproveConfirmGate()], ids=["nobody", "approves all"])
async def test_a_protected_path_is_asked_about_in_mode_auto_in_every_way_to_run(
    way: Way, gate: ConfirmGate | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.stdin", io.StringIO())
    (tmp_path / ".git/hooks").mkdir(parents=True)
    model = ScriptedModel([call("file_write", {"path": HOOK, "content": "x"}), "Done."])
    await way(model, builtin_tools(), gate, Session(workspace=tmp_path, permission_mode="auto"))
    assert (tmp_path / HOOK).exists() is (gate is not None)


@pytest.mark.promise("H3")
async def test_a_tool_of_the_application_that_names_a_protected_path_asks_in_mode_auto(tmp_path: Path) -> None:
    @tool(risk="write", assess=lambda arguments, context: Assessment(risk="write", paths=(arguments["path"],)))
    def put(path: str) -> str:
        """Put something into a file."""
        return "put"

    model = ScriptedModel([[call("put", {"path": "a.txt"}), call("put", {"path": HOOK})], "Done."])
    session = Session(workspace=tmp_path, permission_mode="auto")
    with ScriptedGate(False) as gate:
        await collect(AgentRuntime(model, gate, tools=[put]).run_turn("Go", session))
    (request,) = gate.requests
    assert (request.arguments, request.decided_by) == ({"path": HOOK}, "protected")


async def test_the_questions_that_a_gate_answers_by_policy_are_in_the_log(tmp_path: Path) -> None:
    model = ScriptedModel([call("file_write", {"path": ".bashrc", "content": "x"}), "Done."])
    runtime = AgentRuntime(model, AutoApproveConfirmGate(), tools=builtin_tools())
    session = Session(workspace=tmp_path, permission_mode="auto")
    events = await collect(runtime.run_turn("Go", session))
    required, response = (event for event in events if event.type in ("confirm_required", "confirm_response"))
    assert "Such a call is asked about in every mode." in required.data["context"]["reasons"]
    assert response.data == {"id": required.data["id"], "approved": True, "by": "policy"}
    assert (tmp_path / ".bashrc").read_text() == "x"

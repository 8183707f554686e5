"""The question before a model sends text to another provider, by a sub-agent whose model is there."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from agenticx.errors import SettingsError
from agenticx.llms import ScriptedModel
from agenticx.permissions import PermissionMode
from agenticx.runtime import AgentRuntime, RuntimeEvent, Session
from agenticx.sessions import Store, TurnRequest
from agenticx.settings import load_settings
from agenticx.teams import AgentTeamManager
from agenticx.testing import ScriptedGate, call, collect
from tests.support.teams.subagent_sessions import SubagentSession

pytestmark = [pytest.mark.anyio, pytest.mark.promise("I1")]

OpenStore = Callable[[], Store]
WAIT = call("wait_subagents")


def spawn(model: str | None) -> Any:
    return call("spawn_subagent", {"task": "The plan.", "model": model})


async def run(
    folder: Path,
    models: Mapping[str | None, ScriptedModel],
    gate: ScriptedGate,
    *,
    mode: PermissionMode = "default",
) -> Sequence[tuple[str, str]]:
    """Run the script of the model None and return the outcome of each of its calls."""
    settings = load_settings({}, environ={"AGX_HOME": str(folder)})
    session = Session(workspace=folder, permission_mode=mode)

    def runtime_for(name: str | None) -> AgentRuntime:
        if name not in models:
            raise SettingsError(f"unknown model {name!r}")
        return AgentRuntime(models[name], gate, settings=settings)

    manager = AgentTeamManager(runtime_for, session=session, settings=settings)
    with gate:
        events: list[RuntimeEvent] = await collect(
            runtime_for(None).run_turn("go", session, tools=manager.meta_tools())
        )
        await manager.aclose()
    return [(e.data["name"], e.data["outcome"]) for e in events if e.type == "tool_result" and e.agent_id == "meta"]


@pytest.mark.parametrize(
    ("main", "other", "asks"),
    [
        ("openai:gpt-5", "deepseek:deepseek-chat", True),
        ("ollama:llama3", "openai:gpt-5", True),
        ("openai:gpt-5", "ollama:llama3", True),
        ("demo", "deepseek:deepseek-chat", True),
        ("openai:gpt-5", "openai:gpt-5-mini", False),
        ("openai:gpt-5", "openai-chat:gpt-4o", False),  # two wires of one provider
        ("scripted", "scripted", False),
    ],
)
async def test_a_model_of_another_provider_is_asked_about(tmp_path: Path, main: str, other: str, asks: bool) -> None:
    models = {None: ScriptedModel([spawn(other), "ok"], name=main), other: ScriptedModel([], name=other)}
    if not asks:
        models = {
            None: ScriptedModel([spawn(other), WAIT, "ok"], name=main),
            other: ScriptedModel(["Done."], name=other),
        }
    gate = ScriptedGate(*([False] if asks else []))
    outcomes = await run(tmp_path, models, gate)
    assert outcomes[0] == ("spawn_subagent", "denied" if asks else "ok")
    assert len(models[other].requests) == (0 if asks else 1)


@pytest.mark.parametrize("mode", ["default", "accept_edits", "plan", "auto"])
async def test_the_question_names_both_providers_and_what_is_sent_in_every_mode(
    tmp_path: Path, mode: PermissionMode
) -> None:
    name = "deepseek:deepseek-chat"
    models = {
        None: ScriptedModel([spawn(name), WAIT, "ok"], name="openai:gpt-5"),
        name: ScriptedModel(["Done."], name=name),
    }
    gate = ScriptedGate(True)
    assert (await run(tmp_path, models, gate, mode=mode))[0] == ("spawn_subagent", "ok")
    (asked,) = gate.requests
    assert asked.question == "Send text to deepseek, another provider than openai?"
    assert asked.context["arguments"]["task"] == "The plan."
    assert asked.context["reasons"] == [
        "The sub-agent's model is deepseek:deepseek-chat of deepseek, the session's openai:gpt-5 of openai. The task, "
        "and all that the sub-agent reads and does, is sent to deepseek.",
        "Text goes to another provider, which is asked about in every mode.",
    ]


async def test_further_text_for_a_sub_agent_of_another_provider_is_asked_about(tmp_path: Path) -> None:
    name = "deepseek:deepseek-chat"
    retry = call("retry_subagent", {"agent_id": "agent-1"})
    message = call("message_subagent", {"agent_id": "agent-1", "text": "More."})
    main = [spawn(name), WAIT, retry, message, "ok"]
    models = {None: ScriptedModel(main, name="openai:gpt-5"), name: ScriptedModel(["Done."], name=name)}
    gate = ScriptedGate(True, False, False)
    outcomes = await run(tmp_path, models, gate)
    assert outcomes[2:] == [("retry_subagent", "denied"), ("message_subagent", "denied")]
    assert len(models[name].requests) == 1
    assert [request.context["reasons"][1] for request in gate.requests[1:]] == ["Its task is: The plan."] * 2


async def test_a_sub_agent_that_gives_work_to_its_own_provider_does_not_ask(tmp_path: Path) -> None:
    name = "deepseek:deepseek-chat"
    models = {
        None: ScriptedModel([spawn(name), WAIT, "ok"], name="openai:gpt-5"),
        name: ScriptedModel([spawn(name), WAIT, "Inner.", "Outer."], name=name),
    }
    outcomes = await run(tmp_path, models, ScriptedGate(True))
    assert [outcome for _, outcome in outcomes] == ["ok", "ok"]


async def test_an_unknown_model_or_sub_agent_is_refused_without_a_question(tmp_path: Path) -> None:
    script = [spawn("nobody:x"), call("retry_subagent", {"agent_id": "gone-1"}), "ok"]
    outcomes = await run(tmp_path, {None: ScriptedModel(script, name="openai:gpt-5")}, ScriptedGate())
    assert outcomes == [("spawn_subagent", "invalid_arguments"), ("retry_subagent", "error")]


async def test_in_a_hub_the_names_of_models_count_as_well_as_their_own(tmp_path: Path, open_store: OpenStore) -> None:
    session = SubagentSession(tmp_path, open_store)
    hub = session.new_hub([spawn("deepseek:x"), "Later."], {"deepseek:x": ["never"]})
    await session.store.create(session.record)
    try:
        await hub.recover()
        turn = await hub.start(session.id, TurnRequest(input="go"))
        asked = await session.wait_for_event("confirm_required", "meta")
        assert asked["data"]["question"] == "Send text to deepseek, another provider than scripted?"
        await hub.stop(session.id)
        await session.wait_for(lambda one: one["turn_id"] == turn.id and one["type"] == "error")
    finally:
        await hub.close()
        await session.store.aclose()

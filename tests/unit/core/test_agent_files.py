"""Agents of files: what is wrong with one, and the sessions that are made with it."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from agenticx import open_hub
from agenticx.clocks import SystemClock, rfc3339
from agenticx.core import Agent
from agenticx.core.agent_files import AgentFiles
from agenticx.errors import AgentConfigError, UnknownAgent
from agenticx.llms import ScriptedModel
from agenticx.sessions import fork
from agenticx.settings import load_settings

pytestmark = pytest.mark.anyio

BRIEF = """
description = "Answers briefly."
model = "demo"
tools = ["file_read", "teleport"]
system_prompt = "Be brief in {workspace}."
"""


def write(home: Path, text: str = BRIEF, name: str = "brief") -> AgentFiles:
    (home / "agents").mkdir(parents=True, exist_ok=True)
    (home / "agents" / f"{name}.toml").write_text(text, encoding="utf-8")
    return AgentFiles(home)


def test_the_packaged_agents_can_be_used_and_a_file_of_the_user_hides_one(tmp_path: Path) -> None:
    packaged = AgentFiles(tmp_path / "nothing").list_all()
    assert [(agent.name, agent.origin, agent.problem) for agent in packaged] == [("page-builder", "packaged", None)]
    own = write(tmp_path, name="page-builder").list_all()
    assert [(agent.name, agent.origin) for agent in own] == [("page-builder", "user")]


def test_an_unknown_agent_is_refused_with_the_known_names(tmp_path: Path) -> None:
    with pytest.raises(UnknownAgent, match="unknown agent 'nope'; known agents: brief, page-builder"):
        write(tmp_path).read("nope")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("system_prompt = ", "is not TOML"),
        ("", "system_prompt is missing"),
        ('system_prompt = ""', "system_prompt has 0 bytes; right would be 1 to 65,536"),
        (
            'system_prompt = "a"\nmodle = "demo"',
            "the file has the unknown key 'modle'; known keys: desc",
        ),
        ('system_prompt = "a"\ntools = "file_read"', "tools is 'file_read': input should be a valid list"),
        ('system_prompt = "a"\ntools = ["list_files", "list_files"]', "tools names 'list_files' twice"),
        ('system_prompt = "a"\nmodel = 3', "model is 3: input should be a valid string"),
        (f'system_prompt = "{"a" * 65_537}"', "system_prompt has 65,537 bytes; right would be 1 to"),
    ],
)
def test_a_problem_is_reported_with_its_file_and_place(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(AgentConfigError) as raised:
        write(tmp_path, text).read("brief")
    assert str(raised.value).startswith(str(tmp_path / "agents" / "brief.toml"))
    assert problem in str(raised.value)


async def test_a_session_keeps_what_the_file_said_over_a_restart_an_edit_and_a_fork(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settings = load_settings({"home": tmp_path / "home", "workspace_root": tmp_path}, project=tmp_path)
    write(settings.home)
    url = f"sqlite:///{tmp_path}/chat.db"
    with caplog.at_level(logging.INFO):
        async with open_hub(url, model=ScriptedModel([]), settings=settings) as hub:
            made = await hub.create(agent="brief")
    assert (made.agent, made.agent_file, made.agent_name) == (None, "brief", "brief")
    assert (made.system_prompt, made.model, made.tools) == ("Be brief in {workspace}.", "demo", ("file_read",))
    assert any("teleport" in str(vars(record)) for record in caplog.records)
    write(settings.home, 'system_prompt = "Be long."')
    async with open_hub(url, model=ScriptedModel([]), settings=settings) as hub:
        request = await hub.next_request(made.id)
        forked = await fork(hub.store, made.id, now=rfc3339(SystemClock().now()))
    assert request.system_prompt == f"Be brief in {tmp_path}."
    assert [tool.name for tool in request.tools] == ["file_read"]
    assert (forked.agent_file, forked.system_prompt, forked.tools) == ("brief", made.system_prompt, made.tools)


async def test_a_request_takes_precedence_over_the_file_and_an_agent_of_the_hub_over_both(tmp_path: Path) -> None:
    settings = load_settings({"home": tmp_path / "home", "workspace_root": tmp_path}, project=tmp_path)
    write(settings.home)
    write(settings.home, name="billing")
    agents = [Agent(name="billing", instructions="You do invoices.")]
    async with open_hub("memory://", model=ScriptedModel([]), agents=agents, settings=settings) as hub:
        asked = await hub.create(agent="brief", model=None, tools=["list_files"], system_prompt="Mine.")
        assert (asked.agent_name, asked.system_prompt, asked.tools) == ("brief", "Mine.", ("list_files",))
        own = await hub.create(agent="billing")
        assert (own.agent, own.agent_file, own.system_prompt) == ("billing", None, None)
        handed = await hub.change(asked.id, {"agent": "billing"})
        back = await hub.change(asked.id, {"agent": "brief"})
        assert (handed.agent_name, back.agent, back.agent_name) == ("billing", None, "brief")
        with pytest.raises(UnknownAgent, match="unknown agent 'nobody'; known agents: billing, brief, page-builder"):
            await hub.create(agent="nobody")


async def test_an_agent_whose_model_cannot_be_used_makes_no_session(tmp_path: Path) -> None:
    settings = load_settings({"home": tmp_path / "home", "workspace_root": tmp_path}, project=tmp_path)
    write(settings.home, BRIEF.replace('"demo"', '"nobody:none"'))
    async with open_hub("memory://", model=ScriptedModel([]), settings=settings) as hub:
        with pytest.raises(AgentConfigError, match="agent 'brief': model 'nobody:none' names the unknown provider"):
            await hub.create(agent="brief")
        assert (await hub.create(agent="brief", model="demo")).model == "demo"

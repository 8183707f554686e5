"""The queries of the states of sub-agents in the sessions of one hub."""

from __future__ import annotations

from pathlib import Path

import pytest

from agenticx import open_hub
from agenticx.llms import ScriptedModel
from agenticx.settings import load_settings
from agenticx.subagents import session_tools
from agenticx.testing import call
from agenticx.tools import tool

pytestmark = pytest.mark.anyio


async def test_a_query_of_another_session_allows_no_further_one(tmp_path: Path) -> None:
    @tool(risk="read")
    async def ask_other() -> str:
        """Have another session query its sub-agents."""
        outcomes["b"] = await queried((await hub.create()).id)
        return "asked"

    async def queried(session_id: str) -> list[str]:
        results = [event.data async for event in hub.run_turn(session_id, "go") if event.type == "tool_result"]
        return [result["outcome"] for result in results if result["name"] == "query_subagent_status"]

    query, outcomes = call("query_subagent_status"), dict[str, list[str]]()
    settings = load_settings({"home": tmp_path, "status_query_cooldown_seconds": 3600}, environ={})
    model = ScriptedModel([query, call("ask_other"), query, "b is done", query, "a is done"])
    tools = [*session_tools(), ask_other]
    async with open_hub("memory://", model=model, tools=tools, workspace=tmp_path, settings=settings) as hub:
        outcomes["a"] = await queried((await hub.create()).id)
    assert outcomes == {"b": ["ok"], "a": ["ok", "blocked"]}

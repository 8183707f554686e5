"""The cost of importing AgenticX, and its public names."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

PINNED = Path(__file__).with_name("public_names.json")
PUBLIC = (
    "agenticx",
    "agenticx.core",
    "agenticx.knowledge",
    "agenticx.llms",
    "agenticx.permissions",
    "agenticx.runtime",
    "agenticx.runtime.events",
    "agenticx.runtime.hooks",
    "agenticx.sandbox",
    "agenticx.sessions",
    "agenticx.subagents",
    "agenticx.teams",
    "agenticx.testing",
    "agenticx.tools",
    "agenticx.tools.builtin",
    "studio",
)


def imported_by(statement: str) -> set[str]:
    """Return the modules that are loaded after a statement, in a Python process of its own."""
    program = f"import sys; {statement}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_importing_the_agent_loads_neither_the_engine_nor_asyncio() -> None:
    loaded = imported_by("from agenticx import Agent")
    assert {"agenticx.core.agent", "pydantic"} <= loaded
    engine = {"agenticx.runtime.agent_runtime", "agenticx.messages", "agenticx.settings", "agenticx.logs"}
    assert loaded & {"asyncio", "ssl", *engine} == set()


def test_importing_a_hub_loads_no_team() -> None:
    loaded = imported_by("from agenticx import open_hub")
    assert loaded & {"agenticx.teams.messages", "agenticx.teams.agents", "agenticx.teams.group_chats"} == set()
    assert "agenticx.teams.configured.session_teams" in loaded


@pytest.mark.parametrize(
    "module",
    [
        "agenticx.runtime.agent_runtime",
        "agenticx.core.agent_turn",
        "agenticx.core.context_envelope",
        "agenticx.teams.actors.runtime",
        "agenticx.testing.pytest_plugin",
        "agenticx.cli",
    ],
)
@pytest.mark.cases(quick=2)
def test_importing_an_entry_module_loads_no_large_packages(module: str) -> None:
    heavy = {
        "httpx",
        "starlette",
        "uvicorn",
        "sse_starlette",
        "rich",
        "prompt_toolkit",
        "markdown_it",
        "yaml",
        "structlog",
        "json_repair",
        "sqlite3",
        "hypothesis",
    }
    assert imported_by(f"import {module}") & heavy == set()


@pytest.mark.parametrize(
    "names",
    [
        "agenticx.runtime.agent_runtime: AgentRuntime",
        "agenticx.runtime.events: EventType, RuntimeEvent",
        "agenticx.runtime.compactor: ContextCompactor",
        "agenticx.runtime.loop_detector: LoopDetector",
        "agenticx.runtime.hooks: AgentHook, HookRegistry",
        "agenticx.runtime: ConfirmGate, SyncConfirmGate, AsyncConfirmGate, AutoApproveConfirmGate",
        "agenticx.llms: OpenAIProvider",
        "agenticx.core.agent: Agent",
        "agenticx.core.agent_executor: AgentExecutor",
        "agenticx.core.task: Task",
    ],
)
def test_published_import_paths_exist(names: str) -> None:
    module, _, wanted = names.partition(": ")
    loaded = importlib.import_module(module)
    assert [name for name in wanted.split(", ") if not hasattr(loaded, name)] == []


def test_public_names_match_the_stored_list() -> None:
    """To change the public names on purpose, run `python -m tests.repo.test_imports`, which rewrites the list."""
    assert json.loads(PINNED.read_text(encoding="utf-8")) == public_names()


@pytest.mark.parametrize("module", PUBLIC)
def test_each_public_name_can_be_imported(module: str) -> None:
    loaded = importlib.import_module(module)
    assert [name for name in loaded.__all__ if not hasattr(loaded, name)] == []
    assert not hasattr(loaded, "no_such_name")


def test_all_names_of_the_sessions_can_be_imported_without_the_postgres_extra() -> None:
    loaded = imported_by("sys.modules['asyncpg'] = None; from agenticx.sessions import *; assert SqliteStore")
    assert "agenticx.sessions.store.sqlite.store" in loaded
    from agenticx.sessions import PostgresStore

    assert PostgresStore.__name__ == "PostgresStore"


def public_names() -> dict[str, list[str]]:
    return {module: sorted(importlib.import_module(module).__all__) for module in PUBLIC}


if __name__ == "__main__":
    PINNED.write_text(json.dumps(public_names(), indent=4) + "\n", encoding="utf-8")

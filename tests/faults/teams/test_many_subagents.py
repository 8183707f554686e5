"""A thousand sub-agents over a provider on loopback: each ending is delivered, memory is bounded."""

from __future__ import annotations

import gc
import tracemalloc
from pathlib import Path

import pytest

from agenticx.llms import ChatModel, ScriptedModel, resolve_model
from agenticx.sessions import Hub, SessionRecord, TurnRequest, open_store, read_log_pages
from agenticx.settings import load_settings
from agenticx.subagents import session_tools
from agenticx.testing import FakeOpenAIServer, call, say
from tests.support.lanes import Count

pytestmark = pytest.mark.anyio

AT_ONCE = 50
MEMORY_BYTES = 32 * 2**20
"""The memory that a session with a thousand ended sub-agents may hold more than before they started: about 17 MiB."""


@pytest.mark.ci_lane
async def test_all_subagents_end_within_a_bounded_memory(tmp_path: Path, count: Count) -> None:
    number = count(50, 200, 1_000)
    given = {"home": tmp_path / "home", "subagent_max_children": AT_ONCE, "subagent_max_running": 8}
    whole = {"compaction_threshold_messages": 100_000, "compaction_threshold_chars": 100_000_000}
    settings = load_settings({**given, **whole, "max_tool_rounds": 60}, environ={})
    store = open_store(settings)
    spawning = [call("spawn_subagent", {"task": "Work", "name": "w", "model": "fake"})] * AT_ONCE
    script = [*([[*spawning, call("wait_subagents")]] * (number // AT_ONCE)), "Done."]
    main = ScriptedModel(script, name="openai-chat:main")  # of another provider, each sub-agent would ask
    async with FakeOpenAIServer([say("A result.")] * number) as provider:
        worker = resolve_model("openai-chat:fake-model", base_url=provider.base_url, api_key="k", settings=settings)
        models: dict[str | None, ChatModel] = {None: main, "fake": worker}
        hub = Hub(store, models=models.__getitem__, tools=lambda _: session_tools(), settings=settings)
        await hub.recover()
        record = SessionRecord(name="x", workspace=str(tmp_path), created_at="2026-01-01T00:00:00.000Z")
        await store.create(record)
        gc.collect()
        tracemalloc.start()
        turn = await hub.start(record.id, TurnRequest(input="go"))
        await hub.wait_for_turn(record.id, turn.id)
        gc.collect()
        held, _peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        states = await hub.subagents(record.id)
        await hub.close()
    assert [one["state"] for one in states] == ["completed"] * number
    ends = [event.type async for page in read_log_pages(store.log, record.id) for event in page if event.terminal]
    assert ends == ["final"] * (number + 1)
    loaded = await (await store.ownership.claim(record.id)).load()
    delivered = [fact.key for fact in loaded.subagent_facts if fact.kind == "subagent_delivered"]
    assert len(set(delivered)) == len(delivered) == number
    print(f"{held / 2**20:.1f} MiB are held")
    assert held < MEMORY_BYTES
    await store.aclose()

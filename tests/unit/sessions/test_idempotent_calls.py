"""Calls that had begun when the process died: run again only if their tools are idempotent."""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from agenticx.errors import StoreError
from agenticx.llms import ScriptedModel
from agenticx.runtime import ConfirmAnswer
from agenticx.sessions import Hub, SessionRecord, Store, TurnRequest
from agenticx.settings import load_settings
from agenticx.testing import call, check_grammar
from agenticx.tools import Assessment, FunctionTool, tool
from tests.support.timeouts import PATIENCE
from tests.support.two_hubs import end_lease, end_takeover, hub_over

pytestmark = pytest.mark.anyio


async def envelopes(store: Store, session_id: str, until: str) -> list[dict[str, Any]]:
    """Return the session's log once it has an event of that type."""
    wakeup = asyncio.Event()
    with store.log.subscribe(session_id, wakeup):
        while True:
            wakeup.clear()
            events = [json.loads(event.frame_json) for event in await store.log.read(session_id, 0, 10_000)]
            if any(event["type"] == until for event in events):
                return events
            await asyncio.wait_for(wakeup.wait(), PATIENCE)


def make_hub(store: Any, model: ScriptedModel, tools: list[FunctionTool], folder: Path) -> Hub:
    return hub_over(
        store,
        models=lambda _name: model,
        tools=lambda _record: tools,
        settings=load_settings({"home": folder / "home"}, environ={}),
    )


def make_tools(begun: asyncio.Event, runs: list[str], *, idempotent: bool | None) -> list[FunctionTool]:
    """Return the tools `look` and `ask`.

    Each run of `look` is recorded in `runs`; the first one sets `begun` and hangs. `ask` needs a confirmation.
    """

    @tool(risk="read", idempotent=idempotent)
    async def look(what: str) -> str:
        """Look at something."""
        runs.append(what)
        begun.set()
        if len(runs) == 1:
            await asyncio.Event().wait()
        return f"seen {what}"

    @tool(read_only=True, assess=lambda _arguments, _context: Assessment(risk="execute"))
    def ask() -> str:
        """Look at something that one must ask for."""
        return "asked"

    return [look, ask]


@pytest.mark.parametrize("open_store", ["sqlite"], indirect=True)  # nobody takes the session while it waits
async def test_an_edited_call_that_a_crash_cut_says_with_which_arguments_it_ran(
    tmp_path: Path, open_store: Callable[[], Store]
) -> None:
    begun = asyncio.Event()

    @tool(risk="write")
    async def keep(text: str) -> str:
        """Keep a text."""
        begun.set()
        await asyncio.Event().wait()
        return text

    inner = open_store()
    record = SessionRecord(name="Named", workspace=str(tmp_path), created_at="2026-01-01T00:00:00.000Z")
    await inner.create(record)
    first = make_hub(inner, ScriptedModel([call("keep", {"text": "hi"})]), [keep], tmp_path)
    await first.submit(record.id, TurnRequest(input="go"))
    (asked,) = (
        one for one in await envelopes(inner, record.id, "confirm_required") if one["type"].startswith("confirm")
    )
    edited = ConfirmAnswer(approved=True, arguments={"text": "bye"})
    await first.answer(asked["data"]["id"], edited, digest=asked["data"]["digest"])
    await begun.wait()
    await end_takeover(first)
    await end_lease(inner, record.id)
    second = make_hub(inner, ScriptedModel([]), [keep], tmp_path)
    await second.recover()
    events = await envelopes(inner, record.id, "error")
    check_grammar(events)
    (result,) = (one["data"] for one in events if one["type"] == "tool_result")
    assert result["outcome"] == "unknown"
    assert result["result"].splitlines()[0] == 'The user ran this call with other arguments: {"text": "bye"}'
    await second.close()
    with suppress(StoreError):
        await first.close()
    await inner.aclose()


@pytest.mark.parametrize("idempotent", [True, False, None])
async def test_calls_under_way_beside_a_question_run_again_if_their_tool_is_idempotent(
    tmp_path: Path, open_store: Callable[[], Store], idempotent: bool | None, caplog: pytest.LogCaptureFixture
) -> None:
    begun, runs = asyncio.Event(), list[str]()
    tools = make_tools(begun, runs, idempotent=idempotent)
    inner = open_store()
    record = SessionRecord(name="Named", workspace=str(tmp_path), created_at="2026-01-01T00:00:00.000Z")
    await inner.create(record)

    first = make_hub(inner, ScriptedModel([[call("look", {"what": "it"}), call("ask")]]), tools, tmp_path)
    await first.submit(record.id, TurnRequest(input="go"))
    await begun.wait()
    (asked,) = (
        one for one in await envelopes(inner, record.id, "confirm_required") if one["type"].startswith("confirm")
    )
    await end_takeover(first)
    await end_lease(inner, record.id)
    second = make_hub(inner, ScriptedModel(["Done."]), tools, tmp_path)
    caplog.set_level(logging.INFO, logger="agenticx")
    await second.recover()
    if idempotent is not False:
        yes = ConfirmAnswer(approved=True)
        await second.answer(asked["data"]["id"], yes, digest=asked["data"]["digest"])
    events = await envelopes(inner, record.id, "error" if idempotent is False else "final")
    check_grammar(events)
    results = [(one["data"]["outcome"], one["data"]["name"]) for one in events if one["type"] == "tool_result"]
    if idempotent is False:
        assert (results, runs) == ([("unknown", "look"), ("cancelled", "ask")], ["it"])
        lines = [line for line in caplog.messages if " agent=" not in line]  # not those of the turn that was cut
        assert [re.sub(r" (session|turn)='\w+'|call_id='\w+'", "", line) for line in lines[-4:]] == [
            "confirm tool_name='ask'  approved=False by='restart'",
            "tool_call tool_name='look'  outcome='unknown'",
            "tool_call tool_name='ask'  outcome='cancelled'",
            "turn rounds=1 reason='interrupted' error='The program ended while this turn was running.'",
        ]
    else:
        assert (results, runs) == ([("ok", "look"), ("ok", "ask")], ["it", "it"])
    await second.close()
    with suppress(StoreError):
        await first.close()
    await inner.aclose()

"""A tool round against aimock, an independent fake provider (npm `@copilotkit/aimock`)."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from agenticx.llms import OpenAIChatModel
from agenticx.runtime import AgentRuntime
from agenticx.testing import assert_sequence, check_grammar, collect, outline
from agenticx.tools import tool
from tests.support.timeouts import PATIENCE

pytestmark = pytest.mark.anyio

NODE_FOLDER = Path(__file__).parent.parent / "node"
PROGRAM = NODE_FOLDER / "node_modules" / "@copilotkit" / "aimock" / "dist" / "cli.js"

ADDS_AND_ANSWERS = [
    {"match": {"userMessage": "two and three", "hasToolResult": True}, "response": {"content": "Two and three is 5."}},
    {
        "match": {"userMessage": "two and three"},
        "response": {"toolCalls": [{"name": "add", "arguments": json.dumps({"a": 2, "b": 3})}]},
    },
]


@tool(risk="read")
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@asynccontextmanager
async def aimock(folder: Path, fixtures: list[dict], *options: str) -> AsyncIterator[str]:
    """Run aimock with these fixtures and yield the base URL for an OpenAI client."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("needs node")
    if not PROGRAM.exists():
        pytest.skip(f"needs @copilotkit/aimock: run `npm ci` in {NODE_FOLDER}")
    (folder / "fixtures.json").write_text(json.dumps({"fixtures": fixtures}))
    process = await asyncio.create_subprocess_exec(
        *(node, str(PROGRAM), "--port", "0", "--fixtures", str(folder), *options),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(PATIENCE):
            output = b""
            while not (found := re.search(rb"listening on (http://[\d.:]+)", output)):
                line = await process.stdout.readline()
                assert line, f"aimock ended before it listened: {output.decode()}"
                output += line
        yield f"{found[1].decode()}/v1"
    finally:
        process.kill()
        await process.communicate()


async def test_a_tool_round_with_the_aimock_server(tmp_path, agx_session):
    async with aimock(tmp_path, ADDS_AND_ANSWERS) as base_url:
        model = OpenAIChatModel("gpt-4o", api_key="sk-test", base_url=base_url)
        events = await collect(AgentRuntime(model).run_turn("What is two and three?", agx_session, tools=[add]))
        await model.aclose()
    check_grammar(events)
    assert outline(events, detail=True) == [
        "turn_started",
        "round_start",
        "tool_call_delta",
        "tool_call:add",
        "tool_result:ok",
        "round_start",
        "token",
        "final:answer",
    ]
    assert [event.data["arguments"] for event in events if event.type == "tool_call"] == [{"a": 2, "b": 3}]
    assert [event.data["result"] for event in events if event.type == "tool_result"] == ["5"]
    assert events[-1].data["text"] == "Two and three is 5."


@pytest.mark.parametrize(
    ("fault", "ending"),
    [
        ("--chaos-disconnect", "error:provider.transport"),
        ("--chaos-malformed", "error:provider.bad_reply"),
        ("--chaos-drop", "error:provider.overloaded"),
        ("--chaos-ratelimit", "error:provider.rate_limited"),
    ],
)
async def test_each_injected_fault_ends_the_turn_with_its_error_code(tmp_path, agx_session, fault, ending):
    async with aimock(tmp_path, ADDS_AND_ANSWERS, fault, "1.0") as base_url:
        model = OpenAIChatModel("gpt-4o", api_key="sk-test", base_url=base_url)
        events = await collect(AgentRuntime(model).run_turn("What is two and three?", agx_session, tools=[add]))
        await model.aclose()
    check_grammar(events)
    assert_sequence(events, ["turn_started", "round_start", "...", ending])

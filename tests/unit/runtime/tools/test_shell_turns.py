"""Commands in whole turns: their output is reported however they end."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from agenticx.testing import ScriptedGate, call
from agenticx.tools.builtin import bash_exec
from tests.support.timeouts import PATIENCE

pytestmark = pytest.mark.anyio


async def test_a_command_that_takes_too_long_leaves_its_output(play):
    command = "echo building; echo missing header >&2; sleep 6000"
    script = [call("bash_exec", {"command": command}), "It failed."]
    loop: Any = asyncio.get_running_loop()

    def wait_longer(event):
        if event.type == "tool_progress" and "missing header" in event.data.get("output", ""):
            loop.advance(PATIENCE)

    settings = {"tool_timeout_seconds": PATIENCE}
    run = await play(script, tools=[bash_exec], gate=ScriptedGate(True), settings=settings, on=wait_longer)

    text = "bash_exec did not finish within 120 s and was ended.\nbuilding\nmissing header\n[ended before it was done]"
    assert run.results == [("call_1", "timed_out", text)]


async def test_a_long_output_is_marked_as_truncated(play):
    script = [call("bash_exec", {"command": "seq 1000000"}), "Done."]
    run = await play(script, tools=[bash_exec])

    result = run.events_of("tool_result")[0].data
    assert (result["outcome"], result["truncated"]) == ("ok", True)
    assert "bytes left out" in result["result"]

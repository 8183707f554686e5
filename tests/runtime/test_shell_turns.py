"""Commands in whole turns: what they printed is told whatever ended them."""

from __future__ import annotations

import pytest

from agenticx.testing import ScriptedGate, call
from agenticx.tools.builtin.shell import bash_exec

pytestmark = pytest.mark.anyio


async def test_a_command_that_takes_too_long_leaves_its_output(play):
    command = "echo building; echo missing header >&2; sleep 60"
    script = [call("bash_exec", {"command": command}), "It failed."]
    run = await play(script, tools=[bash_exec], gate=ScriptedGate(True), settings={"tool_timeout_seconds": 1})

    text = "bash_exec did not finish within 1 s and was ended.\nbuilding\nmissing header\n[ended before it was done]"
    assert run.results == [("call_1", "timed_out", text)]


async def test_a_long_output_is_marked_as_truncated(play):
    script = [call("bash_exec", {"command": "seq 1000000"}), "Done."]
    run = await play(script, tools=[bash_exec], gate=ScriptedGate(True))

    result = run.of("tool_result")[0].data
    assert (result["outcome"], result["truncated"]) == ("ok", True)
    assert "bytes left out" in result["result"]

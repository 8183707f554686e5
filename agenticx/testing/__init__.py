"""Tools to test agents offline: scripted models and gates, event sequences, a fake provider.

A pytest plugin (`agenticx.testing.pytest_plugin`) has them as fixtures: scripted models, which fail the test for
replies that were not used, and gates with scripted answers. pytest itself comes with the extra `test`.

An agent is tested with a model that needs no provider; `model=` of a run takes the place of the agent's own:

    from agenticx import Agent, tool
    from agenticx.testing import ScriptedModel, call, outline, say


    @tool(risk="read")
    def add(left: int, right: int) -> int:
        "Add two numbers."
        return left + right


    def test_the_agent_adds():
        model = ScriptedModel([call("add", {"left": 2, "right": 3}), say("Five.")])
        result = Agent(tools=[add]).run_sync("What is 2 + 3?", model=model)
        assert result.output == "Five."
        assert "tool_result" in outline(result.events)

- `ScriptedModel`, a model that replays replies. Their parts: `say`, `think`, `call`, `raw`, `usage`, `finish`; their
  failures: `cut`, `fail`, `hang`, `pause`, `stall_after`. `ScriptExhausted` is raised when there is no further reply.
- `TestModel`, a model without a script: it calls every tool once, with arguments made from its schema, and answers; by
  name it is `model="test"`.
- `ScriptedImages`, an image model that gives scripted images and errors.
- `ScriptedGate`, a gate that replays answers.
- `collect` and `outline` for the events of a turn, `assert_sequence` to compare them with a pattern, as in
  `assert_sequence(events, ["turn_started", "...", ("tool_result", {"outcome": "ok"}), "...", "final|error"])`, and
  `check_grammar` to check their order, which raises `GrammarError`.
- `FakeOpenAIServer`, a provider on this machine, and what it can answer to a `ProviderRequest`: `body`, `as_json`,
  `status`, `silence`, `drip`, `pings`, `huge_line`, `hang_up`, `reset`, `no_streaming`.
- `fault_plans` and `FaultPlan`, which make calls fail one after the other.

The plugin's fixtures, and the order of all events:

    import asyncio

    from agenticx import AgentRuntime, builtin_tools
    from agenticx.testing import call, check_grammar, collect, outline, say


    def test_the_agent_asks_before_it_writes(scripted_model, scripted_gate, agx_session):
        model = scripted_model([call("file_write", {"path": "a.txt", "content": "hi"}), say("Written.")])
        runtime = AgentRuntime(model, scripted_gate(True), tools=builtin_tools())
        asked = ["tool_call_delta", "tool_call", "confirm_required", "confirm_response", "tool_result"]
        events = asyncio.run(collect(runtime.run_turn("Write a.txt", agx_session)))
        check_grammar(events)
        assert outline(events) == ["turn_started", "round_start", *asked, "round_start", "token", "final"]
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agenticx.lazy_imports import lazy_imports

if TYPE_CHECKING:
    from agenticx.llms.images.scripted import ScriptedImages
    from agenticx.llms.scripted import (
        Script,
        ScriptedModel,
        ScriptExhausted,
        call,
        cut,
        fail,
        finish,
        hang,
        pause,
        raw,
        say,
        stall_after,
        think,
        usage,
    )
    from agenticx.llms.tool_caller import TestModel
    from agenticx.testing.fake_openai import FakeOpenAIServer
    from agenticx.testing.faults import FaultPlan, fault_plans
    from agenticx.testing.gates import ScriptedGate
    from agenticx.testing.grammar import GrammarError, check_grammar
    from agenticx.testing.provider_replies import (
        ProviderReply,
        ProviderRequest,
        RawReply,
        as_json,
        body,
        drip,
        hang_up,
        huge_line,
        no_streaming,
        pings,
        reset,
        silence,
        status,
    )
    from agenticx.testing.sequences import assert_sequence, collect, outline

__all__ = [
    "FakeOpenAIServer",
    "FaultPlan",
    "GrammarError",
    "ProviderReply",
    "ProviderRequest",
    "RawReply",
    "Script",
    "ScriptExhausted",
    "ScriptedGate",
    "ScriptedImages",
    "ScriptedModel",
    "TestModel",
    "as_json",
    "assert_sequence",
    "body",
    "call",
    "check_grammar",
    "collect",
    "cut",
    "drip",
    "fail",
    "fault_plans",
    "finish",
    "hang",
    "hang_up",
    "huge_line",
    "no_streaming",
    "outline",
    "pause",
    "pings",
    "raw",
    "reset",
    "say",
    "silence",
    "stall_after",
    "status",
    "think",
    "usage",
]

__getattr__, __dir__ = lazy_imports(
    __name__,
    {
        "agenticx.llms.images.scripted": ["ScriptedImages"],
        "agenticx.llms.scripted": [
            "Script",
            "ScriptExhausted",
            "ScriptedModel",
            "call",
            "cut",
            "fail",
            "finish",
            "hang",
            "pause",
            "raw",
            "say",
            "stall_after",
            "think",
            "usage",
        ],
        "agenticx.llms.tool_caller": ["TestModel"],
        "agenticx.testing.fake_openai": ["FakeOpenAIServer"],
        "agenticx.testing.faults": ["FaultPlan", "fault_plans"],
        "agenticx.testing.gates": ["ScriptedGate"],
        "agenticx.testing.grammar": ["GrammarError", "check_grammar"],
        "agenticx.testing.provider_replies": [
            "ProviderReply",
            "ProviderRequest",
            "RawReply",
            "as_json",
            "body",
            "drip",
            "hang_up",
            "huge_line",
            "no_streaming",
            "pings",
            "reset",
            "silence",
            "status",
        ],
        "agenticx.testing.sequences": ["assert_sequence", "collect", "outline"],
    },
)

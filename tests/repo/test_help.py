"""Questions of a newcomer, and the answers in the text of `help()`."""

from __future__ import annotations

import pydoc
import re

import pytest

import agenticx
import agenticx.testing

ANSWERS = [
    ("what an agent has", agenticx.Agent, ["max_iterations: ", "instructions: ", "`tools`, also accepted as"]),
    ("how to stop a run", agenticx.Agent, ["should_stop=signal", "turn.stop()"]),
    ("how to bound a run", agenticx.Agent, ["AGX_TURN_TIMEOUT_SECONDS", "budget=Budget(cost_usd=", "`max_rounds`"]),
    ("which tools there are", agenticx.builtin_tools, [f"`{each.schema.name}`" for each in agenticx.builtin_tools()]),
    ("which files a message may have", agenticx.load_attachment, ["5 MiB", "512 KiB", "20 files"]),
    ("how to stop from a thread", agenticx.StopSignal, ["signal.set()  # from any thread", "code `stopped`"]),
    ("how to approve", agenticx.Agent, ["event.approve()", "event.deny(", "confirm_gate=lambda request"]),
    (
        "how to ask elsewhere",
        agenticx.ConfirmGate,
        ["def request_confirm(self, question, context)", "waits for `resolve`"],
    ),
    (
        "which events there are",
        agenticx.Event,
        ["tool_result         tool_call_id: str", "final               text: str"],
    ),
    ("how to test", agenticx.testing, ["model=model", "ScriptedModel([call(", 'model="test"']),
    ("how tools get deps", agenticx.ToolContext, ["ToolContext[Database]", "open_hub(deps=…)"]),
    ("how tools are described", agenticx.tool, ["(`Args:`)", "numpy (`Parameters`", "`:param name:`", "`ToolContext`"]),
    ("how agents hand over", agenticx.Agent, ["`handoffs=[billing]`", "handoffs=[lambda: billing]", "as_tool()"]),
    ("how sessions are stored", agenticx.open_hub, ['open_hub("sqlite:///chat.db"', "hub.create(", "after a restart"]),
    (
        "how answers are typed",
        agenticx.Agent,
        ["`output_type`, anything that pydantic can validate", "`result.output`"],
    ),
    ("where to look", agenticx, ["stopping a turn ", "agx guide", "agent.run_sync("]),
]


@pytest.mark.parametrize(("thing", "words"), [row[1:] for row in ANSWERS], ids=[row[0] for row in ANSWERS])
def test_help_answers_a_question(thing: object, words: list[str]) -> None:
    text = re.sub(r"[\s|]+", " ", pydoc.plain(pydoc.render_doc(thing)))
    assert [each for each in words if re.sub(r"\s+", " ", each) not in text] == []


def test_each_name_in_the_index_of_the_package_exists() -> None:
    index = re.findall(r"^    \S.*?  +(\S.*)$", agenticx.__doc__ or "", re.MULTILINE)
    assert len(index) >= 10
    for name in re.findall(r"\b[A-Z]\w+", " ".join(index)):
        assert hasattr(agenticx, name) or name == "Hub", name

"""Think blocks in the text of a model: reasoning at the beginning of a reply, text everywhere else."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agenticx.errors import ModelError
from agenticx.llms import ModelRequest, TextDelta, ThinkBlockModel, ThinkingDelta, complete
from agenticx.llms.wrappers.think_blocks import ThinkBlockParser
from agenticx.runtime import AgentRuntime, AutoApproveConfirmGate, Session
from agenticx.testing import ScriptedModel, cut, fail, outline, say
from agenticx.tools import tool

CASES = {
    "<think>hm</think>\n\nyes": ("hm", "yes"),
    "\n<think>\nhm\n</think>yes <think>no</think>": ("\nhm\n", "yes <think>no</think>"),
    "<think>a</think>\n<thinking>b</thinking>c": ("ab", "c"),
    "<think></think>yes": ("", "yes"),
    "<think>if a < b and </thin> or </thi": ("if a < b and </thin> or </thi", ""),
    "  The tag <think> is no block here</think>": ("", "  The tag <think> is no block here</think>"),
    "</think>\n\nyes": ("", "yes"),
    "\n</thinking>yes": ("", "yes"),
    "hm</think>yes": ("", "hm</think>yes"),
    "</think></think>yes": ("", "</think>yes"),
    "<think>hm</think></think>yes": ("hm", "</think>yes"),
    "</thin": ("", "</thin"),
    "<thin": ("", "<thin"),
    "<thinker>x": ("", "<thinker>x"),
    "": ("", ""),
    "  ": ("", "  "),
}


def split(pieces: list[str]) -> tuple[str, str]:
    parser = ThinkBlockParser()
    deltas = [delta for piece in pieces for delta in parser.feed(piece)] + parser.end()
    assert all(delta.text for delta in deltas if isinstance(delta, TextDelta | ThinkingDelta))
    thought = "".join(delta.text for delta in deltas if isinstance(delta, ThinkingDelta))
    return thought, "".join(delta.text for delta in deltas if isinstance(delta, TextDelta))


@pytest.mark.parametrize("text", CASES)
def test_only_leading_blocks_are_reasoning_at_any_chunking(text: str) -> None:
    assert split([text]) == CASES[text]
    assert split(list(text)) == CASES[text]


@given(st.lists(st.sampled_from(["<", "think", ">", "</", "thinking", "\n", " ", "word", "é"]), max_size=14), st.data())
def test_chunking_makes_no_difference(words: list[str], data: st.DataObject) -> None:
    text = "".join(words)
    cuts = sorted(data.draw(st.sets(st.integers(0, len(text)), max_size=6)))
    pieces = [text[start:end] for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    assert split(pieces) == split([text])


@pytest.mark.anyio
async def test_a_block_over_several_deltas_becomes_reasoning_of_the_reply() -> None:
    with ScriptedModel([say("<think>let me see</think>\n\nfour", pieces=9)]) as model:
        reply, error = await complete(ThinkBlockModel(model), ModelRequest(messages=[]))
    assert (reply.reasoning, reply.text, reply.complete, error) == ("let me see", "four", True, None)


@pytest.mark.anyio
async def test_held_back_text_of_a_cut_or_failed_reply_is_kept() -> None:
    failure = ModelError("gone", code="provider.transport")
    with ScriptedModel([[say("<thi"), cut()], [say("<think>a</thi"), fail(failure)]]) as model:
        cut_reply, _ = await complete(ThinkBlockModel(model), ModelRequest(messages=[]))
        failed_reply, error = await complete(ThinkBlockModel(model), ModelRequest(messages=[]))
    assert (cut_reply.text, cut_reply.complete) == ("<thi", False)
    assert (failed_reply.reasoning, error) == ("a</thi", failure)


@pytest.mark.anyio
async def test_an_inline_call_after_a_think_block_runs() -> None:
    """A local server without a parser leaves both in the text: the block is removed first, then the call is read."""

    @tool(risk="read")
    def add(a: int, b: int) -> int:
        """Add."""
        return a + b

    wrapped = '<think>hm</think>\n\n<tool_call>\n{"name": "add", "arguments": {"a": 1, "b": 2}}\n</tool_call>'
    model = ThinkBlockModel(ScriptedModel([say(wrapped, pieces=7), "It is 3."], inline_calls=["hermes"]))
    runtime = AgentRuntime(model, AutoApproveConfirmGate())
    events = [event async for event in runtime.run_turn("1 + 2?", Session(), tools=[add])]
    kinds = [kind for kind in outline(events, detail=True) if kind.startswith(("thinking", "tool", "final"))]
    assert kinds == ["thinking", "tool_call:add", "tool_result:ok", "final:answer"]

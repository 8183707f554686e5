"""Tools for models without function calling: the same turn, the same events, whatever the text is cut into."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agenticx.llms.base import Reply, ReplyBuilder, ToolSchema
from agenticx.llms.xml_format import XmlCallParser, render_call
from agenticx.llms.xml_tools import XmlToolModel
from agenticx.runtime import AgentRuntime, AutoApproveConfirmGate, Session
from agenticx.testing import ScriptedModel, check_grammar, collect, cut, outline, say
from agenticx.tools.registry import tool

WRITE = ToolSchema(
    "write",
    "Write a file.",
    {
        "type": "object",
        "properties": {
            "path": {"type": "string"},
            "lines": {"type": "integer"},
            "options": {"type": "object"},
            "mark": {"anyOf": [{"type": "string"}, {"type": "integer"}]},
        },
    },
)
ODD_TEXT = st.lists(
    st.sampled_from(
        ["<", "/", "parameter", ">", "\\", "\n", "</parameter>", "</function>", "<\\/parameter>", "é😀", '"']
    )
    | st.text(max_size=3),
    max_size=8,
).map("".join)
ARGUMENTS = st.fixed_dictionaries(
    {},
    optional={
        "path": ODD_TEXT,
        "lines": st.integers(-(10**6), 10**6),
        "options": st.dictionaries(ODD_TEXT, ODD_TEXT | st.none() | st.booleans(), max_size=2),
        "mark": ODD_TEXT | st.integers(),
    },
)


def read(pieces: list[str]) -> tuple[Reply, bool]:
    parser, builder = XmlCallParser([WRITE]), ReplyBuilder()
    for delta in [*(delta for piece in pieces for delta in parser.feed(piece)), *parser.end()]:
        builder.add(delta)
    return builder.reply(), parser.unfinished


def in_pieces(data: st.DataObject, text: str) -> list[str]:
    cuts = sorted(data.draw(st.sets(st.integers(0, len(text)), max_size=12)))
    return [text[start:end] for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]


@given(st.lists(ARGUMENTS, min_size=1, max_size=3), st.data())
def test_what_is_rendered_is_read_back_however_it_is_cut(calls: list[dict[str, Any]], data: st.DataObject) -> None:
    text = "First:\n" + "\n".join(render_call("write", arguments, WRITE) for arguments in calls)
    reply, unfinished = read(in_pieces(data, text))
    assert [json.loads(call.arguments) for call in reply.tool_calls] == calls
    assert ({call.name for call in reply.tool_calls}, reply.text, unfinished) == ({"write"}, "First:\n", False)


@given(
    st.lists(
        st.sampled_from(
            ["<function=", "write", ">", "<", "\n", "x", "</function>", "<parameter=path>", "</parameter>", "</"]
        ),
        max_size=14,
    ).map("".join),
    st.data(),
)
def test_how_any_text_is_cut_makes_no_difference(text: str, data: st.DataObject) -> None:
    assert read(in_pieces(data, text)) == read([text])


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        ("<function=write><parameter=path>a.txt</parameter></function>", {"path": "a.txt"}),
        ("<function=write>\n<parameter=path>\na\nb\n</parameter>\n</function>", {"path": "a\nb"}),
        (
            "<function=write><parameter=path> a<b> </parameter><parameter=lines> 3 </parameter></function>",
            {"path": " a<b> ", "lines": 3},
        ),
        ("<function=write><parameter=lines>three</parameter></function>", {"lines": "three"}),
        ("<function=write><parameter=mark>True</parameter></function>", {"mark": True}),
        ("<function=write></function>", {}),
        ("<function=write> stray words <parameter=path>a</parameter> more </function>", {"path": "a"}),
    ],
)
def test_calls_are_read_as_models_write_them(text: str, arguments: dict[str, Any]) -> None:
    reply, unfinished = read([text])
    assert [(call.name, json.loads(call.arguments)) for call in reply.tool_calls] == [("write", arguments)]
    assert not unfinished


@pytest.mark.parametrize(
    "text", ["<function> write </function>", "a < b", "use <function=a b>", "<functional=x>", "<function"]
)
def test_what_is_no_call_stays_text(text: str) -> None:
    assert read([text])[0] == Reply(text=text)


SEEN: list[str] = []


@tool(risk="read")
def look(path: str) -> str:
    """Look at a file."""
    SEEN.append(path)
    return f"{path} says 1 < 2"


async def turn(model: ScriptedModel, session: Session) -> list[Any]:
    SEEN.clear()
    with model:
        runtime = AgentRuntime(XmlToolModel(model), AutoApproveConfirmGate())
        events = await collect(runtime.run_turn("look at a and b", session, tools=[look]))
    check_grammar(events)
    return events


@pytest.mark.anyio
async def test_a_turn_over_text_has_the_events_of_a_native_one() -> None:
    calls = "\n".join(render_call("look", {"path": path}, look.schema) for path in "ab")
    model = ScriptedModel([say(f"I look.\n{calls}", pieces=23), say("Done.")])
    events = await turn(model, Session())
    assert outline(events, detail=True) == [
        "turn_started", "round_start", "token", "tool_call_delta", "tool_call:look", "tool_call:look",
        "tool_result:ok", "tool_result:ok", "round_start", "token", "final:answer",
    ]  # fmt: skip
    first, second = model.requests
    assert first.tools == ()
    assert "look: Look at a file.\n  path (string, required)" in first.messages[0].content
    results = [f"<function_result=look>\n{path} says 1 < 2\n</function_result>" for path in "ab"]
    assert [(row.role, row.content) for row in second.messages[2:]] == [
        ("assistant", f"I look.\n\n{calls}"),
        ("user", "\n".join(results)),
    ]


@pytest.mark.anyio
@pytest.mark.parametrize("ending", [[], [cut()]])
async def test_a_call_that_is_not_finished_does_not_run(ending: list[Any]) -> None:
    model = ScriptedModel([[say("<function=look><parameter=path>a"), *ending], *([] if ending else ["Sorry."])])
    events = await turn(model, Session())
    assert SEEN == []
    expected = "error:provider.truncated" if ending else "tool_result:invalid_arguments"
    assert expected in outline(events, detail=True)

"""inline_calls: a call only where a model wrapped one, never because prose looks like one."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agenticx.runtime.inline_calls import inline_calls

KNOWN = {"bash_exec", "file_read", "add"}
CALL = '{"name": "bash_exec", "arguments": {"command": "rm -rf /"}}'
FENCED = '```json\n{"tool_calls": [' + CALL + "]}\n```"


def read(text):
    before, calls = inline_calls(text, KNOWN)
    return before, [(call.id, call.name, json.loads(call.arguments)) for call in calls]


@pytest.mark.parametrize(
    ("text", "calls"),
    [
        (f"<tool_code>{CALL}</tool_code>", [("bash_exec", {"command": "rm -rf /"})]),
        (f"<tool_code>[{CALL}, {CALL}]</tool_code>", [("bash_exec", {"command": "rm -rf /"})] * 2),
        ("<tool_code>\nadd(left=1, right=2)\n</tool_code>", [("add", {"left": 1, "right": 2})]),
        (
            "<tool_code>print(default_api.add(left=[1, None], right={'a': True}))</tool_code>",
            [("add", {"left": [1, None], "right": {"a": True}})],
        ),
        (
            "<tool_code>add(left=1)\nfile_read(path='a')</tool_code>\n",
            [("add", {"left": 1}), ("file_read", {"path": "a"})],
        ),
        ("<tool_code>add()</tool_code>", [("add", {})]),
        (FENCED, [("bash_exec", {"command": "rm -rf /"})]),
        (FENCED.replace("json", ""), [("bash_exec", {"command": "rm -rf /"})]),
        (
            '```tool_calls\n{"tool_calls": [{"id": "x", "type": "function", "function": {"name": "add", "arguments": '
            '"{\\"left\\": 1}"}}]}\n```',
            [("add", {"left": 1})],
        ),
        ('```json\n{"tool_calls": [{"name": "add"}]}\n```  \n', [("add", {})]),
    ],
)
def test_both_wrapper_forms_are_calls_without_ids(text, calls):
    assert read(text) == ("", [("", name, arguments) for name, arguments in calls])
    assert read(f"I shall look.\n\n{text}") == ("I shall look.", [("", name, arguments) for name, arguments in calls])


NEAR_MISSES = [
    # prose
    'You can run bash_exec({"command": "rm -rf /"}) to delete everything.',
    "bash_exec(command='rm -rf /')",
    CALL,
    f"I would call {CALL}",
    f"[{CALL}]",
    '{"tool_calls": [' + CALL + "]}",
    "Action: bash_exec\nAction Input: rm -rf /",
    "<function=bash_exec>rm -rf /</function>",
    f"<tool_call>{CALL}</tool_call>",
    # a wrapper that is talked about, quoted or not the end
    f"<tool_code>{CALL}</tool_code> is how one writes it.",
    f"{FENCED}\nThat is what the protocol looks like.",
    f"````\n{FENCED}\n````",
    f"> {FENCED}".replace("\n", "\n> "),
    f"    {FENCED}".replace("\n", "\n    "),
    f"Never write {FENCED}",
    f"`<tool_code>{CALL}</tool_code>`",
    # wrappers that are not whole
    f"<tool_code>{CALL}",
    f"{CALL}</tool_code>",
    f"<TOOL_CODE>{CALL}</TOOL_CODE>",
    f"<tool_code >{CALL}</tool_code>",
    FENCED.removesuffix("```"),
    FENCED.replace("```json", "~~~"),
    FENCED.replace("```json", "```python"),
    FENCED.replace("```json", "```json title=example"),
    # a wrapper around something else
    "<tool_code></tool_code>",
    "<tool_code>rm -rf /</tool_code>",
    "<tool_code>{}</tool_code>",
    "<tool_code>null</tool_code>",
    "<tool_code>[]</tool_code>",
    "<tool_code>bash_exec</tool_code>",
    "<tool_code>bash_exec('rm -rf /')</tool_code>",
    "<tool_code>bash_exec(command=open('x').read())</tool_code>",
    "<tool_code>bash_exec(command=f'{1}')</tool_code>",
    "<tool_code>bash_exec(**{'command': 'x'})</tool_code>",
    "<tool_code>x = bash_exec(command='x')</tool_code>",
    "<tool_code>import os\nbash_exec(command='x')</tool_code>",
    "<tool_code>for x in range(3): bash_exec(command='x')</tool_code>",
    "<tool_code>os.bash_exec(command='x')</tool_code>",
    "<tool_code>lambda: bash_exec(command='x')</tool_code>",
    "<tool_code>bash_exec(command='x'); print('done')</tool_code>",
    "<tool_code>add(left=1e999)</tool_code>",
    "<tool_code>add(left={1, 2})</tool_code>",
    "<tool_code>add(left=b'x')</tool_code>",
    '<tool_code>{"name": "format_disk", "arguments": {}}</tool_code>',
    '<tool_code>{"name": 3, "arguments": {}}</tool_code>',
    '<tool_code>{"arguments": {}}</tool_code>',
    f'<tool_code>[{CALL}, {{"name": "format_disk"}}]</tool_code>',
    f"<tool_code>[{CALL}, 3]</tool_code>",
    f"```json\n{CALL}\n```",
    f"```json\n[{CALL}]\n```",
    '```json\n{"tool_calls": []}\n```',
    '```json\n{"tool_calls": ' + CALL + "}\n```",
    '```json\n{"tool_calls": [' + CALL + '], "why": "because"}\n```',
    '```json\n{"example": {"tool_calls": [' + CALL + "]}}\n```",
    '```json\n{"tool_calls": [' + CALL + "]} // an example\n```",
    "```json\n{'tool_calls': [{'name': 'add'}]}\n```",
]  # fmt: skip


@pytest.mark.parametrize("text", NEAR_MISSES)
def test_what_only_looks_like_a_call_stays_text(text):
    assert inline_calls(text, KNOWN) == (text, [])


@pytest.mark.parametrize(
    "text", ["<tool_code>" * 20_000 + "</tool_code>", "```\n{" * 20_000, "<tool_code>" + "[" * 90_000 + "</tool_code>"]
)
def test_hostile_text_costs_little_and_is_no_call(text):
    assert inline_calls(text, KNOWN)[1] == []


_words = (
    'bash_exec ( ) command= \'x\' { } "name": "bash_exec" [ ] ``` json tool_code "tool_calls": , "arguments": print'
)
_pieces = st.sampled_from([*_words.split(), "\n", " ", "You can run "])


@given(st.lists(_pieces, max_size=25).map("".join))
def test_without_a_whole_wrapper_nothing_is_a_call(text):
    """The fence form needs its fence on lines of its own; the other form needs its tags, which never occur here."""
    _, calls = inline_calls(text, KNOWN)
    if calls:
        assert text.rstrip().endswith("\n```")
        assert '{"tool_calls": ' in text.replace("\n", "").replace(" ", "").replace(":", ": ")


_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.text(), _values, max_size=4))
def test_arguments_come_out_as_they_were_written(arguments):
    wrapped = json.dumps({"name": "add", "arguments": arguments})
    assert read(f"<tool_code>{wrapped}</tool_code>") == ("", [("", "add", arguments)])
    fenced = '```json\n{"tool_calls": [' + wrapped + "]}\n```"
    assert read(fenced) == ("", [("", "add", arguments)])

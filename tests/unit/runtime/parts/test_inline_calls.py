"""parse_inline_calls: calls only from a reply that is nothing but wrappers, never from prose."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agenticx.llms import ToolSchema
from agenticx.runtime.calls.inline import parse_function_calls, parse_inline_calls

KNOWN = {"bash_exec", "file_read", "add"}
CALL = '{"name": "bash_exec", "arguments": {"command": "rm -rf /"}}'
FENCED = '```json\n{"tool_calls": [' + CALL + "]}\n```"


HERMES = f"<tool_call>\n{CALL}\n</tool_call>"
MISTRAL = f"[TOOL_CALLS][{CALL}]"
FORMS = ("hermes", "mistral")


def read(text, forms=()):
    return [(call.id, call.name, json.loads(call.arguments)) for call in parse_inline_calls(text, KNOWN, forms)]


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
        ('```json\n{\n "tool_calls": [\n  {"name": "add"}\n ]\n}\n\n```', [("add", {})]),
        # several in sequence
        (
            "<tool_code>add(left=1)</tool_code>\n\n<tool_code>add(left=2)</tool_code>",
            [("add", {"left": n}) for n in (1, 2)],
        ),
        ('<tool_code>add()</tool_code><tool_code>[{"name": "add"}]</tool_code>', [("add", {})] * 2),
        (f"{FENCED}\n{FENCED}", [("bash_exec", {"command": "rm -rf /"})] * 2),
        # what looks like the end of a wrapper, in a string
        (
            '<tool_code>{"name": "add", "arguments": {"left": "</tool_code>\\n```"}}</tool_code>',
            [("add", {"left": "</tool_code>\n```"})],
        ),
        (
            '```json\n{"tool_calls": [{"name": "add", "arguments": {"a": "\\n```\\n{"}}]}\n```',
            [("add", {"a": "\n```\n{"})],
        ),
    ],
)
def test_a_reply_of_wrappers_alone_becomes_calls_without_ids(text, calls):
    expected = [("", name, arguments) for name, arguments in calls]
    assert read(text) == read(f"\n {text}\n\n") == read(text, FORMS) == expected


@pytest.mark.parametrize("wrapper", [FENCED, f"<tool_code>{CALL}</tool_code>", HERMES, MISTRAL])
@pytest.mark.parametrize(
    "around",
    [
        "I shall look.\n\n{}",
        "You would call it like this:\n\n{}",
        "{}\n\nThat is the form.",
        "Let me.\n{}\nDone.",
        "# Example\n{}",
        "\u200b{}",
        "<think>hm</think>{}",
    ],
)
def test_an_example_next_to_prose_stays_text_at_any_position(wrapper, around):
    assert read(wrapper, FORMS)
    assert read(around.format(wrapper), FORMS) == []


@pytest.mark.parametrize(
    ("form", "text", "calls"),
    [
        ("hermes", HERMES, [("bash_exec", {"command": "rm -rf /"})]),
        ("hermes", f"{HERMES}\n{HERMES}{HERMES}", [("bash_exec", {"command": "rm -rf /"})] * 3),
        (
            "hermes",
            '<tool_call>{"arguments": {"a": "</tool_call>"}, "name": "add"}</tool_call>',
            [("add", {"a": "</tool_call>"})],
        ),
        ("hermes", '<tool_call>{"name": "add"}</tool_call>', [("add", {})]),
        ("mistral", MISTRAL, [("bash_exec", {"command": "rm -rf /"})]),
        ("mistral", f"[TOOL_CALLS] [{CALL}, {CALL}]", [("bash_exec", {"command": "rm -rf /"})] * 2),
        ("mistral", '[TOOL_CALLS][{"name": "add", "arguments": {}, "id": "abc123XYZ"}]', [("add", {})]),
        ("mistral", '[TOOL_CALLS]add{"left": 1}', [("add", {"left": 1})]),
        ("mistral", '[TOOL_CALLS]add[ARGS]{"left": "[TOOL_CALLS]"}', [("add", {"left": "[TOOL_CALLS]"})]),
        ("mistral", '[TOOL_CALLS]add[CALL_ID]abc123XYZ[ARGS]{"left": 1}', [("add", {"left": 1})]),
        ("mistral", '[TOOL_CALLS]add{"left": 1}[TOOL_CALLS]add[ARGS]{}\n', [("add", {"left": 1}), ("add", {})]),
    ],
)
def test_model_specific_forms_are_calls_only_for_models_that_declare_them(form, text, calls):
    assert read(text, (form,)) == [("", name, arguments) for name, arguments in calls]
    assert read(text, tuple(other for other in FORMS if other != form)) == read(text) == []


BASH = ToolSchema("bash_exec", "", {"type": "object", "properties": {"command": {"type": "string"}}})
ADD = ToolSchema("add", "", {"type": "object", "properties": {"left": {"type": "integer"}}})
RUN = "<function=bash_exec>\n<parameter=command>\nls -l\necho 1\n</parameter>\n</function>"
RUNS = ("bash_exec", {"command": "ls -l\necho 1"})


def read_functions(text):
    before, calls = parse_function_calls(text, [BASH, ADD])
    return before, [(call.name, json.loads(call.arguments)) for call in calls]


@pytest.mark.parametrize(
    ("text", "before", "calls"),
    [
        (RUN, "", [RUNS]),
        (f"\n<tool_call>\n{RUN}\n</tool_call>\n", "", [RUNS]),
        (f"<tool_call>\n{RUN}\n</tool_call>\n<tool_call>\n{RUN}\n</tool_call>", "", [RUNS, RUNS]),
        (f"I will look.\n\n<tool_call>\n{RUN}</tool_call>", "I will look.", [RUNS]),
        (f"```\nls\n```\nLike that:\n{RUN}\n", "```\nls\n```\nLike that:", [RUNS]),
        ("<function=add>\n<parameter=left>1</parameter>\n</function>", "", [("add", {"left": 1})]),
        ("<function=add></function>", "", [("add", {})]),
        (
            "<function=bash_exec><parameter=command>1</parameter></function>",
            "",
            [("bash_exec", {"command": "1"})],
        ),
        (
            "<function=bash_exec><parameter=command>echo '</function>'</parameter></function>",
            "",
            [("bash_exec", {"command": "echo '</function>'"})],
        ),
    ],
)
def test_function_tags_are_calls_where_a_call_may_begin(text, before, calls):
    assert read_functions(text) == (before, calls)


@pytest.mark.parametrize(
    "text",
    [
        f"You write {RUN}",
        f"`{RUN}`",
        f"```\n{RUN}\n```",
        f"    {RUN}",
        f"> {RUN}",
        f"You call it like this:\n{RUN}\nand wait for the result.",
        f"{RUN}\nDone.",
        RUN.removesuffix("</function>"),
        RUN.removesuffix("\n</parameter>\n</function>"),
        f"{RUN}\n<function=bash_exec>",
        RUN.replace("bash_exec", "format_disk"),
        f"{RUN}\n{RUN.replace('bash_exec', 'format_disk')}",
        "<function=bash_exec>rm -rf /</function>",
        "<function=bash_exec><parameter=command>a</parameter><parameter=command>b</parameter></function>",
        "<function=bash_exec>\n<parameter=command>a</parameter>\n<function=add>\n</function>",
        "<function_result=add>\n3\n</function_result>",
        "<function=add></function>" * 129,
        f"{'x' * 48_000}\n{RUN}",
    ],
)
def test_function_tags_anywhere_else_or_incomplete_stay_text(text):
    assert parse_function_calls(text, [BASH, ADD]) == (text, [])


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
    # half of a form, or another one
    f"<tool_call>{CALL}",
    f"<tool_call>[{CALL}]</tool_call>",
    f"<tool_call>{CALL}{CALL}</tool_call>",
    f"<tool_call>{CALL}</tool_code>",
    f"<tool_call>{CALL}</tool_call>\n<tool_code>{CALL}</tool_code>",
    f"`<tool_call>{CALL}</tool_call>`",
    "<tool_call>\n<function=bash_exec>\n<parameter=command>x</parameter>\n</function>\n</tool_call>",
    f"[TOOL_CALLS]{CALL}",
    f"[TOOL_CALLS][{CALL}][{CALL}]",
    f"[TOOL_CALLS][{CALL}] and so on",
    "[TOOL_CALLS]",
    "[TOOL_CALLS][]",
    "[TOOL_CALLS]bash_exec",
    "[TOOL_CALLS]bash_exec[ARGS]",
    '[TOOL_CALLS]bash_exec["rm -rf /"]',
    '[TOOL_CALLS]bash_exec{"command": "x"',
    '[TOOL_CALLS]bash_exec{"command": "x"}, add{}',
    '[TOOL_CALLS]format_disk{"command": "x"}',
    '[TOOL_CALLS]run bash_exec{"command": "x"}',
    'bash_exec[ARGS]{"command": "x"}',
    # arguments that two readers may take for different things, or that are no object
    '<tool_code>{"name": "add", "arguments": {"a": 1, "a": 2}}</tool_code>',
    '<tool_code>{"name": "add", "name": "bash_exec", "arguments": {}}</tool_code>',
    '<tool_code>{"name": "add", "arguments": {"a": NaN}}</tool_code>',
    '<tool_code>{"name": "add", "arguments": [1]}</tool_code>',
    '<tool_code>{"name": "add", "arguments": "1"}</tool_code>',
    '<tool_code>{"name": "add", "arguments": null}</tool_code>',
    '<tool_code>{"name": "add", "arguments": ' + "[" * 101 + "]" * 101 + "}</tool_code>",
    '<tool_call>{"name": "add", "arguments": "{"}</tool_call>',
    '[TOOL_CALLS]add{"a": 1, "a": 2}',
    # more calls than any reply may have
    "<tool_code>" + "add()\n" * 129 + "</tool_code>",
    "<tool_code>add()</tool_code>" * 129,
    "<tool_code>[" + '{"name": "add"},' * 128 + '{"name": "add"}]</tool_code>',
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
def test_text_that_resembles_a_call_stays_text(text):
    assert parse_inline_calls(text, KNOWN, FORMS) == []


@pytest.mark.parametrize(
    "text",
    [
        "<tool_code>" * 20_000 + "</tool_code>",
        "```\n{" * 20_000,
        "<tool_code>" + "[" * 90_000 + "</tool_code>",
        "<tool_code>add(" + "(" * 9000 + "</tool_code>",
        "<tool_code>add(a=" + "-" * 9000 + "1)</tool_code>",
        '<tool_code>{"name": "add", "arguments": {"a": "' + "x" * 1_000_000 + '"}}</tool_code>',
        "<tool_code>add(a=[" + "1," * 20_000 + "])</tool_code>",
    ],
    ids=["openings", "fences", "brackets", "parentheses", "minus signs", "1 MB", "40 kB of Python"],
)
def test_hostile_text_is_parsed_quickly_and_is_not_a_call(text):
    assert parse_inline_calls(text, KNOWN, FORMS) == []


_words = (
    'bash_exec ( ) command= \'x\' { } "name": "bash_exec" [ ] ``` json tool_code "tool_calls": , "arguments": print'
)
_pieces = st.sampled_from([*_words.split(), "\n", " ", "You can run "])


@given(st.lists(_pieces, max_size=25).map("".join))
def test_an_incomplete_wrapper_is_not_a_call(text):
    """The fence form needs its fence on lines of its own; the others need their tags, which never occur here."""
    if parse_inline_calls(text, KNOWN, FORMS):
        assert text.strip().startswith("```")
        assert text.rstrip().endswith("\n```")
        assert '{"tool_calls": ' in text.replace("\n", "").replace(" ", "").replace(":", ": ")


_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.text(), _values, max_size=4))
def test_arguments_are_unchanged(arguments):
    wrapped, bare = json.dumps({"name": "add", "arguments": arguments}), json.dumps(arguments)
    wrappers = (
        f"<tool_code>{wrapped}</tool_code>",
        '```json\n{"tool_calls": [' + wrapped + "]}\n```",
        f"<tool_call>{wrapped}</tool_call>",
        f"[TOOL_CALLS][{wrapped}]",
        f"[TOOL_CALLS]add[ARGS]{bare}",
    )
    for text in wrappers:
        assert read(text, FORMS) == [("", "add", arguments)]


@pytest.mark.parametrize(
    ("row", "calls"),
    [
        ({"name": "add", "parameters": {"left": 1}}, [("", "add", {"left": 1})]),
        ({"name": "add", "args": {"left": 1}}, []),
        ({"name": "add", "arguments": {"left": 1}, "parameters": {"left": 2}}, []),
        ({"name": "add", "arguments": {"left": 1}, "note": "do not run this"}, []),
        ({"function": {"name": "add", "arguments": "{}"}, "note": "x"}, []),
    ],
)
def test_no_argument_is_dropped_or_guessed(row, calls):
    written = json.dumps(row)
    fenced = f'```json\n{{"tool_calls": [{written}]}}\n```'
    for text in (fenced, f"<tool_code>{written}</tool_code>", f"<tool_call>{written}</tool_call>"):
        assert read(text, FORMS) == calls
    assert read(f"[TOOL_CALLS][{written}]", FORMS) == calls

"""Previews of arguments: each agrees with the final arguments, and no shown value is withdrawn."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agenticx.errors import InvalidArguments
from agenticx.llms import preview_arguments
from agenticx.llms.arguments import parse_arguments
from tests.support.wires.recorded import NO_STREAMS, streams_folder
from tests.support.wires.wires import WIRES, read

_text = st.text(st.characters(exclude_categories=("Cs",))) | st.text(st.sampled_from('ab\\"/\n 1é🎉\u2028'))
_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | _text,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_text, inner, max_size=4),
    max_leaves=12,
)
_objects = st.dictionaries(_text, _values, max_size=5)


def is_beginning_of(shown: Any, final: Any) -> bool:
    """Return whether `shown` is `final` or a beginning of it: only the last entry at each level may be unfinished."""
    if type(shown) is not type(final):
        return False
    if isinstance(shown, str):
        return final.startswith(shown)
    if isinstance(shown, dict):
        names = list(final)[: len(shown)]
        return list(shown) == names and is_beginning_of([*shown.values()], [final[name] for name in names])
    if isinstance(shown, list):
        whole, last = shown[:-1], shown[-1:]
        return whole == final[: len(whole)] and all(map(is_beginning_of, last, final[len(whole) :] or [object()]))
    return repr(shown) == repr(final)


def assert_previews_grow(text: str) -> None:
    """Assert that every prefix has a preview that agrees with the next and the final one, which is complete."""
    final = parse_arguments(text)
    previews = [preview_arguments(text[:end]) for end in range(len(text) + 1)]
    assert [(end, shown) for end, shown in enumerate(previews) if not is_beginning_of(shown, final)] == []
    assert [pair for pair in pairwise(previews) if not is_beginning_of(*pair)] == []
    assert previews[-1] == final


def recorded_texts() -> set[str]:
    """Return the arguments of all calls in the recorded streams, including those that the providers ran themselves."""
    texts = set[str]()
    for wire in WIRES.values():
        for file in sorted((cast("Path", streams_folder()) / str(wire.streams)).glob("*.sse")):
            reply, _ = read(wire.parser("m"), [file.read_bytes()])
            texts |= {call.arguments for call in reply.tool_calls} | {
                *_anthropic_tool_inputs(file.read_text(encoding="utf-8"))
            }
    return texts


def _anthropic_tool_inputs(stream: str) -> Iterator[str]:
    """Return the inputs of all tools in a stream of Anthropic."""
    pieces: dict[int, list[str]] = {}
    for line in stream.splitlines():
        if '"input_json_delta"' in line:
            event = json.loads(line.removeprefix("data:"))
            pieces.setdefault(event["index"], []).append(event["delta"]["partial_json"])
    return map("".join, pieces.values())


@pytest.mark.skipif(streams_folder() is None, reason=NO_STREAMS)
@pytest.mark.ci_lane
def test_every_preview_of_every_recorded_call_agrees_with_the_final_arguments() -> None:
    texts = recorded_texts()
    assert len(texts) > 50
    for text in texts:
        assert_previews_grow(text)


@pytest.mark.parametrize(
    "text",
    [
        r'{"path": "C:\\new\\u0041\\", "quote": "say \"12\"", "tab": "\t\/\b\f\n\r"}',
        r'{"emoji": "\ud83d\ude00 \ud83D\uDE00", "accent": "caf\u00e9", "zero": "\u0000"}',
        r'{"half": "\ud83d", "other": "\ude00!", "twice": "\ud83d\ud83d\ude00", "then": "\ud83d\n", "and": "\ud83dx"}',
        r'{"half then more": "\ud83d\u0041 \ud83d\\ude00 \\\ud83d \ud83d\"", "\udc00": {"\ud83d": 1}}',
        '{"n": [0, -1, 12, 1.5, -2.25e-3, 1E+20, 123456789012345678901234567890], "m": 7}',
        '{"a": 12,\n\t"b" : 3 ,"c":[ 4 , 5 ] }',
        '{"looks like a number": "at: 12, 13", "[1": ", 2"}',
        '{"t": true, "f": false, "n": null, "l": [true, [null]], "o": {"a": {}}}',
        '{"Ω": "日本語 12", "": {"": [[], {}, ""]}}',
        '{"patch": "*** Begin Patch\\n+ x = [1, 2]\\n*** End Patch"}',
        '  {"a": 1}  \n',
        "",
        " ",
        "{}",
    ],
)
def test_every_preview_agrees_with_the_final_arguments(text: str) -> None:
    assert_previews_grow(text)


@given(_objects, st.booleans(), st.sampled_from([None, 1, "\t"]))
def test_every_preview_of_any_object_agrees_with_the_final_arguments(
    arguments: dict[str, Any], ascii_only: bool, indent: int | str | None
) -> None:
    assert_previews_grow(json.dumps(arguments, ensure_ascii=ascii_only, indent=indent))


@given(st.lists(st.sampled_from(["\\", "u", "d83d", "dE00", "\\ud83d", "\\ude00", "\\u0041", "x", "8", '\\"', "\\\\"])))
def test_every_preview_of_any_run_of_escapes_agrees_with_the_final_arguments(pieces: list[str]) -> None:
    text = f'{{"a": "{"".join(pieces)}"}}'
    if _is_accepted(text):
        assert_previews_grow(text)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("", {}),
        ('{"pa', {}),
        ('{"path"', {}),
        ('{"path": ', {}),
        ('{"path": "', {"path": ""}),
        ('{"path": "a.t', {"path": "a.t"}),
        ('{"path": "a\\', {"path": "a"}),
        ('{"path": "a\\u00', {"path": "a"}),
        ('{"path": "a\\ud83d\\ude0', {"path": "a"}),
        ('{"path": "a\\ud83d!', {"path": "a\ufffd!"}),
        ('{"line": 1', {}),
        ('{"line": 1.', {}),
        ('{"line": 12 ', {"line": 12}),
        ('{"lines": [1, 2', {"lines": [1]}),
        ('{"at": "line 1', {"at": "line 1"}),
        ('{"all": tru', {}),
        ('{"all": true', {"all": True}),
        ('{"edits": [{"old": "x", "ne', {"edits": [{"old": "x"}]}),
    ],
)
def test_keys_numbers_and_literals_appear_once_complete_and_strings_grow(text: str, shown: dict[str, Any]) -> None:
    assert preview_arguments(text) == shown


@pytest.mark.parametrize(
    "text",
    [
        "12", "[", "[1, ", "null", "None", "'", "{'a", "{a", '{"a": x',
        '{"a": 1..', '{"a": 01,', '{"a" 1,', '{"a": "\n',
        '{"a": "\\x', '{"a": NaN', '{"a": 1e999,', '{"a": -Infinity}', "\ufeff{", "```json\n{", "I will ",
        '{"a": ' + "9" * 5000 + ",", '{"a":' * 101, '{"a":' * 100_000,
    ],
)  # fmt: skip
def test_text_that_begins_no_valid_object_has_no_preview(text: str) -> None:
    assert preview_arguments(text) is None


def test_the_text_of_a_freeform_call_has_no_preview() -> None:
    text = json.dumps('*** Begin Patch\n+ say("12")\n')
    assert {preview_arguments(text[:end]) is None for end in range(1, len(text) + 1)} == {True}


@given(
    st.text() | st.lists(st.sampled_from('{}[],:"\\ \n019.eE-xud8') | st.sampled_from(["\ud83d", "NaN"])).map("".join)
)
def test_the_preview_of_any_text_is_json_or_none(text: str) -> None:
    shown = preview_arguments(text)
    assert shown is None or json.loads(json.dumps(shown, ensure_ascii=False, allow_nan=False).encode()) == shown


def _is_accepted(text: str) -> bool:
    try:
        parse_arguments(text)
    except InvalidArguments:
        return False
    return True

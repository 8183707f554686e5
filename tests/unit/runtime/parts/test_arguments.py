"""Arguments of calls: parsed exactly or refused; repaired only on request, and only to an object."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agenticx.errors import InvalidArguments
from agenticx.llms.arguments import parse_arguments, repair_arguments

_clean = st.text(st.characters(exclude_categories=("Cs",)))
_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | _clean,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_clean, inner, max_size=4),
    max_leaves=15,
)
_objects = st.dictionaries(_clean, _values, max_size=5)


@given(_objects, st.booleans(), st.sampled_from([None, 1, "\t"]))
def test_an_object_is_parsed_unchanged(arguments, ascii_only, indent):
    assert parse_arguments(json.dumps(arguments, ensure_ascii=ascii_only, indent=indent)) == arguments


@pytest.mark.parametrize("text", ["", " ", "\n\t "])
def test_empty_text_means_no_arguments(text):
    assert parse_arguments(text) == {}


@pytest.mark.parametrize(
    "value",
    ["sa-east-1", "call_me", "", " ", "None", "```json\n{}\n```", "{'a': 1,}", "a\r\nb\u2028c", "\x00", "é\u0301"],
)
def test_values_that_resemble_noise_are_kept(value):
    """The public predecessor deleted values that began with `sa-` and lines that began with `call_`."""
    assert parse_arguments(json.dumps({"value": value})) == {"value": value}


def deep(levels):
    return '{"a":' + "[" * levels + "]" * levels + "}"


@pytest.mark.parametrize(
    "text",
    [
        "{", "}", '{"a"', '{"a":', '{"a": 1', '{"a": 1,}', "{'a': 1}", "{a: 1}", '{"a": 1} {"a": 2}', '{"a": 1}x',
        '```json\n{"a": 1}\n```', "null", "true", "3", '"text"', "[]", '[{"a": 1}]', "None", "undefined",
        '{"a": NaN}', '{"a": Infinity}', '{"a": -Infinity}', '{"a": 1e999}', '{"a": [{"b": -1e999}]}',
        '{"a": 1, "a": 2}', '{"a": {"b": 1, "b": 1}}', '{"a": 01}', '{"a": "\n"}', '{"a": "\\x"}', "\ufeff{}",
        '{"a": ' + "9" * 5_000 + "}", deep(600), deep(990), deep(5_000), deep(200_000), '{"a":' * 100_000,
        '{"\\ud800": 1, "\\ud801": 2}',
    ],
)  # fmt: skip
def test_anything_but_exactly_one_object_is_refused(text):
    with pytest.raises(InvalidArguments):
        parse_arguments(text)


@given(_objects, st.data())
def test_a_truncated_object_is_never_parsed(arguments, data):
    text = json.dumps(arguments)
    cut = data.draw(st.integers(1, len(text) - 1))
    with pytest.raises(InvalidArguments):
        parse_arguments(text[:cut])


@given(st.text())
def test_any_text_is_read_or_refused(text):
    for read in (parse_arguments, repair_arguments):
        try:
            value = read(text)
        except InvalidArguments:
            continue
        assert json.loads(json.dumps(value, ensure_ascii=False).encode()) == value


@given(st.lists(st.sampled_from("{}[],:\"'`\\ \n") | st.sampled_from(["a", "1", "true", "NaN", "\\u", "```json"])))
def test_any_malformed_text_is_repaired_to_an_object_or_refused(pieces):
    text = "".join(pieces)
    try:
        value = repair_arguments(text)
    except InvalidArguments:
        return
    assert isinstance(value, dict)
    json.dumps(value, ensure_ascii=False).encode()


def test_a_lone_surrogate_becomes_a_replacement_character():
    assert parse_arguments('{"a\\ud800": ["\\udfff", {"b": "\\ud83d\\ude00"}]}') == {"a\ufffd": ["\ufffd", {"b": "😀"}]}


@pytest.mark.parametrize(
    "text", ['{"path": "a.txt",}', "{'path': 'a.txt'}", '```json\n{"path": "a.txt"}\n```', "```\n{'path': 'a.txt',}```"]
)
def test_common_mistakes_are_repaired(text):
    assert repair_arguments(text) == {"path": "a.txt"}


@pytest.mark.promise("C4")
@pytest.mark.parametrize(
    "text",
    [
        '{"path": "a.txt"',
        '{"path": "a.tx',
        "{'path': 'a.tx",
        '{"paths": ["a.txt"}',
        '{"path": "a.txt"}{"path": "c.txt"}',
        '{"path": "a.txt"} {"path": "c.txt"}',
        "{'path': 'c.txt', 'path': 'a.txt'}",
        'I think {"path": "a.txt"} is right',
        "{'path': 'it's'}",
    ],
)
def test_truncated_repeated_or_embedded_objects_are_never_repaired(text):
    with pytest.raises(InvalidArguments):
        repair_arguments(text)


@pytest.mark.parametrize("text", ["", "nonsense", "[1, 2]", "3", "null", deep(5_000)])
def test_text_that_cannot_be_repaired_to_an_object_is_refused(text):
    with pytest.raises(InvalidArguments):
        repair_arguments(text)


@given(_objects)
def test_valid_json_is_not_changed_by_the_repair(arguments):
    assert parse_arguments(json.dumps(arguments)) == arguments

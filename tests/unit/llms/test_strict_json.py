"""Strict reading of JSON from outside: exactly, or refused with a readable reason."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agenticx.errors import InvalidArguments
from agenticx.llms import preview_arguments
from agenticx.llms.arguments import parse_arguments, repair_arguments
from agenticx.llms.wires.request_body import arguments_object, arguments_text
from agenticx.messages import clean_text
from agenticx.strict_json import clean_json, find_excess, read_json

_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=("Cs",))),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text("abé🎉"), inner, max_size=4),
)  # fmt: skip


@given(_values)
def test_any_json_value_is_read_unchanged(value: object) -> None:
    text = json.dumps(value, ensure_ascii=False)
    assert read_json(text, max_depth=50) == read_json(text.encode(), max_depth=50) == value


REFUSED = {
    '{"a": ': "Expecting value at line 1, column 7",
    '{"a": 1} {}': "Extra data at line 1, column 10",
    '{"a": 1, "b": {"a": 1, "c": 2, "a": 1}}': "the key 'a' appears twice",
    '{"\\ud800": 1, "\\ud801": 2}': "the key '\ufffd' appears twice",
    '{"' + "k" * 200 + '": 1, "' + "k" * 200 + '": 1}': f"the key '{'k' * 80}' appears twice",
    "[NaN]": "NaN is not a JSON number",
    "[-Infinity]": "a number in it is not finite",
    "[1e999]": "a number in it is not finite",
    "[" + "9" * 5000 + "]": "a number in it has more than 4300 digits",
    "[" * 9 + "]" * 9: "it is nested deeper than 8 levels",
    "[" * 100_000: "it is nested deeper than 8 levels",
    "[1,2,3,4,5,6]": "an object or a list in it has more than 5 entries",
    '{"a":1,"b":1,"c":1,"d":1,"e":1,"f":1}': "an object or a list in it has more than 5 entries",
    "\ufeff{}": "Unexpected UTF-8 BOM (decode using utf-8-sig) at line 1, column 1",
}


@pytest.mark.parametrize("text", REFUSED, ids=range(len(REFUSED)))
def test_ambiguous_or_oversized_json_is_refused_with_the_reason(text: str) -> None:
    with pytest.raises(ValueError, match=rf"\A{re.escape(REFUSED[text])}\Z"):
        read_json(text, max_depth=8, max_entries=5)


def test_bytes_that_are_not_utf_8_are_refused() -> None:
    with pytest.raises(ValueError, match=r"^it is not UTF-8$"):
        read_json(b'{"a": "\xff"}', max_depth=8)


def test_values_at_the_limits_are_read() -> None:
    deep = json.loads("[" * 8 + "]" * 8)
    assert read_json(json.dumps(deep), max_depth=8) == deep
    assert read_json("[1, 2, 3, 4, 5]", max_depth=1, max_entries=5) == [1, 2, 3, 4, 5]
    assert read_json("123", max_depth=1, max_digits=3) == 123
    with pytest.raises(ValueError, match=r"^a number in it has more than 3 digits$"):
        read_json("[1234]", max_depth=1, max_digits=3)


def test_a_lone_surrogate_becomes_a_replacement_character() -> None:
    assert read_json('{"a\\ud800": ["\\udfff", "\\ud83d\\ude00"]}', max_depth=8) == {"a\ufffd": ["\ufffd", "😀"]}
    assert clean_json({"a": "\ud83d\ude00"}, max_depth=1) == {"a": "😀"}


def test_arguments_are_refused_for_the_same_reasons() -> None:
    with pytest.raises(InvalidArguments, match=r"^the arguments are not valid JSON: the key 'a' appears twice$"):
        parse_arguments('{"a": 1, "a": 2}')


def test_repaired_arguments_with_a_non_finite_number_are_refused() -> None:
    """A repair returned infinity for `1e999`, which would have been passed to the tool and written to the log."""
    with pytest.raises(InvalidArguments, match=r"a number in it is not finite$"):
        repair_arguments('{"n": 1e999,}')


def test_a_number_of_more_than_1300_digits_is_refused() -> None:
    assert parse_arguments(f'{{"key": {"9" * 1_300}}}') == {"key": 10**1_300 - 1}
    with pytest.raises(InvalidArguments, match=r"a number in it has more than 1300 digits$"):
        parse_arguments(f'{{"key": {"9" * 1_301}}}')


TOO_MANY_VALUES = {
    "a list": json.dumps({"a": [0] * 10_000}),
    "lists": json.dumps({"a": [[]] * 5_000, "b": [[]] * 5_000}),
    "objects": json.dumps({"a": [{"b": 1}] * 5_000}),
    "keys": json.dumps({f"k{number}": number for number in range(10_000)}),
}


@pytest.mark.parametrize("text", TOO_MANY_VALUES.values(), ids=TOO_MANY_VALUES)
def test_arguments_of_more_than_10000_values_are_refused_before_they_are_parsed(text: str) -> None:
    with pytest.raises(InvalidArguments, match=r"^the arguments are not valid JSON: it holds more than 10000 values$"):
        parse_arguments(text)
    assert preview_arguments(text) is None
    assert arguments_text(text) == json.dumps({"malformed_arguments": text})
    assert arguments_object(text) == {"malformed_arguments": text}


def test_long_texts_and_values_up_to_the_limit_are_read() -> None:
    for value in ({"a": "[{,]}" * 100_000}, {"a": [0] * 9_990}, {"a": ['",[' * 9] * 4_000}):
        assert parse_arguments(json.dumps(value)) == value


@given(st.text(st.sampled_from("a\u00e9😀\ud800\ud83d\udc00\ude00"), max_size=20))
def test_lone_surrogates_are_replaced_like_by_a_utf_16_decoder(text: str) -> None:
    expected = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    assert clean_text(text) == expected
    for length in (65_534, 65_535, 65_536):  # where a long text is taken to pieces
        assert clean_text("é" * length + text) == "é" * length + expected


def test_an_escape_at_a_chunk_boundary_does_not_end_a_string() -> None:
    for text in ('\\"[' * 70_000, "x" * 65_535 + '\\"[' * 9, "\\\\" * 70_000 + '\\"[' * 40, "[" * 99):
        assert find_excess(f'["{text}", [], {{"{text}": [1]}}]', max_depth=3, max_values=8) is None
        assert find_excess(f'["{text}", [[[]]]]', max_depth=3) == "it is nested deeper than 3 levels"
        assert find_excess(f'["{text}", 1, 2, 3, 4, 5, 6]', max_depth=3, max_values=6) == "it holds more than 6 values"

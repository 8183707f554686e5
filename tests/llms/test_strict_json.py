"""JSON from outside: read exactly, or refused with a reason that a person and a model understand."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agenticx.errors import InvalidArguments
from agenticx.llms._bodies import arguments_object, arguments_text
from agenticx.llms.arguments import parse_arguments, preview_arguments, repair_arguments
from agenticx.messages import clean_text
from agenticx.strict_json import clean_json, find_excess, read_json

_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=("Cs",))),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text("abé🎉"), inner, max_size=4),
)  # fmt: skip


@given(_values)
def test_what_was_written_is_read(value: object) -> None:
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
def test_what_two_readers_may_take_for_different_things_is_refused_with_the_reason(text: str) -> None:
    with pytest.raises(ValueError, match=rf"\A{re.escape(REFUSED[text])}\Z"):
        read_json(text, max_depth=8, max_entries=5)


def test_bytes_that_are_no_utf_8_are_refused() -> None:
    with pytest.raises(ValueError, match=r"^it is not UTF-8$"):
        read_json(b'{"a": "\xff"}', max_depth=8)


def test_the_deepest_and_the_fullest_that_is_let_in_is_read() -> None:
    deep = json.loads("[" * 8 + "]" * 8)
    assert read_json(json.dumps(deep), max_depth=8) == deep
    assert read_json("[1, 2, 3, 4, 5]", max_depth=1, max_entries=5) == [1, 2, 3, 4, 5]
    assert read_json("123", max_depth=1, max_digits=3) == 123
    with pytest.raises(ValueError, match=r"^a number in it has more than 3 digits$"):
        read_json("[1234]", max_depth=1, max_digits=3)


def test_half_a_character_becomes_a_replacement_character() -> None:
    assert read_json('{"a\\ud800": ["\\udfff", "\\ud83d\\ude00"]}', max_depth=8) == {"a\ufffd": ["\ufffd", "😀"]}
    assert clean_json({"a": "\ud83d\ude00"}, max_depth=1) == {"a": "😀"}


def test_arguments_are_refused_for_the_same_reasons() -> None:
    with pytest.raises(InvalidArguments, match=r"^the arguments are not valid JSON: the key 'a' appears twice$"):
        parse_arguments('{"a": 1, "a": 2}')


def test_repaired_arguments_hold_no_number_that_is_not_finite() -> None:
    """`1e999` came out of a repair as infinity, and would have gone into the tool and the log."""
    with pytest.raises(InvalidArguments, match=r"a number in it is not finite$"):
        repair_arguments('{"n": 1e999,}')


def test_a_number_of_more_digits_than_keys_have_is_refused() -> None:
    assert parse_arguments(f'{{"key": {"9" * 1_300}}}') == {"key": 10**1_300 - 1}
    with pytest.raises(InvalidArguments, match=r"a number in it has more than 1300 digits$"):
        parse_arguments(f'{{"key": {"9" * 1_301}}}')


MANY = {
    "a list": json.dumps({"a": [0] * 10_000}),
    "lists": json.dumps({"a": [[]] * 5_000, "b": [[]] * 5_000}),
    "objects": json.dumps({"a": [{"b": 1}] * 5_000}),
    "keys": json.dumps({f"k{number}": number for number in range(10_000)}),
}


@pytest.mark.parametrize("text", MANY.values(), ids=MANY)
def test_arguments_of_more_values_than_a_model_writes_are_refused_before_they_are_parsed(text: str) -> None:
    with pytest.raises(InvalidArguments, match=r"^the arguments are not valid JSON: it holds more than 10000 values$"):
        parse_arguments(text)
    assert preview_arguments(text) is None
    assert arguments_text(text) == json.dumps({"malformed_arguments": text})
    assert arguments_object(text) == {"malformed_arguments": text}


def test_long_texts_and_as_many_values_as_are_let_in_are_read() -> None:
    for value in ({"a": "[{,]}" * 100_000}, {"a": [0] * 9_990}, {"a": ['",[' * 9] * 4_000}):
        assert parse_arguments(json.dumps(value)) == value


@given(st.text(st.sampled_from("a\u00e9😀\ud800\ud83d\udc00\ude00"), max_size=20))
def test_what_lone_surrogates_become_is_what_a_decoder_of_utf_16_makes_of_them(text: str) -> None:
    expected = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    assert clean_text(text) == expected
    for length in (65_534, 65_535, 65_536):  # where a long text is taken to pieces
        assert clean_text("é" * length + text) == "é" * length + expected


def test_an_escape_that_a_long_string_is_taken_to_pieces_at_ends_no_string() -> None:
    for text in ('\\"[' * 70_000, "x" * 65_535 + '\\"[' * 9, "\\\\" * 70_000 + '\\"[' * 40, "[" * 99):
        assert find_excess(f'["{text}", [], {{"{text}": [1]}}]', max_depth=3, max_values=8) is None
        assert find_excess(f'["{text}", [[[]]]]', max_depth=3) == "it is nested deeper than 3 levels"
        assert find_excess(f'["{text}", 1, 2, 3, 4, 5, 6]', max_depth=3, max_values=6) == "it holds more than 6 values"

"""render_value(): any return value of a tool becomes bounded, encodable text that gives its true size."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from agenticx.runtime.calls.result_rendering import render_value, truncate

NOTE = 80  # what the note in the middle may add


class Weather(BaseModel):
    city: str
    celsius: float


@dataclass
class Place:
    name: str


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("plain", "plain"),
        ("", ""),
        (None, ""),
        (b"caf\xc3\xa9", "café"),
        (bytearray(b"\xff\x00"), "\ufffd\x00"),
        (0, "0"),
        (True, "true"),
        (1.5, "1.5"),
        ({"a": [1, "é"]}, '{"a": [1, "é"]}'),
        ((1, 2), "[1, 2]"),
        (Weather(city="Łódź", celsius=-3), '{"city":"Łódź","celsius":-3.0}'),
        (Place("here"), "\"Place(name='here')\""),
        (Path("a/b"), json.dumps(repr(Path("a/b")))),
        ({1, 2} - {2}, '"{1}"'),
        ({(1, 2): 3}, "{(1, 2): 3}"),
        ("half \ud800", "half \ufffd"),
        ({"half": "\udfff"}, '{"half": "\ufffd"}'),
    ],
)
def test_supported_return_values_become_text(value, text):
    assert render_value(value, 1_000) == (text, False)


def test_head_tail_and_true_size_of_a_long_text_are_kept():
    text = "a" * 600 + "b" * 600
    assert render_value(text, 1_000) == ("a" * 500 + "\n[… 200 of 1200 characters left out …]\n" + "b" * 500, True)


def test_long_bytes_are_cut_without_decoding_all_of_them():
    text, truncated = render_value(b"x" * 50_000_000, 1_000)
    assert truncated
    assert text == "x" * 1_000 + "\n[… the value has 50000000 bytes; the rest is left out …]"


def test_a_recursive_or_too_deep_value_becomes_text():
    cyclic: list[object] = []
    cyclic.append(cyclic)
    assert render_value(cyclic, 1_000) == ("[[...]]", False)
    nested: list[object] = []
    for _ in range(900):
        nested = [nested]
    assert render_value(nested, 10_000)[0].startswith("[[[")


@given(st.text(), st.integers(200, 300))
def test_text_within_the_limit_is_unchanged(text, limit):
    assert truncate(text, limit)[1] is (len(text) > limit)
    if len(text) <= limit and text.isprintable():
        assert truncate(text, limit) == (text, False)


_any = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary() | st.builds(Place, st.text()),
    lambda inner: st.lists(inner) | st.tuples(inner, inner) | st.dictionaries(st.text() | st.integers(), inner),
    max_leaves=30,
)


@pytest.mark.promise("F4")
@given(_any, st.integers(200, 400))
def test_any_value_becomes_bounded_text_that_can_be_encoded(value, limit):
    text, truncated = render_value(value, limit)
    assert len(text) <= limit + NOTE
    text.encode()
    assert truncated is (len(text) > limit) or "left out" in text


@pytest.mark.promise("F4")
@given(st.binary(max_size=3_000), st.integers(200, 400))
def test_any_bytes_become_bounded_text_that_can_be_encoded(value, limit):
    text, truncated = render_value(value, limit)
    assert len(text) <= limit + NOTE
    text.encode()
    assert truncated or text == value.decode("utf-8", "replace")

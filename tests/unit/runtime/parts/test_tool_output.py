"""render_value(): any return value of a tool becomes bounded, encodable text that gives its true size."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, timedelta
from decimal import Decimal
from enum import Enum
from itertools import count
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from agenticx.attachments import Attachment, make_attachment
from agenticx.errors import AttachmentRefused, AttachmentTooLarge, ToolError
from agenticx.runtime.calls.result_rendering import render_value, truncate
from agenticx.tools import ToolOutput
from tests.support.wires.files import SMALLEST_PNG

NOTE = 80  # what the note in the middle may add


class Weather(BaseModel):
    city: str
    celsius: float


@dataclass
class Place:
    name: str


class Size(NamedTuple):
    width: int
    height: int


class Color(Enum):
    RED = "red"


PNG = SMALLEST_PNG
NOTES = make_attachment("notes.txt", b"two rivers")


def rendered(value: object, limit: int = 1_000) -> tuple[str, bool]:
    output = render_value(value, limit)
    assert output.attachments == ()
    return output.text, output.truncated


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("plain", "plain"),
        ("", ""),
        (None, ""),
        (b"caf\xc3\xa9", "café"),
        (bytearray(b"a\x00b"), "a\x00b"),
        (b"GIF89a is of 1989", "GIF89a is of 1989"),
        (0, "0"),
        (True, "true"),
        (1.5, "1.5"),
        (float("nan"), "NaN"),
        ({"a": [1, "é", float("-inf"), b"bytes"]}, '{"a":[1,"é","-Infinity","bytes"]}'),
        ((1, 2), "[1,2]"),
        (Weather(city="Łódź", celsius=-3), '{"city":"Łódź","celsius":-3.0}'),
        (Place("here"), '{"name":"here"}'),
        (Path("a/b"), str(Path("a/b"))),
        ([Path("a"), Color.RED, Decimal("1.10"), Size(2, 3), {5}], '["a","red","1.10",[2,3],[5]]'),
        (Color.RED, "red"),
        (date(2026, 11, 27), "2026-11-27"),
        ({date(2026, 11, 27): timedelta(hours=1)}, '{"2026-11-27":"PT1H"}'),
        (MappingProxyType({"a": range(2)}), '{"a":[0,1]}'),
        ("half \ud800", "half \ufffd"),
        ({"half": ["\udfff", Path("\udce9")]}, '{"half":["\ufffd","\ufffd"]}'),
    ],
)
def test_supported_return_values_become_text(value, text):
    assert rendered(value) == (text, False)


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (object(), "a value of type object, which has no form as text"),
        ({"rows": [Weather]}, "a value of type ModelMetaclass in a dict, which has no form as text"),
        (b"\xff\x00abc", "bytes that are neither text nor a file"),
        (PNG[:8] + bytes(8), "bytes that are neither text nor a file"),
        (PNG[:-8], "bytes that are neither text nor a file"),
        (bytearray(b"\xff\xd8\xff\xe0 JPEG?"), "bytes that are neither text nor a file"),
        ([PNG[:8]], "a list with bytes or text that are not UTF-8"),
        ({"a": b"\xff"}, "a dict with bytes or text that are not UTF-8"),
        ([lambda: 1], "a value of type function in a list, which has no form as text"),
    ],
)
def test_a_value_without_a_form_is_refused_with_what_can_be_returned(value, problem):
    with pytest.raises(ToolError) as refused:
        render_value(value, 1_000)
    assert str(refused.value).startswith(f"Error: the tool returned {problem}. A tool may return text, numbers, dates")
    assert "load_attachment" in str(refused.value)


@pytest.mark.parametrize("value", [iter([1]), {"rows": map(str, [1])}, Place(count())])  # the last one never ends
def test_an_iterator_is_refused(value):
    with pytest.raises(ToolError, match="it must return a list of its items"):
        render_value(value, 1_000)


@pytest.mark.parametrize(
    ("value", "text", "names"),
    [
        (NOTES, "notes.txt (text/plain, 10 bytes)", ["notes.txt"]),
        (PNG, "result-1.png (image/png, 67 bytes)", ["result-1.png"]),
        (["Both:", NOTES, PNG], "Both:\n{0}\n{1}", ["notes.txt", "result-2.png"]),
        ({"n": 2, "files": (NOTES, PNG)}, '{{"n":2,"files":["{0}","{1}"]}}', ["notes.txt", "result-2.png"]),
        (ToolOutput("Here.", attachments=(NOTES,)), "Here.", ["notes.txt"]),
    ],
)
def test_files_in_a_value_are_files_of_the_result(value, text, names):
    output = render_value(value, 1_000)
    shown = ("notes.txt (text/plain, 10 bytes)", "result-2.png (image/png, 67 bytes)")
    assert output.text == (text.format(*shown) if "{0}" in text else text)
    assert [file.name for file in output.attachments] == names
    assert output.attachments[-1].content() in (PNG, b"two rivers")


def test_files_that_cannot_be_sent_are_refused():
    with pytest.raises(ToolError, match="a file in a Place; return it by itself, in a list or in a dict"):
        render_value(Place(NOTES), 1_000)
    with pytest.raises(AttachmentRefused, match="is sent as image/png, but it is text"):
        render_value(Attachment(name="x.png", media_type="image/png", data="eA=="), 1_000)
    with pytest.raises(AttachmentTooLarge, match="21 files are attached; the limit is 20"):
        render_value([NOTES] * 21, 1_000)


def test_head_tail_and_true_size_of_a_long_text_are_kept():
    text = "a" * 600 + "b" * 600
    assert rendered(text) == ("a" * 500 + "\n[… 200 of 1200 characters left out …]\n" + "b" * 500, True)


def test_long_bytes_are_cut_without_decoding_all_of_them():
    text, truncated = rendered(b"x" * 50_000_000)
    assert truncated
    assert text == "x" * 1_000 + "\n[… the value has 50000000 bytes; the rest is left out …]"


def test_a_recursive_or_too_deep_value_is_refused():
    cyclic: list[object] = []
    cyclic.append(cyclic)
    with pytest.raises(ToolError, match="the tool returned a list that contains itself"):
        render_value(cyclic, 1_000)
    nested: list[object] = []
    for _ in range(5_000):
        nested = [nested]
    with pytest.raises(ToolError, match="the tool returned a list that is nested too deeply"):
        render_value(nested, 10_000)


@given(st.text(), st.integers(200, 300))
def test_text_within_the_limit_is_unchanged(text, limit):
    assert truncate(text, limit)[1] is (len(text) > limit)
    if len(text) <= limit and text.isprintable():
        assert truncate(text, limit) == (text, False)


_any = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.builds(Place, st.text()),
    lambda inner: st.lists(inner) | st.tuples(inner, inner) | st.dictionaries(st.text() | st.integers(), inner),
    max_leaves=30,
)


@pytest.mark.promise("F4")
@given(_any, st.integers(200, 400))
def test_any_value_becomes_bounded_text_that_can_be_encoded(value, limit):
    text, truncated = rendered(value, limit)
    assert len(text) <= limit + NOTE
    text.encode()
    assert truncated is (len(text) > limit) or "left out" in text


@pytest.mark.promise("F4")
@given(st.binary(max_size=3_000), st.integers(200, 400))
def test_any_bytes_are_refused_or_become_bounded_text(value, limit):
    try:
        text, truncated = rendered(value, limit)
    except ToolError:
        with pytest.raises(UnicodeDecodeError):
            value.decode()
        return
    assert len(text) <= limit + NOTE
    text.encode()
    assert truncated or text == value.decode()


@pytest.mark.promise("F4")
@given(st.text(max_size=3_000), st.integers(200, 400))
def test_text_as_bytes_is_bounded_text_wherever_it_is_cut(value, limit):
    text, truncated = rendered(value.encode("utf-8", "replace"), limit)
    assert len(text) <= limit + NOTE
    assert truncated or text == value.encode("utf-8", "replace").decode()

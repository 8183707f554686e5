"""Arguments read while they arrive: any pieces give the same as `parse_arguments` of the whole."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agenticx.errors import InvalidArguments
from agenticx.llms import GrowingArguments, preview_arguments
from agenticx.llms.arguments import parse_arguments

_TOKENS = [
    *'{}[],:"\\ \n019.eE-xu',
    '"a":',
    '"b":',
    '{"a":"',
    "true",
    "null",
    "\\ud83d",
    "\\ude00",
    "\\u00e9",
    "é",
    "\ud83d",
]
_strings = st.text(st.sampled_from('ab\\"/\n 1é🎉\u2028\ufeff\0'))
_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | _strings,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_strings, inner, max_size=3),
    max_leaves=8,
)
_objects = st.dictionaries(_strings, _values, max_size=4)
_json = st.builds(lambda value, ascii: json.dumps(value, ensure_ascii=ascii), _objects, st.booleans())
_almost_json = st.builds(
    lambda text, place, change: text[: place % (len(text) + 1)] + change + text[place % (len(text) + 1) :],
    _json,
    st.integers(0, 400),
    st.sampled_from(_TOKENS),
)
_texts = (
    _json | _almost_json | st.lists(st.sampled_from(_TOKENS), max_size=12).map(lambda tokens: "{" + "".join(tokens))
)


def read(*pieces: str) -> GrowingArguments:
    arguments = GrowingArguments()
    for piece in pieces:
        arguments.add(piece)
    return arguments


def state(arguments: GrowingArguments) -> tuple[object, ...]:
    """Return all that can be seen of arguments; `repr` tells 1 from 1.0 and from True."""
    seen = (dict(arguments), arguments.to_dict(), arguments.open_key, arguments.is_closed, arguments.is_broken)
    return repr(seen), arguments.repeated_key


def states_by_character(text: str) -> list[GrowingArguments]:
    return [read(*text[:end]) for end in range(len(text) + 1)]


@given(_texts, st.lists(st.integers(0, 200), max_size=6))
def test_any_pieces_give_the_same_as_the_whole_text_whenever_somebody_looks(text: str, cuts: list[int]) -> None:
    places = [0, *sorted(cut % (len(text) + 1) for cut in cuts), len(text)]
    looked_at = GrowingArguments()
    for start, end in pairwise(places):
        looked_at.add(text[start:end])
        assert state(looked_at) == state(read(text[:end]))
    assert state(looked_at) == state(read(*text))


@given(_texts)
def test_what_is_complete_is_what_parse_arguments_returns(text: str) -> None:
    arguments = read(text)
    assert not arguments.is_complete
    arguments.end()
    try:
        final = parse_arguments(text)
    except InvalidArguments:
        assert not arguments.is_complete
    else:
        assert arguments.is_complete
        assert repr(dict(arguments)) == repr(arguments.to_dict()) == repr(final)


@given(_texts)
def test_members_are_only_added_and_only_the_open_string_changes(text: str) -> None:
    for earlier, later in pairwise(states_by_character(text)):
        assert [*later][: len(earlier)] == [*earlier]
        for key, value in earlier.items():
            if key != earlier.open_key or earlier.is_broken:
                assert repr(later[key]) == repr(value)
            else:
                assert later[key].startswith(value)
        assert not earlier.is_broken or state(later) == state(earlier)


@given(_texts)
def test_no_preview_shrinks(text: str) -> None:
    """`preview_arguments` went back to the second value of a repeated key."""
    shown = [preview for end in range(len(text) + 1) if (preview := preview_arguments(text[:end])) is not None]
    for earlier, later in pairwise(shown):
        assert is_beginning_of(earlier, later)


def is_beginning_of(earlier: Any, later: Any) -> bool:
    if isinstance(earlier, str):
        return isinstance(later, str) and later.startswith(earlier)
    if isinstance(earlier, list):
        return len(later) >= len(earlier) and all(map(is_beginning_of, earlier, later))
    if isinstance(earlier, dict):
        return all(key in later and is_beginning_of(value, later[key]) for key, value in earlier.items())
    return repr(earlier) == repr(later)


@pytest.mark.parametrize(
    ("text", "members"),
    [
        ('{"a": "long", "a": "', {"a": "long"}),
        ('{"a": "long", "\\u0061": "short"}', {"a": "long"}),
        ('{"a": {"b": 1, "b": 2}, "c": 3}', {}),
        ('{"\\ud800": 1, "\\udfff": 2}', {"\ufffd": 1}),
        ('{"a": "x"} {"a": "y"}', {"a": "x"}),
        ('{"a": "x", }', {"a": "x"}),
        ('{"a": "x\ty"}', {"a": "x"}),
        ('{"a": "x\\ud83d\ny"}', {"a": "x"}),
        ('{"a": "x\\u12_4"}', {"a": "x"}),
        ('{"a": 12x', {}),
        ('{"a": 1 2', {"a": 1}),
        ('{"a": tr ue', {}),
        ('{"a": 01', {}),
        ('{"a": [1, 2}', {}),
        ('\ufeff{"a": 1}', {}),
        ('[{"a": 1}]', {}),
        ('"{\\"a\\": 1}"', {}),
    ],
)
def test_the_members_stay_where_the_text_stops_being_an_object(text: str, members: dict[str, Any]) -> None:
    for arguments in (read(text), read(*text), read(text, ' "', ': "more"}')):
        assert (arguments.is_broken, dict(arguments)) == (True, members)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ('{"a": "x\\', "x"),
        ('{"a": "x\\u00e', "x"),
        ('{"a": "x\\u00e9', "xé"),
        ('{"a": "x\\ud83d', "x"),
        ('{"a": "x\\ud83d\\ude0', "x"),
        ('{"a": "x\\ud83d\\ude00', "x😀"),
        ('{"a": "x\ud83d\\ude00', "x😀"),
        ('{"a": "x\ud83d', "x"),
        ('{"a": "x\\ud83d\\ud83d', "x\ufffd"),
        ('{"a": "x\\ud83dy', "x\ufffdy"),
        ('{"a": "x\\ud83d"', "x\ufffd"),
        ('{"a": "x\\ude00', "x\ufffd"),
    ],
)
def test_no_half_character_is_shown(text: str, shown: str) -> None:
    assert read(text)["a"] == read(*text)["a"] == shown


def test_a_preview_stays_where_a_key_is_repeated() -> None:
    assert preview_arguments('{"a": "long", "a": "s') == {"a": "long"}
    assert preview_arguments('{"a": "long", "a": "short"} and more') == {"a": "long"}
    assert preview_arguments('{"edits": [{"old": "x", "old": "') == {"edits": [{"old": "x"}]}


def test_the_open_member_is_named_from_its_key_to_the_end_of_its_value() -> None:
    text = '{"": [1], "n": 1, "s": "x"}'
    arguments = GrowingArguments()
    keys: list[str | None] = []
    for character in text:
        arguments.add(character)
        keys.append(arguments.open_key)
    assert keys == [None] * 2 + [""] * 5 + [None] * 5 + ["n"] * 4 + [None] * 4 + ["s"] * 5 + [None] * 2


@pytest.mark.parametrize("count", [9_997, 9_998, 9_999, 10_000])
@pytest.mark.parametrize("value", [0, "a", [], {"b": 1}])
def test_the_limits_are_those_of_parse_arguments(count: int, value: object) -> None:
    texts = [json.dumps({"a": [value] * count}), json.dumps({"a": [value] * (count // 2)})]
    texts += ['{"a":' * depth + "1" + "}" * depth for depth in (100, 101)]
    texts += [
        f'{{"a": {sign}{"9" * digits}{more}}}'
        for sign in ("", "-")
        for digits in (1_299, 1_300, 1_301)
        for more in ("", "e-1300")
    ]
    for text in texts:
        arguments = read(text)
        arguments.end()
        try:
            final = parse_arguments(text)
        except InvalidArguments:
            assert arguments.is_broken
        else:
            assert arguments.is_complete
            assert dict(arguments) == final


def test_a_text_is_given_from_an_offset_on() -> None:
    arguments = read('{"n": 1, "done": "é🎉x", "text": "')
    assert [arguments.length(key) for key in ("done", "text")] == [3, 0]
    assert [arguments.text_from("done", offset) for offset in range(5)] == ["é🎉x", "🎉x", "x", "", ""]
    shown = ""
    for character in "no \\ud83c\\udf89 half":
        arguments.add(character)
        shown += arguments.text_from("text", len(shown))
        assert shown == arguments["text"] == arguments.text_from("text", 0)
        assert len(shown) == arguments.length("text")
    assert shown == "no 🎉 half"
    for key in ("n", "unknown"):
        with pytest.raises(KeyError):
            arguments.length(key)
    with pytest.raises(ValueError, match=r"^the offset -1 is negative"):
        arguments.text_from("text", -1)

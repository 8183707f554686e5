"""Tests of number coercion: numbers are converted where nothing is lost, and nothing else is."""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import Annotated, Any, Literal

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field

from agenticx.errors import InvalidArguments
from agenticx.llms.reply_limits import MAX_VALUES
from agenticx.runtime.calls.validation import validate_arguments
from agenticx.tools import tool
from agenticx.tools.coercion import coerce_numbers


class Point(BaseModel):
    x: int
    label: str = ""
    next: Point | None = None


@dataclass
class Box:
    corner: Point
    size: tuple[int, float]


class Cat(BaseModel):
    kind: Literal["cat"]
    lives: int


class Dog(BaseModel):
    kind: Literal["dog"]
    lives: str


class Level(IntEnum):
    LOW = 1


class Mixed(Enum):
    ONE = 1
    TEXT = "1"


def validated_argument(annotation: Any, value: Any) -> Any:
    """Return the argument as a tool gets it, and whether it was converted; raise `InvalidArguments` if refused."""

    def act(value): ...

    act.__annotations__ = {"value": annotation}
    found = validate_arguments(tool(act), {"value": value})
    return found.arguments["value"], found.repaired


@pytest.mark.parametrize(
    ("annotation", "value", "expected"),
    [
        (int, "1", 1),
        (int, "-3", -3),
        (int, "0", 0),
        (int, 1.0, 1),
        (int, -2.0, -2),
        (int, "1.0", 1),
        (int, "1e3", 1000),
        (int, 2.0**53 - 1, 2**53 - 1),
        (int, "9007199254740993", 9007199254740993),
        (float, "1", 1.0),
        (float, "-0.5", -0.5),
        (float, "1E-3", 0.001),
        (int | None, "1", 1),
        (int | None, 1.0, 1),
        (int | bool, "1", 1),
        (int | float, "1.5", 1.5),
        (int | list[str], "1", 1),
        (Literal[1, 2], "2", 2),
        (Literal["a"] | int, "5", 5),
        (Level, "1", Level.LOW),
        (Annotated[int, Field(ge=1)], "1", 1),
        (list[int], ["1", 2, 3.0], [1, 2, 3]),
        (tuple[int, str], ["1", "1"], (1, "1")),
        (dict[str, int], {"a": "1"}, {"a": 1}),
        (dict[str, list[int | None]], {"a": ["1", None]}, {"a": [1, None]}),
        (Point, {"x": "1", "label": "1"}, Point(x=1, label="1")),
        (Point, {"x": 1, "next": {"x": 2.0, "next": {"x": "3"}}}, Point(x=1, next=Point(x=2, next=Point(x=3)))),
        (Box, {"corner": {"x": "1"}, "size": ["2", "0.5"]}, Box(Point(x=1), (2, 0.5))),
        (Cat | list[int], {"kind": "cat", "lives": "9"}, Cat(kind="cat", lives=9)),
    ],
)
def test_a_number_in_another_form_is_converted_without_loss(annotation, value, expected) -> None:
    found, converted = validated_argument(annotation, value)

    assert (found, type(found), converted) == (expected, type(expected), True)


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (int | str, "1"),
        (str | int, "1"),
        (int | str | None, "1"),
        (str, "1"),
        (Any, "1"),
        (Any, 1.0),
        (float, 1.0),
        (int | float, 1.0),
        (list[int | str], ["1", 2]),
        (Literal["1"] | int, "1"),
        (Mixed, "1"),
        (dict[str, Any], {"a": "1"}),
        (Annotated[Cat | Dog, Field(discriminator="kind")], {"kind": "dog", "lives": "9"}),
        (Cat | Dog, {"kind": "dog", "lives": "9"}),
    ],
)
def test_a_valid_value_is_not_converted(annotation, value) -> None:
    found, converted = validated_argument(annotation, value)

    shown = found.model_dump() if isinstance(found, BaseModel) else found.value if isinstance(found, Enum) else found
    assert (shown, type(shown), converted) == (value, type(value), False)


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        *[(float, text) for text in ("9007199254740993", "0.1000000000000000055511151231257827", "1" + "0" * 400)],
        *[(int, text) for text in ("", " 1", "1 ", "+1", "01", "1.", ".5", "1_000", "0x1", "1,5", "one", "١", "1\n")],
        *[
            (int, text)
            for text in ("1.5", "1e-1", "1e400", "1e999999999", "NaN", "Infinity", "true", "null", "9" * 500)
        ],
        (int, "1.00000000000000000001"),
        (int, "1e-400"),
        (int, 1.5),
        (int, 1e20),
        (int, 2.0**53),
        (int, True),
        (int, None),
        (int, ["1"]),
        (float, "1e400"),
        (float, "nan"),
        (float, True),
        (bool, "yes"),
        (bool, "true"),
        (bool, "1"),
        (bool, 1),
        (bool, 1.0),
        (str, 1),
        (str, 1.0),
        (str | None, 1),
        (Literal["1"], 1),
        (Literal[1, 2], "3"),
        (list[int], "1"),
        (list[int], ["1", "x"]),
        (Annotated[int, Field(ge=1)], "0"),
        (Annotated[Cat | Dog, Field(discriminator="kind")], {"kind": "dog", "lives": 9}),
    ],
)
def test_no_other_value_is_converted(annotation, value) -> None:
    with pytest.raises(InvalidArguments):
        validated_argument(annotation, value)


def test_only_values_that_are_invalid_after_the_conversion_are_reported() -> None:
    def act(seats: int, title: str): ...

    with pytest.raises(InvalidArguments, match=r"^'title' should be a valid string, not 5$"):
        validate_arguments(tool(act), {"seats": "2", "title": 5})


def test_the_validate_method_of_a_custom_tool_gets_the_unconverted_value_first() -> None:
    class Lenient:
        schema = tool(lambda: None, name="lenient").schema
        read_only, timeout = True, None
        seen: list[Any] = []  # noqa: RUF012

        def validate(self, arguments):
            self.seen.append(dict(arguments))
            return dict(arguments)

    lenient = Lenient()

    assert validate_arguments(lenient, {"n": "1"}).arguments == {"n": "1"}
    assert lenient.seen == [{"n": "1"}]


def test_a_call_with_too_many_values_is_refused_before_they_are_validated() -> None:
    assert validated_argument(list[int], [1] * (MAX_VALUES - 1)) == ([1] * (MAX_VALUES - 1), False)
    for value in ([1] * MAX_VALUES, [[1] * 100] * 100, {str(n): n for n in range(MAX_VALUES)}):
        with pytest.raises(InvalidArguments, match="the arguments hold more than 10000 values; make several calls"):
            validated_argument(Any, value)


# --- schemas that are not ours ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("schema", "value", "expected"),
    [
        ({"type": ["integer", "null"]}, "1", 1),
        ({"type": ["integer", "string"]}, "1", "1"),
        ({"enum": [1, 2]}, "1", 1),
        ({"const": 1}, "1", 1),
        ({"oneOf": [{"type": "integer"}, {"type": "null"}]}, "1", 1),
        ({"allOf": [{"$ref": "#/$defs/n"}], "$defs": {"n": {"type": "number"}}}, "1.5", 1.5),
        ({"$ref": "#/$defs/a~1b", "$defs": {"a/b": {"type": "integer"}}}, "1", 1),
        ({"type": "array", "prefixItems": [{"type": "integer"}], "items": {"type": "string"}}, ["1", "1"], [1, "1"]),
        ({}, "1", "1"),
        ({"description": "anything"}, "1", "1"),
        ({"type": "integer", "properties": 7, "items": "x"}, {"a": "1"}, {"a": "1"}),
        ({"$ref": "#"}, "1", "1"),
        ({"$ref": "#/$defs/missing"}, "1", "1"),
        ({"$ref": "https://example.com/schema"}, "1", "1"),
        ({"$ref": 5}, "1", "1"),
        ({"anyOf": [True, 5, None, {"type": "integer"}]}, "1", 1),
    ],
)
def test_any_json_schema_is_used_as_far_as_it_is_understood(schema, value, expected) -> None:
    found, changed = coerce_numbers(schema, value)

    assert (found, type(found), changed) == (expected, type(expected), expected is not value and expected != value)


def test_a_schema_that_refers_to_itself_in_every_branch_is_walked_in_linear_time() -> None:
    names = [f"n{number}" for number in range(20)]
    branches = [{"$ref": f"#/$defs/{name}"} for name in names]
    node = {"type": "object", "properties": {"next": {"anyOf": branches}, "value": {"type": "integer"}}}
    schema = {"anyOf": branches, "$defs": {name: dict(node) for name in names}}
    value: dict[str, Any] = {"value": "0"}
    for _ in range(90):
        value = {"next": value, "value": "1"}

    found, changed = coerce_numbers(schema, value)

    assert (found["next"]["value"], changed) == (1, True)


scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.integers().map(str)
values = st.recursive(
    scalars, lambda inner: st.lists(inner) | st.dictionaries(st.text(max_size=2), inner), max_leaves=8
)
types = st.sampled_from([{"type": name} for name in ("integer", "number", "string", "boolean", "null")] + [{}])
schemas = st.recursive(
    types,
    lambda inner: (
        st.builds(lambda item: {"type": "array", "items": item}, inner)
        | st.builds(lambda item: {"type": "object", "additionalProperties": item}, inner)
        | st.builds(lambda one, other: {"anyOf": [one, other]}, inner, inner)
    ),
    max_leaves=6,
)


@given(schemas, values)
def test_valid_values_stay_unchanged_and_converted_numbers_stay_equal(schema, value) -> None:
    found, changed = coerce_numbers(schema, value)

    if jsonschema.Draft202012Validator(schema).is_valid(value):
        assert as_numbers(found) == as_numbers(value)
    assert changed == (json.dumps(found) != json.dumps(value))
    assert as_numbers(found) == as_numbers(value)


def as_numbers(value: Any) -> Any:
    """Return the value with each numeral parsed as a number, so that only lost digits make a difference."""
    if isinstance(value, list):
        return [as_numbers(entry) for entry in value]
    if isinstance(value, dict):
        return {name: as_numbers(member) for name, member in value.items()}
    if isinstance(value, str):
        try:
            return json.loads(value) if json.loads(value).__class__ in (int, float) else value
        except ValueError:
            return value
    return value

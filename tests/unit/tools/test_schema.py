"""Tests of the schemas made from signatures, and of the error messages for invalid arguments."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any, Literal

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field

from agenticx.errors import InvalidArguments
from agenticx.tools import ToolContext as Context
from agenticx.tools.schema import read_signature

if TYPE_CHECKING:
    from agenticx.tools import ToolContext


def book(
    title: Annotated[str, Field(min_length=1)],
    seats: int,
    context: Context,
    kind: Literal["train", "bus"] = "train",
    price: Annotated[float | None, "the most it may cost"] = None,
) -> str:
    """Book seats.

    Twice if need be.

    Args:
        title: What it is called,
            in full.
        seats (int): How many: a number.
        price: Not this text, the annotation wins.

    Returns:
        A number.
    """
    return f"{title} {seats} {kind} {price} {context}"


def test_a_signature_becomes_the_schema_that_a_model_sees() -> None:
    signature = read_signature(book)

    assert signature.description == "Book seats.\n\nTwice if need be."
    assert signature.parameters == {
        "type": "object",
        "additionalProperties": False,
        "required": ["title", "seats"],
        "properties": {
            "title": {"type": "string", "minLength": 1, "description": "What it is called, in full."},
            "seats": {"type": "integer", "description": "How many: a number."},
            "kind": {"type": "string", "enum": ["train", "bus"], "default": "train"},
            "price": {
                "anyOf": [{"type": "number"}, {"type": "null"}],
                "default": None,
                "description": "the most it may cost",
            },
        },
    }
    jsonschema.Draft202012Validator.check_schema(signature.parameters)


@pytest.mark.parametrize(
    ("docstring", "left", "right"),
    [
        (
            "Args:\n    left: The first one,\n        in full.\n    right (int): The other: one.",
            "The first one, in full.",
            None,
        ),
        (
            "Parameters\n----------\nleft : int\n    The first one,\n    in full.\nright\n    The other: one.",
            None,
            None,
        ),
        (
            ":param left: The first one,\n    in full.\n:param int right: The other: one.\n:returns: No more.",
            None,
            None,
        ),
        (
            "Parameters\n----------\nleft, right : int, optional\n    One.\n\nReturns\n-------\nint\n    A sum.",
            "One.",
            "One.",
        ),
        ("Keyword Args:\n    left: One.\n\nReturns:\n    right: Not a parameter.", "One.", ""),
        ("Args:\n    left: One.\nReturns: A sum.\n    right: Not a parameter.", "One.", ""),
    ],
    ids=["google", "numpy", "rest", "several names", "other sections", "a section on one line"],
)
def test_docstrings_in_google_numpy_and_rest_form_describe_the_parameters(docstring, left, right) -> None:
    def add(left: int, right: int = 0) -> int:
        return left + right

    add.__doc__ = f"Add numbers.\n\nNote: twice.\n\n{docstring}"
    signature = read_signature(add)

    assert signature.description == "Add numbers.\n\nNote: twice."
    described = [signature.parameters["properties"][name].get("description") for name in ("left", "right")]
    assert described == [left or "The first one, in full.", "The other: one." if right is None else right or None]


def test_valid_arguments_come_out_as_given_and_defaults_stay_the_functions_own() -> None:
    assert read_signature(book).validate({"title": "x", "seats": 2}) == {"title": "x", "seats": 2}
    assert read_signature(book).validate({"title": "x", "seats": 2, "price": 3}) == {
        "title": "x",
        "seats": 2,
        "price": 3.0,
    }


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"title": "x"}, "'seats' is missing: How many: a number."),
        ({"title": "x", "seats": "2"}, "'seats' should be a valid integer, not '2'"),
        ({"title": "x", "seats": 2.0}, "'seats' should be a valid integer, not 2.0"),
        ({"title": "x", "seats": True}, "'seats' should be a valid integer, not True"),
        ({"title": 5, "seats": 2}, "'title' should be a valid string, not 5"),
        ({"title": "x", "seats": None}, "'seats' should be a valid integer, not None"),
        ({"title": "x", "seats": 1, "kind": "boat"}, "'kind' should be 'train' or 'bus', not 'boat'"),
        ({"title": "x", "seats": 1, "price": float("nan")}, "'price' should be a finite number, not nan"),
        (
            {"title": "x", "seats": 1, "context": {}},
            "'context' is not an argument of this tool; its arguments are: title, seats, kind, price",
        ),
        (
            {},
            "'title' is missing: What it is called, in full.; 'seats' is missing: How many: a number.",
        ),
        ({"title": "x", "seats": {1, 2}}, "the arguments are not JSON: Object of type set is not JSON serializable"),
    ],
)
def test_invalid_arguments_are_refused_with_the_expected_type(arguments, sentence) -> None:
    with pytest.raises(InvalidArguments) as caught:
        read_signature(book).validate(arguments)
    assert str(caught.value) == sentence


def test_a_long_value_and_many_mistakes_are_cut() -> None:
    def many(a: int, b: int, c: int, d: int, e: int) -> None: ...

    with pytest.raises(InvalidArguments) as caught:
        read_signature(many).validate({"a": "x" * 500, "b": 1})
    assert str(caught.value).endswith("'d' is missing: integer; and 1 more")
    assert len(str(caught.value)) < 200


def test_the_values_of_very_many_mistakes_are_not_shown() -> None:
    def many(numbers: list[int]) -> None: ...

    with pytest.raises(InvalidArguments) as caught:
        read_signature(many).validate({"numbers": ["x"] * 5000})
    first = "; ".join(f"'numbers.{n}' should be a valid integer" for n in range(3))
    assert str(caught.value) == f"{first}; and 4997 more"


@pytest.mark.parametrize(
    "annotation", ["ToolContext", "tools.ToolContext", "ToolContext | None", Context, Context | None]
)
def test_a_context_is_injected_for_every_annotation_and_not_in_the_schema(annotation, workspace) -> None:
    def act(place: str, anything): ...

    act.__annotations__ = {"place": "str", "anything": annotation}
    signature = read_signature(act)
    context = Context(workspace=workspace)

    assert list(signature.parameters["properties"]) == ["place"]
    assert signature.inject({"place": "x"}, context) == {"place": "x", "anything": context}


def test_a_context_imported_under_type_checking_is_recognised() -> None:
    def act(inside: ToolContext) -> None: ...

    assert read_signature(act).context_name == "inside"


def test_context_variables_are_injected_from_the_session(workspace) -> None:
    def act(context_variables: dict[str, Any]) -> None: ...

    context = Context(workspace=workspace)
    context.state.context_variables["user"] = "ada"
    signature = read_signature(act)

    assert signature.parameters == {"type": "object", "additionalProperties": False, "properties": {}}
    assert signature.inject({}, context) == {"context_variables": {"user": "ada"}}


def test_parameters_may_have_the_names_of_pydantic_attributes() -> None:
    def act(schema: str, model_config: int, copy: bool, _private: int, json: str = "") -> None: ...

    arguments = {"schema": "s", "model_config": 1, "copy": True, "_private": 2}
    assert read_signature(act).validate(arguments) == arguments


class Colour(Enum):
    RED = "red"


class Point(BaseModel):
    x: int
    y: int = 0


@dataclass
class Box:
    corner: Point


def test_structured_parameters_are_validated_deeply() -> None:
    def draw(box: Box, colour: Colour, tags: list[str], named: dict[str, Point]) -> None: ...

    validated = read_signature(draw).validate(
        {"box": {"corner": {"x": 1}}, "colour": "red", "tags": ["a"], "named": {"p": {"x": 2, "y": 3}}}
    )
    assert validated == {"box": Box(Point(x=1)), "colour": Colour.RED, "tags": ["a"], "named": {"p": Point(x=2, y=3)}}
    with pytest.raises(InvalidArguments, match=r"^'box\.corner\.x' should be a valid integer, not '1'$"):
        read_signature(draw).validate({"box": {"corner": {"x": "1"}}, "colour": "red", "tags": [], "named": {}})


def test_methods_partials_callable_objects_and_closures_are_described() -> None:
    @dataclass
    class Local:
        x: int

    class Thing:
        def method(self, n: int) -> int:
            """Method."""
            return n

        def __call__(self, n: Local) -> Local:
            """Call."""
            return Local(n.x)  # without this, no closure holds the name that the annotation needs

    assert list(read_signature(Thing().method).parameters["properties"]) == ["n"]
    assert list(read_signature(functools.partial(Thing().method)).parameters["properties"]) == ["n"]
    assert read_signature(Thing()).validate({"n": {"x": 1}}) == {"n": Local(1)}


def test_a_function_may_use_a_closure_variable_without_a_value_yet() -> None:
    def use(n: int) -> int:
        return n + later

    signature = read_signature(use)
    later = 1

    assert signature.validate({"n": 1}) == {"n": 1}
    assert use(1) == 1 + later


def test_an_unsupported_signature_is_refused_with_the_parameter() -> None:
    def star(*paths: str) -> None: ...

    def unknown(x: "Nowhere") -> None: ...  # noqa: F821, UP037

    def weird(x: threading.Lock) -> None: ...  # noqa: F821

    def field(x: int = Field(5)) -> None: ...

    with pytest.raises(TypeError, match=r"\*paths: .* of a tool has no single name"):
        read_signature(star)
    with pytest.raises(TypeError, match=r"parameter 'x' of '.*unknown' cannot be resolved"):
        read_signature(unknown)
    with pytest.raises(TypeError, match="cannot be resolved"):
        read_signature(weird)
    with pytest.raises(TypeError, match=r"write parameter 'x' of a tool as `Annotated\["):
        read_signature(field)


class Cart:
    """A class of an application, which pydantic does not know."""


def test_a_parameter_that_no_model_can_pass_is_refused_with_what_its_author_can_do() -> None:
    def plain(count: int, cart: Cart) -> None: ...

    def function(count: int, then: Callable[[], None]) -> None: ...

    for tool, name in [(plain, "cart"), (function, "then")]:
        with pytest.raises(
            TypeError, match=rf"^parameter '{name}' of '.*' has a type .* `context\.deps` of"
        ) as refused:
            read_signature(tool)
        assert "arbitrary_types_allowed" not in str(refused.value)


def test_the_schema_is_the_same_each_time() -> None:
    assert str(read_signature(book).parameters) == str(read_signature(book).parameters)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from(["title", "seats", "kind", "price", "other"]), json_values))
def test_the_validator_accepts_what_the_schema_accepts_and_nothing_else(arguments) -> None:
    signature = read_signature_once()
    fits_schema = jsonschema.Draft202012Validator(signature.parameters).is_valid(arguments)
    try:
        signature.validate(arguments)
        fits = True
    except InvalidArguments:
        fits = False
    # JSON Schema takes 1.0 for an integer; we do not.
    whole = isinstance(arguments.get("seats"), float)
    lone = any(0xD800 <= ord(c) < 0xE000 for c in str(arguments))
    assert fits == (fits_schema and not whole) or lone


@functools.cache
def read_signature_once():
    return read_signature(book)

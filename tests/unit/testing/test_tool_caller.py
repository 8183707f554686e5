"""Tests of the test model: it calls every tool once with arguments that fit, and then answers."""

from __future__ import annotations

import json
import re
from datetime import date
from enum import Enum
from typing import Annotated, Any, Literal

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import AfterValidator, BaseModel, Field, TypeAdapter, WithJsonSchema

from agenticx import AgentRuntime, Session, TurnError, builtin_tools, tool
from agenticx.llms.tool_caller.pattern_values import text_of_pattern
from agenticx.llms.tool_caller.schema_values import value_of_schema
from agenticx.testing import TestModel, outline


def _check_odd(number: int) -> int:
    if number % 2 == 0:
        raise ValueError("must be odd")
    return number


class Kind(Enum):
    TRAIN = "train"


class Stop(BaseModel):
    name: Annotated[str, Field(min_length=3)]
    day: date
    next: Stop | None = None


@tool(risk="read")
def book(
    stops: Annotated[list[Stop], Field(min_length=1)],
    kind: Kind,
    seats: Annotated[int, Field(gt=2, multiple_of=5)],
    seat_class: Literal["first", "second"],
    where: tuple[float, bool],
    note: str = "none",
) -> dict[str, Any]:
    """Book."""
    return {"seats": seats, "stops": stops, "kind": kind}


@tool(risk="read")
def look() -> str:
    """Look."""
    return "here"


def test_every_tool_is_called_once_with_arguments_of_its_schema_and_the_results_are_the_answer() -> None:
    model = TestModel()
    result = AgentRuntime(model, tools=[book, look]).run_sync("Go.")
    assert json.loads(result.text) == {
        "book": '{"seats":5,"stops":[{"name":"aaa","day":"2024-01-01","next":null}],"kind":"train"}',
        "look": "here",
    }
    called = ["tool_call_delta", "tool_call", "tool_call", "tool_result", "tool_result"]
    assert outline(result.events) == ["turn_started", "round_start", *called, "round_start", "token", "final"]
    assert [len(request.messages) for request in model.requests] == [1, 4]


def test_by_name_it_is_there_where_the_demo_is(tmp_path) -> None:
    session = Session(workspace=tmp_path)
    runtime = AgentRuntime("test", tools=[look])
    assert [runtime.run_sync(text, session).text for text in ("Go.", "Again.")] == ['{"look":"here"}'] * 2
    assert AgentRuntime("test").run_sync("Go.").text == "No tools were called."
    assert AgentRuntime("test").run_sync("Go.", output_type=Stop).output == Stop(name="aaa", day=date(2024, 1, 1))


def test_only_chosen_tools_are_called_and_the_answer_may_be_given() -> None:
    model = TestModel(call_tools=["look"], text="Done.")
    result = AgentRuntime(model, tools=[book, look]).run_sync("Go.")
    assert result.text == "Done."
    assert [event.data["name"] for event in result.events if event.type == "tool_call"] == ["look"]
    with pytest.raises(TypeError, match="call_tools must be a list of names of tools"):
        TestModel(call_tools="look")  # type: ignore[arg-type]


def test_a_schema_without_a_finite_value_is_an_error_that_says_so() -> None:
    class Endless(BaseModel):
        inner: Endless

    Endless.model_rebuild(_types_namespace={"Endless": Endless})
    with pytest.raises(TurnError, match="cannot make the answer: no finite value fits the schema"):
        AgentRuntime("test").run_sync("Go.", output_type=Endless)


@tool(risk="read")
def ship(code: Annotated[str, Field(pattern=r"^[A-Z]{2}-\d{4}$")]) -> str:
    """Ship."""
    return f"shipped {code}"


@tool(risk="read")
def sign_up(password: Annotated[str, WithJsonSchema({"type": "string", "pattern": r"^(?=.*\d).{8,}$"})]) -> str:
    """Sign up."""
    return "signed up"


@tool(risk="read")
def even(number: Annotated[int, AfterValidator(_check_odd)]) -> str:
    """Take an odd number."""
    return "odd"


@tool(risk="read")
def broken() -> str:
    """Break."""
    raise KeyError("no database")


def test_a_tool_is_called_with_a_text_of_its_pattern_and_one_that_cannot_be_called_fails_the_turn() -> None:
    assert AgentRuntime("test", tools=[ship]).run_sync("Go.").text == '{"ship":"shipped AA-0000"}'
    with pytest.raises(
        TurnError, match=r"cannot make the arguments of 'sign_up': no text .*: it looks ahead or behind; "
    ):
        AgentRuntime("test", tools=[look, sign_up]).run_sync("Go.")
    with pytest.raises(TurnError, match=r"the tool 'even' was not run, as it refuses .* must be odd"):
        AgentRuntime("test", tools=[look, even]).run_sync("Go.")
    result = AgentRuntime("test", tools=[look, broken]).run_sync("Go.")
    assert "Error: tool 'broken' raised KeyError" in json.loads(result.text)["broken"]
    failed = [event.data["name"] for event in result.events if event.type == "tool_result" and event.data["is_error"]]
    assert failed == ["broken"]


PATTERN_PARTS = st.sampled_from([r"\d", r"\w", r"[a-f]", r"[^a]", r"\S", ".", "x", r"\.", r"\s", "(?:ab|c)", "(d|e)"])
REPEATS = st.sampled_from(["", "?", "*", "+", "{2}", "{1,3}", "{2,}?"])


@given(st.lists(st.tuples(PATTERN_PARTS, REPEATS), max_size=6), st.integers(0, 20))
def test_a_text_of_a_pattern_matches_it(parts: list[tuple[str, str]], least: int) -> None:
    pattern = "".join(part + repeat for part, repeat in parts)
    text = text_of_pattern(f"^{pattern}$", min_length=least)
    assert re.fullmatch(pattern, text, re.DOTALL)
    assert len(text) >= least or not any(repeat in ("*", "+", "{2,}?") for _, repeat in parts)


@pytest.mark.parametrize(
    "pattern", ["(?=a)b", "(a{1000}){1000}", "a^b", r"[^\s\S]", "(" * 600, "a" * 2000, r"a\bb", "a$b"]
)
def test_a_pattern_without_a_text_is_an_error_that_names_it(pattern: str) -> None:
    with pytest.raises(ValueError, match=r"no text is made for the pattern|cannot be read|is not read"):
        text_of_pattern(pattern)


@pytest.mark.parametrize("made", [*builtin_tools(), book], ids=lambda made: made.schema.name)
def test_the_arguments_of_all_builtin_tools_fit_their_schemas(made) -> None:
    made.validate(value_of_schema(made.schema.parameters))


@given(st.integers(-50, 50), st.integers(0, 50), st.integers(1, 7))
def test_numbers_are_within_their_limits(low: int, width: int, step: int) -> None:
    high = low + step + width
    schema = {"type": "integer", "minimum": low, "maximum": high, "multipleOf": step}
    jsonschema.validate(value_of_schema(schema), schema)


@pytest.mark.parametrize(
    "declared",
    [
        Annotated[float, Field(gt=0.2, lt=0.9)],
        Annotated[int, Field(lt=-3)],
        Annotated[list[str], Field(min_length=3)],
        Annotated[set[int], Field(min_length=2)],
        Annotated[set[Annotated[str, Field(pattern="^[a-z]+$")]], Field(min_length=3)],
        Annotated[str, Field(pattern="^[a-z]+@[a-z]+$", min_length=6, max_length=6)],
        dict[str, int],
        int | str | None,
        Annotated[str, Field(max_length=0)],
        Any,
    ],
    ids=str,
)
def test_values_of_schemas_are_valid(declared: Any) -> None:
    adapter = TypeAdapter(declared)
    adapter.validate_python(value_of_schema(adapter.json_schema()))

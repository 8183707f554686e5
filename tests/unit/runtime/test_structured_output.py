"""Turns that end in an object: requested as JSON or as a call, validated, requested again, given up."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field, TypeAdapter, field_validator
from typing_extensions import TypedDict

from agenticx.errors import InvalidArguments, StoreError
from agenticx.llms import ChatDialect, OpenAIChatModel, OutputSchema
from agenticx.runtime.structured_output import ACCEPTED, NOT_ALONE, OUTPUT_CUT, OutputType
from agenticx.testing import FakeOpenAIServer, ScriptedModel, call, collect, finish, outline, say
from agenticx.tools import tool

pytestmark = [pytest.mark.anyio, pytest.mark.promise("B7")]


class City(BaseModel):
    """A place."""

    name: str
    founded: date | None = None
    people: int = Field(ge=0)


class Place(TypedDict):
    name: str


@dataclass
class Point:
    x: float
    y: float = 0.0


class Node(BaseModel):
    value: int
    next: Node | None = None


class Touchy(BaseModel):
    name: str

    @field_validator("name")
    @classmethod
    def _break(cls, value: str) -> str:
        raise ZeroDivisionError(value)


@tool(risk="read")
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


class HeldModel(ScriptedModel):
    """A model that can be held to a schema."""

    def takes_output_schema(self, output: OutputSchema, *, with_tools: bool) -> bool:
        return True


ROME = {"name": "Rome", "founded": "2026-01-02", "people": 3}
ROME_TEXT = json.dumps(ROME)
BAD = {"name": "Rome", "people": -1}
FAULT = "people: Input should be greater than or equal to 0"


# --- as a call --------------------------------------------------------------------------------------------------------


async def test_a_submitted_call_is_the_answer_and_is_not_run(play):
    run = await play([[say("Here."), call("submit_output", ROME)]], tools=[add], output_type=City)

    assert outline(run.events, state=True, detail=True) == [
        "turn_started",
        "round_start",
        "state:planning",
        "state:responding",
        "token",
        "tool_call_delta",
        "state:executing",
        "tool_call:submit_output",
        "tool_result:ok",
        "state:observing",
        "state:done",
        "final:answer",
    ]
    assert run.terminal["output"] == ROME
    assert run.terminal["text"] == "Here."
    assert run.results == [("call_1", "ok", ACCEPTED)]
    assert run.rows == [("user", "go"), ("assistant", "Here.", ["submit_output"]), ("tool", "call_1", "ok", ACCEPTED)]
    offered = run.model.requests[0].tools
    assert [schema.name for schema in offered] == ["add", "submit_output"]
    assert offered[1].description.endswith("it ends the work. A place.")
    assert offered[1].parameters["required"] == ["name", "people"]
    assert run.model.requests[0].output_schema is None


async def test_tools_run_before_the_answer(play):
    run = await play([[call("add", {"a": 1, "b": 2})], [call("submit_output", ROME)]], tools=[add], output_type=City)

    assert run.outline == [
        *["turn_started", "round_start", "tool_call_delta", "tool_call:add", "tool_result:ok"],
        *["round_start", "tool_call_delta", "tool_call:submit_output", "tool_result:ok", "final:answer"],
    ]
    assert run.terminal["output"] == ROME


async def test_a_model_that_calls_an_unknown_tool_is_reminded_of_the_output_tool(play):
    script = [call(""), call("nope"), call("submit_output", ROME)]
    run = await play(script, tools=[add], output_type=City)

    reminder = "[reminder] Your last call named no tool or could not be read. The tools are: add, submit_output."
    assert run.rows[1] == ("reminder", reminder)
    assert run.results[0] == ("call_2", "unknown_tool", "unknown tool 'nope'; known tools: add, submit_output")
    assert run.terminal["output"] == ROME


async def test_a_model_that_answers_in_json_has_no_output_tool(play):
    run = await play(HeldModel([call(""), ROME_TEXT]), output_type=City)

    reminder = "[reminder] Your last call named no tool or could not be read. The tools are: none; answer in text."
    assert run.rows[1] == ("reminder", reminder)
    assert run.terminal["output"] == ROME


async def test_an_answer_submitted_together_with_other_calls_is_not_accepted(play):
    run = await play(
        [
            [call("submit_output", BAD), call("add", {"a": 1, "b": 2})],
            [call("submit_output", ROME), call("submit_output", ROME)],
            [call("submit_output", ROME)],
        ],
        tools=[add],
        output_type=City,
    )

    assert [outcome for _, outcome, _ in run.results] == ["error", "ok", "error", "error", "ok"]
    assert run.results[0][2] == NOT_ALONE
    assert run.terminal["output"] == ROME


async def test_an_invalid_answer_is_reported_and_the_second_attempt_counts(play):
    run = await play([[call("submit_output", BAD)], [call("submit_output", ROME)]], output_type=City)

    assert run.outline == [
        *["turn_started", "round_start", "tool_call_delta", "tool_call:submit_output", "tool_result:invalid_arguments"],
        *["round_start", "tool_call_delta", "tool_call:submit_output", "tool_result:ok", "final:answer"],
    ]
    assert run.results[0] == ("call_1", "invalid_arguments", f"Rejected: {FAULT}")
    assert run.terminal["output"] == ROME


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ('{"name": "Rome", "people": ', "Rejected: the answer is not valid JSON"),
        ('{"name": "Rome", "people": 1, "people": 2}', "Rejected: the answer is not valid JSON: the key 'people'"),
        ('{"name": "Rome", "people": NaN}', "Rejected: the answer is not valid JSON: NaN is not a JSON number"),
        ("", "Rejected: name: Field required; people: Field required"),
    ],
)
async def test_malformed_answers_are_never_repaired(play, arguments, sentence):
    run = await play([[call("submit_output", arguments)], [call("submit_output", ROME)]], output_type=City)

    _, outcome, text = run.results[0]
    assert outcome == "invalid_arguments"
    assert text.startswith(sentence)
    assert run.terminal["output"] == ROME


async def test_a_third_invalid_answer_is_a_bad_reply(play):
    run = await play([[call("submit_output", BAD)]] * 3, output_type=City)

    assert run.outline[-3:] == ["tool_call:submit_output", "tool_result:invalid_arguments", "error:provider.bad_reply"]
    assert run.terminal["text"] == f"the model gave no usable City in 3 tries; the last: {FAULT}"
    assert len(run.model.requests) == 3


async def test_an_answer_cut_by_the_output_limit_is_not_accepted(play):
    run = await play([[call("submit_output", ROME), finish("length")], [call("submit_output", ROME)]], output_type=City)

    assert run.results[0] == ("call_1", "invalid_arguments", OUTPUT_CUT)
    assert run.terminal["output"] == ROME


async def test_valid_text_is_accepted_in_place_of_a_call_and_other_text_causes_a_reminder(play):
    run = await play([say("Rome."), say(f"```json\n{ROME_TEXT}\n```")], output_type=City)

    assert run.outline == ["turn_started", "round_start", "token", "round_start", "token", "final:answer"]
    assert run.rows[:2] == [("user", "go"), ("assistant", "Rome.")]
    assert run.rows[2][0] == "reminder"
    assert run.rows[2][1].startswith("[reminder] The answer must come as a call of submit_output")
    assert run.terminal["output"] == ROME


async def test_a_tool_with_the_name_of_the_output_tool_keeps_its_name(play):
    @tool(risk="read")
    def submit_output(text: str) -> str:
        """Return the text."""
        return text

    run = await play(
        [[call("submit_output", {"text": "a"})], [call("submit_output_", ROME)]],
        tools=[submit_output],
        output_type=City,
    )
    assert run.results == [("call_1", "ok", "a"), ("call_2", "ok", ACCEPTED)]
    assert run.terminal["output"] == ROME


# --- as JSON ----------------------------------------------------------------------------------------------------------


async def test_a_model_with_structured_output_answers_in_text(play):
    run = await play(
        HeldModel([[call("add", {"a": 1, "b": 2})], say(ROME_TEXT, pieces=2)]), tools=[add], output_type=City
    )

    assert run.outline == [
        *["turn_started", "round_start", "tool_call_delta", "tool_call:add", "tool_result:ok"],
        *["round_start", "token", "final:answer"],
    ]
    assert run.terminal["output"] == ROME
    assert run.terminal["text"] == ROME_TEXT
    assert [[schema.name for schema in request.tools] for request in run.model.requests] == [["add"], ["add"]]
    assert run.model.requests[0].output_schema.name == "City"


async def test_invalid_text_causes_one_reminder(play):
    run = await play(HeldModel([say(json.dumps(BAD)), say(""), say(ROME_TEXT)]), output_type=City)

    assert run.outline == [
        *["turn_started", "round_start", "token", "round_start", "round_start", "token", "final:answer"],
    ]
    assert [row[0] for row in run.rows] == ["user", "assistant", "reminder", "reminder", "assistant"]
    assert FAULT in run.rows[2][1]
    assert '"required":["name","people"]' in run.rows[2][1]
    assert "the answer is empty" in run.rows[3][1]
    assert run.terminal["output"] == ROME


async def test_text_that_is_never_valid_is_a_bad_reply(play):
    run = await play(HeldModel([say("no")] * 3), output_type=City)

    assert run.outline[-2:] == ["token", "error:provider.bad_reply"]
    assert run.terminal["fatal"] is True


async def test_text_that_the_output_limit_cut_is_partial_and_has_no_output(play):
    run = await play(HeldModel([[say(ROME_TEXT[:9]), finish("length")]]), output_type=City)

    assert run.outline == ["turn_started", "round_start", "token", "final:partial"]
    assert "output" not in run.terminal


async def test_an_exhausted_turn_has_a_partial_answer_in_text(play):
    run = await play(
        HeldModel([[call("add", {"a": 1, "b": 2})], say("Not yet.")]),
        tools=[add],
        output_type=City,
        max_tool_rounds=1,
        settings={"on_exhausted": "partial"},
    )
    assert run.outline[-2:] == ["token", "final:partial"]
    assert "output" not in run.terminal
    assert run.model.requests[-1].output_schema is None


async def test_without_output_type_there_is_no_output(play):
    run = await play(HeldModel([say(ROME_TEXT)]))
    assert "output" not in run.terminal
    assert run.model.requests[0].output_schema is None


# --- types ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("type_", "text", "value"),
    [
        (City, '{"name": "a", "people": "7"}', {"name": "a", "founded": None, "people": 7}),
        (Place, '{"name": "a"}', {"name": "a"}),
        (Point, '{"x": 1}', {"x": 1.0, "y": 0.0}),
        (Node, '{"value": 1, "next": {"value": 2}}', {"value": 1, "next": {"value": 2, "next": None}}),
        (dict[str, int], '{"a": 1}', {"a": 1}),
    ],
)
def test_any_type_whose_schema_is_an_object_is_accepted(type_: Any, text: str, value: Any) -> None:
    output = OutputType(type_)
    assert output.schema.schema["type"] == "object"
    assert output.read(text) == value


@pytest.mark.parametrize(
    ("type_", "text", "value"),
    [
        (int, '{"value": 7}', 7),
        (list[City], '{"value": [{"name": "a", "people": 1}]}', [City(name="a", people=1)]),
        (City | None, '{"value": null}', None),
        (City | Node, '{"value": {"value": 1}}', Node(value=1)),
        (Any, '{"value": "x"}', "x"),
    ],
)
def test_a_type_whose_schema_is_no_object_is_the_value_of_one(type_: Any, text: str, value: Any) -> None:
    output = OutputType(type_)
    assert (output.schema.schema["type"], output.schema.schema["required"]) == ("object", ["value"])
    assert output.read(text) == TypeAdapter(type_).dump_python(value, mode="json")
    assert output.value == value


def test_an_object_without_the_value_is_a_problem() -> None:
    with pytest.raises(InvalidArguments, match="value: Field required"):
        OutputType(int).read('{"number": 7}')


PLACE_SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "people": {"$ref": "#/$defs/Count"}},
    "required": ["name", "people"],
    "$defs": {"Count": {"type": "integer", "minimum": 0}},
}


async def test_a_json_schema_asks_for_a_value_that_fits_it(play):
    bad, good = {"name": 3, "people": -1}, {"name": "Rome", "people": 2}
    run = await play([[call("submit_output", bad)], [call("submit_output", good)]], output_type=PLACE_SCHEMA)
    assert run.results[0][1:] == (
        "invalid_arguments",
        "Rejected: name: 3 is not of type 'string'; people: -1 is less than the minimum of 0",
    )
    assert run.terminal["output"] == good
    assert OutputType({"type": "array", "items": {"type": "integer"}}).read('{"value": [1]}') == [1]


@pytest.mark.parametrize(
    ("schema", "sentence"),
    [
        ({"type": "nothing"}, "the schema is not a valid JSON Schema: type: 'nothing' is not valid"),
        ({"$ref": "#/$defs/None"}, "the schema refers to '#/$defs/None', which is not in it"),
        ({"properties": {"a": {"$ref": "https://example.org/a.json"}}}, "refers to 'https://example.org/a.json'"),
    ],
)
def test_a_schema_that_is_not_valid_or_refers_to_another_document_is_refused(schema: Any, sentence: str) -> None:
    with pytest.raises(ValueError, match=re.escape(sentence)):
        OutputType(schema)


@pytest.mark.parametrize("type_", [Callable[[], int], threading.Lock, "Nowhere"])
async def test_a_type_that_pydantic_cannot_validate_is_a_type_error_before_the_turn_begins(play, type_):
    session = play.session()
    with pytest.raises(TypeError, match="output_type"):
        await collect(play.runtime(ScriptedModel()).run_turn("go", session, output_type=type_))
    assert session.messages == []
    await collect(play.runtime(ScriptedModel([say("free")])).run_turn("go", session))


async def test_an_exception_in_a_validator_is_an_invalid_answer(play):
    run = await play([[call("submit_output", {"name": "x"})]] * 3, output_type=Touchy)
    assert run.outline[-1] == "error:provider.bad_reply"
    assert "output_type Touchy raised ZeroDivisionError: x" in run.results[0][2]


async def test_an_agenticx_error_in_a_validator_is_reported_to_the_model_too(play):
    class Failing(BaseModel):
        name: str

        @field_validator("name")
        @classmethod
        def _look_up(cls, value: str) -> str:
            if value == "x":
                raise StoreError("no disk")
            return value

    run = await play([call("submit_output", {"name": name}) for name in "xy"], output_type=Failing)
    assert [(outcome, "no disk" in text) for _, outcome, text in run.results] == [
        ("invalid_arguments", True),
        ("ok", False),
    ]


@given(st.text(max_size=30) | st.from_type(dict[str, int]).map(json.dumps))
def test_any_answer_is_an_object_or_one_error_message(text: str) -> None:
    try:
        value = OutputType(Place).read(text)
    except InvalidArguments as exc:
        value = {"name": str(exc)}
    assert list(value) == ["name"]
    assert isinstance(value["name"], str)


# --- over a socket ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("held", [True, False])
async def test_the_request_has_a_schema_or_the_output_tool_depending_on_the_server(play, held):
    reply = say(ROME_TEXT) if held else call("submit_output", ROME)
    async with FakeOpenAIServer([reply]) as server:
        model = OpenAIChatModel("m", base_url=server.base_url, dialect=ChatDialect(output_schemas=held))
        run = await play(model, output_type=City)
        await model.aclose()
    assert run.terminal["output"] == ROME
    asked = server.requests[0].json
    assert ("response_format" in asked) is held
    assert ("tools" in asked) is not held

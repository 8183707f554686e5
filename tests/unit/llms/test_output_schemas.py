"""Output schemas: the models that can be constrained to one, and its form on each wire."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field, TypeAdapter

from agenticx import UserMessage
from agenticx.errors import ModelError
from agenticx.llms import (
    AnthropicModel,
    ChatDialect,
    ChatModel,
    GeminiModel,
    ModelRequest,
    OllamaModel,
    OpenAIChatModel,
    OpenAIResponsesModel,
    OutputSchema,
    RetryingModel,
    ScriptedModel,
    ThinkBlockModel,
    ToolSchema,
    XmlToolModel,
    complete,
    takes_output_schema,
)
from agenticx.llms.wires.openai_chat import OPENAI_BASE_URL
from agenticx.llms.wires.strict_schema import strict_schema
from agenticx.testing import FakeOpenAIServer, say, status
from tests.support.wires import rules_anthropic, rules_gemini, rules_ollama, rules_responses
from tests.support.wires.bodies import anthropic_body, chat_body, gemini_body, ollama_body, responses_body
from tests.support.wires.rules_schemas import schema_violations


class Cat(BaseModel):
    kind: Literal["cat"]
    lives: int = Field(9, ge=0, le=9)


class Dog(BaseModel):
    kind: Literal["dog"]
    tags: list[str] = []


class Owner(BaseModel):
    """The owner of a pet."""

    name: str = Field(min_length=1, description="The full name.")
    born: str | None = Field(None, json_schema_extra={"format": "date"})
    pet: Cat | Dog = Field(discriminator="kind")


class Node(BaseModel):
    value: int
    next: Node | None = None


@dataclass
class Table:
    rows: dict[str, int]


def output_schema(type_: Any) -> OutputSchema:
    schema = TypeAdapter(type_).json_schema()
    if "$ref" in schema:
        schema = {**schema["$defs"]["Node"], "$defs": schema["$defs"]}
    return OutputSchema("answer", schema)


OWNER, NODE, TABLE = output_schema(Owner), output_schema(Node), output_schema(Table)
LOOK = ToolSchema("look", "Looks.", {"type": "object", "properties": {}})
REQUEST = ModelRequest(messages=[UserMessage(content="who?")], output_schema=OWNER)
STRICT = strict_schema(OWNER.schema)


# --- schemas ----------------------------------------------------------------------------------------------------------


def test_a_strict_schema_is_closed_and_describes_unsupported_constraints() -> None:
    assert STRICT == {
        "$defs": {
            "Cat": {
                "type": "object",
                "title": "Cat",
                "properties": {
                    "kind": {"type": "string", "title": "Kind", "enum": ["cat"]},
                    "lives": {"type": "integer", "title": "Lives", "description": '{"maximum":9,"minimum":0}'},
                },
                "required": ["kind", "lives"],
                "additionalProperties": False,
            },
            "Dog": {
                "type": "object",
                "title": "Dog",
                "properties": {
                    "kind": {"type": "string", "title": "Kind", "enum": ["dog"]},
                    "tags": {"type": "array", "title": "Tags", "items": {"type": "string"}},
                },
                "required": ["kind", "tags"],
                "additionalProperties": False,
            },
        },
        "type": "object",
        "title": "Owner",
        "description": "The owner of a pet.",
        "properties": {
            "name": {"type": "string", "title": "Name", "description": 'The full name.\n\n{"minLength":1}'},
            "born": {"title": "Born", "anyOf": [{"type": "string"}, {"type": "null"}], "format": "date"},
            "pet": {"title": "Pet", "anyOf": [{"$ref": "#/$defs/Cat"}, {"$ref": "#/$defs/Dog"}]},
        },
        "required": ["name", "born", "pet"],
        "additionalProperties": False,
    }
    assert schema_violations(STRICT) == []


@pytest.mark.parametrize(
    "schema",
    [
        TypeAdapter(dict[str, int]).json_schema(),
        TABLE.schema,
        TypeAdapter(tuple[int, str]).json_schema(),
        {"type": "object", "properties": {"anything": {}}},
        {"allOf": [{"type": "object", "properties": {}}, {"required": ["a"]}]},
    ],
    ids=["open", "open inside", "tuple", "anything", "several at once"],
)
def test_a_schema_without_a_closed_form_has_no_strict_schema(schema: dict[str, Any]) -> None:
    assert strict_schema(schema) is None


_plain = st.sampled_from(
    [{"type": "string", "pattern": "^a"}, {"type": "integer", "minimum": 1}, {"type": "null"}, {"enum": ["a", 1]}, {}]
)
_schemas = st.recursive(
    _plain,
    lambda inner: st.one_of(
        st.builds(lambda items: {"type": "array", "items": items, "minItems": 1}, inner),
        st.builds(lambda options: {"anyOf": options}, st.lists(inner, min_size=1, max_size=2)),
        st.builds(
            lambda fields: {"type": "object", "properties": fields},
            st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
        ),
    ),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from("abc"), _schemas))
def test_every_strict_schema_is_valid(fields: dict[str, Any]) -> None:
    strict = strict_schema({"type": "object", "properties": fields})
    assert strict is None or schema_violations(strict) == []


# --- wires ------------------------------------------------------------------------------------------------------------


def test_chat_completions_has_a_response_format() -> None:
    assert json.loads(chat_body(REQUEST, output_schemas=True))["response_format"] == {
        "type": "json_schema",
        "json_schema": {"name": "answer", "schema": STRICT, "strict": True},
    }
    loose = json.loads(chat_body(ModelRequest(messages=REQUEST.messages, output_schema=TABLE), output_schemas=True))
    assert loose["response_format"]["json_schema"] == {"name": "answer", "schema": TABLE.schema, "strict": False}
    assert "response_format" not in json.loads(chat_body(REQUEST))


def test_responses_has_a_text_format() -> None:
    body = json.loads(responses_body(REQUEST))
    assert body["text"] == {"format": {"type": "json_schema", "name": "answer", "schema": STRICT, "strict": True}}
    assert rules_responses.violations(body) == []


def test_anthropic_has_an_output_config() -> None:
    body = json.loads(anthropic_body(REQUEST))
    assert body["output_config"] == {"format": {"type": "json_schema", "schema": STRICT}}
    assert rules_anthropic.violations(body) == []
    without = anthropic_body(REQUEST, output_schemas=False)
    assert "output_config" not in json.loads(without)
    itself = ModelRequest(messages=REQUEST.messages, output_schema=NODE)
    assert "output_config" not in json.loads(anthropic_body(itself))


def test_gemini_has_a_response_schema() -> None:
    body = json.loads(gemini_body(REQUEST))
    assert body["generationConfig"]["responseMimeType"] == "application/json"
    assert list(body["generationConfig"]["responseJsonSchema"]["properties"]) == ["name", "born", "pet"]
    assert rules_gemini.violations(body, signed=False) == []


def test_ollama_has_a_format_and_the_schema_in_a_message() -> None:
    schema = {"type": "object", "properties": {"format": {"type": "string", "pattern": "a+", "format": "uri"}}}
    request = ModelRequest(messages=REQUEST.messages, output_schema=OutputSchema("answer", schema))
    body = json.loads(ollama_body(request))
    assert body["format"] == {"type": "object", "properties": {"format": {"type": "string"}}}
    assert [row["role"] for row in body["messages"]] == ["user", "system"]
    assert json.dumps(schema, separators=(",", ":")) in body["messages"][1]["content"]
    assert rules_ollama.violations(body) == []


# --- models -----------------------------------------------------------------------------------------------------------


def chat(base_url: str = OPENAI_BASE_URL, **options: Any) -> OpenAIChatModel:
    return OpenAIChatModel("m", base_url=base_url, **options)


@pytest.mark.parametrize(
    ("model", "with_tools", "without"),
    [
        (chat(), True, True),
        (chat("http://127.0.0.1:1/v1"), False, False),
        (chat("http://127.0.0.1:1/v1", dialect=ChatDialect(output_schemas=True)), True, True),
        (chat("http://127.0.0.1:1/v1", dialect=ChatDialect(output_schemas="without_tools")), False, True),
        (OpenAIResponsesModel("gpt-5"), True, True),
        (AnthropicModel("claude-sonnet-4-5"), True, True),
        (AnthropicModel("claude-opus-4-1-20250805"), True, True),
        (AnthropicModel("claude-opus-4-20250514"), False, False),
        (AnthropicModel("claude-sonnet-4-20250514"), False, False),
        (AnthropicModel("claude-3-7-sonnet-latest"), False, False),
        (AnthropicModel("claude-haiku-5"), True, True),
        (AnthropicModel("other", output_schemas=True), True, True),
        (GeminiModel("gemini-2.5-flash"), False, True),
        (GeminiModel("gemini-3-pro-preview"), True, True),
        (GeminiModel("gemma-3-27b-it"), False, False),
        (OllamaModel("qwen3"), False, True),
        (ScriptedModel(), False, False),
        (ThinkBlockModel(chat()), True, True),
        (XmlToolModel(chat()), False, True),
        (RetryingModel(chat(), [OllamaModel("qwen3")]), False, True),
        (RetryingModel(chat(), [ScriptedModel()]), False, False),
    ],
    ids=lambda value: f"{type(value).__name__} {value.name}" if hasattr(value, "name") else str(value),
)
def test_models_report_whether_they_take_an_output_schema(model: ChatModel, with_tools: bool, without: bool) -> None:
    assert takes_output_schema(model, OWNER, with_tools=True) is with_tools
    assert takes_output_schema(model, OWNER, with_tools=False) is without


@pytest.mark.parametrize("model", [chat(), OpenAIResponsesModel("gpt-5"), AnthropicModel("claude-sonnet-4-5")])
def test_models_do_not_take_a_schema_without_a_closed_form(model: ChatModel) -> None:
    assert not takes_output_schema(model, TABLE, with_tools=False)
    assert takes_output_schema(model, NODE, with_tools=False) is not isinstance(model, AnthropicModel)


@pytest.mark.anyio
async def test_after_a_refusal_of_the_schema_it_is_left_out() -> None:
    refusal = status(
        400, "Invalid parameter: 'response_format' of type 'json_schema' is not supported with this model."
    )
    async with FakeOpenAIServer([refusal, say("so"), say("so")]) as server:
        model = OpenAIChatModel("m", base_url=server.base_url, dialect=ChatDialect(output_schemas=True))
        for _ in range(2):
            reply, error = await complete(model, REQUEST)
            assert (reply.text, error) == ("so", None)
        await model.aclose()
    assert ["response_format" in request.json for request in server.requests] == [True, False, False]
    assert not takes_output_schema(model, OWNER, with_tools=False)


@pytest.mark.anyio
async def test_any_other_refusal_is_an_error() -> None:
    async with FakeOpenAIServer([status(400, "no such model")]) as server:
        model = OpenAIChatModel("m", base_url=server.base_url, dialect=ChatDialect(output_schemas=True))
        _, error = await complete(model, REQUEST)
        await model.aclose()
    assert isinstance(error, ModelError)
    assert takes_output_schema(model, OWNER, with_tools=False)

"""Requests adapted to a model's capabilities, from the catalogue and from its refusals."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from pydantic import BaseModel

from agenticx import UserMessage
from agenticx.attachments import Attachment
from agenticx.errors import ModelError
from agenticx.llms import (
    AnthropicModel,
    Delta,
    Finished,
    ModelRequest,
    OpenAIChatModel,
    OutputSchema,
    TextDelta,
    ToolSchema,
    complete,
    resolve_model,
    resolve_wire,
)
from agenticx.llms.model_catalog import Capability, ModelFacts
from agenticx.llms.providers.resolve import find_model_facts
from agenticx.llms.wrappers.capabilities import CapabilityModel, split_parallel_calls
from agenticx.messages import AssistantMessage, Message, ToolCall, ToolMessage
from agenticx.runtime import AgentRuntime, Session, sanitize
from agenticx.settings import Settings
from agenticx.testing import FakeOpenAIServer, ScriptedModel, call, collect, fail, say, status
from agenticx.tools import tool
from agenticx.untrusted_text import MATERIAL, frame_text
from tests.support.histories import broken_histories
from tests.support.wires import rules_chat
from tests.support.wires.files import PDF, PNG, TEXT
from tests.support.wires.rules_anthropic import violations

pytestmark = pytest.mark.anyio

ALL: tuple[Capability, ...] = ("tools", "parallel", "vision", "reasoning", "structured_output")
TEXT_FILE_AS_TEXT = frame_text("attached file f.txt (text/plain, 8 bytes)", "grüße\n", MATERIAL)
REQUEST_WITH_FILES = ModelRequest(messages=[UserMessage(content="What is this?", attachments=(PNG, PDF, TEXT))])
LOOK = ToolSchema("look", "Look.", {"type": "object", "properties": {}})


@pytest.fixture(autouse=True)
def user_models_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("AGX_HOME", str(tmp_path))
    return tmp_path / "models.toml"


def facts_without(*missing: Capability) -> ModelFacts:
    return ModelFacts(capabilities=tuple(capability for capability in ALL if capability not in missing))


def note(file: Attachment) -> str:
    what = f"{file.name} ({file.media_type}, {file.size} bytes)"
    return f"[attached file {what}: its content is not here, because you cannot be given files of this type]"


def refusal(text: str, status: int = 400) -> ModelError:
    return ModelError(text, code="provider.bad_request", status=status)


def file_counts(model: ScriptedModel) -> list[int]:
    """Return the number of attached files in each request."""
    return [
        sum(len(row.attachments) for row in request.messages if isinstance(row, UserMessage))
        for request in model.requests
    ]


# --- files ------------------------------------------------------------------------------------------------------------


async def test_a_model_without_vision_gets_text_and_a_note_for_each_omitted_file() -> None:
    inner = ScriptedModel(["so"])
    assert (await complete(CapabilityModel(inner, facts_without("vision")), REQUEST_WITH_FILES))[1] is None
    (message,) = inner.requests[0].messages
    assert isinstance(message, UserMessage)
    assert message.attachments == ()
    assert message.content == f"{note(PNG)}\n\n{note(PDF)}\n\n{TEXT_FILE_AS_TEXT}\n\nWhat is this?"


@pytest.mark.parametrize(
    "facts", [facts_without(), ModelFacts(), ModelFacts(window=9)], ids=["sees", "unknown", "a window"]
)
async def test_a_model_with_vision_or_of_unknown_capabilities_gets_the_files(facts: ModelFacts) -> None:
    inner = ScriptedModel(["so"])
    await complete(CapabilityModel(inner, facts), REQUEST_WITH_FILES)
    assert file_counts(inner) == [3]


@pytest.mark.parametrize(
    "text",
    [
        "No endpoints found that support image input",
        "No endpoints found that support file input",
        "this model does not support image input (ref: b8bd630e)",
        "this model is missing data required for image input",
        "image input is not supported - hint: if this is unexpected, you may need to provide the mmproj",
        "Invalid content type. image_url is only supported by certain models.",
        "facebook/opt-125m is not a multimodal model None",
        "At most 0 image(s) may be provided in one prompt.",
        "messages[0]: unknown variant `image_url`, expected `text` at line 1 column 90",
        'Failed to parse messages: Unsupported content part type: "image_url"; messages = […',
        "'messages.0' : for 'role:user' … satisfied[('messages.0.content' : value must be a string",
        "Image input is not enabled for this model",
        "Model does not support images. Please use a model that does.",
    ],
)
async def test_after_a_refusal_of_files_they_are_sent_as_text(text: str) -> None:
    inner = ScriptedModel([fail(refusal(text)), "so", "and"])
    model = CapabilityModel(inner, ModelFacts())
    for _ in range(2):
        assert (await complete(model, REQUEST_WITH_FILES))[1] is None
    assert file_counts(inner) == [3, 0, 0]


@pytest.mark.parametrize(
    "error",
    [
        refusal("Could not process image"),
        refusal("We do not support image/webp, please send png or jpeg"),
        refusal("image exceeds 5 MB maximum: 5316852 bytes > 5242880 bytes"),
        refusal("The image data you provided does not represent a valid image."),
        ModelError("this model does not support image input", code="provider.overloaded"),
    ],
)
async def test_a_refusal_of_one_unreadable_image_does_not_disable_images(error: ModelError) -> None:
    inner = ScriptedModel([fail(error), "so"])
    model = CapabilityModel(inner, ModelFacts())
    assert (await complete(model, REQUEST_WITH_FILES))[1] is error
    assert (await complete(model, REQUEST_WITH_FILES))[1] is None
    assert file_counts(inner) == [3, 3]


class RefusingModel:
    """A model that refuses files, once `at_once` requests with files have arrived."""

    name, context_window = "refusing", None

    def __init__(self, at_once: int) -> None:
        self.had_files: list[bool] = []
        self._all_asked = asyncio.Barrier(at_once)

    async def stream(self, request: ModelRequest) -> AsyncIterator[Sequence[Delta]]:
        self.had_files.append(any(row.attachments for row in request.messages if isinstance(row, UserMessage)))
        if self.had_files[-1]:
            await self._all_asked.wait()
            raise refusal("this model does not support image input")
        yield [TextDelta("so"), Finished("stop", "end")]


async def test_two_concurrent_calls_that_are_refused_are_both_sent_again() -> None:
    inner = RefusingModel(2)
    model = CapabilityModel(inner, ModelFacts())
    done = await asyncio.gather(complete(model, REQUEST_WITH_FILES), complete(model, REQUEST_WITH_FILES))
    assert [(reply.text, error) for reply, error in done] == [("so", None)] * 2
    assert inner.had_files == [True, True, False, False]


async def test_a_refusal_of_files_without_any_files_fails_the_call() -> None:
    inner = ScriptedModel([fail(error := refusal("this model does not support image input"))])
    assert (await complete(CapabilityModel(inner, ModelFacts()), ModelRequest(messages=[])))[1] is error


@pytest.mark.parametrize(
    ("spec", "seen"),
    [("ollama-chat:llama3.2:3b", 0), ("ollama-chat:llava:7b", 1), ("openrouter:x/y", 2), ("lmstudio:x", 1)],
)
async def test_the_catalogue_decides_which_files_are_sent(spec: str, seen: int) -> None:
    async with FakeOpenAIServer(["so"]) as server:
        model = CapabilityModel(resolve_wire(spec, base_url=server.base_url), find_model_facts(spec))
        assert (await complete(model, REQUEST_WITH_FILES))[1] is None
        await model.aclose()
    sent = json.dumps(server.requests[0].json["messages"])
    assert sum(file.data in sent for file in (PNG, PDF)) == seen
    assert "f.txt" in sent


@pytest.mark.parametrize("provider", ["openai", "openai-chat", "anthropic", "gemini", "ollama"])
@pytest.mark.parametrize("sees", [True, False])
async def test_on_every_wire_only_a_model_with_vision_gets_images(
    user_models_file: Path, provider: str, sees: bool
) -> None:
    family = "openai" if provider == "openai-chat" else provider
    capabilities = '["vision"]' if sees else "[]"
    user_models_file.write_text(f'[models."{family}:mine"]\ncapabilities = {capabilities}\n')
    async with FakeOpenAIServer([status(401, "no")]) as server:
        model: Any = CapabilityModel(
            resolve_wire(f"{provider}:mine", base_url=server.base_url), find_model_facts(f"{provider}:mine")
        )
        _, error = await complete(model, REQUEST_WITH_FILES)
        await model.aclose()
    assert error is not None
    assert error.code == "provider.auth"
    sent = json.dumps(server.requests[0].json, ensure_ascii=False)
    assert (PNG.data in sent, note(PNG) in sent) == (sees, not sees)
    assert "grüße" in sent


async def test_a_model_without_vision_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    model = CapabilityModel(ScriptedModel(["so", "and", "so"]), facts_without("vision"))
    await complete(model, ModelRequest(messages=[UserMessage(content="Read", attachments=(TEXT,))]))
    assert caplog.text == ""
    for _ in range(2):
        await complete(model, REQUEST_WITH_FILES)
    (record,) = [record for record in caplog.records if record.levelname == "WARNING"]
    assert "the model does not accept images and PDFs; a note in the prompt replaces them" in record.getMessage()
    assert "a.png" in record.getMessage()


# --- objects ----------------------------------------------------------------------------------------------------------


class SchemaModel(ScriptedModel):
    """A model that can be constrained to a schema."""

    def takes_output_schema(self, output: OutputSchema, *, with_tools: bool) -> bool:
        return True


class City(BaseModel):
    name: str


@pytest.mark.parametrize(
    ("facts", "held"),
    [(facts_without("structured_output"), False), (facts_without("vision"), True), (ModelFacts(), True)],
    ids=["cannot", "can", "unknown"],
)
async def test_a_model_without_structured_output_returns_the_object_as_a_call(facts: ModelFacts, held: bool) -> None:
    inner = SchemaModel([say('{"name": "Rome"}') if held else call("submit_output", {"name": "Rome"})])
    events = await collect(AgentRuntime(CapabilityModel(inner, facts)).run_turn("Where?", Session(), output_type=City))
    assert events[-1].data["output"] == {"name": "Rome"}
    (request,) = inner.requests
    assert (request.output_schema is not None, [schema.name for schema in request.tools]) == (
        (True, []) if held else (False, ["submit_output"])
    )


async def test_a_user_s_row_decides_whether_a_schema_is_sent(user_models_file: Path) -> None:
    user_models_file.write_text(
        '[models."openai:mine"]\ncapabilities = ["tools"]\n[models."anthropic:old"]\ncapabilities = ["tools"]\n'
        '[models."anthropic:mine"]\ncapabilities = ["structured_output"]\n'
    )
    schema = OutputSchema("City", City.model_json_schema())
    settings = Settings.model_validate({"llm_attempts": 1})
    answers = {}
    for spec in ("openai:mine", "openai:gpt-5.4", "anthropic:old", "anthropic:mine", "anthropic:nobody-knows-it"):
        model: Any = resolve_model(spec, settings=settings, base_url="http://127.0.0.1:9/v1")
        answers[spec] = model.takes_output_schema(schema, with_tools=False)
        await model.aclose()
    assert answers == {
        "openai:mine": False,
        "openai:gpt-5.4": True,
        "anthropic:old": False,
        "anthropic:mine": True,
        "anthropic:nobody-knows-it": False,
    }


# --- several calls ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("facts", "field"), [(facts_without("parallel"), False), (facts_without(), None), (ModelFacts(), None)]
)
async def test_a_model_without_parallel_calls_is_asked_for_one_call_at_a_time(
    facts: ModelFacts, field: bool | None
) -> None:
    request = ModelRequest(messages=[UserMessage(content="x")], tools=[LOOK])
    async with FakeOpenAIServer(["so", "so"]) as server:
        model = CapabilityModel(OpenAIChatModel("m", base_url=server.base_url), facts)
        await complete(model, request)
        await complete(model, ModelRequest(messages=request.messages))
        await model.aclose()
    assert [sent.json.get("parallel_tool_calls") for sent in server.requests] == [field, None]


async def test_after_a_refusal_of_the_field_it_is_left_out() -> None:
    request = ModelRequest(messages=[UserMessage(content="x")], tools=[LOOK], parallel_calls=False)
    complaint = "Unsupported parameter: 'parallel_tool_calls' is not supported with this model."
    async with FakeOpenAIServer([status(400, complaint), "so", "so"]) as server:
        model = OpenAIChatModel("m", base_url=server.base_url)
        for _ in range(2):
            assert (await complete(model, request))[1] is None
        await model.aclose()
    assert [sent.json.get("parallel_tool_calls") for sent in server.requests] == [False, None, None]


@pytest.mark.parametrize("choice", ["auto", "required", "none"])
async def test_anthropic_disables_parallel_calls_in_tool_choice(choice: Any) -> None:
    request = ModelRequest(messages=[UserMessage(content="x")], tools=[LOOK], tool_choice=choice, parallel_calls=False)
    async with FakeOpenAIServer([status(400, "no")]) as server:
        model = AnthropicModel("m", base_url=server.base_url)
        await complete(model, request)
        await model.aclose()
    sent = server.requests[0].json
    assert violations(sent) == []
    assert (
        sent["tool_choice"]
        == {
            "auto": {"type": "auto", "disable_parallel_tool_use": True},
            "required": {"type": "any", "disable_parallel_tool_use": True},
            "none": {"type": "none"},
        }[choice]
    )


def assistant_calls(*ids: str, **more: Any) -> AssistantMessage:
    return AssistantMessage(tool_calls=tuple(ToolCall(id=id_, name="look") for id_ in ids), **more)


def tool_result(id_: str) -> ToolMessage:
    return ToolMessage(tool_call_id=id_, name="look", content=f"r{id_}")


def rows(messages: list[Message]) -> list[Any]:
    """Return calls as lists of ids, results as ids, all other messages as their text."""
    return [
        row.tool_call_id
        if isinstance(row, ToolMessage)
        else [call.id for call in getattr(row, "tool_calls", ())] or row.content
        for row in messages
    ]


async def test_after_a_refusal_of_parallel_calls_the_history_has_one_call_per_message() -> None:
    history = [
        *(
            UserMessage(content="x"),
            assistant_calls("a", "b", "c", content="hm"),
            tool_result("a"),
            tool_result("b"),
            tool_result("c"),
        ),
        *(assistant_calls("d"), tool_result("d"), UserMessage(content="y")),
    ]
    inner = ScriptedModel([fail(refusal("This model only supports single tool-calls at once!")), "so", "and"])
    model = CapabilityModel(inner, ModelFacts())
    for _ in range(2):
        assert (await complete(model, ModelRequest(messages=history)))[1] is None
    first, second, third = (rows(list(request.messages)) for request in inner.requests)
    assert first == ["x", ["a", "b", "c"], "a", "b", "c", ["d"], "d", "y"]
    assert second == third == ["x", ["a"], "a", ["b"], "b", ["c"], "c", ["d"], "d", "y"]
    assert [row.content for row in inner.requests[1].messages[1:6:2]] == ["hm", "", ""]
    assert len({row.message_id for row in inner.requests[1].messages}) == 10


@given(broken_histories())
def test_any_sanitized_history_can_be_split_into_single_calls(history: list[Message]) -> None:
    whole = sanitize([*history, UserMessage(content="go on")])
    parted = list(split_parallel_calls(whole))
    assert all(len(row.tool_calls) <= 1 for row in parted if isinstance(row, AssistantMessage))
    assert sorted(row.tool_call_id for row in parted if isinstance(row, ToolMessage)) == sorted(
        row.tool_call_id for row in whole if isinstance(row, ToolMessage)
    )
    assert list(split_parallel_calls(parted)) == parted
    awaited = None
    for row in parted:
        if awaited is not None:
            assert isinstance(row, ToolMessage)
            assert row.tool_call_id == awaited
        awaited = row.tool_calls[0].id if isinstance(row, AssistantMessage) and row.tool_calls else None


# --- reasoning --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "capabilities", "expected"),
    [
        ("openai:mine", '["tools"]', (None, None)),
        ("openai:mine", '["tools", "reasoning"]', (["reasoning.encrypted_content"], {"summary": "auto"})),
        ("openai:gpt-5.4", None, (["reasoning.encrypted_content"], {"summary": "auto"})),
        ("openai:gpt-4.1", None, (None, None)),
    ],
)
async def test_reasoning_is_requested_if_the_catalogue_lists_it(
    user_models_file: Path, spec: str, capabilities: str | None, expected: tuple[Any, Any]
) -> None:
    if capabilities:
        user_models_file.write_text(f'[models."{spec}"]\ncapabilities = {capabilities}\n')
    async with FakeOpenAIServer([status(401, "no")]) as server:
        settings = Settings.model_validate({"llm_attempts": 1})
        model: Any = resolve_model(spec, settings=settings, base_url=server.base_url)
        await complete(model, ModelRequest(messages=[UserMessage(content="x")]))
        await model.aclose()
    sent = server.requests[0].json
    assert (sent.get("include"), sent.get("reasoning")) == expected


@tool(risk="read")
def look() -> str:
    """Look."""
    return "nothing"


async def test_a_model_without_any_capability_completes_a_turn(user_models_file: Path) -> None:
    user_models_file.write_text('[models."together:x"]\ncapabilities = []\n')
    script = [say("<function=look>\n</function>"), say("It is nothing.")]
    async with FakeOpenAIServer(script) as server:
        model: Any = resolve_model("together:x", settings=Settings.model_validate({}), base_url=server.base_url)
        runtime = AgentRuntime(model)
        message = UserMessage(content="Look at this", attachments=(PNG,))
        events = await collect(runtime.run_turn(message, Session(), tools=[look]))
        await model.aclose()
    assert (events[-1].type, events[-1].data["text"]) == ("final", "It is nothing.")
    for request in server.requests:
        assert rules_chat.violations(request.json) == []
        assert request.json.keys().isdisjoint({"tools", "parallel_tool_calls"})
        assert note(PNG) in json.dumps(request.json)
        assert "<function=" in json.dumps(request.json)

"""Models are asked for no more than they can do: by the catalogue, and where it says nothing by what they refuse."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from pydantic import BaseModel

from agenticx.attachments import Attachment
from agenticx.errors import ModelError
from agenticx.llms.abilities import CapabilityModel, split_parallel_calls
from agenticx.llms.anthropic import AnthropicModel
from agenticx.llms.assembly import assemble_model
from agenticx.llms.base import Delta, Finished, ModelRequest, OutputSchema, TextDelta, ToolSchema, complete
from agenticx.llms.catalog import find_model_facts, resolve_model
from agenticx.llms.facts import Capability, ModelFacts
from agenticx.llms.openai_chat import OpenAIChatModel
from agenticx.messages import AssistantMessage, Message, ToolCall, ToolMessage, UserMessage
from agenticx.runtime import AgentRuntime, Session, sanitize
from agenticx.settings import Settings
from agenticx.testing import FakeOpenAIServer, ScriptedModel, call, collect, fail, say
from agenticx.testing.provider_replies import status
from agenticx.tools.registry import tool
from tests.llms.files import PDF, PNG, TEXT
from tests.llms.rules_anthropic import violations
from tests.runtime.histories import broken_histories
from tests.wires import rules_chat

pytestmark = pytest.mark.anyio

ALL: tuple[Capability, ...] = ("tools", "parallel", "vision", "reasoning", "structured_output")
WRITTEN = "[attached file f.txt (text/plain, 8 bytes)]\ngrüße\n\n[end of f.txt]"
SHOWN = ModelRequest(messages=[UserMessage(content="What is this?", attachments=(PNG, PDF, TEXT))])
LOOK = ToolSchema("look", "Look.", {"type": "object", "properties": {}})


@pytest.fixture(autouse=True)
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("AGX_HOME", str(tmp_path))
    return tmp_path / "models.toml"


def without(*missing: Capability) -> ModelFacts:
    return ModelFacts(abilities=tuple(ability for ability in ALL if ability not in missing))


def note(file: Attachment) -> str:
    what = f"{file.name} ({file.media_type}, {file.size} bytes)"
    return f"[attached file {what}: its content is not here, because you cannot be given files of this type]"


def refusal(text: str, status: int = 400) -> ModelError:
    return ModelError(text, code="provider.bad_request", status=status)


def files(model: ScriptedModel) -> list[int]:
    """How many files came with each request."""
    return [
        sum(len(row.attachments) for row in request.messages if isinstance(row, UserMessage))
        for request in model.requests
    ]


# --- files ------------------------------------------------------------------------------------------------------------


async def test_a_model_that_does_not_see_gets_text_alone_and_is_told_what_it_does_not_get() -> None:
    inner = ScriptedModel(["so"])
    assert (await complete(CapabilityModel(inner, without("vision")), SHOWN))[1] is None
    (message,) = inner.requests[0].messages
    assert isinstance(message, UserMessage)
    assert message.attachments == ()
    assert message.content == f"{note(PNG)}\n\n{note(PDF)}\n\n{WRITTEN}\n\nWhat is this?"


@pytest.mark.parametrize("facts", [without(), ModelFacts(), ModelFacts(window=9)], ids=["sees", "unknown", "a window"])
async def test_a_model_that_sees_or_that_nobody_knows_gets_the_files(facts: ModelFacts) -> None:
    inner = ScriptedModel(["so"])
    await complete(CapabilityModel(inner, facts), SHOWN)
    assert files(inner) == [3]


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
async def test_a_server_that_refuses_files_gets_them_as_text_from_then_on(text: str) -> None:
    inner = ScriptedModel([fail(refusal(text)), "so", "and"])
    model = CapabilityModel(inner, ModelFacts())
    for _ in range(2):
        assert (await complete(model, SHOWN))[1] is None
    assert files(inner) == [3, 0, 0]


@pytest.mark.parametrize(
    "error",
    [
        refusal("Could not process image"),
        refusal("image exceeds 5 MB maximum: 5316852 bytes > 5242880 bytes"),
        refusal("The image data you provided does not represent a valid image."),
        ModelError("this model does not support image input", code="provider.overloaded"),
    ],
)
async def test_an_odd_picture_blinds_no_model(error: ModelError) -> None:
    inner = ScriptedModel([fail(error), "so"])
    model = CapabilityModel(inner, ModelFacts())
    assert (await complete(model, SHOWN))[1] is error
    assert (await complete(model, SHOWN))[1] is None
    assert files(inner) == [3, 3]


class Refusing:
    """One that takes no files, and refuses none before it was asked `at_once` times."""

    name, context_window = "refusing", None

    def __init__(self, at_once: int) -> None:
        self.asked: list[bool] = []
        self._all_asked = asyncio.Barrier(at_once)

    async def stream(self, request: ModelRequest) -> AsyncIterator[Sequence[Delta]]:
        self.asked.append(any(row.attachments for row in request.messages if isinstance(row, UserMessage)))
        if self.asked[-1]:
            await self._all_asked.wait()
            raise refusal("this model does not support image input")
        yield [TextDelta("so"), Finished("stop", "end")]


async def test_what_two_calls_at_once_are_refused_is_put_right_for_both() -> None:
    inner = Refusing(2)
    model = CapabilityModel(inner, ModelFacts())
    done = await asyncio.gather(complete(model, SHOWN), complete(model, SHOWN))
    assert [(reply.text, error) for reply, error in done] == [("so", None)] * 2
    assert inner.asked == [True, True, False, False]


async def test_a_refusal_of_files_where_there_are_none_is_the_call_s_failure() -> None:
    inner = ScriptedModel([fail(error := refusal("this model does not support image input"))])
    assert (await complete(CapabilityModel(inner, ModelFacts()), ModelRequest(messages=[])))[1] is error


@pytest.mark.parametrize(
    ("spec", "seen"),
    [("ollama-chat:llama3.2:3b", 0), ("ollama-chat:llava:7b", 1), ("openrouter:x/y", 2), ("lmstudio:x", 1)],
)
async def test_what_the_catalogue_says_decides_what_goes_over_the_wire(spec: str, seen: int) -> None:
    async with FakeOpenAIServer(["so"]) as server:
        model = CapabilityModel(resolve_model(spec, base_url=server.base_url), find_model_facts(spec))
        assert (await complete(model, SHOWN))[1] is None
        await model.aclose()
    sent = json.dumps(server.requests[0].json["messages"])
    assert sum(file.data in sent for file in (PNG, PDF)) == seen
    assert "f.txt" in sent


@pytest.mark.parametrize("provider", ["openai", "openai-chat", "anthropic", "gemini", "ollama"])
@pytest.mark.parametrize("sees", [True, False])
async def test_over_every_wire_only_a_model_that_sees_gets_images(own: Path, provider: str, sees: bool) -> None:
    family = "openai" if provider == "openai-chat" else provider
    abilities = '["vision"]' if sees else "[]"
    own.write_text(f'[models."{family}:mine"]\nabilities = {abilities}\n')
    async with FakeOpenAIServer([status(401, "no")]) as server:
        model: Any = CapabilityModel(
            resolve_model(f"{provider}:mine", base_url=server.base_url), find_model_facts(f"{provider}:mine")
        )
        _, error = await complete(model, SHOWN)
        await model.aclose()
    assert error is not None
    assert error.code == "provider.auth"
    sent = json.dumps(server.requests[0].json, ensure_ascii=False)
    assert (PNG.data in sent, note(PNG) in sent) == (sees, not sees)
    assert "grüße" in sent


async def test_a_person_is_told_once_that_the_model_does_not_see(caplog: pytest.LogCaptureFixture) -> None:
    model = CapabilityModel(ScriptedModel(["so", "and", "so"]), without("vision"))
    await complete(model, ModelRequest(messages=[UserMessage(content="Read", attachments=(TEXT,))]))
    assert caplog.text == ""
    for _ in range(2):
        await complete(model, SHOWN)
    (record,) = [record for record in caplog.records if record.levelname == "WARNING"]
    assert "the model sees no images and PDFs; it is told so" in record.getMessage()
    assert "a.png" in record.getMessage()


# --- objects ----------------------------------------------------------------------------------------------------------


class Holding(ScriptedModel):
    """One whose wire can hold it to a schema."""

    def takes_output_schema(self, output: OutputSchema, *, with_tools: bool) -> bool:
        return True


class City(BaseModel):
    name: str


@pytest.mark.parametrize(
    ("facts", "held"),
    [(without("structured_output"), False), (without("vision"), True), (ModelFacts(), True)],
    ids=["cannot", "can", "unknown"],
)
async def test_a_model_that_cannot_be_held_to_a_schema_gives_the_object_as_a_call(
    facts: ModelFacts, held: bool
) -> None:
    inner = Holding([say('{"name": "Rome"}') if held else call("submit_output", {"name": "Rome"})])
    events = await collect(AgentRuntime(CapabilityModel(inner, facts)).run_turn("Where?", Session(), output_type=City))
    assert events[-1].data["output"] == {"name": "Rome"}
    (request,) = inner.requests
    assert (request.output_schema is not None, [schema.name for schema in request.tools]) == (
        (True, []) if held else (False, ["submit_output"])
    )


async def test_a_row_of_yours_takes_the_schema_off_a_model_or_gives_it_one(own: Path) -> None:
    own.write_text(
        '[models."openai:mine"]\nabilities = ["tools"]\n[models."anthropic:old"]\nabilities = ["tools"]\n'
        '[models."anthropic:mine"]\nabilities = ["structured_output"]\n'
    )
    schema = OutputSchema("City", City.model_json_schema())
    settings = Settings.model_validate({"llm_attempts": 1})
    answers = {}
    for spec in ("openai:mine", "openai:gpt-5.4", "anthropic:old", "anthropic:mine", "anthropic:nobody-knows-it"):
        model: Any = assemble_model(spec, settings, base_url="http://127.0.0.1:9/v1")
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


@pytest.mark.parametrize(("facts", "field"), [(without("parallel"), False), (without(), None), (ModelFacts(), None)])
async def test_one_call_at_a_time_is_asked_of_a_model_that_makes_no_more(facts: ModelFacts, field: bool | None) -> None:
    request = ModelRequest(messages=[UserMessage(content="x")], tools=[LOOK])
    async with FakeOpenAIServer(["so", "so"]) as server:
        model = CapabilityModel(OpenAIChatModel("m", base_url=server.base_url), facts)
        await complete(model, request)
        await complete(model, ModelRequest(messages=request.messages))
        await model.aclose()
    assert [sent.json.get("parallel_tool_calls") for sent in server.requests] == [field, None]


async def test_a_server_that_refuses_the_field_is_asked_without_it_from_then_on() -> None:
    request = ModelRequest(messages=[UserMessage(content="x")], tools=[LOOK], parallel_calls=False)
    complaint = "Unsupported parameter: 'parallel_tool_calls' is not supported with this model."
    async with FakeOpenAIServer([status(400, complaint), "so", "so"]) as server:
        model = OpenAIChatModel("m", base_url=server.base_url)
        for _ in range(2):
            assert (await complete(model, request))[1] is None
        await model.aclose()
    assert [sent.json.get("parallel_tool_calls") for sent in server.requests] == [False, None, None]


@pytest.mark.parametrize("choice", ["auto", "required", "none"])
async def test_anthropic_has_its_own_word_for_it(choice: Any) -> None:
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


def called(*ids: str, **more: Any) -> AssistantMessage:
    return AssistantMessage(tool_calls=tuple(ToolCall(id=id_, name="look") for id_ in ids), **more)


def answered(id_: str) -> ToolMessage:
    return ToolMessage(tool_call_id=id_, name="look", content=f"r{id_}")


def rows(messages: list[Message]) -> list[Any]:
    """Calls as lists of ids, results as ids, all else as its text."""
    return [
        row.tool_call_id
        if isinstance(row, ToolMessage)
        else [call.id for call in getattr(row, "tool_calls", ())] or row.content
        for row in messages
    ]


async def test_a_history_of_several_calls_is_parted_for_a_server_that_takes_one_in_a_message() -> None:
    history = [
        *(UserMessage(content="x"), called("a", "b", "c", content="hm"), answered("a"), answered("b"), answered("c")),
        *(called("d"), answered("d"), UserMessage(content="y")),
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
def test_any_sanitised_history_can_be_parted(history: list[Message]) -> None:
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
    ("spec", "abilities", "asked"),
    [
        ("openai:mine", '["tools"]', (None, None)),
        ("openai:mine", '["tools", "reasoning"]', (["reasoning.encrypted_content"], {"summary": "auto"})),
        ("openai:gpt-5.4", None, (["reasoning.encrypted_content"], {"summary": "auto"})),
        ("openai:gpt-4.1", None, (None, None)),
    ],
)
async def test_reasoning_is_asked_for_where_the_catalogue_has_it(
    own: Path, spec: str, abilities: str | None, asked: tuple[Any, Any]
) -> None:
    if abilities:
        own.write_text(f'[models."{spec}"]\nabilities = {abilities}\n')
    async with FakeOpenAIServer([status(401, "no")]) as server:
        model: Any = assemble_model(spec, Settings.model_validate({"llm_attempts": 1}), base_url=server.base_url)
        await complete(model, ModelRequest(messages=[UserMessage(content="x")]))
        await model.aclose()
    sent = server.requests[0].json
    assert (sent.get("include"), sent.get("reasoning")) == asked


@tool(risk="read")
def look() -> str:
    """Look."""
    return "nothing"


async def test_a_whole_turn_of_a_model_that_can_nothing_but_talk(own: Path) -> None:
    own.write_text('[models."together:x"]\nabilities = []\n')
    script = [say("<function=look>\n</function>"), say("It is nothing.")]
    async with FakeOpenAIServer(script) as server:
        model: Any = assemble_model("together:x", Settings.model_validate({}), base_url=server.base_url)
        runtime = AgentRuntime(model)
        said = UserMessage(content="Look at this", attachments=(PNG,))
        events = await collect(runtime.run_turn(said, Session(), tools=[look]))
        await model.aclose()
    assert (events[-1].type, events[-1].data["text"]) == ("final", "It is nothing.")
    for request in server.requests:
        assert rules_chat.violations(request.json) == []
        assert request.json.keys().isdisjoint({"tools", "parallel_tool_calls"})
        assert note(PNG) in json.dumps(request.json)
        assert "<function=" in json.dumps(request.json)

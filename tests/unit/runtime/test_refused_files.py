"""Attached files that a server refuses: named in the error, and left out of later requests."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agenticx import UserMessage
from agenticx.attachments import Attachment, make_attachment
from agenticx.errors import ModelError
from agenticx.llms import RetryingModel
from agenticx.llms.file_refusals import find_refused, without_refused_files
from agenticx.messages import AssistantMessage, Message, RefusedFile
from agenticx.runtime import AgentRuntime, Session
from agenticx.teams import AssistantAgent, MultiModalMessage, RoundRobinGroupChat, TeamError
from agenticx.testing import FakeOpenAIServer, ScriptedModel, collect, fail, say
from tests.support.jumping_clock import VIRTUAL_TIME_OVER_SOCKETS
from tests.support.wires.files import PDF, PNG, TEXT, contents
from tests.support.wires.served import ANTHROPIC, CHAT, GEMINI, OLLAMA, RESPONSES, ServedWire

pytestmark = pytest.mark.anyio

NOTE = "[attached file 'bad.png' (image/png, 68 bytes): its content is not here, because your server refused it]"
BAD = make_attachment("bad.png", contents["image/png"] + b"!")
REFUSALS = [
    (CHAT, 400, "You uploaded an unsupported image. Please make sure your image is valid.", "provider.bad_request"),
    (CHAT, 413, "Request Entity Too Large", "context_overflow"),
    (RESPONSES, 400, "The image data you provided does not represent a valid image.", "provider.bad_request"),
    (
        ANTHROPIC,
        400,
        "messages.0.content.1.image.source.base64: image exceeds 5 MB maximum: 10053760 bytes > 5242880",
        "provider.bad_request",
    ),
    (GEMINI, 400, "Unable to process input image. Please retry or report in troubleshooting", "provider.bad_request"),
    (
        OLLAMA,
        500,
        "Failed to create new sequence: failed to process inputs: image: unknown format",
        "provider.bad_request",
    ),
    (OLLAMA, 400, "illegal base64 data at input byte 4", "provider.bad_request"),
    (
        OLLAMA,
        500,
        "failed to process inputs: png: invalid format: not enough pixel data",
        "provider.bad_request",
    ),
    (OLLAMA, 500, "failed to process inputs: unexpected EOF", "provider.bad_request"),
    (CHAT, 400, "absolute aspect ratio must be smaller than 200, got 400.0", "provider.bad_request"),
    (CHAT, 400, "Exceeded limit on max bytes per data-uri item : 10485760", "provider.bad_request"),
    (CHAT, 400, "图片输入格式/解析错误", "provider.bad_request"),
    (CHAT, 422, "Input validation error: PIL.UnidentifiedImageError", "provider.bad_request"),
    (CHAT, 400, "Unprocessable visual content", "provider.bad_request"),
    (CHAT, 500, "UnidentifiedImageError: <_io.BytesIO object at 0x7f>", "provider.bad_request"),
    (GEMINI, 400, "Request contains an invalid argument.", "provider.bad_request"),
    (CHAT, 400, "Provider returned error", "provider.bad_request"),
    (CHAT, 422, "Unprocessable Entity", "provider.bad_request"),
    (CHAT, 400, "InternalError.Algo.InvalidParameter: The provided input is not valid", "provider.bad_request"),
    (CHAT, 400, "API 调用参数有误，请检查文档。", "provider.bad_request"),
    (OLLAMA, 500, "unable to make llava embedding from image", "provider.overloaded"),
]


@pytest.fixture
def anyio_backend() -> Any:
    return VIRTUAL_TIME_OVER_SOCKETS


async def events_of(model: Any, session: Session, text: str, *files: Attachment) -> tuple[str, str]:
    """Run one turn; return the code and text of its end."""
    events = await collect(AgentRuntime(model).run_turn(UserMessage(content=text, attachments=files), session))
    return events[-1].data.get("code", ""), events[-1].data["text"]


@pytest.mark.parametrize(("wire", "status", "words", "expected"), REFUSALS)
async def test_a_refused_file_does_not_end_the_session(
    wire: ServedWire, status: int, words: str, expected: str
) -> None:
    session, hi = Session(), wire.body(wire.hi, wire.end)
    replies = [wire.refusal(status, words), hi, hi]
    async with FakeOpenAIServer(replies) as server, wire.open_model(server.base_url) as model:
        code, text = await events_of(model, session, "What is this?", TEXT, BAD)
        assert (code, words in text) == (expected, True)
        assert text.endswith(f"; from the next message on {model.name} gets a note instead of 'bad.png'")
        assert await events_of(model, session, "And now?") == ("", "hi")
        async with wire.open_model(server.base_url, name="other") as other:
            assert await events_of(other, session, "And you?") == ("", "hi")
    first, second, third = (json.dumps(request.json, ensure_ascii=False) for request in server.requests)
    assert [BAD.data in body for body in (first, second, third)] == [True, False, True]
    assert [NOTE in body for body in (first, second, third)] == [False, True, False]
    assert all("grüße" in body for body in (first, second, third))


@pytest.mark.parametrize(
    ("words", "second", "suspected"),
    [
        ("Request contains an invalid argument.", "Request contains an invalid argument.", True),
        ("Request contains an invalid argument.", "", True),
        ("Invalid value for temperature.", "", False),
        ("Request contains an invalid role.", "", False),
    ],
)
async def test_a_file_is_suspected_until_the_request_without_it_is_refused_too(
    words: str, second: str, suspected: bool
) -> None:
    hi = GEMINI.body(GEMINI.hi, GEMINI.end)
    refused = [GEMINI.refusal(400, text) if text else hi for text in (words, second)]
    session = Session()
    async with FakeOpenAIServer([*refused, hi]) as server, GEMINI.open_model(server.base_url) as model:
        texts = [(await events_of(model, session, "What is this?", BAD))[1]]
        texts += [(await events_of(model, session, "And now?"))[1] for _ in range(2)]
    note = f"; from the next message on {model.name} gets a note instead of 'bad.png'"
    assert texts[0].endswith(f"; perhaps it cannot read an attached file{note}") is suspected
    again = f"; that is not for 'bad.png', which {model.name} gets again from the next message on"
    assert texts[1].endswith(again) is bool(second)
    sent = [BAD.data in json.dumps(request.json) for request in server.requests]
    assert sent == [True, not suspected, not suspected or bool(second)]


def history(*files: tuple[Attachment, ...]) -> list[Message]:
    """Return a conversation with a reply after each message; the ids of the messages are m0, m1, …."""
    messages = list[Message]()
    for number, attached in enumerate(files):
        messages.append(UserMessage(content="look", attachments=attached, message_id=f"m{number}"))
        messages.append(AssistantMessage(content="ok"))
    return messages[:-1]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("Invalid image data", [("m1", 0), ("m1", 1)]),
        ("image 1 of the request: unsupported format", [("m0", 0)]),
        ("could not decode images[2]", [("m1", 1)]),
        ("failed to process image at index 1", [("m1", 0)]),
        ("image #3 exceeds 5 MB", [("m1", 1)]),
        ("The document 'e.pdf' is password protected", [("m1", 2)]),
        ("A maximum of 100 PDF pages may be provided.", [("m1", 2)]),
        ("At least one of the image dimensions exceed max allowed size: 8000 pixels", [("m1", 0), ("m1", 1)]),
        ("attachments are too large", [("m1", 0), ("m1", 1), ("m1", 2)]),
        ("输入图片大小超过限制", [("m1", 0), ("m1", 1)]),
        ("jpeg: unsupported luma/chroma subsampling ratio", [("m1", 0), ("m1", 1)]),
        ("InvalidImageFormat", [("m1", 0), ("m1", 1)]),
        ("文件格式不支持", [("m1", 0), ("m1", 1), ("m1", 2)]),
        ("messages.3.content: text content blocks must be non-empty", []),
        ("Invalid schema for function 'read_image': image is not of type object", []),
        ("'tool_choice' is not allowed in this context", []),
        ("The model `m` does not exist", []),
        ("invalid temperature: only 1 is allowed for this model", []),
        ("image_generation is not a supported tool", []),
        ("The model `gpt-image` does not exist", []),
        ("invalid request; please file an issue", []),
    ],
)
def test_the_files_that_an_error_refuses_are_found(words: str, expected: list[tuple[str, int]]) -> None:
    messages = history((PNG, TEXT), (PNG.model_copy(update={"name": "x.png"}), BAD, PDF))
    found = find_refused(messages, "m", ModelError(words, code="provider.bad_request"))
    assert [(file.message.message_id, file.index) for file in found] == expected


@pytest.mark.parametrize(
    ("wire", "words"),
    [
        (ANTHROPIC, "messages.2.content.0.image.source.base64.data: Could not process image"),
        (CHAT, "Invalid 'messages[2].content[0].image_url': invalid image"),
        (CHAT, "invalid image at messages.[2].content.[0].image_url.url"),
        (CHAT, 'Field invalid: ["body", "messages", 2, "content", 0, "image_url"]'),
        (RESPONSES, "Invalid 'input[2].content[0].image_url': invalid image"),
        (GEMINI, "Unsupported image at GenerateContentRequest.contents[2].parts[0].inline_data"),
    ],
)
async def test_the_file_at_the_path_of_an_error_is_left_out_alone(wire: ServedWire, words: str) -> None:
    session, hi = Session(messages=history((PNG,), (BAD, PDF))), wire.body(wire.hi, wire.end)
    async with (
        FakeOpenAIServer([wire.refusal(400, words), hi]) as server,
        wire.open_model(server.base_url) as model,
    ):
        assert "gets a note instead of 'bad.png'" in (await events_of(model, session, "go"))[1]
        assert await events_of(model, session, "go") == ("", "hi")
    bodies = [json.dumps(request.json, ensure_ascii=False) for request in server.requests]
    assert [(PNG.data in body, BAD.data in body) for body in bodies] == [(True, True), (True, False)]


def test_a_code_that_names_an_image_refuses_it() -> None:
    error = ModelError("it could not be parsed", code="provider.bad_request", provider_type="image_parse_error")
    assert [file.index for file in find_refused(history((TEXT, PNG, PDF)), "m", error)] == [1]


def test_the_name_of_a_model_names_no_image() -> None:
    model, words = "gemini:flash-image-2", "answered with HTTP 400: temperature is invalid"
    error = ModelError(f"{model} {words}", code="provider.bad_request")
    assert find_refused(history((PNG,)), model, error) == []


async def test_a_file_that_a_fallback_refuses_is_left_out_for_the_fallback_alone() -> None:
    busy = fail(ModelError("busy", code="provider.overloaded"))
    first = ScriptedModel([busy, busy, say("hi")], name="first")
    second = ScriptedModel(
        [fail(ModelError("invalid image", code="provider.bad_request")), say("hello")], name="second"
    )
    model, session = RetryingModel(first, [second]), Session()
    with first, second:
        assert "on second gets a note instead of 'a.png'" in (await events_of(model, session, "Look", PNG))[1]
        assert await events_of(model, session, "go") == ("", "hello")
        assert await events_of(model, session, "go") == ("", "hi")
    requests = [first.requests[2], second.requests[1]]
    looks = [request.messages[0] for request in requests]
    assert [isinstance(look, UserMessage) and look.attachments for look in looks] == [(PNG,), ()]


@pytest.mark.parametrize("nested", [False, True])
async def test_a_file_that_one_participant_was_refused_is_left_out_for_the_others(nested: bool) -> None:
    refusal = fail(ModelError("invalid image", code="provider.bad_request"))
    with ScriptedModel([refusal, say("one"), say("two")]) as model:
        first, second = AssistantAgent("a", model), AssistantAgent("b", model)
        members = [first, RoundRobinGroupChat([second], max_turns=1, name="inner")] if nested else [first, second]
        team = RoundRobinGroupChat(members, max_turns=2)
        with pytest.raises(TeamError, match=r"gets a note instead of 'bad\.png'"):
            await team.run(task=MultiModalMessage(content=["Look", BAD], source="user"))
        result = await team.run(task="And now?")
    assert [message.to_text() for message in result.messages] == ["And now?", "one", "two"]
    for request in model.requests[1:]:
        assert [m.attachments for m in request.messages if isinstance(m, UserMessage) and m.attachments] == []
        assert any(NOTE in message.content for message in request.messages)


async def test_a_document_that_fills_the_context_is_left_out_if_nothing_can_be_compacted() -> None:
    session, too_long = Session(), ModelError("prompt is too long", code="context_overflow", status=400)
    with ScriptedModel([fail(too_long), say("hi")]) as model:
        code, text = await events_of(model, session, "Read", PNG, PDF)
        assert (code, text.endswith("gets a note instead of 'e.pdf'")) == ("context_overflow", True)
        assert await events_of(model, session, "go") == ("", "hi")
    assert [message.attachments for message in model.requests[1].messages if isinstance(message, UserMessage)] == [
        *((PNG,), ())
    ]


def test_a_note_replaces_a_file_for_the_model_that_refused_it_alone() -> None:
    mark = RefusedFile(model="m", message_id="m0", index=1)
    messages = [*history((PNG, BAD)), UserMessage(content="", refused_files=(mark,))]
    (changed, *_), same = without_refused_files(messages, "m"), without_refused_files(messages, "n")
    assert isinstance(changed, UserMessage)
    assert (changed.content, changed.attachments, same) == (f"{NOTE}\n\nlook", (PNG,), messages)

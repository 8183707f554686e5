"""Attachments of messages: their validation, and their form on each wire."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agenticx import UserMessage, load_attachment
from agenticx.attachments import (
    MAX_ATTACHMENTS,
    MAX_TOTAL_BYTES,
    Attachment,
    check_attachments,
    fingerprint,
    make_attachment,
)
from agenticx.errors import AttachmentRefused, AttachmentTooLarge
from agenticx.llms import ModelRequest, ToolSchema
from agenticx.llms.wrappers.capabilities import attachments_as_text
from agenticx.llms.wrappers.xml_tools import with_tools_in_prompt
from agenticx.messages import AssistantMessage, ToolCall, ToolMessage, message_adapter
from agenticx.runtime import Session
from agenticx.untrusted_text import MATERIAL, frame_text
from tests.support.wires import rules_anthropic, rules_gemini, rules_ollama, rules_responses, sdk_types
from tests.support.wires.bodies import anthropic_body, chat_body, gemini_body, ollama_body, responses_body
from tests.support.wires.files import GIF, JPEG, PDF, PNG, TEXT, WEBP, contents

ALL = (PNG, JPEG, GIF, WEBP, PDF, TEXT)
QUESTION = "What is this?"
TEXT_FILE_AS_TEXT = frame_text("attached file f.txt (text/plain, 8 bytes)", "grüße\n", MATERIAL)


# --- validation -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("media_type", contents)
def test_the_type_of_a_file_is_read_from_its_content(media_type: str) -> None:
    attachment = make_attachment("liar.exe", contents[media_type], "application/x-msdownload")
    assert attachment == Attachment(
        name="liar.exe", media_type=media_type, data=b64encode(contents[media_type]).decode()
    )
    assert attachment.size == len(contents[media_type])


@pytest.mark.parametrize(
    ("declared", "kept"),
    [
        ("text/csv", "text/csv"),
        ("application/json; charset=utf-8", "application/json"),
        ("application/ld+json", "application/ld+json"),
        ("text/", "text/plain"),
        ("text/x\ny", "text/plain"),
        (None, "text/plain"),
    ],
)
def test_a_declared_type_is_kept_only_for_kinds_of_text(declared: str | None, kept: str) -> None:
    assert make_attachment("a", b"a,b\n", declared).media_type == kept


@pytest.mark.parametrize("declared", ["image/png", "application/pdf"])
def test_text_that_is_declared_as_what_its_content_would_show_is_refused(declared: str) -> None:
    with pytest.raises(AttachmentRefused, match=f"'a' is sent as {declared}, but it is text"):
        make_attachment("a", b"a,b\n", declared)


@pytest.mark.parametrize(
    "content",
    [
        b"\x00\x01",
        b"MZ\x90",
        b"PK\x03\x04",
        "ä".encode("utf-16-le"),
        b"\xff\xfe\x00\xd8\x00\x00",
        b"caf\xe9",
        b"RIFF\0\0\0\0WAVE",
        b"a\x7f",
    ],
)
def test_other_content_is_refused_and_the_error_names_the_file(content: bytes) -> None:
    with pytest.raises(AttachmentRefused, match=r"'x\.png' is neither a PNG, .* nor text in UTF-8") as caught:
        make_attachment("x.png", content)
    assert not isinstance(caught.value, AttachmentTooLarge)


@pytest.mark.parametrize(
    ("media_type", "limit", "sentence"),
    [
        ("image/png", 5 * 1024 * 1024, "'x' has 5242881 bytes; an image may have 5 MiB"),
        ("application/pdf", 12 * 1024 * 1024, "'x' has 12582913 bytes; a PDF may have 12 MiB"),
        ("text/plain", 512 * 1024, "'x' has 524289 bytes; a text file may have 512 KiB"),
    ],
)
def test_each_kind_has_a_size_limit_that_the_error_states(media_type: str, limit: int, sentence: str) -> None:
    content = contents[media_type] + b" " * (limit - len(contents[media_type]))
    assert make_attachment("x", content).size == limit
    with pytest.raises(AttachmentTooLarge) as caught:
        make_attachment("x", content + b" ")
    assert str(caught.value) == sentence


@pytest.mark.parametrize("name", ["", "x" * 256, "a\nb", "a\x1b[31m", "\u202egnp.exe"])
def test_a_name_is_1_to_255_printable_characters(name: str) -> None:
    with pytest.raises(AttachmentRefused, match="1 to 255 printable characters"):
        make_attachment(name, b"x")


def test_the_files_of_a_message_have_a_total_limit() -> None:
    check_attachments([TEXT] * MAX_ATTACHMENTS)
    with pytest.raises(AttachmentTooLarge, match="21 files are attached; the limit is 20"):
        check_attachments([TEXT] * (MAX_ATTACHMENTS + 1))
    large = make_attachment("l.png", contents["image/png"] + b"\0" * 4_500_000)
    check_attachments([large] * 3)
    with pytest.raises(AttachmentTooLarge, match=f"bytes together; the limit is {MAX_TOTAL_BYTES // 1024**2} MiB"):
        check_attachments([large] * 4)


@pytest.mark.parametrize(
    ("attachment", "sentence"),
    [
        (PNG.model_copy(update={"media_type": "image/jpeg"}), "'a.png' is image/png, not image/jpeg"),
        (PNG.model_copy(update={"data": "*"}), "the data of 'a.png' is not base64"),
        (TEXT.model_copy(update={"media_type": "application/zip"}), "'f.txt' is text/plain, not application/zip"),
    ],
)
def test_an_attachment_built_directly_is_checked_as_well(attachment: Attachment, sentence: str) -> None:
    with pytest.raises(AttachmentRefused, match=sentence):
        check_attachments([attachment])


def test_a_loaded_file_has_the_last_part_of_its_path_as_name(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "a.png"
    path.parent.mkdir()
    path.write_bytes(contents["image/png"])
    assert load_attachment(path) == load_attachment(str(path)) == PNG
    with pytest.raises(AttachmentRefused, match="is not a file"):
        load_attachment(tmp_path)
    with (tmp_path / "huge").open("wb") as sparse:
        sparse.truncate(MAX_TOTAL_BYTES + 1)
    with pytest.raises(AttachmentTooLarge, match="'huge' is larger than 16 MiB"):
        load_attachment(tmp_path / "huge")


@given(st.binary(max_size=200))
def test_every_accepted_attachment_is_accepted_again_and_can_be_stored(content: bytes) -> None:
    try:
        attachment = make_attachment("x", content)
    except AttachmentRefused:
        return
    check_attachments([attachment])
    message = UserMessage(content="", attachments=(attachment,))
    assert message_adapter().validate_json(message_adapter().dump_json(message)) == message
    assert attachment.size == len(content)
    assert attachment.estimated_chars >= 0


def test_a_fingerprint_differs_with_name_type_and_content() -> None:
    other = [PNG, PNG.model_copy(update={"name": "b.png"}), PNG.model_copy(update={"data": "AAAA"})]
    assert len({fingerprint(files) for files in ([], *([one] for one in other), [PNG, PNG])}) == 5
    assert fingerprint([PNG]) == fingerprint([PNG.model_copy()])


# --- wires ------------------------------------------------------------------------------------------------------------


def request_with(*files: Attachment, text: str = QUESTION) -> ModelRequest:
    return ModelRequest(messages=[UserMessage(content=text, attachments=files)])


def omission_note(file: Attachment) -> str:
    what = f"{file.name} ({file.media_type}, {file.size} bytes)"
    return f"[attached file {what}: its content is not here, because you cannot be given files of this type]"


def data_url(file: Attachment) -> str:
    return f"data:{file.media_type};base64,{file.data}"


def chat(request: ModelRequest, **dialect: bool) -> dict[str, Any]:
    return json.loads(chat_body(request, **dialect))


def responses(request: ModelRequest) -> dict[str, Any]:
    body = json.loads(responses_body(request))
    assert rules_responses.violations(body) == []
    return body


def anthropic(request: ModelRequest) -> dict[str, Any]:
    body = json.loads(anthropic_body(request))
    assert rules_anthropic.violations(body) == []
    return body


def gemini(request: ModelRequest, **features: bool) -> dict[str, Any]:
    body = json.loads(gemini_body(request, **features))
    assert rules_gemini.violations(body, signed=False) == []
    return body


def ollama(request: ModelRequest) -> dict[str, Any]:
    body = json.loads(ollama_body(request))
    assert rules_ollama.violations(body) == []
    return body


def test_chat_completions_has_image_urls_and_files() -> None:
    assert chat(request_with(*ALL), files=True)["messages"][0]["content"] == [
        *({"type": "image_url", "image_url": {"url": data_url(image)}} for image in (PNG, JPEG, GIF, WEBP)),
        {"type": "file", "file": {"filename": "e.pdf", "file_data": data_url(PDF)}},
        {"type": "text", "text": TEXT_FILE_AS_TEXT},
        {"type": "text", "text": QUESTION},
    ]


def test_a_chat_server_without_images_and_files_gets_a_note_for_each() -> None:
    assert chat(request_with(PNG, PDF), images=False)["messages"][0]["content"] == [
        {"type": "text", "text": omission_note(PNG)},
        {"type": "text", "text": omission_note(PDF)},
        {"type": "text", "text": QUESTION},
    ]


def test_responses_has_input_images_and_input_files() -> None:
    assert responses(request_with(*ALL))["input"][0]["content"] == [
        *({"type": "input_image", "image_url": data_url(image), "detail": "auto"} for image in (PNG, JPEG, GIF, WEBP)),
        {"type": "input_file", "filename": "e.pdf", "file_data": data_url(PDF)},
        {"type": "input_text", "text": TEXT_FILE_AS_TEXT},
        {"type": "input_text", "text": QUESTION},
    ]


def test_anthropic_has_image_and_document_blocks() -> None:
    def source(file: Attachment) -> dict[str, Any]:
        return {"type": "base64", "media_type": file.media_type, "data": file.data}

    assert anthropic(request_with(*ALL))["messages"][0]["content"] == [
        *({"type": "image", "source": source(image)} for image in (PNG, JPEG, GIF, WEBP)),
        {"type": "document", "source": source(PDF), "title": "e.pdf"},
        {"type": "text", "text": TEXT_FILE_AS_TEXT},
        {"type": "text", "text": QUESTION, "cache_control": {"type": "ephemeral"}},
    ]


def test_gemini_has_inline_data_but_takes_no_gif() -> None:
    assert gemini(request_with(*ALL))["contents"][0]["parts"] == [
        {"inlineData": {"mimeType": "image/png", "data": PNG.data}},
        {"inlineData": {"mimeType": "image/jpeg", "data": JPEG.data}},
        {"text": omission_note(GIF)},
        {"inlineData": {"mimeType": "image/webp", "data": WEBP.data}},
        {"inlineData": {"mimeType": "application/pdf", "data": PDF.data}},
        {"text": TEXT_FILE_AS_TEXT},
        {"text": QUESTION},
    ]


def test_ollama_has_images_in_a_field_next_to_the_text() -> None:
    assert ollama(request_with(PNG, PDF, TEXT))["messages"] == [
        {"role": "user", "content": f"{omission_note(PDF)}\n\n{TEXT_FILE_AS_TEXT}\n\n{QUESTION}", "images": [PNG.data]}
    ]


def results_with(*files: Attachment) -> ModelRequest:
    """Return a request with two results, the first of which has the files."""
    calls = tuple(ToolCall(id=f"call_{number}", name="draw") for number in (1, 2))
    return ModelRequest(
        messages=[
            UserMessage(content="Draw."),
            AssistantMessage(tool_calls=calls),
            ToolMessage(tool_call_id="call_1", name="draw", content="Drawn.", attachments=files),
            ToolMessage(tool_call_id="call_2", name="draw", content="Nothing."),
        ],
        tools=[ToolSchema("draw", "Draw.", {"type": "object", "properties": {}})],
    )


SHOWN_AFTER_RESULTS = "[results] The files of the results above, in this order: a.png, e.pdf, f.txt."


def test_anthropic_has_the_images_and_documents_of_a_result_in_the_result() -> None:
    def source(file: Attachment) -> dict[str, Any]:
        return {"type": "base64", "media_type": file.media_type, "data": file.data}

    first, second = anthropic(results_with(PNG, PDF, TEXT))["messages"][2]["content"]
    assert first["content"] == [
        {"type": "text", "text": f"Drawn.\n\n{TEXT_FILE_AS_TEXT}"},
        {"type": "image", "source": source(PNG)},
        {"type": "document", "source": source(PDF), "title": "e.pdf"},
    ]
    assert second["content"] == "Nothing."


def test_responses_has_the_images_and_files_of_a_result_in_its_output() -> None:
    assert responses(results_with(PNG, PDF, TEXT))["input"][3:] == [
        {
            "type": "function_call_output",
            "call_id": "call_1",
            "output": [
                {"type": "input_text", "text": f"Drawn.\n\n{TEXT_FILE_AS_TEXT}"},
                {"type": "input_image", "image_url": data_url(PNG), "detail": "auto"},
                {"type": "input_file", "filename": "e.pdf", "file_data": data_url(PDF)},
            ],
        },
        {"type": "function_call_output", "call_id": "call_2", "output": "Nothing."},
    ]


def test_gemini_3_has_the_files_of_a_result_in_its_parts() -> None:
    first, second = gemini(results_with(PNG, PDF, GIF), result_files=True)["contents"][2]["parts"]
    assert first["functionResponse"] == {
        "name": "draw",
        "response": {"output": f"Drawn.\n\n{omission_note(GIF)}"},
        "parts": [
            {"inlineData": {"mimeType": "image/png", "data": PNG.data}},
            {"inlineData": {"mimeType": "application/pdf", "data": PDF.data}},
        ],
    }
    assert second["functionResponse"] == {"name": "draw", "response": {"output": "Nothing."}}


def test_gemini_before_3_has_the_files_of_results_behind_them() -> None:
    assert gemini(results_with(PNG, PDF, TEXT))["contents"][2]["parts"] == [
        {"functionResponse": {"name": "draw", "response": {"output": "Drawn."}}},
        {"functionResponse": {"name": "draw", "response": {"output": "Nothing."}}},
        {"inlineData": {"mimeType": "image/png", "data": PNG.data}},
        {"inlineData": {"mimeType": "application/pdf", "data": PDF.data}},
        {"text": TEXT_FILE_AS_TEXT},
        {"text": SHOWN_AFTER_RESULTS},
    ]


def test_chat_completions_has_the_files_of_results_in_a_message_behind_them() -> None:
    assert chat(results_with(PNG, PDF, TEXT), files=True)["messages"][2:] == [
        {"role": "tool", "tool_call_id": "call_1", "content": "Drawn."},
        {"role": "tool", "tool_call_id": "call_2", "content": "Nothing."},
        {
            "role": "user",
            "content": [
                {"type": "image_url", "image_url": {"url": data_url(PNG)}},
                {"type": "file", "file": {"filename": "e.pdf", "file_data": data_url(PDF)}},
                {"type": "text", "text": TEXT_FILE_AS_TEXT},
                {"type": "text", "text": SHOWN_AFTER_RESULTS},
            ],
        },
    ]


def test_ollama_has_the_files_of_results_in_a_message_behind_them() -> None:
    assert ollama(results_with(PNG, PDF, TEXT))["messages"][3:] == [
        {"role": "tool", "tool_name": "draw", "tool_call_id": "call_2", "content": "Nothing."},
        {
            "role": "user",
            "content": f"{omission_note(PDF)}\n\n{TEXT_FILE_AS_TEXT}\n\n{SHOWN_AFTER_RESULTS}",
            "images": [PNG.data],
        },
    ]


def test_models_without_vision_or_function_calling_get_the_files_of_results_too() -> None:
    [*_, first, _] = map(attachments_as_text, results_with(PNG, TEXT).messages)
    assert first.content == f"Drawn.\n\n{omission_note(PNG)}\n\n{TEXT_FILE_AS_TEXT}"
    written = with_tools_in_prompt(results_with(PNG, TEXT)).messages[-1]
    assert isinstance(written, UserMessage)
    assert written.attachments == (PNG,)
    assert "grüße" in written.content
    assert "Nothing." in written.content


def test_the_rows_of_a_history_have_the_files_of_results_behind_them() -> None:
    rows = Session(messages=results_with(PNG).messages).to_openai()
    assert [row["role"] for row in rows] == ["user", "assistant", "tool", "tool", "user"]
    assert rows[-1]["content"][1] == {"type": "image_url", "image_url": {"url": data_url(PNG)}}
    assert Session(messages=rows).messages[-1].attachments == (make_attachment("image2", PNG.content()),)


_messages = st.builds(
    UserMessage,
    content=st.text(st.characters(exclude_categories=("Cs",)), max_size=5),
    attachments=st.lists(st.sampled_from(ALL)).map(tuple),
)


@given(st.lists(_messages, min_size=1, max_size=4))
def test_any_files_become_a_valid_request_on_each_wire(messages: list[UserMessage]) -> None:
    request = ModelRequest(messages=messages)
    for build in (responses, anthropic, gemini, ollama):
        assert build(request) == build(request)
    text = json.dumps(chat(request, files=True))
    for message in messages:
        assert all(file.data in text for file in message.attachments if file.kind != "text")


@pytest.mark.parametrize(
    ("wire", "build"),
    [
        pytest.param(wire, build, marks=sdk_types.needs_sdk(wire), id=wire)
        for wire, build in {
            "openai_chat": partial(chat, files=True),
            "openai_responses": responses,
            "anthropic": anthropic,
            "gemini": partial(gemini, result_files=True),
        }.items()
    ],
)
@pytest.mark.parametrize("files", [(), (PNG,), ALL], ids=["none", "an image", "all"])
@pytest.mark.cases(quick=1)
@pytest.mark.ci_lane
def test_requests_with_files_match_the_types_of_the_provider_sdks(
    files: tuple[Attachment, ...], wire: str, build: Callable[[ModelRequest], dict[str, Any]]
) -> None:
    assert sdk_types.type_errors(wire, build(request_with(*files))) == []
    assert sdk_types.type_errors(wire, build(results_with(*files))) == []

"""Attached files are checked against the known limits of their provider before a request is sent."""

from __future__ import annotations

import struct

import pytest

from agenticx import UserMessage
from agenticx.attachments import Attachment, image_size, make_attachment, page_count
from agenticx.errors import AttachmentRefused
from agenticx.llms import ModelRequest, ScriptedModel, complete, resolve_model
from agenticx.llms.file_limits import FileFacts, FileLimits, find_over_limits
from agenticx.llms.file_refusals import sent_files
from agenticx.llms.providers.resolve import find_file_limits
from agenticx.llms.wrappers.file_limits import FileLimitModel
from agenticx.messages import AssistantMessage, Message
from agenticx.runtime import AgentRuntime, Session
from agenticx.testing import collect
from tests.support.wires.files import contents

pytestmark = pytest.mark.anyio

ANTHROPIC = find_file_limits("anthropic:claude-sonnet-4-5")


def png(width: int, height: int = 10, name: str = "a.png", size: int = 0) -> Attachment:
    header = b"\x89PNG\r\n\x1a\n" + struct.pack(">I4sII", 13, b"IHDR", width, height)
    return make_attachment(name, header + bytes(size))


def pdf(pages: int, name: str = "e.pdf") -> Attachment:
    page = b"1 0 obj << /Type /Page /Parent 2 0 R >> endobj\n"
    return make_attachment(name, b"%PDF-1.7\n2 0 obj << /Type /Pages /Count 9 >>\n" + page * pages)


def jpeg(*segments: bytes) -> bytes:
    return b"\xff\xd8" + b"".join(segments)


FRAME = b"\xff\xc2\x00\x11\x08" + struct.pack(">HH", 480, 9000) + b"\x03" + bytes(9)


@pytest.mark.parametrize(
    ("content", "size"),
    [
        (b"\x89PNG\r\n\x1a\n" + struct.pack(">I4sII", 13, b"IHDR", 9000, 480), (9000, 480)),
        (b"GIF89a" + struct.pack("<HH", 9000, 480), (9000, 480)),
        (jpeg(b"\xff\xe0\x00\x04ab", b"\xff\xff\xdb\x00\x02", FRAME), (9000, 480)),
        (jpeg(b"\xff\xe1\xff\xff" + bytes(65_533), FRAME), (9000, 480)),
        (b"RIFF\0\0\0\0WEBPVP8X\x0a" + bytes(7) + (8999 | 479 << 24).to_bytes(6, "little"), (9000, 480)),
        (b"RIFF\0\0\0\0WEBPVP8L\0\0\0\0\x2f" + (8999 | 479 << 14).to_bytes(4, "little") + bytes(8), (9000, 480)),
        (b"RIFF\0\0\0\0WEBPVP8 \0\0\0\0\0\0\0\x9d\x01\x2a" + struct.pack("<HH", 9000, 480), (9000, 480)),
        (jpeg(b"\xff\xe1\xff\xff" + bytes(65_533)) * 5, None),
    ],
)
def test_the_size_of_an_image_is_read_from_its_header(content: bytes, size: tuple[int, int] | None) -> None:
    assert image_size(make_attachment("a", content)) == size


@pytest.mark.parametrize(
    "content",
    [
        b"\x89PNG\r\n\x1a\n" + b"garbage " * 9,
        b"\x89PNG\r\n\x1a\n" + struct.pack(">I4sII", 13, b"IHDR", 0, 480),
        b"GIF89a",
        jpeg(b"\xff\xe0\x00\x00", b"x" * 20),
        jpeg(b"\xff" * 100),
        b"RIFF\0\0\0\0WEBPVP8 ",
    ],
)
def test_what_only_begins_like_an_image_is_refused(content: bytes) -> None:
    with pytest.raises(AttachmentRefused, match=r"'a' begins like image/\w+, but it is cut off or damaged: its header"):
        make_attachment("a", content)


def test_the_pages_of_a_pdf_are_counted_if_they_can_be_read() -> None:
    assert [page_count(pdf(3)), page_count(make_attachment("e.pdf", contents["application/pdf"]))] == [3, None]


@pytest.mark.parametrize(
    ("limits", "files", "over"),
    [
        (ANTHROPIC, [png(8000), png(8001), png(10, 8001)], {1: "8001", 2: "8001"}),
        (ANTHROPIC, [png(10, size=3_932_128), png(10, size=3_932_160)], {1: "3932160 bytes"}),
        (ANTHROPIC, [pdf(100)], {}),
        (ANTHROPIC, [pdf(101)], {0: "100 pages"}),
        (ANTHROPIC, [pdf(60), pdf(60)], {0: "100 pages"}),
        (find_file_limits("anthropic:claude-sonnet-5"), [pdf(101)], {}),
        (ANTHROPIC, [png(3000)] * 20, {}),
        (ANTHROPIC, [png(3000), *[png(10)] * 20], {0: "2000 pixels"}),
        (ANTHROPIC, [*[png(10)] * 20, png(3000)], {0: "20 images"}),
        (ANTHROPIC, [make_attachment("b.pdf", contents["application/pdf"] + bytes(11_000_000))] * 3, {0: "together"}),
        (find_file_limits("groq:m"), [png(10)] * 6, {0: "5 images"}),
        (find_file_limits("xai:m"), [png(10), make_attachment("a.webp", contents["image/webp"])], {1: "image/webp"}),
        (FileLimits(), [png(99_999)], {}),
    ],
)
def test_files_over_a_limit_are_found_and_of_too_many_the_oldest(
    limits: FileLimits | None, files: list[Attachment], over: dict[int, str]
) -> None:
    sent = list(sent_files([UserMessage(content="", attachments=tuple(files))]))
    assert limits is not None
    found = {
        file.index: reason for file, reason in find_over_limits(sent, limits, lambda f: FileFacts.of(f.attachment))
    }
    assert found.keys() == over.keys()
    assert all(words in found[index] for index, words in over.items())


def test_limits_are_those_of_the_usual_address_alone() -> None:
    assert find_file_limits("openai-chat:gpt-4o") == find_file_limits("openai:gpt-4o") != None  # noqa: E711
    assert find_file_limits("openai:gpt-4o", "https://gateway.example/v1") is None
    assert find_file_limits("ollama:m") is None


async def test_an_assembled_model_refuses_a_new_file_over_a_limit_without_a_request() -> None:
    model = resolve_model("anthropic:claude-sonnet-4-5", api_key="k")
    _, error = await complete(model, ModelRequest(messages=[UserMessage(content="", attachments=(png(8001),))]))
    assert error is not None
    assert (error.code, "'a.png'" in str(error), "8000 pixels" in str(error)) == ("provider.bad_request", True, True)


async def test_a_new_file_over_a_limit_ends_its_turn_and_an_old_one_is_replaced_by_a_note() -> None:
    assert ANTHROPIC is not None
    inner, session = ScriptedModel(["ok"]), Session()
    runtime = AgentRuntime(FileLimitModel(inner, ANTHROPIC))
    refused = await collect(runtime.run_turn(UserMessage(content="look", attachments=(png(8001), png(10))), session))
    answered = await collect(runtime.run_turn("again", session))
    assert "a note instead of 'a.png'" in refused[-1].data["text"]
    assert (answered[-1].type, answered[-1].data["text"]) == ("final", "ok")
    (request,) = inner.requests
    assert [len(message.attachments) for message in request.messages if isinstance(message, UserMessage)] == [1, 0]

    old: list[Message] = [UserMessage(content="look", attachments=(png(8001),)), AssistantMessage(content="ok")]
    inner = ScriptedModel(["ok"])
    await complete(FileLimitModel(inner, ANTHROPIC), ModelRequest(messages=[*old, UserMessage(content="and?")]))
    (first, *_) = inner.requests[0].messages
    assert isinstance(first, UserMessage)
    assert (first.attachments, first.content) == (
        (),
        "[attached file 'a.png' (image/png, 24 bytes): its content is not here, because "
        "your server does not accept so large or so many files]\n\nlook",
    )

"""Image models: requests of the Images API, results in order, and the check of what comes back."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from decimal import Decimal
from typing import Any

import pytest

from agenticx.errors import ModelError, SettingsError
from agenticx.llms import Image, ImageProvider, RetryPolicy, Usage, resolve_image_model
from agenticx.llms.images.api import ImagesApi
from agenticx.llms.images.base import checked_image
from agenticx.testing import ScriptedImages
from tests.support.closed_port import closed_port
from tests.support.image_server import ImageServer, image_server, png

pytestmark = pytest.mark.anyio

QUICKLY = RetryPolicy(attempts=3, shortest_wait=0.01, longest_wait=0.01)
GIF = b"GIF89a\x02\x00\x01\x00" + bytes(4)


@pytest.fixture
def server() -> Iterator[ImageServer]:
    with image_server() as running:
        yield running


@asynccontextmanager
async def opened(server: ImageServer, spec: str = "openai:gpt-image-1-mini") -> AsyncGenerator[ImagesApi]:
    model = resolve_image_model(spec, api_key="sk-1", base_url=f"{server.address}/v1", policy=QUICKLY)
    try:
        yield model
    finally:
        await model.aclose()


async def test_each_prompt_has_its_result_in_order_and_one_failing_fails_no_other(server: ImageServer) -> None:
    server.images = {"a fox": png(1024, 1024), "a hen": GIF}
    server.errors = {"a sin": [(400, "The prompt was rejected by the safety system.")]}
    server.usage = {"input_tokens": 100, "output_tokens": 4_000}
    async with opened(server) as model:
        results = await model.generate(["a fox", "a sin", "a hen"], size="1024x1024")
    fox, sin, hen = results
    assert fox.image == Image(png(1024, 1024), "image/png", 1024, 1024)
    assert hen.image == Image(GIF, "image/gif", 2, 1)
    assert (sin.image, sin.error) == (
        None,
        "openai answered with HTTP 400: The prompt was rejected by the safety system.",
    )
    assert (fox.usage, sin.usage) == (Usage(100, 4_000, cost_usd=Decimal("0.03225")), None)
    sent = {"model": "gpt-image-1-mini", "n": 1, "output_format": "png", "size": "1024x1024"}
    path = "/v1/images/generations"
    assert sorted(server.requests, key=lambda request: request[1]["prompt"]) == [
        (path, {**sent, "prompt": prompt}) for prompt in ("a fox", "a hen", "a sin")
    ]


async def test_an_image_is_sent_as_a_form_to_lose_its_background(server: ImageServer) -> None:
    photo, drawing = checked_image(png(8, 8, size=300) + b"\r\n--x--\r\n"), checked_image(GIF)
    server.images = {photo.content: png(8, 8)}
    server.errors = {GIF: [(400, "The image is too small.")]}
    async with opened(server) as model:
        done, failed = await model.remove_background([photo, drawing])
    assert (done.image, "too small" in failed.error) == (checked_image(png(8, 8)), True)
    (path, fields), _ = sorted(server.requests, key=lambda request: request[1]["image_type"], reverse=True)
    assert (path, fields["image"], fields["image_type"]) == ("/v1/images/edits", photo.content, "image/png")
    assert (fields["model"], fields["background"], fields["output_format"]) == (
        "gpt-image-1-mini",
        "transparent",
        "png",
    )
    assert fields["prompt"].startswith("Remove the background.")


async def test_other_models_are_asked_for_base64_and_an_unknown_parameter_is_left_out(server: ImageServer) -> None:
    server.unknown_parameter = "response_format"
    async with opened(server, "openai-chat:flux") as model:
        (first,), (second,) = await model.generate(["a fox"]), await model.generate(["a hen"], transparent=True)
    assert first.image is not None
    assert second.image is not None
    plain = {"model": "flux", "n": 1}
    assert [fields for _, fields in server.requests] == [
        {**plain, "prompt": "a fox", "response_format": "b64_json"},
        {**plain, "prompt": "a fox"},
        {**plain, "prompt": "a hen", "background": "transparent"},
    ]


async def test_a_request_is_repeated_only_where_no_image_was_made(server: ImageServer) -> None:
    server.errors = {"busy": [(429, "Slow down.")], "down": [(503, "Overloaded.")] * 3}
    async with opened(server) as model:
        busy, down = await model.generate(["busy", "down"])
    assert (busy.image is not None, down.error) == (True, "openai answered with HTTP 503: Overloaded.")
    assert sorted(server.prompts) == ["busy"] * 2 + ["down"] * 3

    with closed_port() as port:
        (result,) = await resolve_image_model("vllm:x", base_url=f"http://127.0.0.1:{port}/v1").generate(["a fox"])
    assert (result.usage, "is vLLM running?" in result.error) == (None, True)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (b"[]", "it sent no image"),
        (b"{", "its answer is not JSON"),
        (b"[" * 100_000, "its answer is not JSON"),
        (b'{"data": []}', "it sent no image"),
        (b'{"data": [{"url": "http://127.0.0.1/x.png"}]}', "it sent a URL in place of an image"),
        (b'{"data": [{"b64_json": "!!!!"}]}', "the image is not base64"),
        (b'{"data": [{"b64_json": "PHN2Zz4="}]}', "it is no PNG, JPEG, WebP or GIF image"),
        (json.dumps({"data": [{"b64_json": "A" * 15_000_000}]}).encode(), "the response has more than"),
    ],
)
async def test_an_answer_without_an_image_is_an_error(answer: bytes, reason: str, server: ImageServer) -> None:
    server.answer = answer
    async with opened(server) as model:
        (result,) = await model.generate(["a fox"])
    assert (result.image, reason in result.error) == (None, True)
    assert len(server.requests) == 1
    assert result.usage is not None  # it may have been paid for


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (png(4, 3, size=10 * 1024 * 1024), "it has 10,485,784 bytes; the limit is 10 MiB"),
        (png(10_000, 5_001), "it has 10,000 × 5,001 pixels; the limit is 50,000,000 in all"),
        (png(0, 3), "its header does not give its size in pixels"),
        (b"\xff\xd8\xff", "its header does not give its size in pixels"),
        (b"<svg xmlns='http://www.w3.org/2000/svg'/>", "it is no PNG, JPEG, WebP or GIF image"),
        (b"", "it is no PNG, JPEG, WebP or GIF image"),
    ],
)
def test_content_that_is_no_usable_image_is_refused(content: bytes, reason: str) -> None:
    with pytest.raises(ModelError, match=r"^the image cannot be used: ") as caught:
        checked_image(content)
    assert str(caught.value).endswith(reason)
    checked_image(png(10_000, 5_000))


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        ("anthropic:claude", "images of 'anthropic' cannot be used; name a model of a server that has"),
        ("gpt-image-1-mini", "is not provider:name"),
        ("openai:gpt-image-1-mini", "needs a key"),
    ],
)
def test_a_name_of_no_image_model_is_refused(spec: str, reason: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with pytest.raises(SettingsError, match=reason):
        resolve_image_model(spec)


async def test_a_scripted_model_gives_its_replies_in_order_and_records_what_it_gets() -> None:
    scripted: Any = ScriptedImages([png(), "Refused.", b"no image"], cost_usd="0.04")
    results = [*await scripted.generate(["a", "b"]), *await scripted.remove_background([checked_image(GIF)] * 2)]
    assert [result.image and result.image.media_type for result in results] == ["image/png", None, None, None]
    assert [result.error for result in results[1:]] == [
        "Refused.",
        "the image cannot be used: it is no PNG, JPEG, WebP or GIF image",
        "there is no further scripted image",
    ]
    assert (scripted.prompts, len(scripted.images), isinstance(scripted, ImageProvider)) == (["a", "b"], 2, True)

"""Tests that errors of providers are reported as a sentence, whatever the format of their body."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from agenticx.llms import ModelRequest, OpenAIChatModel, close_model, complete
from tests.support.wires.chunk_server import chunk_server
from tests.support.wires.wires import WIRES, read

pytestmark = pytest.mark.anyio


def framed(wire: str, event: dict[str, Any]) -> Iterator[bytes]:
    """Return a body of that one event."""
    text = json.dumps(event).encode()
    yield text + b"\n" if WIRES[wire].ending == "ndjson" else b"data: " + text + b"\n\n"


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        pytest.param({"error": {"message": "no such thing", "type": "t"}}, "t", id="OpenAI"),
        pytest.param({"message": "no such thing"}, None, id="Cohere and Bedrock"),
        pytest.param({"Message": "no such thing"}, None, id="gateways of Amazon"),
        pytest.param({"message": "no such thing", "id": "7"}, None, id="a message and an id"),
        pytest.param({"message": "no such thing", "type": "t", "code": 1}, "t", id="vLLM of old"),
        pytest.param([{"error": {"message": "no such thing", "status": "S"}}], "S", id="Gemini"),
        pytest.param({"detail": "no such thing"}, None, id="FastAPI"),
    ],
)
async def test_the_error_has_the_sentence_of_the_provider(body: Any, kind: str | None) -> None:
    head = b"HTTP/1.1 400 Bad Request\r\nContent-Type: application/json\r\n"
    async with chunk_server(lambda: [json.dumps(body).encode()], head=head) as server:
        model = OpenAIChatModel("m", base_url=f"{server.base_url}/v1")
        _, error = await complete(model, ModelRequest(messages=[]))
        await close_model(model)
    assert error is not None
    assert (str(error).partition("HTTP 400: ")[2], error.provider_type) == ("no such thing", kind)


KEY = "sk-test-KEYKEYKEY1234567890"


@pytest.mark.parametrize(
    "quoted",
    [
        pytest.param(f"<b>{KEY[:10]}</b>{KEY[10:]}", id="markup"),
        pytest.param(f"<b>{KEY}", id="markup before it"),
        pytest.param(f"no {KEY[:5]}<em>{KEY[5:10]}</em>{KEY[10:]}", id="markup behind words"),
        pytest.param(f"no {KEY[:12]}\u200b{KEY[12:]}", id="a space that nobody sees"),
        pytest.param(f"no {KEY[:20]}\u00ad\u200b {KEY[20:]}", id="several of them"),
        pytest.param(" ".join(KEY), id="letter by letter"),
        pytest.param(f"no {KEY[:15]}", id="cut"),
    ],
)
async def test_a_key_that_an_error_quotes_in_any_spelling_is_masked(quoted: str) -> None:
    body = json.dumps({"error": {"message": f"{quoted} is wrong", "type": quoted}}).encode()
    for status in (b"400 Bad Request", b"200 OK"):
        head = b"HTTP/1.1 " + status + b"\r\nContent-Type: application/json\r\n"
        async with chunk_server(lambda: [body], head=head) as server:
            model = OpenAIChatModel("m", base_url=f"{server.base_url}/v1", api_key=KEY)
            _, error = await complete(model, ModelRequest(messages=[]))
            await close_model(model)
        assert error is not None
        assert str(error).endswith("[key] is wrong")
        assert (error.provider_type or "").endswith("[key]")


async def test_the_reason_of_a_blocked_gemini_prompt_is_one_short_line() -> None:
    blocked = {
        "blockReason": "\x1b]0;x\x07SAFETY" + "S" * 5000,
        "blockReasonMessage": "\x1b[31mred\u202e\r\n" + "L" * 5000,
    }
    _, error = read(WIRES["gemini"].parser("m"), [*framed("gemini", {"promptFeedback": blocked})])
    assert error is not None
    assert (error.code, str(error).isprintable(), (error.provider_type or "").isprintable()) == (
        "provider.content_filter",
        True,
        True,
    )
    assert (len(str(error)) < 900, len(error.provider_type or "") < 300) == (True, True)

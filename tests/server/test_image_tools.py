"""Images that a provider makes, seen by a client: results in order, files, and what was paid."""

from __future__ import annotations

from contextlib import aclosing
from decimal import Decimal
from typing import Any

import pytest

from agenticx.clocks import SystemClock
from agenticx.llms import Price, PricedModel, ScriptedModel, resolve_image_model
from agenticx.testing import call, check_grammar, usage
from agenticx.tools.builtin import image_tools
from tests.support.image_server import image_server, png
from tests.support.server.conversations import log
from tests.support.server.running_studio import StudioMaker

pytestmark = pytest.mark.anyio

IMAGES: dict[str | bytes, bytes] = {
    "a fox": png(1024, 1024),
    "too many bytes": png(4, 3, size=10 * 1024 * 1024),
    "too many pixels": png(10_000, 5_001),
    "a page": b"<!doctype html>",
    "a hen": png(8, 8),
}


def generate(*prompts: str) -> Any:
    return [call("generate_images", {"prompts": prompts}), usage(9, 9)]


async def test_each_image_has_its_line_its_file_and_its_price_and_the_budget_of_the_turn_holds(
    make_studio: StudioMaker,
) -> None:
    free = Price(input=Decimal(0), output=Decimal(0), read=SystemClock().now().date())
    script = [generate(*IMAGES, "a sin"), generate("one", "two", "three", "four"), ["done", usage(9, 9)]]
    with image_server() as provider:
        provider.images, provider.usage = IMAGES, {"input_tokens": 100, "output_tokens": 4_000}
        provider.errors = {"a sin": [(400, "Refused.")]}
        images = resolve_image_model("openai:gpt-image-1-mini", api_key="sk-1", base_url=f"{provider.address}/v1")
        most = images.largest_cost()
        assert most is not None
        model = PricedModel(ScriptedModel(script), free, SystemClock())
        options = {"tools": image_tools(images), "permission_mode": "default", "turn_budget_usd": str(6 * most)}
        async with aclosing(images), make_studio(model, **options) as studio:
            session_id = await studio.session()
            cursor = (await studio.turn(session_id, "Draw.")).json()["cursor"]
            *_, asked = await studio.events_until(session_id, "confirm_required", cursor=cursor)
            question = asked.data["data"]
            assert question["question"].startswith("Send 6 prompts to openai:gpt-image-1-mini (127.0.0.1:")
            body = {"approved": True, "digest": question["digest"], "remember": "session"}
            answer = await studio.client.post(f"/api/confirms/{question['id']}", json=body)
            assert answer.status_code == 200, answer.text
            cursor = asked.id
            *_, asked = await studio.events_until(session_id, "confirm_required", cursor=cursor)
            body = {"approved": True, "digest": asked.data["data"]["digest"]}
            answer = await studio.client.post(f"/api/confirms/{asked.data['data']['id']}", json=body)
            await studio.events_until(session_id, "final", cursor=asked.id)
            events = await log(studio, session_id)
            check_grammar(events)
            first, second = [event["data"] for event in events if event["type"] == "tool_result"]
            lines = [line.partition(": ")[2].partition(" (")[0] for line in first["result"].split("\n")]
            stored = [event["data"]["path"] for event in events if event["type"] == "artifact"]
            refused = f"Error: openai:gpt-image-1-mini at {images.host} made no image: the image cannot be used: "
            assert lines == [
                stored[0],
                refused + "it has 10,485,784 bytes; the limit is 10 MiB",
                refused + "it has 10,000 × 5,001 pixels; the limit is 50,000,000 in all",
                refused + "it is no PNG, JPEG, WebP or GIF image",
                stored[1],
                "Error: openai answered with HTTP 400: Refused.",
            ]
            assert second["is_error"]
            assert "the budget of" in second["result"]
            assert provider.prompts.count("one") == 0
            paid = [event["data"].get("cost_usd") for event in events if event["type"] == "usage"]
            assert paid.count("0.03225") == 5
            for path, name in zip(stored, ("a fox", "a hen"), strict=True):
                answer = await studio.client.get(f"/api/sessions/{session_id}/artifacts/{path}")
                assert (answer.content, answer.headers["content-type"]) == (IMAGES[name], "image/png")

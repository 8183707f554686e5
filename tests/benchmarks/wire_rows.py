"""Benchmarks of reading a reply on each wire, from the provider's bytes to the deltas of `stream`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from agenticx import UserMessage
from agenticx.llms import (
    AnthropicModel,
    ChatModel,
    Delta,
    Finished,
    GeminiModel,
    ModelRequest,
    OllamaModel,
    OpenAIChatModel,
    OpenAIResponsesModel,
)
from tests.benchmarks.floor import Job, RawClient, medians
from tests.benchmarks.peer import Peer
from tests.benchmarks.rows import Row, Scale

__all__ = ["wire_rows"]

MICRO = 1e6
REQUEST = ModelRequest(messages=[UserMessage(content="go")])


@dataclass(frozen=True)
class WireBenchmark:
    """A wire, the path of its requests, and the separator of its events; `{}` in the path is the model."""

    name: str
    model: Any
    path: str
    separator: bytes = b"\n\n"

    def read(self, base_url: str, model: str) -> Job:
        """Return a job that reads one reply through our wire."""
        ours: ChatModel = self.model(model, base_url=base_url)

        async def job() -> None:
            last: Sequence[Delta] = ()
            async for batch in ours.stream(REQUEST):
                last = batch
            if not (last and isinstance(last[-1], Finished)):
                raise RuntimeError(f"{self.name} did not finish: {last}")

        return job

    def floor(self, raw: RawClient, model: str) -> Job:
        """Return a job that reads the same reply with only a socket and a JSON parser."""

        async def job() -> None:
            await raw.read(self.path.format(model), model, self.separator)

        return job


WIRES = (
    WireBenchmark("openai_chat", OpenAIChatModel, "/v1/chat/completions"),
    WireBenchmark("openai_responses", OpenAIResponsesModel, "/v1/responses"),
    WireBenchmark("anthropic", AnthropicModel, "/v1/messages"),
    WireBenchmark("gemini", GeminiModel, "/v1/models/{}:streamGenerateContent?alt=sse", b"\r\n\r\n"),
    WireBenchmark("ollama", OllamaModel, "/api/chat", b"\n"),
)


async def wire_rows(peer: Peer, scale: Scale) -> list[Row]:
    """Measure the cost per chunk on each wire in a burst of one token each, beside a floor for the same bytes."""
    raw = await RawClient.connect(peer.port)
    sizes = {"long": f"burst:{scale.tokens}", "short": "burst:1"}
    jobs = {
        (wire.name, size, side): wire.read(peer.base_url, model) if side == "ours" else wire.floor(raw, model)
        for wire in WIRES
        for size, model in sizes.items()
        for side in ("ours", "floor")
    }
    took = await medians(scale.repeats, jobs)
    await raw.close()

    def each(name: str, side: str) -> float:
        return (took[name, "long", side] - took[name, "short", side]) / (scale.tokens - 1) * MICRO

    return [
        Row(
            name=f"provider byte → delta, {wire.name}, burst, per chunk",
            value=each(wire.name, "ours"),
            unit="µs",
            floor=each(wire.name, "floor"),
        )
        for wire in WIRES
    ]

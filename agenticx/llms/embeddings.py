"""Embedding models: texts of like meaning have vectors near each other.

A server with OpenAI's `/embeddings` (https://platform.openai.com/docs/api-reference/embeddings), which vLLM, LM Studio,
llama.cpp, Text Embeddings Inference and most gateways have too, or with Ollama's `/api/embed`
(https://docs.ollama.com/api/embed).
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any, cast

from agenticx.errors import ModelError
from agenticx.llms.json_values import count_in, items_in
from agenticx.llms.transport.http import ProviderHttp
from agenticx.threads import run_in_thread

__all__ = ["EmbeddingModel"]

_MAX_DIMENSIONS = 16_384
_MAX_ANSWER_BYTES = 64 * 1024 * 1024


class EmbeddingModel:
    """A model that gives a vector for a text; `name` is that for the user, `model` its name at the server."""

    def __init__(self, model: str, http: ProviderHttp, *, name: str, path: str) -> None:
        self.name = name
        self._model = model
        self._http = http
        self._path = path

    def __repr__(self) -> str:
        return f"EmbeddingModel({self.name!r}, host={self.host!r})"

    @property
    def host(self) -> str:
        """The host that texts are sent to, with its port if that is not the usual one."""
        return self._http.host

    @property
    def is_local(self) -> bool:
        """True if its server is on this machine."""
        return self._http.is_local

    async def embed(self, texts: Sequence[str], *, timeout: float) -> list[list[float]]:
        """Return a vector for each text, all of one length; raises `ModelError`.

        `timeout` bounds each wait for bytes, in seconds of the event loop.
        """
        body = json.dumps({"model": self._model, "input": list(texts)}).encode()
        async with await self._http.post(self._path, body, accept="application/json", timeout=timeout) as response:
            answer = await response.read(_MAX_ANSWER_BYTES)
        try:
            return await run_in_thread(_vectors, answer, len(texts), name="agx embeddings")
        except (ValueError, RecursionError, OverflowError) as exc:
            raise ModelError(
                f"{self.name} at {self.host} sent no vectors of {len(texts)} texts: {exc}", code="provider.bad_reply"
            ) from exc

    async def aclose(self) -> None:
        """Close the connections of the running event loop."""
        await self._http.aclose()


def _vectors(answer: bytes, count: int) -> list[list[float]]:
    """Return the vectors of an answer in the order of their texts; raise `ValueError` if it lacks any."""
    content: Any = json.loads(answer)
    if not isinstance(content, dict):
        raise ValueError("the answer is no object")
    fields = cast("dict[str, Any]", content)
    rows = sorted(items_in(fields, "data"), key=lambda row: count_in(row, "index") or 0)
    found: Any = [row.get("embedding") for row in rows] if rows else fields.get("embeddings")
    if not isinstance(found, list):
        raise ValueError("it has neither 'data' nor 'embeddings'")
    values = cast("list[Any]", found)
    if len(values) != count:
        raise ValueError(f"it has {len(values)}")
    vectors = [_vector(value) for value in values]
    if len({len(vector) for vector in vectors}) > 1:
        raise ValueError("they have different lengths")
    return vectors


def _vector(value: Any) -> list[float]:
    if not isinstance(value, list) or not 0 < len(cast("list[Any]", value)) <= _MAX_DIMENSIONS:
        raise ValueError(f"one is no list of 1 to {_MAX_DIMENSIONS:,} numbers")
    numbers = cast("list[Any]", value)
    if not all(type(number) in (int, float) and math.isfinite(number) for number in numbers):
        raise ValueError("one has what is no number")
    return [float(number) for number in numbers]

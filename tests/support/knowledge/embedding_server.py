"""A server of embeddings on loopback: words of like meaning share a dimension of its vectors."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from tests.support.json_server import JsonHandler, serving

__all__ = ["EmbeddingServer", "embedding_server", "vector_of"]

_GROUPS = (
    {"lease", "tenancy", "rent", "landlord", "flat", "apartment"},
    {"car", "automobile", "vehicle", "garage", "engine"},
    {"bread", "loaf", "dough", "baking", "flour"},
    {"doctor", "physician", "clinic", "illness"},
)


def vector_of(text: str) -> list[float]:
    """Return the vector of a text: the count of words of each group, and a little of all else."""
    words = re.findall(r"\w+", text.lower())
    return [float(sum(word in group for word in words)) for group in _GROUPS] + [0.01 * len(words) + 0.01]


@dataclass
class EmbeddingServer:
    """A running server: its address, the texts that it was sent, the keys of all requests, and what it answers.

    `refuse` answers 400 for any request that has this word in a text; a `status` over 200 is that of all answers, and
    `answer` the body of all.
    """

    address: str = ""
    texts: list[str] = field(default_factory=list[str])
    keys: list[str] = field(default_factory=list[str])
    paths: set[str] = field(default_factory=set[str])
    status: int = 200
    refuse: str = "\0"
    answer: bytes | None = None


@contextmanager
def embedding_server() -> Iterator[EmbeddingServer]:
    """Serve `/v1/embeddings` as OpenAI does, and `/api/embed` as Ollama does."""
    state = EmbeddingServer()

    class Handler(JsonHandler):
        def fixed_body(self) -> bytes | None:
            return state.answer

        def do_POST(self) -> None:
            body = json.loads(self.read_body())
            texts: list[str] = body["input"]
            state.paths.add(self.path)
            state.keys.append(self.headers["authorization"])
            if state.status != 200 or any(state.refuse in text for text in texts):
                self.send_json(state.status if state.status != 200 else 400, {"error": {"message": "not now"}})
                return
            state.texts += texts
            vectors = [vector_of(text) for text in texts]
            if self.path == "/api/embed":
                self.send_json(200, {"model": body["model"], "embeddings": vectors})
                return
            rows = [{"object": "embedding", "index": at, "embedding": vector} for at, vector in enumerate(vectors)]
            self.send_json(200, {"object": "list", "data": rows[::-1], "model": body["model"]})

    with serving(Handler) as state.address:
        yield state

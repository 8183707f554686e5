"""A server of embeddings on loopback: words of like meaning share a dimension of its vectors."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

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
    """A running server: its address, the texts that it was sent, and what it answers.

    `refuse` answers 400 for any request that has this word in a text; a `status` over 200 is that of all answers, and
    `answer` the body of all.
    """

    address: str = ""
    texts: list[str] = field(default_factory=list[str])
    paths: set[str] = field(default_factory=set[str])
    status: int = 200
    refuse: str = "\0"
    answer: bytes | None = None


@contextmanager
def embedding_server() -> Iterator[EmbeddingServer]:
    """Serve `/v1/embeddings` as OpenAI does, and `/api/embed` as Ollama does."""
    state = EmbeddingServer()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            texts: list[str] = body["input"]
            state.paths.add(self.path)
            if state.status != 200 or any(state.refuse in text for text in texts):
                self._send(state.status if state.status != 200 else 400, {"error": {"message": "not now"}})
                return
            state.texts += texts
            vectors = [vector_of(text) for text in texts]
            if self.path == "/api/embed":
                self._send(200, {"model": body["model"], "embeddings": vectors})
                return
            rows = [{"object": "embedding", "index": at, "embedding": vector} for at, vector in enumerate(vectors)]
            self._send(200, {"object": "list", "data": rows[::-1], "model": body["model"]})

        def _send(self, status: int, content: Any) -> None:
            data = json.dumps(content).encode() if state.answer is None else state.answer
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: Any) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    state.address = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield state
    finally:
        server.shutdown()
        thread.join()
        server.server_close()

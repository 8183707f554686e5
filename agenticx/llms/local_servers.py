"""What model servers on this machine say of themselves: which models they have, and how much those really take.

Everything here waits, 0.3 s for each answer at most; it is not for an event loop.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any, cast
from urllib.parse import urlsplit

from agenticx.llms._values import count_in, fields_in, items_in, text_in
from agenticx.llms.base import ChatModel, Delta, ModelRequest
from agenticx.llms.facts import Ability, Facts, ModelFacts, Provider
from agenticx.llms.wrapping import Wrapper
from agenticx.threads import run_in_thread

__all__ = ["LocalModel", "Served", "is_loopback", "models_served", "names_served", "window_served"]

_ANSWER_SECONDS = 0.3
_DETAILS_SECONDS = 1.0
_ANSWER_BYTES = 4 * 1024 * 1024  # Ollama's `show` has the tokenizer in it, unless it is a recent one

_NOT_FOR_CHAT = re.compile(r"embed|rerank|whisper|\bbge\b|minilm", re.IGNORECASE)
_OLLAMA_ABILITIES: tuple[tuple[str, Ability], ...] = (
    ("tools", "tools"),
    ("vision", "vision"),
    ("thinking", "reasoning"),
)


@dataclass(frozen=True, slots=True)
class Served:
    """A model that a server has, with what is known of it."""

    name: str
    facts: ModelFacts


def names_served(provider: Provider) -> list[str]:
    """The models to talk to that the provider's server lists; none if it does not answer like a model server."""
    where = provider.where()
    listed = _get(f"{where}/v1" if provider.wire == "ollama" else where, "/models")
    return [name for row in items_in(listed, "data") if (name := text_in(row, "id")) and not _NOT_FOR_CHAT.search(name)]


def models_served(provider: Provider, facts: Facts) -> Iterator[Served]:
    """The same with what the server tells of each; what takes longer than a second in all is left to the catalogue."""
    deadline = time.monotonic() + _DETAILS_SECONDS
    for name in names_served(provider):
        known = facts.of(provider, name)
        yield Served(name, _told(provider, name, known) if time.monotonic() < deadline else known)


def _told(provider: Provider, model: str, known: ModelFacts) -> ModelFacts:
    """`known` and what the server says of it: its real window, and with Ollama also what it can do."""
    told: dict[str, Any] = {}
    if (window := window_served(provider, model)) is not None:
        told["window"] = window
    if provider.wire == "ollama" and known.abilities is None:
        shown = _get(provider.where(), "/api/show", {"model": model})
        if isinstance(words := shown.get("capabilities"), list):
            told["abilities"] = (
                *(ability for word, ability in _OLLAMA_ABILITIES if word in words),
                "structured_output",
            )
    return known.model_copy(update=told)


def window_served(provider: Provider, model: str, base_url: str | None = None) -> int | None:
    """The tokens that the server has given this model, None where it does not say, or has not loaded it yet."""
    where = (base_url or provider.where()).rstrip("/")
    root = where.removesuffix("/v1")
    if provider.wire == "ollama" or provider.models_of == "ollama":
        running = items_in(_get(root, "/api/ps"), "models")
        return next((count_in(row, "context_length") for row in running if _same(text_in(row, "name"), model)), None)
    for row in items_in(_get(where, "/models"), "data"):  # vLLM
        if text_in(row, "id") == model and (window := count_in(row, "max_model_len")):
            return window
    if window := count_in(fields_in(_get(root, "/props"), "default_generation_settings"), "n_ctx"):  # llama.cpp
        return window
    rows = items_in(_get(root, "/api/v0/models"), "data")  # LM Studio
    return next((count_in(row, "loaded_context_length") for row in rows if text_in(row, "id") == model), None)


def _same(running: str, asked: str) -> bool:
    return running == asked or running == f"{asked}:latest"


def is_loopback(host: str) -> bool:
    """Whether a host is this machine itself."""
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


class LocalModel(Wrapper):
    """`model` on a local server, whose real window `ask` finds out once it has answered and is therefore loaded.

    Until then, and where the server does not say, the window is what the model itself says.
    """

    def __init__(self, model: ChatModel, ask: Callable[[], int | None]) -> None:
        super().__init__(model)
        self._ask = ask
        self._asked = False
        self._window: int | None = None

    @property
    def context_window(self) -> int | None:
        return self._window or self._model.context_window

    async def stream(self, request: ModelRequest) -> AsyncIterator[Sequence[Delta]]:
        """The inner model's batches; after the first whole reply the server is asked."""
        source = cast("AsyncGenerator[Sequence[Delta]]", self._model.stream(request))
        try:
            async for batch in source:
                yield batch
        finally:
            await source.aclose()
        if not self._asked:
            self._asked = True
            self._window = await run_in_thread(self._ask, name="agx-window")


def _get(base_url: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
    """The JSON object at a path (of the answer to `body`, if there is one); empty for any other answer or none."""
    from http.client import HTTPConnection, HTTPException, HTTPSConnection

    parts = urlsplit(base_url)
    kind = HTTPSConnection if parts.scheme == "https" else HTTPConnection
    connection = kind(parts.hostname or "127.0.0.1", parts.port, timeout=_ANSWER_SECONDS)
    content = None if body is None else json.dumps(body).encode()
    headers = {"accept": "application/json", "content-type": "application/json"}
    try:
        connection.request("GET" if body is None else "POST", parts.path.rstrip("/") + path, content, headers)
        response = connection.getresponse()
        answer: Any = json.loads(response.read(_ANSWER_BYTES)) if response.status == 200 else None
    except (OSError, HTTPException, ValueError, RecursionError):
        return {}
    finally:
        connection.close()
    return cast("dict[str, Any]", answer) if isinstance(answer, dict) else {}

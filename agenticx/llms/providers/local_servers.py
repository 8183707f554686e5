"""Queries to model servers on this machine: their models, and the real context windows of these.

All functions block, for at most 0.3 s for a connection or the next bytes and 1 s for each answer; do not call them on
an event loop.
"""

from __future__ import annotations

import asyncio
import json
import re
import ssl
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import closing
from dataclasses import dataclass
from threading import Thread
from typing import Any, cast

from agenticx.errors import AgenticXError, SettingsError, error_text
from agenticx.http.http1 import ConnectionPool, Http1Response, ProtocolError, request_bytes
from agenticx.http.url import Url
from agenticx.llms.base import ChatModel, Delta, Finished, ModelRequest
from agenticx.llms.json_values import count_in, fields_in, items_in, text_in
from agenticx.llms.model_catalog import Capability, ModelCatalog, ModelFacts, Provider
from agenticx.llms.opening import OpenReply, open_reply
from agenticx.llms.wrappers.base import ModelWrapper
from agenticx.logs import get_logger

__all__ = [
    "LocalModel",
    "ServedModel",
    "fetch_model_names",
    "fetch_model_names_at",
    "fetch_models",
    "fetch_window",
    "read_model_names_at",
]

_WAIT_SECONDS = 0.3
_ANSWER_SECONDS = 1.0
_DETAILS_SECONDS = 1.0
_ANSWER_BYTES = 4 * 1024 * 1024  # Ollama's `show` has the tokenizer in it, unless it is a recent one

_MAX_NAME_CHARS = 200
_MAX_MODELS = 1000

_NOT_FOR_CHAT = re.compile(r"embed|rerank|whisper|\bbge\b|minilm", re.IGNORECASE)
_OLLAMA_CAPABILITIES: tuple[tuple[str, Capability], ...] = (
    ("tools", "tools"),
    ("vision", "vision"),
    ("thinking", "reasoning"),
)


_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class ServedModel:
    """A model of a local server, and its facts."""

    name: str
    facts: ModelFacts


def fetch_model_names(provider: Provider) -> list[str]:
    """Return the chat models that the provider's server lists; none if it does not answer like a model server."""
    base_url = provider.effective_base_url()
    return fetch_model_names_at(f"{base_url}/v1" if provider.wire == "ollama" else base_url)


def fetch_model_names_at(base_url: str) -> list[str]:
    """Return the chat models that the server at an address lists; none if it does not answer like a model server."""
    return _chat_models(_fetch_json(base_url.rstrip("/"), "/models"))


def read_model_names_at(base_url: str) -> list[str]:
    """Return the chat models that the server at an address such as http://127.0.0.1:8080/v1 lists.

    Raise `SettingsError` if it cannot be reached, or does not answer like a model server.
    """
    base_url = base_url.rstrip("/")
    try:
        listed = _request_json(base_url, "/models")
    except TimeoutError as exc:
        raise SettingsError(f"{base_url} cannot be reached: it does not answer in time") from exc
    except OSError as exc:
        raise SettingsError(f"{base_url} cannot be reached: {error_text(exc)}") from exc
    except _NO_JSON as exc:
        raise SettingsError(f"{base_url}/models is no list of models; name one with --model") from exc
    return _chat_models(listed)


def _chat_models(listed: dict[str, Any]) -> list[str]:
    return [name for entry in items_in(listed, "data")[:_MAX_MODELS] if _is_for_chat(name := text_in(entry, "id"))]


def _is_for_chat(name: str) -> bool:
    """Return whether `name` is a chat model's (no embedding, reranking or speech) and short and printable."""
    return 0 < len(name) <= _MAX_NAME_CHARS and name.isprintable() and not _NOT_FOR_CHAT.search(name)


def fetch_models(provider: Provider, catalog: ModelCatalog) -> Iterator[ServedModel]:
    """Yield the models of `fetch_model_names` with their facts; after one second in all, with the catalogue's facts."""
    deadline = time.monotonic() + _DETAILS_SECONDS
    for name in fetch_model_names(provider):
        known_facts = catalog.model_facts(provider, name)
        yield ServedModel(
            name, _with_reported_facts(provider, name, known_facts) if time.monotonic() < deadline else known_facts
        )


def _with_reported_facts(provider: Provider, model: str, facts: ModelFacts) -> ModelFacts:
    """Return `facts` updated by the server's report: the real window, and with Ollama also the capabilities."""
    reported: dict[str, Any] = {}
    if (window := fetch_window(provider, model)) is not None:
        reported["window"] = window
    if provider.wire == "ollama" and facts.capabilities is None:
        details = _fetch_json(provider.effective_base_url(), "/api/show", {"model": model})
        if isinstance(capabilities := details.get("capabilities"), list):
            reported["capabilities"] = (
                *(capability for word, capability in _OLLAMA_CAPABILITIES if word in capabilities),
                "structured_output",
            )
    return facts.model_copy(update=reported)


def fetch_window(provider: Provider, model: str, base_url: str | None = None) -> int | None:
    """Return the window in tokens of the model as the server runs it; None if not reported or not loaded yet."""
    address = (base_url or provider.effective_base_url()).rstrip("/")
    root = address.removesuffix("/v1")
    if provider.wire == "ollama" or provider.models_of == "ollama":
        running = items_in(_fetch_json(root, "/api/ps"), "models")
        return next(
            (count_in(entry, "context_length") for entry in running if _is_same_model(text_in(entry, "name"), model)),
            None,
        )
    for entry in items_in(_fetch_json(address, "/models"), "data"):  # vLLM
        if text_in(entry, "id") == model and (window := count_in(entry, "max_model_len")):
            return window
    if window := count_in(fields_in(_fetch_json(root, "/props"), "default_generation_settings"), "n_ctx"):  # llama.cpp
        return window
    entries = items_in(_fetch_json(root, "/api/v0/models"), "data")  # LM Studio
    return next((count_in(entry, "loaded_context_length") for entry in entries if text_in(entry, "id") == model), None)


def _is_same_model(running: str, model: str) -> bool:
    return running == model or running == f"{model}:latest"


class LocalModel(ModelWrapper):
    """A wrapper of a model on a local server that learns its real window.

    `query_window` is called in a thread after the first whole reply, because the server reports the window only once
    the model is loaded. Nothing waits for it: until it returns a number, the window is the wrapped model's.
    """

    def __init__(self, model: ChatModel, query_window: Callable[[], int | None]) -> None:
        super().__init__(model)
        self._query = query_window
        self._has_queried = False
        self._window: int | None = None

    @property
    def context_window(self) -> int | None:
        return self._window or self._model.context_window

    async def open(self, request: ModelRequest) -> OpenReply:
        """Open the inner model's reply; after the first whole one the window is queried."""
        reply = await open_reply(self._model, request)
        return reply if self._has_queried else await reply.transform(self._query_at_end)

    def _query_at_end(self, batch: Sequence[Delta]) -> Sequence[Delta]:
        if not self._has_queried and isinstance(batch[-1], Finished):
            self._has_queried = True
            Thread(target=self._query_window, name="agx-window", daemon=True).start()
        return batch

    def _query_window(self) -> None:
        try:
            self._window = self._query()
        except AgenticXError as exc:
            _log.warning("the window of a local model is not known", model=self.name, reason=str(exc))


_NO_JSON = (ProtocolError, ValueError, RecursionError)  # of an answer


def _fetch_json(base_url: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return the JSON object of a GET, or of a POST of `body` if given; empty for any other answer or none."""
    try:
        return _request_json(base_url, path, body)
    except (OSError, *_NO_JSON):
        return {}


def _request_json(base_url: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return the JSON object of a request; raise OSError without an answer, and `_NO_JSON` for any other answer.

    The event loop of the request has a thread of its own, because one may run in the caller's.
    """
    answer: Future[bytes] = Future()

    def run() -> None:
        try:
            with asyncio.Runner() as runner:
                answer.set_result(runner.run(_fetch(base_url, path, body)))
        except (OSError, *_NO_JSON) as exc:
            answer.set_exception(exc)

    thread = Thread(target=run, name="agx-request", daemon=True)
    thread.start()
    thread.join()
    parsed = json.loads(answer.result(0))  # unset after any other error; the thread has printed that
    if not isinstance(parsed, dict):
        raise ValueError("the answer is no JSON object")
    return cast("dict[str, Any]", parsed)


async def _fetch(base_url: str, path: str, body: dict[str, Any] | None) -> bytes:
    """Return the body of a response with status 200, empty for any other; `_ANSWER_SECONDS` begin once connected."""
    url = Url.parse(base_url).with_path(path)
    if url.scheme not in ("http", "https"):
        return b""
    content = None if body is None else json.dumps(body).encode()
    headers = {
        "host": url.netloc,
        "accept": "application/json",
        "accept-encoding": "identity",
        "content-type": "application/json",
        "connection": "close",
    }
    request = request_bytes("GET" if body is None else "POST", url.target, headers, content)
    tls = ssl.create_default_context() if url.scheme == "https" else None
    with closing(ConnectionPool(idle_seconds=0, tls=tls)) as pool:
        connection = await pool.acquire(url.origin, _WAIT_SECONDS)
        async with asyncio.timeout(_ANSWER_SECONDS):
            with closing(await pool.send(connection, request, _WAIT_SECONDS)) as response:
                return await _read_answer(response) if response.head.status == 200 else b""


async def _read_answer(response: Http1Response) -> bytes:
    answer = bytearray()
    while len(answer) <= _ANSWER_BYTES and (data := await response.read()):
        answer += data
    return bytes(answer) if len(answer) <= _ANSWER_BYTES else b""

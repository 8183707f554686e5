"""What servers on this machine say of themselves: Ollama, vLLM, llama.cpp and LM Studio, each as it answers."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from agenticx.llms.base import ModelRequest
from agenticx.llms.catalog import list_models, local_window
from agenticx.llms.local_servers import LocalModel, is_loopback
from agenticx.settings import Settings
from agenticx.testing import ScriptedModel, say

DEFAULTS = Settings.model_validate({})
NOWHERE = "http://127.0.0.1:9/v1"


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("AGX_HOME", str(tmp_path))
    for name in ("OLLAMA", "LMSTUDIO", "LLAMACPP", "VLLM"):
        monkeypatch.setenv(f"{name}_BASE_URL", NOWHERE)


@contextmanager
def serving(answers: dict[str, Any]) -> Iterator[str]:
    """A server with one JSON answer for each path; one that is a function is asked with the posted JSON."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer(None)

        def do_POST(self) -> None:
            self._answer(json.loads(self.rfile.read(int(self.headers["content-length"]))))

        def _answer(self, posted: Any) -> None:
            answer = answers.get(self.path)
            answer = answer(posted) if callable(answer) else answer
            self.send_response(404 if answer is None else 200)
            self.end_headers()
            self.wfile.write(json.dumps(answer).encode())

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def listed(*names: str, **more: Any) -> dict[str, Any]:
    return {"object": "list", "data": [{"id": name, **more} for name in names]}


OLLAMA = {
    "/v1/models": listed("mystery:7b", "gemma3:4b", "nomic-embed-text"),
    "/api/show": lambda asked: {"capabilities": ["completion", "tools", "thinking"]} if asked["model"] else None,
    "/api/ps": {"models": [{"name": "mystery:7b", "context_length": 4096}]},
}


@pytest.mark.anyio
async def test_ollama_says_what_its_models_can_do_and_how_much_they_take(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(OLLAMA) as address:
        monkeypatch.setenv("OLLAMA_BASE_URL", address)
        models = [model for model in await list_models(DEFAULTS) if model.provider == "ollama"]
    assert [(model.spec, model.facts.window, model.facts.abilities) for model in models] == [
        ("ollama:mystery:7b", 4096, ("tools", "reasoning", "structured_output")),
        ("ollama:gemma3:4b", None, ("vision", "structured_output")),
    ]


@pytest.mark.parametrize(
    ("spec", "variable", "answers", "window"),
    [
        ("ollama:mystery:7b", "OLLAMA_BASE_URL", OLLAMA, 4096),
        ("ollama-chat:mystery:7b", "OLLAMA_BASE_URL", OLLAMA, 4096),
        ("ollama:gemma3:4b", "OLLAMA_BASE_URL", OLLAMA, None),
        ("vllm:org/model", "VLLM_BASE_URL", {"/v1/models": listed("org/model", max_model_len=32768)}, 32768),
        ("llamacpp:m", "LLAMACPP_BASE_URL", {"/props": {"default_generation_settings": {"n_ctx": 8192}}}, 8192),
        ("lmstudio:m", "LMSTUDIO_BASE_URL", {"/api/v0/models": listed("m", loaded_context_length=16384)}, 16384),
        ("lmstudio:m", "LMSTUDIO_BASE_URL", {"/api/v0/models": listed("m", max_context_length=131072)}, None),
        ("lmstudio:m", "LMSTUDIO_BASE_URL", {}, None),
    ],
)
def test_a_server_s_real_window_is_what_it_has_given_the_model(
    spec: str, variable: str, answers: dict[str, Any], window: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(answers) as address:
        monkeypatch.setenv(variable, address if "ollama" in spec else f"{address}/v1")
        ask = local_window(spec)
        assert ask is not None
        assert ask() == window
        there = local_window(spec, f"{address}/v1")
    assert there is not None
    assert there() is None  # nobody answers any more


def test_providers_with_keys_are_not_asked() -> None:
    assert (local_window("openai:gpt-5.4"), local_window("demo")) == (None, None)


@pytest.mark.anyio
async def test_the_window_is_asked_for_once_after_the_first_whole_reply() -> None:
    asked: list[int] = []

    def ask() -> int:
        asked.append(1)
        return 4096

    with ScriptedModel([say("one"), say("two")], context_window=99) as scripted:
        model = LocalModel(scripted, ask)
        windows = [model.context_window]
        for _ in range(2):
            _ = [batch async for batch in model.stream(ModelRequest(messages=[]))]
            windows.append(model.context_window)
    assert (windows, len(asked)) == ([99, 4096, 4096], 1)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1", "[::1]", "localhost", "a.localhost"])
def test_this_machine_is_known_by_its_names(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize("host", ["localhost.example", "10.0.0.1", "api.openai.com", "", "0.0.0.0"])
def test_any_other_host_is_not_this_machine(host: str) -> None:
    assert not is_loopback(host)

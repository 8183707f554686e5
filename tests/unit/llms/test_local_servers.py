"""Queries to local model servers: Ollama, vLLM, llama.cpp and LM Studio, with their own answers."""

from __future__ import annotations

import asyncio
import json
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from agenticx.errors import SettingsError
from agenticx.llms import ModelRequest, complete, list_models
from agenticx.llms.model_catalog import load_model_catalog
from agenticx.llms.providers.local_servers import LocalModel, fetch_model_names
from agenticx.llms.providers.resolve import local_window_query
from agenticx.llms.transport.hosts import is_loopback
from agenticx.settings import Settings
from agenticx.testing import ScriptedModel, say
from tests.support.timeouts import PATIENCE

DEFAULTS = Settings.model_validate({})
NOWHERE = "http://127.0.0.1:9/v1"


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("AGX_HOME", str(tmp_path))
    for name in ("OLLAMA", "LMSTUDIO", "LLAMACPP", "VLLM"):
        monkeypatch.setenv(f"{name}_BASE_URL", NOWHERE)


@contextmanager
def serving(answers: dict[str, Any]) -> Iterator[str]:
    """Run a server with one JSON answer for each path; a function is called with the posted JSON."""

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
    "/api/show": lambda posted: {"capabilities": ["completion", "tools", "thinking"]} if posted["model"] else None,
    "/api/ps": {"models": [{"name": "mystery:7b", "context_length": 4096}]},
}


@pytest.mark.usefixtures("long_timeouts")
@pytest.mark.anyio
async def test_ollama_reports_capabilities_and_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(OLLAMA) as address:
        monkeypatch.setenv("OLLAMA_BASE_URL", address)
        models = [model for model in await list_models(DEFAULTS) if model.provider == "ollama"]
    assert [(model.spec, model.facts.window, model.facts.capabilities) for model in models] == [
        ("ollama:mystery:7b", 4096, ("tools", "reasoning", "structured_output")),
        ("ollama:gemma3:4b", None, ("vision", "structured_output")),
    ]


@pytest.mark.usefixtures("long_timeouts")
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
def test_the_real_window_is_the_one_that_the_server_reports(
    spec: str, variable: str, answers: dict[str, Any], window: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(answers) as address:
        monkeypatch.setenv(variable, address if "ollama" in spec else f"{address}/v1")
        query = local_window_query(spec)
        assert query is not None
        assert query() == window
        closed_query = local_window_query(spec, f"{address}/v1")
    assert closed_query is not None
    assert closed_query() is None  # the server is closed


@pytest.mark.usefixtures("long_timeouts")
def test_models_with_unprintable_or_long_names_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    odd = ["", "a\x1b[2Jb", "a\nb", "a\u202eb", "a\ud800", "n" * 201]
    with serving({"/v1/models": listed(*odd, "org/My Model:7b", "n" * 200, "größe")}) as address:
        monkeypatch.setenv("VLLM_BASE_URL", f"{address}/v1")
        names = fetch_model_names(load_model_catalog().providers["vllm"])
    assert names == ["org/My Model:7b", "n" * 200, "größe"]


@pytest.mark.usefixtures("long_timeouts")
def test_at_most_1000_models_are_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving({"/v1/models": listed(*map(str, range(1_500)))}) as address:
        monkeypatch.setenv("VLLM_BASE_URL", f"{address}/v1")
        assert fetch_model_names(load_model_catalog().providers["vllm"]) == list(map(str, range(1_000)))


@pytest.mark.usefixtures("long_timeouts")
@pytest.mark.anyio
async def test_models_can_be_listed_in_a_thread_that_runs_an_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving({"/v1/models": listed("a")}) as address:
        monkeypatch.setenv("VLLM_BASE_URL", f"{address}/v1")
        assert fetch_model_names(load_model_catalog().providers["vllm"]) == ["a"]


@pytest.mark.parametrize("base_url", ["ftp://box/v1", "box", "http://", "http://a:x", "http://[::1"])
def test_a_base_url_that_is_none_lists_no_models(base_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_BASE_URL", base_url)
    assert fetch_model_names(load_model_catalog().providers["vllm"]) == []


def test_there_is_no_window_query_for_providers_with_keys() -> None:
    assert (local_window_query("openai:gpt-5.4"), local_window_query("demo")) == (None, None)


@pytest.mark.anyio
async def test_the_window_is_queried_once_after_the_first_complete_reply() -> None:
    queries: list[int] = []

    def query_window() -> int:
        queries.append(1)
        return 4096

    with ScriptedModel([say("one"), say("two")], context_window=99) as scripted:
        model = LocalModel(scripted, query_window)
        windows = [model.context_window]
        for _ in range(2):
            _ = [batch async for batch in model.stream(ModelRequest(messages=[]))]
            await window_queries_done()
            windows.append(model.context_window)
    assert (windows, len(queries)) == ([99, 4096, 4096], 1)


@pytest.mark.anyio
async def test_a_reply_neither_waits_for_the_window_nor_fails_with_its_query() -> None:
    released = threading.Event()

    def query_window() -> int:
        assert released.wait(PATIENCE)
        raise SettingsError("no such server")

    with ScriptedModel([say("one"), say("two")], context_window=99) as scripted:
        model = LocalModel(scripted, query_window)
        replies = [(await complete(model, ModelRequest(messages=[])))[0].text for _ in range(2)]
        released.set()
        await window_queries_done()
    assert (replies, model.context_window) == (["one", "two"], 99)


async def window_queries_done() -> None:
    """Wait until all threads that query a window have ended."""
    for thread in threading.enumerate():
        if thread.name == "agx-window":
            await asyncio.to_thread(thread.join)


@contextmanager
def slow_server(head: bytes) -> Iterator[tuple[str, list[int]]]:
    """Run a server that sends `head`, then a space every 50 ms; yield its address and the spaces per connection."""
    over, sent = threading.Event(), list[int]()

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            with suppress(OSError):
                index = len(sent)
                sent.append(0)
                self.wfile.write(head)
                while not over.wait(0.05):
                    self.wfile.write(b" ")
                    sent[index] += 1

    server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", sent
    finally:
        over.set()
        server.shutdown()
        server.server_close()


@pytest.mark.anyio
@pytest.mark.parametrize(
    "head",
    [
        b"HTTP/1.1 200 OK\r\ncontent-length: 4000000\r\n\r\n{",
        b"HTTP/1.0 200 OK\r\n\r\n{",
        b"HTTP/1.1 200 OK\r\nx: ",
    ],
    ids=["body", "body of a closing connection", "head"],
)
@pytest.mark.cases(quick=1)
async def test_a_server_that_sends_byte_by_byte_is_cut_off_after_a_second(
    head: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    with slow_server(head) as (address, sent):
        monkeypatch.setenv("LMSTUDIO_BASE_URL", address)
        async with asyncio.timeout(PATIENCE):
            models = await list_models(DEFAULTS)
        assert max(sent, default=0) < 10 / 0.05  # 10 s instead of 1 s, for slow test machines
    assert [model for model in models if model.provider == "lmstudio"] == []


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1", "[::1]", "localhost", "a.localhost"])
def test_loopback_hosts_are_recognised(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize("host", ["localhost.example", "10.0.0.1", "api.openai.com", "", "0.0.0.0"])
def test_other_hosts_are_not_loopback(host: str) -> None:
    assert not is_loopback(host)

"""Resolution of model names, the default model, and the errors for unknown names."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from agenticx.errors import SettingsError
from agenticx.llms import default_model_spec, list_models, resolve_wire
from agenticx.llms.model_catalog import load_model_catalog
from agenticx.settings import Settings
from tests.support.closed_port import closed_port

pytestmark = pytest.mark.usefixtures("long_timeouts")

KEYS = re.compile(r"_API_KEY$|_BASE_URL$|^HF_TOKEN$")
LOCAL = ("OLLAMA", "LMSTUDIO", "LLAMACPP", "VLLM")
DEFAULTS = Settings.model_validate({})


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Remove keys and user files, and point all local servers to closed ports."""
    import os

    for name in [name for name in os.environ if KEYS.search(name)]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AGX_HOME", str(tmp_path))
    with closed_port() as port:
        for name in LOCAL:
            monkeypatch.setenv(f"{name}_BASE_URL", f"http://127.0.0.1:{port}/v1")
        yield


@contextmanager
def serving(answer: bytes) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200 if self.path == "/v1/models" else 404)
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1"
    finally:
        server.shutdown()
        server.server_close()


MODELS = json.dumps({"object": "list", "data": [{"id": "llama3.2:3b"}, {"id": "qwen3"}]}).encode()


@pytest.mark.parametrize(
    ("spec", "key", "host", "wire"),
    [
        ("openai:gpt-5.4", "OPENAI_API_KEY", "api.openai.com", "OpenAIResponsesModel"),
        ("openai-chat:gpt-4o", "OPENAI_API_KEY", "api.openai.com", "OpenAIChatModel"),
        ("openrouter:anthropic/claude-sonnet-4.5", "OPENROUTER_API_KEY", "openrouter.ai", "OpenAIChatModel"),
        ("groq:openai/gpt-oss-120b", "GROQ_API_KEY", "api.groq.com", "OpenAIChatModel"),
        ("deepseek:deepseek-chat", "DEEPSEEK_API_KEY", "api.deepseek.com", "OpenAIChatModel"),
        ("mistral:mistral-large-latest", "MISTRAL_API_KEY", "api.mistral.ai", "OpenAIChatModel"),
    ],
)
def test_a_provider_s_model_needs_its_key_and_keeps_its_name(
    spec: str, key: str, host: str, wire: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(SettingsError, match=key):
        resolve_wire(spec)
    monkeypatch.setenv(key, "sk-x")
    model = resolve_wire(spec)
    assert (model.name, repr(model)) == (spec, f"{wire}({spec!r}, host={host!r})")


def test_local_servers_need_no_key_and_keep_colons_in_model_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OLLAMA_BASE_URL")
    assert repr(resolve_wire("ollama:llama3.2:3b")) == "OllamaModel('ollama:llama3.2:3b', host='127.0.0.1:11434')"


def test_a_base_url_replaces_the_key_and_the_usual_address(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "127.0.0.1:9" in repr(resolve_wire("openai-chat:x", base_url="http://127.0.0.1:9/slug/whole"))
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:8/v1")
    assert "127.0.0.1:8" in repr(resolve_wire("openai-chat:x"))


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        (
            "some",
            "model 'some' is not provider:name, as in 'openai-chat:gpt-4o'; providers: openai, openai-chat",
        ),
        ("gpt-4o", "; 'gpt-4o' is 'openai:gpt-4o'"),
        ("openai-chat:", "model 'openai-chat:' is not provider:name"),
        ("opnai:x", "unknown provider 'opnai'; did you mean 'openai:x'?"),
        ("", "model '' is not provider:name"),
        ("nope:x", "model 'nope:x' names the unknown provider 'nope'; providers: openai, openai-chat"),
    ],
)
def test_the_error_for_an_unknown_name_states_what_is_expected(spec: str, sentence: str) -> None:
    with pytest.raises(SettingsError, match=re.escape(sentence)):
        resolve_wire(spec)


def test_the_default_model_is_the_setting_then_a_key_then_a_local_server_then_demo(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    spec, why = default_model_spec(DEFAULTS)
    assert (spec, why.partition(";")[0]) == ("demo", "no provider's key is set and no local model server answers")
    with serving(MODELS) as address:
        monkeypatch.setenv("LMSTUDIO_BASE_URL", address)
        assert default_model_spec(DEFAULTS) == ("lmstudio:llama3.2:3b", f"a local server answers at {address}")
        monkeypatch.setenv("GROQ_API_KEY", "x")
        assert default_model_spec(DEFAULTS) == ("groq:openai/gpt-oss-120b", "GROQ_API_KEY is set")
        monkeypatch.setenv("OPENAI_API_KEY", "x")
        assert default_model_spec(DEFAULTS) == ("openai:gpt-5.4", "OPENAI_API_KEY is set")
        chosen = DEFAULTS.model_copy(update={"model": "ollama:mine"})
        assert default_model_spec(chosen) == ("ollama:mine", "the setting AGX_MODEL")


@pytest.mark.parametrize("answer", [b"", b"<html>", b"[]", b'{"data": {}}', b'{"data": [1, {"id": 2}]}', b"[" * 9999])
def test_a_server_with_any_other_answer_is_not_taken_for_a_model_server(
    answer: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(answer) as address:
        monkeypatch.setenv("VLLM_BASE_URL", address)
        assert default_model_spec(DEFAULTS)[0] == "demo"


@pytest.mark.anyio
async def test_every_usable_model_is_listed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(MODELS) as address:
        monkeypatch.setenv("OLLAMA_BASE_URL", address)
        monkeypatch.setenv("XAI_API_KEY", "x")
        chosen = DEFAULTS.model_copy(update={"model": "ollama:qwen3"})
        models = await list_models(chosen)
        every = await list_models(chosen, available_only=False)
    names = [model.spec for model in models]
    assert names[:4] == ["ollama:qwen3", "xai:grok-4.7", "ollama:llama3.2:3b", "demo"]
    rows = [spec for spec in load_model_catalog().models if spec.startswith("xai:")]
    assert sorted(names[1:2] + names[4:]) == sorted(rows)
    assert [model for model in every if model.available] == models
    assert {model.spec for model in every} >= load_model_catalog().models.keys()
    missing = {model.spec: model.source for model in every if not model.available}
    assert missing["openai:gpt-5.4"] == "OPENAI_API_KEY is not set, and no key is stored"
    assert missing["ollama:phi4"] == "no local server has it"


def test_embedding_models_are_not_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    listed = json.dumps({"data": [{"id": "nomic-embed-text:latest"}, {"id": "qwen3:4b"}]}).encode()
    with serving(listed) as address:
        monkeypatch.setenv("OLLAMA_BASE_URL", address)
        assert default_model_spec(DEFAULTS)[0] == "ollama:qwen3:4b"


def test_windows_and_output_limits_come_from_the_catalogue(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY"):
        monkeypatch.setenv(name, "sk-x")
    specs = ["openai:gpt-5.4", "openai-chat:gpt-4o", "anthropic:claude-haiku-4-5", "gemini:gemini-2.5-pro"]
    windows = [resolve_wire(spec).context_window for spec in [*specs, "openai-chat:nobody-knows-it"]]
    assert windows == [922_000, 128_000, 200_000, 1_048_576, None]


def test_an_unknown_model_resolves_and_its_assumptions_are_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    assert resolve_wire("lmstudio:mystery").name == "lmstudio:mystery"
    assert "lmstudio:mystery is not in the catalogue; its capabilities, window and price are unknown" in caplog.text


@pytest.mark.parametrize(
    ("wire", "kind"),
    [
        ("chat", "OpenAIChatModel"),
        ("responses", "OpenAIResponsesModel"),
        ("anthropic", "AnthropicModel"),
        ("gemini", "GeminiModel"),
        ("ollama", "OllamaModel"),
    ],
)
@pytest.mark.parametrize("more", ["", 'capabilities = ["tools"]\noutput = 4000'])
def test_a_provider_of_the_user_may_use_any_wire(wire: str, kind: str, more: str, tmp_path: Path) -> None:
    rows = f'[providers.acme]\nbase_url = "http://box:9/v1"\nwire = "{wire}"\n[models."acme:x"]\nwindow = 9000\n{more}'
    (tmp_path / "models.toml").write_text(rows, encoding="utf-8")
    model = resolve_wire("acme:x")
    assert (repr(model), model.context_window) == (f"{kind}('acme:x', host='box:9')", 9000)


@pytest.mark.parametrize("spec", ["openai:a", "openai-chat:a", "anthropic:a", "gemini:a", "ollama:a", "demo"])
@pytest.mark.cases(quick=1)
@pytest.mark.ci_lane
def test_load_wire_imports_everything_that_resolve_model_needs(spec: str) -> None:
    look = (
        "import sys\n"
        "from agenticx.llms.providers.resolve import load_wire, resolve_wire\n"
        f"load_wire({spec!r})\n"
        "before = set(sys.modules)\n"
        f"resolve_wire({spec!r}, base_url={None if spec == 'demo' else 'http://127.0.0.1:1'!r})\n"
        "print(sorted(set(sys.modules) - before))"
    )
    done = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_demo_resolves() -> None:
    assert resolve_wire("demo").name == "demo"

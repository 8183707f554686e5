"""From `provider:model` to a model, and which models there are to choose from."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, cast
from urllib.parse import urlsplit

from agenticx.errors import SettingsError
from agenticx.llms._ollama_host import OLLAMA_BASE_URL, ollama_url
from agenticx.llms._openai_chat_request import Dialect
from agenticx.llms.base import ChatModel
from agenticx.settings import Settings, provider_key, provider_setting
from agenticx.threads import run_in_thread

__all__ = ["ModelInfo", "default_model_spec", "list_models", "resolve_model"]

_PROBE_SECONDS = 0.3
_PROBE_BYTES = 256 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class _Provider:
    """A server and the wire it speaks. `model` is what it is used with when nobody names one."""

    name: str
    base_url: str
    key: str | None = None
    model: str | None = None
    other_key: str | None = None
    dialect: Dialect | None = None
    wire: Literal["chat", "responses", "anthropic", "gemini", "ollama"] = "chat"
    probed: bool = True

    @property
    def is_local(self) -> bool:
        return self.key is None

    @property
    def base_variable(self) -> str:
        """The variable that moves it elsewhere, such as OPENAI_BASE_URL."""
        return f"{self.name.removesuffix('-chat').upper()}_BASE_URL"

    def key_set(self) -> tuple[str, str] | None:
        """The variable that has its key, and the key."""
        names = [name for name in (self.key, self.other_key) if name]
        return next(((name, key) for name in names if (key := provider_key(name))), None)

    def moved(self) -> str | None:
        """Where the person says that it is."""
        place = provider_setting(self.base_variable)
        if self.base_variable != "OLLAMA_BASE_URL":
            return place
        place = place or provider_setting("OLLAMA_HOST")
        return place and ollama_url(place) + ("/v1" if self.wire == "chat" else "")

    def where(self) -> str:
        return self.moved() or self.base_url


_THINKING_BACK = Dialect(returns_reasoning=True)

# In the order in which a key of theirs makes them the default; local servers after them.
_PROVIDERS = (
    _Provider(
        name="openai",
        base_url="https://api.openai.com/v1",
        key="OPENAI_API_KEY",
        model="gpt-5.4",
        wire="responses",
    ),
    _Provider(name="openai-chat", base_url="https://api.openai.com/v1", key="OPENAI_API_KEY", model="gpt-4o"),
    _Provider(
        name="anthropic",
        base_url="https://api.anthropic.com",
        key="ANTHROPIC_API_KEY",
        model="claude-sonnet-4-5",
        wire="anthropic",
    ),
    _Provider(
        name="gemini",
        base_url="https://generativelanguage.googleapis.com",
        key="GEMINI_API_KEY",
        other_key="GOOGLE_API_KEY",
        model="gemini-2.5-flash",
        wire="gemini",
    ),
    _Provider(
        name="openrouter",
        base_url="https://openrouter.ai/api/v1",
        key="OPENROUTER_API_KEY",
        model="openrouter/auto",
        dialect=_THINKING_BACK,
    ),
    _Provider(
        name="deepseek",
        base_url="https://api.deepseek.com/v1",
        key="DEEPSEEK_API_KEY",
        model="deepseek-v4-flash",
        dialect=_THINKING_BACK,
    ),
    _Provider(
        name="groq",
        base_url="https://api.groq.com/openai/v1",
        key="GROQ_API_KEY",
        model="llama-3.3-70b-versatile",
    ),
    _Provider(
        name="mistral",
        base_url="https://api.mistral.ai/v1",
        key="MISTRAL_API_KEY",
        model="mistral-large-latest",
        dialect=Dialect(stream_options=False, short_call_ids=True),
    ),
    _Provider(name="xai", base_url="https://api.x.ai/v1", key="XAI_API_KEY", model="grok-4"),
    _Provider(name="together", base_url="https://api.together.xyz/v1", key="TOGETHER_API_KEY"),
    _Provider(name="fireworks", base_url="https://api.fireworks.ai/inference/v1", key="FIREWORKS_API_KEY"),
    _Provider(name="cerebras", base_url="https://api.cerebras.ai/v1", key="CEREBRAS_API_KEY"),
    _Provider(name="huggingface", base_url="https://router.huggingface.co/v1", key="HF_TOKEN"),
    _Provider(name="moonshot", base_url="https://api.moonshot.ai/v1", key="MOONSHOT_API_KEY", dialect=_THINKING_BACK),
    _Provider(name="perplexity", base_url="https://api.perplexity.ai", key="PERPLEXITY_API_KEY"),
    _Provider(
        name="alibaba", base_url="https://dashscope-intl.aliyuncs.com/compatible-mode/v1", key="DASHSCOPE_API_KEY"
    ),
    _Provider(name="zai", base_url="https://api.z.ai/api/paas/v4", key="ZAI_API_KEY", dialect=_THINKING_BACK),
    _Provider(name="ollama", base_url=OLLAMA_BASE_URL, wire="ollama"),
    _Provider(name="ollama-chat", base_url=f"{OLLAMA_BASE_URL}/v1", probed=False),  # the same server, compatible
    _Provider(name="lmstudio", base_url="http://127.0.0.1:1234/v1"),
    _Provider(name="llamacpp", base_url="http://127.0.0.1:8080/v1"),
    _Provider(name="vllm", base_url="http://127.0.0.1:8000/v1"),
)


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """A model that can be named: `spec` is its name for `resolve_model`, `why` says where it was found."""

    spec: str
    provider: str
    why: str


def resolve_model(spec: str, *, base_url: str | None = None) -> ChatModel:
    """The model that `spec` names, at `base_url` instead of its provider's usual address if given.

    Raises `SettingsError` for a name that means nothing here or a key that is missing; it says what would be right.
    """
    if spec == "demo":
        from agenticx.llms.demo import DemoModel

        return DemoModel()
    provider_name, colon, model = spec.partition(":")
    if not (colon and model.strip()):
        raise SettingsError(f"model {spec!r} is not provider:name, as in 'openai-chat:gpt-4o'; {_known()}")
    provider = next((known for known in _PROVIDERS if known.name == provider_name), None)
    if provider is None:
        raise SettingsError(f"model {spec!r} names the unknown provider {provider_name!r}; {_known()}")
    return _model(provider, model, spec, base_url)


def default_model_spec(settings: Settings) -> tuple[str, str]:
    """The model that is meant when nobody names one, and a clause that says why it is this one.

    AGX_MODEL; else the first provider whose key is set; else a local server that answers on its usual port (each is
    given 0.3 s); else `demo`.
    """
    if settings.model:
        return settings.model, "the setting AGX_MODEL"
    found = next(_with_keys(), None) or next(_local(), None)
    if found:
        return found.spec, found.why
    return "demo", (
        "no provider's key is set and no local model server answers; set AGX_MODEL or, for instance, OPENAI_API_KEY"
    )


async def list_models(settings: Settings) -> list[ModelInfo]:
    """The models that can be named right now: AGX_MODEL, those of set keys, those of local servers, and `demo`."""
    local = await run_in_thread(lambda: list(_local()), name="agx-probe")
    chosen = [ModelInfo(settings.model, settings.model.partition(":")[0], "AGX_MODEL")] if settings.model else []
    models = [*chosen, *_with_keys(), *local, ModelInfo("demo", "demo", "offline and scripted")]
    found: dict[str, ModelInfo] = {}
    for model in models:
        found.setdefault(model.spec, model)
    return list(found.values())


def _model(provider: _Provider, model: str, spec: str, base_url: str | None) -> ChatModel:
    _, key = provider.key_set() or ("", None)
    moved = base_url or provider.moved()
    if provider.key and not key and not moved:
        raise SettingsError(f"model {spec!r} needs a key: set {provider.key}")
    if provider.wire == "responses":
        from agenticx.llms.openai_responses import OpenAIResponsesModel

        return OpenAIResponsesModel(model, name=spec, base_url=moved or provider.base_url, api_key=key)
    if provider.wire == "anthropic":
        from agenticx.llms.anthropic import AnthropicModel

        return AnthropicModel(model, name=spec, base_url=moved or provider.base_url, api_key=key)
    if provider.wire == "gemini":
        from agenticx.llms.gemini import GeminiModel

        return GeminiModel(model, name=spec, base_url=moved or provider.base_url, api_key=key)
    if provider.wire == "ollama":
        from agenticx.llms.ollama import OllamaModel

        return OllamaModel(model, name=spec, base_url=moved or provider.base_url)
    from agenticx.llms.openai_chat import OpenAIChatModel

    return OpenAIChatModel(model, name=spec, base_url=moved or provider.base_url, api_key=key, dialect=provider.dialect)


def _known() -> str:
    return f"providers: {', '.join(provider.name for provider in _PROVIDERS)}; or 'demo'"


def _with_keys() -> Iterator[ModelInfo]:
    for provider in _PROVIDERS:
        if provider.model and (found := provider.key_set()):
            yield ModelInfo(f"{provider.name}:{provider.model}", provider.name, f"{found[0]} is set")


def _local() -> Iterator[ModelInfo]:
    for provider in _PROVIDERS:
        if provider.is_local and provider.probed:
            where = provider.where()
            for model in _served(f"{where}/v1" if provider.wire == "ollama" else where):
                yield ModelInfo(f"{provider.name}:{model}", provider.name, f"a local server answers at {where}")


def _served(base_url: str) -> list[str]:
    """The models that the server at `base_url` lists; none if it does not answer like a model server."""
    from http.client import HTTPConnection, HTTPException

    parts = urlsplit(base_url)
    connection = HTTPConnection(parts.hostname or "127.0.0.1", parts.port or 80, timeout=_PROBE_SECONDS)
    try:
        connection.request("GET", parts.path.rstrip("/") + "/models", headers={"accept": "application/json"})
        response = connection.getresponse()
        listed: Any = json.loads(response.read(_PROBE_BYTES)) if response.status == 200 else None
    except (OSError, HTTPException, ValueError, RecursionError):
        return []
    finally:
        connection.close()
    rows: Any = cast("dict[str, Any]", listed).get("data") if isinstance(listed, dict) else None
    if not isinstance(rows, list):
        return []
    ids = (cast("dict[str, Any]", row).get("id") for row in cast("list[object]", rows) if isinstance(row, dict))
    return [name for name in ids if isinstance(name, str) and name]

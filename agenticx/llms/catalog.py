"""From `provider:model` to a model, and which models there are to choose from."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, cast
from urllib.parse import urlsplit

from agenticx.errors import SettingsError
from agenticx.llms._openai_chat_request import Dialect
from agenticx.llms.base import ChatModel
from agenticx.settings import Settings, provider_key, provider_setting
from agenticx.threads import run_in_thread

__all__ = ["ModelInfo", "default_model_spec", "list_models", "resolve_model"]

_PROBE_SECONDS = 0.3
_PROBE_BYTES = 256 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class _Provider:
    """A server that speaks Chat Completions. `model` is what it is used with when nobody names one."""

    name: str
    base_url: str
    key: str | None = None
    model: str | None = None
    dialect: Dialect | None = None

    @property
    def is_local(self) -> bool:
        return self.key is None

    @property
    def base_variable(self) -> str:
        """The variable that moves it elsewhere, such as OPENAI_BASE_URL."""
        return f"{'OPENAI' if self.name == 'openai-chat' else self.name.upper()}_BASE_URL"

    def where(self) -> str:
        return provider_setting(self.base_variable) or self.base_url


_THINKING_BACK = Dialect(returns_reasoning=True)

# In the order in which a key of theirs makes them the default; local servers after them.
_PROVIDERS = (
    _Provider(name="openai-chat", base_url="https://api.openai.com/v1", key="OPENAI_API_KEY", model="gpt-4o"),
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
    _Provider(name="ollama", base_url="http://127.0.0.1:11434/v1"),
    _Provider(name="lmstudio", base_url="http://127.0.0.1:1234/v1"),
    _Provider(name="llamacpp", base_url="http://127.0.0.1:8080/v1"),
    _Provider(name="vllm", base_url="http://127.0.0.1:8000/v1"),
)

_NOT_YET = {
    "openai": "the Responses wire comes in a later release; write 'openai-chat:{model}' to use Chat Completions",
    "anthropic": "the Anthropic wire comes in a later release; 'openrouter:anthropic/{model}' works today",
    "gemini": "the Gemini wire comes in a later release; 'openrouter:google/{model}' works today",
}


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
    if provider_name in _NOT_YET:
        raise SettingsError(f"model {spec!r}: {_NOT_YET[provider_name].format(model=model)}")
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
    from agenticx.llms.openai_chat import OpenAIChatModel

    key = provider_key(provider.key) if provider.key else None
    moved = base_url or provider_setting(provider.base_variable)
    if provider.key and not key and not moved:
        raise SettingsError(f"model {spec!r} needs a key: set {provider.key}")
    return OpenAIChatModel(model, name=spec, base_url=moved or provider.base_url, api_key=key, dialect=provider.dialect)


def _known() -> str:
    return f"providers: {', '.join(provider.name for provider in _PROVIDERS)}; or 'demo'"


def _with_keys() -> Iterator[ModelInfo]:
    for provider in _PROVIDERS:
        if provider.key and provider.model and provider_key(provider.key):
            yield ModelInfo(f"{provider.name}:{provider.model}", provider.name, f"{provider.key} is set")


def _local() -> Iterator[ModelInfo]:
    for provider in _PROVIDERS:
        if provider.is_local:
            where = provider.where()
            for model in _served(where):
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

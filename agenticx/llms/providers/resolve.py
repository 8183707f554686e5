"""Resolution of `provider:model` names to models, and the list of models to choose from."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import date
from decimal import Decimal
from functools import partial

from agenticx.argument_types import check_str
from agenticx.errors import SettingsError
from agenticx.http.url import Url
from agenticx.llms.base import ChatModel
from agenticx.llms.embeddings import EmbeddingModel
from agenticx.llms.file_limits import FileLimits
from agenticx.llms.images.api import ImagesApi
from agenticx.llms.model_catalog import ModelCatalog, ModelFacts, Provider, WireName, load_model_catalog
from agenticx.llms.opening_policy import RetryPolicy
from agenticx.llms.prices import Price
from agenticx.llms.providers.addresses import split_address
from agenticx.llms.providers.local_servers import fetch_model_names, fetch_models, fetch_window
from agenticx.llms.providers.wire_classes import OFFLINE_MODELS, WIRES, load_offline_model
from agenticx.llms.transport.http import ProviderHttp
from agenticx.llms.wrappers.responses_fallback import ResponsesFallbackModel
from agenticx.logs import get_logger
from agenticx.settings import Settings
from agenticx.similar_names import similar_name
from agenticx.threads import run_in_thread

__all__ = [
    "ModelInfo",
    "check_image_model",
    "check_names",
    "default_model_spec",
    "find_file_limits",
    "find_model_facts",
    "is_offline",
    "list_models",
    "load_wire",
    "local_window_query",
    "resolve_embedding_model",
    "resolve_image_model",
    "resolve_wire",
    "served_model_name",
]

_EMBEDDING_PATHS: Mapping[WireName, str] = {"responses": "/embeddings", "chat": "/embeddings", "ollama": "/api/embed"}
_IMAGE_WIRES: frozenset[WireName] = frozenset({"responses", "chat"})
_SIMILAR = 0.75  # for names of providers, because many are short
_OFFLINE = ModelFacts(
    capabilities=("tools",),
    price=Price(input=Decimal(0), output=Decimal(0), read=date(2026, 1, 1), source="no provider is asked"),
)

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """A model: `spec` is its name for `resolve_model`, `source` says why it can be used, or what is missing."""

    spec: str
    provider: str
    source: str
    facts: ModelFacts
    available: bool = True


def resolve_wire(spec: str, *, api_key: str | None = None, base_url: str | None = None) -> ChatModel:
    """Return the bare wire of the model named `spec`: without retries, fallbacks, prices or tools in the prompt.

    `api_key` and `base_url` replace the provider's key and its usual address. The address can also stand at the end of
    `spec`, after `@`; the model's own name is without it. At another address than the usual one, Chat Completions is
    used instead of Responses if the server lacks these. Raises `SettingsError` for an unknown name, a missing key or an
    address of an offline model; the message says what is expected.
    """
    check_str("the name of a model", spec)
    spec, address = split_address(spec)
    base_url = base_url or address
    check_names(spec, api_key, base_url)
    if is_offline(spec):
        return load_offline_model(spec)()
    catalog = load_model_catalog()
    provider, model = _parse_spec(spec, catalog)
    facts = catalog.model_facts(provider, model)
    if not facts.is_known:
        _log.info(f"{spec} is not in the catalogue; {facts.assumption}")
    return _make_model(provider, model, spec, api_key, base_url, facts)


def is_offline(spec: str) -> bool:
    """Return whether `spec` names a model without a provider: `demo` or `test`."""
    return spec in OFFLINE_MODELS


def served_model_name(name: str) -> str:
    """Return the full name of a model at an address; without a provider the server speaks Chat Completions.

    >>> served_model_name("qwen"), served_model_name("ollama:qwen")
    ('openai-chat:qwen', 'ollama:qwen')
    """
    provider, colon, _ = split_address(name)[0].partition(":")
    is_full = colon and provider in load_model_catalog().providers  # else a name with a tag, such as deepseek-r1:8b
    return name if is_full or is_offline(name) else f"openai-chat:{name}"


def resolve_embedding_model(spec: str, *, api_key: str | None = None, base_url: str | None = None) -> EmbeddingModel:
    """Return the embedding model named `spec`, as in `openai:text-embedding-3-small` or `ollama:nomic-embed-text`.

    `api_key` and `base_url` replace the provider's key and its usual address. Raises `SettingsError` for an unknown
    name, a provider without embeddings or a missing key.
    """
    provider, model = _parse_spec(spec, load_model_catalog())
    if (path := _EMBEDDING_PATHS.get(provider.wire)) is None:
        raise SettingsError(
            f"embeddings of {provider.name!r} cannot be used; name a model of a server that has /v1/embeddings or of "
            "Ollama, as in 'openai:text-embedding-3-small' or 'ollama:nomic-embed-text'"
        )
    key, override = _key_and_address(provider, spec, api_key, base_url)
    http = ProviderHttp(override or provider.base_url, label=provider.name, key=key)
    return EmbeddingModel(model, http, name=spec, path=path)


def resolve_image_model(
    spec: str, *, api_key: str | None = None, base_url: str | None = None, policy: RetryPolicy | None = None
) -> ImagesApi:
    """Return the image model named `spec`, as in `openai:gpt-image-2`.

    `api_key` and `base_url` replace the provider's key and its usual address. Raises `SettingsError` for an unknown
    name, a provider without the Images API or a missing key.
    """
    catalog = load_model_catalog()
    provider, model = _parse_image_spec(spec, catalog)
    key, override = _key_and_address(provider, spec, api_key, base_url)
    http = ProviderHttp(override or provider.base_url, label=provider.name, key=key)
    return ImagesApi(model, http, name=spec, price=catalog.image_price(provider, model), policy=policy)


def check_image_model(spec: str) -> None:
    """Raise `SettingsError` unless `spec` is the name of an image model; its key may be missing."""
    _parse_image_spec(spec, load_model_catalog())


def _parse_image_spec(spec: str, catalog: ModelCatalog) -> tuple[Provider, str]:
    provider, model = _parse_spec(spec, catalog)
    if provider.wire not in _IMAGE_WIRES:
        raise SettingsError(
            f"images of {provider.name!r} cannot be used; name a model of a server that has /v1/images/generations, as "
            "in 'openai:gpt-image-2'"
        )
    return provider, model


def check_names(spec: object, api_key: object, base_url: object) -> None:
    """Raise `TypeError` for a value that is no str, and `SettingsError` for the address of an offline model."""
    check_str("the name of a model", spec)
    if api_key is not None:
        check_str("api_key", api_key)
    if base_url is not None:
        check_str("base_url", base_url)
        if is_offline(str(spec)):
            raise SettingsError(
                f"the {spec} model is offline and takes no base_url; name the model that the server has"
            )


def load_wire(spec: str) -> None:
    """Import the wire of the model named `spec`, so that `resolve_wire` need not; not for the event loop.

    Raises `SettingsError` for an unknown name.
    """
    if is_offline(spec):
        load_offline_model(spec)
        return
    provider, _ = _parse_spec(spec, load_model_catalog())
    WIRES[provider.wire].load()
    if provider.wire == "responses":
        WIRES["chat"].load()  # the replacement at a gateway without Responses


def find_model_facts(spec: str) -> ModelFacts:
    """Return the facts of the model named `spec`; raises `SettingsError` for an unknown name."""
    if is_offline(spec):
        return _OFFLINE
    catalog = load_model_catalog()
    return catalog.model_facts(*_parse_spec(spec, catalog))


def find_file_limits(spec: str, base_url: str | None = None) -> FileLimits | None:
    """Return the known limits for files of the model named `spec`; None if unknown, also at another address."""
    catalog, base_url = load_model_catalog(), base_url or split_address(spec)[1]
    provider, model = _parse_spec(spec, catalog)
    limits = provider.files or (catalog.providers[provider.models_of].files if provider.models_of else None)
    if limits is None or (base_url or provider.base_url_override() or provider.base_url) != provider.base_url:
        return None
    return limits.for_window(catalog.model_facts(provider, model).window)


def local_window_query(spec: str, base_url: str | None = None) -> Callable[[], int | None] | None:
    """Return a blocking function that asks the model's server for its window; None for a provider with keys."""
    if is_offline(spec):
        return None
    provider, model = _parse_spec(spec, load_model_catalog())
    return None if provider.keys else partial(fetch_window, provider, model, base_url or split_address(spec)[1])


def default_model_spec(settings: Settings) -> tuple[str, str]:
    """Return the name of the default model, and a clause that says why it is this one.

    It is AGX_MODEL; else the model of the first provider that has a key, in a variable or stored; else the first model
    of a local server that answers on its usual port (each is given 0.3 s); else `demo`. Blocks; raises `SettingsError`
    if the stored keys cannot be read.
    """
    if settings.model:
        return settings.model, "the setting AGX_MODEL"
    catalog = load_model_catalog()
    for provider in catalog.providers.values():
        if provider.model and (found := provider.find_key()):
            return f"{provider.name}:{provider.model}", found.reason
    for provider in _local_providers(catalog):
        if names := fetch_model_names(provider):
            return f"{provider.name}:{names[0]}", _local_source(provider)
    return "demo", (
        "no provider's key is set and no local model server answers; set AGX_MODEL or, for instance, OPENAI_API_KEY, or"
        " store a key with `agx keys set`"
    )


async def list_models(settings: Settings, *, available_only: bool = True) -> list[ModelInfo]:
    """Return the models that can be used now, the likely choices first; with `available_only` False all known ones.

    They are AGX_MODEL, the catalogue's models of providers with a key, the models of local servers, and `demo`. Raises
    `SettingsError` if the catalogue or the stored keys cannot be read.
    """
    models = await run_in_thread(lambda: list(_all_models(settings)), name="agx-probe")
    found: dict[str, ModelInfo] = {}
    for model in sorted(models, key=lambda model: not model.available):
        found.setdefault(model.spec, model)
    return [model for model in found.values() if model.available or not available_only]


def _parse_spec(spec: str, catalog: ModelCatalog) -> tuple[Provider, str]:
    name, colon, model = split_address(spec)[0].partition(":")
    if not (colon and model.strip()):
        similar = None if colon else similar_name(name, ["demo", *catalog.providers], cutoff=_SIMILAR)
        hint = _full_name(spec, catalog) or _suggestion(similar, "NAME") or _known_providers(catalog)
        raise SettingsError(f"model {spec!r} is not provider:name, as in 'openai-chat:gpt-4o'; {hint}")
    provider = catalog.providers.get(name)
    if provider is None:
        hint = _suggestion(similar_name(name, catalog.providers, cutoff=_SIMILAR), model) or _known_providers(catalog)
        raise SettingsError(f"model {spec!r} names the unknown provider {name!r}; {hint}")
    return provider, model


def _full_name(model: str, catalog: ModelCatalog) -> str:
    """Return the end of an error about a model whose provider is missing: the names with one, "" if it is unknown."""
    specs = [spec for spec in catalog.models if spec.partition(":")[2] == model]
    return f"{model!r} is {' or '.join(map(repr, specs))}" if specs else ""


def _suggestion(similar: str | None, model: str) -> str:
    """Return the end of an error about a misspelt provider or `demo`, "" if none is similar."""
    if similar is None:
        return ""
    meant = similar if is_offline(similar) else f"{similar}:{model}"
    return f"did you mean {meant!r}? `agx models` lists the models"


def _known_providers(catalog: ModelCatalog) -> str:
    return f"providers: {', '.join(catalog.providers)}; or 'demo'"


def _make_model(
    provider: Provider, model: str, spec: str, api_key: str | None, base_url: str | None, facts: ModelFacts
) -> ChatModel:
    key, override = _key_and_address(provider, spec, api_key, base_url)

    def build(wire: WireName) -> ChatModel:
        address = override or provider.base_url
        return WIRES[wire].build(model, provider, facts, name=spec, base_url=address, api_key=key)

    built = build(provider.wire)
    if provider.wire == "responses" and override and not _has_responses(override):
        return ResponsesFallbackModel(built, lambda: build("chat"))
    return built


def _key_and_address(
    provider: Provider, spec: str, api_key: str | None, base_url: str | None
) -> tuple[str | None, str | None]:
    """Return the key, and the address if it is not the usual one; raise `SettingsError` if a key is missing."""
    key = api_key or ((found := provider.find_key()) and found.value)
    override = base_url or provider.base_url_override()
    if provider.keys and not key and not override:
        advice = f"set {provider.keys[0]}, or store it with `agx keys set {provider.name}`"
        raise SettingsError(f"model {spec!r} needs a key ({_missing_key(provider)}): {advice}")
    return key, override


def _has_responses(base_url: str) -> bool:
    """Return whether the server is OpenAI's own: it has Responses for all its models."""
    return Url.parse(base_url.strip()).host == "api.openai.com"


# --- sources of models ------------------------------------------------------------------------------------------------


def _all_models(settings: Settings) -> Iterator[ModelInfo]:
    """Yield every known model, some of them twice; the first available one counts."""
    catalog = load_model_catalog()
    local = list(_local_models(catalog))
    if settings.model:
        local_facts = {model.spec: model.facts for model in local}
        configured = _configured_model(settings.model, catalog)
        yield replace(configured, facts=local_facts.get(configured.spec, configured.facts))
    yield from _default_models(catalog)
    yield from local
    yield ModelInfo("demo", "demo", "offline and scripted", _OFFLINE)
    yield from _catalogue_models(catalog)


def _configured_model(spec: str, catalog: ModelCatalog) -> ModelInfo:
    """Return the model of AGX_MODEL, also if its name is unknown: the error is raised when it is used."""
    bare, address = split_address(spec)
    name, _, model = bare.partition(":")
    provider = catalog.providers.get(name)
    facts = _OFFLINE if is_offline(spec) else ModelFacts() if provider is None else catalog.model_facts(provider, model)
    address = address or (provider and provider.base_url_override())
    usable = provider is None or not provider.keys or bool(address or provider.find_key())
    return ModelInfo(spec, name, "AGX_MODEL", facts, available=usable)


def _default_models(catalog: ModelCatalog) -> Iterator[ModelInfo]:
    for provider in catalog.providers.values():
        if provider.keys and provider.model:
            facts = catalog.model_facts(provider, provider.model)
            yield _model_with_key(f"{provider.name}:{provider.model}", provider, facts)


def _catalogue_models(catalog: ModelCatalog) -> Iterator[ModelInfo]:
    for spec, facts in catalog.models.items():
        provider = catalog.providers[spec.partition(":")[0]]
        if provider.keys:
            yield _model_with_key(spec, provider, facts)
        else:
            reason = "no local server has it" if provider.local else "its provider needs no key"
            yield ModelInfo(spec, provider.name, reason, facts, available=not provider.local)


def _model_with_key(spec: str, provider: Provider, facts: ModelFacts) -> ModelInfo:
    found = provider.find_key()
    reason = _missing_key(provider) if found is None else found.reason
    return ModelInfo(spec, provider.name, reason, facts, available=found is not None)


def _missing_key(provider: Provider) -> str:
    if provider.key_source() == "keyring":
        return "its key is stored, but cannot be read from the keyring"
    return f"{provider.keys[0]} is not set, and no key is stored"


def _local_models(catalog: ModelCatalog) -> Iterator[ModelInfo]:
    for provider in _local_providers(catalog):
        for served in fetch_models(provider, catalog):
            yield ModelInfo(f"{provider.name}:{served.name}", provider.name, _local_source(provider), served.facts)


def _local_providers(catalog: ModelCatalog) -> Iterator[Provider]:
    return (provider for provider in catalog.providers.values() if provider.local)


def _local_source(provider: Provider) -> str:
    return f"a local server answers at {provider.effective_base_url()}"

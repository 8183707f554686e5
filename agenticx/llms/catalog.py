"""From `provider:model` to a model, and which models there are to choose from."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial

from agenticx.errors import SettingsError
from agenticx.llms._wires import WIRES
from agenticx.llms.base import ChatModel
from agenticx.llms.facts import Facts, ModelFacts, Provider, load_facts
from agenticx.llms.local_servers import models_served, names_served, window_served
from agenticx.logs import get_logger
from agenticx.settings import Settings
from agenticx.threads import run_in_thread

__all__ = ["ModelInfo", "default_model_spec", "facts_of", "list_models", "load_wire", "local_window", "resolve_model"]

_DEMO = ModelFacts(abilities=("tools",))

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """A model that can be named: `spec` is its name for `resolve_model`, `why` says where it was found."""

    spec: str
    provider: str
    why: str
    facts: ModelFacts


def resolve_model(spec: str, *, base_url: str | None = None) -> ChatModel:
    """The model that `spec` names, at `base_url` instead of its provider's usual address if given.

    Raises `SettingsError` for a name that means nothing here or a key that is missing; it says what would be right.
    """
    if spec == "demo":
        from agenticx.llms.demo import DemoModel

        return DemoModel()
    facts = load_facts()
    provider, model = _named(spec, facts)
    known = facts.of(provider, model)
    if not known.is_known:
        _log.info(f"{spec} is not in the catalogue; {ModelFacts.ASSUMPTION}")
    return _model(provider, model, spec, base_url, known)


def load_wire(spec: str) -> None:
    """Import what the model that `spec` names is asked with, so that `resolve_model` need not; not for the event loop.

    Raises `SettingsError` for a name that means nothing here.
    """
    if spec == "demo":
        import agenticx.llms.demo as _
    else:
        provider, _ = _named(spec, load_facts())
        WIRES[provider.wire].load()


def facts_of(spec: str) -> ModelFacts:
    """What is known of the model that `spec` names; raises `SettingsError` like `resolve_model`."""
    if spec == "demo":
        return _DEMO
    facts = load_facts()
    return facts.of(*_named(spec, facts))


def local_window(spec: str, base_url: str | None = None) -> Callable[[], int | None] | None:
    """What asks the model's server for its window, which waits; None for a model that is on no server of one's own."""
    if spec == "demo":
        return None
    provider, model = _named(spec, load_facts())
    return None if provider.keys else partial(window_served, provider, model, base_url)


def default_model_spec(settings: Settings) -> tuple[str, str]:
    """The model that is meant when nobody names one, and a clause that says why it is this one.

    AGX_MODEL; else the first provider whose key is set; else a local server that answers on its usual port (each is
    given 0.3 s); else `demo`.
    """
    if settings.model:
        return settings.model, "the setting AGX_MODEL"
    facts = load_facts()
    if found := next(_with_keys(facts), None):
        return found.spec, found.why
    for provider in _local_providers(facts):
        if names := names_served(provider):
            return f"{provider.name}:{names[0]}", _answers(provider)
    return "demo", (
        "no provider's key is set and no local model server answers; set AGX_MODEL or, for instance, OPENAI_API_KEY"
    )


async def list_models(settings: Settings) -> list[ModelInfo]:
    """The models that can be named right now: AGX_MODEL, those of set keys, those of local servers, and `demo`."""
    facts = load_facts()
    local = await run_in_thread(lambda: list(_local(facts)), name="agx-probe")
    chosen = list(_chosen(settings.model, facts)) if settings.model else []
    models = [*chosen, *_with_keys(facts), *local, ModelInfo("demo", "demo", "offline and scripted", _DEMO)]
    told = {model.spec: model.facts for model in local}
    found: dict[str, ModelInfo] = {}
    for model in models:
        found.setdefault(model.spec, replace(model, facts=told.get(model.spec, model.facts)))
    return list(found.values())


def _named(spec: str, facts: Facts) -> tuple[Provider, str]:
    name, colon, model = spec.partition(":")
    if not (colon and model.strip()):
        raise SettingsError(f"model {spec!r} is not provider:name, as in 'openai-chat:gpt-4o'; {_known(facts)}")
    provider = facts.providers.get(name)
    if provider is None:
        raise SettingsError(f"model {spec!r} names the unknown provider {name!r}; {_known(facts)}")
    return provider, model


def _known(facts: Facts) -> str:
    return f"providers: {', '.join(facts.providers)}; or 'demo'"


def _model(provider: Provider, model: str, spec: str, base_url: str | None, known: ModelFacts) -> ChatModel:
    _, key = provider.key_set() or ("", None)
    moved = base_url or provider.moved()
    if provider.keys and not key and not moved:
        raise SettingsError(f"model {spec!r} needs a key: set {provider.keys[0]}")
    where = moved or provider.base_url
    return WIRES[provider.wire].build(model, provider, known, name=spec, base_url=where, api_key=key)


# --- which there are --------------------------------------------------------------------------------------------------


def _chosen(spec: str, facts: Facts) -> Iterator[ModelInfo]:
    """AGX_MODEL, also where it means nothing: whoever uses it is told."""
    name, _, model = spec.partition(":")
    provider = facts.providers.get(name)
    known = _DEMO if spec == "demo" else ModelFacts() if provider is None else facts.of(provider, model)
    yield ModelInfo(spec, name, "AGX_MODEL", known)


def _with_keys(facts: Facts) -> Iterator[ModelInfo]:
    for provider in facts.providers.values():
        if provider.model and (found := provider.key_set()):
            known = facts.of(provider, provider.model)
            yield ModelInfo(f"{provider.name}:{provider.model}", provider.name, f"{found[0]} is set", known)


def _local(facts: Facts) -> Iterator[ModelInfo]:
    for provider in _local_providers(facts):
        for served in models_served(provider, facts):
            yield ModelInfo(f"{provider.name}:{served.name}", provider.name, _answers(provider), served.facts)


def _local_providers(facts: Facts) -> Iterator[Provider]:
    return (provider for provider in facts.providers.values() if provider.local)


def _answers(provider: Provider) -> str:
    return f"a local server answers at {provider.where()}"

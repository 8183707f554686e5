"""The keys of the catalogue's providers, by the provider's name; all functions block."""

from __future__ import annotations

from dataclasses import dataclass

from agenticx.credentials.provider_keys import KeySource, StoredKeySource, find_key_source, key_store
from agenticx.errors import SettingsError
from agenticx.llms.model_catalog import Provider, load_model_catalog

__all__ = [
    "KeyInEnvironment",
    "NoStoredKey",
    "ProviderKeySource",
    "UnknownProvider",
    "find_provider",
    "list_key_sources",
    "names_sharing_key",
    "remove_key",
    "store_key",
]


class UnknownProvider(SettingsError):
    """Raised for a name of no provider with a key; the message lists the providers."""


class NoStoredKey(SettingsError):
    """Raised for a provider without a stored key."""


class KeyInEnvironment(SettingsError):
    """Raised for a key that is only in a variable and so cannot be removed; the message names the variable."""


@dataclass(frozen=True, slots=True)
class ProviderKeySource:
    """A provider with a key, the source of the key, and the variable that has it or would take precedence."""

    provider: str
    source: KeySource
    variable: str


def find_provider(name: str) -> Provider:
    """Return the provider of that name; raise `UnknownProvider` for an unknown name, and if it needs no key."""
    providers = load_model_catalog().providers
    known = ", ".join(name for name, provider in providers.items() if provider.keys)
    if name not in providers:
        raise UnknownProvider(f"unknown provider {name[:100]!r}; providers with a key: {known}")
    if not providers[name].keys:
        raise UnknownProvider(f"provider {name!r} needs no key; providers with a key: {known}")
    return providers[name]


def names_sharing_key(name: str) -> list[str]:
    """Return the names of the providers that have the key of this one, it first."""
    variable = find_provider(name).keys[0]
    others = load_model_catalog().providers.values()
    return [name, *(other.name for other in others if other.name != name and variable in other.keys)]


def list_key_sources() -> list[ProviderKeySource]:
    """Return the providers that have a key; providers that share a variable share its key."""
    return [
        ProviderKeySource(provider.name, source, provider.keys[0])
        for provider in load_model_catalog().providers.values()
        if (source := provider.key_source()) is not None
    ]


def store_key(name: str, key: str) -> StoredKeySource:
    """Store the key of a provider, for all that share its variable, and return where.

    A variable of the environment still takes precedence. Raises `UnknownProvider`, `InvalidKey`, and `SettingsError`
    where it cannot be stored.
    """
    return key_store().store(find_provider(name).keys[0], key)


def remove_key(name: str) -> None:
    """Remove the stored key of a provider, from all that share its variable.

    Raises `UnknownProvider`, `KeyInEnvironment` or `NoStoredKey`, and `SettingsError` where it cannot be removed.
    """
    provider = find_provider(name)
    if key_store().remove(provider.keys):
        return
    if find_key_source(provider.keys) == "env":
        raise KeyInEnvironment(f"the key of {name} is in the environment, not stored; unset {provider.keys[0]} there")
    raise NoStoredKey(f"no key of {name} is stored")

"""The values that Tab completes: names of sessions, models, agents, teams and tools, ids of rules."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial

from agenticx.config_files.named import NamedFiles
from agenticx.errors import AgenticXError, SettingsError, StoreError
from agenticx.llms.model_catalog import load_model_catalog
from agenticx.settings import load_settings

__all__ = ["catalogue_models", "values_of"]

_MAX_SESSIONS = 50
_SAFE = re.compile(r"[\w.:/@+-]+", re.ASCII)
"""The values that a shell takes as one word, whatever it does with it."""


def values_of(kind: str) -> list[str]:
    """Return the values of that kind, none if they cannot be read."""
    with suppress(AgenticXError, OSError):
        return [value for value in _SOURCES[kind]() if _SAFE.fullmatch(value)]
    return []


def catalogue_models() -> list[str]:
    """Return the models of the catalogue whose providers have a key, and the demo."""
    try:
        catalog = load_model_catalog()
        usable = [provider.name for provider in catalog.providers.values() if provider.key_source() is not None]
    except SettingsError:
        return ["demo"]
    return ["demo", *(name for name in catalog.models if name.partition(":")[0] in usable)]


def _sessions() -> Sequence[str]:
    from agenticx.sessions.store.factory import open_store_reader

    async def read() -> list[str]:
        reader = open_store_reader(load_settings())
        try:
            return [listed.record.id for listed in await reader.catalog.sessions(limit=_MAX_SESSIONS)]
        finally:
            await reader.aclose()

    try:
        return ["last", *asyncio.run(read())]
    except StoreError:  # for example before the first session
        return ["last"]


def _names_of_files(kind: str) -> Sequence[str]:
    """Return the names of the files of that kind, without the imports that reading the files takes."""
    files = NamedFiles(
        load_settings().home,
        f"{kind}s",
        noun=kind,
        parse=lambda text, _: text,
        error=SettingsError,
        unknown=SettingsError,
    )
    return files.names()


def _rules() -> Sequence[str]:
    from agenticx.permissions.rule_stores import open_rules
    from agenticx.sessions.store.factory import using_shared_state

    settings = load_settings()
    with using_shared_state(settings, only_reads=True) as shared:
        return [rule.id for rule in open_rules(settings.home, shared).list()]


def _tools() -> Sequence[str]:
    from agenticx.cli.options import enabled_tools

    return [tool.schema.name for tool in enabled_tools(load_settings())]


_SOURCES: Mapping[str, Callable[[], Sequence[str]]] = {
    "session": _sessions,
    "model": catalogue_models,
    "agent": partial(_names_of_files, "agent"),
    "team": partial(_names_of_files, "team"),
    "rule": _rules,
    "tool": _tools,
}

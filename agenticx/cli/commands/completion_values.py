"""The values that Tab completes: names of sessions, models, agents and teams."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from agenticx.errors import AgenticXError, SettingsError
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
    from agenticx.cli.commands.session_access import open_session_reader  # Tab waits for no import that it needs not

    async def read() -> list[str]:
        async with open_session_reader() as (reader, _):
            return ["last", *(session.id for session in await reader.list_sessions(limit=_MAX_SESSIONS))]

    return asyncio.run(read())


def _agents() -> Sequence[str]:
    from agenticx.core.agent_files import AgentFiles

    return AgentFiles(load_settings().home).names()


def _teams() -> Sequence[str]:
    from agenticx.teams.configured.files import TeamFiles

    return TeamFiles(load_settings().home).names()


_SOURCES: Mapping[str, Callable[[], Sequence[str]]] = {
    "session": _sessions,
    "model": catalogue_models,
    "agent": _agents,
    "team": _teams,
}

"""Whether a provider takes its key: one authenticated GET that costs nothing."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from typing import Any, Literal, cast

from agenticx.errors import ModelError, SettingsError
from agenticx.llms._values import items_in, text_in
from agenticx.llms.facts import Provider

__all__ = ["KeyCheck", "check_key"]

_SECONDS = 10.0
_LIST_BYTES = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class KeyCheck:
    """How the provider answered, as a sentence without its subject. `models` are the names that it listed."""

    answer: Literal["accepted", "refused", "unclear"]
    text: str
    models: tuple[str, ...] = ()


async def check_key(provider: Provider, key: str) -> KeyCheck:
    """Ask the provider's server, wherever it is; gives it 10 s."""
    if not provider.key_check:
        return KeyCheck("unclear", f"{provider.where()} has nothing to test a key with")
    try:
        async with asyncio.timeout(_SECONDS):
            answer = await _get(provider, key)
    except ModelError as error:
        return _failed(error)
    except SettingsError as error:
        return KeyCheck("refused", str(error))
    except TimeoutError:
        return KeyCheck("unclear", f"{provider.where()} did not answer within {_SECONDS:g} s")
    models = _listed(answer)
    count = f", which lists {len(models)} models" if models else ""
    return KeyCheck("accepted", f"is accepted by {provider.where()}{count}", models)


async def _get(provider: Provider, key: str) -> bytes:
    from agenticx.llms._http import ProviderHttp  # the HTTP client takes 0.15 s

    where, path = provider.where().rstrip("/"), provider.key_check
    version = path.rpartition("/")[0]
    if version and where.endswith(version):
        where = where.removesuffix(version)
    header = {"anthropic": "x-api-key", "gemini": "x-goog-api-key"}.get(provider.wire)
    headers = {"anthropic-version": "2023-06-01"} if provider.wire == "anthropic" else None
    http = ProviderHttp(where, label=provider.name, key=key, key_header=header, headers=headers)
    try:
        return await http.get(path, timeout=_SECONDS, limit=_LIST_BYTES)
    finally:
        await http.aclose()


def _failed(error: ModelError) -> KeyCheck:
    if error.status in (401, 403) or error.code == "provider.auth":
        return KeyCheck("refused", f"is refused: {error}")
    if error.status == 429:
        return KeyCheck("accepted", f"is accepted, but used up for now: {error}")
    return KeyCheck("unclear", f"could not be tested: {error}")


def _listed(answer: bytes) -> tuple[str, ...]:
    """The models in an answer: `data` as most have it, `models` as Gemini has it."""
    try:
        parsed: Any = json.loads(answer)
    except (ValueError, RecursionError):
        return ()
    fields = cast("dict[str, Any]", parsed) if isinstance(parsed, dict) else {}
    rows = items_in(fields, "data") or items_in(fields, "models")
    names = (text_in(row, "id") or text_in(row, "name").removeprefix("models/") for row in rows)
    return tuple(name for name in names if name)

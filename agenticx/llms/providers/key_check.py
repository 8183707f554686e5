"""A test of a provider's key by one authenticated GET that costs nothing."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from typing import Any, Literal, cast

from agenticx.errors import ModelError, SettingsError
from agenticx.llms.json_values import items_in, text_in
from agenticx.llms.model_catalog import Provider
from agenticx.llms.transport.http import ProviderHttp

__all__ = ["KeyCheck", "check_key"]

_TIMEOUT_SECONDS = 10.0
_MAX_BODY_BYTES = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class KeyCheck:
    """The result of a test: `text` is a sentence without its subject, `models` the names that the provider listed."""

    outcome: Literal["accepted", "refused", "unclear"]
    text: str
    models: tuple[str, ...] = ()


async def check_key(provider: Provider, key: str) -> KeyCheck:
    """Test `key` at the provider's server within 10 s."""
    if not provider.key_check:
        return KeyCheck("unclear", f"cannot be tested: {provider.effective_base_url()} has no endpoint for it")
    try:
        async with asyncio.timeout(_TIMEOUT_SECONDS):
            body = await _get(provider, key)
    except ModelError as error:
        return _check_from_error(error)
    except SettingsError as error:
        return KeyCheck("refused", str(error))
    except TimeoutError:
        return KeyCheck("unclear", f"{provider.effective_base_url()} did not answer within {_TIMEOUT_SECONDS:g} s")
    models = _listed_models(body)
    count = f", which lists {len(models)} models" if models else ""
    return KeyCheck("accepted", f"is accepted by {provider.effective_base_url()}{count}", models)


async def _get(provider: Provider, key: str) -> bytes:
    base_url, path = provider.effective_base_url().rstrip("/"), provider.key_check
    version = path.rpartition("/")[0]
    if version and base_url.endswith(version):
        base_url = base_url.removesuffix(version)
    header = {"anthropic": "x-api-key", "gemini": "x-goog-api-key"}.get(provider.wire)
    headers = {"anthropic-version": "2023-06-01"} if provider.wire == "anthropic" else None
    http = ProviderHttp(base_url, label=provider.name, key=key, key_header=header, headers=headers)
    try:
        return await http.get(path, timeout=_TIMEOUT_SECONDS, limit=_MAX_BODY_BYTES)
    finally:
        await http.aclose()


def _check_from_error(error: ModelError) -> KeyCheck:
    if error.status in (401, 403) or error.code == "provider.auth":
        return KeyCheck("refused", f"is refused: {error}")
    if error.status == 429:
        return KeyCheck("accepted", f"is accepted, but its quota is exceeded: {error}")
    return KeyCheck("unclear", f"could not be tested: {error}")


def _listed_models(body: bytes) -> tuple[str, ...]:
    """Return the model names in a response body: in `data` for most providers, in `models` for Gemini."""
    try:
        parsed: Any = json.loads(body)
    except (ValueError, RecursionError):
        return ()
    fields = cast("dict[str, Any]", parsed) if isinstance(parsed, dict) else {}
    entries = items_in(fields, "data") or items_in(fields, "models")
    names = (text_in(entry, "id") or text_in(entry, "name").removeprefix("models/") for entry in entries)
    return tuple(name for name in names if name)

"""The keys of providers over HTTP: listed by their sources, stored and removed, never returned."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from typing_extensions import TypedDict

from agenticx.credentials.provider_keys import InvalidKey, KeySource, StoredKeySource, check_format
from agenticx.llms.model_catalog import Provider
from agenticx.llms.providers.key_check import KeyCheck, check_key
from agenticx.llms.providers.keys import find_provider, list_key_sources, remove_key, store_key
from agenticx.logs import get_logger
from agenticx.threads import run_in_thread
from studio.http.bodies import RequestBody, read_body
from studio.http.problems import Problem
from studio.services import services

__all__ = ["KeyListResponse", "StoreKeyBody", "StoreKeyResponse", "delete", "index", "store"]

_log = get_logger(__name__)


class StoreKeyBody(RequestBody):
    """A key; with `test` it is stored only if its provider accepts it, in a request that costs nothing."""

    max_bytes = 32 * 1024

    key: str = Field(repr=False, description="The key.")
    test: bool = Field(False, description="By default false.")


class KeyItem(TypedDict):
    """A provider that has a key, and the source of the key that is used: the environment takes precedence."""

    provider: Annotated[str, Field(description="The name of the provider.")]
    source: Annotated[KeySource, Field(description="Where the key in use is kept.")]
    variable: Annotated[str, Field(description="The variable of the key; providers with the same one share the key.")]


class KeyListResponse(TypedDict):
    """The providers that have a key."""

    keys: Annotated[list[KeyItem], Field(description="The providers that have a key, by their names.")]


class StoreKeyResponse(TypedDict):
    """The place where a key was stored, and the source of the key that is used from now on.

    `tested` is false if no test was requested, or if the provider has no endpoint for it.
    """

    provider: Annotated[str, Field(description="The name of the provider.")]
    stored: Annotated[StoredKeySource, Field(description="Where the key was stored.")]
    source: Annotated[KeySource, Field(description="Where the key in use is kept: a variable takes precedence.")]
    tested: Annotated[bool, Field(description="true: the provider has accepted the key.")]


async def index(request: Request) -> Response:
    sources = await run_in_thread(list_key_sources, name="agx keys")
    keys: list[KeyItem] = [
        {"provider": found.provider, "source": found.source, "variable": found.variable} for found in sources
    ]
    return JSONResponse(KeyListResponse(keys=keys))


async def store(request: Request) -> Response:
    name = request.path_params["provider"]
    body = await read_body(request, StoreKeyBody)
    provider = await run_in_thread(find_provider, name, name="agx keys")
    key = _checked(body.key)
    tested = body.test and await _test(provider, key)
    stored = await run_in_thread(store_key, name, key, name="agx keys")
    source = await run_in_thread(provider.key_source, name="agx keys")
    await services(request).models.refresh()
    _log.info("key stored", provider=name, place=stored, tested=tested)
    return JSONResponse(StoreKeyResponse(provider=name, stored=stored, source=source or stored, tested=tested))


async def delete(request: Request) -> Response:
    name = request.path_params["provider"]
    await run_in_thread(remove_key, name, name="agx keys")
    await services(request).models.refresh()
    _log.info("key removed", provider=name)
    return Response(status_code=204)


def _checked(key: str) -> str:
    try:
        return check_format(key)
    except InvalidKey as exc:
        raise Problem("invalid_key", f"The key was not stored: {exc}.", field="key") from exc


async def _test(provider: Provider, key: str) -> bool:
    """Return True if the provider accepts the key, False if it has no test; raise `Problem` otherwise."""
    if not provider.key_check:
        return False
    check = await check_key(provider, key)
    if check.outcome == "refused":
        raise Problem("key_refused", _not_stored(check), field="key")
    if check.outcome == "unclear":
        raise Problem("provider_unreachable", f"{_not_stored(check)} Try again later.")
    return True


def _not_stored(check: KeyCheck) -> str:
    return f"The key was not stored: it {check.text}{'' if check.text.endswith(('.', '?')) else '.'}"

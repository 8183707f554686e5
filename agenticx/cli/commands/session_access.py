"""Access to the stored sessions, for `agx sessions` and `agx artifacts`."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial

from agenticx.cli.client.base import Client, SessionInfo, SessionReader
from agenticx.cli.client.discovery import is_shared_by_terminal, open_reader, open_store_or_find_server, remote_client
from agenticx.cli.client.http import ServerEndpoint, ServerUnresponsive
from agenticx.cli.client.local import LocalClient
from agenticx.cli.client.session_lookup import find_session
from agenticx.cli.options import configure_terminal_logging
from agenticx.cli.terminal.event_text import Note
from agenticx.cli.terminal.output import output_for
from agenticx.llms.assembly import resolve_model
from agenticx.llms.model_cache import ModelCache
from agenticx.llms.providers.resolve import default_model_spec
from agenticx.runtime import AsyncConfirmGate
from agenticx.sessions.store.base import Store
from agenticx.sessions.store.owner import OwnedElsewhere
from agenticx.settings import Settings, load_settings
from agenticx.tools.visible import visible_line

__all__ = ["open_client", "open_session", "open_session_reader", "open_stored_session", "print_note"]


@asynccontextmanager
async def open_client() -> AsyncGenerator[tuple[Client, Settings]]:
    """Yield the client of the server or database; raise `OwnedElsewhere` if another program owns the database."""
    settings = _settings()
    async with _client_of(await open_store_or_find_server(settings), settings) as client:
        yield client, settings


@asynccontextmanager
async def open_session_reader() -> AsyncGenerator[tuple[SessionReader, Settings]]:
    """Yield a client for reading. If the owner of the database does not answer, the client reads the database."""
    settings = _settings()
    owner = None
    if not is_shared_by_terminal(settings):
        try:
            owner = await open_store_or_find_server(settings)
        except (OwnedElsewhere, ServerUnresponsive) as exc:
            if isinstance(exc, ServerUnresponsive):
                print_note(f"{exc}; this is read from its database")
    if owner is None:
        reader = open_reader(settings)
        try:
            yield reader, settings
        finally:
            await reader.aclose()
        return
    async with _client_of(owner, settings) as client:
        yield client, settings


@asynccontextmanager
async def open_session(arguments: Namespace) -> AsyncGenerator[tuple[Client, SessionInfo]]:
    """Yield the client and the session that the argument names."""
    async with open_client() as (client, settings):
        yield client, await find_session(client, arguments.session, settings.home)


@asynccontextmanager
async def open_stored_session(arguments: Namespace) -> AsyncGenerator[tuple[SessionReader, SessionInfo]]:
    """Yield a reader, as `open_session_reader` does, and the session that the argument names."""
    async with open_session_reader() as (reader, settings):
        yield reader, await find_session(reader, arguments.session, settings.home)


def print_note(text: str) -> None:
    """Print a line that is not data to standard error."""
    output_for().show_note(Note(visible_line(text, 2_000)))


def _settings() -> Settings:
    settings = load_settings()
    configure_terminal_logging(settings)
    return settings


@asynccontextmanager
async def _client_of(owner: Store | ServerEndpoint, settings: Settings) -> AsyncGenerator[Client]:
    if isinstance(owner, ServerEndpoint):
        yield remote_client(settings, owner, print_note)
        return
    models = ModelCache(partial(resolve_model, settings=settings), lambda: default_model_spec(settings)[0])
    client = LocalClient(owner, settings, models, AsyncConfirmGate())
    try:
        await client.recover()
        yield client
    finally:
        await client.aclose()

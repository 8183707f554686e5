"""The studio's application at the socket of a terminal that owns the sessions, for other terminals.

1. There is no port, so no page of another site can send requests; the mode of the socket decides who can.
2. The hub and the store belong to the terminal: the application does not close them.
3. A request may bring the provider keys and base URLs of its own terminal. They are kept in memory, with the turns
   that it begins and their models, and nowhere else.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.server import ServerState

from agenticx.cli.client.http import PROVIDER_VARIABLES, TERMINAL_TOKEN
from agenticx.cli.client.sharing import SharedParts
from agenticx.clocks import SystemClock
from agenticx.llms.model_cache import NamedModels
from agenticx.llms.providers.terminal_variables import parse_variables
from agenticx.settings import using_provider_variables
from agenticx.threads import run_in_thread
from studio.access import MemoryTickets
from studio.app import make_app
from studio.http.connection import ConnectionLimit, ServerConnection, uvicorn_config
from studio.http.guard import AccessRules
from studio.relay import Relay
from studio.services import Services

__all__ = ["serve_terminals"]

_CLOSING_SECONDS = 1.0


@asynccontextmanager
async def serve_terminals(listening: socket.socket, parts: SharedParts) -> AsyncGenerator[Callable[[], None]]:
    """Serve the parts of a terminal at a listening Unix socket while the block runs; then end all streams.

    Yields a function that has it accept no more connections.
    """
    services = await run_in_thread(_make_services, parts, name="agx sharing")
    connection = ServerConnection.with_limits(services.clock, ConnectionLimit(services.clock))
    app = _VariablesMiddleware(make_app(services))
    config = uvicorn_config(app, connection, services.clock, lifespan=False)
    config.load()
    state = ServerState()
    relaying = asyncio.create_task(services.relay.run())
    server = await asyncio.get_running_loop().create_unix_server(
        lambda: connection(config=config, server_state=state, app_state={}), sock=listening
    )
    try:
        yield server.close
    finally:
        server.close()
        services.relay.closing.set()
        await relaying
        await _close_connections(state)
        await services.models.aclose()


@dataclass(frozen=True, slots=True)
class _VariablesMiddleware:
    """ASGI middleware that handles each request with the variables of providers that it brings."""

    app: ASGIApp

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        text = Headers(scope=scope).get(PROVIDER_VARIABLES) if scope["type"] == "http" else None
        with using_provider_variables({} if text is None else parse_variables(text)):
            await self.app(scope, receive, send)


async def _close_connections(state: ServerState) -> None:
    """Let the responses end that are being sent, for a second at most."""
    for connection in list(state.connections):
        connection.shutdown()
    with suppress(TimeoutError):
        async with asyncio.timeout(_CLOSING_SECONDS):
            while state.tasks:
                await asyncio.wait(set(state.tasks))
    for connection in list(state.connections):
        connection.transport.abort()  # type: ignore[union-attr]


def _make_services(parts: SharedParts) -> Services:
    clock = SystemClock()
    return Services(
        settings=parts.settings,
        clock=clock,
        store=parts.store,
        hub=parts.hub,
        relay=Relay(parts.store, clock=clock),
        models=NamedModels(parts.settings),
        toolbox=parts.toolbox,
        images=parts.images,
        workspace=parts.settings.workspace_root or Path.cwd(),
        tickets=MemoryTickets(clock),
        access=AccessRules(TERMINAL_TOKEN),
        notes=parts.notes,
    )

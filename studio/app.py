"""The ASGI application: middleware around the routes, and the tasks of its lifespan."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from starlette.applications import Starlette
from starlette.middleware import Middleware

from studio.http.guard import AccessMiddleware
from studio.http.problems import HANDLERS
from studio.http.write_timeout import WRITE_TIMEOUT_SECONDS, WriteTimeoutMiddleware
from studio.routes import is_public, routes
from studio.services import Services

__all__ = ["make_app"]


def make_app(services: Services) -> Starlette:
    """Return the application for `services`.

    Its shutdown stops the turns, then ends every event stream with a `server_closing` frame.
    """

    @asynccontextmanager
    async def lifespan(_app: Starlette) -> AsyncGenerator[None]:
        await services.hub.recover()
        wake_task = asyncio.create_task(services.relay.wake_readers_on_close())
        try:
            yield
        finally:
            await services.hub.close()
            services.relay.closing.set()
            await wake_task
            await services.models.aclose()
            await services.store.aclose()

    app = Starlette(
        routes=routes(),
        middleware=[
            Middleware(WriteTimeoutMiddleware, timeout_seconds=services.clock.real(WRITE_TIMEOUT_SECONDS)),
            Middleware(
                AccessMiddleware, origin_policy=services.origin_policy, token=services.token, is_public=is_public
            ),
        ],
        exception_handlers=HANDLERS,
        lifespan=lifespan,
    )
    app.router.redirect_slashes = False
    app.state.services = services
    return app

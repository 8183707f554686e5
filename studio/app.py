"""The ASGI application: the guard folded over the routes, and what runs beside them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from starlette.applications import Starlette
from starlette.middleware import Middleware

from studio.auth import Guard
from studio.pieces import STALLED_SECONDS, Piecewise
from studio.problems import HANDLERS
from studio.routes import routes
from studio.services import Services

__all__ = ["make_app"]


def make_app(services: Services) -> Starlette:
    """The application over `services`; closing it stops the turns and says farewell to the readers."""

    @asynccontextmanager
    async def lifespan(_app: Starlette) -> AsyncGenerator[None]:
        await services.hub.recover()
        waking = asyncio.create_task(services.relay.wake_at_closing())
        try:
            yield
        finally:
            await services.hub.close()
            services.relay.closing.set()
            await waking
            await services.models.aclose()
            await services.store.aclose()

    app = Starlette(
        routes=routes(),
        middleware=[
            Middleware(Piecewise, stalled_seconds=services.clock.real(STALLED_SECONDS)),
            Middleware(Guard, boundary=services.boundary, token=services.token),
        ],
        exception_handlers=HANDLERS,
        lifespan=lifespan,
    )
    app.router.redirect_slashes = False
    app.state.services = services
    return app

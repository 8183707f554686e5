"""The ASGI application: an application's own parts, middleware around the routes, and its lifespan.

1. An application of `create_app` opens its store when its lifespan begins, so making one has no effect. `agx serve`
   opens the store before that, and leaves the services in the application's state.
2. Starlette runs the lifespan of the outermost application only. One that mounts a studio runs it in its own:

       studio_app = create_app(tools=[…])

       @asynccontextmanager
       async def lifespan(app):
           async with studio_app.router.lifespan_context(studio_app):
               yield

       app = Starlette(routes=[Mount("/studio", studio_app)], lifespan=lifespan)

3. Served by another program than `agx serve`, a studio has no discovery file, since it does not know its address. That
   server limits the connections, and its shutdown cuts event streams off before the turns are stopped.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import ExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.types import Scope

from agenticx.argument_types import check_callable, check_type
from agenticx.assembly import check_images
from agenticx.core.agent import Agent
from agenticx.core.session_agents import checked_agents
from agenticx.errors import ResourcesExhausted
from agenticx.llms.images.base import ImageProvider
from agenticx.llms.model_cache import ModelSource, NamedModels, OwnModels, own_models
from agenticx.runtime import AgentHook, HookRegistry
from agenticx.sessions.hub.session_fields import check_text
from agenticx.sessions.log.session_record import SessionRecord
from agenticx.sessions.store.factory import open_shared_state
from agenticx.settings import Settings, load_settings
from agenticx.threads import run_in_thread
from agenticx.tools.base import Tool
from agenticx.tools.registry import Toolbox
from studio.access import load_or_create_token
from studio.http.guard import AccessMiddleware, AccessRules
from studio.http.problems import HANDLERS
from studio.routes.table import is_public, routes
from studio.services import Services, make_services
from studio.single_instance import lock_home

__all__ = ["AppParts", "create_app", "make_app", "parts_of"]

_FOLLOW_SECONDS = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class AppParts:
    """The parts that an application gives to its studio; None and () stand for the usual ones."""

    models: OwnModels | None = None
    tools: Toolbox | None = None
    hooks: HookRegistry | Sequence[AgentHook] = ()
    system_prompt: str | None = None
    agents: Sequence[Agent[Any, Any]] = ()
    deps: Callable[[SessionRecord], Any] | None = None
    images: ImageProvider | None = None
    settings: Settings | None = None

    def make_services(self, settings: Settings) -> Services:
        """Open the store and return the services, with the token of `settings`; not for the event loop.

        Raises `SettingsError`, `StoreError`, `OwnedElsewhere`.
        """
        with ExitStack() as closing:
            if (shared := open_shared_state(settings)) is not None:
                closing.callback(shared.close)
            models = NamedModels(settings, own=self.models)
            models.check_names(settings)
            token = load_or_create_token(settings, shared)
            services = make_services(
                settings,
                token=token,
                shared=shared,
                models=models,
                tools=self.tools,
                hooks=self.hooks,
                system_prompt=self.system_prompt,
                agents=self.agents,
                deps=self.deps,
                images=self.images,
            )
            closing.pop_all()  # the store closes it
            return services


def create_app(
    *,
    models: ModelSource | None = None,
    tools: Iterable[Tool | Callable[..., Any]] | None = None,
    hooks: HookRegistry | Sequence[AgentHook] = (),
    system_prompt: str | None = None,
    agents: Iterable[Agent[Any, Any]] = (),
    deps: Callable[[SessionRecord], Any] | None = None,
    images: ImageProvider | None = None,
    settings: Settings | None = None,
) -> Starlette:
    """Return the studio as a Starlette application, to be served (`agx serve --app MODULE:NAME`) or mounted.

    `models` maps names to models, or to names of models of the catalogue. They are added to the catalogue; the first is
    the default. Or it is a function that returns the model of a name (None: the default). `tools` replace the built-in
    tools (`[*builtin_tools(), mine]` adds one); the tools for sub-agents stay unless AGX_ENABLED_TOOLS leaves them out.
    `hooks` run in every turn. `system_prompt` replaces `config/prompts/system.md`, with the same placeholders. `agents`
    can answer besides the main agent, `deps` makes the dependencies of tools, and `images` makes images, see
    `agenticx.open_hub`. Without `settings` they are read from the environment and the settings files as the application
    starts. An application that mounts this one must run its lifespan: see the docstring of this module. Raises
    `TypeError` or `ValueError` for arguments of another type or value.
    """
    if system_prompt is not None:
        check_text("system_prompt", system_prompt)
    if settings is not None:
        check_type("settings", settings, Settings, "Settings, as load_settings returns them")
    check_images(images)
    if deps is not None:
        check_callable("deps", deps, "a function of the SessionRecord")
    parts = AppParts(
        models=None if models is None else own_models(models),
        tools=None if tools is None else Toolbox(tools),
        hooks=HookRegistry.from_hooks(hooks),
        system_prompt=system_prompt,
        agents=checked_agents(agents),
        deps=deps,
        images=images,
        settings=settings,
    )
    return _new_app(parts)


def make_app(services: Services) -> Starlette:
    """Return the application for services that exist; its shutdown closes them."""
    app = _new_app(AppParts(settings=services.settings))
    app.state.services = services
    return app


def parts_of(app: object) -> AppParts | None:
    """Return the parts of an application of `create_app`, None for any other object."""
    parts = getattr(app.state, "studio_parts", None) if isinstance(app, Starlette) else None
    return parts if isinstance(parts, AppParts) else None


def _new_app(parts: AppParts) -> Starlette:
    app = Starlette(
        routes=routes(),
        middleware=[Middleware(AccessMiddleware, rules_of=_access_rules, is_public=is_public)],
        exception_handlers=HANDLERS,
        lifespan=_lifespan,
    )
    app.router.redirect_slashes = False
    app.state.studio_parts = parts
    return app


def _access_rules(scope: Scope) -> AccessRules:
    services: Services | None = getattr(scope["app"].state, "services", None)
    if services is None:
        raise RuntimeError(
            "the lifespan of the studio has not begun; an application that mounts it must run it: see studio.app"
        )
    return services.access


@asynccontextmanager
async def _lifespan(app: Starlette) -> AsyncGenerator[None]:
    if hasattr(app.state, "services"):
        async with _running(app.state.services):
            yield
        return
    parts: AppParts = app.state.studio_parts
    settings = parts.settings or await run_in_thread(load_settings, name="agx settings")
    lock = await run_in_thread(lock_home, settings.home, name="agx lock")
    try:
        app.state.services = await run_in_thread(parts.make_services, settings, name="agx opening")
        async with _running(app.state.services):
            yield
    finally:
        if hasattr(app.state, "services"):
            del app.state.services
        lock.release()


@asynccontextmanager
async def _running(services: Services) -> AsyncGenerator[None]:
    """Serve turns while the body runs; at the end, stop them, then end every stream with a `server_closing` frame."""
    await services.hub.recover()
    relaying = asyncio.create_task(services.relay.run())
    following = asyncio.create_task(_follow_shared_keys(services))
    try:
        yield
    finally:
        following.cancel()
        await services.hub.close()
        services.relay.closing.set()
        await relaying
        await services.close_models()
        await services.store.aclose()


async def _follow_shared_keys(services: Services) -> None:
    """Choose the default model again soon after another worker has changed the keys of providers."""
    while services.store.shared is not None:
        await services.clock.sleep(_FOLLOW_SECONDS)
        with suppress(ResourcesExhausted):  # tried again
            await services.models.refresh()

"""The services that all requests share, created once at start-up."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from starlette.requests import Request

from agenticx.assembly import close_images, configured_images, make_hub, make_toolbox
from agenticx.clocks import Clock, SystemClock
from agenticx.core.agent import Agent
from agenticx.core.session_notes import SessionNotes
from agenticx.knowledge import Vaults
from agenticx.llms.images.base import ImageProvider
from agenticx.llms.model_cache import NamedModels
from agenticx.runtime import AgentHook, HookRegistry
from agenticx.sessions.hub.hub import Hub
from agenticx.sessions.log.session_record import SessionRecord
from agenticx.sessions.store.base import Store
from agenticx.sessions.store.factory import open_store
from agenticx.settings import Settings
from agenticx.shared_state.state import SharedState
from agenticx.tools.base import Tool
from agenticx.tools.registry import Toolbox
from studio.access import MemoryTickets, SharedTickets, Tickets
from studio.http.guard import AccessRules
from studio.relay import Relay

__all__ = ["Services", "make_services", "services"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """The services of the routes.

    `workspace` is the folder of sessions created without one; `instance` identifies this run of the server.
    """

    settings: Settings
    clock: Clock
    store: Store
    hub: Hub
    relay: Relay
    models: NamedModels
    toolbox: Toolbox
    images: ImageProvider | None
    workspace: Path
    tickets: Tickets
    access: AccessRules
    notes: SessionNotes
    instance: str = field(default_factory=lambda: secrets.token_hex(16))

    @property
    def vaults(self) -> Vaults:
        """The vaults of notes."""
        return self.notes.vaults

    async def close_models(self) -> None:
        """Close the connections of all models."""
        await self.models.aclose()
        await close_images(self.images)


def make_services(
    settings: Settings,
    *,
    token: str,
    store: Store | None = None,
    shared: SharedState | None = None,
    models: NamedModels | None = None,
    tools: Iterable[Tool | Callable[..., Any]] | None = None,
    hooks: HookRegistry | Sequence[AgentHook] = (),
    system_prompt: str | None = None,
    agents: Iterable[Agent[Any, Any]] = (),
    deps: Callable[[SessionRecord], Any] | None = None,
    images: ImageProvider | None = None,
    clock: Clock | None = None,
) -> Services:
    """Return the services of a server; all its turns run `hooks`, and have `system_prompt` instead of the usual one.

    `shared` is the shared state of the store that is opened here, if that is open already; the store closes it.
    `images` makes images, by default the model of AGX_IMAGE_MODEL. Raises `SettingsError` when AGX_ENABLED_TOOLS has
    the name of an unknown tool, or AGX_IMAGE_MODEL that of no image model.
    """
    clock = clock or SystemClock()
    store = store or open_store(settings, clock, shared=shared)
    models = models or NamedModels(settings)
    images = images or configured_images(settings)
    toolbox = make_toolbox(tools, settings, images)
    notes = SessionNotes(settings, clock, store)
    return Services(
        settings=settings,
        clock=clock,
        store=store,
        hub=make_hub(
            store,
            models=models,
            toolbox=toolbox,
            settings=settings,
            hooks=hooks,
            system_prompt=system_prompt,
            agents=agents,
            deps=deps,
            notes=notes,
            clock=clock,
        ),
        relay=Relay(store, clock=clock),
        models=models,
        toolbox=toolbox,
        images=images,
        workspace=settings.workspace_root or Path.cwd(),
        tickets=MemoryTickets(clock) if store.shared is None else SharedTickets(store.shared.values),
        access=AccessRules(token, settings.allowed_hosts, settings.allowed_origins),
        notes=notes,
    )


def services(request: Request) -> Services:
    """Return the services of the request's application."""
    return cast(Services, request.app.state.services)

"""The services that all requests share, created once at start-up."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from starlette.requests import Request

from agenticx.clocks import Clock, SystemClock
from agenticx.errors import SettingsError, ToolError
from agenticx.llms.assembly import assemble_model
from agenticx.llms.base import ChatModel
from agenticx.llms.catalog.resolve import default_model_spec
from agenticx.llms.model_cache import ModelCache
from agenticx.runtime import AgentHook, HookRegistry
from agenticx.sessions.hub.hub import Hub
from agenticx.sessions.store.base import Store
from agenticx.sessions.store.factory import open_store
from agenticx.sessions.store.records import SessionRecord
from agenticx.settings import Settings
from agenticx.tools.base import Tool
from agenticx.tools.builtin import builtin_tools
from agenticx.tools.registry import Toolbox
from studio.access import Tickets
from studio.http.guard import OriginPolicy
from studio.relay import Relay

__all__ = ["ServerModels", "Services", "make_services", "services"]


class ServerModels(ModelCache):
    """The models of a server by name; `default` is used where no name is given, `default_reason` explains the choice.

    The constructor may send requests to local model servers, so it must not be called on the event loop.
    """

    def __init__(self, settings: Settings, assemble: Callable[[str, Settings], ChatModel] = assemble_model) -> None:
        self.default, self.default_reason = default_model_spec(settings)
        super().__init__(lambda spec: assemble(spec, settings), lambda: self.default)


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """The services of the routes; `workspace` is the folder of sessions created without one."""

    settings: Settings
    clock: Clock
    store: Store
    hub: Hub
    relay: Relay
    models: ServerModels
    toolbox: Toolbox
    workspace: Path
    tickets: Tickets
    token: str
    origin_policy: OriginPolicy


def make_services(
    settings: Settings,
    *,
    token: str,
    port: int,
    store: Store | None = None,
    models: ServerModels | None = None,
    tools: Iterable[Tool] | None = None,
    hooks: HookRegistry | Sequence[AgentHook] = (),
    clock: Clock | None = None,
) -> Services:
    """Return the services of a server on `port`; all its turns run `hooks`.

    Raises `SettingsError` when AGX_ENABLED_TOOLS has the name of an unknown tool.
    """
    clock = clock or SystemClock()
    store = store or open_store(settings, clock)
    models = models or ServerModels(settings)
    toolbox = Toolbox(builtin_tools() if tools is None else tools)
    try:
        toolbox.only(settings.enabled_tools or ())
    except ToolError as exc:
        raise SettingsError(f"AGX_ENABLED_TOOLS: {exc}") from exc

    def tools_of(record: SessionRecord) -> tuple[Tool, ...]:
        return tuple(toolbox if record.tools is None else toolbox.only(record.tools))

    return Services(
        settings=settings,
        clock=clock,
        store=store,
        hub=Hub(
            store,
            models=models.get,
            tools=tools_of,
            settings=settings,
            hooks=hooks,
            clock=clock,
        ),
        relay=Relay(store, clock=clock),
        models=models,
        toolbox=toolbox,
        workspace=settings.workspace_root or Path.cwd(),
        tickets=Tickets(clock),
        token=token,
        origin_policy=OriginPolicy.for_port(
            port, allowed_hosts=settings.allowed_hosts, allowed_origins=settings.allowed_origins
        ),
    )


def services(request: Request) -> Services:
    """Return the services of the request's application."""
    return cast(Services, request.app.state.services)

"""The collaborators that every request shares, put together once at start."""

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
from agenticx.llms.catalog import default_model_spec
from agenticx.llms.named import ModelCache
from agenticx.runtime import AgentHook, HookRegistry
from agenticx.sessions.base import SessionRecord, Store
from agenticx.sessions.hub import Hub
from agenticx.sessions.opening import open_store
from agenticx.sessions.snapshots import SnapshotFolder
from agenticx.settings import Settings
from agenticx.tools.base import Tool
from agenticx.tools.builtin import builtin_tools
from agenticx.tools.registry import Toolbox
from studio.auth import Boundary, Tickets
from studio.relay import Relay

__all__ = ["Models", "Services", "make_services", "services"]


class Models(ModelCache):
    """The models of a server; `default` is what no name means, `why` says why.

    Making this object may ask local model servers whether they are there, so it is not for the event loop.
    """

    def __init__(self, settings: Settings, assemble: Callable[[str, Settings], ChatModel] = assemble_model) -> None:
        self.default, self.why = default_model_spec(settings)
        super().__init__(lambda spec: assemble(spec, settings), lambda: self.default)


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """What routes work with. `workspace` is the folder of sessions that name none."""

    settings: Settings
    clock: Clock
    store: Store
    snapshots: SnapshotFolder
    hub: Hub
    relay: Relay
    models: Models
    toolbox: Toolbox
    workspace: Path
    tickets: Tickets
    token: str
    boundary: Boundary


def make_services(
    settings: Settings,
    *,
    token: str,
    port: int,
    store: Store | None = None,
    models: Models | None = None,
    tools: Iterable[Tool] | None = None,
    hooks: HookRegistry | Sequence[AgentHook] = (),
    clock: Clock | None = None,
) -> Services:
    """The services of a server on `port`, whose turns all run `hooks`.

    Raises `SettingsError` when AGX_ENABLED_TOOLS names what is no tool.
    """
    clock = clock or SystemClock()
    store = store or open_store(settings, clock)
    models = models or Models(settings)
    toolbox = Toolbox(builtin_tools() if tools is None else tools)
    try:
        toolbox.only(settings.enabled_tools or ())
    except ToolError as exc:
        raise SettingsError(f"AGX_ENABLED_TOOLS: {exc}") from exc

    snapshots = SnapshotFolder(settings.home / "snapshots")

    def tools_of(record: SessionRecord) -> tuple[Tool, ...]:
        return tuple(toolbox if record.tools is None else toolbox.only(record.tools))

    return Services(
        settings=settings,
        clock=clock,
        store=store,
        snapshots=snapshots,
        hub=Hub(
            store,
            models=models.get,
            tools=tools_of,
            settings=settings,
            hooks=hooks,
            clock=clock,
            snapshots=snapshots,
        ),
        relay=Relay(store, clock=clock),
        models=models,
        toolbox=toolbox,
        workspace=settings.workspace_root or Path.cwd(),
        tickets=Tickets(clock),
        token=token,
        boundary=Boundary.of(port, allowed_hosts=settings.allowed_hosts, allowed_origins=settings.allowed_origins),
    )


def services(request: Request) -> Services:
    """The services of the application that this request came to."""
    return cast(Services, request.app.state.services)

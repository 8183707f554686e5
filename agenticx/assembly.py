"""Assembly of a hub from the settings and the parts of an application."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any, TypeVar

from agenticx.argument_types import check_path, check_type
from agenticx.call_errors import explain_calls
from agenticx.clocks import Clock, SystemClock
from agenticx.core.agent import Agent
from agenticx.core.agent_files import AgentFiles
from agenticx.core.session_agents import SessionAgents, checked_agents
from agenticx.core.session_memory import MEMORY_HOOK_PRIORITY, MemoryHook, memory_tools
from agenticx.core.session_notes import OPTIONAL_TOOLS, SessionNotes
from agenticx.core.variants import variant_tools
from agenticx.errors import SettingsError, ToolError
from agenticx.llms.base import ChatModel
from agenticx.llms.duck_typed.model import adapt
from agenticx.llms.images.base import ImageProvider
from agenticx.llms.images.configured import ConfiguredImages
from agenticx.llms.model_cache import ModelCache, NamedModels
from agenticx.llms.providers.resolve import find_model_facts
from agenticx.permissions.rule_stores import open_rules
from agenticx.permissions.trusted_files import open_trust
from agenticx.runtime import AgentHook, AsyncConfirmGate, HookRegistry
from agenticx.sessions.hub.hub import Hub, workspace_folder
from agenticx.sessions.log.session_record import SessionRecord
from agenticx.sessions.store.base import Store
from agenticx.sessions.store.factory import MEMORY_URL, absolute_url, open_shared_state, open_store
from agenticx.sessions.store.memory import MemoryStore
from agenticx.settings import Settings, load_settings
from agenticx.shared_state.state import SharedState
from agenticx.subagents.tools import session_tools
from agenticx.teams.configured.session_teams import SessionTeams
from agenticx.threads import run_in_thread
from agenticx.tools.base import Tool
from agenticx.tools.builtin import builtin_tools
from agenticx.tools.builtin.images import image_tools
from agenticx.tools.registry import Toolbox

__all__ = [
    "check_images",
    "close_images",
    "configured_images",
    "default_tools",
    "make_hub",
    "make_toolbox",
    "open_hub",
]

T = TypeVar("T")


@asynccontextmanager
@explain_calls
async def open_hub(
    url: str | None = None,
    *,
    model: str | ChatModel | Any = None,
    tools: Iterable[Tool | Callable[..., Any]] | None = None,
    hooks: HookRegistry | Sequence[AgentHook] = (),
    system_prompt: str | None = None,
    agents: Iterable[Agent[Any, Any]] = (),
    deps: Callable[[SessionRecord], Any] | None = None,
    images: ImageProvider | None = None,
    workspace: str | PathLike[str] | None = None,
    settings: Settings | None = None,
) -> AsyncGenerator[Hub]:
    """Open a hub: stored sessions, whose turns survive a restart, as in the studio.

        from agenticx import ConfirmAnswer, open_hub

        async with open_hub("sqlite:///chat.db", model="openai-chat:gpt-4.1-mini") as hub:
            session = await hub.create(name="Notes")
            async for event in hub.run_turn(session.id, "Write notes.txt"):
                if event.type == "confirm_required":
                    answer = ConfirmAnswer(approved=True)
                    await hub.answer(event.data["id"], answer, digest=event.data["digest"])

    `url` is `sqlite:///PATH` (`sqlite:////tmp/chat.db` for an absolute path), `memory://`, or None for that of the
    settings, by default in AGX_HOME. `model` is the default model: a name, a model, or an object of another library;
    one that is given is not closed here. `tools` replace the built-in ones, such as `ask_user`; those for sub-agents
    and for memory stay unless `settings.enabled_tools` leaves them out. `hooks` run in every turn. `system_prompt`
    replaces `config/prompts/system.md`, with the same placeholders. `agents` can answer besides the main agent: a tool
    that returns one hands over to it, and it answers the next messages of that session too, until another handoff or
    `hub.change(id, {"agent": NAME})` (None: the main agent). One that is not among them acts to the end of the turn;
    then the session goes back to its main agent (`session_changed`). `deps` returns the `ToolContext.deps` of a turn
    that is given none, for the record of its session: at the beginning of each turn, and when one goes on after a
    restart, since no store keeps deps. It must return at once. `images` makes images for the tools
    `generate_images` and `remove_background`, by default the model of AGX_IMAGE_MODEL; without either there are no such
    tools. `workspace` is that of sessions created without
    one. Without `settings` they are read from the environment and the user's file.

    Opening the hub ends the turns that a killed process left, and resumes those that wait for an answer. At the end,
    turns are stopped as by a shutdown of the studio; one that waits for an answer goes on when it is opened again.

    Raises `OwnedElsewhere`, with the `pid` of the process that owns the store; `SettingsError` for a URL, a model, a
    workspace or a setting that cannot be used; `StoreError`; `TypeError` or `ValueError` for arguments that are none.
    """
    _check_arguments(url, workspace, settings)
    registry, agents = HookRegistry.from_hooks(hooks), checked_agents(agents)
    own_model = None if model is None or isinstance(model, str) else adapt(model)
    toolbox = None if tools is None else Toolbox(tools)
    check_images(images)
    name = model if isinstance(model, str) else None
    async with AsyncExitStack() as stack:
        settings = await run_in_thread(
            _settings, settings, url, name, workspace, has_own=own_model is not None, name="agx settings"
        )
        shared = None if url == MEMORY_URL else await _open_shared_state(settings)
        if shared is not None:
            stack.callback(shared.close)
        models = await run_in_thread(_models, settings, own_model, name="agx models")
        stack.push_async_callback(models.aclose)
        images = images or configured_images(settings)
        stack.push_async_callback(close_images, images)
        toolbox = make_toolbox(toolbox, settings, images)
        store = MemoryStore() if url == MEMORY_URL else await _open_store(settings, shared)
        stack.push_async_callback(store.aclose)
        hub = make_hub(
            store,
            models=models,
            toolbox=toolbox,
            settings=settings,
            hooks=registry,
            system_prompt=system_prompt,
            agents=agents,
            deps=deps,
        )
        stack.push_async_callback(hub.close)
        await hub.recover()
        yield hub


def _check_arguments(url: object, workspace: object, settings: object) -> None:
    if url is not None:
        check_type("url", url, str, "a str such as 'sqlite:///chat.db'")
    if workspace is not None:
        check_path("workspace", workspace)
    if settings is not None:
        check_type("settings", settings, Settings, "Settings, as load_settings returns them")


def _settings(
    settings: Settings | None, url: str | None, name: str | None, workspace: str | PathLike[str] | None, has_own: bool
) -> Settings:
    """Return the settings of a hub; blocks."""
    given: dict[str, Any] = {} if workspace is None else {"workspace_root": _existing(workspace)}
    if url is not None and url != MEMORY_URL:
        given["store_url"] = absolute_url(url)
    if name is not None:
        find_model_facts(name)
    if name is not None or has_own:
        given["model"] = name
    return (settings or load_settings()).model_copy(update=given)


def _models(settings: Settings, own: ChatModel | None) -> NamedModels:
    """Return the models of a hub; blocks."""
    models = NamedModels(settings, own=None if own is None else {own.name: own})
    models.check_names(settings)
    return models


def _existing(workspace: str | PathLike[str]) -> Path:
    """Return the absolute path of a folder; raise `SettingsError` if it is none."""
    folder = Path(os.path.expanduser(workspace)).absolute()  # unlike Path.expanduser, leaves an unknown user's
    workspace_folder(folder)
    return folder


async def _open_shared_state(settings: Settings) -> SharedState | None:
    async def close(shared: SharedState | None) -> None:
        if shared is not None:
            shared.close()

    return await _open_in_thread(partial(open_shared_state, settings), close)


async def _open_store(settings: Settings, shared: SharedState | None) -> Store:
    return await _open_in_thread(partial(open_store, settings, shared=shared), lambda store: store.aclose())


async def _open_in_thread(function: Callable[[], T], close: Callable[[T], Awaitable[None]]) -> T:
    """Return the result of `function`, called in a thread; one that comes after the caller was cancelled is closed."""
    opening = asyncio.create_task(run_in_thread(function, name="agx opening"))
    try:
        return await asyncio.shield(opening)
    except asyncio.CancelledError:
        await asyncio.wait({opening})
        if not opening.cancelled() and opening.exception() is None:
            await close(opening.result())
        raise


def make_hub(
    store: Store,
    *,
    models: ModelCache,
    toolbox: Toolbox,
    settings: Settings,
    gate: AsyncConfirmGate | None = None,
    hooks: HookRegistry | Sequence[AgentHook] = (),
    system_prompt: str | None = None,
    agents: Iterable[Agent[Any, Any]] = (),
    deps: Callable[[SessionRecord], Any] | None = None,
    notes: SessionNotes | None = None,
    clock: Clock | None = None,
) -> Hub:
    """Return a hub over an open store; a session has all tools of `toolbox`, or those that its record names.

    The turns of sessions with a team run the configured one of that name, see `TeamFiles`.
    """
    registry, known, clock = HookRegistry.from_hooks(hooks), checked_agents(agents), clock or SystemClock()
    own_notes = SessionNotes(settings, clock, store) if notes is None else notes
    if not registry.has(MemoryHook):
        registry.register(MemoryHook(), MEMORY_HOOK_PRIORITY)

    def tools_of(record: SessionRecord) -> Sequence[Tool]:
        return own_notes.tools_of(record, toolbox)

    teams = SessionTeams(
        home=settings.home,
        log=store.log,
        models=models.get,
        tools=tools_of,
        hooks=registry,
        settings=settings,
        clock=clock,
    )
    return Hub(
        store,
        models=models.get,
        tools=tools_of,
        settings=settings,
        gate=gate,
        hooks=registry,
        system_prompt=system_prompt,
        teams=teams,
        agent_files=AgentFiles(settings.home),
        agents=SessionAgents(known, models=models.get, hooks=registry),
        notes=own_notes,
        deps=deps,
        rules=open_rules(settings.home, store.shared),
        trust=open_trust(settings.home, store.shared),
        clock=clock,
    )


def default_tools(images: ImageProvider | None = None) -> list[Tool]:
    """Return the tools of sessions to which an application gives none: built-in ones, for sub-agents and for memory.

    With `images` there are those that make images, too.
    """
    own = builtin_tools()
    return [*own, *_added_tools(own, images)]


def make_toolbox(
    tools: Iterable[Tool | Callable[..., Any]] | None, settings: Settings, images: ImageProvider | None = None
) -> Toolbox:
    """Return the tools of an application, by default the built-in ones, and those for sub-agents and for memory.

    With `images` there are those that make images, too. A tool of the application replaces one of these that has its
    name. Raises `SettingsError` when AGX_ENABLED_TOOLS has the name of an unknown tool.
    """
    own = Toolbox(builtin_tools() if tools is None else tools)
    toolbox = Toolbox([*own, *(tool for tool in _added_tools(own, images) if tool.schema.name not in own)])
    try:
        toolbox.only(name for name in settings.enabled_tools or () if name in toolbox or name not in OPTIONAL_TOOLS)
    except ToolError as exc:
        raise SettingsError(f"AGX_ENABLED_TOOLS: {exc}") from exc
    return toolbox


def _added_tools(own: Iterable[Tool], images: ImageProvider | None) -> list[Tool]:
    """Return the tools beside an application's own; several versions are made only where files of a session are."""
    makes_files = any(tool.schema.name == "create_file" for tool in own)
    added = [*session_tools(), *memory_tools(), *(variant_tools() if makes_files else ())]
    return [*added, *([] if images is None else image_tools(images))]


# --- images -----------------------------------------------------------------------------------------------------------


def check_images(images: object) -> None:
    """Raise `TypeError` for an image model that is none and not None."""
    if images is not None:
        check_type("images", images, ImageProvider, "an ImageProvider, with generate and remove_background")


def configured_images(settings: Settings) -> ImageProvider | None:
    """Return the image model of AGX_IMAGE_MODEL, None if it is not set; raise `SettingsError` for an unknown name."""
    try:
        return None if settings.image_model is None else ConfiguredImages(settings.image_model, settings)
    except SettingsError as exc:
        raise SettingsError(f"AGX_IMAGE_MODEL: {exc}") from exc


async def close_images(images: ImageProvider | None) -> None:
    """Close the connections of an image model, but not those of an application's own."""
    if isinstance(images, ConfiguredImages):
        await images.aclose()

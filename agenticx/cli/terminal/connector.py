"""The connection to the sessions: in this process, at a server or in another terminal."""

from __future__ import annotations

import asyncio
import os
from argparse import Namespace
from collections.abc import Mapping
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

from agenticx.cli.client.base import Client, SessionInfo, SessionOptions
from agenticx.cli.client.discovery import (
    fallback_store,
    is_studio_starting,
    open_store_or_find_server,
    remote_client,
    server_with_pid,
)
from agenticx.cli.client.http import ServerEndpoint, ServerUnresponsive
from agenticx.cli.client.local import LocalClient, PolicyGate
from agenticx.cli.client.remote import RemoteClient
from agenticx.cli.client.session_lookup import find_session
from agenticx.cli.client.sharing import SessionSharing
from agenticx.cli.options import reject_local_options, settings_for, workspace_of
from agenticx.cli.terminal.event_text import Note, Tone
from agenticx.cli.terminal.output import Output
from agenticx.errors import SettingsError, StoreError
from agenticx.llms.assembly import resolve_model
from agenticx.llms.model_cache import ModelCache
from agenticx.llms.providers.resolve import default_model_spec, is_offline
from agenticx.runtime import AsyncConfirmGate, ConfirmAnswer
from agenticx.sessions.hub.session_fields import WorkspaceGone, check_folder
from agenticx.sessions.store.base import Store
from agenticx.sessions.store.factory import open_store, probe_store_owner
from agenticx.sessions.store.owner import OwnedElsewhere
from agenticx.settings import Settings, given_provider_variables
from agenticx.threads import run_in_thread
from agenticx.tools.visible import visible_line

__all__ = ["SessionConnector", "requested_session"]

_HANDED_OVER_SECONDS = 5.0
"""The time for a server to take the sessions after a hand-over; then this process takes them back."""
_RESTART_SECONDS = 1.0
"""The same time after the end of a server."""
_TAKEOVER_SECONDS = 30.0
"""The time for a server that took the sessions to start."""
_ENDING_SECONDS = 10.0
"""The time for a server that owns the sessions to answer again, or to end."""
_POLL_SECONDS = 0.1


class SessionConnector:
    """The clients of one command of the terminal; a turn of a server that has ended waits `restart_seconds` for it.

    A process that owns the sessions serves them to other terminals, unless options of its own would apply to their
    turns (`is_movable` is false then). After the end of another terminal, `hosted_client` serves the
    sessions from this process; its own client uses them over the socket, as before.
    """

    def __init__(
        self,
        settings: Settings,
        arguments: Namespace,
        output: Output,
        *,
        automatic: ConfirmAnswer | None,
        restart_seconds: float,
    ) -> None:
        self.is_movable = arguments.max_tool_rounds is None
        self.hosted_client: LocalClient | None = None
        self._settings = settings
        self._arguments = arguments
        self._output = output
        self._automatic_answer = automatic
        self._restart_seconds = restart_seconds
        self._note_once = cache(self._note)

    @property
    def has_shared_store(self) -> bool:
        """True if sessions are stored in a database that several workers share."""
        return bool(self._settings.postgres_urls)

    async def open(self) -> tuple[Client, SessionInfo | None]:
        """Return the client, and the session to continue, None for a new one; raises as `find_session` does.

        Where the store cannot be used, sessions are in memory only, unless one is to be continued.
        """
        sharing = self._new_sharing()
        try:
            owner = await self._open_store()
        except BaseException:
            await _discard(sharing)
            raise
        if isinstance(owner, ServerEndpoint):
            await _discard(sharing)
            reject_local_options(self._arguments, f"{owner.name} (process {owner.pid})")
            remote = self._remote_client(owner)
            return remote, await requested_session(remote, self._arguments, self._settings)
        try:
            client, session = await self._open_local_client(owner)
        except BaseException as exc:
            await _discard(sharing)
            if not isinstance(exc, StoreError):
                raise
            await owner.aclose()
            if self._arguments.session is not None:
                raise
            return self.memory_client(exc), None
        if sharing is not None and client.persistent:
            client.share(sharing)
        return client, session

    async def options_for(self, client: Client, options: SessionOptions, *, is_next: bool = True) -> SessionOptions:
        """Return the options of a new session with the default model of this terminal, as a server may have another.

        A note names it, or the server's if that is used and is another, but not AGX_MODEL. Unless the new session
        `is_next`, the default model is left to the server.
        """
        if not isinstance(client, RemoteClient) or options.agent is not None:  # an agent has a model of its own
            return options
        model = options.model or self._settings.model
        if model is None and is_next:
            model = await self._default_model(client)
        return replace(options, model=model)

    async def _default_model(self, client: RemoteClient) -> str | None:
        """Return the model that this terminal would use by itself if the server can use it, else None."""
        model, reason = await run_in_thread(default_model_spec, self._settings, name="agx models")
        server = client.server
        if server.is_terminal and not is_offline(model):  # it gets the keys of this terminal
            self._note_once(f"model: {model}, because {reason}", "quiet")
            return model
        served = (await client.resolve_model(None)).name
        if served != model:
            why = "" if is_offline(model) else f"; here it would be {model}, because {reason}"
            self._note_once(f"model: {served}, the default of {server.name} (process {server.pid}){why}", "quiet")
        return None

    def memory_client(self, error: Exception) -> Client:
        """Return a client that keeps sessions in memory, and show why."""
        return self._local_client(fallback_store(error, self._note_once), self._settings)

    async def find_server(self) -> Client | None:
        """Return the client of the server or terminal that has taken the sessions over, None if none has."""
        pid = probe_store_owner(self._settings)
        server = await server_with_pid(self._settings, pid) if pid else None
        if server is None:
            return None
        if not server.is_terminal:
            self._note(f"agx serve (process {pid}) has taken the sessions over; this chat goes on through it")
        return self._remote_client(server)

    async def reconnect(self, session: SessionInfo | None, *, after_handover: bool) -> Client:
        """Return the client of the server or terminal that has taken the sessions over, or of the store if none has.

        Raise `StoreError` if another program has taken them or the store cannot be used.
        """
        loop = asyncio.get_running_loop()
        began = unowned_since = loop.time()
        unowned_limit, limit = _RESTART_SECONDS, _ENDING_SECONDS
        if after_handover:
            unowned_limit, limit = _HANDED_OVER_SECONDS, _TAKEOVER_SECONDS
        while loop.time() < min(unowned_since + unowned_limit, began + limit):
            if (client := await self.find_server()) is not None:
                return client
            if probe_store_owner(self._settings) is not None:  # it is starting or ending
                unowned_since = loop.time()
            await asyncio.sleep(_POLL_SECONDS)
        own = self._settings if session is None else self._settings.in_workspace(Path(session.record.workspace))
        sharing = self._new_sharing()
        try:
            client = self._local_client(open_store(self._settings), own)
        except (StoreError, OSError) as exc:
            await _discard(sharing)
            raise StoreError(f"no server has the sessions: {exc}; quit; `agx chat -c` continues") from exc
        await client.recover()
        if sharing is not None:
            client.share(sharing)
        self._note("no server has the sessions; this chat stores them and runs the turns itself")
        return client

    def settings_of_workspace(self, workspace: Path) -> Mapping[str, Any]:
        """Return the settings that the file of a workspace sets, with their values; empty if it cannot be used."""
        try:
            return self._settings.in_workspace(workspace).from_workspace
        except SettingsError:  # the turn reports it
            return {}

    async def take_over(self) -> ServerEndpoint | None:
        """Serve the sessions after the end of the terminal that did, and return the endpoint of this process.

        Return None if another process is about to own them.
        """
        if is_studio_starting(self._settings):
            return None
        sharing = self._new_sharing()
        if sharing is None or not sharing.is_possible:
            return None
        try:
            store = open_store(self._settings)
        except OwnedElsewhere:
            await _discard(sharing)
            return None
        self.hosted_client = self._local_client(store, self._settings, names_default=False)
        self.hosted_client.share(sharing)
        return ServerEndpoint.of_terminal(sharing.path, os.getpid())

    async def aclose(self) -> None:
        """Close the sessions that this process serves since another terminal has ended."""
        if self.hosted_client is not None:
            await self.hosted_client.aclose()
            self.hosted_client = None

    # --- clients ------------------------------------------------------------------------------------------------------

    async def _open_store(self) -> Store | ServerEndpoint:
        try:
            try:
                return await open_store_or_find_server(self._settings)
            except ServerUnresponsive as exc:
                self._note_once(f"{exc}; waiting for it …")
                return await open_store_or_find_server(self._settings, response_timeout=_ENDING_SECONDS)
        except (StoreError, OSError) as exc:  # another owner, a later release's format, damage, a full disk
            if self._arguments.session is not None:
                raise
            return fallback_store(exc, self._note_once)

    async def _open_local_client(self, store: Store) -> tuple[LocalClient, SessionInfo | None]:
        """Return the client and the session to continue, to whose turns the settings of its own folder apply."""
        client = self._local_client(store, self._settings)
        await client.recover()
        session = await requested_session(client, self._arguments, self._settings)
        if session is not None:
            client = self._local_client(store, settings_for(self._arguments, Path(session.record.workspace)))
            await client.recover()  # or it would resume the session's turn at its first call
        return client, session

    def _local_client(self, store: Store, settings: Settings, *, names_default: bool = True) -> LocalClient:
        """Return a client that shows the default model, and the reason for it, unless a setting names the model."""

        def default() -> str:
            spec, reason = default_model_spec(settings)
            if names_default and not settings.model and not given_provider_variables():
                self._note_once(f"model: {spec}, because {reason}", "quiet")
            return spec

        gate = AsyncConfirmGate() if self._automatic_answer is None else PolicyGate(self._automatic_answer)
        return LocalClient(store, settings, ModelCache(partial(resolve_model, settings=settings), default), gate)

    def _remote_client(self, server: ServerEndpoint) -> RemoteClient:
        return remote_client(
            self._settings,
            server,
            self._note,
            restart_seconds=self._restart_seconds,
            take_over=self.take_over if self.is_movable else None,
        )

    def _new_sharing(self) -> SessionSharing | None:
        """Return the socket for other terminals, None if they cannot use the sessions of this process."""
        return SessionSharing(self._settings.home) if self.is_movable and not self._settings.postgres_urls else None

    def _note(self, text: str, tone: Tone = "warning") -> None:
        self._output.show_note(Note(visible_line(text, 2_000), tone))


async def _discard(sharing: SessionSharing | None) -> None:
    if sharing is not None:
        await sharing.aclose()
        sharing.remove()


async def requested_session(client: Client, arguments: Namespace, settings: Settings) -> SessionInfo | None:
    """Return the session to continue, moved to --cwd if its own folder is gone; None for a new one."""
    if arguments.session is None:
        return None
    session = await find_session(client, arguments.session, settings.home)
    try:
        check_folder(session.record)
    except WorkspaceGone:
        if arguments.cwd is None:
            raise
        session = await client.change(session.id, {"workspace": str(workspace_of(arguments))})
    return session

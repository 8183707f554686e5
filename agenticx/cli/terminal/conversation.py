"""A conversation at a terminal: its session, current or still to be created, and the client it uses."""

from __future__ import annotations

import asyncio
from argparse import Namespace
from collections.abc import Callable, Coroutine, Generator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any, TypeVar

from agenticx.cli.client.base import Client, SessionInfo, SessionOptions, TurnPosition
from agenticx.cli.client.discovery import fallback_store, open_store_or_find_server, remote_client
from agenticx.cli.client.http import ServerEndpoint
from agenticx.cli.client.local import LocalClient, PolicyGate
from agenticx.cli.client.session_lookup import find_session, remember_last_session
from agenticx.cli.options import (
    configure_terminal_logging,
    enabled_tools,
    reject_local_options,
    settings_for,
    workspace_of,
)
from agenticx.cli.terminal.confirm_ui import (
    AutomaticConfirmResponder,
    ConfirmResponder,
    NullConfirmResponder,
    TerminalConfirmResponder,
    automatic_answer,
)
from agenticx.cli.terminal.event_text import Note, Tone
from agenticx.cli.terminal.output import Output
from agenticx.cli.terminal.turns import show_turn
from agenticx.errors import SettingsError, StoreError
from agenticx.llms.assembly import assemble_model
from agenticx.llms.catalog.resolve import default_model_spec
from agenticx.llms.model_cache import ModelCache
from agenticx.messages import UserMessage
from agenticx.resource_exhaustion import exit_on_memory_error, limit_malloc_arenas
from agenticx.runtime import AsyncConfirmGate, ConfirmAnswer
from agenticx.sessions.store.base import Store
from agenticx.settings import Settings
from agenticx.tools.permissions import PermissionMode
from agenticx.tools.visible import visible_line

__all__ = ["TerminalConversation", "open_conversation"]

T = TypeVar("T")


@dataclass(slots=True)
class TerminalConversation:
    """The session of `agx run` or `agx chat` and the client that runs its turns.

    `session` is None until the first message, which creates it with `new_session_options`. `model` is sent with each
    turn and overrides the session's own.
    """

    runner: asyncio.Runner
    client: Client
    output: Output
    home: Path
    new_session_options: SessionOptions
    session: SessionInfo | None = None
    model: str | None = None
    automatic_answer: ConfirmAnswer | None = None
    make_fallback_client: Callable[[Exception], Client] | None = None
    """Makes a client that stores sessions in memory only, used if the store fails before the first turn starts."""

    def run_turn(self, message: UserMessage) -> int:
        """Run one turn and return its exit code; raise KeyboardInterrupt on a second termination signal."""
        return self.run(self._run_turn(message))

    def follow_turn(self, position: TurnPosition) -> int:
        """Show a turn that already runs until it ends, as `run_turn` does."""
        return self.run(self._follow_turn(position))

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine and return its result; raise KeyboardInterrupt if it was cancelled."""
        try:
            return self.runner.run(coroutine)
        except asyncio.CancelledError:
            raise KeyboardInterrupt from None

    @property
    def permission_mode(self) -> PermissionMode:
        return self.new_session_options.permission_mode if self.session is None else self.session.record.permission_mode

    @property
    def model_name(self) -> str | None:
        """The model of the next turn; None for the default."""
        return self.model or (self.new_session_options.model if self.session is None else self.session.record.model)

    @property
    def tools(self) -> tuple[str, ...] | None:
        """The names of the agent's tools; None for all."""
        return self.new_session_options.tools if self.session is None else self.session.record.tools

    def resume(self, session: SessionInfo) -> None:
        """Continue `session` with the next message; raise SettingsError if its folder no longer exists."""
        if not Path(session.record.workspace).is_dir():
            raise SettingsError(f"session {session.id} works in {session.record.workspace!r}, which is not a folder")
        self.session = session
        if self.client.persistent:
            remember_last_session(self.home, session.id)

    async def change(self, **changes: Any) -> None:
        """Change fields of the session, or of the options of the session still to be created."""
        if self.session is None:
            self.new_session_options = replace(self.new_session_options, **changes)
        else:
            self.session = await self.client.change(self.session.id, changes)

    async def _run_turn(self, message: UserMessage) -> int:
        is_new, started = self.session is None, list[TurnPosition]()
        try:
            return await self._start_and_show_turn(message, started)
        except StoreError as exc:
            if not is_new or started or self.make_fallback_client is None:
                raise
            await self.client.aclose()
            self.client, self.session, self.make_fallback_client = self.make_fallback_client(exc), None, None
            return await self._start_and_show_turn(message, started)

    async def _start_and_show_turn(self, message: UserMessage, started: list[TurnPosition]) -> int:
        """Start a turn, in a new session if there is none, and show it; `started` receives its position."""
        session = self.session = self.session or await self.client.create(self.new_session_options)
        if self.client.persistent:
            remember_last_session(self.home, session.id)

        async def start() -> TurnPosition:
            started.append(await self.client.start(session.id, message, self.model))
            return started[0]

        return await show_turn(self.client, session.id, start, self.output, self._confirm_responder())

    async def _follow_turn(self, position: TurnPosition) -> int:
        async def running() -> TurnPosition:
            return position

        assert self.session is not None
        return await show_turn(self.client, self.session.id, running, self.output, self._confirm_responder())

    def _confirm_responder(self) -> ConfirmResponder:
        if self.client.confirms_by_policy:
            return NullConfirmResponder()
        if self.automatic_answer is not None:
            return AutomaticConfirmResponder(self.client.answer, self.automatic_answer)
        return TerminalConfirmResponder(self.client.answer, self.output)


@contextmanager
def open_conversation(arguments: Namespace, output: Output) -> Generator[TerminalConversation]:
    """Yield the conversation that the options select, and close its client afterwards.

    On a KeyboardInterrupt, a second termination signal, the client is not closed, so that the process exits at once.
    """
    limit_malloc_arenas()
    with asyncio.Runner() as runner, exit_on_memory_error(runner.get_loop()):
        conversation = runner.run(_open(arguments, output, runner))
        try:
            yield conversation
        except KeyboardInterrupt:
            raise
        except BaseException:
            runner.run(conversation.client.aclose())
            raise
        else:
            runner.run(conversation.client.aclose())


async def _open(arguments: Namespace, output: Output, runner: asyncio.Runner) -> TerminalConversation:
    workspace = workspace_of(arguments)
    settings = settings_for(arguments, workspace)
    configure_terminal_logging(settings)
    enabled_tools(settings)  # raises for a name that no tool has
    answer = automatic_answer(yes=arguments.yes)
    options = SessionOptions(
        workspace=str(workspace),
        permission_mode=settings.permission_mode,
        model=arguments.model,
        tools=settings.enabled_tools,
    )

    @cache
    def notify(text: str, tone: Tone = "warning") -> None:
        output.show_note(Note(visible_line(text, 2_000), tone))

    make_fallback_client: Callable[[Exception], Client] | None = None
    owner = _find_store(settings, arguments, notify)
    if isinstance(owner, ServerEndpoint):
        reject_local_options(arguments, owner.url)
        client: Client = remote_client(settings, owner, lambda text: output.show_note(Note(text, "warning")))
        options = replace(options, model=options.model or settings.model)  # the server may have another AGX_MODEL
        session = await _requested_session(client, arguments, settings)
    else:
        make_client = partial(_make_local_client, arguments=arguments, automatic=answer, notify=notify)

        def make_memory_client(error: Exception) -> Client:
            return make_client(fallback_store(error, notify), settings)

        make_fallback_client = make_memory_client
        try:
            client, session = await _open_local_client(partial(make_client, owner), arguments, settings)
        except StoreError as exc:
            await owner.aclose()
            if arguments.session is not None:
                raise
            client, session = make_memory_client(exc), None
    conversation = TerminalConversation(
        runner,
        client,
        output,
        settings.home,
        options,
        automatic_answer=answer,
        make_fallback_client=make_fallback_client,
    )
    if session is not None:
        await _resume(conversation, session, arguments)
    return conversation


def _find_store(settings: Settings, arguments: Namespace, notify: Callable[[str], None]) -> Store | ServerEndpoint:
    try:
        return open_store_or_find_server(settings)
    except (StoreError, OSError) as exc:  # another owner, a later release's format, damage, a full or read-only disk
        if arguments.session is not None:
            raise
        return fallback_store(exc, notify)


async def _open_local_client(
    make_client: Callable[[Settings], LocalClient], arguments: Namespace, settings: Settings
) -> tuple[LocalClient, SessionInfo | None]:
    """Return the client and the session to continue; the settings of the session's own folder apply to its turns."""
    client = make_client(settings)
    await client.recover()
    session = await _requested_session(client, arguments, settings)
    if session is not None:
        client = make_client(settings_for(arguments, Path(session.record.workspace)))
        await client.recover()  # or it would resume the session's turn at its first call
    return client, session


async def _requested_session(client: Client, arguments: Namespace, settings: Settings) -> SessionInfo | None:
    return None if arguments.session is None else await find_session(client, arguments.session, settings.home)


def _make_local_client(
    store: Store,
    settings: Settings,
    *,
    arguments: Namespace,
    automatic: ConfirmAnswer | None,
    notify: Callable[[str, Tone], None],
) -> LocalClient:
    def default() -> str:
        spec, reason = default_model_spec(settings)
        if not settings.model:
            notify(f"model: {spec}, because {reason}", "quiet")
        return spec

    models = ModelCache(partial(assemble_model, settings=settings, base_url=arguments.base_url), default)
    return LocalClient(store, settings, models, AsyncConfirmGate() if automatic is None else PolicyGate(automatic))


async def _resume(conversation: TerminalConversation, session: SessionInfo, arguments: Namespace) -> None:
    """Continue an existing session with the given options; raise SettingsError if --cwd names another folder."""
    folder, mode = Path(session.record.workspace), arguments.permission_mode
    if arguments.cwd is not None and arguments.cwd.resolve() != folder:
        raise SettingsError(
            f"--cwd {str(arguments.cwd)!r}: session {session.id} works in {str(folder)!r}, which cannot be changed"
        )
    conversation.resume(session)
    conversation.model = arguments.model
    if Path.cwd() != folder and arguments.cwd is None:
        conversation.output.show_note(Note(visible_line(f"this session works in {folder}", 2_000)))
    if mode is not None and mode != session.record.permission_mode:
        await conversation.change(permission_mode=mode)

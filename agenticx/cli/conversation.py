"""A conversation at a terminal: the session that it has or will have, and the desk at which its turns run."""

from __future__ import annotations

import asyncio
from argparse import Namespace
from collections.abc import Callable, Coroutine, Generator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any, TypeVar

from agenticx.cli.asking import (
    AutomaticConfirmHandler,
    ConfirmHandler,
    NullConfirmHandler,
    TerminalConfirmHandler,
    automatic_answer,
)
from agenticx.cli.choosing import find_session, remember_last_session
from agenticx.cli.desk import Client, SessionInfo, SessionOptions, TurnPosition
from agenticx.cli.finding import fallback_store, open_store_or_find_server, remote_client
from agenticx.cli.loopback import ServerEndpoint
from agenticx.cli.narrate import Note, Tone
from agenticx.cli.options import (
    configure_terminal_logging,
    enabled_tools,
    reject_local_options,
    settings_for,
    workspace_of,
)
from agenticx.cli.own_desk import LocalClient, PolicyGate
from agenticx.cli.render import Output
from agenticx.cli.turns import show_turn
from agenticx.errors import SettingsError, StoreError
from agenticx.exhaustion import end_process_without_memory, keep_memory_together
from agenticx.llms.assembly import assemble_model
from agenticx.llms.catalog import default_model_spec
from agenticx.llms.named import NamedModels
from agenticx.messages import UserMessage
from agenticx.runtime import AsyncConfirmGate, ConfirmAnswer
from agenticx.sessions.base import Store
from agenticx.settings import Settings
from agenticx.tools.permissions import PermissionMode
from agenticx.tools.visible import visible_line

__all__ = ["TerminalConversation", "open_conversation"]

T = TypeVar("T")


@dataclass(slots=True)
class TerminalConversation:
    """`session` is None until something is said; `wanted` is what it will be made of. `model` is for each turn."""

    runner: asyncio.Runner
    client: Client
    output: Output
    home: Path
    new_session_options: SessionOptions
    session: SessionInfo | None = None
    model: str | None = None
    automatic_answer: ConfirmAnswer | None = None
    make_fallback_client: Callable[[Exception], Client] | None = None
    """A desk that keeps nothing, for a session in which nothing was said yet."""

    def run_turn(self, message: UserMessage) -> int:
        """Play one turn; returns its exit code. Raises KeyboardInterrupt when the person wants to leave at once."""
        return self.run(self._run_turn(message))

    def follow_turn(self, position: TurnPosition) -> int:
        """Play a turn that runs already to its end, as `turn` does."""
        return self.run(self._follow_turn(position))

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """What `work` returns; raises KeyboardInterrupt when it was cancelled."""
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
        """The tools that the agent has, by name; None for all."""
        return self.new_session_options.tools if self.session is None else self.session.record.tools

    def resume(self, session: SessionInfo) -> None:
        """Make it the session of the next message; raises SettingsError if its folder is gone."""
        if not Path(session.record.workspace).is_dir():
            raise SettingsError(f"session {session.id} works in {session.record.workspace!r}, which is no folder now")
        self.session = session
        if self.client.persistent:
            remember_last_session(self.home, session.id)

    async def change(self, **changes: Any) -> None:
        """Change the session, or what it will be made of."""
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
        """A turn of the session, a new one if there is none; `begun` gets its place once it runs."""
        session = self.session = self.session or await self.client.create(self.new_session_options)
        if self.client.persistent:
            remember_last_session(self.home, session.id)

        async def begin() -> TurnPosition:
            started.append(await self.client.start(session.id, message, self.model))
            return started[0]

        return await show_turn(self.client, session.id, begin, self.output, self._confirm_handler())

    async def _follow_turn(self, position: TurnPosition) -> int:
        async def found() -> TurnPosition:
            return position

        assert self.session is not None
        return await show_turn(self.client, self.session.id, found, self.output, self._confirm_handler())

    def _confirm_handler(self) -> ConfirmHandler:
        if self.client.confirms_by_policy:
            return NullConfirmHandler()
        if self.automatic_answer is not None:
            return AutomaticConfirmHandler(self.client.answer, self.automatic_answer)
        return TerminalConfirmHandler(self.client.answer, self.output)


@contextmanager
def open_conversation(arguments: Namespace, output: Output) -> Generator[TerminalConversation]:
    """The conversation that the options ask for; at its end what it holds is given back, unless that comes at once."""
    keep_memory_together()
    with asyncio.Runner() as runner, end_process_without_memory(runner.get_loop()):
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
    unasked = automatic_answer(yes=arguments.yes)
    wanted = SessionOptions(
        workspace=str(workspace),
        permission_mode=settings.permission_mode,
        model=arguments.model,
        tools=settings.enabled_tools,
    )

    @cache
    def tell(text: str, tone: Tone = "warning") -> None:
        output.show_note(Note(visible_line(text, 2_000), tone))

    without_disk: Callable[[Exception], Client] | None = None
    where = _find_store(settings, arguments, tell)
    if isinstance(where, ServerEndpoint):
        reject_local_options(arguments, where.url)
        desk: Client = remote_client(settings, where, lambda text: output.show_note(Note(text, "warning")))
        wanted = replace(wanted, model=wanted.model or settings.model)  # its own AGX_MODEL may be another
        known = await _requested_session(desk, arguments, settings)
    else:
        make = partial(_make_local_client, arguments=arguments, automatic=unasked, notify=tell)

        def in_memory(why: Exception) -> Client:
            return make(fallback_store(why, tell), settings)

        without_disk = in_memory
        try:
            desk, known = await _open_local_client(partial(make, where), arguments, settings)
        except StoreError as exc:
            await where.aclose()
            if arguments.session is not None:
                raise
            desk, known = in_memory(exc), None
    conversation = TerminalConversation(
        runner, desk, output, settings.home, wanted, automatic_answer=unasked, make_fallback_client=without_disk
    )
    if known is not None:
        await _resume(conversation, known, arguments)
    return conversation


def _find_store(settings: Settings, arguments: Namespace, notify: Callable[[str], None]) -> Store | ServerEndpoint:
    try:
        return open_store_or_find_server(settings)
    except (StoreError, OSError) as exc:  # another owner, a later release's, damaged; a full or read-only disk
        if arguments.session is not None:
            raise
        return fallback_store(exc, notify)


async def _open_local_client(
    make_client: Callable[[Settings], LocalClient], arguments: Namespace, settings: Settings
) -> tuple[LocalClient, SessionInfo | None]:
    """The desk, and the session to go on with: what its own folder says about settings counts in its turns."""
    desk = make_client(settings)
    await desk.recover()
    known = await _requested_session(desk, arguments, settings)
    if known is not None:
        desk = make_client(settings_for(arguments, Path(known.record.workspace)))
    return desk, known


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

    models = NamedModels(partial(assemble_model, settings=settings, base_url=arguments.base_url), default)
    return LocalClient(store, settings, models, AsyncConfirmGate() if automatic is None else PolicyGate(automatic))


async def _resume(conversation: TerminalConversation, known: SessionInfo, arguments: Namespace) -> None:
    """With a session that is there, as far as the options allow; raises SettingsError where they do not."""
    folder, mode = Path(known.record.workspace), arguments.permission_mode
    if arguments.cwd is not None and arguments.cwd.resolve() != folder:
        raise SettingsError(f"--cwd {str(arguments.cwd)!r}: session {known.id} works in {str(folder)!r}, and keeps it")
    conversation.resume(known)
    conversation.model = arguments.model
    if Path.cwd() != folder and arguments.cwd is None:
        conversation.output.show_note(Note(visible_line(f"this session works in {folder}", 2_000)))
    if mode is not None and mode != known.record.permission_mode:
        await conversation.change(permission_mode=mode)

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

from agenticx.cli.asking import AtTheTerminal, Audience, Silent, Unasked, answer_unasked
from agenticx.cli.choosing import note_last, session_named
from agenticx.cli.desk import Desk, Known, NewSession, Place
from agenticx.cli.finding import own_store, server_desk, store_in_memory
from agenticx.cli.loopback import Loopback
from agenticx.cli.narrate import Note, Tone
from agenticx.cli.options import (
    configure_terminal_logging,
    enabled_tools,
    refuse_for_server,
    settings_for,
    workspace_of,
)
from agenticx.cli.own_desk import OwnDesk, PolicyGate
from agenticx.cli.render import Output
from agenticx.cli.turns import play
from agenticx.errors import SettingsError, StoreError
from agenticx.exhaustion import end_process_without_memory, keep_memory_together
from agenticx.llms.assembly import assemble_model
from agenticx.llms.catalog import default_model_spec
from agenticx.llms.named import ModelCache
from agenticx.messages import UserMessage
from agenticx.runtime import AsyncConfirmGate, ConfirmAnswer
from agenticx.sessions.base import Store
from agenticx.settings import Settings
from agenticx.tools.permissions import PermissionMode
from agenticx.tools.visible import visible_line

__all__ = ["Conversation", "conversing"]

T = TypeVar("T")


@dataclass(slots=True)
class Conversation:
    """`session` is None until something is said; `wanted` is what it will be made of. `model` is for each turn."""

    runner: asyncio.Runner
    desk: Desk
    output: Output
    home: Path
    wanted: NewSession
    session: Known | None = None
    model: str | None = None
    unasked: ConfirmAnswer | None = None
    without_disk: Callable[[Exception], Desk] | None = None
    """A desk that keeps nothing, for a session in which nothing was said yet."""

    def turn(self, said: UserMessage) -> int:
        """Play one turn; returns its exit code. Raises KeyboardInterrupt when the person wants to leave at once."""
        return self.wait(self._turn(said))

    def watch(self, place: Place) -> int:
        """Play a turn that runs already to its end, as `turn` does."""
        return self.wait(self._watch(place))

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        """What `work` returns; raises KeyboardInterrupt when it was cancelled."""
        try:
            return self.runner.run(work)
        except asyncio.CancelledError:
            raise KeyboardInterrupt from None

    @property
    def permission_mode(self) -> PermissionMode:
        return self.wanted.permission_mode if self.session is None else self.session.record.permission_mode

    @property
    def model_name(self) -> str | None:
        """The model of the next turn; None for the default."""
        return self.model or (self.wanted.model if self.session is None else self.session.record.model)

    @property
    def tools(self) -> tuple[str, ...] | None:
        """The tools that the agent has, by name; None for all."""
        return self.wanted.tools if self.session is None else self.session.record.tools

    def go_on_with(self, session: Known) -> None:
        """Make it the session of the next message; raises SettingsError if its folder is gone."""
        if not Path(session.record.workspace).is_dir():
            raise SettingsError(f"session {session.id} works in {session.record.workspace!r}, which is no folder now")
        self.session = session
        if self.desk.kept:
            note_last(self.home, session.id)

    async def change(self, **changes: Any) -> None:
        """Change the session, or what it will be made of."""
        if self.session is None:
            self.wanted = replace(self.wanted, **changes)
        else:
            self.session = await self.desk.change(self.session.id, changes)

    async def _turn(self, said: UserMessage) -> int:
        fresh, begun = self.session is None, list[Place]()
        try:
            return await self._said(said, begun)
        except StoreError as exc:
            if not fresh or begun or self.without_disk is None:
                raise
            await self.desk.aclose()
            self.desk, self.session, self.without_disk = self.without_disk(exc), None, None
            return await self._said(said, begun)

    async def _said(self, said: UserMessage, begun: list[Place]) -> int:
        """A turn of the session, a new one if there is none; `begun` gets its place once it runs."""
        session = self.session = self.session or await self.desk.create(self.wanted)
        if self.desk.kept:
            note_last(self.home, session.id)

        async def begin() -> Place:
            begun.append(await self.desk.start(session.id, said, self.model))
            return begun[0]

        return await play(self.desk, session.id, begin, self.output, self._audience())

    async def _watch(self, place: Place) -> int:
        async def found() -> Place:
            return place

        assert self.session is not None
        return await play(self.desk, self.session.id, found, self.output, self._audience())

    def _audience(self) -> Audience:
        if self.desk.by_policy:
            return Silent()
        if self.unasked is not None:
            return Unasked(self.desk.answer, self.unasked)
        return AtTheTerminal(self.desk.answer, self.output)


@contextmanager
def conversing(arguments: Namespace, output: Output) -> Generator[Conversation]:
    """The conversation that the options ask for; at its end what it holds is given back, unless that comes at once."""
    keep_memory_together()
    with asyncio.Runner() as runner, end_process_without_memory(runner.get_loop()):
        conversation = runner.run(_opened(arguments, output, runner))
        try:
            yield conversation
        except KeyboardInterrupt:
            raise
        except BaseException:
            runner.run(conversation.desk.aclose())
            raise
        else:
            runner.run(conversation.desk.aclose())


async def _opened(arguments: Namespace, output: Output, runner: asyncio.Runner) -> Conversation:
    workspace = workspace_of(arguments)
    settings = settings_for(arguments, workspace)
    configure_terminal_logging(settings)
    enabled_tools(settings)  # raises for a name that no tool has
    unasked = answer_unasked(yes=arguments.yes)
    wanted = NewSession(
        workspace=str(workspace),
        permission_mode=settings.permission_mode,
        model=arguments.model,
        tools=settings.enabled_tools,
    )

    @cache
    def tell(text: str, tone: Tone = "warning") -> None:
        output.note(Note(visible_line(text, 2_000), tone))

    without_disk: Callable[[Exception], Desk] | None = None
    where = _where(settings, arguments, tell)
    if isinstance(where, Loopback):
        refuse_for_server(arguments, where.url)
        desk: Desk = server_desk(settings, where, lambda text: output.note(Note(text, "warning")))
        wanted = replace(wanted, model=wanted.model or settings.model)  # its own AGX_MODEL may be another
        known = await _known(desk, arguments, settings)
    else:
        make = partial(_own_desk, arguments=arguments, unasked=unasked, tell=tell)

        def in_memory(why: Exception) -> Desk:
            return make(store_in_memory(why, tell), settings)

        without_disk = in_memory
        try:
            desk, known = await _own(partial(make, where), arguments, settings)
        except StoreError as exc:
            await where.aclose()
            if arguments.session is not None:
                raise
            desk, known = in_memory(exc), None
    conversation = Conversation(runner, desk, output, settings.home, wanted, unasked=unasked, without_disk=without_disk)
    if known is not None:
        await _go_on(conversation, known, arguments)
    return conversation


def _where(settings: Settings, arguments: Namespace, tell: Callable[[str], None]) -> Store | Loopback:
    try:
        return own_store(settings)
    except (StoreError, OSError) as exc:  # another owner, a later release's, damaged; a full or read-only disk
        if arguments.session is not None:
            raise
        return store_in_memory(exc, tell)


async def _own(
    make: Callable[[Settings], OwnDesk], arguments: Namespace, settings: Settings
) -> tuple[OwnDesk, Known | None]:
    """The desk, and the session to go on with: what its own folder says about settings counts in its turns."""
    desk = make(settings)
    await desk.recover()
    known = await _known(desk, arguments, settings)
    if known is not None:
        desk = make(settings_for(arguments, Path(known.record.workspace)))
    return desk, known


async def _known(desk: Desk, arguments: Namespace, settings: Settings) -> Known | None:
    return None if arguments.session is None else await session_named(desk, arguments.session, settings.home)


def _own_desk(
    store: Store,
    settings: Settings,
    *,
    arguments: Namespace,
    unasked: ConfirmAnswer | None,
    tell: Callable[[str, Tone], None],
) -> OwnDesk:
    def default() -> str:
        spec, reason = default_model_spec(settings)
        if not settings.model:
            tell(f"model: {spec}, because {reason}", "quiet")
        return spec

    models = ModelCache(partial(assemble_model, settings=settings, base_url=arguments.base_url), default)
    return OwnDesk(store, settings, models, AsyncConfirmGate() if unasked is None else PolicyGate(unasked))


async def _go_on(conversation: Conversation, known: Known, arguments: Namespace) -> None:
    """With a session that is there, as far as the options allow; raises SettingsError where they do not."""
    folder, mode = Path(known.record.workspace), arguments.permission_mode
    if arguments.cwd is not None and arguments.cwd.resolve() != folder:
        raise SettingsError(f"--cwd {str(arguments.cwd)!r}: session {known.id} works in {str(folder)!r}, and keeps it")
    conversation.go_on_with(known)
    conversation.model = arguments.model
    if Path.cwd() != folder and arguments.cwd is None:
        conversation.output.note(Note(visible_line(f"this session works in {folder}", 2_000)))
    if mode is not None and mode != known.record.permission_mode:
        await conversation.change(permission_mode=mode)

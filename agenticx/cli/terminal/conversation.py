"""A conversation at a terminal: its session, current or still to be created, and the client it uses."""

from __future__ import annotations

import asyncio
from argparse import Namespace
from collections.abc import Awaitable, Callable, Coroutine, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

from agenticx.cli.client.base import Client, SessionInfo, SessionOptions, TurnPosition
from agenticx.cli.client.discovery import fallback_store, open_store_or_find_server, remote_client, server_with_pid
from agenticx.cli.client.handover import HandoverRefused, is_chat
from agenticx.cli.client.http import ServerEndpoint, ServerUnreachable, ServerUnresponsive
from agenticx.cli.client.local import LocalClient, PolicyGate
from agenticx.cli.client.remote import RETRY_LIMIT_SECONDS, RemoteClient
from agenticx.cli.client.session_lookup import find_session, remember_last_session
from agenticx.cli.options import (
    configure_terminal_logging,
    enabled_tools,
    model_of,
    reject_local_options,
    settings_for,
    workspace_of,
)
from agenticx.cli.terminal.argument_editor import EditText
from agenticx.cli.terminal.confirm_ui import (
    AutomaticConfirmResponder,
    ConfirmResponder,
    Kind,
    NullConfirmResponder,
    TerminalConfirmResponder,
    automatic_answer,
    can_prompt,
    read_line,
)
from agenticx.cli.terminal.event_text import Note, Tone
from agenticx.cli.terminal.keyboard import Keyboard, LineKeyboard, strip_paste_marks
from agenticx.cli.terminal.output import Output
from agenticx.cli.terminal.turns import show_turn
from agenticx.errors import SettingsError, StoreError
from agenticx.llms.assembly import resolve_model
from agenticx.llms.base import ChatModel
from agenticx.llms.catalog.resolve import default_model_spec
from agenticx.llms.model_cache import ModelCache
from agenticx.messages import UserMessage
from agenticx.resource_exhaustion import exit_on_memory_error, limit_malloc_arenas
from agenticx.runtime import AsyncConfirmGate, ConfirmAnswer
from agenticx.sessions.hub.session_fields import WorkspaceGone, check_folder
from agenticx.sessions.store.base import Store
from agenticx.sessions.store.factory import open_store, probe_store_owner
from agenticx.settings import Settings
from agenticx.tools.agents_files import agents_file_names
from agenticx.tools.permissions import PermissionMode
from agenticx.tools.visible import visible_line

__all__ = ["TerminalConversation", "open_conversation"]

T = TypeVar("T")

_WIDER_MODES = frozenset({"accept_edits", "auto"})
"""The modes that allow more without asking than mode default."""

_HANDED_OVER_SECONDS = 5.0
"""The time after a hand-over in which a server must take the sessions, or this process does again."""
_RESTART_SECONDS = 1.0
"""The same time after the end of a server."""
_TAKEOVER_SECONDS = 30.0
"""The time that a server which took the sessions may take to start."""
_ENDING_SECONDS = 10.0
"""The time that a server which owns the sessions may take to answer again, or to end."""
_POLL_SECONDS = 0.1


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
    mode: str | None = None
    """The mode that the user has chosen for the next turns: chat, vault or agent; None for that of their words."""
    vaults: tuple[str, ...] | None = None
    """The ids of the vaults of the next turns; None for those of the session."""
    variants: int | tuple[str, ...] | None = None
    """The options that the next turns make: how many, or the names of their models; None for a usual turn."""
    automatic_answer: ConfirmAnswer | None = None
    keyboard: Keyboard = field(default_factory=LineKeyboard)
    edit_text: EditText | None = None
    """Lets the user edit a text; None if the terminal has no prompt for it."""
    keeps_mode: bool = True
    """False if turns of a continued session ask as in mode default: no user is there, and none chose its mode now."""
    continued_id: str | None = None
    """The id of the session that is continued, None for one that this process created."""
    allowed_kinds: dict[str, set[Kind]] = field(default_factory=dict[str, set[Kind]])
    """The kinds of calls that the user allowed while this process runs, by session id."""
    at_prompt: asyncio.Event = field(default_factory=asyncio.Event)
    """Set while the user may type a message, so that nothing uses the client."""
    reconnect: Callable[[], Awaitable[Client]] | None = None
    """Makes the client to go on with after a hand-over or a server's end; None if this process must run the turns."""
    is_handed_over: bool = False
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
    def workspace(self) -> Path:
        """The folder of the next turn."""
        return Path(self.new_session_options.workspace if self.session is None else self.session.record.workspace)

    @property
    def turn_mode(self) -> PermissionMode:
        """The permission mode of the next turn."""
        mode = self.permission_mode
        is_continued = self.session is not None and self.session.id == self.continued_id
        return "default" if is_continued and not self.keeps_mode and mode in _WIDER_MODES else mode

    @property
    def model_name(self) -> str | None:
        """The model of the next turn; None for the default."""
        return self.model or (self.new_session_options.model if self.session is None else self.session.record.model)

    @property
    def tools(self) -> tuple[str, ...] | None:
        """The names of the agent's tools; None for all."""
        return self.new_session_options.tools if self.session is None else self.session.record.tools

    def resume(self, session: SessionInfo) -> None:
        """Continue `session` with the next message; raise `WorkspaceGone` if its folder no longer exists."""
        check_folder(session.record)
        self.session, self.continued_id = session, session.id
        if self.client.persistent:
            remember_last_session(self.home, session.id)

    def show_instructions(self) -> None:
        """Show the names of the files whose instructions the model gets, if there are any."""
        if names := agents_file_names(self.workspace, [self.home]):
            self.output.show_note(Note(f"instructions: {', '.join(names)}"))

    async def hand_over(self) -> None:
        """Close the store, so that a server can become its owner; raise `HandoverRefused`."""
        if self.is_handed_over:
            return
        if self.reconnect is None:
            raise HandoverRefused("it runs its turns with --base-url or --max-tool-rounds; end it first")
        self.is_handed_over = True
        await self.client.aclose()

    async def go_on(self) -> None:
        """Go on after a hand-over or the end of a server, through the server that owns the sessions or without one.

        Raises an `AgenticXError` if neither is possible yet.
        """
        if self.reconnect is None:
            return
        if self.is_handed_over or (isinstance(self.client, RemoteClient) and not await self.client.find_server()):
            self.client, self.make_fallback_client = await self.reconnect(), None
            self.is_handed_over = False

    async def aclose(self) -> None:
        """Close the client."""
        if not self.is_handed_over:
            await self.client.aclose()

    async def note_stopped_subagents(self) -> None:
        """Show how many sub-agents stop because this process ends, if there are any."""
        if number := 0 if self.is_handed_over else await self.client.working_subagents():
            are = "sub-agent is" if number == 1 else "sub-agents are"
            text = f"{number} {are} still at work and will be stopped; beside a running `agx serve` they go on"
            self.output.show_note(Note(text, "warning"))

    async def change(self, **changes: Any) -> None:
        """Change fields of the session, or of the options of the session still to be created."""
        if self.session is None:
            self.new_session_options = replace(self.new_session_options, **changes)
        else:
            self.session = await self.client.change(self.session.id, changes)

    async def _run_turn(self, message: UserMessage) -> int:
        is_new, started = self.session is None, list[TurnPosition]()
        # a server may have accepted the message before it ended: with the same id it is not run twice
        client_turn_id = uuid4().hex if isinstance(self.client, RemoteClient) else None
        try:
            return await self._start_and_show_turn(message, started, client_turn_id)
        except ServerUnreachable as exc:
            if started or self.reconnect is None or isinstance(exc, ServerUnresponsive):
                raise
            await self.go_on()
            return await self._start_and_show_turn(message, started, client_turn_id)
        except StoreError as exc:
            if not is_new or started or self.make_fallback_client is None:
                raise
            await self.client.aclose()
            self.client, self.session, self.make_fallback_client = self.make_fallback_client(exc), None, None
            return await self._start_and_show_turn(message, started)

    async def _start_and_show_turn(
        self, message: UserMessage, started: list[TurnPosition], client_turn_id: str | None = None
    ) -> int:
        """Start a turn, in a new session if there is none, and show it; `started` receives its position."""
        if self.session is None:
            self.session = await self.client.create(self.new_session_options)
        else:
            await self._notice_move(self.session)
        session = self.session
        if self.client.persistent:
            remember_last_session(self.home, session.id)

        mode, limited = self.permission_mode, self.turn_mode
        if limited != mode:
            self.output.show_note(
                Note(f"this turn runs in mode {limited}, not {mode}: there is no terminal to ask at", "warning")
            )

        async def start() -> TurnPosition:
            own_mode = None if limited == mode else limited
            position = await self.client.start(
                session.id,
                message,
                model=self.model,
                permission_mode=own_mode,
                client_turn_id=client_turn_id,
                mode=self.mode,
                vaults=self.vaults,
                variants=self.variants,
            )
            started.append(position)
            return position

        return await show_turn(self.client, session.id, start, self.output, self._confirm_responder(), self.keyboard)

    async def _notice_move(self, session: SessionInfo) -> None:
        """Forget what the user allowed if the session works in another folder by now."""
        workspace = (await self.client.get(session.id)).record.workspace
        if workspace != session.record.workspace:
            self.session = replace(session, record=replace(session.record, workspace=workspace))
            self.allowed_kinds.pop(session.id, None)
            self.output.show_note(Note(visible_line(f"this session works in {workspace} now", 2_000)))

    async def ask_yes_or_no(self, question: str) -> bool:
        """Ask the user at the terminal and return the answer; an empty line and end of input are no."""
        with self.keyboard.read_lines():
            while True:
                self.output.show_prompt(f"{question} [y/N]: ")
                line = await read_line()
                self.output.prompt_answered(line)
                word = line.strip().lower()
                if word in ("", "n", "no", "y", "yes"):
                    return word in ("y", "yes")

    async def _follow_turn(self, position: TurnPosition) -> int:
        async def running() -> TurnPosition:
            return position

        assert self.session is not None
        return await show_turn(
            self.client, self.session.id, running, self.output, self._confirm_responder(), self.keyboard
        )

    def _confirm_responder(self) -> ConfirmResponder:
        if self.client.confirms_by_policy:
            return NullConfirmResponder()
        if self.automatic_answer is not None:
            return AutomaticConfirmResponder(self.client.answer, self.automatic_answer)
        assert self.session is not None
        allowed = self.allowed_kinds.setdefault(self.session.id, set())
        return TerminalConfirmResponder(
            self.client.answer,
            self.output,
            self.keyboard,
            edit_text=self.edit_text or self._type_text,
            allowed=allowed,
        )

    async def _type_text(self, text: str) -> str | None:
        """Show a text and return the line that the user types in its place."""
        self.output.show_note(Note(text))
        self.output.show_prompt("the arguments on one line (Enter: no change): ")
        line = await read_line()
        self.output.prompt_answered(line)
        return strip_paste_marks(line) or None


@contextmanager
def open_conversation(
    arguments: Namespace, output: Output, *, restart_seconds: float = RETRY_LIMIT_SECONDS
) -> Generator[TerminalConversation]:
    """Yield the conversation that the options select, and close its client afterwards.

    A turn of a server that has ended waits `restart_seconds` for the next server, which may go on with it.
    On a KeyboardInterrupt, a second termination signal, the client is not closed, so that the process exits at once.
    """
    limit_malloc_arenas()
    opened: list[TerminalConversation] = []

    def restore_terminal() -> None:
        for conversation in opened:
            conversation.keyboard.restore_at_exit()

    with asyncio.Runner() as runner, exit_on_memory_error(runner.get_loop(), restore_terminal):
        conversation = runner.run(_open(arguments, output, runner, restart_seconds))
        opened.append(conversation)
        try:
            yield conversation
        except KeyboardInterrupt:
            raise
        except BaseException:
            runner.run(conversation.aclose())
            raise
        else:
            try:
                runner.run(conversation.note_stopped_subagents())
            finally:
                runner.run(conversation.aclose())


async def _open(
    arguments: Namespace, output: Output, runner: asyncio.Runner, restart_seconds: float
) -> TerminalConversation:
    workspace = workspace_of(arguments)
    settings = settings_for(arguments, workspace)
    configure_terminal_logging(settings)
    enabled_tools(settings)  # raises for a name that no tool has
    answer = automatic_answer(yes=arguments.yes)
    options = SessionOptions(
        workspace=str(workspace),
        permission_mode=settings.permission_mode,
        model=model_of(arguments),
        tools=settings.enabled_tools if arguments.agent is None else None,  # those of the agent
        team=arguments.team,
        agent=arguments.agent,
    )

    @cache
    def notify(text: str, tone: Tone = "warning") -> None:
        output.show_note(Note(visible_line(text, 2_000), tone))

    make_client = partial(_make_local_client, arguments=arguments, automatic=answer, notify=notify)
    make_fallback_client: Callable[[Exception], Client] | None = None
    connect = partial(remote_client, restart_seconds=restart_seconds)
    owner = await _find_store(settings, arguments, notify)
    if isinstance(owner, ServerEndpoint):
        reject_local_options(arguments, owner.url)
        client: Client = connect(settings, owner, lambda text: output.show_note(Note(text, "warning")))
        options = _with_own_model(options, settings)
        session = await _requested_session(client, arguments, settings)
    else:

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
        keeps_mode=can_prompt() or arguments.yes or arguments.permission_mode is not None,
    )
    if arguments.base_url is None and arguments.max_tool_rounds is None:
        conversation.reconnect = partial(_reconnect, conversation, settings, make_client, connect)
    if session is not None:
        await _resume(conversation, session, arguments)
    return conversation


async def _reconnect(
    conversation: TerminalConversation,
    settings: Settings,
    make_client: Callable[[Store, Settings], LocalClient],
    connect: Callable[[Settings, ServerEndpoint, Callable[[str], None]], Client],
) -> Client:
    """Return the client of the server that has taken the sessions over, or of the store if none has.

    Raise `StoreError` if another program has taken them or the store cannot be used.
    """

    def notify(text: str) -> None:
        conversation.output.show_note(Note(text, "warning"))

    loop = asyncio.get_running_loop()
    began = unowned_since = loop.time()
    pid: int | None = None
    unowned_limit, limit = _RESTART_SECONDS, _ENDING_SECONDS
    if conversation.is_handed_over:
        unowned_limit, limit = _HANDED_OVER_SECONDS, _TAKEOVER_SECONDS
    while loop.time() < min(unowned_since + unowned_limit, began + limit):
        pid = probe_store_owner(settings)
        server = await server_with_pid(settings, pid) if pid else None
        if server is not None:
            notify(f"agx serve (process {pid}) has taken the sessions over; this chat goes on through it")
            options = conversation.new_session_options
            conversation.new_session_options = _with_own_model(options, settings)
            return connect(settings, server, notify)
        if pid and is_chat(settings.home, pid):
            break
        if pid is not None:  # it is starting or ending
            unowned_since = loop.time()
        await asyncio.sleep(_POLL_SECONDS)
    session = conversation.session
    own = settings if session is None else settings.in_workspace(Path(session.record.workspace))
    try:
        client = make_client(open_store(settings), own)
    except (StoreError, OSError) as exc:
        if pid and is_chat(settings.home, pid):
            raise StoreError(
                f"another agx chat (process {pid}) has the sessions now; repeat this (the Up key brings it back) once "
                "that has ended, or beside `agx serve`; `agx sessions list|show|export|usage` work meanwhile"
            ) from exc
        raise StoreError(f"no server has the sessions: {exc}; quit; `agx chat -c` continues") from exc
    await client.recover()
    notify("no server has the sessions; this chat stores them and runs the turns itself")
    return client


def _with_own_model(options: SessionOptions, settings: Settings) -> SessionOptions:
    """Return the options with the AGX_MODEL of this process, as a server may have another; an agent has its own."""
    return options if options.agent is not None else replace(options, model=options.model or settings.model)


async def _find_store(
    settings: Settings, arguments: Namespace, notify: Callable[[str], None]
) -> Store | ServerEndpoint:
    try:
        try:
            return await open_store_or_find_server(settings)
        except ServerUnresponsive as exc:
            notify(f"{exc}; waiting for it …")
            return await open_store_or_find_server(settings, response_timeout=_ENDING_SECONDS)
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

    def assemble(spec: str) -> ChatModel:
        if spec == "demo" and arguments.base_url is not None:
            raise SettingsError("--base-url cannot be used with the demo, which is offline; name a model with --model")
        return resolve_model(spec, settings=settings, base_url=arguments.base_url)

    models = ModelCache(assemble, default)
    return LocalClient(store, settings, models, AsyncConfirmGate() if automatic is None else PolicyGate(automatic))


async def _resume(conversation: TerminalConversation, session: SessionInfo, arguments: Namespace) -> None:
    """Continue an existing session with the given options; raise SettingsError if --cwd names another folder."""
    folder, mode = Path(session.record.workspace), arguments.permission_mode
    if arguments.cwd is not None and arguments.cwd.resolve() != folder:
        raise SettingsError(
            f"--cwd {str(arguments.cwd)!r}: session {session.id} works in {str(folder)!r}; without --cwd it goes on "
            f"there, and `agx sessions move {session.id} FOLDER` moves it"
        )
    conversation.resume(session)
    conversation.model = arguments.model
    if Path.cwd() != folder and arguments.cwd is None:
        conversation.output.show_note(Note(visible_line(f"this session works in {folder}", 2_000)))
    if mode is not None and mode != session.record.permission_mode:
        await conversation.change(permission_mode=mode)

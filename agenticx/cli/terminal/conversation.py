"""A conversation at a terminal: its session, current or still to be created, and the client it uses."""

from __future__ import annotations

import asyncio
import sys
from argparse import Namespace
from collections.abc import Callable, Coroutine, Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

from agenticx.cli.client.base import DEFAULT_OPTIONS, Client, SessionInfo, SessionOptions, TurnOptions, TurnPosition
from agenticx.cli.client.handover import HandoverRefused
from agenticx.cli.client.http import ServerUnreachable, ServerUnresponsive
from agenticx.cli.client.local import LocalClient
from agenticx.cli.client.remote import RETRY_LIMIT_SECONDS, RemoteClient
from agenticx.cli.client.session_lookup import remember_last_session
from agenticx.cli.options import (
    configure_terminal_logging,
    enabled_tools,
    model_of,
    settings_for,
    workspace_of,
)
from agenticx.cli.terminal.argument_editor import EditText
from agenticx.cli.terminal.connector import SessionConnector
from agenticx.cli.terminal.event_text import Note
from agenticx.cli.terminal.keyboard import Keyboard, LineKeyboard, strip_paste_marks
from agenticx.cli.terminal.output import Output
from agenticx.cli.terminal.responders import (
    AutomaticResponder,
    NullResponder,
    RequestResponder,
    TerminalResponder,
    automatic_answer,
    can_prompt,
    read_line,
)
from agenticx.cli.terminal.turns import show_turn
from agenticx.cli.terminal.turns_elsewhere import TurnsElsewhere
from agenticx.errors import AgenticXError, SessionBusy, SettingsError, StoreError
from agenticx.llms.catalog.addresses import allow_address, split_address, with_address
from agenticx.llms.catalog.local_servers import fetch_model_names_at, read_model_names_at
from agenticx.llms.catalog.resolve import is_offline, served_model_name
from agenticx.messages import UserMessage
from agenticx.permissions.rules import Rule
from agenticx.permissions.trusted_files import open_trust, read_instructions
from agenticx.permissions.verdict import PermissionMode
from agenticx.runtime import ConfirmAnswer
from agenticx.sessions.hub.session_fields import check_folder, check_model_name
from agenticx.settings import Settings
from agenticx.threads import run_in_thread
from agenticx.tools.agents_files import agents_file_names
from agenticx.tools.visible import visible_line

__all__ = ["TerminalConversation", "open_conversation"]

T = TypeVar("T")

_WIDER_MODES = frozenset({"accept_edits", "auto"})
"""The modes that allow more without asking than mode default."""

_POLL_SECONDS = 0.1


@dataclass(slots=True)
class TerminalConversation:
    """The session of `agx run` or `agx chat` and the client that runs its turns.

    `session` is None until the first message creates it with `new_session_options`. `model` is sent with each turn and
    overrides the session's own.
    """

    runner: asyncio.Runner
    client: Client
    output: Output
    home: Path
    new_session_options: SessionOptions
    connector: SessionConnector
    session: SessionInfo | None = None
    model: str | None = None
    automatic_answer: ConfirmAnswer | None = None
    keyboard: Keyboard = field(default_factory=LineKeyboard)
    edit_text: EditText | None = None
    """Lets the user edit a text; None if the terminal has no prompt for it."""
    keeps_mode: bool = True
    """False if turns of a continued session ask as in mode default: no user is there, and none chose its mode now."""
    continued_id: str | None = None
    """The id of the session that is continued, None for one that this process created."""
    at_prompt: asyncio.Event = field(default_factory=asyncio.Event)
    """Set while the user may type a message, so that nothing uses the client."""
    is_handed_over: bool = False
    turns_elsewhere: TurnsElsewhere | None = None
    """The turns of others in the session that is shown; None before its first turn or its last one is shown."""
    may_fall_back: bool = False
    """True until the first turn starts in this process: if the store fails, sessions are kept in memory only."""

    def run_turn(self, message: UserMessage, options: TurnOptions = DEFAULT_OPTIONS) -> int:
        """Run one turn and return its exit code; raise KeyboardInterrupt on a second termination signal.

        This conversation supplies the model, the permission mode and the `client_turn_id` of the options.
        """
        return self.run(self._run_turn(message, options))

    def run_single_turn(self, message: UserMessage, options: TurnOptions = DEFAULT_OPTIONS, *, command: str) -> int:
        """Run the one turn of `agx run` or `agx team run` and return its exit code.

        A terminal shows afterwards how `command` continues the session. Raise `SessionBusy` with the command that shows
        the running turn.
        """
        self.show_instructions()
        try:
            code = self.run_turn(message, options)
        except SessionBusy as exc:
            assert self.session is not None
            raise SessionBusy(f"{exc}; `agx chat --session {self.session.id}` shows the running turn") from exc
        if sys.stderr.isatty() and self.session is not None and self.client.persistent:
            self.output.show_note(Note(f"({command} --session {self.session.id} … continues this session)"))
        return code

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

    async def models(self) -> list[str]:
        """Return the names of the models that can be used; first those at the address of the current model."""
        address = split_address(self.model_name or "")[1]
        served = [] if address is None else await run_in_thread(fetch_model_names_at, address, name="agx models")
        here = [] if address is None else [with_address(f"openai-chat:{name}", address) for name in served]
        return list(dict.fromkeys([*here, *await self.client.models()]))

    def full_model_name(self, name: str) -> str:
        """Return the full name of a model: one without a provider is at the address of the current model."""
        address = split_address(self.model_name or "")[1]
        if address is None or ":" in name or is_offline(name):
            return name
        return with_address(served_model_name(name), address)

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

    def show_untrusted(self) -> None:
        """Show the names of those of these files that the user does not trust yet, and how to.

        With a database of several workers, where opening it would delay the prompt, only `agx doctor` and confirmations
        name them.
        """
        if self.connector.has_shared_store:
            return
        if names := read_instructions(self.workspace, [self.home], open_trust(self.home, None)).untrusted():
            self.output.show_note(Note(f"not trusted yet: {', '.join(names)}; `agx trust` there changes that"))

    async def show_turns_elsewhere(self) -> bool:
        """Show the turns of the session that other terminals or the page began, and that ended since the last call.

        Return True if there are any.
        """
        elsewhere, was_shown = self.turns_elsewhere, False
        if self.is_handed_over or self.session is None or elsewhere is None or elsewhere.session_id != self.session.id:
            return False
        with suppress(AgenticXError):  # the next turn reports a lost server, or a deleted session
            was_shown = await elsewhere.show(self.client, self.output)
            if elsewhere.is_record_old:
                self.session, elsewhere.is_record_old = await self.client.get(self.session.id), False
        return was_shown

    async def hand_over(self) -> None:
        """Close the store, so that a server can become its owner; raise `HandoverRefused`."""
        if self.is_handed_over:
            return
        if not self.connector.is_movable:
            raise HandoverRefused("it runs its turns with --max-tool-rounds; end it first")
        self.is_handed_over = True
        await self._close_clients()

    @property
    def is_idle(self) -> bool:
        """True while the user may type a message and no turn of another terminal runs here."""
        return self.at_prompt.is_set() and not self._runs_turns_of_others()

    async def wait_for_turns_of_others(self) -> None:
        """Wait until no turn of another terminal runs here, except one that waits for its user and goes on there."""
        if self._runs_turns_of_others():
            self.output.show_note(Note("waiting for the turn of another terminal to end; Ctrl-C stops it"))
            await self._until(lambda: not self._runs_turns_of_others())

    async def wait_until_idle(self) -> None:
        """Wait until `is_idle`."""
        await self._until(lambda: self.is_idle)

    async def _until(self, condition: Callable[[], bool]) -> None:
        while True:
            if condition():
                return
            await asyncio.sleep(_POLL_SECONDS)

    def _runs_turns_of_others(self) -> bool:
        owner = self.connector.hosted_client or self.client
        return not self.is_handed_over and isinstance(owner, LocalClient) and owner.runs_turns_of_others

    async def _close_clients(self) -> None:
        await self.client.aclose()
        await self.connector.aclose()

    async def ensure_connected(self) -> None:
        """Go on after a hand-over or the end of a server, through the server that owns the sessions or without one.

        Raises an `AgenticXError` if neither is possible yet.
        """
        if not self.connector.is_movable:
            return
        if self.is_handed_over or (isinstance(self.client, RemoteClient) and not await self.client.find_server()):
            self.client = await self.connector.reconnect(self.session, after_handover=self.is_handed_over)
            self.new_session_options = self.connector.options_for(self.client, self.new_session_options)
            self.is_handed_over = self.may_fall_back = False

    async def aclose(self) -> None:
        """Close the client."""
        if not self.is_handed_over:
            await self._close_clients()

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

    async def _run_turn(self, message: UserMessage, options: TurnOptions) -> int:
        is_new, started = self.session is None, list[TurnPosition]()
        # a server may have accepted the message before it ended: with the same id it is not run twice
        if isinstance(self.client, RemoteClient):
            options = replace(options, client_turn_id=uuid4().hex)
        try:
            return await self._start_and_show_turn(message, options, started)
        except ServerUnreachable as exc:
            if started or not self.connector.is_movable or isinstance(exc, ServerUnresponsive):
                raise
            await self.ensure_connected()
            return await self._start_and_show_turn(message, options, started)
        except StoreError as exc:
            if not is_new or started or not self.may_fall_back:
                raise
            await self.client.aclose()
            self.client, self.session, self.may_fall_back = self.connector.memory_client(exc), None, False
            return await self._start_and_show_turn(message, options, started)

    async def _start_and_show_turn(
        self, message: UserMessage, options: TurnOptions, started: list[TurnPosition]
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
                session.id, message, replace(options, model=self.model, permission_mode=own_mode)
            )
            started.append(position)
            self._note_own_turn(session.id, position)
            return position

        return await show_turn(self.client, session.id, start, self.output, self._request_responder(), self.keyboard)

    def _note_own_turn(self, session_id: str, position: TurnPosition) -> None:
        if self.turns_elsewhere is None or self.turns_elsewhere.session_id != session_id:
            self.turns_elsewhere = TurnsElsewhere(session_id, 0)
        self.turns_elsewhere.own_turns.add(position.turn_id)

    async def rules(self) -> Sequence[Rule]:
        """Return the rules of the user that hold in the folder, then those of the session."""
        return await self.client.rules(None if self.session is None else self.session.id, self.workspace)

    async def _notice_move(self, session: SessionInfo) -> None:
        """Say so if the session works in another folder by now."""
        workspace = (await self.client.get(session.id)).record.workspace
        if workspace != session.record.workspace:
            self.session = replace(session, record=replace(session.record, workspace=workspace))
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
        self._note_own_turn(self.session.id, position)
        return await show_turn(
            self.client, self.session.id, running, self.output, self._request_responder(), self.keyboard
        )

    def _request_responder(self) -> RequestResponder:
        if self.client.confirms_by_policy:
            return NullResponder()
        if self.automatic_answer is not None:
            return AutomaticResponder(self.client.answer, self.automatic_answer)
        return TerminalResponder(
            self.client.answer, self.output, self.keyboard, edit_text=self.edit_text or self._type_text
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

    A turn of a server that has ended waits `restart_seconds` for the next server to continue it.
    On a KeyboardInterrupt, a second termination signal, the client is not closed, so that the process exits at once.
    """
    with asyncio.Runner() as runner:
        conversation = runner.run(_open(arguments, output, runner, restart_seconds))
        try:
            yield conversation
        except KeyboardInterrupt:
            raise
        except BaseException:
            _close(runner, conversation)
            raise
        else:
            try:
                runner.run(conversation.note_stopped_subagents())
            finally:
                _close(runner, conversation)


def _close(runner: asyncio.Runner, conversation: TerminalConversation) -> None:
    with suppress(KeyboardInterrupt):
        runner.run(conversation.wait_for_turns_of_others())
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
        model=None if arguments.session is not None else await _requested_model(arguments, settings, output),
        tools=settings.enabled_tools if arguments.agent is None else None,  # else the agent has its own
        team=arguments.team,
        agent=arguments.agent,
    )
    connector = SessionConnector(settings, arguments, output, automatic=answer, restart_seconds=restart_seconds)
    client, session = await connector.open()
    conversation = TerminalConversation(
        runner,
        client,
        output,
        settings.home,
        connector.options_for(client, options),
        connector,
        automatic_answer=answer,
        may_fall_back=isinstance(client, LocalClient),
        keeps_mode=can_prompt() or arguments.yes or arguments.permission_mode is not None,
    )
    if session is not None:
        await _resume(conversation, session, arguments, settings)
    return conversation


async def _requested_model(
    arguments: Namespace, settings: Settings, output: Output, *, own_model: str | None = None
) -> str | None:
    """Return the model of --model, at the address of --base-url; None without these.

    At an address it is the session's own model if none is named, else AGX_MODEL, else the first that the server lists.
    Raise `SettingsError` if that is none, and for an address of an offline model.
    """
    base_url: str | None = arguments.base_url
    name = model_of(arguments)
    if base_url is None:
        return name
    if arguments.agent is not None and name is None:
        raise SettingsError("--base-url with --agent needs the name of a model: add --model")
    name = name or own_model or settings.model or await _served_model(base_url, output)
    if is_offline(name):
        raise SettingsError(f"--base-url cannot be used with {name}, which is offline; name a model with --model")
    spec = with_address(served_model_name(name), base_url)
    try:
        check_model_name(spec)
    except ValueError as exc:
        raise SettingsError(f"--base-url {base_url[:100]!r}: {exc}") from exc
    allow_address(settings.home, base_url)
    return spec


async def _served_model(base_url: str, output: Output) -> str:
    """Return the first model that the server at that address lists; raise `SettingsError` if there is none."""
    names = await run_in_thread(read_model_names_at, base_url, name="agx models")
    if not names:
        raise SettingsError(f"{base_url.rstrip('/')}/models lists no model for chats; name one with --model")
    others = f", the first of {len(names)}" if len(names) > 1 else ""
    output.show_note(Note(visible_line(f"model: openai-chat:{names[0]}{others} that {base_url} lists", 2_000)))
    return f"openai-chat:{names[0]}"


async def _resume(
    conversation: TerminalConversation, session: SessionInfo, arguments: Namespace, settings: Settings
) -> None:
    """Continue an existing session with the given options; raise SettingsError if --cwd names another folder."""
    folder, mode = Path(session.record.workspace), arguments.permission_mode
    if arguments.cwd is not None and arguments.cwd.resolve() != folder:
        raise SettingsError(
            f"--cwd {str(arguments.cwd)!r}: session {session.id} works in {str(folder)!r}; without --cwd it goes on "
            f"there, and `agx sessions move {session.id} FOLDER` moves it"
        )
    conversation.resume(session)
    own_model = session.record.model
    conversation.model = await _requested_model(arguments, settings, conversation.output, own_model=own_model)
    if Path.cwd() != folder and arguments.cwd is None:
        conversation.output.show_note(Note(visible_line(f"this session works in {folder}", 2_000)))
    if mode is not None and (mode == "auto" or mode != session.record.permission_mode):
        await conversation.change(permission_mode=mode)

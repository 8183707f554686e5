"""A conversation at a terminal: its session, current or still to be created, and the client it uses."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import monotonic
from typing import Any, TypeVar
from uuid import uuid4

from agenticx.cli.client.base import DEFAULT_OPTIONS, Client, SessionInfo, SessionOptions, TurnOptions, TurnPosition
from agenticx.cli.client.handover import HandoverRefused
from agenticx.cli.client.http import ServerUnreachable, ServerUnresponsive
from agenticx.cli.client.local import LocalClient
from agenticx.cli.client.remote import RETRY_LIMIT_SECONDS, RemoteClient
from agenticx.cli.client.session_lookup import remember_last_session
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
    read_line,
)
from agenticx.cli.terminal.turns import MessageReturned, OutputFailed, show_turn
from agenticx.cli.terminal.turns_elsewhere import TurnsElsewhere
from agenticx.errors import AgenticXError, SessionBusy, SessionNotFound, SettingsError, StoreError
from agenticx.llms.providers.addresses import split_address, with_address
from agenticx.llms.providers.local_servers import fetch_model_names_at, read_model_names_at
from agenticx.llms.providers.resolve import is_offline, served_model_name
from agenticx.messages import UserMessage
from agenticx.permissions.rules import Rule
from agenticx.permissions.trusted_files import open_trust, read_instructions
from agenticx.permissions.verdict import PermissionMode
from agenticx.runtime import ConfirmAnswer
from agenticx.runtime.interrupts import cancel_and_wait
from agenticx.sessions.hub.session_fields import check_folder
from agenticx.settings import PROJECT_FILE
from agenticx.similar_names import similar_name
from agenticx.threads import run_in_thread
from agenticx.tools.agents_files import agents_file_names
from agenticx.tools.visible import visible_line

__all__ = ["TerminalConversation", "unlisted_hint"]

T = TypeVar("T")

_WIDER_MODES = frozenset({"accept_edits", "auto"})
"""The modes that allow more without asking than mode default."""

_MAX_LISTED_MODELS = 10
_POLL_SECONDS = 0.1
_FOLLOW_AGAIN_SECONDS = 0.5
_AGAIN_SECONDS = 0.05
_UNNOTED_SECONDS = 1.0
"""The longest wait without a note that says so."""


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
    hold_log: Callable[[], AbstractContextManager[None]] = nullcontext
    """Keeps lines of the log off the screen while the user's editor is there."""
    keeps_mode: bool = True
    """False if turns of a continued session ask as in mode default: no user is there, and none chose its mode now."""
    continued_id: str | None = None
    """The id of the session that is continued, None for one that this process created."""
    at_prompt: asyncio.Event = field(default_factory=asyncio.Event)
    """Set while the user may type a message; then only the turns of others are followed through the client."""
    is_handed_over: bool = False
    free_terminal: Callable[[], AbstractAsyncContextManager[None]] = nullcontext
    """Takes the prompt off the screen for a request of a turn that another terminal or the page runs."""
    queues_messages: bool = True
    """True if a message waits while another turn runs in its session, False if it is refused then."""
    _following: asyncio.Task[None] | None = None
    """The task that uses the client while the user may type a message."""
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

    async def check_model(self, name: str) -> None:
        """Raise an `AgenticXError` for a model that cannot be used, or that the server at its address does not list.

        A note says so if that server gives no list.
        """
        await self.client.resolve_model(name)
        spec, address = split_address(name)
        if address is None:
            return
        try:
            served = await run_in_thread(read_model_names_at, address, name="agx models")
        except SettingsError as exc:
            reason = str(exc).partition(";")[0]
            self.output.show_note(Note(visible_line(f"the name could not be checked: {reason}", 2_000), "warning"))
            return
        model = spec.partition(":")[2]
        if (hint := unlisted_hint(model, served)) is not None:
            raise SettingsError(f"{address} has no model {model!r}: {hint}")

    def resume(self, session: SessionInfo) -> None:
        """Continue `session` with the next message; raise `WorkspaceGone` if its folder no longer exists."""
        check_folder(session.record)
        self.session, self.continued_id = session, session.id
        if self.client.persistent:
            remember_last_session(self.home, session.id)

    def show_instructions(self) -> None:
        """Show which settings the file of the workspace sets, and the files whose instructions the model gets."""
        if given := self.connector.settings_of_workspace(self.workspace):
            values = ", ".join(f"{name} = {value}" for name, value in given.items())
            self.output.show_note(Note(f"settings of {PROJECT_FILE}: {values}"))
        logging.getLogger(agents_file_names.__module__).setLevel(logging.ERROR)  # the note says which are left out
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
        elsewhere, was_shown = self._turns_elsewhere(), False
        if self.is_handed_over or elsewhere is None:
            return False
        with suppress(AgenticXError):  # the next turn reports a lost server, or a deleted session
            was_shown = await elsewhere.show(self.client, self.output)
            await self._refresh_record(elsewhere)
        return was_shown

    async def follow_turns_elsewhere(self, on_change: Callable[[], Awaitable[None]]) -> None:
        """Show the turns of others in the session as they run and have their requests answered, until cancelled.

        A server or terminal that takes the sessions over is used from then on. `on_change` is called when the session
        has changed.
        """
        elsewhere = self._turns_elsewhere()
        if elsewhere is None:
            return
        elsewhere.is_heading_due = True
        while True:
            self._following = asyncio.create_task(self._follow_or_find_server(elsewhere, on_change), name="agx follow")
            try:
                await asyncio.wait({self._following})
            finally:
                await cancel_and_wait(self._following)
            if not self._following.cancelled():
                try:
                    self._following.result()
                except SessionNotFound:  # the next message reports it
                    return
                except OutputFailed:
                    raise
                except AgenticXError:  # a server that is starting or ending
                    pass
            await asyncio.sleep(_FOLLOW_AGAIN_SECONDS)

    async def _follow_or_find_server(self, elsewhere: TurnsElsewhere, on_change: Callable[[], Awaitable[None]]) -> None:
        if self.is_handed_over:
            if (client := await self.connector.find_server()) is not None:
                await self._use(client)
            return

        async def note_change() -> None:
            await self._refresh_record(elsewhere)
            await on_change()

        try:
            await elsewhere.follow(self.client, self.output, self._responder_to_others(), note_change)
        except ServerUnreachable:
            if isinstance(self.client, RemoteClient):
                await self.client.find_server()

    def dismiss_requests(self) -> None:
        """Ask the open requests of these turns no more here."""
        self.output.prompts_closed()
        if (elsewhere := self._turns_elsewhere()) is not None:
            elsewhere.dismiss_requests()

    def _turns_elsewhere(self) -> TurnsElsewhere | None:
        """Return the turns of others in the session that is open, None before there is one."""
        elsewhere = self.turns_elsewhere
        return elsewhere if self.session and elsewhere and elsewhere.session_id == self.session.id else None

    async def _refresh_record(self, elsewhere: TurnsElsewhere) -> None:
        if elsewhere.is_record_old:
            self.session, elsewhere.is_record_old = await self.client.get(elsewhere.session_id), False

    def _responder_to_others(self) -> RequestResponder:
        """Return the responder to requests of turns that others began; they have answers of their own for `--yes`."""
        if self.client.confirms_by_policy or self.automatic_answer is not None:
            return NullResponder()
        return self._terminal_responder(free_terminal=self.free_terminal)

    async def hand_over(self) -> None:
        """Close the store, so that a server can become its owner; raise `HandoverRefused`."""
        if self.is_handed_over:
            return
        if not self.connector.is_movable:
            raise HandoverRefused("it runs its turns with --max-tool-rounds; end it first")
        self.is_handed_over = True
        if self._following is not None:
            await cancel_and_wait(self._following)
        await self._close_clients()

    @property
    def is_idle(self) -> bool:
        """True while the user may type a message and no turn of another terminal runs here."""
        return self.at_prompt.is_set() and not self._runs_turns_of_others()

    async def close_after_turns_of_others(self) -> None:
        """Close the client once no turn of another terminal runs here, except one that waits for its user.

        Such a turn goes on there. Nothing is awaited between the check and the close, which lets no turn begin.
        """
        await self._wait_for_turns_of_others()
        await self.aclose()

    async def _wait_for_turns_of_others(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(_UNNOTED_SECONDS):
                await self._until(lambda: not self._runs_turns_of_others())
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
            await self._use(await self.connector.reconnect(self.session, after_handover=self.is_handed_over))

    async def show_turn_again(self) -> None:
        """After the loss of the server, go on without it, and show the session's turn again if it waits for the user.

        Raises as `ensure_connected` does.
        """
        await self.ensure_connected()
        if (elsewhere := self._turns_elsewhere()) is None:
            return
        position = await self.client.running_turn(elsewhere.session_id)
        if position is not None:
            elsewhere.show_again(position.turn_id)

    async def _use(self, client: Client) -> None:
        """Go on with the client that has the sessions now."""
        self.client = client
        self.is_handed_over = self.may_fall_back = False
        is_next = self.session is None
        self.new_session_options = await self.connector.options_for(client, self.new_session_options, is_next=is_next)

    async def aclose(self) -> None:
        """Close the client, unless that has begun before."""
        if not self.is_handed_over:
            self.is_handed_over = True
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
        while True:
            try:
                return await self._begin_and_show_turn(message, options)
            except MessageReturned:  # sent again to the process that has the sessions now
                await self.ensure_connected()

    async def _begin_and_show_turn(self, message: UserMessage, options: TurnOptions) -> int:
        is_new, started = self.session is None, list[TurnPosition]()
        if self.queues_messages and options.variants is None and not options.compact:
            options = replace(options, when_busy="queue")
        # a server may have accepted the message before it ended: with the same id it is not run twice
        if isinstance(self.client, RemoteClient):
            options = replace(options, client_turn_id=uuid4().hex)
        began = monotonic()
        while True:
            try:
                return await self._start_and_show_turn(message, options, started)
            except ServerUnreachable as exc:
                is_late = monotonic() - began > RETRY_LIMIT_SECONDS
                if started or is_late or not self.connector.is_movable or isinstance(exc, ServerUnresponsive):
                    raise
                await self.ensure_connected()  # the terminal that has the sessions now may be ending, too
            except StoreError as exc:
                if not is_new or started or not self.may_fall_back:
                    raise
                await self.client.aclose()
                self.client, self.session, self.may_fall_back = self.connector.memory_client(exc), None, False
            await asyncio.sleep(_AGAIN_SECONDS)

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
        return self._terminal_responder()

    def _terminal_responder(self, **options: Any) -> TerminalResponder:
        options["edit_text"], options["hold_log"] = self.edit_text or self._type_text, self.hold_log
        return TerminalResponder(self.client.answer, self.output, self.keyboard, **options)

    async def _type_text(self, text: str) -> str | None:
        """Show a text and return the line that the user types in its place."""
        self.output.show_note(Note(text))
        self.output.show_prompt("the arguments on one line (Enter: no change): ")
        line = await read_line()
        self.output.prompt_answered(line)
        return strip_paste_marks(line) or None


def unlisted_hint(model: str, served: Sequence[str]) -> str | None:
    """Return what a server lists instead of a model, and which one may be meant; None if it lists that model."""
    if model in served or f"{model}:latest" in served:
        return None
    similar = similar_name(model, served)
    hint = "it lists no model for chats" if not served else f"it lists {', '.join(served[:_MAX_LISTED_MODELS])}"
    more = f" and {len(served) - _MAX_LISTED_MODELS} more" if len(served) > _MAX_LISTED_MODELS else ""
    return f"{hint}{more}" if similar is None else f"{hint}{more}; did you mean {similar!r}?"

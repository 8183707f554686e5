"""The `agx chat` command: a conversation in the terminal, or one message per line from a pipe."""

from __future__ import annotations

import os
import signal
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from types import FrameType
from typing import Any, Self, get_args

from agenticx.cli.client.session_lookup import LAST, find_session
from agenticx.cli.commands.message_input import MAX_PROMPT_CHARS, PendingAttachments, validate_prompt
from agenticx.cli.exit_codes import DONE, FAILED, STOPPED
from agenticx.cli.options import add_turn_options
from agenticx.cli.terminal.conversation import TerminalConversation, open_conversation
from agenticx.cli.terminal.event_text import Note
from agenticx.cli.terminal.output import Output, output_for
from agenticx.cli.terminal.session_views import session_rows, show_last_turn
from agenticx.cli.terminal.turns import OutputFailed, termination_signals
from agenticx.errors import AgenticXError, AttachmentRefused, SessionBusy
from agenticx.messages import UserMessage, clean_text
from agenticx.tools.permissions import PermissionMode
from agenticx.tools.visible import visible

__all__ = ["configure", "run"]

_PROMPT = "› "
_HISTORY_LINES = 1000
_SIGNAL_POLL_SECONDS = 0.1
_MAX_LISTED = 10
_SKIPPED_CHARS = 65_536
_EPILOG = """\
Type a message and Enter. Ctrl-C stops the running turn, Ctrl-D quits. /help shows the commands; /attach FILE sends an
image, PDF or text file with the next message. A chat starts a new session, which is stored: -c continues the last one,
--session any other, and /sessions, /open and /new switch between them. From a pipe each line is one message, and the
exit code is that of the last turn; there /mode cannot allow more than the command line does, and /attach is refused.

examples:
  agx chat
  agx chat -c                                continue the last session
  agx chat --model ollama:qwen3 --cwd ~/notes
  printf 'List the files here\\nRead README.md\\n' | agx chat"""


def configure(parser: ArgumentParser) -> None:
    """Add the arguments and help texts of `agx chat` to its parser."""
    parser.epilog = _EPILOG
    add_turn_options(parser)
    parser.add_argument(
        "-c", "--continue", action="store_const", const=LAST, dest="session", help="the same as --session last"
    )


def run(arguments: Namespace) -> int:
    """Run `agx chat` and return its exit code."""
    output, typed = output_for(), sys.stdin.isatty()
    with open_conversation(arguments, output) as conversation:
        chat = _Chat(conversation, output)
        if typed:
            chat.print_greeting()
        else:
            chat.widest_mode = conversation.permission_mode
        with _TerminationSignals() as leaving, _history(conversation.home / "chat_history") if typed else nullcontext():
            for line in leaving.read_lines(_typed_lines(output) if typed else _piped_lines()):
                if not chat.handle_line(line):
                    break
        if typed:
            chat.print_resume_hint()
    return DONE if typed else chat.last_code


class _TerminationSignals:
    """SIGTERM and SIGHUP handlers that end the chat at its next prompt, or at once if it waits for a line.

    An exception from a signal handler is only raised while waiting for a line: elsewhere it could be raised inside an
    event loop, which would treat it as an error.
    """

    def __init__(self) -> None:
        self._received = self._is_waiting = False
        self._previous: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        numbers = [number for number in termination_signals() if number != signal.SIGINT]
        self._previous = {number: signal.signal(number, self._on_signal) for number in numbers}
        return self

    def __exit__(self, *_exc: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler or signal.SIG_DFL)

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        self._received = True
        if self._is_waiting:
            raise SystemExit(STOPPED)

    def read_lines(self, lines: Iterator[str]) -> Iterator[str]:
        """Yield `lines`; raise SystemExit while or before waiting for the next one, once a signal was received."""
        while True:
            try:
                self._is_waiting = True
                if self._received:
                    raise SystemExit(STOPPED)
                line = next(lines, None)
            finally:
                self._is_waiting = False
            if line is None:
                return
            yield line


def _typed_lines(output: Output) -> Iterator[str]:
    """Yield lines until Ctrl-D; Ctrl-C discards the line being typed."""
    prompt_on_stdout = sys.stdout.isatty()  # input() writes its prompt to stdout, which carries data if it is a pipe
    while True:
        try:
            if not prompt_on_stdout:
                print(_PROMPT, end="", file=sys.stderr, flush=True)
            with _polling_signals():
                line = input(_PROMPT if prompt_on_stdout else "")
            yield line
        except KeyboardInterrupt:
            output.show_note(Note("\n(Ctrl-D or /quit exits)"))
        except EOFError:
            output.show_note(Note(""))
            return


@contextmanager
def _polling_signals() -> Generator[None]:
    """Make input() check for signals ten times a second.

    input() checks only when a signal interrupts its wait for a key, so a Ctrl-C that arrives just before the wait
    would take effect only after the next key.
    """
    if not hasattr(signal, "setitimer"):  # Windows, where Ctrl-C interrupts input()
        yield
        return
    previous = signal.signal(signal.SIGALRM, lambda _number, _frame: None)
    try:
        signal.setitimer(signal.ITIMER_REAL, _SIGNAL_POLL_SECONDS, _SIGNAL_POLL_SECONDS)
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)


def _piped_lines() -> Iterator[str]:
    """Yield the lines of stdin; one that is too long is cut one character past the limit, so that it is rejected."""
    while line := sys.stdin.readline(MAX_PROMPT_CHARS + 1):
        rest = line
        while rest and not rest.endswith("\n"):
            rest = sys.stdin.readline(_SKIPPED_CHARS)
        yield line.rstrip("\r\n")


@contextmanager
def _history(file: Path) -> Generator[None]:
    """Load the line history for the arrow keys and save it afterwards, to a file with mode 0600."""
    try:
        import readline
    except ImportError:  # an interpreter without readline has no history
        yield
        return
    with suppress(OSError):
        readline.read_history_file(file)
    try:
        yield
    finally:
        readline.set_history_length(_HISTORY_LINES)
        with suppress(OSError):
            file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            os.close(os.open(file, os.O_CREAT | os.O_WRONLY, 0o600))
            readline.write_history_file(file)


# --- commands ---------------------------------------------------------------------------------------------------------

_MODE_RANKS: Mapping[PermissionMode, int] = {"plan": 0, "default": 1, "accept_edits": 2, "auto": 3}
"""The modes by how much they allow without asking; piped input is not trusted to select a higher one."""


@dataclass(slots=True)
class _Chat:
    """The chat's state and its slash commands, each of which takes the rest of its line.

    `widest_mode` is the highest mode that `/mode` may select; None at a terminal. Only a user at a terminal may attach
    files, because attaching is not subject to the workspace's permission rules.
    """

    conversation: TerminalConversation
    output: Output
    widest_mode: PermissionMode | None = None
    last_code: int = field(default=DONE)
    attachments: PendingAttachments = field(default_factory=PendingAttachments)

    def print_greeting(self) -> None:
        """Print the model and folder; for a new session how to continue it later, else the session's last turn."""
        conversation = self.conversation
        model = conversation.run(conversation.client.resolve_model(conversation.model_name))
        if conversation.session is None:
            self._print(f"{model} in {conversation.new_session_options.workspace}; /help shows the commands")
            if conversation.client.persistent:
                self._print("a new session; later, agx chat -c continues it")
        else:
            self._print(f"{model}; /help shows the commands")
            self._show_last_turn()

    def print_resume_hint(self) -> None:
        """Print the command that continues this session."""
        session = self.conversation.session
        if session is not None and self.conversation.client.persistent:
            self._print(f"agx chat --session {session.id} continues this session")

    def handle_line(self, line: str) -> bool:
        """Process one line and return False if the chat should end; print an `AgenticXError` and continue."""
        try:
            if line.startswith("/") and not line.startswith("//"):
                return self.run_command(line)
            if line.strip():
                self.last_code = FAILED
                self.last_code = self.conversation.run_turn(self.build_message(line.removeprefix("/")))
        except OutputFailed:
            raise
        except SessionBusy as exc:
            session = self.conversation.session
            self._print_error(f"{exc}; /open {session.id if session else ''} shows it")
        except AgenticXError as exc:
            self._print_error(str(exc))
        return True

    def build_message(self, text: str) -> UserMessage:
        """Return the user message for `text`, with the pending attachments."""
        return UserMessage(content=validate_prompt(text), attachments=self.attachments.take())

    def run_command(self, line: str) -> bool:
        """Run a slash command and return False if the chat should end."""
        word, _, rest = line[1:].partition(" ")
        if word in ("quit", "exit"):
            return False
        action = self._actions().get(word)
        if action is None:
            matches = get_close_matches(word, self._actions(), n=1)
            hint = f"did you mean /{matches[0]}?" if matches else "/help lists the commands"
            self._print(f"unknown command /{word}; {hint}")
        else:
            action(rest.strip())
        return True

    def _actions(self) -> Mapping[str, Callable[[str], None]]:
        return {
            "help": self._help,
            "attach": self._attach,
            "detach": self._detach,
            "stop": self._stop,
            "mode": self._mode,
            "tools": self._tools,
            "model": self._model,
            "sessions": self._sessions,
            "open": self._open,
            "new": self._new,
            "quit": lambda _: None,
        }

    def _help(self, _: str) -> None:
        self._print(
            "/attach [FILE] show or add the files to send with your next message\n"
            "/detach        remove these files\n"
            "/mode [MODE]   show or change when you are asked\n"
            "/model [M]     show or change the model\n"
            "/tools         what the agent can use\n"
            "/sessions [Q]  the latest sessions, or those that match Q\n"
            "/open ID       continue another session\n"
            "/new           start a new session with your next message\n"
            "/stop          stop the running turn (Ctrl-C)\n"
            "/quit          exit (Ctrl-D)\n"
            "//text         a message that begins with a slash"
        )

    def _attach(self, paths: str) -> None:
        if paths and self.widest_mode is not None:
            self._print_error("/attach is for a terminal; agx run --attach sends a file from a script")
            return
        try:
            if paths:
                self.attachments.add(paths)
        except AttachmentRefused as exc:
            self._print_error(f"not attached: {exc}")
            return
        self._print(self.attachments.describe())

    def _detach(self, _: str) -> None:
        self.attachments.take()
        self._print(self.attachments.describe())

    def _stop(self, _: str) -> None:
        self._print("no turn is running; while one runs, Ctrl-C stops it")

    def _mode(self, word: str) -> None:
        if word:
            mode = next((mode for mode in get_args(PermissionMode) if mode == word), None)
            if mode is None:
                self._print(f"unknown mode {word!r}; known modes: {', '.join(get_args(PermissionMode))}")
                return
            if self.widest_mode is not None and _MODE_RANKS[mode] > _MODE_RANKS[self.widest_mode]:
                self._print_error(
                    f"/mode {mode} allows more than this chat may; start it with --permission-mode {mode}"
                )
                return
            self.conversation.run(self.conversation.change(permission_mode=mode))
        self._print(f"permission mode: {self.conversation.permission_mode}")

    def _tools(self, _: str) -> None:
        tools = dict(self.conversation.run(self.conversation.client.tools()))
        for name in self.conversation.tools or tools:
            if name in tools:
                self._print(f"{name:<18} {tools[name].strip().partition(chr(10))[0]}")

    def _model(self, spec: str) -> None:
        conversation = self.conversation
        if spec:
            conversation.run(conversation.client.resolve_model(spec))
            conversation.run(conversation.change(model=spec))
            conversation.model = None
        self._print(f"model: {conversation.run(conversation.client.resolve_model(conversation.model_name))}")

    def _sessions(self, query: str) -> None:
        query = clean_text(query)  # a terminal may send bytes that are not text
        sessions = self.conversation.run(self.conversation.client.list_sessions(query=query or None, limit=_MAX_LISTED))
        for line in session_rows(sessions):
            self._print(line)
        if not sessions:
            self._print("no session matches" if query else "there is no session yet")

    def _open(self, reference: str) -> None:
        conversation = self.conversation
        if not reference:
            self._print("/open ID continues a session; /sessions lists them")
            return
        session = conversation.run(find_session(conversation.client, reference, conversation.home))
        if self.widest_mode is not None and _MODE_RANKS[session.record.permission_mode] > _MODE_RANKS[self.widest_mode]:
            self._print_error(
                f"/open {session.id} refused: its mode {session.record.permission_mode} allows more than this chat may"
            )
            return
        conversation.resume(session)
        self._show_last_turn()

    def _new(self, _: str) -> None:
        self.conversation.session = None
        self._print("your next message starts a new session")

    def _show_last_turn(self) -> None:
        """Show the session's last turn; follow one that still runs, and answer its questions."""
        conversation, session = self.conversation, self.conversation.session
        assert session is not None
        self._print(f"{session.id} {session.record.name or ''} in {session.record.workspace}")
        position = conversation.run(conversation.client.running_turn(session.id)) if self.widest_mode is None else None
        if position is None:
            conversation.run(show_last_turn(conversation.client, session.id, self.output))
        else:
            self.last_code = conversation.follow_turn(position)

    def _print(self, text: str) -> None:
        self.output.show_note(Note(visible(text)))

    def _print_error(self, text: str) -> None:
        self.output.show_note(Note(visible(text), "bad"))

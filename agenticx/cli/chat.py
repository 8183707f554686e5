"""`agx chat`: a conversation in the terminal, or one message per line from a pipe."""

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

from agenticx.cli.attaching import PendingAttachments
from agenticx.cli.choosing import LAST, find_session
from agenticx.cli.conversation import TerminalConversation, open_conversation
from agenticx.cli.exit_codes import DONE, FAILED, STOPPED
from agenticx.cli.narrate import Note
from agenticx.cli.options import add_turn_options
from agenticx.cli.prompts import MAX_PROMPT_CHARS, validate_prompt
from agenticx.cli.render import Output, output_for
from agenticx.cli.session_views import session_rows, show_last_turn
from agenticx.cli.turns import OutputFailed, termination_signals
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
Type a message and Enter. Ctrl-C stops the running turn, Ctrl-D leaves. /help shows the commands; /attach FILE sends an
image, PDF or text file along with the next message. A chat begins a new session, which is kept: -c goes on with the
last one, --session with any, and /sessions, /open and /new change between them. From a pipe each line is one message,
and the exit code is that of the last turn; there /mode cannot allow more than the command line does, and /attach
attaches nothing.

examples:
  agx chat
  agx chat -c                                where the last session was left
  agx chat --model ollama:qwen3 --cwd ~/notes
  printf 'List the files here\\nRead README.md\\n' | agx chat"""


def configure(parser: ArgumentParser) -> None:
    parser.epilog = _EPILOG
    add_turn_options(parser)
    parser.add_argument(
        "-c", "--continue", action="store_const", const=LAST, dest="session", help="the same as --session last"
    )


def run(arguments: Namespace) -> int:
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
    """SIGTERM and SIGHUP end the chat where it waits for a line: at once, or behind what it does just then.

    Anywhere else an exception out of a signal handler could come up within an event loop, and be taken for an error.
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
        """`lines`; raises SystemExit where the next one is waited for."""
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
    """Lines until Ctrl-D; Ctrl-C drops the line being typed."""
    shown_by_input = sys.stdout.isatty()  # input() writes its prompt to stdout, which is for data if it is a pipe
    while True:
        try:
            if not shown_by_input:
                print(_PROMPT, end="", file=sys.stderr, flush=True)
            with _polling_signals():
                line = input(_PROMPT if shown_by_input else "")
            yield line
        except KeyboardInterrupt:
            output.show_note(Note("\n(Ctrl-D or /quit leaves)"))
        except EOFError:
            output.show_note(Note(""))
            return


@contextmanager
def _polling_signals() -> Generator[None]:
    """Let input() look for signals ten times a second.

    It looks only when a signal interrupts its wait for a key, so a Ctrl-C that comes just before it begins to wait
    would count for nothing until the next key.
    """
    if not hasattr(signal, "setitimer"):  # Windows, where input() is told of Ctrl-C
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
    """Lines of stdin; of one that is too long only so much that it is told from others."""
    while line := sys.stdin.readline(MAX_PROMPT_CHARS + 1):
        rest = line
        while rest and not rest.endswith("\n"):
            rest = sys.stdin.readline(_SKIPPED_CHARS)
        yield line.rstrip("\r\n")


@contextmanager
def _history(file: Path) -> Generator[None]:
    """Arrow keys recall earlier lines, of earlier conversations too; the file is the person's alone (0600)."""
    try:
        import readline
    except ImportError:  # an interpreter without it still reads lines
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
"""How much each mode allows unasked; what is piped in may come from anybody, so it cannot allow itself more."""


@dataclass(slots=True)
class _Chat:
    """The slash commands: each takes the rest of its line and says what it did.

    `widest_mode` is as far as `/mode` goes; None where a person types. Only a person attaches files: no rule of the
    workspace stands before that.
    """

    conversation: TerminalConversation
    output: Output
    widest_mode: PermissionMode | None = None
    last_code: int = field(default=DONE)
    attachments: PendingAttachments = field(default_factory=PendingAttachments)

    def print_greeting(self) -> None:
        """Say where the person is and how to come back; in a session that goes on, show where it was left."""
        conversation = self.conversation
        model = conversation.run(conversation.client.resolve_model(conversation.model_name))
        if conversation.session is None:
            self._print(f"{model} in {conversation.new_session_options.workspace}; /help shows the commands")
            if conversation.client.persistent:
                self._print("a new session; later, agx chat -c goes on with it")
        else:
            self._print(f"{model}; /help shows the commands")
            self._show_last_turn()

    def print_resume_hint(self) -> None:
        """Say how to come back."""
        session = self.conversation.session
        if session is not None and self.conversation.client.persistent:
            self._print(f"agx chat --session {session.id} goes on with this session")

    def handle_line(self, line: str) -> bool:
        """Do what a line says; False if it says to leave. What goes wrong is told, and the chat goes on."""
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
        """What is said, with the files that waited for it."""
        return UserMessage(content=validate_prompt(text), attachments=self.attachments.take())

    def run_command(self, line: str) -> bool:
        """Do what a line that begins with a slash says; False if it says to leave."""
        word, _, rest = line[1:].partition(" ")
        if word in ("quit", "exit"):
            return False
        action = self._actions().get(word)
        if action is None:
            near = get_close_matches(word, self._actions(), n=1)
            self._print(f"unknown command /{word}; " + (f"did you mean /{near[0]}?" if near else "/help shows them"))
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
            "/attach [FILE] show or add the files that go along with your next message\n"
            "/detach        send none of them\n"
            "/mode [MODE]   show or change when you are asked\n"
            "/model [M]     show or change the model\n"
            "/tools         what the agent can use\n"
            "/sessions [Q]  the latest sessions, or those in which something is found\n"
            "/open ID       go on with another session\n"
            "/new           begin a new session with your next message\n"
            "/stop          stop the running turn (Ctrl-C)\n"
            "/quit          leave (Ctrl-D)\n"
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
                self._print(f"{word!r} is no mode; modes are: {', '.join(get_args(PermissionMode))}")
                return
            if self.widest_mode is not None and _MODE_RANKS[mode] > _MODE_RANKS[self.widest_mode]:
                self._print_error(
                    f"/mode {mode} allows more, so it is for a terminal; start with --permission-mode {mode}"
                )
                return
            self.conversation.run(self.conversation.change(permission_mode=mode))
        self._print(f"permission mode: {self.conversation.permission_mode}")

    def _tools(self, _: str) -> None:
        known = dict(self.conversation.run(self.conversation.client.tools()))
        for name in self.conversation.tools or known:
            if name in known:
                self._print(f"{name:<18} {known[name].strip().partition(chr(10))[0]}")

    def _model(self, spec: str) -> None:
        conversation = self.conversation
        if spec:
            conversation.run(conversation.client.resolve_model(spec))
            conversation.run(conversation.change(model=spec))
            conversation.model = None
        self._print(f"model: {conversation.run(conversation.client.resolve_model(conversation.model_name))}")

    def _sessions(self, query: str) -> None:
        query = clean_text(query)  # a terminal may send any bytes
        known = self.conversation.run(self.conversation.client.list_sessions(query=query or None, limit=_MAX_LISTED))
        for line in session_rows(known):
            self._print(line)
        if not known:
            self._print("no session has that" if query else "there is no session yet")

    def _open(self, reference: str) -> None:
        conversation = self.conversation
        if not reference:
            self._print("/open ID goes on with a session; /sessions shows them")
            return
        known = conversation.run(find_session(conversation.client, reference, conversation.home))
        if self.widest_mode is not None and _MODE_RANKS[known.record.permission_mode] > _MODE_RANKS[self.widest_mode]:
            self._print_error(f"/open {known.id} allows more, being in mode {known.record.permission_mode}")
            return
        conversation.resume(known)
        self._show_last_turn()

    def _new(self, _: str) -> None:
        self.conversation.session = None
        self._print("a new session begins with your next message")

    def _show_last_turn(self) -> None:
        """The last turn of the session; one that runs is watched, and its questions are asked."""
        conversation, session = self.conversation, self.conversation.session
        assert session is not None
        self._print(f"{session.id} {session.record.name or ''} in {session.record.workspace}")
        place = conversation.run(conversation.client.running_turn(session.id)) if self.widest_mode is None else None
        if place is None:
            conversation.run(show_last_turn(conversation.client, session.id, self.output))
        else:
            self.last_code = conversation.follow_turn(place)

    def _print(self, text: str) -> None:
        self.output.show_note(Note(visible(text)))

    def _print_error(self, text: str) -> None:
        self.output.show_note(Note(visible(text), "bad"))

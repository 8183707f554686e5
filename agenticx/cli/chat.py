"""`agx chat`: a conversation in the terminal, or one message per line from a pipe."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import get_args

from agenticx.cli.conversation import Conversation, add_arguments, open_conversation
from agenticx.cli.exit_codes import DONE
from agenticx.cli.narrate import Note
from agenticx.cli.render import Output, output_for
from agenticx.errors import AgenticXError
from agenticx.llms.assembly import assemble_model
from agenticx.tools.permissions import PermissionMode
from agenticx.tools.visible import visible

__all__ = ["configure", "run"]

_PROMPT = "› "
_HISTORY_LINES = 1000
_LOOK_SECONDS = 0.1
_EPILOG = """\
Type a message and Enter. Ctrl-C stops the running turn, Ctrl-D leaves. /help shows the commands. The conversation is
kept while the process runs. From a pipe each line is one message, and the exit code is that of the last turn;
there /mode cannot allow more than the command line does.

examples:
  agx chat
  agx chat --model ollama:qwen3 --cwd ~/notes
  printf 'List the files here\\nRead README.md\\n' | agx chat"""


def configure(parser: ArgumentParser) -> None:
    parser.epilog = _EPILOG
    add_arguments(parser)


def run(arguments: Namespace) -> int:
    conversation, note = open_conversation(arguments)
    output = output_for(conversation.session.id)
    if note is not None:
        output.note(note)
    typed = sys.stdin.isatty()
    if typed:
        output.note(Note(f"{conversation.model.name} in {conversation.session.workspace}; /help shows the commands"))
    widest = None if typed else conversation.session.permission_mode
    chat = _Chat(conversation, output, base_url=arguments.base_url, widest_mode=widest)
    with _history(conversation.settings.home / "chat_history") if typed else nullcontext(), asyncio.Runner() as runner:
        for line in _typed_lines(output) if typed else _piped_lines():
            if line.startswith("/") and not line.startswith("//"):
                if not chat.command(line):
                    break
            elif line.strip():
                chat.last_code = conversation.turn(runner, line.removeprefix("/"), output)
    return DONE if typed else chat.last_code


def _typed_lines(output: Output) -> Iterator[str]:
    """Lines until Ctrl-D; Ctrl-C drops the line being typed."""
    shown_by_input = sys.stdout.isatty()  # input() writes its prompt to stdout, which is for data if it is a pipe
    while True:
        try:
            if not shown_by_input:
                print(_PROMPT, end="", file=sys.stderr, flush=True)
            with _hearing_ctrl_c():
                line = input(_PROMPT if shown_by_input else "")
            yield line
        except KeyboardInterrupt:
            output.note(Note("\n(Ctrl-D or /quit leaves)"))
        except EOFError:
            output.note(Note(""))
            return


@contextmanager
def _hearing_ctrl_c() -> Generator[None]:
    """Let input() look for signals ten times a second.

    It looks only when a signal interrupts its wait for a key, so a Ctrl-C that comes just before it begins to wait
    would count for nothing until the next key.
    """
    if not hasattr(signal, "setitimer"):  # Windows, where input() is told of Ctrl-C
        yield
        return
    before = signal.signal(signal.SIGALRM, lambda _number, _frame: None)
    try:
        signal.setitimer(signal.ITIMER_REAL, _LOOK_SECONDS, _LOOK_SECONDS)
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _piped_lines() -> Iterator[str]:
    return (line.rstrip("\r\n") for line in sys.stdin)


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

_WIDTHS: Mapping[PermissionMode, int] = {"plan": 0, "default": 1, "accept_edits": 2, "auto": 3}
"""How much each mode allows unasked; what is piped in may come from anybody, so it cannot allow itself more."""


@dataclass(slots=True)
class _Chat:
    """The slash commands: each takes the rest of its line and says what it did.

    `widest_mode` is as far as `/mode` goes; None where a person types.
    """

    conversation: Conversation
    output: Output
    base_url: str | None = None
    widest_mode: PermissionMode | None = None
    last_code: int = field(default=DONE)

    def command(self, line: str) -> bool:
        """Do what a line that begins with a slash says; False if it says to leave."""
        word, _, rest = line[1:].partition(" ")
        if word in ("quit", "exit"):
            return False
        action = self._actions().get(word)
        if action is None:
            near = get_close_matches(word, self._actions(), n=1)
            self._say(f"unknown command /{word}; " + (f"did you mean /{near[0]}?" if near else "/help shows them"))
        else:
            action(rest.strip())
        return True

    def _actions(self) -> Mapping[str, Callable[[str], None]]:
        return {
            "help": self._help,
            "stop": self._stop,
            "mode": self._mode,
            "tools": self._tools,
            "model": self._model,
            "quit": lambda _: None,
        }

    def _help(self, _: str) -> None:
        self._say(
            "/mode [MODE]   show or change when you are asked\n"
            "/model [M]     show or change the model\n"
            "/tools         what the agent can use\n"
            "/stop          stop the running turn (Ctrl-C)\n"
            "/quit          leave (Ctrl-D)\n"
            "//text         a message that begins with a slash"
        )

    def _stop(self, _: str) -> None:
        self._say("no turn is running; while one runs, Ctrl-C stops it")

    def _mode(self, word: str) -> None:
        if word:
            mode = next((mode for mode in get_args(PermissionMode) if mode == word), None)
            if mode is None:
                self._say(f"{word!r} is no mode; modes are: {', '.join(get_args(PermissionMode))}")
                return
            if self.widest_mode is not None and _WIDTHS[mode] > _WIDTHS[self.widest_mode]:
                self._refuse(f"/mode {mode} allows more, so it is for a terminal; start with --permission-mode {mode}")
                return
            self.conversation.session.permission_mode = mode
        self._say(f"permission mode: {self.conversation.session.permission_mode}")

    def _tools(self, _: str) -> None:
        for tool in self.conversation.tools:
            first = tool.schema.description.strip().partition("\n")[0]
            self._say(f"{tool.schema.name:<18} {first}")

    def _model(self, spec: str) -> None:
        if spec:
            try:
                settings = self.conversation.settings
                self.conversation.model = assemble_model(spec, settings, base_url=self.base_url)
            except AgenticXError as exc:
                self._refuse(str(exc))
                return
        self._say(f"model: {self.conversation.model.name}")

    def _say(self, text: str) -> None:
        self.output.note(Note(visible(text)))

    def _refuse(self, text: str) -> None:
        self.output.note(Note(visible(text), "bad"))

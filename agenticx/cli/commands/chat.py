"""The `agx chat` command: a conversation in the terminal, or one message per line from a pipe."""

from __future__ import annotations

import asyncio
import codecs
import io
import os
import signal
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Coroutine
from contextlib import closing
from functools import partial
from types import FrameType
from typing import Any, Self, TypeVar

from agenticx.cli.client.handover import HandoverListener
from agenticx.cli.client.remote import RemoteClient
from agenticx.cli.commands.chat_commands import Chat
from agenticx.cli.commands.message_input import MAX_PROMPT_CHARS
from agenticx.cli.exit_codes import DONE, STOPPED
from agenticx.cli.options import ANSWERS, add_turn_options
from agenticx.cli.terminal.conversation import open_conversation
from agenticx.cli.terminal.event_text import Note, user_message_note
from agenticx.cli.terminal.keyboard import ChatKeyboard
from agenticx.cli.terminal.output import FallbackOutput, Output, output_for
from agenticx.cli.terminal.reasoning_output import ReasoningOutput
from agenticx.cli.terminal.status_line import StatusLine, StatusOutput
from agenticx.cli.terminal.terminal_output import terminal_is_dumb
from agenticx.cli.terminal.turns import termination_signals
from agenticx.core.agent_files import AgentFiles

__all__ = ["configure", "run"]

T = TypeVar("T")

_READ_BYTES = 65_536
_EPILOG = f"""\
Type a message and Enter; Alt-Enter, or a backslash at the end of a line, begins another line, and pasted lines are one
message. Tab completes commands, models and paths. Keys typed during an answer wait for the next prompt. Answers are
rendered as Markdown. The line above the prompt has model, mode, tokens, cost and the context in use. Ctrl-C stops the
running turn, Ctrl-D quits. /help shows the commands; /attach FILE sends an image, PDF or text file with the next
message; /rewind takes your last message back, with what its turn changed in files. /vault, /chat and /agent before a
message choose its mode: from your notes, from general knowledge, or work with tools. @PATH in a message sends that file
with it; !COMMAND runs a command of yours, whose output the model gets with the next message. The model gets the
AGENTS.md of the folder, and of the folders above it in its repository; the first lines name them.

A chat starts a new session, which is stored: -c continues the last one, --session any other, and /sessions, /open and
/new switch between them. One that is in mode auto goes on in it only if you say so. A question that waited when its
process was killed is asked again. `agx serve` takes the sessions over from a chat between two turns, and the chat goes
on through it, or by itself once the server has ended. Several chats share the sessions: the first one runs the turns of
the others, each of which asks its own questions, and when it ends, the next one does. What another terminal or the page
said in the same session is shown before the prompt, once.

From a pipe each line is one message, and the exit code is that of the last turn; there /mode cannot allow more than
the command line does, and /attach is refused.

{ANSWERS}

examples:
  agx chat
  agx chat "fix the bug"                     with a first message
  agx chat -c                                continue the last session
  agx chat --agent page-builder              a session with an agent of a file
  agx chat --model ollama:qwen3 --cwd ~/notes
  printf 'List the files here\\nRead README.md\\n' | agx chat"""


_RESTART_SECONDS = 2.0  # for the next server to start; a chat can go on without one


def configure(parser: ArgumentParser) -> None:
    """Add the arguments and help texts of `agx chat` to its parser."""
    parser.epilog = _EPILOG
    parser.add_argument("message", nargs="*", metavar="MESSAGE", help="the first message, also as several words")
    add_turn_options(parser, with_agent=True)


def run(arguments: Namespace) -> int:
    """Run `agx chat` and return its exit code."""
    is_typed = sys.stdin.isatty() and (sys.stdout.isatty() or sys.stderr.isatty())
    output = StatusOutput(_chat_output() if is_typed else output_for())
    with open_conversation(arguments, output, restart_seconds=_RESTART_SECONDS) as conversation:
        if arguments.agent is not None and not isinstance(conversation.client, RemoteClient):
            AgentFiles(conversation.home).read(arguments.agent)  # a server may have others; the first message checks it
        if arguments.base_url is not None:  # refused for the demo, before the first message is typed
            conversation.run(conversation.client.resolve_model(conversation.model_name))
        chat = Chat(conversation, output)
        if is_typed:
            _run_typed(chat, output, " ".join(arguments.message), was_mode_given=arguments.permission_mode is not None)
            return DONE
        chat.widest_mode = conversation.turn_mode
        with _TerminationSignals() as leaving:
            if arguments.message and not chat.handle_line(" ".join(arguments.message)):
                return chat.last_code
            lines = _PipedLines()
            while (line := leaving.wait_for(conversation.runner, lines.read())) is not None:
                if not chat.handle_line(line):
                    break
        return chat.last_code


def _chat_output() -> Output:
    """Return the output of a chat that is typed: rendered Markdown if the terminal can show it."""
    if not (sys.stdout.isatty() and sys.stderr.isatty()) or terminal_is_dumb():
        return output_for()
    from agenticx.cli.terminal.markdown_output import MarkdownOutput  # rich takes 0.05 s

    return FallbackOutput(ReasoningOutput(MarkdownOutput()))


def _run_typed(chat: Chat, output: StatusOutput, message: str, *, was_mode_given: bool) -> None:
    """Run a chat at a terminal until Ctrl-D, from this first message on if it is not empty."""
    from agenticx.cli.commands.chat_suggestions import ChatSuggestions
    from agenticx.cli.terminal.line_editor import LineCancelled, LineEditor  # prompt_toolkit takes 0.1 s

    conversation = chat.conversation
    suggestions = ChatSuggestions(conversation, chat.command_names)
    status = StatusLine(conversation, output)
    editor = LineEditor(conversation.home / "chat_history", suggestions.suggest, suggestions.prepare, status.text)
    listener = HandoverListener(conversation.home, conversation.wait_until_idle, conversation.hand_over)
    with ChatKeyboard() as keyboard, _TerminationSignals() as leaving, closing(listener):
        conversation.keyboard = keyboard

        async def edit_text(text: str) -> str | None:
            output.show_note(Note("edit the arguments: Enter submits them, Alt-Enter begins a line, Ctrl-C cancels"))
            try:
                return await editor.edit(text)
            except (LineCancelled, EOFError):
                return None

        async def read_message() -> str:
            await conversation.show_turns_elsewhere()
            await status.refresh()
            conversation.at_prompt.set()
            return await editor.read(keyboard.take())

        conversation.edit_text = edit_text
        chat.wait_for_answer = partial(leaving.wait_for, conversation.runner)
        chat.print_greeting(was_mode_given=was_mode_given)
        if conversation.client.persistent:  # through a server too: the chat owns the sessions once that ends
            conversation.run(listener.start())
        if message:
            output.show_note(user_message_note(message))
        while not message or chat.handle_line(message):
            message = ""
            try:
                line = leaving.wait_for(conversation.runner, read_message())
            except LineCancelled:
                output.show_note(Note("(Ctrl-D or /quit exits)"))
                continue
            except EOFError:
                break
            finally:
                conversation.at_prompt.clear()
            if not chat.handle_line(line):
                break
    chat.print_resume_hint()


class _TerminationSignals:
    """SIGTERM and SIGHUP handlers that end the chat at its next prompt, or at once if it waits for a message."""

    def __init__(self) -> None:
        self._received = False
        self._prompt: asyncio.Task[Any] | None = None
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
        if self._prompt is not None:
            self._prompt.get_loop().call_soon_threadsafe(self._prompt.cancel)

    def wait_for(self, runner: asyncio.Runner, prompt: Coroutine[Any, Any, T]) -> T:
        """Return the result of `prompt`; raise SystemExit once a signal was received."""

        async def cancellable() -> T:
            self._prompt = asyncio.current_task()
            if self._received:
                prompt.close()
                raise asyncio.CancelledError
            return await prompt

        try:
            return runner.run(cancellable())
        except asyncio.CancelledError:
            raise SystemExit(STOPPED) from None
        finally:
            self._prompt = None


class _PipedLines:
    """The lines of stdin, read while the event loop runs: other terminals may use the sessions of this process."""

    def __init__(self) -> None:
        self._stream = sys.stdin
        decode = codecs.getincrementaldecoder(self._stream.encoding or "utf-8")
        self._decoder = io.IncrementalNewlineDecoder(decode("replace"), translate=True)
        self._pending = ""
        self._ended = False

    async def read(self) -> str | None:
        """Return the next line, None at the end; one that is too long is cut one character past the limit."""
        line = ""
        while True:
            head, end, rest = self._pending.partition("\n")
            line = (line + head)[: MAX_PROMPT_CHARS + 1]  # so that it is rejected
            self._pending = rest
            if end:
                return line
            if self._ended:
                return line or None
            self._pending = await self._receive()

    async def _receive(self) -> str:
        """Return the characters that have arrived, at least one unless the end has."""
        descriptor = self._stream.fileno()
        while True:
            await _readable(descriptor)
            data = os.read(descriptor, _READ_BYTES)
            self._ended = not data
            if (text := self._decoder.decode(data, final=self._ended)) or self._ended:
                return text


async def _readable(descriptor: int) -> None:
    """Wait until a read would not block; a file always can be read."""
    loop = asyncio.get_running_loop()
    readable = asyncio.Event()
    try:
        loop.add_reader(descriptor, readable.set)
    except (PermissionError, NotImplementedError):  # a file; Windows, where the read blocks the loop
        return
    try:
        await readable.wait()
    finally:
        loop.remove_reader(descriptor)

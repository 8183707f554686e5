"""The `agx chat` command: a conversation in the terminal, or one message per line from a pipe."""

from __future__ import annotations

import asyncio
import codecs
import io
import os
import sys
from argparse import ArgumentParser, Namespace
from typing import TypeVar

from agenticx.cli.client.remote import RemoteClient
from agenticx.cli.commands.chat_commands import Chat
from agenticx.cli.commands.message_input import MAX_PROMPT_CHARS
from agenticx.cli.exit_codes import DONE
from agenticx.cli.options import ANSWERS, add_turn_options
from agenticx.cli.terminal.margin import terminal_is_dumb
from agenticx.cli.terminal.opening import open_conversation
from agenticx.cli.terminal.output import FallbackOutput, Output, output_for
from agenticx.cli.terminal.prompt_screen import PromptScreen
from agenticx.cli.terminal.reasoning_output import ReasoningOutput
from agenticx.cli.terminal.status_line import StatusOutput
from agenticx.cli.terminal.terminal_output import TerminalOutput
from agenticx.cli.terminal.termination import TerminationSignals
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
of the folder with it, one that usually holds keys or passwords after a yes; !COMMAND runs a command of yours, whose
output the model gets with the next message. The model gets the AGENTS.md of the folder, and of the folders above it in
its repository; the first lines name them.

A chat starts a new session, which is stored: -c continues the last one, --session any other, and /sessions, /open and
/new switch between them. One that is in mode auto goes on in it only if you say so. A question that waited when its
process was killed is asked again. `agx serve` takes the sessions over from a chat between two turns, and the chat goes
on through it, or by itself once the server has ended. Several chats share the sessions: the first one runs the turns of
the others, with their own models and keys, each of which asks its own questions, and when it ends, the next one does. A
turn that another terminal or the page runs in the same session appears above the prompt as it runs; its question takes
the place of the prompt once you pause typing, is answered at either, and Ctrl-C leaves it to the other. /stop ends such
a turn.

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
    screen = PromptScreen()
    output = StatusOutput(_chat_output(screen) if is_typed else output_for())
    with open_conversation(arguments, output, restart_seconds=_RESTART_SECONDS) as conversation:
        if arguments.agent is not None and not isinstance(conversation.client, RemoteClient):
            AgentFiles(conversation.home).read(arguments.agent)  # a server may have others; the first message checks it
        if arguments.base_url is not None:  # refused for the demo, before the first message is typed
            conversation.run(conversation.client.resolve_model(conversation.model_name))
        chat = Chat(conversation, output)
        if is_typed:
            was_mode_given = arguments.permission_mode is not None
            from agenticx.cli.commands.typed_chat import TypedChat  # prompt_toolkit takes 0.1 s

            TypedChat(chat, output, screen).run(" ".join(arguments.message), was_mode_given=was_mode_given)
            return DONE
        chat.widest_mode = conversation.turn_mode
        with TerminationSignals() as leaving:
            if arguments.message and not chat.handle_line(" ".join(arguments.message)):
                return chat.last_code
            lines = _PipedLines()
            while (line := leaving.wait_for(conversation.runner, lines.read())) is not None:
                if not chat.handle_line(line):
                    break
        return chat.last_code


def _chat_output(screen: PromptScreen) -> Output:
    """Return the output of a chat that is typed: rendered Markdown if the terminal can show it."""
    if not sys.stderr.isatty():
        return output_for()
    if not sys.stdout.isatty() or terminal_is_dumb():
        return FallbackOutput(TerminalOutput(screen.out, screen.err), screen.out, screen.err)
    from agenticx.cli.terminal.markdown_output import MarkdownOutput  # rich takes 0.05 s

    return FallbackOutput(ReasoningOutput(MarkdownOutput(screen)), screen.out, screen.err)


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

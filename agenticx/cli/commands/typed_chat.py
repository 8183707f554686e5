"""A chat whose messages are typed at the prompt of a terminal, above which the turns of others appear."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, closing
from functools import partial

from agenticx.cli.client.handover import HandoverListener
from agenticx.cli.commands.chat_commands import Chat
from agenticx.cli.commands.chat_suggestions import ChatSuggestions
from agenticx.cli.terminal.event_text import Note, user_message_note
from agenticx.cli.terminal.keyboard import ChatKeyboard
from agenticx.cli.terminal.line_editor import LineCancelled, LineEditor
from agenticx.cli.terminal.prompt_screen import PromptScreen
from agenticx.cli.terminal.status_line import StatusLine, StatusOutput
from agenticx.cli.terminal.termination import TerminationSignals
from agenticx.runtime.interrupts import cancel_and_wait

__all__ = ["TypedChat"]

_EDIT_HELP = Note("edit the arguments: Enter submits them, Alt-Enter begins a line, Ctrl-C cancels")
_LEFT_OPEN = Note("(the question stays open in the other window; /open last asks it here again)")


class TypedChat:
    """A chat at a terminal, on whose screen `output` writes."""

    def __init__(self, chat: Chat, output: StatusOutput, screen: PromptScreen) -> None:
        self._chat = chat
        self._output = output
        self._conversation = conversation = chat.conversation
        suggestions = ChatSuggestions(conversation, chat.command_names)
        self._status = StatusLine(conversation, output)
        self._editor = LineEditor(
            conversation.home / "chat_history",
            suggestions.suggest,
            suggestions.prepare,
            self._status.text,
            output.end_lines,
        )
        screen.prompt = self._editor
        self._keyboard = ChatKeyboard()
        conversation.keyboard = self._keyboard
        conversation.queues_messages = False  # a message that cannot be sent stays at the prompt
        conversation.edit_text, conversation.free_terminal = self._edit_text, self._free_terminal

    def run(self, message: str, *, was_mode_given: bool) -> None:
        """Run the chat until Ctrl-D, from this first message on if it is not empty."""
        chat, conversation = self._chat, self._conversation
        listener = HandoverListener(conversation.home, conversation.wait_until_idle, conversation.hand_over)
        with self._keyboard, TerminationSignals() as leaving, closing(listener):
            chat.wait_for_answer = partial(leaving.wait_for, conversation.runner)
            chat.print_greeting(was_mode_given=was_mode_given)
            if conversation.client.persistent:  # through a server too: the chat owns the sessions once that ends
                conversation.run(listener.start())
            if message:
                self._output.show_note(user_message_note(message))
            while not message or chat.handle_line(message):
                message = ""
                try:
                    line = leaving.wait_for(conversation.runner, self._read_message())
                except LineCancelled:
                    self._output.show_note(Note("(Ctrl-D or /quit exits)"))
                    continue
                except EOFError:
                    break
                finally:
                    conversation.at_prompt.clear()
                if not chat.handle_line(line):
                    break
        chat.print_resume_hint()

    async def _read_message(self) -> str:
        """Return the message that the user types; the turns of others in the session are shown meanwhile."""
        if not self._editor.can_redraw:
            await self._conversation.show_turns_elsewhere()
        await self._status.refresh()
        self._conversation.at_prompt.set()
        prompt = asyncio.create_task(self._editor.read(self._keyboard.take(), self._chat.take_unsent()))
        following = asyncio.create_task(self._follow_turns_elsewhere())
        try:
            await asyncio.wait({prompt, following}, return_when=asyncio.FIRST_COMPLETED)
            if not prompt.done():
                following.result()  # raises if the output failed
                await asyncio.wait({prompt})
        finally:
            await cancel_and_wait(following)  # first, as its question may have the place of the prompt
            await cancel_and_wait(prompt)
        return prompt.result()

    async def _follow_turns_elsewhere(self) -> None:
        if self._editor.can_redraw:
            await self._conversation.follow_turns_elsewhere(self._refresh_status)

    async def _refresh_status(self) -> None:
        await self._status.refresh()
        self._editor.refresh()

    @asynccontextmanager
    async def _free_terminal(self) -> AsyncGenerator[None]:
        """Take the prompt off the screen for a question of a turn of others; Ctrl-C ends the block."""
        try:
            async with self._editor.suspended():
                yield
        except LineCancelled:
            self._conversation.dismiss_requests()
            self._output.show_note(_LEFT_OPEN)

    async def _edit_text(self, text: str) -> str | None:
        self._output.show_note(_EDIT_HELP)
        try:
            return await self._editor.edit(text)
        except (LineCancelled, EOFError):
            return None

"""The prompt of `agx chat` at a terminal, by prompt_toolkit, and what is drawn around it.

1. It is the only module that imports prompt_toolkit, and is imported only by a chat at a terminal.
2. The terminal is not asked for the position of its cursor: its answer, if late, would be taken for typed keys.
3. The history is a file with mode 0600 and one message a line, those that do not fit on one as JSON strings.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic

from prompt_toolkit import PromptSession
from prompt_toolkit.application import Application, in_terminal
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.formatted_text import ANSI, StyleAndTextTuples, to_formatted_text
from prompt_toolkit.formatted_text.utils import split_lines
from prompt_toolkit.history import History
from prompt_toolkit.input import create_input
from prompt_toolkit.input.typeahead import clear_typeahead, store_typeahead
from prompt_toolkit.input.vt100_parser import Vt100Parser
from prompt_toolkit.key_binding import KeyBindings, KeyPress, KeyPressEvent
from prompt_toolkit.keys import Keys
from prompt_toolkit.output import Output as ScreenOutput
from prompt_toolkit.output import create_output
from prompt_toolkit.output.vt100 import Vt100_Output
from prompt_toolkit.shortcuts import CompleteStyle
from prompt_toolkit.utils import is_dumb_terminal

__all__ = ["LineCancelled", "LineEditor", "Suggestion"]

_PROMPT: StyleAndTextTuples = [
    ("bold fg:ansidefault", "› ")
]  # with a colour, the blank is written too, not only skipped
_CONTINUATION = "  "
_PAUSE_SECONDS = 1.0
"""The time without a key after which a question may take the place of the prompt."""
_OTHER_ROWS = 3  # the status, the prompt, and one that stays free
_HISTORY_ENTRIES = 1_000
_HISTORY_BYTES = 4 * 1024 * 1024
_HISTORY_ENTRY_CHARS = 100_000


class LineCancelled(Exception):
    """Raised when the user discards the text with Ctrl-C."""


@dataclass(frozen=True, slots=True)
class Suggestion:
    """A completion of the text before the cursor: `text` replaces its last `replaced` characters."""

    text: str
    replaced: int
    label: str = ""


class LineEditor:
    """A prompt that reads one message at a time.

    `suggest` returns the completions of the text before the cursor; `on_change` is called with the whole text after
    each change; `status` returns a line of that many columns for the place above the prompt; `end_lines` ends what was
    written around the prompt, before the prompt comes or goes. None of them may block.
    """

    def __init__(
        self,
        history_file: Path,
        suggest: Callable[[str], Iterable[Suggestion]],
        on_change: Callable[[str], None],
        status: Callable[[int], str] = lambda columns: "",
        end_lines: Callable[[], None] = lambda: None,
    ) -> None:
        self._input = create_input(sys.stdin)
        self._session: PromptSession[str] = PromptSession(
            self._prompt,
            multiline=True,
            prompt_continuation=_CONTINUATION,
            key_bindings=_key_bindings(self._on_interrupt),
            history=_HistoryFile(history_file),
            completer=_Suggestions(suggest),
            complete_while_typing=False,
            complete_style=CompleteStyle.READLINE_LIKE,  # at once, so that keys typed quickly keep their order
            enable_history_search=True,
            enable_suspend=True,
            interrupt_exception=LineCancelled,
            input=self._input,
            output=_screen(),
        )
        self._session.app.terminal_size_polling_interval = None  # SIGWINCH says it
        self._session.default_buffer.on_text_changed += self._on_text_changed
        self._session.app.before_render += self._before_render
        self._on_change = on_change
        self._status = status
        self._end_lines = end_lines
        self._unfinished = ""
        self._unfinished_lines: list[StyleAndTextTuples] | None = []  # of this text; None until it is drawn
        self._typed_at = 0.0  # monotonic time of the last change of the text
        self._is_suspended = False
        self._edited: PromptSession[str] | None = None  # the prompt of `edit`
        self._interrupt: Callable[[], None] | None = None  # ends what has the place of the prompt

    async def read(self, typed: bytes = b"", text: str = "") -> str:
        """Return the next message, which begins with `text`; `typed` are the keys that were typed before.

        Raises `LineCancelled` at Ctrl-C, EOFError at Ctrl-D on an empty line.
        """
        self._end_lines()
        store_typeahead(self._input, _key_presses(typed))
        return await self._session.prompt_async(default=text)

    # --- the screen around the prompt ---------------------------------------------------------------------------------

    @property
    def can_redraw(self) -> bool:
        """True if the terminal can show something above the prompt."""
        return not is_dumb_terminal()

    @property
    def is_shown(self) -> bool:
        """True while the prompt is on the screen and can be drawn again."""
        return self._shown_app.is_running and (self._edited is not None or not self._is_suspended) and self.can_redraw

    @property
    def _shown_app(self) -> Application[str]:
        return (self._edited or self._session).app

    def erase(self) -> None:
        """Take the prompt off the screen until the next iteration of the event loop."""
        self._shown_app.renderer.erase()
        self._shown_app.invalidate()

    def show_unfinished(self, text: str) -> None:
        """Show lines, with colours, above the status; they replace the last ones."""
        self._unfinished, self._unfinished_lines = text, None
        self._session.app.invalidate()

    def refresh(self) -> None:
        """Draw the prompt again with the present status."""
        self._session.app.invalidate()

    @asynccontextmanager
    async def suspended(self) -> AsyncGenerator[None]:
        """Take the prompt off the screen for the block, once nothing was typed for a while; the text is kept.

        Raise `LineCancelled` if Ctrl-C ends the block.
        """
        while (pause := self._typed_at + _PAUSE_SECONDS - monotonic()) > 0:  # noqa: ASYNC110 - keys come meanwhile
            await asyncio.sleep(pause)
        self._end_lines()
        async with in_terminal():
            self._is_suspended = True
            try:
                async with asyncio.timeout(None) as block:
                    self._interrupt = lambda: block.reschedule(asyncio.get_running_loop().time())
                    yield
            except TimeoutError:
                raise LineCancelled from None
            finally:
                self._interrupt = None
                self._end_lines()
                self._is_suspended = False

    def _on_interrupt(self, app: Application[str]) -> None:
        """Handle SIGINT, as which Ctrl-C arrives while the prompt is suspended."""
        if self._interrupt is not None:
            self._interrupt()
        elif not app.is_done:
            app.exit(exception=LineCancelled())

    def _before_render(self, app: Application[str]) -> None:
        if app.is_done:
            self._end_lines()

    def _prompt(self) -> StyleAndTextTuples:
        """Return the prompt, with the unfinished lines and the status above it while the message is typed."""
        app = self._session.app
        if app.is_done or not self.can_redraw:
            return _PROMPT
        size = app.output.get_size()
        status = self._status(size.columns - 1)
        above: StyleAndTextTuples = [("fg:ansibrightblack", f"{status}\n")] if status else []
        rows = size.rows - _OTHER_ROWS - self._session.default_buffer.document.line_count
        lines = self._lines_of_unfinished()[-rows:] if rows > 0 else []
        return [*(part for line in lines for part in (*line, ("", "\n"))), *above, *_PROMPT]

    def _lines_of_unfinished(self) -> list[StyleAndTextTuples]:
        if self._unfinished_lines is None:
            text = self._unfinished
            self._unfinished_lines = list(split_lines(to_formatted_text(ANSI(text)))) if text else []
        return self._unfinished_lines

    def _on_text_changed(self, buffer: Buffer) -> None:
        self._typed_at = monotonic()
        self._on_change(buffer.text)

    async def edit(self, text: str) -> str:
        """Return `text` as the user changed it; raises as `read` does. Nothing of it gets into the history."""
        clear_typeahead(self._input)
        session: PromptSession[str] = PromptSession(
            _CONTINUATION,
            multiline=True,
            key_bindings=_key_bindings(),
            interrupt_exception=LineCancelled,
            input=self._input,
            output=_screen(),
        )
        self._edited = session
        try:
            return await session.prompt_async(default=text, handle_sigint=False)  # whoever waits for it handles it
        finally:
            self._edited = None
            clear_typeahead(self._input)


def _screen() -> ScreenOutput:
    """Return the terminal to draw on: standard output, or standard error if the former carries data."""
    output = create_output(sys.stdout if sys.stdout.isatty() else sys.stderr)
    if isinstance(output, Vt100_Output):
        output.enable_cpr = False
    return output


def _key_bindings(on_interrupt: Callable[[Application[str]], None] | None = None) -> KeyBindings:
    """Return the keys that differ from a multi-line prompt's own: Enter ends the message, Alt-Enter a line."""
    bindings = KeyBindings()

    if on_interrupt is not None:

        @bindings.add(Keys.SIGINT)
        def _(event: KeyPressEvent) -> None:
            on_interrupt(event.app)

    @bindings.add("enter")
    def _(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        before = buffer.document.text_before_cursor
        backslashes = len(before) - len(before.rstrip("\\"))
        if backslashes % 2 and buffer.document.is_cursor_at_the_end_of_line:
            buffer.delete_before_cursor()
            buffer.insert_text("\n")
        else:
            buffer.validate_and_handle()

    @bindings.add("escape", "enter")
    def _(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    @bindings.add(Keys.Vt100MouseEvent)
    @bindings.add(Keys.CPRResponse)
    def _(event: KeyPressEvent) -> None:
        """Drop a sequence that no terminal was asked for.

        It was pasted: a colour such as ESC [ 31 m is parsed as an event of a mouse, with too few numbers for the
        library's own function.
        """

    return bindings


def _key_presses(typed: bytes) -> list[KeyPress]:
    presses: list[KeyPress] = []
    parser = Vt100Parser(presses.append)
    parser.feed(typed.decode(errors="replace"))
    parser.flush()
    return presses


class _Suggestions(Completer):
    def __init__(self, suggest: Callable[[str], Iterable[Suggestion]]) -> None:
        self._suggest = suggest

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterator[Completion]:
        for suggestion in self._suggest(document.text_before_cursor):
            yield Completion(suggestion.text, -suggestion.replaced, display=suggestion.label or None)


class _HistoryFile(History):
    """The messages of all chats; the latest can be recalled."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self._file = file

    def load_history_strings(self) -> Iterator[str]:
        """Yield the messages, the latest first."""
        return reversed(list(self._read())[-_HISTORY_ENTRIES:])

    def store_string(self, string: str) -> None:
        if len(string) > _HISTORY_ENTRY_CHARS:
            return
        with suppress(OSError):  # a read-only or full disk
            self._file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            if self._file.exists() and self._file.stat().st_size > _HISTORY_BYTES:
                self._shorten()
            self._append(self._file, [string])

    def _shorten(self) -> None:
        shorter = self._file.with_name(f".{self._file.name}.{os.getpid()}")
        shorter.unlink(missing_ok=True)
        self._append(shorter, list(self._read())[-_HISTORY_ENTRIES:])
        shorter.replace(self._file)

    def _append(self, file: Path, strings: Iterable[str]) -> None:
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        with open(descriptor, "w", encoding="utf-8") as stream:
            os.chmod(file, 0o600)  # also where it was there before
            stream.writelines(f"{_encode(string)}\n" for string in strings)

    def _read(self) -> Iterator[str]:
        try:
            lines = self._file.read_text("utf-8", "replace").splitlines()
        except OSError:
            return
        for line in lines:
            if entry := _decode(line):
                yield entry


def _encode(text: str) -> str:
    return text if text.isprintable() and not text.startswith('"') else json.dumps(text)


def _decode(line: str) -> str:
    if not line.startswith('"'):
        return line
    try:
        return str(json.loads(line))
    except ValueError:
        return line

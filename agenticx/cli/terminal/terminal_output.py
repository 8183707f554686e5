"""An output of a turn in colour at a terminal, with a line that is drawn again in place."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING, Any, TextIO

from agenticx.cli.terminal.event_text import PAYLOAD_ERRORS, EventLike, Note, Tone, artifact_line, option_note
from agenticx.cli.terminal.margin import TextMargin, needs_margin, terminal_is_dumb
from agenticx.cli.terminal.plain_output import PlainOutput
from agenticx.log_colors import visible_console
from agenticx.runtime.events import EventType

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["TerminalOutput"]

_MIN_GROWING_COLUMNS = 20
"""The least width of a terminal that shows files while they are written."""

_HELD_SECONDS = 0.2
"""The longest wait of a call's line for a confirmation, which would repeat it."""

_NEXT_STEPS = frozenset(
    {EventType.TOKEN, EventType.THINKING, EventType.FINAL, EventType.ERROR, EventType.ROUND_START, EventType.HANDOFF}
)
"""The events that no confirmation of an earlier call can follow."""

_STYLES: Mapping[Tone, str] = {
    "quiet": "dim",
    "call": "cyan",
    "good": "green",
    "bad": "bold red",
    "warning": "yellow",
    "strong": "bold",
    "added": "green",
    "removed": "red",
}

_PROMPT_STYLE = "reverse yellow"
"""A style that no other text has, so that text of the model cannot look like a question of the program."""


class TerminalOutput(PlainOutput):
    """An output of the same lines, coloured by rich; rich honours NO_COLOR and dumb terminals.

    A file that is being written has a progress line; the next output replaces it. A call that is confirmed here has no
    line of its own, because the confirmation shows it in full: the line of a call waits a moment for a confirmation.
    A prompt is a coloured bar; without colours, text of the model and output of tools have a margin.
    """

    def __init__(self, out: TextIO | None = None, err: TextIO | None = None) -> None:
        super().__init__(out, err)
        self._held_calls = dict[str, Note]()  # lines of calls that are not shown yet, by their ids in call order
        self._held_timer: asyncio.TimerHandle | None = None
        self._asking_calls = dict[str, str]()  # the calls that confirmations are about, by the ids of these
        self._grown_bytes = dict[tuple[object, ...], int]()  # of files that are being written, by call and revision
        self._growing_options = dict[int, str]()  # what is drawn of options that write a file, by number
        self._growing_line = ""  # what is drawn of all of them, or of what is waited for
        self._is_waiting = False  # whether that is something that is waited for
        self._out_margin = TextMargin(self._out) if needs_margin(self._out) else None
        self._err_margin = TextMargin(self._err) if needs_margin(self._err) else None

    @cached_property
    def _console(self) -> Console:
        from rich.console import Console

        return visible_console(Console(file=self._err, highlight=False, soft_wrap=True))

    def _write_note(self, text: str, tone: Tone) -> None:
        self._console.print(text, style=_STYLES[tone], markup=False, emoji=False)

    def _write_out(self, text: str) -> None:
        super()._write_out(text if self._out_margin is None else self._out_margin.add(text))

    def _write_prompt(self, text: str) -> None:
        question = text.rstrip(" ")
        self._console.print(question, style=_PROMPT_STYLE, markup=False, emoji=False, end="")
        self._err.write(text[len(question) :])

    def _write_progress(self, text: str) -> None:
        self._write_quietly(text if self._err_margin is None else self._err_margin.add(text))

    def _write_quietly(self, text: str) -> None:
        self._console.print(text, style="dim italic", markup=False, emoji=False, end="")

    def _show(self, event: EventLike) -> None:
        if event.type in _NEXT_STEPS and not event.data.get("waiting"):
            self._show_held_calls()
        super()._show(event)

    def _show_event_note(self, event: EventLike, note: Note, option: int | None) -> None:
        call_id = self._call_of(event)
        if call_id is None:
            super()._show_event_note(event, note, option)
        elif event.type == EventType.TOOL_CALL:
            self._held_calls[call_id] = note
        else:
            self._show_held_calls(call_id)
            held, self._held_calls = self._held_calls, {}
            super()._show_event_note(event, note, option)
            self._held_calls = held
        if self._held_calls and self._held_timer is None:
            self._held_timer = asyncio.get_running_loop().call_later(_HELD_SECONDS, self._end_holding)

    def _call_of(self, event: EventLike) -> str | None:
        """Return the id of the call that an event is about, None for other events."""
        if event.type in (EventType.TOOL_CALL, EventType.TOOL_PROGRESS, EventType.TOOL_RESULT):
            return event.data["tool_call_id"]
        return self._asking_calls.get(event.data["id"]) if event.type == EventType.CONFIRM_RESPONSE else None

    def _show_held_calls(self, last_id: str | None = None) -> None:
        """Show the lines of calls that were held, up to that of `last_id`; none if that is not held."""
        if last_id is not None and last_id not in self._held_calls:
            return
        held = self._held_calls
        while held:
            call_id = next(iter(held))
            note = held.pop(call_id)
            self._held_calls = {}
            self.show_note(note)
            self._held_calls = held
            if call_id == last_id:
                break

    def _end_holding(self) -> None:
        """Show the lines of calls, as no confirmation followed, unless a request is open or is to be shown."""
        self._held_timer = None
        if self._open_request is None and not any(self._requests.values()):
            with suppress(OSError):  # the next event says that the output failed
                self._show_held_calls()

    def show_note(self, note: Note) -> None:
        self._show_held_calls()
        super().show_note(note)

    def show_request(self, data: Mapping[str, Any], prompt: str) -> None:
        with suppress(*PAYLOAD_ERRORS):
            context: Mapping[str, Any] = data.get("context", data)  # a question has none
            self._held_calls.pop(context["tool_call_id"], None)
        super().show_request(data, prompt)

    def _record(self, event: EventLike) -> None:
        super()._record(event)
        if event.type == EventType.CONFIRM_REQUIRED:
            self._asking_calls[event.data["id"]] = event.data["context"]["tool_call_id"]
        option = self._option_turns.get(event.turn_id)
        if option is not None and (event.terminal or (event.type == EventType.ARTIFACT and event.data["final"])):
            self._growing_options.pop(option, None)

    def _show_growing(self, data: Mapping[str, Any], option: int | None) -> None:
        key = (option, data.get("tool_call_id"), data["path"], data.get("revision"))
        before = self._grown_bytes.get(key, 0) if data.get("offset") else 0
        size = self._grown_bytes[key] = before + len(
            data.get("delta", data.get("content", "")).encode(errors="surrogatepass")
        )
        width = self._console.width - 1
        if width < _MIN_GROWING_COLUMNS or terminal_is_dumb():
            return
        if option is None:
            line = f"{artifact_line({**data, 'size': size})} …"
        else:
            facts = Note(artifact_line({"path": data["path"], "size": size}))
            self._growing_options[option] = option_note(facts, option).text
            line = "; ".join(self._growing_options[number] for number in sorted(self._growing_options)) + " …"
        line = _line_end(line, width)
        if not self._growing_line:
            self._end_open_lines()
        self._draw_line(line)
        self._is_waiting = False

    def show_waiting(self, text: str) -> None:
        is_busy = self._out_open or self._err_open or self._open_request is not None
        if is_busy or (self._growing_line and not self._is_waiting) or terminal_is_dumb():
            return
        width = self._console.width - 1
        if width >= _MIN_GROWING_COLUMNS:
            self._draw_line(_line_end(text, width))
            self._is_waiting = True

    def _draw_line(self, line: str) -> None:
        self._err.write("\r")
        self._write_quietly(line)
        self._err.write("\x1b[K")
        self._err.flush()
        self._growing_line = line

    def _end_progress(self) -> None:
        self._erase_growing()
        super()._end_progress()
        if self._err_margin is not None:
            self._err_margin.end_line()

    def _end_text(self) -> None:
        self._erase_growing()
        super()._end_text()

    def _erase_growing(self) -> None:
        if self._growing_line:
            self._growing_line = ""
            self._err.write("\r\x1b[K")
            self._err.flush()


def _line_end(line: str, width: int) -> str:
    """Return a line, or as much of its end as fits into `width` columns of a terminal."""
    from rich.cells import cell_len

    if cell_len(line) <= width:
        return line
    while (surplus := cell_len(line) - (width - 1)) > 0:
        line = line[max(1, surplus // 2) :]
    return f"…{line}"

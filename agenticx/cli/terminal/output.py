"""The outputs of a turn: text, colours at a terminal, or JSON lines."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, BinaryIO, Protocol, TextIO

from agenticx.cli.client.envelopes import Envelope
from agenticx.cli.terminal.event_text import Note
from agenticx.cli.terminal.plain_output import PlainOutput, readable_json
from agenticx.cli.terminal.terminal_output import TerminalOutput
from agenticx.logs import get_logger
from agenticx.runtime.events import EventType
from agenticx.tools.visible import escape_controls, visible

__all__ = ["FallbackOutput", "JsonLinesOutput", "Output", "OutputLogHandler", "OutputWrapper", "output_for"]

_log = get_logger(__name__)


class Output(Protocol):
    """An output for a turn: the model's text, or the envelopes, go to stdout and everything else to stderr."""

    def show(self, event: Envelope) -> None: ...
    def show_note(self, note: Note) -> None:
        """Show a note that is not an event."""
        ...

    def show_waiting(self, text: str) -> None:
        """Show in place what is waited for, until anything else is shown; nothing on an output that cannot."""
        ...

    def show_log(self, line: str) -> None:
        """Show a line of the log, with its colours, before an open prompt, which is shown again."""
        ...

    def show_request(self, data: Mapping[str, Any], prompt: str) -> None:
        """Show a `confirm_required` or `question_asked` payload in full, then `prompt` with the cursor after it."""
        ...

    def end_lines(self) -> None:
        """End the lines that lack their newline, and draw nothing in place any more, because the screen changes."""
        ...

    def show_prompt(self, prompt: str) -> None:
        """Show `prompt` on a new line, with the cursor after it."""
        ...

    def prompt_answered(self, line: str) -> None:
        """Record the line that the user typed at the prompt; at the end of input the prompt's line stays open."""
        ...

    def prompts_closed(self) -> None:
        """Record that nothing is read at a prompt any more."""
        ...


def output_for(*, as_json: bool = False) -> Output:
    """Return the output for this process: JSON lines if requested, colours if stderr is a terminal, else plain text."""
    if as_json:
        return JsonLinesOutput(sys.stdout.buffer, sys.stderr)
    return FallbackOutput(TerminalOutput() if sys.stderr.isatty() else PlainOutput())


class JsonLinesOutput:
    """An output of the stored envelopes, one per line on stdout; requests and notes go to stderr as plain text.

    At a terminal, control characters in a line are shown as code points; only lines that another program wrote can
    contain them, since stored envelopes are ASCII.
    """

    def __init__(self, out: BinaryIO, err: TextIO) -> None:
        self._out = out
        self._out_is_terminal = out.isatty()
        self._plain = FallbackOutput(PlainOutput(err, err), err, err)

    def show(self, event: Envelope) -> None:
        line = event.line
        if self._out_is_terminal:
            line = escape_controls(line.decode(errors="replace")).encode()
        self._out.write(line + b"\n")
        self._out.flush()

    def show_note(self, note: Note) -> None:
        self._plain.show_note(note)

    def show_waiting(self, text: str) -> None:
        return

    def show_log(self, line: str) -> None:
        self._plain.show_log(line)

    def show_request(self, data: Mapping[str, Any], prompt: str) -> None:
        self._plain.show_request(data, prompt)

    def end_lines(self) -> None:
        self._plain.end_lines()

    def show_prompt(self, prompt: str) -> None:
        self._plain.show_prompt(prompt)

    def prompt_answered(self, line: str) -> None:
        self._plain.prompt_answered(line)

    def prompts_closed(self) -> None:
        self._plain.prompts_closed()


class OutputWrapper:
    """An output that passes everything on to another one; a subclass adds to what is shown."""

    def __init__(self, output: Output) -> None:
        self._output = output

    def show(self, event: Envelope) -> None:
        self._output.show(event)

    def show_note(self, note: Note) -> None:
        self._output.show_note(note)

    def show_waiting(self, text: str) -> None:
        self._output.show_waiting(text)

    def show_log(self, line: str) -> None:
        self._output.show_log(line)

    def show_request(self, data: Mapping[str, Any], prompt: str) -> None:
        self._output.show_request(data, prompt)

    def end_lines(self) -> None:
        self._output.end_lines()

    def show_prompt(self, prompt: str) -> None:
        self._output.show_prompt(prompt)

    def prompt_answered(self, line: str) -> None:
        self._output.prompt_answered(line)

    def prompts_closed(self) -> None:
        self._output.prompts_closed()


class FallbackOutput:
    """An output that writes in plain lines what another one fails to show, so that only an OSError is ever raised.

    An error in formatting is logged; the turn that is shown goes on.
    """

    def __init__(self, output: Output, out: TextIO | None = None, err: TextIO | None = None) -> None:
        self._output = output
        self._out = out or sys.stdout
        self._err = err or sys.stderr
        self._out_open = False  # whether the last text written here lacks its newline
        self._was_logged = False

    def show(self, event: Envelope) -> None:
        text = event.data.get("text") if event.type == EventType.TOKEN else None
        if self._succeeds(partial(self._output.show, event), ends_line=not text):
            return
        if text and isinstance(text, str):
            self._write(self._out, escape_controls(text))
            self._out_open = not text.endswith("\n")
        else:
            self._succeeds(self._output.end_lines)
            self._write(self._err, f"· {visible(event.type)} {readable_json(event.data)}\n")

    def show_note(self, note: Note) -> None:
        if not self._succeeds(partial(self._output.show_note, note)):
            self._write(self._err, f"{visible(note.text)}\n")

    def show_waiting(self, text: str) -> None:
        self._succeeds(partial(self._output.show_waiting, text))

    def show_log(self, line: str) -> None:
        self._output.show_log(line)

    def show_request(self, data: Mapping[str, Any], prompt: str) -> None:
        if not self._succeeds(partial(self._output.show_request, data, prompt)):
            self._write(self._err, f"? {readable_json(data)}\n{visible(prompt)}")

    def end_lines(self) -> None:
        self._succeeds(self._output.end_lines)

    def show_prompt(self, prompt: str) -> None:
        if not self._succeeds(partial(self._output.show_prompt, prompt)):
            self._write(self._err, f"\n{visible(prompt)}")

    def prompt_answered(self, line: str) -> None:
        self._succeeds(partial(self._output.prompt_answered, line))

    def prompts_closed(self) -> None:
        self._succeeds(self._output.prompts_closed)

    def _succeeds(self, show: Callable[[], None], *, ends_line: bool = True) -> bool:
        """Call `show` and return True; log an exception other than OSError and return False."""
        if self._out_open and ends_line:
            self._write(self._out, "\n")
            self._out_open = False
        try:
            show()
        except OSError:  # the stream cannot be written, plainly or otherwise
            raise
        except Exception as exc:
            _log.warning("output failed and is written plainly", error=repr(exc), exc_info=not self._was_logged)
            self._was_logged = True
            return False
        return True

    def _write(self, stream: TextIO, text: str) -> None:
        try:
            stream.write(text)
        except UnicodeEncodeError:
            stream.write(text.encode("ascii", "backslashreplace").decode())
        stream.flush()


class OutputLogHandler(logging.Handler):
    """A handler of the log whose lines are shown by an output, on the event loop that it is created on.

    A line that another thread logs, or the output itself while it shows something, waits for its turn there.
    """

    def __init__(self, output: Output) -> None:
        super().__init__()
        self._output = output
        self._loop = asyncio.get_running_loop()
        self._held: list[str] | None = None

    @contextmanager
    def hold(self) -> Generator[None]:
        """Show no line inside the block, where another program draws on the screen; they are shown afterwards."""
        held: list[str] = []
        self._held = held
        try:
            yield
        finally:
            self._held = None
            for line in held:
                self._show(line)

    def emit(self, record: logging.LogRecord) -> None:
        line = self.format(record)
        try:
            self._loop.call_soon_threadsafe(self._show, line)
        except RuntimeError:  # the loop is closed: the command ends
            self._show(line)

    def _show(self, line: str) -> None:
        if self._held is not None:
            self._held.append(line)
            return
        with suppress(OSError):  # the next event says that the output failed
            self._output.show_log(line)

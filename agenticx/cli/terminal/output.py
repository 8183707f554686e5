"""The outputs that show a turn's events: plain text, a coloured terminal, and JSON lines."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, BinaryIO, Protocol, TextIO

from agenticx.cli.client.envelopes import Envelope
from agenticx.cli.terminal.event_text import (
    PAYLOAD_ERRORS,
    EventLike,
    Note,
    Tone,
    artifact_line,
    event_note,
    option_note,
    option_of,
    request_notes,
    request_payload,
    retry_note,
    unreadable_event_note,
)
from agenticx.log_colors import visible_console
from agenticx.logs import get_logger
from agenticx.runtime.events import ANSWERING_EVENTS, ASKING_EVENTS, EventType
from agenticx.settings import provider_setting
from agenticx.tools.visible import escape_controls, visible

if TYPE_CHECKING:
    from rich.console import Console

__all__ = [
    "FallbackOutput",
    "JsonLinesOutput",
    "Output",
    "OutputWrapper",
    "PlainOutput",
    "TerminalOutput",
    "output_for",
    "terminal_is_dumb",
]

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

    def show_request(self, data: Mapping[str, Any], prompt: str) -> None:
        """Show a `confirm_required` or `question_asked` payload in full, then `prompt` with the cursor after it."""
        ...

    def repeat_request(self) -> None:
        """Show the request again at whose prompt the user may type, as a note came after it; nothing without one."""
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


def terminal_is_dumb() -> bool:
    """Return whether the terminal cannot move its cursor."""
    return (provider_setting("TERM") or "dumb").lower() in ("dumb", "unknown")


class PlainOutput:
    """An output of lines without colour, for pipes and files.

    If stdout is separate from stderr, it carries the model's text and nothing else, so a note in the middle of a
    message does not break a line of it. If both streams share a screen or a file, each starts on a new line. Lines are
    written whole: the terminal wraps them, so that what is copied from it has no other line breaks.
    """

    def __init__(self, out: TextIO | None = None, err: TextIO | None = None) -> None:
        self._out = out or sys.stdout
        self._err = err or sys.stderr
        self._out_is_terminal = self._out.isatty()
        self._share_one_device = self._out_is_terminal or _same_file(self._out, self._err)
        self._turn_model = self._asked_model = ""  # of the turn, and of the call that runs
        self._retries = 0  # of that call, at the same model
        self._message_id = ""  # of the text last written to stdout
        self._out_open = False  # whether the stream's last line lacks its newline
        self._err_open = False
        self._turns_below = set[
            str | None
        ]()  # ids of other child turns, of which requests are shown, and files of options
        self._option_turns = dict[
            str | None, int
        ]()  # the numbers of options, by the ids of their turns and those below
        self._team_turns = set[str | None]()  # ids of turns in which a team runs
        self._speeches = set[str | None]()  # ids of the child turns of these, whose text and calls are shown
        self._speech = ""  # the text of the last one
        self._open_request: str | None = None  # the id of the request whose prompt is shown
        self._shown_request: Mapping[str, Any] = {}  # the payload of the last request shown
        self._prompt = ""  # that prompt
        self._was_typed = False  # whether a line was typed at it
        self._requests: dict[str, Mapping[str, Any] | None] = {}  # those that are open, by id; None once shown

    def show(self, event: EventLike) -> None:
        try:
            self._show(event)
        except UnicodeEncodeError:  # of a stream, not of the payload
            raise
        except PAYLOAD_ERRORS:
            self.show_note(unreadable_event_note(event))

    def _show(self, event: EventLike) -> None:
        self._record(event)
        if self._is_hidden(event):
            return
        option = self._option_turns.get(event.turn_id)
        data = event.data
        if self._show_speech(event):
            return
        match event.type:
            case EventType.TOKEN if data["text"]:
                self._write_text(data["text"], data["message_id"])
            case EventType.THINKING:
                self._show_progress(data["text"])
            case EventType.TOOL_PROGRESS if data.get("output"):
                self._show_progress(data["output"])
            case EventType.ARTIFACT if not data["final"]:
                self._show_growing(data, option)
            case EventType.FINAL if data["text"] and self._message_id != data["message_id"]:
                self._write_text(data["text"], data["message_id"])  # a reply that was not streamed
            case _:
                pass
        if event.terminal:
            self._end_text()
        note = self._retry_note(event) or self._answer_note(event) or event_note(event)
        if note is not None:
            self._show_event_note(event, note, option)

    def _show_event_note(self, event: EventLike, note: Note, option: int | None) -> None:
        self.show_note(note if option is None or event.type != EventType.ARTIFACT else option_note(note, option))
        if event.type != EventType.STALL and self._open_request is not None and not self._was_typed:
            self.show_prompt(self._prompt)

    def _record(self, event: EventLike) -> None:
        """Record whether a turn is below another one, runs a team or is a speech in one, and new requests."""
        if event.type == EventType.SPEAKER_SELECTED:
            self._team_turns.add(event.turn_id)
        elif event.type == EventType.TURN_STARTED and "parent_turn_id" in event.data:
            parent_id = event.data["parent_turn_id"]
            if (option := option_of(event) or self._option_turns.get(parent_id)) is not None:
                self._option_turns[event.turn_id] = option
            is_speech = parent_id in self._team_turns
            (self._speeches if is_speech else self._turns_below).add(event.turn_id)
        elif event.type in ASKING_EVENTS:
            self._requests.setdefault(event.data["id"], request_payload(event))

    def _is_hidden(self, event: EventLike) -> bool:
        """Return True for an event of which nothing is shown.

        It is of another child turn, or only says that work goes on while the prompt of a request is shown.
        """
        if event.turn_id in self._turns_below:
            is_shown = event.type == EventType.ARTIFACT and event.turn_id in self._option_turns
            return not is_shown and event.type not in ANSWERING_EVENTS
        return self._open_request is not None and _is_only_progress(event)

    def _show_speech(self, event: EventLike) -> bool:
        """Show an event that is text of a speech, or repeats it; return False for any other event.

        A stdout of its own gets the answer of the team alone, which is its last speech.
        """
        text = event.data["text"] if event.type in (EventType.TOKEN, EventType.FINAL) else ""
        if event.turn_id in self._team_turns:
            if event.turn_id in self._speeches:  # a team in the team: the end of its turn repeats its last speech
                return bool(text)
            if not (text and self._share_one_device and text == self._speech):
                return False
            self._message_id = event.data["message_id"]  # `final` does not show the text again either
            return event.type == EventType.TOKEN
        if event.turn_id not in self._speeches:
            return False
        if event.type == EventType.TOKEN and text:
            self._speech = text if event.data["offset"] == 0 else self._speech + text
            if self._share_one_device:
                self._write_text(text, event.data["message_id"])
            else:
                self._show_progress(text)
        elif event.terminal:  # the error of a speech is that of the team too
            self._end_text()
        return bool(text) or event.terminal

    def _answer_note(self, event: EventLike) -> Note | None:
        """Return the line for an answer, after the request if it was not shown and has none; None for other events."""
        if event.type not in ANSWERING_EVENTS:
            return None
        request, is_open = self._requests.pop(event.data["id"], None), event.data["id"] == self._open_request
        if is_open:
            self._open_request = None
        if request is not None and event.type == EventType.QUESTION_ANSWERED and not event.data["answer"]:
            self._write_request(request)
        is_elsewhere = request is not None or (is_open and not self._was_typed)
        return event_note(event, is_from_elsewhere=is_elsewhere and event.data["by"] == "user")

    def _retry_note(self, event: EventLike) -> Note | None:
        """Return the line for an event that announces another attempt at the same model, None for any other."""
        data = event.data
        match event.type:
            case EventType.TURN_STARTED:
                self._turn_model = data["model"]
            case EventType.ROUND_START:
                self._asked_model, self._retries = self._turn_model, 0
            case EventType.STALL if data["action"] == "retrying" and "reason" in data:
                is_same = data["model"] == self._asked_model
                self._asked_model, self._retries = data["model"], self._retries + 1 if is_same else 0
                return retry_note(data, self._retries) if is_same else None
            case _:
                pass
        return None

    def show_note(self, note: Note) -> None:
        self._end_open_lines()
        self._write_visible(note)

    def show_waiting(self, text: str) -> None:
        return

    def show_request(self, data: Mapping[str, Any], prompt: str) -> None:
        self._requests[str(data.get("id", ""))] = None
        self._write_request(data)
        self._open_request, self._shown_request = data["id"] if prompt else None, data
        self.show_prompt(prompt)

    def repeat_request(self) -> None:
        if self._open_request is not None and not self._was_typed:
            self.show_request(self._shown_request, self._prompt)

    def _write_request(self, data: Mapping[str, Any]) -> None:
        self._end_open_lines()
        try:
            notes = list(request_notes(data))
        except PAYLOAD_ERRORS:  # all of it, as an answer may be asked for
            notes = [Note(f"? {_readable_json(data)}", "strong")]
        for note in notes:
            self._write_visible(note)

    def show_prompt(self, prompt: str) -> None:
        self._prompt, self._was_typed = prompt, False
        self._end_open_lines()
        self._err.write(visible(prompt))
        self._err.flush()
        self._err_open = bool(prompt)

    def prompt_answered(self, line: str) -> None:
        self._was_typed = True
        self._err_open = not line.endswith("\n")

    def prompts_closed(self) -> None:
        self._open_request = None

    def _write_text(self, text: str, message_id: str) -> None:
        self._end_progress()
        if self._message_id != message_id:
            self._end_text()
        self._message_id = message_id
        self._write_out(escape_controls(text) if self._out_is_terminal else text)

    def _write_out(self, text: str) -> None:
        self._out.write(text)
        self._out.flush()
        self._out_open = not text.endswith("\n")

    def _show_progress(self, text: str) -> None:
        if not self._err_open:
            self._end_open_lines()
        self._write_progress(escape_controls(text))
        self._err.flush()
        self._err_open = not text.endswith("\n")

    def _show_growing(self, data: Mapping[str, Any], option: int | None) -> None:
        """Show the size of a file that is being written, if the output can change a line; its last event is shown."""

    def _end_open_lines(self) -> None:
        self._end_progress()
        if self._share_one_device:
            self._end_text()

    def _end_text(self) -> None:
        if self._out_open:
            self._write_out("\n")

    def _end_progress(self) -> None:
        if self._err_open:
            self._err.write("\n")
            self._err.flush()
            self._err_open = False

    def _write_visible(self, note: Note) -> None:
        """Write a note with control characters escaped; all notes pass here, so none can contain raw ones."""
        self._write_note(visible(note.text), note.tone)

    def _write_note(self, text: str, tone: Tone) -> None:
        self._err.write(f"{text}\n")
        self._err.flush()

    def _write_progress(self, text: str) -> None:
        self._err.write(text)


def _same_file(left: TextIO, right: TextIO) -> bool:
    try:
        return os.path.sameopenfile(left.fileno(), right.fileno())
    except OSError:  # io.UnsupportedOperation too: a stream in memory
        return False


_MIN_GROWING_COLUMNS = 20
"""The width of a terminal from which on it shows files that are being written."""

_HELD_SECONDS = 0.2
"""The longest time for which the line of a call waits for the confirmation that would repeat it."""

_NEXT_STEPS = frozenset(
    {EventType.TOKEN, EventType.THINKING, EventType.FINAL, EventType.ERROR, EventType.ROUND_START, EventType.HANDOFF}
)
"""The events after which no confirmation of an earlier call comes."""

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


def _is_only_progress(event: EventLike) -> bool:
    match event.type:
        case EventType.TOKEN:
            return bool(event.data.get("waiting"))
        case EventType.TOOL_PROGRESS:
            return not event.data.get("output")
        case EventType.ARTIFACT:
            return not event.data["final"]
        case _:
            return event.type == EventType.STALL and event.data["action"] == "waiting"


class TerminalOutput(PlainOutput):
    """An output of the same lines, coloured by rich (which honours NO_COLOR and dumb terminals).

    A file that is being written has a line that changes, which anything else that is shown replaces. A call that is
    confirmed here has no line of its own, as the confirmation shows it in full: lines of calls wait a moment for that.
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

    @cached_property
    def _console(self) -> Console:
        from rich.console import Console

        return visible_console(Console(stderr=True, highlight=False, soft_wrap=True))

    def _write_note(self, text: str, tone: Tone) -> None:
        self._console.print(text, style=_STYLES[tone], markup=False, emoji=False)

    def _write_progress(self, text: str) -> None:
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
        """Show the lines of calls, as no confirmation followed, unless one of another call is open."""
        self._held_timer = None
        if self._open_request is None:
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
        self._write_progress(line)
        self._err.write("\x1b[K")
        self._err.flush()
        self._growing_line = line

    def _end_progress(self) -> None:
        self._erase_growing()
        super()._end_progress()

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

    def show_request(self, data: Mapping[str, Any], prompt: str) -> None:
        self._plain.show_request(data, prompt)

    def repeat_request(self) -> None:
        self._plain.repeat_request()

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

    def show_request(self, data: Mapping[str, Any], prompt: str) -> None:
        self._output.show_request(data, prompt)

    def repeat_request(self) -> None:
        self._output.repeat_request()

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
            self._write(self._err, f"· {visible(event.type)} {_readable_json(event.data)}\n")

    def show_note(self, note: Note) -> None:
        if not self._succeeds(partial(self._output.show_note, note)):
            self._write(self._err, f"{visible(note.text)}\n")

    def show_waiting(self, text: str) -> None:
        self._succeeds(partial(self._output.show_waiting, text))

    def show_request(self, data: Mapping[str, Any], prompt: str) -> None:
        if not self._succeeds(partial(self._output.show_request, data, prompt)):
            self._write(self._err, f"? {_readable_json(data)}\n{visible(prompt)}")

    def repeat_request(self) -> None:
        self._succeeds(self._output.repeat_request)

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


def _readable_json(data: Mapping[str, Any]) -> str:
    return visible(json.dumps(data, indent=2, default=repr))

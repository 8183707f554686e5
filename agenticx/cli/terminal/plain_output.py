"""An output of a turn as lines without colour."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from typing import Any, TextIO

from agenticx.cli.terminal.event_text import (
    PAYLOAD_ERRORS,
    EventLike,
    Note,
    Tone,
    event_note,
    option_note,
    option_of,
    request_notes,
    request_payload,
    retry_note,
    unreadable_event_note,
)
from agenticx.runtime.events import ANSWERING_EVENTS, ASKING_EVENTS, EventType
from agenticx.tools.visible import escape_controls, visible

__all__ = ["PlainOutput", "readable_json"]


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
        self._turn_model = ""  # the model of the turn
        self._asked_model = ""  # the model of the running call
        self._retries = 0  # the attempts of that call at the same model
        self._message_id = ""  # the message of the text last written to stdout
        self._out_open = False  # True if the last line of stdout lacks its newline
        self._err_open = False
        # Ids of turns:
        self._child_turns = set[str | None]()  # hidden, except for their requests and the files of options
        self._option_turns = dict[str | None, int]()  # the turns of options and their child turns, with the option
        self._team_turns = set[str | None]()  # the turns that run a team
        self._speech_turns = set[str | None]()  # the child turns of a team; their text and calls are shown
        self._speech = ""  # the text of the last speech
        self._open_request: str | None = None  # the id of the request with the prompt
        self._prompt = ""
        self._was_typed = False  # True if a line was typed at the prompt
        self._requests: dict[str, Mapping[str, Any] | None] = {}  # the open requests by id; None once shown
        self._left_requests = set[str]()  # ids of requests whose prompt was closed without an answer

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
        """Record new requests, and whether a turn is a child turn, runs a team, or is a speech in one."""
        if event.type == EventType.SPEAKER_SELECTED:
            self._team_turns.add(event.turn_id)
        elif event.type == EventType.TURN_STARTED and "parent_turn_id" in event.data:
            parent_id = event.data["parent_turn_id"]
            if (option := option_of(event) or self._option_turns.get(parent_id)) is not None:
                self._option_turns[event.turn_id] = option
            is_speech = parent_id in self._team_turns
            (self._speech_turns if is_speech else self._child_turns).add(event.turn_id)
        elif event.type in ASKING_EVENTS:
            self._requests.setdefault(event.data["id"], request_payload(event))

    def _is_hidden(self, event: EventLike) -> bool:
        """Return True for an event that is not shown.

        It belongs to a child turn, or only says that work goes on while the prompt of a request is shown.
        """
        if event.turn_id in self._child_turns:
            is_shown = event.type == EventType.ARTIFACT and event.turn_id in self._option_turns
            return not is_shown and event.type not in ANSWERING_EVENTS
        return self._open_request is not None and _is_only_progress(event)

    def _show_speech(self, event: EventLike) -> bool:
        """Show an event that is text of a speech, or repeats it; return False for any other event.

        A stdout of its own gets the answer of the team alone: its last speech.
        """
        text = event.data["text"] if event.type in (EventType.TOKEN, EventType.FINAL) else ""
        if event.turn_id in self._team_turns:
            if event.turn_id in self._speech_turns:  # a team in the team: the end of its turn repeats its last speech
                return bool(text)
            if not (text and self._share_one_device and text == self._speech):
                return False
            self._message_id = event.data["message_id"]  # `final` does not show the text again either
            return event.type == EventType.TOKEN
        if event.turn_id not in self._speech_turns:
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
            self._open_request, self._prompt = None, ""
        if request is not None and event.type == EventType.QUESTION_ANSWERED and not event.data["answer"]:
            self._write_request(request)
        is_unanswered = is_open and not self._was_typed
        is_elsewhere = request is not None or is_unanswered or event.data["id"] in self._left_requests
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

    def show_log(self, line: str) -> None:
        is_prompting = self._err_open and bool(self._prompt) and not self._was_typed
        self._end_open_lines()
        self._err.write(f"{line}\n")
        self._err.flush()
        if is_prompting:
            self.show_prompt(self._prompt)

    def show_request(self, data: Mapping[str, Any], prompt: str) -> None:
        self._requests[str(data.get("id", ""))] = None
        self._left_requests.discard(str(data.get("id", "")))
        self._write_request(data)
        self._open_request = data["id"] if prompt else None
        self.show_prompt(prompt)

    def end_lines(self) -> None:
        self._end_open_lines()

    def _write_request(self, data: Mapping[str, Any]) -> None:
        self._end_open_lines()
        try:
            notes = list(request_notes(data))
        except PAYLOAD_ERRORS:  # all of it, as an answer may be asked for
            notes = [Note(f"? {readable_json(data)}", "strong")]
        for note in notes:
            self._write_visible(note)

    def show_prompt(self, prompt: str) -> None:
        self._prompt, self._was_typed = prompt, False
        self._end_open_lines()
        self._write_prompt(visible(prompt))
        self._err.flush()
        self._err_open = bool(prompt)

    def prompt_answered(self, line: str) -> None:
        self._was_typed = True
        self._err_open = not line.endswith("\n")

    def prompts_closed(self) -> None:
        if self._open_request is not None and not self._was_typed:
            self._left_requests.add(self._open_request)
        self._open_request, self._prompt = None, ""

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

    def _write_prompt(self, text: str) -> None:
        self._err.write(text)

    def _write_progress(self, text: str) -> None:
        self._err.write(text)


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


def _same_file(left: TextIO, right: TextIO) -> bool:
    try:
        return os.path.sameopenfile(left.fileno(), right.fileno())
    except OSError:  # io.UnsupportedOperation too: a stream in memory
        return False


def readable_json(data: Mapping[str, Any]) -> str:
    return visible(json.dumps(data, indent=2, default=repr))

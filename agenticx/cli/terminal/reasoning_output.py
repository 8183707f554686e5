"""An output that sums up the steps of a turn in one line at its end."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from typing import Any

from agenticx.cli.client.envelopes import Envelope
from agenticx.cli.terminal.event_text import PAYLOAD_ERRORS, Note, one_line
from agenticx.cli.terminal.output import Output
from agenticx.core.reasoning import Reasoning, add_event
from agenticx.runtime.events import EventType

__all__ = ["ReasoningOutput"]

_LINE_CHARS = 600
_TIMED = frozenset({EventType.TURN_STARTED, EventType.FINAL, EventType.ERROR})


class ReasoningOutput:
    """An output around another one; a turn with steps ends with a line of these and its seconds."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self._reasoning = Reasoning()
        self._at = 0.0

    def show(self, event: Envelope) -> None:
        self._output.show(event)
        if event.type == EventType.TURN_STARTED and "parent_turn_id" not in event.data:
            self._reasoning = Reasoning()
        with suppress(*PAYLOAD_ERRORS):  # an event of another release, which is shown but is no step
            if event.type in _TIMED:
                self._at = datetime.fromisoformat(json.loads(event.line)["ts"]).timestamp()
            was_done, self._reasoning = self._reasoning.done, add_event(self._reasoning, event, self._at)
            if self._reasoning.done and not was_done and len(self._reasoning.steps) > 1:
                steps = " · ".join(self._reasoning.steps[1:])  # the first one only says that work goes on
                self._output.show_note(
                    Note(one_line(f"({self._reasoning.elapsed_seconds:.0f} s: {steps})", _LINE_CHARS))
                )

    def show_note(self, note: Note) -> None:
        self._output.show_note(note)

    def show_question(self, data: Mapping[str, Any], prompt: str) -> None:
        self._output.show_question(data, prompt)

    def show_prompt(self, prompt: str) -> None:
        self._output.show_prompt(prompt)

    def prompt_answered(self, line: str) -> None:
        self._output.prompt_answered(line)

    def prompts_closed(self) -> None:
        self._output.prompts_closed()

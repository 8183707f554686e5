"""An output that sums up the steps of a turn in one line at its end."""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime

from agenticx.cli.client.envelopes import Envelope
from agenticx.cli.terminal.event_text import PAYLOAD_ERRORS, Note, one_line
from agenticx.cli.terminal.output import Output, OutputWrapper
from agenticx.core.reasoning import Reasoning, add_event
from agenticx.runtime.events import EventType

__all__ = ["ReasoningOutput"]

_LINE_CHARS = 600
_TIMED = frozenset({EventType.TURN_STARTED, EventType.FINAL, EventType.ERROR})


class ReasoningOutput(OutputWrapper):
    """An output around another one; a turn with steps ends with a line of these and its seconds."""

    def __init__(self, output: Output) -> None:
        super().__init__(output)
        self._reasoning = Reasoning()
        self._at = 0.0

    def show(self, event: Envelope) -> None:
        super().show(event)
        if event.begins_root_turn:
            self._reasoning = Reasoning()
        with suppress(*PAYLOAD_ERRORS):  # an event of another release is shown, but is no step
            if event.type in _TIMED:
                self._at = datetime.fromisoformat(event.timestamp).timestamp()
            was_done, self._reasoning = self._reasoning.done, add_event(self._reasoning, event, self._at)
            if self._reasoning.done and not was_done and len(self._reasoning.steps) > 1:
                steps = " · ".join(self._reasoning.steps[1:])  # the first one only says that work goes on
                self._output.show_note(
                    Note(one_line(f"({self._reasoning.elapsed_seconds:.0f} s: {steps})", _LINE_CHARS))
                )

"""The turns of a chat's session that another terminal or the page began: each is shown once, after its end."""

from __future__ import annotations

from dataclasses import dataclass, field

from agenticx.cli.client.base import Client
from agenticx.cli.client.envelopes import Envelope
from agenticx.cli.terminal.event_text import Note
from agenticx.cli.terminal.output import Output
from agenticx.cli.terminal.session_views import show_past_event
from agenticx.runtime.events import EventType

__all__ = ["TurnsElsewhere"]

_HEADING = Note("meanwhile in this session, from another window:")


@dataclass(slots=True)
class TurnsElsewhere:
    """The known part of the log of session `session_id`: all up to the event `seq` was shown, or is of own turns."""

    session_id: str
    seq: int
    own_turns: set[str] = field(default_factory=set[str])
    """The ids of the turns that this terminal began or followed, which it showed while they ran."""

    is_record_old: bool = False
    """True once the session's record has changed."""

    async def show(self, client: Client, output: Output) -> bool:
        """Show the turns of others that have ended since the last call; return True if there are any.

        A turn that still runs is shown by a later call.
        """
        turn, was_shown = _Turn(), False
        async with client.read_log(self.session_id, self.seq) as log:
            async for event in log:
                if event.begins_root_turn:
                    turn = _Turn(event.turn_id, is_own=event.turn_id in self.own_turns)
                if event.type == EventType.SESSION_CHANGED:
                    self.is_record_old = True
                turn.add(event)
                if event.terminal and event.turn_id == turn.id:
                    if turn.events and not was_shown:
                        output.show_note(_HEADING)
                    was_shown = turn.show(output) or was_shown
                    turn = _Turn()
                if turn.id is None:
                    self.seq = event.seq
        return was_shown


@dataclass(slots=True)
class _Turn:
    """A root turn and its events so far, with those of its child turns; of an own turn none are kept."""

    id: str | None = None
    is_own: bool = False
    ids: set[str] = field(default_factory=set[str])
    events: list[Envelope] = field(default_factory=list[Envelope])

    def add(self, event: Envelope) -> None:
        if self.id is None or self.is_own or event.turn_id is None:
            return
        if event.turn_id == self.id or event.data.get("parent_turn_id") in self.ids:
            self.ids.add(event.turn_id)
        if event.turn_id in self.ids:
            self.events.append(event)

    def show(self, output: Output) -> bool:
        for event in self.events:
            show_past_event(event, output)
        return bool(self.events)

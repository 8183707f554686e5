"""The turns of a chat's session that another terminal or the page began: each is shown once, as it runs if possible."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from agenticx.cli.client.base import Client
from agenticx.cli.client.envelopes import Envelope
from agenticx.cli.terminal.event_text import Note, request_payload
from agenticx.cli.terminal.output import Output
from agenticx.cli.terminal.responders import RequestResponder
from agenticx.cli.terminal.session_views import show_past_event
from agenticx.cli.terminal.turns import WaitingLine, show_event
from agenticx.runtime.events import ANSWERING_EVENTS, ASKING_EVENTS, EventType
from agenticx.runtime.user_requests.kinds import kind_of_event

__all__ = ["TurnsElsewhere"]

_HEADING = Note("meanwhile in this session, from another window:")
_GOES_ON = Note("the turn goes on:")


@dataclass(slots=True)
class TurnsElsewhere:
    """The known part of the log of session `session_id`: all up to the event `seq` was shown, or is of own turns."""

    session_id: str
    seq: int
    own_turns: set[str] = field(default_factory=set[str])
    """The ids of the turns that this terminal began or followed, which it showed while they ran."""

    is_record_old: bool = False
    """True once the session's record has changed."""

    is_heading_due: bool = True
    """True if the next event that is shown gets a heading, as something else is on the screen before it."""

    _lost_turns: set[str] = field(default_factory=set[str])
    _turn_id: str | None = None  # the root turn that is shown, None between two of them
    _shown_turns: set[str | None] = field(default_factory=set[str | None])  # with its child turns
    _requests: dict[str, Envelope] = field(default_factory=dict[str, Envelope])  # those that are open, by id

    async def show(self, client: Client, output: Output) -> bool:
        """Show the events of turns of others that were stored since the last call; return True if there are any."""
        was_shown, self.is_heading_due = False, True
        async with client.read_log(self.session_id, self.seq) as log:
            async for event in log:
                if self._advance(event, output):
                    show_past_event(event, output)
                    was_shown = True
        return was_shown

    async def follow(
        self,
        client: Client,
        output: Output,
        responder: RequestResponder,
        on_change: Callable[[], Awaitable[None]],
    ) -> None:
        """Show these events as they are stored, and have their requests answered, until the log cannot be followed.

        `on_change` is called after the end of a turn and after a change of the session's record.
        """
        waiting = WaitingLine(output, is_waiting=False)
        showing = asyncio.create_task(waiting.show())
        try:
            for request in self._requests.values():
                responder.on_asked(kind_of_event(request.type), request_payload(request))
            async with client.follow_log(self.session_id, self.seq) as log:
                async for event in log:
                    await asyncio.sleep(0)  # the keys that were typed come before the next one of many events
                    if self._advance(event, output):
                        if event.begins_root_turn:
                            show_past_event(event, output)
                        else:
                            show_event(event, output, responder)
                        waiting.note(event)
                    if event.terminal or event.type == EventType.SESSION_CHANGED:
                        await on_change()
        finally:
            showing.cancel()
            await responder.aclose()

    def show_again(self, turn_id: str) -> None:
        """Show a turn of this terminal from its beginning, as one of others: the process that ran it has ended."""
        self.own_turns.discard(turn_id)
        self._lost_turns.add(turn_id)

    def dismiss_requests(self) -> None:
        """Ask the open requests no more; they stay open."""
        self._requests.clear()

    def _advance(self, event: Envelope, output: Output) -> bool:
        """Take the next event of the log and return True if it is to be shown."""
        self.seq = event.seq
        if event.type == EventType.SESSION_CHANGED:
            self.is_record_old = True
        if event.begins_root_turn:
            self._turn_id = None if event.turn_id in self.own_turns else event.turn_id
            self._shown_turns = {self._turn_id} - {None}
            self.is_heading_due = self.is_heading_due or self._turn_id is None
            self._requests.clear()
        elif event.data.get("parent_turn_id") in self._shown_turns:
            self._shown_turns.add(event.turn_id)
        if event.turn_id is None or event.turn_id not in self._shown_turns:
            return False
        self._note_request(event)
        if self.is_heading_due:
            output.show_note(_GOES_ON if self._turn_id in self._lost_turns else _HEADING)
            self.is_heading_due = False
        if event.terminal and event.turn_id == self._turn_id:
            self._turn_id, self._shown_turns = None, set()
        return True

    def _note_request(self, event: Envelope) -> None:
        if event.type in ASKING_EVENTS:
            self._requests[str(event.data.get("id"))] = event
        elif event.type in ANSWERING_EVENTS:
            self._requests.pop(str(event.data.get("id")), None)

"""Messages of a person that wait for the running turn: each durable from its acceptance until something came of it.

A message is `posted` in the journal before anyone is told that it was accepted, and `taken` in the very transaction
that stores what came of it: the `turn_started` of its own turn, the `steered` of the one that took it in, or its
`handed_back`; what came with it is in the journal no longer then. One that was posted and not taken is found again
after whatever ended the process.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from agenticx.attachments import fingerprint
from agenticx.errors import SessionBusy
from agenticx.messages import UserMessage, new_id
from agenticx.runtime import EventType, RuntimeEvent
from agenticx.runtime.turn import attached
from agenticx.sessions.base import JournalEntry, TurnRecord
from agenticx.sessions.damage import map_decode_errors
from agenticx.sessions.posting import Posted, PostState, TurnRequest

__all__ = ["Waiting", "WaitingMessage", "fate_of", "posted_key"]

MOST_WAITING = 100
MOST_WAITING_BYTES = 64 * 1024 * 1024
"""Of one session: what its texts and files have together."""

_FATES: dict[EventType, PostState] = {
    EventType.TURN_STARTED: "started",
    EventType.STEERED: "steered",
    EventType.HANDED_BACK: "handed_back",
}


def posted_key(session_id: str, client_turn_id: str) -> str:
    """The key of a message that the client named, in the journal's kinds `posted` and `taken`."""
    return f"{session_id} {client_turn_id}"


@dataclass(slots=True, eq=False, kw_only=True)
class WaitingMessage:
    """One message. It begins turn `turn_id`, or, if it `steers`, is taken into that turn.

    `interrupts`: what runs is stopped for it, be it the turn of an earlier interrupt that has only just begun.
    `given_up`: it is to be handed back once nothing runs. `unsure`: a write about it failed, so that only the journal
    knows whether it was posted, and what came of it. `gone` is set when something did.
    """

    session_id: str
    turn_id: str
    message: UserMessage
    client_turn_id: str | None = None
    model: str | None = None
    steers: bool = False
    interrupts: bool = False
    given_up: bool = False
    unsure: bool = False
    gone: asyncio.Event = field(default_factory=asyncio.Event)

    @classmethod
    def of_request(cls, session_id: str, request: TurnRequest) -> WaitingMessage:
        """A message that is to begin a turn of its own."""
        return cls(
            session_id=session_id,
            turn_id=new_id("turn"),
            message=UserMessage(content=request.input, attachments=request.attachments),
            client_turn_id=request.client_turn_id,
            model=request.model,
            interrupts=request.when_busy == "interrupt",
        )

    @classmethod
    def of_entry(cls, entry: JournalEntry) -> WaitingMessage:
        """The message as it was posted; raises `Damaged`."""
        with map_decode_errors(f"a message that waits in session {entry.session_id!r}"):
            message = UserMessage.model_validate(entry.data["message"])
            known = {key: entry.data[key] for key in ("client_turn_id", "model", "steers")}
            known["interrupts"] = entry.data.get("interrupts", False)
        return cls(session_id=entry.session_id, turn_id=entry.turn_id, message=message, **known)

    @property
    def key(self) -> str:
        if self.client_turn_id is None:
            return self.message.message_id
        return posted_key(self.session_id, self.client_turn_id)

    def entry(self) -> JournalEntry:
        """The durable record of it."""
        data = {
            "message": self.message.model_dump(mode="json"),
            "client_turn_id": self.client_turn_id,
            "model": self.model,
            "steers": self.steers,
            "interrupts": self.interrupts,
        }
        return JournalEntry(kind="posted", key=self.key, session_id=self.session_id, turn_id=self.turn_id, data=data)

    def event(self, type_: EventType) -> RuntimeEvent:
        """`queued` or `handed_back`."""
        data: dict[str, Any] = {"turn_id": self.turn_id, "message_id": self.message.message_id}
        named = {} if self.client_turn_id is None else {"client_turn_id": self.client_turn_id}
        return RuntimeEvent(type_, data | {"input": self.message.content} | attached(self.message) | named)


class Waiting:
    """What waits in one session, in the order in which it is its turn."""

    def __init__(self) -> None:
        self._messages: list[WaitingMessage] = []

    def __iter__(self) -> Iterator[WaitingMessage]:
        return iter(self._messages)

    def __bool__(self) -> bool:
        return bool(self._messages)

    @property
    def first(self) -> WaitingMessage:
        """The one whose turn it is; there must be one."""
        return self._messages[0]

    def get(self, key: str) -> WaitingMessage | None:
        return next((message for message in self._messages if message.key == key), None)

    def add(self, message: WaitingMessage) -> None:
        """Put `message` behind all others; an interrupt before all but the interrupts that came earlier."""
        earlier = sum(one.interrupts for one in self._messages)
        self._messages.insert(earlier if message.interrupts else len(self._messages), message)

    def interrupted(self, turn_id: str | None = None) -> bool:
        """Whether what runs is to end for one of these: for another one than that which began `turn_id`."""
        return any(one.interrupts and not one.given_up and one.turn_id != turn_id for one in self._messages)

    def remove(self, message: WaitingMessage) -> None:
        """Something came of it, or it was not accepted after all."""
        if message in self._messages:
            self._messages.remove(message)
        message.gone.set()

    def give_up(self, turn_id: str | None = None) -> None:
        """All messages, or those of one turn, are to be handed back."""
        for message in self._messages:
            message.given_up = message.given_up or turn_id in (None, message.turn_id)

    def check_room(self, message: UserMessage) -> None:
        """Raise `SessionBusy` if `message` would be too much."""
        size = _size(message) + sum(_size(one.message) for one in self)
        if len(self._messages) >= MOST_WAITING or size > MOST_WAITING_BYTES:
            raise SessionBusy(
                f"{len(self._messages)} messages wait already; no more than {MOST_WAITING}, with"
                f" {MOST_WAITING_BYTES // 1024 // 1024} MiB of texts and files together, may wait in a session"
            )

    # --- what came of them --------------------------------------------------------------------------------------------

    def taken(self, turn_id: str | None, events: Sequence[RuntimeEvent], seq: int) -> Iterator[JournalEntry]:
        """The records to be stored with `events`, the first of which gets the number behind `seq`."""
        for place, event, message in self._met(events):
            yield JournalEntry(
                kind="taken",
                key=message.key,
                session_id=message.session_id,
                turn_id=turn_id or message.turn_id,
                data={
                    "state": _FATES[event.type],
                    "after_seq": seq + place,
                    "message_id": message.message.message_id,
                    "client_turn_id": message.client_turn_id,
                    "input": message.message.content,
                    "attached": fingerprint(message.message.attachments),
                },
            )

    def doubt(self, events: Sequence[RuntimeEvent]) -> None:
        """`events` are about to be stored."""
        for _, _, message in self._met(events):
            message.unsure = True

    def stored(self, events: Sequence[RuntimeEvent]) -> None:
        """`events` are on disk."""
        for _, _, message in list(self._met(events)):
            self.remove(message)

    def _met(self, events: Sequence[RuntimeEvent]) -> Iterator[tuple[int, RuntimeEvent, WaitingMessage]]:
        by_id = {message.message.message_id: message for message in self._messages}
        for place, event in enumerate(events):
            if event.type in _FATES and (message := by_id.get(event.data["message_id"])) is not None:
                yield place, event, message


def _size(message: UserMessage) -> int:
    text = len(message.content.encode("utf-8", "surrogatepass"))
    return text + sum(file.size for file in message.attachments)


def fate_of(taken: JournalEntry) -> Posted:
    """What came of a message, the turn being the one that it was to begin."""
    data = taken.data
    with map_decode_errors(f"the journal of session {taken.session_id!r}"):
        turn = TurnRecord(
            id=taken.turn_id,
            session_id=taken.session_id,
            input=data["input"],
            attachments_digest=data["attached"],
            client_turn_id=data["client_turn_id"],
        )
        return Posted(state=data["state"], turn=turn, message_id=data["message_id"], after_seq=data["after_seq"])

"""The message queue of a session: each message is durable from its acceptance on.

The fact `message_posted` is stored before a message's acceptance is reported, and `message_taken` in the commit of its
outcome: the `turn_started` of its own turn, the `steered` of the turn that took it in, or its `handed_back`. The
attachments are removed then. A message that is posted and not taken is restored at the next start, however the process
ended.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal

from agenticx.attachments import fingerprint
from agenticx.errors import SessionBusy
from agenticx.llms.sampling import Sampling
from agenticx.messages import UserMessage, new_id
from agenticx.permissions.verdict import PermissionMode
from agenticx.runtime import EventType, RuntimeEvent, Steering
from agenticx.runtime.events import QueuedEvent
from agenticx.runtime.events.payloads import QueuedData
from agenticx.runtime.turn import attachment_data
from agenticx.sessions.hub.submission import Submission, SubmissionState, TurnRequest
from agenticx.sessions.log.events import decode
from agenticx.sessions.log.records import Fact, MessagePosted, MessageTaken
from agenticx.sessions.log.session_record import TurnRecord
from agenticx.sessions.store.base import SessionLog, read_log_pages
from agenticx.settings import given_provider_variables

__all__ = ["MessageQueue", "QueuedMessage", "message_key", "read_queued", "recorded_submission", "steer"]

MAX_QUEUED_MESSAGES = 100
MAX_QUEUED_BYTES = 64 * 1024 * 1024
"""Limit for the texts and files of one session's queue together."""

_OUTCOMES: dict[EventType, Literal["started", "steered", "handed_back"]] = {
    EventType.TURN_STARTED: "started",
    EventType.STEERED: "steered",
    EventType.HANDED_BACK: "handed_back",
}


def message_key(session_id: str, client_turn_id: str) -> str:
    """Return the key of a message with a `client_turn_id` in the facts `message_posted` and `message_taken`."""
    return f"{session_id} {client_turn_id}"


@dataclass(slots=True, eq=False, kw_only=True)
class QueuedMessage:
    """A message in the queue; it begins the turn `turn_id`, or, if it `steers`, is taken into that turn.

    - `interrupts`: the running turn is stopped for it, even if an earlier interrupt has only just begun that turn.
    - `cancelled`: it is handed back as soon as no turn runs.
    - `refused`: it was reported as failed, although it may be stored.
    - `resolved` is set once it has an outcome.
    - `provider_variables`, of its terminal, are not stored.
    """

    session_id: str
    turn_id: str
    message: UserMessage
    client_turn_id: str | None = None
    model: str | None = None
    permission_mode: PermissionMode | None = None
    sampling: Sampling | None = None
    output_schema: Mapping[str, Any] | None = None
    mode: str | None = None
    vaults: tuple[str, ...] | None = None
    steers: bool = False
    interrupts: bool = False
    cancelled: bool = False
    refused: bool = False
    resolved: asyncio.Event = field(default_factory=asyncio.Event)
    provider_variables: Mapping[str, str] = field(default_factory=given_provider_variables, repr=False)

    @classmethod
    def from_request(cls, session_id: str, request: TurnRequest) -> QueuedMessage:
        """Return a message that is to begin a turn of its own."""
        return cls(
            session_id=session_id,
            turn_id=new_id("turn"),
            message=UserMessage(content=request.input, attachments=request.attachments),
            client_turn_id=request.client_turn_id,
            model=request.model,
            permission_mode=request.permission_mode,
            sampling=request.sampling,
            output_schema=request.output_schema,
            mode=request.mode,
            vaults=request.vaults,
            interrupts=request.when_busy == "interrupt",
        )

    @classmethod
    def from_fact(cls, session_id: str, fact: MessagePosted) -> QueuedMessage:
        """Return the message of a fact."""
        own = {one.name: getattr(fact, one.name) for one in fields(fact) if one.name != "key"}
        return cls(session_id=session_id, **own)

    @classmethod
    def from_event(cls, session_id: str, data: QueuedData) -> QueuedMessage:
        """Return the message of a `queued` event, without attachments, to be handed back."""
        return cls(
            session_id=session_id,
            turn_id=data["turn_id"],
            message=UserMessage(content=data["input"], message_id=data["message_id"]),
            client_turn_id=data.get("client_turn_id"),
            cancelled=True,
        )

    @property
    def key(self) -> str:
        """The key of the message's facts: by its `client_turn_id`, or its message id if it has none."""
        if self.client_turn_id is None:
            return self.message.message_id
        return message_key(self.session_id, self.client_turn_id)

    def to_turn(self) -> TurnRecord:
        """Return the record of the turn that the message begins."""
        return TurnRecord(
            id=self.turn_id,
            session_id=self.session_id,
            input=self.message.content,
            attachments_digest=fingerprint(self.message.attachments),
            client_turn_id=self.client_turn_id,
            model=self.model,
            permission_mode=self.permission_mode,
            sampling=self.sampling,
            output_schema=self.output_schema,
            mode=self.mode,
            vaults=self.vaults,
        )

    def to_submission(self, after_seq: int) -> Submission:
        """Return the state of the message, which has no outcome yet."""
        state: SubmissionState = "steered" if self.steers else "queued"
        return Submission(state=state, turn=self.to_turn(), message_id=self.message.message_id, after_seq=after_seq)

    def to_fact(self) -> Fact:
        """Return the `message_posted` fact of the message."""
        return MessagePosted(**{one.name: getattr(self, one.name) for one in fields(MessagePosted)})

    def to_json(self) -> dict[str, Any]:
        """Return the message as an entry of the list of waiting messages."""
        shown = {**self.to_event(EventType.QUEUED).data}
        return shown | {"state": "steered" if self.steers else "queued"}

    def to_event(self, type_: EventType, **more: Any) -> RuntimeEvent:
        """Return the message's event of type `queued` or `handed_back`; `more` are further keys of its payload."""
        data: dict[str, Any] = {"turn_id": self.turn_id, "message_id": self.message.message_id}
        client_id = {} if self.client_turn_id is None else {"client_turn_id": self.client_turn_id}
        shown = attachment_data(self.message) | client_id | more
        return RuntimeEvent(type_, data | {"input": self.message.content} | shown)


class MessageQueue:
    """The queued messages of one session: `messages`, in the order in which they run."""

    def __init__(self) -> None:
        self.messages: list[QueuedMessage] = []

    def get(self, key: str) -> QueuedMessage | None:
        return next((message for message in self.messages if message.key == key), None)

    def find(self, message_id: str) -> QueuedMessage | None:
        """Return the waiting message of that id, else None; a message that is to be handed back does not wait."""
        waiting = (message for message in self.messages if not message.cancelled)
        return next((message for message in waiting if message.message.message_id == message_id), None)

    def changed(self, message: QueuedMessage, text: str | None) -> QueuedMessage:
        """Return a copy of a message with another text; raise `SessionBusy` if that is too long for the queue."""
        if text is None:
            return replace(message)
        content = message.message.model_copy(update={"content": text})
        self._check_size(content, [other for other in self.messages if other is not message])
        return replace(message, message=content)

    def apply_change(self, message: QueuedMessage, changed: QueuedMessage) -> None:
        """Copy the changed fields into the message; an interrupt goes before others."""
        is_moved = changed.interrupts and not message.interrupts
        for one in ("message", "turn_id", "steers", "interrupts"):
            setattr(message, one, getattr(changed, one))
        if is_moved:
            self.messages.remove(message)
            self.add(message)

    def add(self, message: QueuedMessage) -> None:
        """Append `message`; an interrupt goes before all messages other than earlier interrupts."""
        earlier = sum(queued.interrupts for queued in self.messages)
        self.messages.insert(earlier if message.interrupts else len(self.messages), message)

    def has_interrupt(self, turn_id: str | None = None) -> bool:
        """Return whether the running turn must end for a message of another turn than `turn_id`."""
        return any(
            message.interrupts and not message.cancelled and message.turn_id != turn_id for message in self.messages
        )

    def remove(self, message: QueuedMessage) -> None:
        """Remove a message that has an outcome or was not accepted, and set its `resolved` event."""
        if message in self.messages:
            self.messages.remove(message)
        message.resolved.set()

    def clear(self) -> None:
        """Remove all messages and set their `resolved` events."""
        for message in list(self.messages):
            self.remove(message)

    def cancel(self, turn_id: str | None = None) -> None:
        """Mark the messages of all turns, or of one, to be handed back."""
        for message in self.messages:
            message.cancelled = message.cancelled or turn_id in (None, message.turn_id)

    def check_capacity(self, message: UserMessage) -> None:
        """Raise `SessionBusy` if `message` would exceed the queue's limits."""
        self._check_size(message, self.messages)

    def _check_size(self, message: UserMessage, others: Sequence[QueuedMessage]) -> None:
        size = _size(message) + sum(_size(queued.message) for queued in others)
        if len(others) >= MAX_QUEUED_MESSAGES or size > MAX_QUEUED_BYTES:
            raise SessionBusy(
                f"{len(others)} messages are queued already; the queue of a session holds at most"
                f" {MAX_QUEUED_MESSAGES} messages and {MAX_QUEUED_BYTES // 1024 // 1024} MiB of texts and files"
            )

    # --- outcomes -----------------------------------------------------------------------------------------------------

    def taken_facts(self, turn_id: str | None, events: Sequence[RuntimeEvent], seq: int) -> Iterator[Fact]:
        """Yield the `message_taken` facts to store with `events`; the first event gets the number `seq + 1`."""
        for index, event, message in self._resolved_by(events):
            yield MessageTaken(
                key=message.key,
                turn_id=turn_id or message.turn_id,
                state=_OUTCOMES[event.type],
                after_seq=seq + index,
                message_id=message.message.message_id,
                client_turn_id=message.client_turn_id,
                input=message.message.content,
                attached=fingerprint(message.message.attachments),
            )

    def mark_stored(self, events: Sequence[RuntimeEvent]) -> None:
        """Remove the messages whose outcome is in `events`, which are stored."""
        for _, _, message in list(self._resolved_by(events)):
            self.remove(message)

    def _resolved_by(self, events: Sequence[RuntimeEvent]) -> Iterator[tuple[int, RuntimeEvent, QueuedMessage]]:
        """Yield the index, event and message of each outcome in `events`."""
        by_id = {message.message.message_id: message for message in self.messages}
        for index, event in enumerate(events):
            if event.type in _OUTCOMES and (message := by_id.get(event.data["message_id"])) is not None:
                yield index, event, message


async def steer(
    message: QueuedMessage, steering: Steering | None, own_turn_id: str, commit: Callable[..., Awaitable[object]]
) -> None:
    """Let the running turn take in a queued message, or queue it for its own turn if that one is ending.

    `steering` belongs to the running turn, None if none runs; `commit` is the method of the session's writer.
    """
    if steering is not None and steering.put(message.message):
        return
    event = replace(message, turn_id=own_turn_id, steers=False).to_event(EventType.QUEUED)

    def on_stored() -> None:
        message.turn_id, message.steers = own_turn_id, False

    await commit(None, [event], on_stored=on_stored)


def _size(message: UserMessage) -> int:
    text = len(message.content.encode("utf-8", "surrogatepass"))
    return text + sum(file.size for file in message.attachments)


async def read_queued(log: SessionLog, session_id: str, keys: Collection[str]) -> list[QueuedMessage]:
    """Return the messages with these keys from their last `queued` events, for messages with damaged facts.

    Raises `DamagedData` for events that cannot be read.
    """
    found: dict[str, QueuedMessage] = {}
    async for page in read_log_pages(log, session_id):
        for stored in page:
            if stored.type is EventType.QUEUED:
                event = decode(stored).event
                assert isinstance(event, QueuedEvent)
                message = QueuedMessage.from_event(session_id, event.data)
                found[message.key] = message
    return [found[key] for key in keys if key in found]


def recorded_submission(session_id: str, taken: MessageTaken) -> Submission:
    """Return the submission of a fact; its turn is the one for the message, also if it never began."""
    turn = TurnRecord(
        id=taken.turn_id,
        session_id=session_id,
        input=taken.input,
        attachments_digest=taken.attached,
        client_turn_id=taken.client_turn_id,
    )
    return Submission(state=taken.state, turn=turn, message_id=taken.message_id, after_seq=taken.after_seq)

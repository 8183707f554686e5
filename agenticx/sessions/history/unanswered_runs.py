"""The work of runs that ended without an answer, as messages.

A run is a turn whose work takes the place of the model calls; its attempts are turns below it. The conversation has the
user's message and the answer of each run. Of one without an answer, since it was interrupted, stopped or failed, the
calls of all its attempts may have taken effect, so they belong to the conversation, as those of an interrupted turn do.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest

from agenticx.messages import AssistantMessage, Message, UserMessage
from agenticx.sessions.history.rebuild import messages_of_agent
from agenticx.sessions.store.base import Log, read_log_pages
from agenticx.sessions.store.damage import map_decode_errors
from agenticx.sessions.store.records import StoredEvent

__all__ = ["with_unanswered_runs"]


async def with_unanswered_runs(log: Log, session_id: str, conversation: Sequence[Message]) -> list[Message]:
    """Return the conversation with the calls, results and texts of runs without an answer behind their messages.

    The log is read only if there are messages of the user without an answer. Raises `DamagedData`.
    """
    pairs = zip_longest(conversation, conversation[1:])
    unanswered = {one.message_id for one, after in pairs if _is_input(one) and (after is None or _is_input(after))}
    if not unanswered:
        return list(conversation)
    attempts = _Attempts(unanswered)
    async for page in read_log_pages(log, session_id):
        attempts.feed(page)
    messages: list[Message] = []
    for message in conversation:
        messages.append(message)
        for attempt in attempts.by_message_id.get(message.message_id, ()):
            messages += _work_of(attempt)
    return messages


def _is_input(message: Message) -> bool:
    return isinstance(message, UserMessage) and not message.injected


@dataclass(slots=True)
class _Attempt:
    """The events of a turn that `agent_id` began."""

    turn_id: str | None
    agent_id: str
    events: list[StoredEvent] = field(default_factory=list[StoredEvent])


class _Attempts:
    """The attempts, in order, of each run that the user's messages with these ids began, by the message's id."""

    def __init__(self, message_ids: Collection[str]) -> None:
        self._message_ids = message_ids
        self._runs: dict[str | None, tuple[str, str]] = {}  # the message's id and its text, by turn id
        self.by_message_id: dict[str, list[_Attempt]] = {}
        self._by_turn_id: dict[str | None, _Attempt] = {}

    def feed(self, events: Iterable[StoredEvent]) -> None:
        """Read the next events of the log."""
        for event in events:
            if event.type == "turn_started":
                with map_decode_errors("the log of a session"):
                    self._begin(event)
            if (attempt := self._by_turn_id.get(event.turn_id)) is not None:
                attempt.events.append(event)

    def _begin(self, event: StoredEvent) -> None:
        envelope = json.loads(event.frame_json)
        data = envelope["data"]
        parent_id, text = data.get("parent_turn_id"), data["input"]
        if parent_id is None and data["message_id"] in self._message_ids:
            self._runs[event.turn_id] = data["message_id"], text
        elif parent_id in self._runs and self._runs[parent_id][1] == text:  # else a turn of a guide rail
            attempt = self._by_turn_id[event.turn_id] = _Attempt(event.turn_id, envelope["agent_id"])
            self.by_message_id.setdefault(self._runs[parent_id][0], []).append(attempt)


def _work_of(attempt: _Attempt) -> Sequence[Message]:
    """Return the messages of an attempt without the user's, and without an answer that its run did not return."""
    _, *messages = messages_of_agent(attempt.events, attempt.agent_id)
    has_ended = attempt.events[-1].type == "final"
    if has_ended and messages and isinstance(last := messages[-1], AssistantMessage) and not last.tool_calls:
        messages.pop()
    return messages

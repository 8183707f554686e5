"""The messages of earlier task runs of an executor, for the model's conversation.

A run is a turn whose work replaces the model calls; its attempts are child turns. The stored conversation has only the
user's message and the answer of each run. The calls of all attempts may have taken effect, so they belong between the
two, as the calls of any other turn do.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from agenticx.messages import AssistantMessage, Message, UserMessage
from agenticx.runtime.events import Event, TurnStartedEvent
from agenticx.runtime.history_sizes import count_characters
from agenticx.sessions.history.model_history import messages_of_agent
from agenticx.sessions.history.subagent_notices import with_subagent_notices
from agenticx.sessions.log.events import SessionEvent, StoredEvent, TokenMerger, decode
from agenticx.sessions.log.records import Fact, SubagentFact
from agenticx.sessions.log.turn_tree import TurnTree
from agenticx.sessions.store.base import SessionLog, read_log_pages

__all__ = ["with_task_run_messages"]

_MOST_CHARS, _MOST_MESSAGES = 24_000, 8  # of the work of runs, the latest first; below the limits of compaction


async def with_task_run_messages(log: SessionLog, session_id: str, conversation: Sequence[Message]) -> list[Message]:
    """Return the conversation with the calls, results and texts of earlier runs behind the messages that began them.

    The latest runs are complete as long as they are short; of older runs only the message and the answer are returned,
    since nothing compacts this conversation for good. The log is read only if a message began a run. Raises
    `DamagedData`.
    """
    inputs = {one.message_id for one in conversation if isinstance(one, UserMessage) and not one.injected}
    if not inputs:
        return list(conversation)
    attempts = _Attempts(inputs)
    async for page in read_log_pages(log, session_id):
        attempts.feed(page)
    work = attempts.work(await log.facts(session_id, SubagentFact))
    messages, chars, count = list[Message](), 0, 0
    for message in reversed(conversation):
        done = work.get(message.message_id, ()) if chars < _MOST_CHARS and count < _MOST_MESSAGES else ()
        chars, count = chars + count_characters(done), count + len(done)
        messages += (*reversed(done), message)
    return messages[::-1]


@dataclass(frozen=True, slots=True)
class _Attempt:
    """A turn that `agent_id` began in a run, which the message `message_id` had begun."""

    agent_id: str
    message_id: str


class _Attempts:
    """The attempts, in order, of the runs that the user's messages with these ids began."""

    def __init__(self, message_ids: Collection[str]) -> None:
        self._message_ids = message_ids
        self._runs: dict[str | None, tuple[str, str]] = {}  # the message's id and its text, by turn id
        self._attempts: dict[str | None, _Attempt] = {}  # by turn id
        self._tree = TurnTree()
        self._events = TokenMerger()

    def feed(self, events: Iterable[StoredEvent]) -> None:
        """Read the next events of the log."""
        for event in events:
            if event.type == "turn_started":
                self._begin(decode(event).event)
            if event.turn_id in self._attempts:
                self._events.add(decode(event))

    def work(self, facts: Sequence[Fact]) -> dict[str, list[Message]]:
        """Return the messages of the attempts by the ids of the messages that began the runs."""
        events: dict[str | None, list[SessionEvent]] = {}
        for entry in with_subagent_notices(self._events.events(), facts):
            events.setdefault(entry.turn_id, []).append(entry)
        found: dict[str, list[Message]] = {}
        for turn_id, attempt in self._attempts.items():
            found.setdefault(attempt.message_id, []).extend(_work_of(events[turn_id], attempt.agent_id))
        return found

    def _begin(self, event: Event) -> None:
        assert isinstance(event, TurnStartedEvent)
        self._tree.apply(event)
        parent_id, text = self._tree[event.turn_id or ""].parent_id, event.data["input"]
        if parent_id is None and event.data["message_id"] in self._message_ids:
            self._runs[event.turn_id] = event.data["message_id"], text
        elif parent_id in self._runs and self._runs[parent_id][1] == text:  # else a turn of a guide rail
            self._attempts[event.turn_id] = _Attempt(event.agent_id, self._runs[parent_id][0])


def _work_of(events: Sequence[SessionEvent], agent_id: str) -> Sequence[Message]:
    """Return the messages of an attempt between the message and the answer of its run, or none."""
    _, *messages = messages_of_agent(events, agent_id)
    has_ended = events[-1].event.type == "final"
    if has_ended and messages and isinstance(last := messages[-1], AssistantMessage) and not last.tool_calls:
        messages.pop()
    return messages

"""What the parsers of all wires share: bytes in, deltas out, and how far the reply is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any

from agenticx.errors import ModelError
from agenticx.llms._json_events import JsonEvents, malformed
from agenticx.llms.base import Delta, ReplySize

__all__ = ["JsonReply"]


class JsonReply(ABC):
    """One reply, read from its `events`; a wire adds what it takes from each of them and, perhaps, from their end.

    After each `feed` look at the state: `error` (raise it), `done` (stop reading), `finishing` (it is whole already,
    although something that belongs to it may follow). `who` names the provider in errors, `model` the model that the
    reply's provider state belongs to.
    """

    def __init__(self, events: JsonEvents, *, who: str, model: str) -> None:
        self.error: ModelError | None = None
        self.done = False
        self.finishing = False
        self._who = who
        self._model = model
        self._events = events
        self._size = ReplySize(label=who)
        self._ended = False

    @property
    def held(self) -> int:
        """Bytes of an event that has begun: the next call may have to parse as much."""
        return self._events.held

    def feed(self, data: bytes) -> list[Delta]:
        """The deltas of all events that `data` completes; none any more once the reply is `done` or in `error`."""
        return [] if self.done or self.error else self._read(self._events.feed(data))

    def end(self) -> list[Delta]:
        """What the clean end of the body completes. No complete `Finished` is in it without a wire's end marker."""
        if self.done or self.error:
            return []
        self._ended = True
        return self._read(self._events.end())

    def _read(self, events: Iterator[dict[str, Any]]) -> list[Delta]:
        deltas: list[Delta] = []
        try:
            for event in events:
                self._take_event(event, deltas)
                if self.done:
                    break
            if (self._ended or self._events.closed) and not self.done:
                self._conclude(deltas)
        except ModelError as exc:
            self.error = exc
        except RecursionError:
            self.error = malformed("an event is nested too deeply", who=self._who)
        if too_much := self._size.truncate(deltas):
            self.error = too_much
        return deltas

    # --- what a wire says

    @abstractmethod
    def _take_event(self, event: dict[str, Any], deltas: list[Delta]) -> None:
        """Add the deltas of one event. Sets `done` or `finishing` at the end marker; raises `ModelError`."""

    def _conclude(self, deltas: list[Delta]) -> None:  # noqa: B027 - on most wires the events say it all
        """Add what is only known once no event follows, in a reply that is not `done`; raises `ModelError`."""

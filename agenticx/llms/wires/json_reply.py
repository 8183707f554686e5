"""The base of all wires' reply parsers: bytes in, deltas out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from agenticx.errors import ModelError
from agenticx.llms.base import Delta, ReplySize
from agenticx.llms.wires.json_events import JsonEventParser, malformed_reply

__all__ = ["JsonReplyParser"]


class JsonReplyParser(ABC):
    """A parser of one reply from its `events`; a wire implements the handling of each event and of the end.

    After each `feed` the caller checks the state: `error` (raise it), `done` (stop reading), `finishing` (the reply is
    complete, although more that belongs to it may follow). `buffered_bytes` counts the bytes of an incomplete event
    that the next call may have to parse. `label` names the provider in errors, `model` is the model of the provider
    state.
    """

    def __init__(self, events: JsonEventParser, *, label: str, model: str) -> None:
        self.error: ModelError | None = None
        self.done = False
        self.finishing = False
        self.buffered_bytes = 0
        self._label = label
        self._model = model
        self._events = events
        self._size = ReplySize(label=label)
        self._ended = False

    def feed(self, data: bytes) -> list[Delta]:
        """Return the deltas of all events that `data` completes; none once the reply is `done` or has an `error`."""
        return [] if self.done or self.error else self._read(self._events.feed(data))

    def end(self) -> list[Delta]:
        """Return the deltas that the clean end of the body completes.

        Without the wire's end marker they contain no complete `Finished`.
        """
        if self.done or self.error:
            return []
        self._ended = True
        return self._read(self._events.end())

    def _read(self, events: Sequence[dict[str, Any]]) -> list[Delta]:
        deltas: list[Delta] = []
        self.buffered_bytes = self._events.buffered_bytes
        try:
            for event in events:
                self._handle_event(event, deltas)
                if self.done:
                    break
            if not self.done:
                if self._events.error is not None:
                    raise self._events.error
                if self._ended or self._events.closed:
                    self._handle_end(deltas)
        except ModelError as exc:
            self.error = exc
        except RecursionError:
            self.error = malformed_reply("an event is nested too deeply", label=self._label)
        if error := self._size.truncate(deltas):
            self.error = error
        return deltas

    # --- implemented by the wires

    @abstractmethod
    def _handle_event(self, event: dict[str, Any], deltas: list[Delta]) -> None:
        """Add the deltas of one event; set `done` or `finishing` at the end marker; raise `ModelError`."""

    def _handle_end(self, deltas: list[Delta]) -> None:  # noqa: B027 - most wires need nothing at the end
        """Add the deltas that are only known after the last event, if the reply is not `done`; raise `ModelError`."""

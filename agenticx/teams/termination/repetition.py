"""Repetition in a conversation: the loop detector over speeches."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Sequence
from functools import cached_property
from itertools import islice

from agenticx.runtime.loop_detector import LoopDetector
from agenticx.teams.messages import (
    BaseAgentEvent,
    BaseChatMessage,
    HandoffMessage,
    ThoughtEvent,
    ToolCallExecutionEvent,
)

__all__ = ["Repetition", "repeated_speeches"]

_SPEECHES = 100
_NORMALIZED_CHARS = 2_000
_NO_WORD = re.compile(r"\W+")


def repeated_speeches(messages: Sequence[BaseAgentEvent | BaseChatMessage], repeats: int) -> int:
    """Return `Repetition.count` of a conversation."""
    repetition = Repetition()
    for message in _last(messages):
        repetition.add(message)
    return repetition.count(repeats)


def _last(messages: Sequence[BaseAgentEvent | BaseChatMessage]) -> Sequence[BaseAgentEvent | BaseChatMessage]:
    """Return the end of a conversation, with as many speeches as are compared."""
    speeches = 0
    for place in range(len(messages) - 1, -1, -1):
        speeches += isinstance(messages[place], BaseChatMessage)
        if speeches > _SPEECHES:
            return messages[place:]
    return messages


class Repetition:
    """The last speeches of a conversation since the user's last message."""

    def __init__(self) -> None:
        self._speeches: deque[_Speech] = deque(maxlen=_SPEECHES)  # the last one first
        self._work: list[ToolCallExecutionEvent | ThoughtEvent] = []  # since the last speech

    def add(self, message: BaseAgentEvent | BaseChatMessage) -> None:
        """Add the next message of the conversation."""
        if isinstance(message, ToolCallExecutionEvent | ThoughtEvent):
            self._work.append(message)
        elif isinstance(message, BaseChatMessage):
            if message.source == "user":
                self._speeches.clear()
            else:
                self._speeches.appendleft(_Speech(message, self._work))
            self._work = []

    def count(self, repeats: int) -> int:
        """Return the number of last speeches that only repeat what was said, 0 below the threshold.

        The threshold is reached when each of the speakers says the same for the `repeats`-th time. Short texts are
        compared without case and punctuation. Different results of tools make a difference, and so do different texts
        with the call of a handoff.
        """
        speakers = len({speech.source for speech in self._speeches})
        threshold = (repeats - 1) * speakers + 1
        if len(self._speeches) < threshold:
            return 0
        recent = [(speech.source, speech.words) for speech in islice(self._speeches, 2 * (repeats + 1) * speakers)]
        if recent[0] not in recent[1:]:
            return 0
        detector = LoopDetector(threshold, threshold)
        for source, words in reversed(recent):
            detector.record_call(source, words)
        verdict = detector.check()
        return verdict.count if verdict is not None else 0


class _Speech:
    """A chat message, with the results of the tools that its source used before it, and the texts with these calls."""

    def __init__(self, message: BaseChatMessage, work: Sequence[ToolCallExecutionEvent | ThoughtEvent]) -> None:
        self.source = message.source
        self._message = message
        self._work = [event for event in work if event.source == self.source]

    @cached_property
    def words(self) -> str:
        """The compared text: the words of a short message, a long one as it is, and the results.

        Of a handoff it has the text beside its call too, which is work, but no reason: models find a new one each time.
        """
        compared = [_words(self._message.to_text())]
        for event in self._work:
            if isinstance(event, ToolCallExecutionEvent):
                compared += [result.content for result in event.content]
            elif event.beside_calls and isinstance(self._message, HandoffMessage):
                compared.append(_words(event.content))
        return "\n".join(compared)


def _words(text: str) -> str:
    words = _NO_WORD.sub(" ", text.casefold()).strip() if len(text) <= _NORMALIZED_CHARS else ""
    return words or text

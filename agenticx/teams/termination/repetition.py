"""Repetition in a conversation: the loop detector over speeches."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from agenticx.runtime.repetition.loop_detector import LoopDetector
from agenticx.teams.messages import BaseAgentEvent, BaseChatMessage, ToolCallExecutionEvent

__all__ = ["repeated_speeches"]

_SPEECHES = 100
_NORMALIZED_CHARS = 2_000
_NO_WORD = re.compile(r"\W+")


def repeated_speeches(messages: Sequence[BaseAgentEvent | BaseChatMessage], repeats: int) -> int:
    """Return the number of last speeches that only repeat what was said, 0 below the threshold.

    The threshold is that each of the speakers says the same for the `repeats`-th time. Case and punctuation of short
    texts make no difference, other results of tools do. A message of the user begins anew.
    """
    speeches = list(islice(_last_speeches(messages), _SPEECHES))
    speakers = len({speech.message.source for speech in speeches})
    threshold = (repeats - 1) * speakers + 1
    if len(speeches) < threshold:
        return 0
    recent = [(speech.message.source, speech.words()) for speech in speeches[: 2 * (repeats + 1) * speakers]]
    if recent[0] not in recent[1:]:
        return 0
    detector = LoopDetector(threshold, threshold)
    for source, words in reversed(recent):
        detector.record_call(source, words)
    verdict = detector.check()
    return verdict.count if verdict is not None else 0


@dataclass(frozen=True, slots=True)
class _Speech:
    """A chat message, with the results of the tools that its source used before it."""

    message: BaseChatMessage
    results: Sequence[str]

    def words(self) -> str:
        """Return what is compared: the words of a short text, a long one as it is, and the results."""
        text = self.message.to_text()
        words = _NO_WORD.sub(" ", text.casefold()).strip() if len(text) <= _NORMALIZED_CHARS else ""
        return "\n".join([words or text, *self.results])


def _last_speeches(messages: Sequence[BaseAgentEvent | BaseChatMessage]) -> Iterator[_Speech]:
    """Yield the speeches since the user's last message, the last one first."""
    message: BaseChatMessage | None = None
    results: list[str] = []
    for record in reversed(messages):
        if isinstance(record, BaseChatMessage):
            if message is not None:
                yield _Speech(message, results)
            if record.source == "user":
                return
            message, results = record, []
        elif message is not None and isinstance(record, ToolCallExecutionEvent) and record.source == message.source:
            results += [result.content for result in record.content]
    if message is not None:
        yield _Speech(message, results)

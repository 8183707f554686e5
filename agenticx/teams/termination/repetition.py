"""Repetition in a conversation: the loop detector over speeches."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from agenticx.runtime.repetition.loop_detector import LoopDetector
from agenticx.teams.messages import BaseAgentEvent, BaseChatMessage, ToolCallExecutionEvent

__all__ = ["repeated_speeches"]

_REMEMBERED = 100
_NO_WORD = re.compile(r"\W+")


def repeated_speeches(messages: Sequence[BaseAgentEvent | BaseChatMessage], repeats: int) -> int:
    """Return the number of last speeches that only repeat what was said, 0 below the threshold.

    The threshold is that each of the speakers says the same for the `repeats`-th time. Case and punctuation make no
    difference, other results of tools do. A message of the user begins anew, and the last 100 speeches count.
    """
    speeches = list(islice(_last_speeches(messages), _REMEMBERED))[::-1]
    speakers = len({speech.source for speech in speeches})
    threshold = (repeats - 1) * speakers + 1
    if len(speeches) < threshold:
        return 0
    detector = LoopDetector(threshold, threshold)
    for speech in speeches:
        detector.record_call(speech.source, speech.words)
    verdict = detector.check()
    return verdict.count if verdict is not None else 0


@dataclass(frozen=True, slots=True)
class _Speech:
    """A chat message as it is compared: its words, and the results of the tools before it."""

    source: str
    words: str


def _last_speeches(messages: Sequence[BaseAgentEvent | BaseChatMessage]) -> Iterator[_Speech]:
    """Yield the speeches since the user's last message, the last one first."""
    message: BaseChatMessage | None = None
    results: list[str] = []
    for record in reversed(messages):
        if isinstance(record, BaseChatMessage):
            if message is not None:
                yield _speech(message, results)
            message, results = record, []
            if message.source == "user":
                return
        elif message is not None and isinstance(record, ToolCallExecutionEvent) and record.source == message.source:
            results += [result.content for result in record.content]
    if message is not None:
        yield _speech(message, results)


def _speech(message: BaseChatMessage, results: Sequence[str]) -> _Speech:
    text = message.to_text()
    words = _NO_WORD.sub(" ", text.casefold()).strip() or text
    return _Speech(message.source, "\n".join([words, *results]))

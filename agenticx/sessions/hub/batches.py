"""The batches of a turn's events, as they are stored."""

from __future__ import annotations

from collections.abc import Sequence

from agenticx.runtime import EventType, RuntimeEvent

__all__ = ["merge_deltas"]

_DELTAS = frozenset({EventType.TOKEN, EventType.THINKING})
_ENDINGS = frozenset({EventType.FINAL, EventType.ERROR, EventType.SUBAGENT_PAUSED})


def merge_deltas(batch: Sequence[RuntimeEvent]) -> list[RuntimeEvent]:
    """Return `batch` up to its terminal event, with neighbouring text deltas of one message merged into one delta.

    >>> one, two = (RuntimeEvent(EventType.TOKEN, {"text": t, "message_id": "m", "offset": o}) for t, o in ("a0", "b1"))
    >>> [event.data["text"] for event in merge_deltas([one, two])]
    ['ab']
    """
    merged: list[RuntimeEvent] = []
    texts: list[str] = []  # of the run of deltas whose first one is the last event in `merged`
    for event in batch:
        if texts and _can_merge(merged[-1], event):
            texts.append(event.data["text"])
            continue
        if len(texts) > 1:
            _join_texts(merged, texts)
        merged.append(event)
        texts = [event.data["text"]] if event.type in _DELTAS and "waiting" not in event.data else []
        if event.type in _ENDINGS and event.terminal:
            break
    if len(texts) > 1:
        _join_texts(merged, texts)
    return merged


def _can_merge(first: RuntimeEvent, event: RuntimeEvent) -> bool:
    return (
        event.type is first.type
        and event.agent_id == first.agent_id
        and event.data["message_id"] == first.data["message_id"]
        and "waiting" not in event.data
    )


def _join_texts(merged: list[RuntimeEvent], texts: list[str]) -> None:
    first = merged[-1]
    merged[-1] = RuntimeEvent(first.type, {**first.data, "text": "".join(texts)}, first.agent_id, first.turn_id)

"""Logs of many events, written through the store in a process that ends afterwards."""

from __future__ import annotations

from agenticx.runtime import EventType, RuntimeEvent
from agenticx.sessions import SqliteStore, TurnRecord
from tests.support.faults.servers import RecordedFolder

BATCH_EVENTS = 1000


async def append_long_turn(recorded: RecordedFolder, count: int, turn_id: str, *, over: bool = False) -> str:
    """Append a turn of `count` events to the folder's only session; return the session's id."""
    store = SqliteStore(recorded.database)
    (record,) = await store.sessions()
    await store.claim(TurnRecord(id=turn_id, session_id=record.id, input="x"))
    seq = await store.last_seq(record.id)
    started = RuntimeEvent(EventType.TURN_STARTED, {"input": "x", "model": "plan", "message_id": "msg_x"})
    seq = (await store.append(record.id, turn_id, [started], expected_seq=seq))[-1].seq
    for start in range(0, count, BATCH_EVENTS):
        tokens = [_token(number) for number in range(start, min(start + BATCH_EVENTS, count))]
        seq = (await store.append(record.id, turn_id, tokens, expected_seq=seq))[-1].seq
    if over:
        usage = {"input_tokens": 1, "output_tokens": count}
        final = {"text": "", "message_id": "msg_long", "reason": "answer", "usage": usage}
        await store.append(record.id, turn_id, [RuntimeEvent(EventType.FINAL, final)], expected_seq=seq)
    await store.aclose()
    return record.id


def _token(number: int) -> RuntimeEvent:
    text = f"word {number:08} "
    return RuntimeEvent(EventType.TOKEN, {"text": text, "message_id": "msg_long", "offset": number * len(text)})

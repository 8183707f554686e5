"""Random conversations with rewinds: their transcripts, exports and forks agree with each other."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agenticx.llms import ScriptedModel
from agenticx.sessions import Hub, SessionRecord, Store, export_jsonl, fork, read_log_pages
from agenticx.sessions.history.log_end import fold_end
from agenticx.sessions.history.model_history import NOT_RUN_RESULT
from agenticx.sessions.history.transcript import Conversation, read_conversation, read_last_messages
from agenticx.sessions.history.turns_on_path import TurnsOnPath, read_logged_session
from agenticx.sessions.log.events import decode, decode_line
from agenticx.sessions.log.turn_tree import TurnTree
from agenticx.settings import load_settings
from agenticx.testing import call, check_grammar
from agenticx.tools import tool

pytestmark = pytest.mark.anyio

NOW = "2026-01-01T00:00:00.000Z"


@tool(risk="read")
def look(at: str) -> str:
    """Look at something."""
    return f"{at} is there"


class RandomSession:
    """A session whose user sends messages, rewinds to any message of any branch, and forks anywhere."""

    def __init__(self, store: Store, hub: Hub, session_id: str, rng: random.Random) -> None:
        self.store, self.hub, self.id, self.rng = store, hub, session_id, rng

    async def message_ids(self) -> list[str]:
        """Return the ids of all messages, those that were rewound away too."""
        conversation = await read_conversation(self.store.log, self.id)
        return list(conversation.entries)

    async def send(self) -> None:
        before = await self.hub.messages(self.id)
        async for _ in self.hub.run_turn(self.id, f"question {len(before)}"):
            pass
        assert (await self.hub.messages(self.id))[: len(before)] == before

    async def rewind(self) -> None:
        """Rewind, and undo it half of the time."""
        before = await self.hub.messages(self.id)
        logged = await read_logged_session(self.store.log, self.id)
        conversation = logged.conversation
        target = self.rng.choice(list(conversation.entries))
        path = conversation.path(target)
        done = await self.hub.rewind(self.id, target)
        assert await self.hub.messages(self.id) == [entry.message for entry in path]
        calls = TurnsOnPath(logged, path).calls()
        results = {entry.message["tool_call_id"] for entry in path if entry.message["role"] == "tool"}
        assert calls == results
        if self.rng.random() < 0.5:
            await self.hub.rewind(self.id, done.undo)
            assert await self.hub.messages(self.id) == before

    async def fork(self) -> None:
        """Fork at a message: the fork has that path, and a result for each call whose turn a rewind or the fork cut."""
        conversation = await read_conversation(self.store.log, self.id)
        target = self.rng.choice(list(conversation.entries))
        made = await fork(self.store, self.id, target, now=NOW)
        copied = await read_conversation(self.store.log, made.id)
        path, kept = conversation.path(target), copied.path()
        shown = [entry.message for entry in kept if entry.message["content"] != NOT_RUN_RESULT]
        assert shown == [entry.message for entry in path]
        called = {one["id"] for message in shown for one in message.get("tool_calls", ())}
        assert {entry.message["tool_call_id"] for entry in kept if entry.message["role"] == "tool"} == called
        assert list(copied.entries) == [entry.id for entry in kept]
        decoded = [decode(event).event async for page in read_log_pages(self.store.log, made.id) for event in page]
        check_grammar(decoded)
        tree = TurnTree.of(decoded)
        assert {turn.status for turn in tree.turns.values()} == {"ended"}
        assert tree.turns.keys().isdisjoint(conversation.tree.turns)

    async def pages(self) -> None:
        """Read the messages page by page, and the ends of the log that are enough for each."""
        log, whole = self.store.log, await self.hub.messages(self.id)
        limit, read = self.rng.randrange(1, 6), list[dict[str, Any]]()
        while len(read) < len(whole):
            before = read[0]["message_id"] if read else None
            rows = await read_last_messages(log, self.id, limit, before=before)
            end = [row["message_id"] for row in rows].index(before) if before else len(rows)
            read = [*rows[max(0, end - limit) : end], *read]
            assert read == whole[-len(read) :]
        folded = await fold_end(
            log,
            self.id,
            lambda is_whole: Conversation(is_whole=is_whole),
            lambda conversation: len(conversation.last_messages()) > limit,
            first_events=self.rng.randrange(1, 40),
        )
        rows = folded.last_messages()
        assert rows == whole[len(whole) - len(rows) :]
        assert len(rows) >= min(limit + 1, len(whole))

    async def export(self) -> None:
        lines = b"".join([part async for part in export_jsonl(self.store.log, self.id)]).splitlines()
        exported = Conversation()
        exported.feed_decoded(map(decode_line, lines))
        assert exported.messages() == await self.hub.messages(self.id)


def replies(rng: random.Random) -> list[Any]:
    """Return the replies for many turns: answers, some after calls."""
    turns = [[call("look", {"at": f"place {number}"}), f"seen {number}"] for number in range(40)]
    turns = [turn if rng.random() < 0.5 else turn[1:] for turn in turns]
    return [reply for turn in turns for reply in turn]


async def test_transcript_fork_rewind_and_export_of_a_random_session_agree(
    store: Store, tmp_path: Path, rng: random.Random, count: Callable[..., int]
) -> None:
    settings = load_settings({"home": tmp_path / "home"}, environ={})
    for _ in range(count(2, 6, 40)):
        model = ScriptedModel(replies(rng))
        hub = Hub(store, models=lambda _, model=model: model, tools=lambda _: [look], settings=settings)
        record = SessionRecord(workspace=str(tmp_path), created_at=NOW)
        await store.create(record)
        session = RandomSession(store, hub, record.id, rng)
        await session.send()
        for _ in range(12):
            await rng.choice(
                [session.send, session.send, session.rewind, session.fork, session.export, session.pages]
            )()
        await hub.close()

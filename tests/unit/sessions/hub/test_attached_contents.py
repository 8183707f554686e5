"""Contents of large attachments are stored by their digest, beside the commits that name them."""

from __future__ import annotations

import logging
import os
from base64 import b64encode
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from agenticx import UserMessage
from agenticx.attachments import Attachment, make_attachment
from agenticx.errors import StoreError
from agenticx.llms import ScriptedModel
from agenticx.messages import Message
from agenticx.runtime import ConfirmAnswer
from agenticx.sessions import BlobFolder, Commit, Hub, Store, StoredEvent, TurnRequest, fork, read_messages
from agenticx.sessions.store.attachments import SMALLEST_CONTENT
from agenticx.sessions.store.blobs import content_digest
from agenticx.settings import load_settings
from tests.support.intercepted_store import InterceptedStore, Write
from tests.support.sessions import SessionHarness, wait_for_turn_end
from tests.support.two_hubs import hub_over
from tests.support.wires.files import contents

pytestmark = pytest.mark.anyio

OpenStore = Callable[[], Store]

CONTENT = contents["image/png"] + os.urandom(SMALLEST_CONTENT)
PICTURE = make_attachment("large.png", CONTENT)
SMALL = make_attachment("small.png", contents["image/png"])


def attached(messages: Sequence[Message]) -> list[tuple[Attachment, ...]]:
    """Return the attachments of each message of the user."""
    return [message.attachments for message in messages if isinstance(message, UserMessage)]


def size_in_memory(commit: Commit) -> int:
    return len(repr(commit.state)) + len(repr(commit.facts))


async def run_turn(hub: Hub, store: Store, session_id: str, text: str, *files: Attachment) -> None:
    turn = await hub.start(session_id, TurnRequest(input=text, attachments=files))
    events = await store.log.read(session_id, 0, turn.after_seq or 0) if turn.after_seq else []
    await wait_for_turn_end(store, session_id, ends=1 + sum(event.terminal for event in events))


@asynccontextmanager
async def opened(store: Store, model: ScriptedModel, tmp_path: Path, **settings: object) -> AsyncGenerator[Hub]:
    loaded = load_settings({"home": tmp_path / "home", "workspace_root": tmp_path} | settings, environ={})
    hub = hub_over(store, models=lambda _: model, tools=lambda _: [], settings=loaded)
    await hub.recover()
    try:
        yield hub
    finally:
        await hub.close()
        await store.aclose()


async def new_session(hub: Hub) -> str:
    return (await (hub.hubs[0] if hasattr(hub, "hubs") else hub).create()).id


async def test_a_queued_file_is_stored_before_the_commits_that_name_it_and_reaches_the_model_after_a_restart(
    tmp_path: Path, open_store: OpenStore
) -> None:
    commits: list[Commit] = []

    async def around(write: Write) -> Sequence[StoredEvent]:
        for digest in write.commit.blobs:
            assert store.blobs is not None
            assert content_digest(await store.blobs.get(write.session_id, digest) or b"") == digest
        commits.append(write.commit)
        return await write.make()

    def intercepted() -> Store:
        nonlocal store
        store = InterceptedStore(open_store(), around)
        return store

    store: Store
    harness = SessionHarness(tmp_path, intercepted)
    hub, question = await harness.open_with_confirmation()
    request = TurnRequest(input="look", attachments=(PICTURE, SMALL), when_busy="queue", client_turn_id="c1")
    assert (await hub.submit(harness.session_id, request)).state == "queued"
    await harness.close(hub)
    hub = await harness.open("done", "seen", "still there")
    assert (await hub.submit(harness.session_id, request)).state == "queued"
    await hub.answer(question.id, ConfirmAnswer(approved=True), digest=question.digest)
    await wait_for_turn_end(store, harness.session_id, ends=2)
    await hub.start(harness.session_id, TurnRequest(input="and now?"))
    await wait_for_turn_end(store, harness.session_id, ends=3)
    assert attached(harness.model.requests[-1].messages) == [(), (PICTURE, SMALL), ()]

    naming = [commit for commit in commits if commit.blobs]
    assert {kind for commit in naming for kind in ({fact.kind for fact in commit.facts} or {"state"})} == {
        "message_posted",
        "message_taken",
    }
    assert max(map(size_in_memory, commits)) < SMALLEST_CONTENT
    await harness.close(hub)


async def test_a_fork_keeps_its_files_when_the_first_session_is_deleted(tmp_path: Path, open_store: OpenStore) -> None:
    store, model = open_store(), ScriptedModel(["seen", "still there"])
    async with opened(store, model, tmp_path) as hub:
        session_id = await new_session(hub)
        await run_turn(hub, store, session_id, "look", PICTURE)
        copy = await fork(store, session_id, now="2026-01-02T00:00:00.000Z")
        await hub.delete(session_id)
        await run_turn(hub, store, copy.id, "and now?")
        assert attached(model.requests[-1].messages) == [(PICTURE,), ()]
        assert store.blobs is not None
        digest = content_digest(CONTENT)
        assert [await store.blobs.get(id_, digest) for id_ in (session_id, copy.id)] == [None, CONTENT]


async def test_a_rewind_to_a_compacted_message_brings_its_file_back(tmp_path: Path, open_store: OpenStore) -> None:
    answers = ["A summary of all that was said."] * 12
    store, model = open_store(), ScriptedModel(answers)
    limits = {"compaction_threshold_messages": 8, "compaction_retain_messages": 4}
    async with opened(store, model, tmp_path, **limits) as hub:
        session_id = await new_session(hub)
        await run_turn(hub, store, session_id, "look" * 500, PICTURE)
        for number in range(5):
            await run_turn(hub, store, session_id, f"question {number} " * 200)
        assert len(attached(await store.log.compacted_messages(session_id))) > 0
        first, *_ = [
            message for message in await read_messages(store.log, session_id) if message["role"] == "assistant"
        ]
        await hub.rewind(session_id, first["message_id"])
        await run_turn(hub, store, session_id, "and now?")
        assert attached(model.requests[-1].messages) == [(PICTURE,), ()]


async def test_a_file_that_was_lost_is_named_in_its_message(
    tmp_path: Path, open_store: OpenStore, caplog: pytest.LogCaptureFixture
) -> None:
    store, session_id = open_store(), ""
    async with opened(store, ScriptedModel(["seen"]), tmp_path) as hub:
        session_id = await new_session(hub)
        await run_turn(hub, store, session_id, "look", SMALL, PICTURE)
        assert store.blobs is not None
        await store.blobs.forget(session_id)
    store, model = open_store(), ScriptedModel(["gone"])
    with caplog.at_level(logging.ERROR):
        async with opened(store, model, tmp_path) as hub:
            await run_turn(hub, store, session_id, "and now?")
    assert any("content of an attachment is missing" in record.getMessage() for record in caplog.records)
    sent = [message for message in model.requests[-1].messages if isinstance(message, UserMessage)]
    assert [(message.content, message.attachments) for message in sent] == [
        ("look\n[attached: large.png]", (SMALL,)),
        ("and now?", ()),
    ]


async def test_base64_with_other_padding_bits_stays_as_it_was_sent(tmp_path: Path, open_store: OpenStore) -> None:
    content = CONTENT + bytes((1 - len(CONTENT)) % 3)
    exact = b64encode(content).decode()
    odd = Attachment(name="odd.png", media_type="image/png", data=f"{exact[:-3]}B==")
    assert exact.endswith("==")
    assert odd.data != exact
    store, session_id = open_store(), ""
    async with opened(store, ScriptedModel(["seen"]), tmp_path) as hub:
        session_id = await new_session(hub)
        await run_turn(hub, store, session_id, "look", odd)
    store, model = open_store(), ScriptedModel(["seen"])
    async with opened(store, model, tmp_path) as hub:
        await run_turn(hub, store, session_id, "and now?")
    assert attached(model.requests[-1].messages) == [(odd,), ()]


async def test_kept_contents_have_no_limit_and_stay_until_their_session_is_forgotten(tmp_path: Path) -> None:
    blobs = BlobFolder(tmp_path, session_bytes=6_000, all_bytes=6_000)
    large, other = os.urandom(20_000), os.urandom(5_000)
    kept, shared = await blobs.put("ses_1", large, retention="kept"), await blobs.put("ses_1", b"shared")
    assert await blobs.put("ses_1", large, retention="kept") == kept == content_digest(large)
    for number in range(2, 5):
        await blobs.put(f"ses_{number}", other)
    assert [await blobs.get("ses_1", digest) for digest in (kept, shared)] == [large, None]
    await blobs.share("ses_1", "ses_9", [kept])
    await blobs.forget("ses_1")
    assert [await blobs.get(id_, kept) for id_ in ("ses_1", "ses_9")] == [None, large]


async def test_a_link_in_the_place_of_the_kept_contents_is_not_followed(tmp_path: Path) -> None:
    blobs, outside = BlobFolder(tmp_path / "blobs"), tmp_path / "outside"
    await blobs.put("ses_1", b"one")
    outside.mkdir()
    (blobs.folder("ses_1") / "kept").symlink_to(outside)
    with pytest.raises(StoreError):
        await blobs.put("ses_1", b"two", retention="kept")
    assert list(outside.iterdir()) == []

"""The record of a refused file, which restarts and forks keep and a rewind removes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from agenticx import UserMessage
from agenticx.attachments import Attachment
from agenticx.errors import ModelError
from agenticx.llms import ScriptedModel
from agenticx.messages import Message
from agenticx.sessions import Hub, SessionRecord, Store, TurnRequest, fork
from agenticx.settings import load_settings
from agenticx.testing import fail
from tests.support.sessions import wait_for_turn_end
from tests.support.two_hubs import hub_over
from tests.support.wires.files import PNG

pytestmark = pytest.mark.anyio

REFUSED = fail(ModelError("could not process image", code="provider.bad_request", status=400))


def files(messages: Sequence[Message]) -> list[str]:
    """Return the names of the files that a request has."""
    return [file.name for message in messages if isinstance(message, UserMessage) for file in message.attachments]


async def run_turn(hub: Hub, store: Store, session_id: str, text: str, *attachments: Attachment) -> None:
    """Run a turn to its end."""
    turn = await hub.start(session_id, TurnRequest(input=text, attachments=attachments))
    ends = sum(
        event.terminal for event in await store.log.read(session_id, 0, 10_000) if event.seq <= (turn.after_seq or 0)
    )
    await wait_for_turn_end(store, session_id, ends=1 + ends)


async def test_a_refused_file_is_left_out_after_a_restart_and_in_a_fork_and_comes_back_with_a_rewind(
    open_store: Callable[[], Store], tmp_path: Path
) -> None:
    settings = load_settings({"home": tmp_path / "home", "workspace_root": tmp_path}, environ={})
    models: dict[str | None, ScriptedModel] = {
        "old": ScriptedModel(["ok"] * 9, name="old"),
        "new": ScriptedModel([REFUSED, *["ok"] * 9], name="new"),
    }

    async def opened(store: Store) -> Hub:
        hub = hub_over(store, models=lambda name: models[name], tools=lambda _: [], settings=settings)
        await hub.recover()
        return hub

    store = open_store()
    hub = await opened(store)
    record = SessionRecord(workspace=str(tmp_path), model="old", created_at="2026-01-01T00:00:00.000Z")
    await store.create(record)
    session = record.id
    await run_turn(hub, store, session, "What is it?", PNG)
    answer = (await store.log.state(session)).messages[-1].message_id
    await hub.change(session, {"model": "new"})
    await run_turn(hub, store, session, "And now?")  # refused
    await run_turn(hub, store, session, "Again?")
    await hub.close()
    await store.aclose()

    store = open_store()
    hub = await opened(store)
    await run_turn(hub, store, session, "After a restart?")
    copy = await fork(store, session, now="2026-01-01T00:00:00.000Z")
    await run_turn(hub, store, copy.id, "In a fork?")
    await hub.change(session, {"model": "old"})
    await run_turn(hub, store, session, "With another model?")
    await hub.change(session, {"model": "new"})
    await hub.rewind(session, answer)
    await run_turn(hub, store, session, "After a rewind?")
    await hub.close()
    await store.aclose()

    assert [files(request.messages) for request in models["old"].requests] == [["a.png"], ["a.png"]]
    assert [files(request.messages) for request in models["new"].requests] == [["a.png"], [], [], [], ["a.png"]]

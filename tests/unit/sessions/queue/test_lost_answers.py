"""Commands to another owner whose answer is lost on the way back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agenticx import UserMessage
from agenticx.llms import ScriptedModel
from agenticx.runtime import ConfirmAnswer
from agenticx.sessions import Hub, MemoryStore, NoOwner, Store, TurnRequest
from agenticx.settings import load_settings
from agenticx.testing import call
from tests.support.intercepted_store import InterceptedStore, StoreCall
from tests.support.message_queue import note
from tests.support.sessions import wait_for_turn_end
from tests.support.teams.subagent_sessions import SubagentSession, spawn
from tests.support.timeouts import PatientClock

pytestmark = pytest.mark.anyio


class LostAnswer:
    """A way to other owners that loses the first answer."""

    def __init__(self) -> None:
        self.lost = 0

    async def __call__(self, call: StoreCall) -> Any:
        answer = await call.run()
        if call.name == "call" and not self.lost:
            self.lost += 1
            raise NoOwner("the answer was lost")
        return answer


@pytest.mark.parametrize("client_turn_id", [None, "c1"])
async def test_a_message_counts_once_though_its_owner_is_asked_twice(
    tmp_path: Path, client_turn_id: str | None
) -> None:
    memory, answers = MemoryStore(), LostAnswer()
    store = InterceptedStore(memory.other_worker(), lambda write: write.make(), answers)
    settings = load_settings({"home": tmp_path, "workspace_root": tmp_path}, environ={})
    model = ScriptedModel(["one", "two"])

    def hub_over(store: Store) -> Hub:
        return Hub(store, models=lambda _: model, tools=lambda _: [], settings=settings, clock=PatientClock())

    owner, hub = hub_over(memory), hub_over(store)
    await owner.recover()
    record = await owner.create()
    await owner.start(record.id, TurnRequest(input="one"))
    await hub.submit(record.id, TurnRequest(input="two", when_busy="queue", client_turn_id=client_turn_id))
    events = await wait_for_turn_end(memory, record.id, ends=2)
    assert answers.lost == 1
    started = [json.loads(event.frame_json)["data"] for event in events if event.type == "turn_started"]
    assert [data["input"] for data in started] == ["one", "two"]
    assert (started[1]["client_turn_id"] == "c1") is (client_turn_id == "c1")
    await hub.close()
    await owner.close()


@pytest.mark.parametrize("has_ended", [False, True])
async def test_a_message_to_a_subagent_counts_once_though_its_owner_is_asked_twice(
    tmp_path: Path, has_ended: bool
) -> None:
    memory, answers = MemoryStore(), LostAnswer()
    stores = iter([memory, InterceptedStore(memory.other_worker(), lambda write: write.make(), answers)])
    session = SubagentSession(tmp_path, lambda: next(stores), [note])
    script = ["one" if has_ended else call("note", {"text": "x"}), "two", "three"]
    owner = session.new_hub([spawn("kid"), "Later."], {"kid": script})
    kid, hub = session.model("kid"), session.new_hub([], {})
    await memory.create(session.record)
    await owner.recover()
    await session.run(owner)
    await session.wait_for_event("subagent_completed" if has_ended else "confirm_required", "kid-1")
    await hub.message_subagent(session.id, "kid-1", "More!")
    assert answers.lost == 1
    for request in await owner.open_requests(session.id):
        await owner.answer(request.id, ConfirmAnswer(approved=True), digest=request.digest)
    await session.wait_for_event("subagent_completed", "kid-1", 1 + has_ended)
    for _ in range(2):
        await owner.message_subagent(session.id, "kid-1", "Thanks.", client_message_id="thanks")
    await session.wait_for_event("subagent_completed", "kid-1", 2 + has_ended)
    await hub.close()
    await owner.close()
    heard = [one.content for one in kid.requests[-1].messages if isinstance(one, UserMessage)]
    assert heard == ["work", "More!", "Thanks."]


async def test_a_retry_of_a_subagent_begins_once_though_its_owner_is_asked_twice(tmp_path: Path) -> None:
    memory, answers = MemoryStore(), LostAnswer()
    stores = iter([memory, InterceptedStore(memory.other_worker(), lambda write: write.make(), answers)])
    session = SubagentSession(tmp_path, lambda: next(stores), [note])
    owner = session.new_hub([spawn("kid"), "Later."], {"kid": ["one", "two"]})
    hub = session.new_hub([], {})
    await memory.create(session.record)
    await owner.recover()
    await session.run(owner)
    await session.wait_for_event("subagent_completed", "kid-1")
    await hub.retry_subagent(session.id, "kid-1")
    assert answers.lost == 1
    await session.wait_for_event("subagent_completed", "kid-1", 2)
    await hub.close()
    await owner.close()
    runs = [event.type for event in await memory.log.read(session.id, 0, 10_000)].count("subagent_started")
    assert runs == 2

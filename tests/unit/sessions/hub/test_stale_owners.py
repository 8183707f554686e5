"""Commands at a hub that has lost a session without knowing it, at one that is closing, and from afar."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from agenticx.llms.sampling import Sampling, UnsupportedSampling
from agenticx.llms.scripted import ScriptedModel, call, hang
from agenticx.runtime import ConfirmAnswer
from agenticx.sessions import Hub, MemoryStore, TurnRequest
from agenticx.sessions.hub.commands import Answer, decode_command, encode_command
from agenticx.settings import load_settings
from agenticx.tools.registry import tool
from tests.support.timeouts import wait_until

pytestmark = pytest.mark.anyio


class DurableMemoryStore(MemoryStore):
    """A memory store that outlives its workers, so that a turn that waits for an answer resumes at another one."""

    durability = "replicas"


ran: list[str] = []


@tool(risk="execute", idempotent=True)
async def act() -> str:
    """Act."""
    ran.append("acted")
    return "acted"


def hub_in(folder: Path, store: Any, *replies: Any, model: Any = None) -> Hub:
    model = model or ScriptedModel(replies)
    settings = load_settings({"home": folder / "home", "workspace_root": folder}, environ={})
    return Hub(store, models=lambda _: model, tools=lambda _: [act], settings=settings)


async def lose_session(store: MemoryStore, session_id: str, new: Hub) -> None:
    """Have `new` become the owner, without the former one knowing it."""
    store.expire(session_id, noticed=False)
    await new.change(session_id, {"pinned": True})


async def test_a_stop_at_a_former_owner_stops_the_turn_at_the_new_one(tmp_path: Path) -> None:
    ran.clear()
    store = DurableMemoryStore()
    old, new = hub_in(tmp_path, store, call("act"), "done"), hub_in(tmp_path, store.other_worker(), "done")
    for hub in (old, new):
        await hub.recover()
    record = await old.create(name="s")
    await old.start(record.id, TurnRequest(input="act"))
    await wait_until(lambda: old.gate.pending(record.id))
    await lose_session(store, record.id, new)
    assert new.running_turn_id(record.id) is not None

    stopped = await old.stop(record.id)

    assert stopped is not None
    await wait_until(lambda: new.running_turn_id(record.id) is None)
    assert ran == []
    last = json.loads((await store.log.read(record.id, 0, 1_000))[-1].frame_json)
    assert (last["type"], last["data"]["code"]) == ("error", "stopped")
    await asyncio.gather(old.close(), new.close())


async def test_a_repeated_message_at_a_former_owner_has_the_state_that_is_stored(tmp_path: Path) -> None:
    store = MemoryStore()
    old, new = hub_in(tmp_path, store, hang()), hub_in(tmp_path, store.other_worker(), "x")
    for hub in (old, new):
        await hub.recover()
    record = await old.create(name="s")
    await old.start(record.id, TurnRequest(input="hang"))
    queued = TurnRequest(input="more", when_busy="queue", client_turn_id="k")
    assert (await old.submit(record.id, queued)).state == "queued"
    await lose_session(store, record.id, new)

    assert (await old.submit(record.id, queued)).state == "handed_back"
    await asyncio.gather(old.close(), new.close())


async def test_a_message_at_a_former_owner_is_not_busy_with_a_turn_that_has_ended(tmp_path: Path) -> None:
    store = MemoryStore()
    old, new = hub_in(tmp_path, store, hang()), hub_in(tmp_path, store.other_worker(), "hello")
    for hub in (old, new):
        await hub.recover()
    record = await old.create(name="s")
    await old.start(record.id, TurnRequest(input="hang"))
    await lose_session(store, record.id, new)

    turn = await old.start(record.id, TurnRequest(input="hi"))
    await wait_until(lambda: new.running_turn_id(record.id) is None)

    events = [json.loads(event.frame_json) for event in await store.log.read(record.id, 0, 1_000)]
    assert [event["data"]["text"] for event in events if event["type"] == "final"] == ["hello"]
    assert events[-1]["turn_id"] == turn.id
    await asyncio.gather(old.close(), new.close())


async def test_a_session_that_a_command_claims_while_its_hub_closes_is_given_up(tmp_path: Path) -> None:
    store = MemoryStore()
    closing, other = hub_in(tmp_path, store, hang()), hub_in(tmp_path, store.other_worker())
    for hub in (closing, other):
        await hub.recover()
    busy, idle = await closing.create(name="busy"), await closing.create(name="idle")
    await closing.start(busy.id, TurnRequest(input="hang"))
    task = asyncio.create_task(closing.close())
    await asyncio.sleep(0)
    await closing.change(idle.id, {"name": "renamed"})
    await task

    assert (await other.change(idle.id, {"name": "again"})).name == "again"
    await other.close()
    await wait_until(lambda: not any(task.get_name().startswith("agx") for task in asyncio.all_tasks()))


class Afar:
    """Two hubs of one session, which the first one owns."""

    def __init__(self, folder: Path, *replies: Any, model: Any = None) -> None:
        self.store = MemoryStore()
        self.owner = hub_in(folder, self.store, *replies, model=model)
        self.other = hub_in(folder, self.store.other_worker(), model=model)

    async def session(self) -> str:
        for hub in (self.owner, self.other):
            await hub.recover()
        record = await self.owner.create(name="s")
        await self.owner.change(record.id, {"pinned": True})
        return record.id

    async def close(self) -> None:
        await asyncio.gather(self.owner.close(), self.other.close())


async def test_text_that_is_no_unicode_arrives_at_the_owner_as_it_would_there(tmp_path: Path) -> None:
    afar = Afar(tmp_path, "a", "b")
    session_id = await afar.session()
    for number, hub in enumerate((afar.owner, afar.other)):
        await hub.submit(session_id, TurnRequest(input="a\ud800b", client_turn_id=f"{number}"))
        await wait_until(lambda: afar.owner.running_turn_id(session_id) is None)

    rows = await afar.owner.messages(session_id)
    first, second = [row["content"] for row in rows if row["role"] == "user"]
    assert first == second
    await afar.close()


async def test_sampling_that_the_owners_model_does_not_take_is_refused_afar_as_there(tmp_path: Path) -> None:
    class Plain:
        name, context_window = "plain", None

        async def stream(self, request: Any) -> Any:
            yield ()

    afar = Afar(tmp_path, model=Plain())
    session_id = await afar.session()
    for hub in (afar.owner, afar.other):
        with pytest.raises(UnsupportedSampling, match="plain takes no `seed`") as refused:
            await hub.submit(session_id, TurnRequest(input="hi", sampling=Sampling(seed=1)))
        assert refused.value.fields == ("seed",)
    await afar.close()


async def test_numbers_that_json_lacks_are_no_other_arguments_afar(tmp_path: Path) -> None:
    answer = ConfirmAnswer(approved=True, arguments={"size": float("inf")})
    command = decode_command(encode_command(Answer(request_id="r", answer=answer, digest="d")))
    assert isinstance(command, Answer)
    assert command.answer == answer

"""Commands at a hub that has lost a session without knowing it, at one that is closing, and from afar."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from agenticx.errors import SessionNotFound
from agenticx.llms import Sampling, ScriptedModel, UnsupportedSampling
from agenticx.runtime import ConfirmAnswer
from agenticx.sessions import Hub, MemoryStore, TurnRequest
from agenticx.sessions.hub.commands import Answer, decode_command, encode_command
from agenticx.settings import load_settings
from agenticx.testing import call, hang
from agenticx.tools import tool
from tests.support.memory_store import expire_lease
from tests.support.sessions import wait_for_event
from tests.support.timeouts import wait_until

pytestmark = pytest.mark.anyio


class DurableMemoryStore(MemoryStore):
    """A memory store that outlives its workers, so that a turn that waits for an answer resumes at another one."""

    durability = "replicas"
    is_shared = True


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


class Hubs:
    """Two hubs on one store: `first`, which makes the session and owns it, and `second`."""

    def __init__(self, first: Hub, second: Hub, store: MemoryStore, session_id: str) -> None:
        self.first = first
        self.second = second
        self.session_id = session_id
        self._store = store

    async def change_owner(self) -> None:
        """Have the second hub become the session's owner, without the first one knowing it."""
        expire_lease(self._store, self.session_id, noticed=False)
        await self.second.change(self.session_id, {"pinned": True})

    async def wait_until_asked(self) -> None:
        """Wait until a confirmation is stored, so that another owner goes on with the turn."""
        await wait_for_event(self._store, self.session_id, "confirm_required")

    async def events(self) -> list[dict[str, Any]]:
        return [json.loads(event.frame_json) for event in await self._store.log.read(self.session_id, 0, 1_000)]


@asynccontextmanager
async def two_hubs(
    folder: Path, first: Sequence[Any] = (), second: Sequence[Any] = (), *, store: Any = None, model: Any = None
) -> AsyncGenerator[Hubs]:
    """Make two hubs whose models play the replies `first` and `second`, or are `model`."""
    store = store or MemoryStore()
    hubs = hub_in(folder, store, *first, model=model), hub_in(folder, store.other_worker(), *second, model=model)
    for hub in hubs:
        await hub.recover()
    record = await hubs[0].create(name="s")
    await hubs[0].change(record.id, {"pinned": True})
    yield Hubs(*hubs, store, record.id)
    await asyncio.gather(*(hub.close() for hub in hubs))


async def test_a_stop_at_a_former_owner_stops_the_turn_at_the_new_one(tmp_path: Path) -> None:
    ran.clear()
    async with two_hubs(tmp_path, [call("act"), "done"], ["done"], store=DurableMemoryStore()) as hubs:
        await hubs.first.start(hubs.session_id, TurnRequest(input="act"))
        await hubs.wait_until_asked()
        await hubs.change_owner()
        assert hubs.second.running_turn_id(hubs.session_id) is not None

        stopped = await hubs.first.stop(hubs.session_id)

        assert stopped is not None
        await wait_until(lambda: hubs.second.running_turn_id(hubs.session_id) is None)
        assert ran == []
        last = (await hubs.events())[-1]
        assert (last["type"], last["data"]["code"]) == ("error", "stopped")


async def test_a_wait_for_a_turn_of_another_worker_ends_when_its_session_is_deleted(tmp_path: Path) -> None:
    async with two_hubs(tmp_path, [hang()], store=DurableMemoryStore()) as hubs:
        turn = await hubs.first.start(hubs.session_id, TurnRequest(input="hang"))
        waiting = asyncio.create_task(hubs.second.wait_for_turn(hubs.session_id, turn.id))
        await asyncio.sleep(0)
        await hubs.first.delete(hubs.session_id)
        await waiting
        await hubs.second.wait_for_turn(hubs.session_id, turn.id)


async def test_a_repeated_message_at_a_former_owner_has_the_state_that_is_stored(tmp_path: Path) -> None:
    async with two_hubs(tmp_path, [hang()], ["x"]) as hubs:
        await hubs.first.start(hubs.session_id, TurnRequest(input="hang"))
        queued = TurnRequest(input="more", when_busy="queue", client_turn_id="k")
        assert (await hubs.first.submit(hubs.session_id, queued)).state == "queued"
        await hubs.change_owner()

        assert (await hubs.first.submit(hubs.session_id, queued)).state == "handed_back"


async def test_a_message_at_a_former_owner_is_not_busy_with_a_turn_that_has_ended(tmp_path: Path) -> None:
    async with two_hubs(tmp_path, [hang()], ["hello"]) as hubs:
        await hubs.first.start(hubs.session_id, TurnRequest(input="hang"))
        await hubs.change_owner()

        turn = await hubs.first.start(hubs.session_id, TurnRequest(input="hi"))
        await wait_until(lambda: hubs.second.running_turn_id(hubs.session_id) is None)

        events = await hubs.events()
        assert [event["data"]["text"] for event in events if event["type"] == "final"] == ["hello"]
        assert events[-1]["turn_id"] == turn.id


async def test_a_message_at_a_former_owner_of_a_deleted_session_raises_session_not_found(tmp_path: Path) -> None:
    async with two_hubs(tmp_path, ["hello"]) as hubs:
        await hubs.change_owner()
        await hubs.second.delete(hubs.session_id)

        with pytest.raises(SessionNotFound, match=f"no session has the id '{hubs.session_id}'"):
            await hubs.first.start(hubs.session_id, TurnRequest(input="hi"))


async def test_a_session_that_a_command_claims_while_its_hub_closes_is_given_up(tmp_path: Path) -> None:
    async with two_hubs(tmp_path, [hang()]) as hubs:
        idle = await hubs.first.create(name="idle")
        await hubs.first.start(hubs.session_id, TurnRequest(input="hang"))
        task = asyncio.create_task(hubs.first.close())
        await asyncio.sleep(0)
        await hubs.first.change(idle.id, {"name": "renamed"})
        await task

        assert (await hubs.second.change(idle.id, {"name": "again"})).name == "again"
    await wait_until(lambda: not any(task.get_name().startswith("agx") for task in asyncio.all_tasks()))


async def test_text_that_is_no_unicode_arrives_at_the_owner_as_it_would_there(tmp_path: Path) -> None:
    async with two_hubs(tmp_path, ["a", "b"]) as hubs:
        for number, hub in enumerate((hubs.first, hubs.second)):
            await hub.submit(hubs.session_id, TurnRequest(input="a\ud800b", client_turn_id=f"{number}"))
            await wait_until(lambda: hubs.first.running_turn_id(hubs.session_id) is None)

        rows = await hubs.first.messages(hubs.session_id)
        first, second = [row["content"] for row in rows if row["role"] == "user"]
        assert first == second


async def test_sampling_that_the_owners_model_does_not_take_is_refused_afar_as_there(tmp_path: Path) -> None:
    class Plain:
        name, context_window = "plain", None

        async def stream(self, request: Any) -> Any:
            yield ()

    async with two_hubs(tmp_path, model=Plain()) as hubs:
        for hub in (hubs.first, hubs.second):
            with pytest.raises(UnsupportedSampling, match="plain takes no `seed`") as refused:
                await hub.submit(hubs.session_id, TurnRequest(input="hi", sampling=Sampling(seed=1)))
            assert refused.value.fields == ("seed",)


async def test_numbers_that_json_lacks_are_no_other_arguments_afar(tmp_path: Path) -> None:
    answer = ConfirmAnswer(approved=True, arguments={"size": float("inf")})
    command = decode_command(encode_command(Answer(request_id="r", answer=answer, digest="d")))
    assert isinstance(command, Answer)
    assert command.answer == answer

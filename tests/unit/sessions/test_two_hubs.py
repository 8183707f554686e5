"""Random operations on two hubs that die, lose their leases and get no answers from their store."""

from __future__ import annotations

import asyncio
import json
import platform
import random
import subprocess
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import takewhile
from operator import ne
from pathlib import Path
from typing import Any

import pytest

from agenticx import AgenticXError
from agenticx.clocks import Clock, ScaledClock
from agenticx.errors import SessionBusy, SessionNotFound, StoreError
from agenticx.llms import ScriptedModel
from agenticx.messages import new_id
from agenticx.runtime import ConfirmAnswer
from agenticx.sessions import (
    Hub,
    MemoryBlobs,
    MemoryStore,
    OwnershipLost,
    Position,
    SessionRecord,
    Store,
    StoredEvent,
    TurnRequest,
    read_log_pages,
    read_messages,
)
from agenticx.sessions.history.model_history import CurrentHistory, rebuild_history
from agenticx.sessions.history.transcript import read_conversation
from agenticx.sessions.hub.recovery import end_leftover_processes
from agenticx.sessions.hub.writer import SessionWriter
from agenticx.sessions.log.records import CallBegan, ProcessStarted
from agenticx.sessions.store import memory
from agenticx.sessions.store.base import find_fact
from agenticx.settings import load_settings
from agenticx.testing import call, check_grammar, hang, say
from agenticx.tools import Tool, tool
from agenticx.tools.processes import MARK
from tests.support.commits import load
from tests.support.intercepted_store import InterceptedCalls, InterceptedStore, StoreCall, Write
from tests.support.lanes import Count
from tests.support.memory_store import expire_lease
from tests.support.postgres.cluster import Cluster
from tests.support.postgres.stores import NewUnreliableStore
from tests.support.timeouts import PATIENCE, PatientClock, wait_until
from tests.support.two_hubs import LONGEST_DELAY_SECONDS, UnreliableStore, UnreliableWorker

pytestmark = pytest.mark.anyio

CASE_SECONDS = 60.0
OUTCOMES = ("turn_started", "steered", "handed_back")
MODES = ("reject", "queue", "queue", "steer", "interrupt")


class Workers:
    """Two workers of one session, and a client that sends commands to either."""

    def __init__(self, folder: Path, rng: random.Random, first: UnreliableWorker) -> None:
        self.first = first
        self.rng = rng
        self.session = SessionRecord(name="Named", workspace=str(folder), created_at="2026-01-01T00:00:00.000Z")
        self.runs: Counter[str] = Counter()
        self.accepted: set[str] = set()
        self.dying: list[asyncio.Task[None]] = []
        self._killing = asyncio.Lock()  # a worker that is killed while it starts would never be closed
        self._settings = load_settings({"home": folder / "home"}, environ={})
        self._model = ScriptedModel([self._reply(number) for number in range(500)])
        self._tools = self._make_tools()

    def _reply(self, number: int) -> Any:
        replies: list[Any] = [
            "yes",
            call("look", {"what": f"look {number}"}),
            call("note", {"what": f"note {number}"}),
            [call("look", {"what": f"both {number}"}), call("note", {"what": f"and {number}"})],
            [say("so"), hang()],
        ]
        return self.rng.choices(replies, [5, 3, 2, 1, 1])[0]

    def _make_tools(self) -> list[Tool]:
        @tool(risk="read", idempotent=False)
        async def look(what: str) -> str:
            """Look at something."""
            self.runs[what] += 1
            await asyncio.sleep(self.rng.random() * 0.002)
            return what

        @tool(risk="write")
        async def note(what: str) -> str:
            """Write a note."""
            self.runs[what] += 1
            return what

        return [look, note]

    async def open(self) -> None:
        await self.first.create(self.session)
        self.stores = [self.first, self.first.other_worker()]
        self.hubs = [await self.start(store) for store in self.stores]

    async def start(self, store: UnreliableWorker) -> Hub:
        hub = Hub(
            store,
            models=lambda _name: self._model,
            tools=lambda _record: self._tools,
            settings=self._settings,
            clock=PatientClock({0.5: 0.002, 2.0: 0.01, 10.0: 0.02, 30.0: 0.02}),
        )
        await hub.recover()
        return hub

    async def kill(self, index: int) -> None:
        """End a worker as a kill does: its leases run out and it writes nothing more; start another one for it."""
        async with self._killing:
            self.stores[index].has_died = True
            await self.first.expire(self.session.id)
            self.dying.append(asyncio.create_task(self.hubs[index].close()))
            self.stores[index] = self.first.other_worker()
            self.hubs[index] = await self.start(self.stores[index])

    async def operate(self, number: int) -> None:
        """Make a random operation at one of the hubs; errors go to the client."""
        rng, hub, id_ = self.rng, self.rng.choice(self.hubs), self.session.id
        match rng.choices(["submit", "stop", "change", "rewind", "answer", "expire", "kill"], [8, 2, 1, 2, 6, 2, 1])[0]:
            case "submit":
                await self.submit(f"message {number}")
            case "stop":
                await hub.stop(id_)
            case "change":
                await hub.change(id_, {"pinned": rng.random() < 0.5})
            case "rewind":
                conversation = await read_conversation(self.first.authority.log, id_)
                asked = (entry.id for entry in conversation.path() if entry.message["role"] == "user")
                await hub.rewind(id_, rng.choice([None, *asked]))
            case "answer":
                await self.answer(hub)
            case "expire":
                await self.first.expire(id_)
            case _:
                await self.kill(rng.randrange(2))

    async def submit(self, text: str) -> None:
        """Submit a message to one hub after another, with the same id, until there is an answer."""
        request = TurnRequest(input=text, client_turn_id=text, when_busy=self.rng.choice(MODES))  # type: ignore[arg-type]
        for _ in range(6):
            try:
                await self.rng.choice(self.hubs).submit(self.session.id, request)
            except SessionBusy:
                return
            except AgenticXError:
                await asyncio.sleep(0.001)
            else:
                self.accepted.add(text)
                return

    async def answer(self, hub: Hub) -> None:
        for question in await hub.open_requests(self.session.id):
            answer = ConfirmAnswer(approved=self.rng.random() < 0.7)
            await hub.answer(question.id, answer, digest=question.digest)

    async def finish(self) -> None:
        """Let all turns end, with a store that works, and end the hubs."""
        for store in (self.first, *self.stores):
            store.failure_rate = 0.0
        async with asyncio.timeout(PATIENCE):
            for hub in self.hubs * 3:
                with suppress(AgenticXError):
                    await hub.stop(self.session.id)
            await asyncio.gather(*(hub.close() for hub in self.hubs), *self.dying)
            last = await self.start(self.first.other_worker())
            while await self.first.authority.log.turn(self.session.id):
                with suppress(AgenticXError):
                    await last.stop(self.session.id)
                await asyncio.sleep(0.002)
            await last.close()


async def check(workers: Workers) -> None:
    """Check what must hold of the session, whatever has happened to it."""
    whole, id_ = workers.first.authority, workers.session.id
    stored = await whole.log.read(id_, 0, 100_000)
    assert [event.seq for event in stored] == list(range(1, len(stored) + 1))
    events = [json.loads(event.frame_json) for event in stored]
    check_grammar(events, complete=False)
    await workers.first.expire(id_)  # of a worker that has died
    loaded = await load(whole, id_)
    assert (loaded.main_turn, loaded.open_facts, loaded.last_seq) == (None, [], len(stored))

    inputs = (event["data"].get("input") or event["data"]["text"] for event in events if event["type"] in OUTCOMES)
    outcomes = Counter(inputs)
    assert {text for text in workers.accepted if outcomes[text] != 1} == set()
    assert [text for text, times in outcomes.items() if times > 1] == []

    assert [what for what, times in workers.runs.items() if times > 1] == []
    asked, results = ([event for event in events if event["type"] == type_] for type_ in ("tool_call", "tool_result"))
    assert Counter(map(call_key, results)) == Counter(map(call_key, asked))
    for event in asked:
        if event["data"]["arguments"]["what"] in workers.runs:
            assert await find_fact(whole.log, id_, CallBegan, call_key(event)) is not None

    conversation = await read_conversation(whole.log, id_)
    rebuilt = rebuild_history(conversation.path(), conversation, CurrentHistory([], 0, ()))
    logged = [(message.role, message.content) for message in rebuilt]
    kept = iter((message.role, message.content) for message in loaded.state.messages)
    more = [row for expected in logged for row in takewhile(partial(ne, expected), kept)] + list(kept)
    endings = {event["data"]["code"] for event in events if event["type"] == "error"}
    if endings & {"storage", "interrupted"}:  # what a turn has not reported yet may be stored with its earlier events
        more = []
    assert (more, Counter(logged) - Counter((row.role, row.content) for row in loaded.state.messages)) == ([], {})
    for store in (workers.first.other_worker(), workers.stores[0], workers.stores[1]):
        assert await whole_log(store, id_) == list(stored)


def call_key(event: dict[str, Any]) -> str:
    return f"{event['turn_id']}/{event['data']['tool_call_id']}"


async def whole_log(store: UnreliableWorker, session_id: str) -> Sequence[StoredEvent]:
    events = [event async for page in read_log_pages(store.log, session_id) for event in page]
    in_all = list[StoredEvent]()
    while some := await store.log.read_all(in_all[-1].position if in_all else Position(0), 100_000):
        in_all += some
    assert in_all == events
    return events


async def play(workers: Workers) -> None:
    """Make random operations, some at the same time; end the workers and check the session."""
    await workers.open()
    operations: list[asyncio.Task[None]] = []
    for step in range(workers.rng.randrange(5, 25)):
        operations.append(asyncio.create_task(workers.operate(step)))
        if workers.rng.random() < 0.7:
            await asyncio.sleep(workers.rng.random() * 0.006)
    for outcome in await asyncio.gather(*operations, return_exceptions=True):
        if outcome is not None and not isinstance(outcome, AgenticXError):
            raise outcome
    await workers.finish()
    await check(workers)


async def play_cases(
    cases: int, folder: Path, rng: random.Random, make_store: NewUnreliableStore, *, failure_rate: float | None = None
) -> None:
    for number in range(cases):
        case_folder = folder / str(number)
        case_folder.mkdir()
        try:
            async with asyncio.timeout(CASE_SECONDS):
                own = random.Random(rng.getrandbits(32))
                rate = own.choice([0.0, 0.02, 0.1]) if failure_rate is None else failure_rate
                store = await make_store(failure_rate=rate)
                await play(Workers(case_folder, own, store))
                await store.aclose()
        except TimeoutError:
            raise AssertionError(f"case {number} did not end within {CASE_SECONDS:g} seconds") from None


@pytest.mark.promise("D1", "F1")
@pytest.mark.ci_lane
async def test_a_session_of_two_hubs_is_whole_whatever_fails(
    new_unreliable_store: NewUnreliableStore, tmp_path: Path, rng: random.Random, count: Count
) -> None:
    cases = count(5, 50, 2_000) if new_unreliable_store.is_in_memory else count(1, 3, 100)
    await play_cases(cases, tmp_path, rng, new_unreliable_store)


# --- lost leases ------------------------------------------------------------------------------------------------------


async def test_a_turn_whose_lease_is_taken_away_ends_its_call_at_once_and_writes_nothing(
    tmp_path: Path, rng: random.Random
) -> None:
    began, ended = asyncio.Event(), asyncio.Event()

    @tool(risk="read")
    async def wait() -> str:
        """Wait for ever."""
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return "done"

    store = UnreliableStore(MemoryStore(), rng)
    record = SessionRecord(name="Named", workspace=str(tmp_path), created_at="2026-01-01T00:00:00.000Z")
    await store.create(record)
    model, settings = ScriptedModel([call("wait", {}), "done"]), load_settings({"home": tmp_path / "home"}, environ={})
    hub = Hub(store, models=lambda _: model, tools=lambda _: [wait], settings=settings, clock=PatientClock())
    await hub.start(record.id, TurnRequest(input="hi"))
    await began.wait()
    before = await store.memory.read(record.id, 0, 100)
    expire_lease(store.memory, record.id)
    async with asyncio.timeout(PATIENCE):
        await ended.wait()
    await wait_until(lambda: hub.running_turn_id(record.id) is None)
    assert await store.memory.read(record.id, 0, 100) == before
    await hub.recover()
    events = await store.memory.read(record.id, len(before), 100)
    assert [event.type for event in events] == ["tool_result", "state", "error"]
    assert json.loads(events[-1].frame_json)["data"]["code"] == "interrupted"
    await hub.close()


async def test_only_processes_of_this_host_are_ended(rng: random.Random) -> None:
    mark = new_id("run")
    with subprocess.Popen(["/bin/sleep", "60"], env={MARK: mark}, start_new_session=True) as process:
        where = {"pid": process.pid, "started": 0, "mark": mark, "host": "another host"}
        fact = ProcessStarted(key="k", turn_id="turn_1", call_id="c", **where)
        log = UnreliableStore(MemoryStore(), rng).log
        await end_leftover_processes(log, [fact])
        assert process.poll() is None
        await end_leftover_processes(log, [replace(fact, host=platform.node())])
        await wait_until(lambda: process.poll() is not None)


# --- workers that die -------------------------------------------------------------------------------------------------


def hub_in(folder: Path, store: Store, *script: Any, tools: Sequence[Tool] = (), clock: Clock | None = None) -> Hub:
    model, settings = ScriptedModel(script), load_settings({"home": folder / "home"}, environ={})
    return Hub(store, models=lambda _: model, tools=lambda _: tools, settings=settings, clock=clock or PatientClock())


async def store_with_session(
    folder: Path, new_store: Callable[[], Awaitable[UnreliableWorker]]
) -> tuple[UnreliableWorker, SessionRecord]:
    store = await new_store()
    record = SessionRecord(name="Named", workspace=str(folder), created_at="2026-01-01T00:00:00.000Z")
    await store.create(record)
    return store, record


async def stored_in_memory(folder: Path, rng: random.Random) -> tuple[UnreliableStore, SessionRecord]:
    """Return a store whose readers can be held, and a session in it."""
    store = UnreliableStore(MemoryStore(blobs=MemoryBlobs()), rng)
    record = SessionRecord(name="Named", workspace=str(folder), created_at="2026-01-01T00:00:00.000Z")
    await store.create(record)
    return store, record


async def test_a_turn_of_a_worker_that_dies_is_ended_by_the_one_that_lives(
    tmp_path: Path, new_unreliable_store: NewUnreliableStore
) -> None:
    store, record = await store_with_session(tmp_path, new_unreliable_store)
    dying, living = (hub_in(tmp_path, each, [say("so"), hang()]) for each in (store, store.other_worker()))
    for hub in (dying, living):
        await hub.recover()
    reader = living.follow(record.id)
    await dying.start(record.id, TurnRequest(input="hi"))
    event = (await anext(reader)).event
    while event.type != "token":
        event = (await anext(reader)).event
    store.has_died = True
    await store.expire(record.id, noticed=False)
    async with asyncio.timeout(PATIENCE):
        while event.type != "error":
            event = (await anext(reader)).event
    assert event.data["code"] == "interrupted"
    assert (await living.submit(record.id, TurnRequest(input="again"))).state == "started"
    await asyncio.gather(living.close(), dying.close())


async def test_a_turn_with_a_question_of_a_worker_that_ends_goes_on_at_the_one_that_lives(
    tmp_path: Path, new_unreliable_store: NewUnreliableStore
) -> None:
    @tool(risk="write")
    async def note(what: str) -> str:
        """Write a note."""
        return what

    store, record = await store_with_session(tmp_path, new_unreliable_store)
    first = hub_in(tmp_path, store, call("note", {"what": "x"}), tools=[note])
    second = hub_in(tmp_path, store.other_worker(), "done", tools=[note])
    for hub in (first, second):
        await hub.recover()
    turn = await first.start(record.id, TurnRequest(input="hi"))
    await wait_until(lambda: first.gate.pending())
    await first.close()
    async with asyncio.timeout(PATIENCE):
        await wait_until(lambda: second.gate.pending())
        (question,) = second.gate.pending()
        await second.answer(question.id, ConfirmAnswer(approved=True), digest=question.digest)
        async for event in second.follow(record.id, after=turn.after_seq or 0):
            if event.event.type == "final":
                break
    await second.close()


async def test_a_call_that_another_worker_runs_has_only_the_result_of_its_run(
    tmp_path: Path, rng: random.Random
) -> None:
    @tool(risk="write")
    async def note(what: str) -> str:
        """Write a note."""
        return what

    changing, stopped = list[asyncio.Task[Any]](), asyncio.Event()

    async def make(write: Write) -> Sequence[StoredEvent]:
        """Store the question with the result of its stopped call, and lose the lease before the event of the result."""
        if "tool_call" in write.types:
            changing.append(asyncio.create_task(first.change(record.id, {"pinned": True})))
        if write.commit.record is not None and write.commit.record.pinned:  # the question waits behind this commit
            await stopped.wait()
        stored = await write.make()
        if "confirm_required" in write.types:
            await store.expire(record.id)
        return stored

    store, record = await stored_in_memory(tmp_path, rng)
    store.unknown_rate = 0.0
    first = hub_in(tmp_path, InterceptedStore(store, make), call("note", {"what": "x"}), tools=[note])
    second = hub_in(tmp_path, store.other_worker(), "done", tools=[note])
    turn = await first.start(record.id, TurnRequest(input="hi"))
    await wait_until(lambda: first.gate.pending())
    stopping = asyncio.create_task(first.stop(record.id))
    await wait_until(lambda: not first.gate.pending())
    stopped.set()
    await asyncio.gather(stopping, *changing, return_exceptions=True)
    await first.close()
    loaded = await load(store, record.id)
    assert [message.role for message in loaded.state.messages] == ["user", "assistant", "tool"]
    assert (await store.memory.read(record.id, 0, 100))[-1].type == "confirm_required"
    await store.expire(record.id)

    await second.recover()
    (question,) = await wait_until(lambda: second.gate.pending())
    await second.answer(question.id, ConfirmAnswer(approved=True), digest=question.digest)
    await second.wait_for_turn(record.id, turn.id)
    await second.close()
    loaded = await load(store, record.id)
    assert [message.content for message in loaded.state.messages] == ["hi", "", "x", "done"]


@pytest.mark.ci_lane
async def test_a_worker_that_drains_hands_over_a_turn_that_waits_and_lets_one_that_runs_end(
    postgres: Cluster, tmp_path: Path, rng: random.Random
) -> None:
    went_on = asyncio.Event()

    @tool(risk="read")
    async def wait() -> str:
        """Wait until the test goes on."""
        await went_on.wait()
        return "done"

    @tool(risk="write")
    async def note(what: str) -> str:
        """Write a note."""
        return what

    new_store, tools = NewUnreliableStore(rng, postgres), [wait, note]
    store, running = await store_with_session(tmp_path, new_store)
    waiting = replace(running, id="ses_waiting")
    await store.create(waiting)
    first = hub_in(tmp_path, store, call("wait", {}), call("note", {"what": "x"}), "final", tools=tools)
    second = hub_in(tmp_path, store.other_worker(), "done", "again", tools=tools)
    for hub in (first, second):
        await hub.recover()
    turn = await first.start(running.id, TurnRequest(input="hi"))
    await first.start(waiting.id, TurnRequest(input="hi"))
    await wait_until(lambda: first.gate.pending())
    draining = asyncio.create_task(first.drain(PATIENCE))
    await wait_until(lambda: second.gate.pending())
    with pytest.raises(SessionBusy):
        await second.submit(running.id, TurnRequest(input="more"))
    assert not draining.done()
    went_on.set()
    async with asyncio.timeout(PATIENCE):
        await draining
    ends = [event for event in await store.log.read(running.id, 0, 1_000) if event.terminal]
    assert [(event.turn_id, event.type) for event in ends] == [(turn.id, "final")]
    assert (await second.submit(running.id, TurnRequest(input="more"))).state == "started"
    await asyncio.gather(first.close(), second.close())
    await new_store.aclose()


async def test_a_question_can_be_answered_before_readers_have_its_event(tmp_path: Path, rng: random.Random) -> None:
    @tool(risk="write")
    async def note(what: str) -> str:
        """Write a note."""
        return what

    store, record = await stored_in_memory(tmp_path, rng)
    hub = hub_in(tmp_path, store, call("note", {"what": "x"}), "done", tools=[note])
    await hub.recover()
    with store.held_log():
        await hub.start(record.id, TurnRequest(input="hi"))
        await wait_until(lambda: store.memory.open_requests(record.id))
        (question,) = hub.gate.pending()
        answering = asyncio.create_task(hub.answer(question.id, ConfirmAnswer(approved=True), digest=question.digest))
        await asyncio.wait({answering}, timeout=10 * LONGEST_DELAY_SECONDS)
    assert (await answering).approved
    await hub.close()


async def test_a_reader_of_a_copy_that_lags_behind_waits_without_reading_again(
    tmp_path: Path, rng: random.Random
) -> None:
    store, record = await stored_in_memory(tmp_path, rng)
    hub = hub_in(tmp_path, store.other_worker(), "done")
    await hub.recover()
    reads = Counter[str]()

    async def count_reads(call: StoreCall) -> Any:
        reads[call.name] += 1
        return await call.run()

    log: Any = InterceptedCalls(store.log, count_reads)
    with store.held_log():
        turn = await hub.start(record.id, TurnRequest(input="hi"))
        await hub.wait_for_turn(record.id, turn.id)
        reading = asyncio.create_task(read_messages(log, record.id))
        await wait_until(lambda: reads["read"] == 2)
        await asyncio.wait({reading}, timeout=10 * LONGEST_DELAY_SECONDS)
        assert (reading.done(), reads["read"]) == (False, 2)
    assert [message["content"] for message in await reading] == ["hi", "done"]
    await hub.close()


# --- commands while the owner changes ---------------------------------------------------------------------------------


async def test_commands_to_an_owner_that_learns_late_of_its_lost_lease_reach_the_new_one(
    tmp_path: Path, new_unreliable_store: NewUnreliableStore
) -> None:
    store, record = await store_with_session(tmp_path, new_unreliable_store)
    store.unknown_rate = 0.0  # a command whose outcome is unknown is not repeated at the new owner
    old, new = (hub_in(tmp_path, each, "one", "two") for each in (store, store.other_worker()))
    for hub in (old, new):
        await hub.recover()
    commands: list[Callable[[], Any]] = [
        lambda: old.change(record.id, {"pinned": True}),
        lambda: old.submit(record.id, TurnRequest(input="hi")),
        lambda: old.rewind(record.id, None),
        lambda: old.delete(record.id),
    ]
    for command in commands:
        await store.expire(record.id)
        await old.change(record.id, {"name": "Old"})  # is the owner now
        await store.expire(record.id, noticed=False)
        await new.change(record.id, {"name": "New"})
        await command()
        if command is commands[1]:
            await wait_until(lambda: new.running_turn_id(record.id) is None)
    with pytest.raises(SessionNotFound):
        await store.catalog.get(record.id)
    await asyncio.gather(old.close(), new.close())


async def test_a_command_waits_for_the_lease_of_a_silent_owner_to_run_out(
    tmp_path: Path, new_unreliable_store: NewUnreliableStore
) -> None:
    store, record = await store_with_session(tmp_path, new_unreliable_store)
    silent, other = store.other_worker(), hub_in(tmp_path, store)
    await silent.ownership.claim(record.id)
    changing = asyncio.create_task(other.change(record.id, {"pinned": True}))
    await asyncio.wait([changing], timeout=0.05)
    assert not changing.done()
    await store.expire(record.id)
    assert (await changing).pinned
    await other.close()


async def test_a_command_to_a_silent_owner_is_refused_after_a_while(
    tmp_path: Path, new_unreliable_store: NewUnreliableStore
) -> None:
    store, record = await store_with_session(tmp_path, new_unreliable_store)
    other = hub_in(tmp_path, store, clock=ScaledClock(500.0))
    await store.other_worker().ownership.claim(record.id)
    with pytest.raises(StoreError, match="does not answer; try again"):
        await other.change(record.id, {"pinned": True})
    await other.close()


async def test_a_failed_deletion_leaves_the_contents_to_the_new_owner(
    tmp_path: Path, new_unreliable_store: NewUnreliableStore
) -> None:
    store, record = await store_with_session(tmp_path, new_unreliable_store)
    blobs = store.blobs
    assert blobs is not None
    digest = await blobs.put(record.id, b"before")
    old = hub_in(tmp_path, store)
    await old.change(record.id, {"pinned": True})
    await store.expire(record.id, noticed=False)
    store.has_died = True
    with pytest.raises(OwnershipLost):
        await old.delete(record.id)
    assert await blobs.get(record.id, digest) == b"before"
    new = hub_in(tmp_path, store.other_worker())
    await new.delete(record.id)
    assert await blobs.get(record.id, digest) is None
    await asyncio.gather(old.close(), new.close())


# --- deliberate faults ------------------------------------------------------------------------------------------------


def ignore_fences(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let an owner whose lease was taken away write on."""

    def session(lease: Any) -> Any:
        return lease._data.session(lease.session_id)

    monkeypatch.setattr(memory._MemoryLease, "_session", session)  # pyright: ignore[reportPrivateUsage]


def forget_pending_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take a commit without an answer for one that was not stored."""

    async def resolve(writer: SessionWriter) -> Sequence[StoredEvent]:
        if writer.pending_write is None:
            return ()
        writer.pending_write = None  # pyright: ignore[reportPrivateUsage]
        raise StoreError("the commit was not stored")

    monkeypatch.setattr(SessionWriter, "_resolve_pending", resolve)


def repeat_under_another_id(monkeypatch: pytest.MonkeyPatch) -> None:
    """Repeat a commit without an answer as if it were another one."""

    async def resolve(writer: SessionWriter) -> Sequence[StoredEvent]:
        if (write := writer.pending_write) is None:
            return ()
        write.commit = replace(write.commit, id=new_id("cmt"))
        return await writer._store(write)  # pyright: ignore[reportPrivateUsage]

    monkeypatch.setattr(SessionWriter, "_resolve_pending", resolve)


@pytest.mark.ci_lane
@pytest.mark.promise("D1")
@pytest.mark.parametrize("fault", [ignore_fences, forget_pending_writes, repeat_under_another_id])
@pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnraisableExceptionWarning"
)  # turns of the fault, left to the collector
async def test_a_deliberate_fault_is_detected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rng: random.Random, fault: Callable[[pytest.MonkeyPatch], None]
) -> None:
    fault(monkeypatch)
    with pytest.raises(AssertionError):
        await play_cases(200, tmp_path, rng, NewUnreliableStore(rng), failure_rate=0.1)

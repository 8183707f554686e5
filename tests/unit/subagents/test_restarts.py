"""Sub-agents of a process that has died, and what a user does with sub-agents outside of turns."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from agenticx.errors import SessionBusy
from agenticx.runtime import ConfirmAnswer, ConfirmRequest, QuestionAnswer
from agenticx.sessions import Hub, MemoryStore, Store, StoredEvent, TurnRequest
from agenticx.sessions.log.records import ChildTurnSaved, RequestAnswered
from agenticx.subagents import SubagentBusy, SubagentNotFound, session_tools
from agenticx.testing import call, check_grammar, hang
from agenticx.tools import Tool, ToolContext, tool
from agenticx.tools.builtin import ask_user
from tests.support.commits import add_fact, load
from tests.support.endings import ending_text, told_endings
from tests.support.teams.subagent_sessions import MortalStore, SubagentSession, notices, spawn
from tests.support.timeouts import PATIENCE, wait_until
from tests.support.two_hubs import end_lease

pytestmark = pytest.mark.anyio

OpenStore = Callable[[], Store]


@tool(risk="read")
def look(number: int) -> str:
    """Look at one."""
    return f"seen {number}"


class Processes:
    """A session whose processes are killed, one after another; `hub` is that of the last one."""

    hub: Any

    def __init__(self, folder: Path, tools: Sequence[Tool] = (), **settings: Any) -> None:
        self._stores = [MortalStore(MemoryStore())]
        self.session = SubagentSession(folder, lambda: self._stores[-1], [look, *tools], **settings)

    @property
    def memory(self) -> MemoryStore:
        """The store for the next process."""
        return self._stores[-1].memory

    @asynccontextmanager
    async def process(self, main: list[Any], **workers: list[Any]) -> AsyncGenerator[Hub]:
        """Yield the hub of a process that is killed at the end of the block."""
        hub = self.hub = self.session.new_hub(main, workers)
        if len(self._stores) == 1:
            await self.session.store.create(self.session.record)
        await hub.recover()
        yield hub
        self._stores[-1].die(self.session.id)
        await hub.close()
        self._stores.append(MortalStore(self.memory.other_worker()))


async def test_running_and_queued_subagents_of_a_dead_process_end_as_interrupted(tmp_path: Path) -> None:
    processes = Processes(tmp_path, subagent_max_running=1)
    session = processes.session
    async with processes.process([spawn("a"), spawn("b"), "Later."], a=[hang()], b=["never"]) as hub:
        await session.run(hub)
        await session.wait_for_event("round_start", "a-1")
    async with processes.process(["I see."]) as hub:
        states = {one["agent_id"]: (one["state"], one.get("code")) for one in await hub.subagents(session.id)}
        assert states == {"a-1": ("error", "interrupted"), "b-2": ("error", "interrupted")}
        await session.run(hub, "And?")
        (told,) = notices(session.main.requests[-1])
        assert told_endings(told) == ["a-1 failed: interrupted", "b-2 failed: interrupted"]
        log = await session.envelopes()
        check_grammar(log)
        errors = [one for one in log if one["type"] == "subagent_error"]
        assert [(one["turn_id"], one["data"]["code"], one["data"]["depth"]) for one in errors] == [
            (None, "interrupted", 1)
        ] * 2


async def test_a_call_without_effect_that_was_cut_off_may_be_repeated(tmp_path: Path) -> None:
    begun = asyncio.Event()

    @tool(risk="read", read_only=False, idempotent=True)
    async def wait_for_others() -> None:
        """Wait for others."""
        begun.set()
        await asyncio.Event().wait()

    processes = Processes(tmp_path, [wait_for_others])
    session = processes.session
    async with processes.process([call("wait_for_others")]) as hub:
        await hub.start(session.id, TurnRequest(input="go"))
        await asyncio.wait_for(begun.wait(), PATIENCE)
    async with processes.process(["I see."]) as hub:
        await session.run(hub, "And?")
        results = [one.content for one in session.main.requests[0].messages if one.role == "tool"]
    assert len(results) == 1
    assert results[0].endswith("the turn was interrupted. You may repeat it.")
    looking = ["query_subagent_status", "list_subagents", "wait_subagents", "check_resources"]
    assert [one.schema.name for one in session_tools() if one.idempotent] == looking


async def test_a_subagent_goes_on_in_the_folder_to_which_its_session_was_moved(tmp_path: Path) -> None:
    new = tmp_path / "new"
    new.mkdir()

    @tool(risk="read")
    def where(context: ToolContext) -> str:
        """Return the folder."""
        return str(context.workspace)

    processes = Processes(tmp_path, [where])
    session = processes.session
    main = [spawn("scout", "Look around"), call("wait_subagents"), "Done."]
    async with processes.process(main, scout=[call("where"), "Here.", call("where"), "There."]) as hub:
        await session.run(hub)
        await hub.change(session.id, {"workspace": str(new)})
        await hub.message_subagent(session.id, "scout-1", "And now?")
        async with asyncio.timeout(PATIENCE):
            while (await hub.subagents(session.id))[0]["state"] != "completed":
                await asyncio.sleep(0)
        results = [one.content for one in session.model("scout").requests[-1].messages if one.role == "tool"]
        assert results == [str(tmp_path), str(new)]


async def test_a_paused_subagent_goes_on_with_a_message_after_a_restart(tmp_path: Path) -> None:
    processes = Processes(tmp_path, max_tool_rounds=10)
    session = processes.session
    rounds = [call("look", {"number": number}) for number in range(10)]
    async with processes.process(
        [spawn("scout", "Look around"), call("wait_subagents"), "Paused."], scout=rounds
    ) as hub:
        await session.run(hub)
    async with processes.process(["Good."], scout=["It rains."]) as hub:
        assert (await hub.subagents(session.id))[0]["state"] == "paused"
        state = await hub.message_subagent(session.id, "scout-1", "Only the weather!")
        assert state["agent_id"] == "scout-1"
        await session.wait_for_event("subagent_completed", "scout-1")
        texts = [message.content for message in session.model("scout").requests[0].messages[1:]]
        assert (texts[0], texts[2], texts[-1]) == ("Look around", "seen 0", "Only the weather!")
        await session.run(hub, "And?")
        assert notices(session.main.requests[-1])[-1] == ending_text("scout-1 completed", "It rains.")
        check_grammar(await session.envelopes())


async def test_a_retry_after_a_restart_begins_anew_with_the_tools_it_was_given(tmp_path: Path) -> None:
    processes = Processes(tmp_path)
    session = processes.session
    async with processes.process(
        [spawn("scout", "Guess", tools=["look"]), call("wait_subagents"), "ok"], scout=["bad"]
    ) as hub:
        await session.run(hub)
    async with processes.process([], scout=["good"]) as hub:
        await hub.retry_subagent(session.id, "scout-1")
        await session.wait_for_event("subagent_completed", "scout-1", 2)
        (request,) = session.model("scout").requests
        assert [message.content for message in request.messages[1:]] == ["Guess"]
        assert [schema.name for schema in request.tools] == ["look"]
    async with processes.process([], scout=["other"]) as hub:
        await hub.message_subagent(session.id, "scout-1", "Another guess!")
        await session.wait_for_event("subagent_completed", "scout-1", 3)
        texts = [message.content for message in session.model("scout").requests[0].messages[1:]]
        assert texts == ["Guess", "good", "Another guess!"]


async def test_a_user_cancels_a_subagent_and_hears_what_cannot_be_done(tmp_path: Path, open_store: OpenStore) -> None:
    session = SubagentSession(tmp_path, open_store)
    async with session.hub([spawn("slow"), "Later."], slow=[hang()]) as hub:
        await session.run(hub)
        with pytest.raises(SubagentBusy, match="slow-1 has not ended; cancel it first"):
            await hub.retry_subagent(session.id, "slow-1")
        with pytest.raises(SubagentNotFound, match="there is no sub-agent 'x'; known: slow-1"):
            await hub.message_subagent(session.id, "x", "hi")
        with pytest.raises(SessionBusy, match=r"sub-agents of session .* work"):
            await hub.rewind(session.id, None)
        await hub.cancel_subagent(session.id, "slow-1")
        assert (await session.wait_for_event("subagent_error", "slow-1"))["data"]["code"] == "stopped"
        assert (await hub.cancel_subagent(session.id, "slow-1"))["state"] == "error"


async def test_a_shutdown_ends_subagents_within_its_time(tmp_path: Path, open_store: OpenStore) -> None:
    session = SubagentSession(tmp_path, open_store)
    began = 0.0
    async with session.hub([[spawn("a"), spawn("b")], "Later."], a=[hang()], b=[hang()]) as hub:
        await session.run(hub)
        await session.wait_for_event("round_start", "b-2")
        began = asyncio.get_running_loop().time()
    assert asyncio.get_running_loop().time() - began < 10  # on an idle machine a fraction of a second
    async with session.hub(["ok"]) as hub:
        assert {one["code"] for one in await hub.subagents(session.id)} == {"stopped"}
        await session.run(hub)
        told = told_endings(*notices(session.main.requests[0]))
        assert told == ["a-1 failed: stopped", "b-2 failed: stopped"]


@tool(risk="execute")
def act(number: int) -> str:
    """Act."""
    return f"done {number}"


async def ask_from(session: SubagentSession, hub: Any, names: list[str]) -> None:
    """Run a turn whose sub-agents ask the user, each of them once."""
    await session.run(hub)
    await session.wait_for(lambda one: one["type"] == "confirm_required", len(names))


@pytest.mark.parametrize("end", ["kill", "close"])
async def test_subagents_that_wait_for_a_person_go_on_after_a_restart(tmp_path: Path, end: str) -> None:
    processes = Processes(tmp_path, [act])
    session = processes.session
    asks = {name: [call("act", {"number": number})] for number, name in enumerate("ab", 1)}
    main = [[spawn("a"), spawn("b"), spawn("c")], "Later."]
    async with processes.process(main, **asks, c=[hang()]) as hub:
        await ask_from(session, hub, ["a", "b"])
        await session.wait_for_event("round_start", "c-3")
        if end == "close":
            await hub.close()
    async with processes.process(["I see."], a=["a ends"], b=["b ends"]) as hub:
        states = {one["agent_id"]: (one["state"], one.get("waits_for_user")) for one in await hub.subagents(session.id)}
        assert states == {"a-1": ("running", True), "b-2": ("running", True), "c-3": ("error", None)}
        first, second = sorted(await hub.open_requests(session.id), key=lambda one: one.agent_id)
        assert first.agent_path == ("meta", "a-1")
        await hub.answer(first.id, ConfirmAnswer(approved=True), digest=first.digest)
        await hub.answer(second.id, ConfirmAnswer(approved=False), digest=second.digest)
        for name in ("a-1", "b-2"):
            await session.wait_for_event("subagent_completed", name)
        await session.run(hub, "And?")
        code = "interrupted" if end == "kill" else "stopped"
        told = told_endings(*notices(session.main.requests[-1]))
        assert told == ["a-1 completed", "b-2 completed", f"c-3 failed: {code}"]
        log = await session.envelopes()
        check_grammar(log)
        results = [one["data"]["outcome"] for one in log if one["type"] == "tool_result" and one["agent_id"] != "meta"]
        assert sorted(results) == ["denied", "ok"]


async def test_a_subagent_that_goes_on_and_ends_while_others_are_ended_has_one_end(tmp_path: Path) -> None:
    others = ["b", "c", "d"]
    processes = Processes(tmp_path, [act])
    session = processes.session
    main = [spawn("a"), [spawn(name) for name in others], "Later."]
    async with processes.process(main, a=[call("act", {"number": 1})], **{name: [hang()] for name in others}) as hub:
        await ask_from(session, hub, ["a"])
        for number, name in enumerate(others, 2):
            await session.wait_for_event("round_start", f"{name}-{number}")
    memory = processes.memory
    loaded = await load(memory, session.id)
    (asked,) = (fact for fact in loaded.open_facts if fact.kind == "request_asked")
    answered = RequestAnswered(key=asked.key, turn_id=asked.turn_id, answer=ConfirmAnswer(approved=True))
    await add_fact(memory, session.id, answered)  # as just before a kill
    await end_lease(memory, session.id)
    read, others = memory.read, [turn for turn in loaded.child_turns if turn.id != asked.turn_id]
    others_begin = min(turn.after_seq or 0 for turn in others)

    async def read_others_slowly(session_id: str, after: int, limit: int) -> Sequence[StoredEvent]:
        if after >= others_begin:
            await asyncio.sleep(0.05)  # as from a slow disk, while the first one goes on and ends
        return await read(session_id, after, limit)

    memory.read = read_others_slowly
    async with processes.process(["I see."], a=["a ends"]):
        await session.wait_for_event("subagent_completed", "a-1")
        log = await session.envelopes()
        check_grammar(log)
        ends = Counter(one["type"] for one in log if one["type"] in ("final", "error"))
        assert ends == {"final": 2, "error": len(others)}


async def test_a_subagent_goes_on_that_begins_again_while_the_turn_that_started_it_is_ended(tmp_path: Path) -> None:
    processes = Processes(tmp_path, [act])
    session = processes.session
    async with processes.process([spawn("a"), hang()], a=[call("act", {"number": 1})]) as hub:
        await hub.start(session.id, TurnRequest(input="go"))
        await session.wait_for_event("confirm_required", "a-1")
        await session.wait_for_event("round_start", "meta", 2)
    read = processes.memory.read

    async def read_once_it_has_begun(session_id: str, after: int, limit: int) -> Sequence[StoredEvent]:
        begun = [task for task in asyncio.all_tasks() if task.get_name() == "agx sub-agent a-1"]
        if begun and asyncio.current_task() not in begun:  # as from a slow disk, to end the other turn
            await wait_until(lambda: processes.hub.gate.pending(session.id) or begun[0].done())
        return await read(session_id, after, limit)

    processes.memory.read = read_once_it_has_begun
    async with processes.process([], a=["a ends"]) as hub:
        await session.wait_for_event("error", "meta")
        (asked,) = hub.gate.pending(session.id)
        await hub.answer(asked.id, ConfirmAnswer(approved=True), digest=asked.digest)
        await session.wait_for_event("subagent_completed", "a-1")
        check_grammar(await session.envelopes())


async def wait_until_asked(session: SubagentSession, hub: Any) -> None:
    """Wait until a sub-agent asks the gate of this process."""
    await wait_until(lambda: hub.gate.pending_requests(session.id))


@pytest.mark.parametrize("ends", [("close", "close"), ("kill", "close", "close"), ("close", "close at once", "kill")])
@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize("asks", [call("act", {"number": 1}), call("ask_user", {"text": "Which?"})])
@pytest.mark.cases(quick=3)
async def test_a_question_of_a_subagent_is_answered_after_several_restarts(
    tmp_path: Path, ends: Sequence[str], depth: int, asks: Any
) -> None:
    processes = Processes(tmp_path, [act, ask_user])
    session = processes.session
    main = [spawn("leaf" if depth == 1 else "top"), "Later."]
    async with processes.process(main, top=[spawn("leaf"), "ok"], leaf=[asks]) as hub:
        await session.run(hub)
        await wait_until_asked(session, hub)
        before: Sequence[Any] = ()
        while not before:  # the gate has a question a moment before it is stored
            await asyncio.sleep(0.001)  # a store in memory answers without giving way to the turn
            before = await hub.open_requests(session.id)
        if ends[0] == "close":
            await hub.close()
    for end in ends[1:]:
        async with processes.process([], leaf=[]) as hub:
            if end != "close at once":
                await wait_until_asked(session, hub)
            if end != "kill":
                await hub.close()
    async with processes.process(["I see."], leaf=["leaf ends"]) as hub:
        request, yes = before[0], ConfirmAnswer(approved=True)
        answer = yes if isinstance(request, ConfirmRequest) else QuestionAnswer(answer="the first")
        await hub.answer(request.id, answer, digest=request.digest)
        await session.wait_for_event("subagent_completed", f"leaf-{depth}")
        await session.run(hub, "And?")
        assert ending_text(f"leaf-{depth} completed", "leaf ends") in notices(session.main.requests[-1])[-1]
        log = await session.envelopes()
        check_grammar(log)
        results = [one["data"]["outcome"] for one in log if one["type"] == "tool_result"]
        assert results == ["ok"] * (depth + 1)
    stored = await load(processes.memory, session.id)
    assert [fact for fact in stored.open_facts if isinstance(fact, ChildTurnSaved)] == []

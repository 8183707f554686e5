"""Child turns of a session's work that wait for a person go on after the program's end."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from agenticx.llms import ScriptedModel
from agenticx.runtime import (
    AgentRuntime,
    ConfirmAnswer,
    QuestionAnswer,
    RuntimeEvent,
    Session,
    Turn,
    TurnContext,
    TurnWork,
    ask_person,
)
from agenticx.sessions import Hub, OwnershipLost, SessionRecord, Store, StoredEvent, TurnRequest
from agenticx.settings import load_settings
from agenticx.testing import call, check_grammar, hang, outline
from agenticx.tools import tool
from agenticx.tools.builtin import ask_user
from tests.support.intercepted_store import InterceptedStore, Write
from tests.support.sessions import wait_for_turn_end
from tests.support.timeouts import wait_until
from tests.support.two_hubs import authority, hub_over

pytestmark = [pytest.mark.anyio, pytest.mark.keeps_owner]

OpenStore = Callable[[], Store]
YES = ConfirmAnswer(approved=True)
CALLS = ("round_start", "tool_call_delta", "tool_call")


class Program:
    """Processes one after another with one session, whose turns run `work`; `ran` lists the calls that took effect.

    One that `is_dead` writes nothing more; it `dies_after` a commit with such an event or fact.
    """

    def __init__(self, folder: Path, open_store: OpenStore) -> None:
        self.folder = folder
        self.open_store = open_store
        self.session_id = ""
        self.ran: list[str] = []
        self.models: dict[str, ScriptedModel] = {}
        self.seen: dict[str, list[RuntimeEvent]] = {}
        self.work: TurnWork | None = None
        self.hub: Any = None
        self.store: Any = None
        self.is_dead, self.dies_after = False, ""

    @property
    def post(self) -> Any:
        @tool(risk="execute")
        def post(text: str) -> str:
            """Post a text."""
            self.ran.append(text)
            return f"posted {text}"

        return post

    async def start(self, work: TurnWork, **settings: Any) -> Hub:
        """Begin a process whose sessions run `work`."""

        def session_work(_record: SessionRecord) -> TurnWork:
            return work

        self.is_dead, self.dies_after = False, ""
        self.store = InterceptedStore(self.open_store(), self._unless_dead)
        if not self.session_id:
            record = SessionRecord(name="x", workspace=str(self.folder), created_at="2026-01-01T00:00:00.000Z")
            await self.store.create(record)
            self.session_id = record.id
        self.hub = hub_over(
            self.store,
            models=lambda _: ScriptedModel([]),
            tools=lambda _: [],
            settings=load_settings({"home": self.folder, **settings}, environ={}),
            work=session_work,
        )
        await self.hub.recover()
        return self.hub

    async def end(self, how: str) -> None:
        """End the process: by "close", or by a "kill", after which nothing is written."""
        self.is_dead = how == "kill"
        await self.hub.close()
        await self.store.aclose()

    async def _unless_dead(self, write: Write) -> Sequence[StoredEvent]:
        if self.is_dead:
            raise OwnershipLost("the process has died")
        stored = await write.make()
        self.is_dead = self.is_dead or self.dies_after in write.types | write.fact_kinds  # it may have died meanwhile
        return stored

    async def answer(self, name: str, turn: Turn, script: Sequence[Any]) -> str:
        """Have the agent `name` answer below `turn`, and return its text."""
        model = self.models[name] = ScriptedModel(script)
        runtime = AgentRuntime(model, settings=load_settings({"home": self.folder}, environ={}))
        seen = self.seen[name] = []
        context, tools = TurnContext(parent=turn), [self.post, ask_user]
        async with aclosing(runtime.run_turn("go", Session(), agent_id=name, tools=tools, context=context)) as events:
            async for event in events:
                seen.append(event)
        return seen[-1].data["text"]

    async def asked(self, *, besides: Any = None) -> Any:
        """Return the oldest open request, once there is one `besides` one that was answered."""

        async def found() -> Any:
            requests = await self.hub.open_requests(self.session_id)
            return next((each for each in requests if besides is None or each.id != besides.id), None)

        return await wait_until(found)

    async def log(self, ends: int) -> list[dict[str, Any]]:
        """Return the envelopes of the session once so many turns have ended; their grammar is checked."""
        events = await wait_for_turn_end(authority(self.store), self.session_id, ends=ends)
        envelopes = [json.loads(event.frame_json) for event in events]
        check_grammar(envelopes)
        return envelopes

    async def facts(self) -> list[str]:
        """Return the kinds of the facts of open turns."""
        lease = await self.store.ownership.claim(self.session_id)
        return [fact.kind for fact in (await lease.load()).open_facts]


@pytest.fixture
def program(tmp_path: Path, open_store: OpenStore) -> Program:
    return Program(tmp_path, open_store)


def by_agent(log: Sequence[dict[str, Any]]) -> dict[str, list[str]]:
    """Return the outline of each turn by its agent."""
    names = {one["turn_id"]: one["agent_id"] for one in log if one["type"] == "turn_started"}
    assert len(set(names.values())) == len(names)
    return {name: outline([one for one in log if one["turn_id"] == id_]) for id_, name in names.items()}


@pytest.mark.parametrize("how", ["close", "kill"])
async def test_a_call_below_the_work_runs_once_it_is_allowed_after_a_restart(program: Program, how: str) -> None:
    async def work(turn: Turn) -> str:
        return "writer: " + await program.answer("writer", turn, script)

    script = [call("post", {"text": "a"}), call("post", {"text": "b"})]
    hub = await program.start(work)
    await hub.start(program.session_id, TurnRequest(input="go"))
    first = await program.asked()
    await hub.answer(first.id, YES, digest=first.digest)
    before = await program.asked(besides=first)
    earlier = program.seen["writer"]
    await program.end(how)
    script = ["Done."]
    hub = await program.start(work)
    assert await program.asked() == before
    assert program.ran == ["a"]
    await hub.answer(before.id, YES, digest=before.digest)
    log = await program.log(2)
    assert by_agent(log) == {
        "meta": ["turn_started", "token", "final"],
        "writer": [
            "turn_started",
            *(*CALLS, "confirm_required", "confirm_response", "tool_result") * 2,
            *("round_start", "token", "final"),
        ],
    }
    assert (program.ran, log[-1]["data"]["text"]) == (["a", "b"], "writer: Done.")
    shown = [message.content for message in program.models["writer"].requests[0].messages]
    assert shown == ["go", "", "posted a", "", "posted b"]
    seen = program.seen["writer"]
    assert [event.type for event in seen[: len(earlier)]] == [event.type for event in earlier]
    check_grammar(seen)
    await program.hub.close()
    assert "child_turn_saved" not in await program.facts()


@pytest.mark.parametrize("ends", [("close", "close"), ("kill", "close"), ("close", "close at once", "close")])
@pytest.mark.cases(quick=2)
async def test_a_call_below_the_work_waits_through_several_restarts(program: Program, ends: Sequence[str]) -> None:
    async def work(turn: Turn) -> str:
        return "writer: " + await program.answer("writer", turn, script)

    script: list[Any] = [call("post", {"text": "a"})]
    hub = await program.start(work)
    await hub.start(program.session_id, TurnRequest(input="go"))
    question = await program.asked()
    for end in ends:
        if end == "close":
            await wait_until(lambda: program.hub.gate.pending(program.session_id))
        await program.end(end.removesuffix(" at once"))
        script = ["Done."]
        hub = await program.start(work)
    await hub.answer(question.id, YES, digest=question.digest)
    log = await program.log(2)
    assert (program.ran, log[-1]["data"]["text"]) == (["a"], "writer: Done.")
    await hub.close()


@pytest.mark.parametrize("how", ["close", "kill"])
async def test_a_question_two_levels_below_the_work_is_answered_after_a_restart(program: Program, how: str) -> None:
    async def inner(turn: Turn) -> str:
        return await program.answer("leaf", turn, script)

    async def work(turn: Turn) -> str:
        runtime = AgentRuntime(ScriptedModel([]), settings=load_settings({"home": program.folder}, environ={}))
        context = TurnContext(parent=turn, work=inner)
        return (await runtime.run("inner", Session(), agent_id="pair", context=context)).text

    script: list[Any] = [call("ask_user", {"text": "Which?", "options": ["red"]})]
    hub = await program.start(work)
    await hub.start(program.session_id, TurnRequest(input="go"))
    question = await program.asked()
    assert question.agent_path == ("meta", "pair", "leaf")
    await program.end(how)
    script = ["Red it is."]
    hub = await program.start(work)
    assert await hub.answer(question.id, QuestionAnswer(answer="red")) == QuestionAnswer(answer="red")
    log = await program.log(3)
    asking = ("question_asked", "question_answered", "tool_result")
    assert by_agent(log) == {
        "meta": ["turn_started", "token", "final"],
        "pair": ["turn_started", "token", "final"],
        "leaf": ["turn_started", *CALLS, *asking, "round_start", "token", "final"],
    }
    assert log[-1]["data"]["text"] == "Red it is."
    await hub.close()


@pytest.mark.parametrize("how", ["close", "kill"])
async def test_the_work_itself_gets_its_answers_after_a_restart_each_asked_once(program: Program, how: str) -> None:
    async def work(_turn: Turn) -> str:
        return " ".join([(await ask_person(text)).answer for text in ("one?", "two?")])

    hub = await program.start(work)
    await hub.start(program.session_id, TurnRequest(input="go"))
    one = await program.asked()
    await hub.answer(one.id, QuestionAnswer(answer="1"))
    two = await program.asked(besides=one)
    await program.end(how)
    hub = await program.start(work)
    await hub.answer(two.id, QuestionAnswer(answer="2"))
    log = await program.log(1)
    assert outline(log) == ["turn_started", *("question_asked", "question_answered") * 2, "token", "final"]
    assert log[-1]["data"]["text"] == "1 2"
    await hub.close()


@pytest.mark.parametrize("last", ["request_answered", "confirm_response", "call_began"])
async def test_an_answer_that_is_stored_just_before_a_kill_counts_unless_the_call_began(
    program: Program, last: str
) -> None:
    async def work(turn: Turn) -> str:
        return await program.answer("writer", turn, script)

    script: list[Any] = [call("post", {"text": "a"})]
    hub = await program.start(work)
    await hub.start(program.session_id, TurnRequest(input="go"))
    question = await program.asked()
    program.dies_after = last
    answering = asyncio.create_task(hub.answer(question.id, YES, digest=question.digest))
    await wait_until(lambda: program.is_dead)
    answering.cancel()
    await program.end("kill")
    script = ["Done."]
    hub = await program.start(work)
    log = await program.log(2)
    outcomes = [one["data"]["outcome"] for one in log if one["type"] == "tool_result"]
    ended_by = log[-1]["data"].get("code", "answer")
    assert (outcomes, ended_by) == ((["unknown"], "interrupted") if last == "call_began" else (["ok"], "answer"))
    assert program.ran == ["a"] or (last == "call_began" and program.ran == [])  # it had begun, as far as is known
    await hub.close()


async def test_a_stop_after_the_restart_closes_the_question_and_ends_all_turns(program: Program) -> None:
    async def work(turn: Turn) -> str:
        return await program.answer("writer", turn, [call("post", {"text": "a"})])

    hub = await program.start(work)
    await hub.start(program.session_id, TurnRequest(input="go"))
    await program.asked()
    await program.end("kill")
    hub = await program.start(work)
    await program.asked()
    await hub.stop(program.session_id)
    log = await program.log(2)
    ends = [(one["agent_id"], one["data"]["code"]) for one in log if one["type"] == "error"]
    assert (ends, program.ran) == ([("writer", "stopped"), ("meta", "stopped")], [])
    await hub.close()


async def test_a_turn_that_the_work_does_not_begin_again_is_ended_before_it(program: Program) -> None:
    async def work(turn: Turn) -> str:
        return await program.answer("writer", turn, [call("post", {"text": "a"})])

    async def other_work(_turn: Turn) -> str:
        return "Something else."

    hub = await program.start(work)
    await hub.start(program.session_id, TurnRequest(input="go"))
    question = await program.asked()
    await program.end("kill")
    hub = await program.start(other_work)
    log = await program.log(2)
    ends = [(one["agent_id"], one["type"], one["data"].get("code")) for one in log if one["type"] in ("error", "final")]
    assert ends == [("writer", "error", "interrupted"), ("meta", "final", None)]
    assert (await hub.open_requests(), program.ran) == ([], [])
    assert question.id in [one["data"].get("id") for one in log if one["type"] == "confirm_response"]
    await hub.close()


async def test_the_work_is_ended_if_a_turn_below_it_did_more_than_wait(program: Program) -> None:
    async def work(turn: Turn) -> str:
        scripts = {"a": [call("post", {"text": "a"})], "b": [hang()]}
        await asyncio.gather(*(program.answer(name, turn, script) for name, script in scripts.items()))
        return "unused"

    hub = await program.start(work)
    await hub.start(program.session_id, TurnRequest(input="go"))
    await program.asked()
    await wait_until(lambda: len(program.seen.get("b", ())) >= 2)
    await program.end("kill")
    hub = await program.start(work)
    log = await program.log(3)
    ends = {one["agent_id"]: one["data"]["code"] for one in log if one["type"] == "error"}
    assert ends == dict.fromkeys(("a", "b", "meta"), "interrupted")
    assert log[-1]["agent_id"] == "meta"
    await hub.close()

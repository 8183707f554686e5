"""Permissions of sub-agents: never more than their parent's; a stop reaches all that they do."""

from __future__ import annotations

import asyncio
import random
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

import pytest

from agenticx.permissions import PermissionMode
from agenticx.runtime import ConfirmAnswer
from agenticx.sessions import MemoryStore, Store, TurnRequest
from agenticx.testing import call, check_grammar
from agenticx.tools import Assessment, Tool, ToolContext, tool
from agenticx.tools.builtin import bash_exec
from tests.support.lanes import Count
from tests.support.teams.subagent_sessions import SubagentSession, spawn
from tests.support.timeouts import PatientClock, wait_until

pytestmark = pytest.mark.anyio

MODES: tuple[PermissionMode, ...] = get_args(PermissionMode)
WITHOUT_ASKING = {"default": {"see"}, "plan": {"see"}, "accept_edits": {"see", "edit"}, "auto": {"see", "edit", "act"}}
"""The tools that a mode allows without asking; in plan mode the others are denied, elsewhere asked about."""


class Policies:
    """A session and a turn with two policies, and a tree of three sub-agents each of which gets a part of the tools."""

    def __init__(self, folder: Path, rng: random.Random) -> None:
        self.rng = rng
        self.ran: list[tuple[str, str]] = []
        self.session_mode: PermissionMode = rng.choice(MODES)
        self.turn_mode: PermissionMode = rng.choice(MODES)
        store = MemoryStore()
        tools = [self._tool("see", "read"), self._tool("edit", "write"), self._tool("act", "execute")]
        self.session = SubagentSession(folder, lambda: store, tools, mode=self.session_mode)
        self.given = self._random_parts()

    def _tool(self, name: str, risk: Any) -> Tool:
        def assess(arguments: Mapping[str, Any], context: ToolContext) -> Assessment:
            return Assessment(risk=risk, paths=("a.txt",))

        @tool(name=name, risk=risk, read_only=False, assess=assess)
        async def use(agent: str) -> str:
            """Do something."""
            self.ran.append((agent, name))
            return "done"

        return use

    def _random_parts(self) -> Sequence[list[str]]:
        """Return the tools of each sub-agent, each a part of those of the one above."""
        parts, above = list[list[str]](), ["see", "edit", "act"]
        for _ in range(3):
            above = [name for name in above if self.rng.random() < 0.85]
            parts.append(above)
        return parts

    def script(self, depth: int) -> list[Any]:
        """Return the script of the sub-agent at a depth, which tries all tools and starts the next one."""
        own = f"l{depth}"
        tries = [call(name, {"agent": own}) for name in ("see", "edit", "act")]
        if depth == 3:
            return [tries, "end"]
        tools = [*self.given[depth], "spawn_subagent", "wait_subagents"]
        return [tries, spawn(f"l{depth + 1}", tools=tools), call("wait_subagents"), "end"]

    async def run(self) -> Counter[tuple[str, str]]:
        """Run the turn, answer its questions at random, and return the approved calls by agent and tool."""
        session, approved = self.session, Counter[tuple[str, str]]()
        first = spawn("l1", tools=[*self.given[0], "spawn_subagent", "wait_subagents"])
        scripts = {f"l{depth}": self.script(depth) for depth in (1, 2, 3)}
        async with session.hub([first, call("wait_subagents"), "end"], **scripts) as hub:
            request = TurnRequest(input="go", permission_mode=self.turn_mode)
            turn = asyncio.create_task(hub.start(session.id, request))
            while not any(one["type"] == "final" and one["agent_id"] == "meta" for one in await session.envelopes()):
                for asked in await hub.open_requests(session.id):
                    assert asked.agent_path[0] == "meta"
                    answer = ConfirmAnswer(approved=self.rng.random() < 0.5)
                    await hub.answer(asked.id, answer, digest=asked.digest)
                    if answer.approved:
                        approved[asked.agent_id.split("-")[0], asked.context["tool"]] += 1
                await asyncio.sleep(0.001)
            await turn
            check_grammar(await session.envelopes())
        return approved


@pytest.mark.promise("D6")
async def test_no_subagent_does_what_its_parent_may_not(tmp_path: Path, rng: random.Random, count: Count) -> None:
    asked = 0
    for _ in range(count(4, 60, 200)):
        policies = Policies(tmp_path, rng)
        approved = await policies.run()
        asked += approved.total()
        free = WITHOUT_ASKING[policies.turn_mode]
        for depth, tools in enumerate(policies.given, 1):
            agent = f"l{depth}"
            allowed = {(agent, name) for name in tools if name in free}
            assert {one for one in policies.ran if one[0] == agent} == allowed | {
                one for one in approved if one[0] == agent
            }
            assert all(name in tools and policies.turn_mode != "plan" for one, name in approved if one == agent)
    assert asked


@pytest.mark.promise("D6")
@pytest.mark.promise("F2")
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="processes are found in /proc")
async def test_a_stop_ends_all_subagents_and_their_processes_in_time(
    tmp_path: Path, open_store: Callable[[], Store]
) -> None:
    seconds = f"1000.{random.SystemRandom().randrange(10**9)}"
    session = SubagentSession(tmp_path, open_store, [bash_exec], mode="auto")
    command = call("bash_exec", {"command": f"setsid sleep {seconds} & sleep {seconds}"})
    inner = [[spawn("leaf"), command], "never"]
    async with session.hub([[spawn("mid"), call("wait_subagents")]], mid=inner, leaf=[command]) as hub:
        turn = await hub.start(session.id, TurnRequest(input="go"))
        await session.wait_for(lambda one: one["type"] == "confirm_required", 2)
        for asked in await hub.open_requests(session.id):
            await hub.answer(asked.id, ConfirmAnswer(approved=True), digest=asked.digest)
        await wait_until(lambda: len(sleeping(seconds)) == 4)
        began = asyncio.get_running_loop().time()
        await hub.stop(session.id)
        await session.wait_for(lambda one: one["turn_id"] == turn.id and one["type"] == "error")
        await session.wait_for(lambda one: one["type"] == "error" and one["data"]["code"] == "stopped", 3)
        await wait_until(lambda: not sleeping(seconds))
        assert asyncio.get_running_loop().time() - began < PatientClock().real(3)
        errors = await session.wait_for(lambda one: one["type"] == "subagent_error", 2)
        assert [one["data"]["code"] for one in errors] == ["stopped"] * 2


def sleeping(seconds: str) -> list[str]:
    """Return the processes that sleep for that long, each of which is named by its path."""
    found: list[str] = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_bytes().split(b"\0")
        except OSError:
            continue
        if line[:2] == [b"sleep", seconds.encode()]:
            found.append(str(path))
    return found

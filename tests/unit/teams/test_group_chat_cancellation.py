"""Group chats: their end after a cancellation, and what is kept of a run that was left."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from agenticx.runtime import Session
from agenticx.teams import (
    AssistantAgent,
    CancellationToken,
    RoundRobinGroupChat,
    SelectorGroupChat,
    SingleThreadedAgentRuntime,
    TaskResult,
    ToolCallRequestEvent,
)
from agenticx.testing import ScriptedModel, call, say
from agenticx.tools import tool
from tests.support.teams.sessions import by_agent, log_of, open_session
from tests.unit.teams.chat_agents import Saying, Thinking, lines

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def around(member: Any, depth: int, session: Session | None = None) -> Any:
    """Return the member in as many teams around each other, the outermost one with the session."""
    for level in range(depth):
        own: Any = {"session": session} if session is not None and level == depth - 1 else {}
        member = RoundRobinGroupChat([member], max_turns=1, name=f"t{level}", **own)
    return member


async def seen_until(who: Any, token: CancellationToken, is_last: Callable[[Any], bool]) -> list[str]:
    """Run on a task and cancel at the first message that `is_last`; return all messages."""
    seen: list[str] = []

    async def consume() -> None:
        async for item in who.run_stream(task="go", cancellation_token=token):
            assert not isinstance(item, TaskResult)
            seen.extend(lines([item]))
            if is_last(item):
                token.cancel()

    with pytest.raises(asyncio.CancelledError):
        await consume()
    return seen


# --- beginnings -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("depth", [0, 1, 2])
async def test_a_call_that_the_consumer_cancels_when_it_sees_it_does_not_begin(depth: int) -> None:
    begun: list[str] = []

    @tool(risk="read")
    async def note() -> str:
        """Note the call."""
        begun.append("async")
        return "noted"

    @tool(risk="read")
    def note_in_thread() -> str:
        """Note the call."""
        begun.append("plain")
        return "noted"

    for name in ("note", "note_in_thread"):
        agent = AssistantAgent("x", ScriptedModel([call(name, {})]), tools=[note, note_in_thread])
        token = CancellationToken()
        await seen_until(around(agent, depth), token, lambda item: isinstance(item, ToolCallRequestEvent))
    assert begun == []


@pytest.mark.parametrize("with_session", [False, True])
@pytest.mark.parametrize("depth", [0, 1, 3])
@pytest.mark.cases(quick=2)
@pytest.mark.ci_lane
async def test_no_call_begins_after_a_cancellation_at_any_point_of_a_run(depth: int, with_session: bool) -> None:
    for steps in range(0, 180, 7):
        token, begun_late = CancellationToken(), list[int]()

        @tool(risk="read", parallel=False)
        async def look(n: int) -> str:
            """Note a beginning after the cancellation."""
            if token.is_cancelled():  # noqa: B023 - called in this iteration only
                begun_late.append(n)  # noqa: B023
            await asyncio.sleep(0)
            return "seen"

        calls = [call("look", {"n": n}) for n in range(4)]
        agent = AssistantAgent("x", ScriptedModel([calls, calls, say("Done.")]), tools=[look])
        who = around(agent, depth, Session() if with_session else None)
        run = asyncio.ensure_future(who.run(task="go", cancellation_token=token))
        for _ in range(steps):
            await asyncio.sleep(0)
        token.cancel()
        await asyncio.wait({run})
        assert run.cancelled() or not run.exception()
        assert begun_late == []


@pytest.mark.parametrize("runtime", [None, SingleThreadedAgentRuntime])
async def test_after_a_cancellation_at_a_message_nobody_else_speaks(runtime: Any) -> None:
    y = Saying("y")
    team = RoundRobinGroupChat([Saying("x"), y], max_turns=2, runtime=runtime and runtime())
    assert await seen_until(team, CancellationToken(), lambda item: item.source == "x") == ["user: go", "x: x here"]
    assert y.sent == []


async def test_after_a_cancellation_at_a_message_no_speaker_is_chosen() -> None:
    asked: list[int] = []

    def choose(messages: Any) -> str:
        asked.append(len(messages))
        return "x"

    team = SelectorGroupChat([Saying("x"), Saying("y")], ScriptedModel(), selector_func=choose, max_turns=3)
    await seen_until(team, CancellationToken(), lambda item: item.source == "x")
    assert asked == [1]


async def test_a_run_may_be_cancelled_in_another_thread() -> None:
    y, token = Saying("y"), CancellationToken()

    def cancel(item: Any) -> bool:
        if item.source == "x":
            thread = threading.Thread(target=token.cancel)
            thread.start()
            thread.join()
        return False

    await seen_until(RoundRobinGroupChat([Saying("x"), y], max_turns=2), token, cancel)
    assert y.sent == []


# --- results ----------------------------------------------------------------------------------------------------------


async def test_no_result_comes_out_after_a_cancellation_at_any_point() -> None:
    for steps in range(40):
        token = CancellationToken()
        run = asyncio.ensure_future(
            RoundRobinGroupChat([Saying("x")], max_turns=1).run(task="go", cancellation_token=token)
        )
        for _ in range(steps):
            await asyncio.sleep(0)
        was_done = run.done()
        token.cancel()
        await asyncio.wait({run})
        assert run.cancelled() is not was_done


# --- a speech that was seen -------------------------------------------------------------------------------------------


async def leave_at_x_answer(team: Any, how: str) -> Any:
    """Run the team until the answer of x, after its thought, and leave it there; return its state then."""
    token = CancellationToken()
    stream = team.run_stream(task="go", cancellation_token=token)
    while (await anext(stream)).to_text() != "1":
        pass
    state = await team.save_state()
    if how == "cancel":
        token.cancel()
        with pytest.raises(asyncio.CancelledError):
            await anext(stream)
    await stream.aclose()
    return state


@pytest.mark.parametrize("how", ["cancel", "close"])
@pytest.mark.parametrize("goes_on", ["same", "restored"])
async def test_a_speech_that_was_seen_is_not_made_again(how: str, goes_on: str) -> None:
    def team() -> Any:
        return RoundRobinGroupChat([Thinking("x", "1", "2"), Saying("y")], max_turns=2)

    first = team()
    state = await leave_at_x_answer(first, how)
    if goes_on == "restored":
        first = team()
        await first.load_state(state)
    assert lines((await first.run()).messages) == ["y: y here", "x: Hm.", "x: 2"]


async def test_a_model_does_not_get_a_message_twice_after_its_answer_was_left() -> None:
    x, y = ScriptedModel([say("x1"), say("x2")]), ScriptedModel([say("y1")])
    team = RoundRobinGroupChat([AssistantAgent("x", x), AssistantAgent("y", y)], max_turns=2)
    await seen_until(team, CancellationToken(), lambda item: item.source == "x")
    assert lines((await team.run()).messages) == ["y: y1", "x: x2"]
    assert [m.role for m in x.requests[1].messages] == ["system", "user", "assistant", "user"]


# --- in a session -----------------------------------------------------------------------------------------------------


async def left_by_token(stream: Any, token: CancellationToken) -> None:
    token.cancel()
    with pytest.raises(asyncio.CancelledError):
        await anext(stream)


async def left_by_close(stream: Any, token: CancellationToken) -> None:
    await stream.aclose()


@pytest.mark.parametrize("leave", [left_by_token, left_by_close])
@pytest.mark.parametrize("messages", [1, 2, 3, 4])
@pytest.mark.parametrize("depth", [0, 1])
@pytest.mark.cases(quick=4)
async def test_the_turn_of_a_run_that_was_left_is_stopped(
    leave: Callable[[Any, CancellationToken], Awaitable[None]],
    messages: int,
    depth: int,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with open_session(tmp_path) as (hub, session_id):
        token = CancellationToken()
        pair = RoundRobinGroupChat([Saying("x"), Saying("y")], max_turns=2, name="pair") if depth else Saying("x")
        team = RoundRobinGroupChat([pair, Saying("z"), Saying("w")], max_turns=3, session=session_id)
        stream = team.run_stream(task="go", cancellation_token=token)
        for _ in range(messages):
            await anext(stream)
        await leave(stream, token)
        while hub.running_turn_id(session_id) is not None:
            await asyncio.sleep(0)
        (run,) = by_agent(await log_of(hub, session_id))["meta"]
        assert (run[-1]["type"], run[-1]["data"]["code"]) == ("error", "stopped")
    assert "Traceback" not in caplog.text

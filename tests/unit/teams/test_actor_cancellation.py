"""Actors: cancellation at any point, and stopping with messages in flight."""

from __future__ import annotations

import asyncio
import threading

import pytest

from agenticx import AgenticXError
from agenticx.teams import (
    AgentId,
    BaseAgent,
    CancellationToken,
    DefaultSubscription,
    DefaultTopicId,
    SingleThreadedAgentRuntime,
    UndeliverableException,
)
from tests.support.teams.actors import Echo, Held, Recorder, registered
from tests.support.timeouts import wait_until

pytestmark = pytest.mark.anyio

TOPIC = DefaultTopicId()


# --- tokens -----------------------------------------------------------------------------------------------------------


async def test_a_token_calls_back_once_and_at_once_if_it_is_cancelled_already():
    token, calls = CancellationToken(), []
    token.add_callback(lambda: calls.append("early"))
    assert (token.is_cancelled(), calls) == (False, [])
    token.cancel()
    token.cancel()
    token.add_callback(lambda: calls.append("late"))
    assert (token.is_cancelled(), calls) == (True, ["early", "late"])


async def test_a_token_cancels_linked_futures():
    token, loop = CancellationToken(), asyncio.get_running_loop()
    linked = token.link_future(loop.create_future())
    done = token.link_future(loop.create_future())
    done.set_result(1)
    token.cancel()
    late = token.link_future(loop.create_future())
    assert (linked.cancelled(), done.result(), late.cancelled()) == (True, 1, True)


async def test_a_token_may_be_cancelled_in_another_thread():
    token = CancellationToken()
    linked = token.link_future(asyncio.get_running_loop().create_future())
    threading.Thread(target=token.cancel).start()
    with pytest.raises(asyncio.CancelledError):
        await linked


async def test_all_callbacks_are_called_even_if_one_raises(caplog):
    token, calls = CancellationToken(), []
    for text in ("one", "two"):
        token.add_callback(lambda text=text: calls.append(text) or int(text))
    with pytest.raises(AgenticXError, match=r"cancellation callback raised ValueError.*'one'"):
        token.cancel()
    assert calls == ["one", "two"]
    assert "'two'" in caplog.text


# --- at any point -----------------------------------------------------------------------------------------------------


class Outer(BaseAgent):
    """An agent that sends each message on to "inner" and records its beginning and end."""

    def __init__(self, record):
        super().__init__("Sends on.")
        self.record = record

    async def on_message_impl(self, message, ctx):
        self.record.append("outer begins")
        try:
            return await self.send_message(message, AgentId("inner", "x"), cancellation_token=ctx.cancellation_token)
        finally:
            self.record.append("outer ends")


class Inner:
    """An agent that never answers."""

    def __init__(self, record):
        self.record = record

    async def on_message(self, message, ctx):
        self.record.append("inner begins")
        try:
            await asyncio.sleep(0)
            await ctx.cancellation_token.link_future(asyncio.get_running_loop().create_future())
        finally:
            self.record.append("inner ends")


@pytest.mark.parametrize("steps", range(20))
@pytest.mark.parametrize("how", ["token", "task", "stop", "close"])
async def test_a_message_can_be_cancelled_at_any_point(how, steps, caplog):
    runtime, token, record = SingleThreadedAgentRuntime(), CancellationToken(), []

    async def make():
        await asyncio.sleep(0)
        return Outer(record)

    await runtime.register("outer", make)
    await runtime.register("inner", lambda: Inner(record))
    before = asyncio.all_tasks()
    answer = asyncio.create_task(runtime.send_message("go", AgentId("outer", "x"), cancellation_token=token))
    for _ in range(steps + 1):
        await asyncio.sleep(0)
    match how:
        case "token":
            token.cancel()
        case "task":
            answer.cancel()
        case "stop":
            await runtime.stop()
        case "close":
            await runtime.close()
    with pytest.raises(asyncio.CancelledError):
        await answer
    assert record.count("outer begins") == record.count("outer ends")
    assert record.count("inner begins") == record.count("inner ends")
    assert runtime.unprocessed_messages_count == 0
    await runtime.stop_when_idle()
    await asyncio.sleep(0)
    assert asyncio.all_tasks() == before
    assert caplog.text == ""


async def test_a_handler_that_has_not_begun_when_its_message_is_cancelled_does_not_begin():
    for steps in range(12):
        runtime, token, begun_late = SingleThreadedAgentRuntime(), CancellationToken(), []

        class Noting:
            async def on_message(self, message, ctx, token=token, begun_late=begun_late):
                begun_late.append(token.is_cancelled())

        await runtime.register("noting", Noting)
        answer = asyncio.create_task(runtime.send_message("go", AgentId("noting", "x"), cancellation_token=token))
        for _ in range(steps):
            await asyncio.sleep(0)
        token.cancel()
        await asyncio.wait({answer})
        assert True not in begun_late


@pytest.mark.parametrize("steps", range(12))
async def test_an_error_is_raised_or_logged_whenever_its_sender_is_cancelled(steps, caplog):
    class Failing(Recorder):
        async def on_message(self, message, ctx):
            try:
                await asyncio.sleep(0)
            finally:
                await super().on_message(message, ctx)

    runtime, failing = SingleThreadedAgentRuntime(), Failing()
    agent = await registered(runtime, failing)
    answer = asyncio.create_task(runtime.send_message(ValueError("bad"), agent))
    for _ in range(steps):
        await asyncio.sleep(0)
    answer.cancel()
    outcomes = await asyncio.gather(answer, return_exceptions=True)
    raised = isinstance(outcomes[0], ValueError)
    assert len(failing.got) == raised + caplog.text.count("ValueError: bad")


async def test_a_queued_message_that_was_cancelled_is_not_delivered():
    runtime, recorder = SingleThreadedAgentRuntime(autostart=False), Recorder()
    agent, token = await registered(runtime, recorder), CancellationToken()
    await runtime.add_subscription(DefaultSubscription(agent_type="agent"))
    sent = asyncio.create_task(runtime.send_message("sent", agent, cancellation_token=token))
    await runtime.publish_message("published", TOPIC, cancellation_token=token)
    await runtime.publish_message("kept", TOPIC)
    await wait_until(lambda: runtime.unprocessed_messages_count == 3)
    token.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sent
    assert runtime.unprocessed_messages_count == 1
    runtime.start()
    await runtime.stop_when_idle()
    assert recorder.got == ["kept"]


async def test_a_token_cancels_the_handlers_of_a_published_message():
    runtime, held, token = SingleThreadedAgentRuntime(), Held(), CancellationToken()
    await registered(runtime, held)
    await runtime.add_subscription(DefaultSubscription(agent_type="agent"))
    await runtime.publish_message("go", TOPIC, cancellation_token=token)
    await wait_until(lambda: held.begun)
    token.cancel()
    await runtime.stop_when_idle()
    assert held.ended == 1


async def test_nothing_is_sent_with_a_token_that_is_cancelled():
    runtime, recorder, token = SingleThreadedAgentRuntime(), Recorder(), CancellationToken()
    agent = await registered(runtime, recorder)
    token.cancel()
    for message in (
        runtime.send_message("sent", agent, cancellation_token=token),
        runtime.publish_message("published", TOPIC, cancellation_token=token),
    ):
        with pytest.raises(asyncio.CancelledError):
            await message
    await runtime.stop_when_idle()
    assert recorder.got == []


async def test_a_message_that_waits_for_room_can_be_cancelled():
    runtime, recorder = SingleThreadedAgentRuntime(autostart=False, queue_size=1), Recorder()
    await registered(runtime, recorder)
    await runtime.add_subscription(DefaultSubscription(agent_type="agent"))
    token = CancellationToken()
    await runtime.publish_message("first", TOPIC)
    by_token = asyncio.create_task(runtime.publish_message("by token", TOPIC, cancellation_token=token))
    by_task = asyncio.create_task(runtime.publish_message("by task", TOPIC))
    last = asyncio.create_task(runtime.publish_message("last", TOPIC))
    await asyncio.sleep(0)
    token.cancel()
    by_task.cancel()
    for cancelled in (by_token, by_task):
        with pytest.raises(asyncio.CancelledError):
            await cancelled
    runtime.start()
    await last
    await runtime.stop_when_idle()
    assert recorder.got == ["first", "last"]


async def test_a_handler_that_ignores_cancellation_is_abandoned_and_can_send_no_more(caplog):
    runtime, outcome = SingleThreadedAgentRuntime(), asyncio.Queue()
    begun, release = asyncio.Event(), asyncio.Event()

    class Stubborn(BaseAgent):
        async def on_message_impl(self, message, ctx):
            begun.set()
            while not release.is_set():
                try:
                    await release.wait()
                except asyncio.CancelledError:
                    continue
            try:
                await self.publish_message("late", TOPIC)
            except UndeliverableException as exc:
                outcome.put_nowait(str(exc))

    await Stubborn.register(runtime, "stubborn", lambda: Stubborn("Goes on."))
    answer = asyncio.create_task(runtime.send_message("go", AgentId("stubborn", "x")))
    await begun.wait()
    answer.cancel()
    with pytest.raises(asyncio.CancelledError):
        await answer
    await runtime.stop_when_idle()
    release.set()
    assert await outcome.get() == "str to default/default was not queued: the runtime is stopped"
    assert "agent stubborn/x" in caplog.text


# --- stopping ---------------------------------------------------------------------------------------------------------


async def test_stop_leaves_no_sender_waiting_and_the_runtime_can_be_started_again(caplog):
    runtime, held = SingleThreadedAgentRuntime(queue_size=3), Held()
    agent = await registered(runtime, held)
    await runtime.add_subscription(DefaultSubscription(agent_type="agent"))
    sends = [asyncio.create_task(runtime.send_message(number, agent)) for number in range(10)]
    await wait_until(lambda: held.begun == 3)
    await runtime.stop()
    answers = await asyncio.gather(*sends, return_exceptions=True)
    assert [type(answer) for answer in answers] == [asyncio.CancelledError] * 10
    assert (held.begun, held.ended, runtime.unprocessed_messages_count) == (3, 3, 0)
    held.release.set()
    assert await runtime.send_message("again", agent) == "again"
    await runtime.close()


async def test_a_stop_says_how_many_published_messages_it_drops(caplog):
    runtime, recorder = SingleThreadedAgentRuntime(autostart=False), Recorder()
    await registered(runtime, recorder)
    await runtime.add_subscription(DefaultSubscription(agent_type="agent"))
    for number in range(3):
        await runtime.publish_message(number, TOPIC)
    await runtime.stop()
    assert "published messages were dropped by a stop messages=3" in caplog.text
    assert (recorder.got, runtime.unprocessed_messages_count) == ([], 0)


async def test_a_stop_ends_process_next_and_the_making_of_agents():
    runtime = SingleThreadedAgentRuntime()

    begun = asyncio.Event()

    async def make():
        begun.set()
        await asyncio.Event().wait()

    await runtime.register("slow", make)
    tasks = [
        asyncio.create_task(runtime.send_message("go", AgentId("slow", "x"))),
        asyncio.create_task(runtime.get_agent(AgentId("slow", "x"))),
    ]
    await begun.wait()
    tasks.append(asyncio.create_task(runtime.process_next()))
    await asyncio.sleep(0)
    await runtime.stop()
    outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [asyncio.CancelledError] * 3


async def test_a_handler_may_stop_the_runtime_and_still_answers():
    runtime, held = SingleThreadedAgentRuntime(), Held()
    other = await registered(runtime, held)

    class Stopper(BaseAgent):
        async def on_message_impl(self, message, ctx):
            if message == "idle":
                await self.runtime.stop_when_idle()
            await self.runtime.stop()
            return "stopped"

    await Stopper.register(runtime, "stopper", lambda: Stopper("Stops."))
    waiting = asyncio.create_task(runtime.send_message("wait", other))
    await wait_until(lambda: held.begun)
    assert await runtime.send_message("stop", AgentId("stopper", "x")) == "stopped"
    assert waiting.cancelled()
    with pytest.raises(RuntimeError, match="a handler cannot wait until no handler is at work"):
        await runtime.send_message("idle", AgentId("stopper", "x"))


async def test_a_closed_runtime_takes_no_message_and_closes_its_agents(caplog):
    closed = []

    class Closing(Echo):
        def __init__(self, name):
            self.name = name

        async def close(self):
            closed.append(self.name)
            if self.name == "bad":
                raise OSError("stuck")

    runtime = SingleThreadedAgentRuntime()
    for name in ("bad", "good"):
        await registered(runtime, Closing(name), name)
    agent = await registered(runtime, Echo(), "plain")
    with pytest.raises(AgenticXError, match="close of agent bad/default raised OSError: stuck"):
        await runtime.close()
    await runtime.close()
    assert closed == ["bad", "good"]
    with pytest.raises(UndeliverableException, match="the runtime is closed"):
        await runtime.send_message("late", agent)
    with pytest.raises(RuntimeError, match="the runtime is closed"):
        runtime.start()
    with pytest.raises(RuntimeError, match="the runtime is closed"):
        await runtime.process_next()


def test_the_same_runtime_serves_one_event_loop_after_another():
    runtime = SingleThreadedAgentRuntime()

    async def ask(message):
        if message == "first":
            await registered(runtime, Echo())
        return await runtime.send_message(message, AgentId("agent", "default"))

    assert [asyncio.run(ask(message)) for message in ("first", "second")] == ["first", "second"]

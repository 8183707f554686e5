"""Actors: sending, publishing, errors of handlers, and the bounded queue."""

from __future__ import annotations

import asyncio
import logging
from contextvars import ContextVar

import pytest

from agenticx import AgenticXError
from agenticx.clocks import ScaledClock
from agenticx.errors import UserCodeError
from agenticx.teams import (
    AgentId,
    BaseAgent,
    DefaultSubscription,
    DefaultTopicId,
    MessageRuntime,
    SingleThreadedAgentRuntime,
    TopicId,
    TypeSubscription,
    UndeliverableException,
)
from tests.support.teams.actors import Echo, Held, Recorder, registered
from tests.support.timeouts import PATIENCE, wait_until

pytestmark = pytest.mark.anyio

TOPIC = DefaultTopicId()


async def subscribed(runtime, agent, name="agent"):
    await runtime.add_subscription(DefaultSubscription(agent_type=name))
    return await registered(runtime, agent, name)


# --- sending ----------------------------------------------------------------------------------------------------------


async def test_a_sent_message_starts_the_runtime_and_is_answered():
    runtime = SingleThreadedAgentRuntime()
    assert isinstance(runtime, MessageRuntime)
    await runtime.register("echo", Echo)
    assert await runtime.send_message("hello", AgentId("echo", "x")) == "hello"


async def test_a_recipient_that_is_no_id_is_refused():
    runtime = SingleThreadedAgentRuntime()
    with pytest.raises(TypeError, match=r"recipient must be an AgentId, such as AgentId\('type', 'key'\), not str"):
        await runtime.send_message("hello", "echo/x")


async def test_the_context_says_who_sent_what_and_how():
    runtime, recorder = SingleThreadedAgentRuntime(), Recorder()
    agent = await subscribed(runtime, recorder)
    await runtime.send_message("one", agent, sender=AgentId("a", "b"), message_id="m1")
    await runtime.publish_message("two", TOPIC)
    await runtime.stop_when_idle()
    sent, published = recorder.contexts
    assert (sent.sender, sent.topic_id, sent.is_rpc, sent.message_id) == (AgentId("a", "b"), None, True, "m1")
    assert (published.sender, published.topic_id, published.is_rpc) == (None, TOPIC, False)
    assert published.message_id.startswith("msg_")
    assert not sent.cancellation_token.is_cancelled()


async def test_the_exception_of_a_handler_reaches_the_sender_as_it_is():
    runtime = SingleThreadedAgentRuntime()
    agent = await registered(runtime, Recorder())
    error = KeyError("missing")
    with pytest.raises(KeyError) as caught:
        await runtime.send_message(error, agent)
    assert caught.value is error
    await runtime.stop_when_idle()


@pytest.mark.parametrize("error", [SystemExit(3), asyncio.CancelledError(), GeneratorExit()], ids=repr)
async def test_what_is_no_exception_of_the_application_reaches_the_sender_as_an_error(error):
    runtime = SingleThreadedAgentRuntime()
    agent = await registered(runtime, Recorder())
    with pytest.raises(UserCodeError, match="agent agent/default"):
        await runtime.send_message(error, agent)


async def test_a_message_to_an_unknown_type_or_key_is_undeliverable():
    runtime = SingleThreadedAgentRuntime()
    await registered(runtime, Echo(), "known")
    with pytest.raises(UndeliverableException, match="no agent type 'other'; registered: known"):
        await runtime.send_message("hello", AgentId("other", "x"))
    with pytest.raises(UndeliverableException, match="no agent known/other"):
        await runtime.send_message("hello", AgentId("known", "other"))


@pytest.mark.ci_lane
async def test_ten_thousand_messages_arrive_in_order():
    runtime, recorder = SingleThreadedAgentRuntime(queue_size=100), Recorder()
    agent = await subscribed(runtime, recorder)
    for number in range(5_000):
        await runtime.publish_message(number, TOPIC)
    answers = await asyncio.gather(*(runtime.send_message(number, agent) for number in range(5_000, 10_000)))
    await runtime.stop_when_idle()
    assert recorder.got == list(range(10_000))
    assert answers == [None] * 5_000


async def test_handlers_run_beside_each_other_and_may_send_to_their_own_agent():
    runtime = SingleThreadedAgentRuntime()

    class Countdown(BaseAgent):
        async def on_message_impl(self, message, ctx):
            return [message, *(await self.send_message(message - 1, self.id) if message else [])]

    await Countdown.register(runtime, "countdown", lambda: Countdown("Counts."))
    assert await runtime.send_message(3, AgentId("countdown", "x")) == [3, 2, 1, 0]


async def test_a_handler_sees_the_context_variables_of_its_sender():
    variable, runtime = ContextVar("variable", default="none"), SingleThreadedAgentRuntime(autostart=False)

    class Reader:
        async def on_message(self, message, ctx):
            return variable.get()

    agent = await registered(runtime, Reader())
    variable.set("sender's")
    answer = asyncio.create_task(runtime.send_message("read", agent))
    await wait_until(lambda: runtime.unprocessed_messages_count)
    variable.set("later")
    await runtime.process_next()
    assert await answer == "sender's"


# --- publishing -------------------------------------------------------------------------------------------------------


async def test_a_published_message_reaches_each_subscriber_once_but_not_its_publisher():
    runtime = SingleThreadedAgentRuntime()
    recorders = [Recorder() for _ in range(3)]
    for number, recorder in enumerate(recorders):
        await subscribed(runtime, recorder, f"agent{number}")
    await runtime.add_subscription(TypeSubscription("other", "agent0"))
    await runtime.publish_message("news", TOPIC, sender=AgentId("agent2", "default"))
    await runtime.publish_message("rest", TopicId("other", "default"))
    await runtime.publish_message("unheard", TopicId("nobody", "x"))
    await runtime.stop_when_idle()
    assert [recorder.got for recorder in recorders] == [["news", "rest"], ["news"], []]


async def test_the_source_of_a_topic_is_the_key_of_the_agent_and_the_default_in_its_handlers():
    runtime, seen = SingleThreadedAgentRuntime(), []

    class Chain(BaseAgent):
        async def on_message_impl(self, message, ctx):
            seen.append((str(self.id), message))
            if message:
                await self.publish_message(message - 1, DefaultTopicId())

    for name in ("a", "b"):
        await runtime.register(name, lambda: Chain("Passes on."), [DefaultSubscription()])
    await runtime.publish_message(1, DefaultTopicId(source="s"))
    await runtime.stop_when_idle()
    assert sorted(seen) == [("a/s", 0), ("a/s", 1), ("b/s", 0), ("b/s", 1)]


async def test_the_first_error_of_subscribers_is_raised_once_by_who_runs_the_runtime(caplog):
    runtime = SingleThreadedAgentRuntime()
    await subscribed(runtime, Recorder())
    first, second = ValueError("first"), ValueError("second")
    with caplog.at_level(logging.INFO):
        await runtime.publish_message(first, TOPIC)
        await runtime.publish_message(second, TOPIC)
        with pytest.raises(ValueError, match="first") as caught:
            await runtime.stop_when_idle()
    assert caught.value is first
    await runtime.close()
    lines = [(record.name, record.getMessage()) for record in caplog.records]
    assert [name.rpartition(".")[2] for name, _ in lines] == ["runtime", "events"] * 2
    assert "ValueError: second" in lines[3][1]


async def test_the_next_publish_raises_the_error_instead_of_publishing():
    runtime, recorder = SingleThreadedAgentRuntime(), Recorder()
    agent = await subscribed(runtime, recorder)
    await runtime.publish_message(ValueError("bad"), TOPIC)
    await runtime.send_message("between", agent)
    with pytest.raises(ValueError, match="bad"):
        await runtime.publish_message("lost", TOPIC)
    await runtime.publish_message("after", TOPIC)
    await runtime.stop_when_idle()
    assert recorder.got[1:] == ["between", "after"]


async def test_a_publish_of_a_handler_does_not_raise_the_error_of_another():
    runtime, recorder = SingleThreadedAgentRuntime(), Recorder()
    await subscribed(runtime, recorder)

    class Publisher(BaseAgent):
        async def on_message_impl(self, message, ctx):
            await self.publish_message("from the handler", TOPIC)
            return "published"

    await Publisher.register(runtime, "publisher", lambda: Publisher("Publishes."))
    await runtime.publish_message(ValueError("bad"), TOPIC)
    assert await runtime.send_message("go", AgentId("publisher", "x")) == "published"
    with pytest.raises(ValueError, match="bad"):
        await runtime.stop()


async def test_ignored_errors_are_logged_only(caplog):
    runtime = SingleThreadedAgentRuntime(ignore_unhandled_exceptions=True)
    await subscribed(runtime, Recorder())
    await runtime.publish_message(ValueError("bad"), TOPIC)
    await runtime.stop_when_idle()
    await runtime.close()
    assert "the handler of a published message failed" in caplog.text


async def test_one_failing_subscriber_does_not_keep_a_message_from_the_others(caplog):
    runtime, recorder = SingleThreadedAgentRuntime(), Recorder()

    async def broken():
        raise OSError("no database")

    await runtime.register("broken", broken, [DefaultSubscription()])
    await subscribed(runtime, recorder)
    await runtime.publish_message("news", TOPIC)
    with pytest.raises(OSError, match="no database"):
        await runtime.stop_when_idle()
    assert recorder.got == ["news"]
    assert "Error constructing agent" in caplog.text


async def test_an_error_of_a_subscription_is_an_error_of_the_publish():
    class Broken:
        id = "broken"

        def is_match(self, topic_id):
            raise LookupError("no table")

    runtime, recorder = SingleThreadedAgentRuntime(), Recorder()
    await runtime.add_subscription(Broken())
    await subscribed(runtime, recorder)
    await runtime.publish_message("news", TOPIC)
    with pytest.raises(AgenticXError, match="no table"):
        await runtime.stop_when_idle()
    assert recorder.got == ["news"]


# --- the queue --------------------------------------------------------------------------------------------------------


async def test_without_autostart_messages_wait_for_start():
    runtime, recorder = SingleThreadedAgentRuntime(autostart=False), Recorder()
    await subscribed(runtime, recorder)
    await runtime.publish_message("early", TOPIC)
    with pytest.raises(RuntimeError, match="not started, and 1 messages wait"):
        await runtime.stop_when_idle()
    assert (runtime.unprocessed_messages_count, recorder.got) == (1, [])
    runtime.start()
    await runtime.stop_when_idle()
    assert (runtime.unprocessed_messages_count, recorder.got) == (0, ["early"])


async def test_process_next_delivers_one_message_and_returns_while_its_handler_runs():
    runtime, held = SingleThreadedAgentRuntime(autostart=False), Held()
    agent = await registered(runtime, held)
    answers = [asyncio.create_task(runtime.send_message(text, agent)) for text in ("one", "two")]
    await runtime.process_next()
    assert (held.begun, held.ended, runtime.unprocessed_messages_count) == (1, 0, 1)
    await runtime.process_next()
    held.release.set()
    assert await asyncio.gather(*answers) == ["one", "two"]


async def test_process_next_waits_for_a_message():
    runtime, recorder = SingleThreadedAgentRuntime(autostart=False), Recorder()
    await subscribed(runtime, recorder)
    abandoned, step = [asyncio.create_task(runtime.process_next()) for _ in range(2)]
    await asyncio.sleep(0)
    abandoned.cancel()
    await asyncio.wait({abandoned})
    await runtime.publish_message("late", TOPIC)
    await runtime.publish_message("later", TOPIC)
    await step
    assert (recorder.got, runtime.unprocessed_messages_count) == (["late"], 1)


async def test_a_message_waits_for_room_and_is_queued_in_its_turn():
    runtime, recorder = SingleThreadedAgentRuntime(autostart=False, queue_size=2), Recorder()
    await subscribed(runtime, recorder)
    publishes = [asyncio.create_task(runtime.publish_message(number, TOPIC)) for number in range(5)]
    await wait_until(lambda: publishes[1].done())
    assert ([publish.done() for publish in publishes], runtime.unprocessed_messages_count) == (
        [True] * 2 + [False] * 3,
        2,
    )
    runtime.start()
    await asyncio.gather(*publishes)
    await runtime.stop_when_idle()
    assert recorder.got == [0, 1, 2, 3, 4]


async def test_a_full_queue_raises_after_its_limit():
    runtime = SingleThreadedAgentRuntime(autostart=False, queue_size=1, clock=ScaledClock(1_000))
    agent = await subscribed(runtime, Echo())
    await runtime.publish_message("queued", TOPIC)
    for refused in (runtime.publish_message("full", TOPIC), runtime.send_message("full", agent)):
        with pytest.raises(UndeliverableException, match="1 messages wait already, and there was no room within 30 s"):
            await refused
    assert runtime.unprocessed_messages_count == 1


async def test_at_most_queue_size_handlers_are_at_work():
    runtime, held = SingleThreadedAgentRuntime(queue_size=2), Held()
    agent = await registered(runtime, held)
    answers = [asyncio.create_task(runtime.send_message(number, agent)) for number in range(6)]
    await wait_until(lambda: held.begun == 2)
    assert runtime.unprocessed_messages_count == 2
    held.release.set()
    async with asyncio.timeout(PATIENCE):
        assert await asyncio.gather(*answers) == list(range(6))


async def test_handlers_that_wait_for_an_answer_leave_their_place_to_others():
    runtime = SingleThreadedAgentRuntime(queue_size=1)

    class Relay(BaseAgent):
        async def on_message_impl(self, message, ctx):
            return sum(await asyncio.gather(*(self.send_message(message, AgentId("echo", str(n))) for n in range(3))))

    await runtime.register("echo", Echo)
    await Relay.register(runtime, "relay", lambda: Relay("Passes on."))
    async with asyncio.timeout(PATIENCE):
        answers = (runtime.send_message(number, AgentId("relay", "x")) for number in range(5))
        assert await asyncio.gather(*answers) == [0, 3, 6, 9, 12]


def test_a_queue_has_room_for_at_least_one_message():
    with pytest.raises(ValueError, match="queue_size must be at least 1, not 0"):
        SingleThreadedAgentRuntime(queue_size=0)

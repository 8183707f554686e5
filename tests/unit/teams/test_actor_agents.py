"""Actors: registration, making of agents, routing by type, interception, and state."""

from __future__ import annotations

import asyncio
import json

import pytest

from agenticx.errors import UserCodeError
from agenticx.teams import (
    AgentId,
    AgentInstantiationContext,
    AgentMetadata,
    AgentType,
    AssistantAgent,
    BaseAgent,
    CantHandleException,
    DefaultInterventionHandler,
    DefaultSubscription,
    DefaultTopicId,
    DropMessage,
    MessageContext,
    MessageDroppedException,
    RoutedAgent,
    SingleThreadedAgentRuntime,
    TopicId,
    TypeSubscription,
    default_subscription,
    event,
    message_handler,
    rpc,
    type_subscription,
)
from agenticx.testing import ScriptedModel
from tests.support.teams.actors import Echo, Recorder, Words, registered

pytestmark = pytest.mark.anyio


# --- ids and subscriptions --------------------------------------------------------------------------------------------


def test_ids_are_hashable_and_written_as_type_and_key():
    ids = {AgentId("a.b-c_1", "k/2"), TopicId("t:x=1", "s"), AgentType("a"), DefaultTopicId()}
    assert sorted(map(str, ids)) == ["a", "a.b-c_1/k/2", "default/default", "t:x=1/s"]
    assert AgentId.from_str("a.b-c_1/k/2") == AgentId(AgentType("a.b-c_1"), "k/2")
    assert TopicId.from_str("default/s") == DefaultTopicId(source="s")
    assert hash(TopicId("default", "s")) == hash(DefaultTopicId(source="s"))


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: AgentId("a/b", "k"),
        lambda: AgentType(""),
        lambda: TopicId("a b", "s"),
        lambda: AgentId.from_str("a"),
        lambda: TopicId.from_str("a"),
    ],
)
def test_a_malformed_id_is_refused(wrong):
    with pytest.raises(ValueError, match=r"has other characters than|is not a"):
        wrong()


def test_metadata_are_attributes_and_a_mapping():
    metadata = AgentMetadata("k", "t", "Answers.")
    assert (metadata.key, metadata["type"]) == ("k", "t")
    assert metadata == {"key": "k", "type": "t", "description": "Answers."}


def test_a_type_subscription_maps_the_source_of_its_topic_type_to_the_key():
    subscription = TypeSubscription("news", "reader")
    assert subscription.is_match(TopicId("news", "s"))
    assert not subscription.is_match(TopicId("newsletter", "s"))
    assert subscription.map_to_agent(TopicId("news", "s")) == AgentId("reader", "s")
    with pytest.raises(CantHandleException, match="topic old/s is not of type 'news'"):
        subscription.map_to_agent(TopicId("old", "s"))


async def test_equal_subscriptions_are_added_once_and_removed_by_id():
    runtime, recorder = SingleThreadedAgentRuntime(), Recorder()
    await registered(runtime, recorder)
    subscription = TypeSubscription("default", "agent", id="mine")
    await runtime.add_subscription(subscription)
    for equal in (TypeSubscription("default", "agent"), DefaultSubscription(agent_type="agent")):
        with pytest.raises(ValueError, match="Subscription already exists"):
            await runtime.add_subscription(equal)
    await runtime.remove_subscription("mine")
    with pytest.raises(ValueError, match="no subscription 'mine'"):
        await runtime.remove_subscription("mine")
    await runtime.publish_message("unheard", DefaultTopicId())
    await runtime.stop_when_idle()
    assert recorder.got == []


async def test_a_subscription_without_agent_type_gets_it_at_registration():
    runtime, recorder = SingleThreadedAgentRuntime(), Recorder()
    with pytest.raises(ValueError, match="has no agent type"):
        await runtime.add_subscription(DefaultSubscription())
    with pytest.raises(CantHandleException, match="has no agent type"):
        DefaultSubscription().map_to_agent(DefaultTopicId())
    await runtime.register("agent", lambda: recorder, [DefaultSubscription(), DefaultSubscription("other")])
    await runtime.publish_message("news", DefaultTopicId())
    await runtime.publish_message("more", TopicId("other", "default"))
    await runtime.stop_when_idle()
    assert recorder.got == ["news", "more"]


# --- registration -----------------------------------------------------------------------------------------------------


class Named(BaseAgent):
    """An agent that answers with its id."""

    def __init__(self):
        super().__init__("Says its name.")
        self.early_id = self.id

    async def on_message_impl(self, message, ctx):
        return str(self.id)


class Plain(BaseAgent):
    def __init__(self):
        super().__init__("Answers.")

    async def on_message_impl(self, message, ctx):
        return message


async def test_an_agent_made_in_a_factory_knows_its_id_and_runtime_at_once():
    runtime = SingleThreadedAgentRuntime()
    assert await Named.register(runtime, "named", Named) == AgentType("named")
    assert await runtime.send_message("?", AgentId("named", "k")) == "named/k"
    agent = await runtime.try_get_underlying_agent_instance(AgentId("named", "k"), Named)
    assert (agent.early_id, agent.type, agent.runtime) == (AgentId("named", "k"), "named", runtime)
    assert agent.metadata == {"key": "k", "type": "named", "description": "Says its name."}
    with AgentInstantiationContext.populate_context((runtime, AgentId("a", "b"))):
        assert Named().id == AgentId("a", "b")


async def test_an_agent_made_outside_of_a_factory_is_bound_by_its_registration():
    runtime, agent = SingleThreadedAgentRuntime(), Plain()
    for unbound in (lambda: agent.id, lambda: agent.runtime, AgentInstantiationContext.current_runtime):
        with pytest.raises(RuntimeError, match=r"belongs to no runtime|no agent is being made"):
            unbound()
    assert await agent.register_instance(runtime, AgentId("plain", "k")) == AgentId("plain", "k")
    assert await runtime.get_agent(AgentId("plain", "k")) is agent
    with pytest.raises(RuntimeError, match="agent plain/k cannot become plain/other"):
        await agent.register_instance(runtime, AgentId("plain", "other"))


async def test_an_agent_is_made_once_for_messages_that_arrive_together():
    runtime, made = SingleThreadedAgentRuntime(), []

    async def make():
        made.append(AgentInstantiationContext.current_agent_id())
        await asyncio.sleep(0)
        return Echo()

    await runtime.register("echo", make)
    await asyncio.gather(*(runtime.send_message(n, AgentId("echo", str(n % 2))) for n in range(10)))
    assert made == [AgentId("echo", "0"), AgentId("echo", "1")]


async def test_a_failed_factory_raises_to_the_sender_and_is_tried_again(caplog):
    runtime, failures = SingleThreadedAgentRuntime(), [OSError("not yet")]

    def make():
        if failures:
            raise failures.pop()
        return Echo()

    await runtime.register("echo", make)
    with pytest.raises(OSError, match="not yet"):
        await runtime.send_message("one", AgentId("echo", "x"))
    assert await runtime.send_message("two", AgentId("echo", "x")) == "two"
    assert "Error constructing agent" in caplog.text


async def test_the_rules_of_registration():
    runtime = SingleThreadedAgentRuntime()
    await runtime.register("factory", Echo)
    await registered(runtime, Echo(), "instance")
    for refused, text in (
        (runtime.register("factory", Echo), "is registered already"),
        (runtime.register_factory(AgentType("instance"), Echo), "has instances"),
        (registered(runtime, Echo(), "instance"), "there is an agent instance/default already"),
        (runtime.register_agent_instance(Recorder(), AgentId("instance", "x")), "are of .*Echo.*, not .*Recorder"),
        (runtime.register_agent_instance(Echo(), AgentId("factory", "x")), "has a factory"),
    ):
        with pytest.raises(ValueError, match=text):
            await refused
    with pytest.raises(TypeError, match="without a method `on_message"):
        await registered(runtime, object(), "nothing")


async def test_a_factory_must_make_the_expected_class():
    runtime = SingleThreadedAgentRuntime()
    await runtime.register_factory("echo", Recorder, expected_class=Echo)
    with pytest.raises(ValueError, match=r"made a .*Recorder.*, not a .*Echo"):
        await runtime.send_message("hello", AgentId("echo", "x"))


async def test_agents_are_found_by_id_type_and_class():
    runtime = SingleThreadedAgentRuntime()
    await runtime.register("echo", Echo)
    agent = await registered(runtime, Recorder(), "instance")
    assert await runtime.get("echo") == AgentId("echo", "default")
    assert await runtime.get(AgentType("echo"), "k", lazy=False) == AgentId("echo", "k")
    assert await runtime.get(agent) is agent
    assert isinstance(await runtime.get_agent(AgentId("echo", "k")), Echo)
    await Plain.register(runtime, "plain", Plain)
    descriptions = [(await runtime.agent_metadata(AgentId(name, "k"))).description for name in ("echo", "plain")]
    assert descriptions == ["", "Answers."]
    with pytest.raises(LookupError, match="no agent type 'other'"):
        await runtime.try_get_underlying_agent_instance(AgentId("other", "k"))
    with pytest.raises(TypeError, match=r"is a .*Echo.*, not a .*Recorder"):
        await runtime.try_get_underlying_agent_instance(AgentId("echo", "k"), Recorder)
    with pytest.raises(RuntimeError, match="registered as instances"):
        await runtime.get_agent(AgentId("instance", "other"))


# --- routing ----------------------------------------------------------------------------------------------------------


class Animal:
    pass


class Cat(Animal):
    pass


class Router(RoutedAgent):
    def __init__(self):
        super().__init__("Routes.")
        self.events = []

    @message_handler
    async def on_animal(self, message: Animal, ctx: MessageContext) -> str:
        return "animal"

    @message_handler(match=lambda message, ctx: message > 10)
    async def on_large_number(self, message: int, ctx: MessageContext) -> str:
        return "large"

    @message_handler()
    async def on_number_or_nothing(self, message: int | float | None, ctx: MessageContext) -> str:
        return "number or nothing"

    @event
    async def on_event(self, message: str, ctx: MessageContext) -> None:
        self.events.append(message)

    @rpc
    async def on_question(self, message: list[str], ctx: MessageContext) -> str:
        return "question"


@default_subscription
@type_subscription("more")
class Subscribed(Router):
    @rpc
    async def on_cat(self, message: Cat, ctx: MessageContext) -> str:
        return "cat"


async def test_a_default_subscription_may_have_empty_brackets():
    @default_subscription()
    class Bracketed(Router):
        pass

    runtime = SingleThreadedAgentRuntime()
    await Bracketed.register(runtime, "bracketed", Bracketed)
    await runtime.publish_message("news", DefaultTopicId())
    await runtime.stop_when_idle()
    agent = await runtime.try_get_underlying_agent_instance(AgentId("bracketed", "default"), Router)
    assert agent.events == ["news"]


async def test_a_chat_agent_as_an_actor_refuses_what_is_no_chat_message():
    runtime = SingleThreadedAgentRuntime()
    await runtime.register_agent_instance(AssistantAgent("helper", ScriptedModel()), AgentId("helper", "default"))
    with pytest.raises(CantHandleException, match="'helper' answers chat messages, not a dict"):
        await runtime.send_message({"content": "hi"}, AgentId("helper", "default"))


async def test_messages_are_routed_by_their_type():
    runtime = SingleThreadedAgentRuntime()
    await Router.register(runtime, "router", Router)
    await Subscribed.register(runtime, "subscribed", Subscribed)

    async def route(name, message):
        return await runtime.send_message(message, AgentId(name, "default"))

    messages = (Cat(), Animal(), 11, 10, 0.5, None, ["q"])
    plain = ["animal", "animal", "large", "number or nothing", "number or nothing", "number or nothing", "question"]
    assert [await route("router", message) for message in messages] == plain
    assert [await route("subscribed", message) for message in messages] == ["cat", *plain[1:]]
    for unhandled in ("an event", b"bytes"):
        with pytest.raises(CantHandleException, match="agent router/default has no handler for a sent"):
            await route("router", unhandled)


async def test_events_and_decorated_subscriptions(caplog):
    caplog.set_level("INFO")
    runtime = SingleThreadedAgentRuntime()
    await Subscribed.register(runtime, "by-class", Subscribed)
    await runtime.register("by-runtime", Subscribed)
    await Subscribed.register(runtime, "skipped", Subscribed, skip_class_subscriptions=True)
    instance = Router.__new__(Subscribed)
    Router.__init__(instance)
    await instance.register_instance(runtime, AgentId("instance", "default"), skip_class_subscriptions=False)
    for topic in (DefaultTopicId(), TopicId("more", "default")):
        await runtime.publish_message("news", topic)
    await runtime.publish_message(["a question"], DefaultTopicId())
    await runtime.stop_when_idle()
    agents = [
        await runtime.try_get_underlying_agent_instance(AgentId(name, "default"), Router)
        for name in ("by-class", "by-runtime", "skipped", "instance")
    ]
    assert [agent.events for agent in agents] == [["news"] * 2, ["news"] * 2, [], ["news"] * 2]
    assert caplog.text.count("Unhandled message: ") == 3


def test_a_handler_must_be_async_and_annotated():
    with pytest.raises(TypeError, match="must be an `async def`"):
        message_handler(lambda self, message, ctx: None)

    async def unannotated(self, message, ctx): ...

    with pytest.raises(TypeError, match="unannotated must read"):
        message_handler(unannotated)


async def test_a_message_type_that_cannot_be_resolved_is_an_error_when_the_agent_is_made():
    class Unresolved(RoutedAgent):
        @message_handler
        async def handle(self, message: Missing, ctx: MessageContext) -> None: ...  # noqa: F821

    class NoClass(RoutedAgent):
        @message_handler
        async def handle(self, message: 3, ctx: MessageContext) -> None: ...

    for class_ in (Unresolved, NoClass):
        with pytest.raises(TypeError, match=r"handle.*Missing|handle.*is no class|Forward references"):
            class_("Fails.")


# --- interception -----------------------------------------------------------------------------------------------------


class Interception(DefaultInterventionHandler):
    """A handler that records all messages and replaces, drops or refuses the ones that say so."""

    def __init__(self):
        self.seen = []

    async def on_send(self, message, *, message_context, recipient):
        return self.passed("send", message, recipient)

    async def on_publish(self, message, *, message_context):
        return self.passed("publish", message, message_context.topic_id)

    async def on_response(self, message, *, sender, recipient):
        return self.passed("response", message, (sender, recipient))

    def passed(self, name, message, where):
        self.seen.append((name, message, where))
        match message:
            case "drop":
                return DropMessage
            case "drop instance":
                return DropMessage()
            case "refuse":
                raise PermissionError("refused")
            case _:
                return f"{message}!"


async def test_messages_and_answers_are_replaced_in_the_order_of_the_handlers():
    first, second = Interception(), Interception()
    runtime, recorder = SingleThreadedAgentRuntime(intervention_handlers=[first, object(), second]), Recorder()
    echo, sender, topic = await registered(runtime, Echo(), "echo"), AgentId("a", "b"), DefaultTopicId()
    await runtime.register("recorder", lambda: recorder, [DefaultSubscription()])
    assert await runtime.send_message("hi", echo, sender=sender) == "hi!!!!"
    await runtime.publish_message("news", topic)
    await runtime.stop_when_idle()
    assert recorder.got == ["news!!"]
    assert first.seen == [("send", "hi", echo), ("response", "hi!!", (echo, sender)), ("publish", "news", topic)]


@pytest.mark.parametrize(
    ("message", "error"),
    [("drop", MessageDroppedException), ("drop instance", MessageDroppedException), ("refuse", PermissionError)],
)
async def test_a_dropped_or_refused_message_raises_at_its_sender(message, error):
    runtime, recorder = SingleThreadedAgentRuntime(intervention_handlers=[Interception()]), Recorder()
    agent = await registered(runtime, recorder)
    await runtime.add_subscription(DefaultSubscription(agent_type="agent"))
    for attempt in (runtime.send_message(message, agent), runtime.publish_message(message, DefaultTopicId())):
        with pytest.raises(error):
            await attempt
    assert recorder.got == []


@pytest.mark.parametrize(("answer", "error"), [("drop", MessageDroppedException), ("refuse", PermissionError)])
async def test_a_dropped_or_refused_answer_raises_at_the_sender(answer, error):
    class Answering:
        async def on_message(self, message, ctx):
            return answer

    runtime = SingleThreadedAgentRuntime(intervention_handlers=[Interception()])
    agent = await registered(runtime, Answering())
    with pytest.raises(error):
        await runtime.send_message("go", agent)


# --- state ------------------------------------------------------------------------------------------------------------


async def test_the_state_of_all_agents_is_saved_and_loaded():
    runtime = SingleThreadedAgentRuntime()
    await runtime.register("words", Words)
    await registered(runtime, Echo(), "stateless")
    for key, word in (("a", "one"), ("a", "two"), ("b", "three")):
        await runtime.send_message(word, AgentId("words", key))
    state = await runtime.save_state()
    await runtime.send_message("later", AgentId("words", "a"))
    assert state == {"words/a": {"words": ["one", "two"]}, "words/b": {"words": ["three"]}}

    restored = SingleThreadedAgentRuntime()
    await restored.register("words", Words)
    await restored.load_state(json.loads(json.dumps(state)))
    assert await restored.save_state() == state
    assert await restored.send_message("next", AgentId("words", "a")) == 3


async def test_a_state_that_fits_no_agent_is_refused_before_any_is_loaded():
    runtime = SingleThreadedAgentRuntime()
    await runtime.register("words", Words)
    await runtime.register("echo", Echo)
    for unknown, text in (("other/a", "no agent type 'other'"), ("echo/a", "has no `load_state`"), ("bad", "not an")):
        with pytest.raises(ValueError, match=text):
            await runtime.load_state({"words/a": {"words": ["one"]}, unknown: {}})
    assert (await runtime.save_state())["words/a"] == {"words": []}


async def test_a_base_agent_has_an_empty_state():
    runtime = SingleThreadedAgentRuntime()
    await Plain().register_instance(runtime, AgentId("plain", "k"))
    assert await runtime.save_state() == {"plain/k": {}}
    await runtime.load_state({"plain/k": {}})
    with pytest.raises(ValueError, match="Plain has no state"):
        await runtime.load_state({"plain/k": {"words": []}})


@pytest.mark.parametrize("state", [{"words": {1, 2}}, {"words": float("nan")}, ["words"]])
async def test_a_state_must_be_a_json_mapping(state):
    class Odd(Echo):
        async def save_state(self):
            return state

    runtime = SingleThreadedAgentRuntime()
    await registered(runtime, Odd())
    with pytest.raises(UserCodeError, match="save_state of agent agent/default is"):
        await runtime.save_state()


async def test_a_type_that_is_registered_with_equal_subscriptions_stays_unknown():
    runtime = SingleThreadedAgentRuntime()
    equal = [TypeSubscription("news", "reader"), TypeSubscription("news", "reader")]
    with pytest.raises(ValueError, match="Subscription already exists"):
        await runtime.register("reader", lambda: Echo(), equal)
    await runtime.register("reader", lambda: Echo(), equal[:1])

"""The in-process message runtime."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar, cast

from agenticx import user_code
from agenticx.argument_types import check_int, check_sequence, check_type
from agenticx.call_errors import explain_calls
from agenticx.clocks import Clock, SystemClock
from agenticx.errors import AgenticXError, UserCodeError
from agenticx.logs import get_logger
from agenticx.teams.actors.cancellation import CancellationToken
from agenticx.teams.actors.context import MessageContext
from agenticx.teams.actors.deliveries import Delivery
from agenticx.teams.actors.dispatcher import Dispatcher
from agenticx.teams.actors.errors import SubscriptionExists, UndeliverableException
from agenticx.teams.actors.handling import AgentInstantiationContext, Handling, current_handling
from agenticx.teams.actors.ids import AgentId, AgentMetadata, AgentType, TopicId
from agenticx.teams.actors.interception import InterventionHandler, Interventions
from agenticx.teams.actors.registry import AgentRegistry
from agenticx.teams.actors.subscriptions import Subscription, TypeSubscription, class_subscriptions

__all__ = ["SingleThreadedAgentRuntime"]

AgentT = TypeVar("AgentT")

_log = get_logger(__name__)
_events = get_logger("agenticx.events")


@explain_calls
class SingleThreadedAgentRuntime:
    """A message runtime in the process and on the event loop of its caller.

    An agent is any object with `async on_message(message, ctx)`; its `metadata`, `save_state`, `load_state` and `close`
    are used where present.

    Each message is handled in a task of its own, in the `contextvars` context of its sender. At most `queue_size`
    handlers are at work, without handlers that wait for an answer; at most as many messages wait in the queue. A
    message waits at most 30 s (of the clock) for room, then `UndeliverableException` is raised.

    - A cancelled message (by its token, by a cancelled `send_message`, or by `stop`) is not delivered any more, and its
      handler is cancelled; the sender gets CancelledError when the handler has ended, after 0.1 s at the latest.
    - A handler that ends with CancelledError although nobody cancelled it has failed: `UserCodeError`.
    - An error in a handler of a published message is logged, also as an event of the logger `agenticx.events`. The
      first such error is raised once: by the next `publish_message` outside of handlers, by `stop_when_idle`, `stop` or
      `close`. With `ignore_unhandled_exceptions` it is only logged.

    With `autostart` the first message starts the runtime. Otherwise messages wait for `start` or `process_next`.
    """

    def __init__(
        self,
        *,
        intervention_handlers: Sequence[InterventionHandler] | None = None,
        ignore_unhandled_exceptions: bool = False,
        autostart: bool = True,
        queue_size: int = 10_000,
        clock: Clock | None = None,
    ) -> None:
        check_int("queue_size", queue_size)
        if intervention_handlers is not None:
            check_sequence("intervention_handlers", intervention_handlers, "intervention handlers")
        self._interventions = Interventions(tuple(intervention_handlers or ()))
        self._ignore_errors = ignore_unhandled_exceptions
        self._registry = AgentRegistry(self)
        self._subscriptions: dict[str, Subscription] = {}
        self._error: Exception | None = None
        self._dispatcher = Dispatcher(
            self,
            autostart=autostart,
            queue_size=queue_size,
            clock=clock or SystemClock(),
            handle=self._handle,
            recipients=self._subscribers,
            report=self._report,
        )

    # --- messages -----------------------------------------------------------------------------------------------------

    async def send_message(
        self,
        message: Any,
        recipient: AgentId,
        *,
        sender: AgentId | None = None,
        cancellation_token: CancellationToken | None = None,
        message_id: str | None = None,
    ) -> Any:
        """Return the answer of `recipient`.

        Raises what its handler or factory raised, `UndeliverableException` if there is no such agent or no room,
        `CantHandleException`, `MessageDroppedException`, and CancelledError if the message is cancelled.
        """
        check_type("recipient", recipient, AgentId, "an AgentId, such as AgentId('type', 'key')")
        self._registry.check(recipient)
        context = _context(sender, None, cancellation_token, message_id)
        message = await self._interventions.apply("on_send", message, message_context=context, recipient=recipient)
        return await self._dispatcher.send(Delivery(message, context, recipient))

    async def publish_message(
        self,
        message: Any,
        topic_id: TopicId,
        *,
        sender: AgentId | None = None,
        cancellation_token: CancellationToken | None = None,
        message_id: str | None = None,
    ) -> None:
        """Queue `message` for the subscribers of `topic_id`, except for `sender`; without subscribers it is dropped.

        Raises the error of an earlier published message, and then publishes nothing; also `UndeliverableException` if
        there is no room, `MessageDroppedException`, and CancelledError if the token is cancelled already.
        """
        if self._dispatcher.current_handling() is None:
            self._raise_error()
        context = _context(sender, topic_id, cancellation_token, message_id)
        message = await self._interventions.apply("on_publish", message, message_context=context)
        await self._dispatcher.publish(Delivery(message, context, None))

    async def _handle(self, delivery: Delivery, handling: Handling) -> Any:
        current_handling.set(handling)
        context, what = delivery.context, f"agent {handling.agent_id}"
        with AgentInstantiationContext.populate_context(None):
            agent = await self._registry.get(handling.agent_id)
            if delivery.answer.cancelled():  # in this iteration of the event loop: so will be this task
                raise asyncio.CancelledError
            handling.begun.set()
            answer = await user_code.call_in_place(agent.on_message, delivery.message, context, what=what)
        if not context.is_rpc:
            return None
        who = {"sender": handling.agent_id, "recipient": context.sender}
        return await self._interventions.apply("on_response", answer, **who)

    def _subscribers(self, delivery: Delivery) -> Sequence[AgentId]:
        """Return the subscribers of a published message, each once; a subscription that fails is reported."""
        topic_id = delivery.context.topic_id
        found: dict[AgentId, None] = {}
        for subscription in self._subscriptions.values():
            what = f"subscription {subscription!r}"
            try:
                if user_code.call_sync(subscription.is_match, topic_id, what=what):
                    found[user_code.call_sync(subscription.map_to_agent, topic_id, what=what)] = None
            except AgenticXError as exc:
                self._report(delivery, exc, None)
        return [agent_id for agent_id in found if agent_id != delivery.context.sender]

    def _report(self, delivery: Delivery, error: Exception, agent_id: AgentId | None) -> None:
        """Log the error of a published message, as text and as an event; the first is kept to be raised."""
        details = {"agent_id": agent_id and str(agent_id), "topic_id": str(delivery.context.topic_id)}
        _log.error("the handler of a published message failed", **details, exc_info=error)
        _events.info(
            "message_handler_exception",
            **details,
            message_id=delivery.context.message_id,
            message_type=type(delivery.message).__name__,
            error=user_code.describe_exception(error),
        )
        if self._error is None and not self._ignore_errors:
            self._error = error

    def _raise_error(self) -> None:
        error, self._error = self._error, None
        if error is not None:
            raise error

    # --- agents -------------------------------------------------------------------------------------------------------

    async def register(
        self,
        type: str | AgentType,
        agent_factory: Callable[[], Any],
        subscriptions: Sequence[Subscription] | None = None,
    ) -> AgentType:
        """Register a factory of agents, plain or async, with subscriptions.

        A class as the factory brings the subscriptions of its decorators. Raises ValueError if the type is known or an
        equal subscription exists.
        """
        agent_type = AgentType(str(type))
        bound = [_bound(subscription, agent_type) for subscription in subscriptions or ()]
        bound += [own for own in class_subscriptions(agent_factory, agent_type) if own not in bound]
        for place, subscription in enumerate(bound):
            self._check_subscription(subscription)
            if subscription in bound[:place]:
                raise SubscriptionExists(f"Subscription already exists: {subscription!r}")
        self._registry.add_factory(agent_type, agent_factory, None)
        for subscription in bound:
            await self.add_subscription(subscription)
        return agent_type

    async def register_factory(
        self, type: str | AgentType, agent_factory: Callable[[], Any], *, expected_class: type[Any] | None = None
    ) -> AgentType:
        """Register a factory of agents; ValueError if the type is known.

        An agent that is not of `expected_class` is a ValueError of the message for which it was made.
        """
        agent_type = AgentType(str(type))
        self._registry.add_factory(agent_type, agent_factory, expected_class)
        return agent_type

    async def register_agent_instance(self, agent: Any, agent_id: AgentId) -> AgentId:
        """Register one agent; ValueError for a known id, for a second class, and for a type that has a factory."""
        await self._registry.add_instance(agent_id, agent)
        return agent_id

    async def get_agent(self, agent_id: AgentId) -> Any:
        """Return the agent, made if need be.

        Raises LookupError for an unknown type, RuntimeError for a key without an agent under a type that has instances
        only, and what the factory raises.
        """
        return await self._registry.get(agent_id)

    async def agent_metadata(self, agent_id: AgentId) -> AgentMetadata:
        """Return the id and description of an agent, which is made if need be."""
        own: Any = getattr(await self.get_agent(agent_id), "metadata", None)
        description: Any = own["description"] if hasattr(own, "keys") else getattr(own, "description", "")
        return AgentMetadata(agent_id.key, agent_id.type, description)

    async def get(self, id_or_type: AgentId | AgentType | str, key: str = "default", *, lazy: bool = True) -> AgentId:
        """Return the id of an agent; if not `lazy`, the agent is made, as by `get_agent`."""
        agent_id = id_or_type if isinstance(id_or_type, AgentId) else AgentId(id_or_type, key)
        if not lazy:
            await self.get_agent(agent_id)
        return agent_id

    async def try_get_underlying_agent_instance(self, id: AgentId, type: type[AgentT] = object) -> AgentT:
        """Return the agent as `get_agent` does; TypeError if it is no `type`."""
        agent = await self.get_agent(id)
        if not isinstance(agent, type):
            raise TypeError(f"agent {id} is a {agent.__class__}, not a {type}")
        return agent

    # --- subscriptions ------------------------------------------------------------------------------------------------

    async def add_subscription(self, subscription: Subscription) -> None:
        """Add a subscription; ValueError if there is an equal one, or if it has no agent type."""
        self._check_subscription(subscription)
        self._subscriptions[subscription.id] = subscription

    async def remove_subscription(self, id: str) -> None:
        """Remove a subscription; ValueError if there is none with this id."""
        if id not in self._subscriptions:
            raise ValueError(f"there is no subscription {id!r}")
        del self._subscriptions[id]

    def _check_subscription(self, subscription: Subscription) -> None:
        if isinstance(subscription, TypeSubscription) and not subscription.is_bound:
            raise ValueError(f"{subscription!r} has no agent type; pass one, or pass it to `register`")
        if subscription.id in self._subscriptions or subscription in self._subscriptions.values():
            raise SubscriptionExists(f"Subscription already exists: {subscription!r}")

    # --- running ------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Deliver queued messages, and new ones as they arrive; RuntimeError after `close`."""
        self._dispatcher.start()

    async def process_next(self) -> None:
        """Deliver the next message, waiting for one if need be, and return when its handlers have begun.

        Raises CancelledError at a stop, and RuntimeError after `close`.
        """
        await self._dispatcher.step()

    @property
    def unprocessed_messages_count(self) -> int:
        """The number of messages in the queue, whose handlers have not begun."""
        return self._dispatcher.queued

    async def stop_when_idle(self) -> None:
        """Stop when no message waits and no handler is at work.

        Raises the first error of a published message's handler, and RuntimeError if called by a handler, or if messages
        wait for a runtime that is not started.
        """
        await self._dispatcher.stop_when_idle()
        self._raise_error()

    async def stop(self) -> None:
        """Stop at once: cancel all handlers except the caller's own, and drop queued messages.

        Senders that wait for an answer get CancelledError. A handler that ignores cancellation is abandoned after
        0.1 s.
        Raises the first error of a published message's handler.
        """
        await self._dispatcher.stop()
        await self._registry.abandon_builds()
        self._raise_error()

    async def close(self) -> None:
        """Stop for good, and call `close` of the agents that have one; raises the first error of these steps."""
        if self._dispatcher.closed:
            return
        self._dispatcher.closed = True
        await self._dispatcher.stop()
        await self._registry.abandon_builds()
        for agent_id, agent in [*self._registry.agents.items()]:
            if (close := getattr(agent, "close", None)) is not None:
                try:
                    await user_code.call(close, what=f"close of agent {agent_id}")
                except AgenticXError as exc:
                    _log.error("an agent failed to close", agent_id=str(agent_id), exc_info=exc)
                    self._error = self._error or exc
        self._raise_error()

    # --- state --------------------------------------------------------------------------------------------------------

    async def save_state(self) -> Mapping[str, Any]:
        """Return the states of the agents that have `save_state`, by their ids, as a JSON mapping of its own.

        Raises what an agent raises, and `UserCodeError` for a state that is no JSON mapping.
        """
        states: dict[str, Any] = {}
        for agent_id, agent in [*self._registry.agents.items()]:
            if (save := getattr(agent, "save_state", None)) is not None:
                what = f"save_state of agent {agent_id}"
                states[str(agent_id)] = _json_copy(await user_code.call_in_place(save, what=what), what)
        return states

    async def load_state(self, state: Mapping[str, Any], /) -> None:
        """Load what `save_state` returned; agents are made if need be.

        Raises ValueError, before any state is loaded, for an unknown agent or one without `load_state`, and what an
        agent raises.
        """
        agents: dict[str, Any] = {}
        for agent_id in state:
            try:
                agents[agent_id] = agent = await self._registry.get(AgentId.from_str(agent_id))
            except UndeliverableException as exc:
                raise ValueError(f"the state of agent {agent_id} cannot be loaded: {exc}") from exc
            if not hasattr(agent, "load_state"):
                raise ValueError(f"the state of agent {agent_id} cannot be loaded: {type(agent)} has no `load_state`")
        for agent_id, agent in agents.items():
            own = _json_copy(state[agent_id], f"state of agent {agent_id}")
            await user_code.call_in_place(agent.load_state, own, what=f"load_state of agent {agent_id}")


def _context(
    sender: AgentId | None, topic_id: TopicId | None, token: CancellationToken | None, message_id: str | None
) -> MessageContext:
    given = {"message_id": message_id} if message_id is not None else {}
    return MessageContext(sender, topic_id, topic_id is None, token or CancellationToken(), **given)


def _bound(subscription: Subscription, agent_type: AgentType) -> Subscription:
    return subscription.bound_to(agent_type) if isinstance(subscription, TypeSubscription) else subscription


def _json_copy(state: Any, what: str) -> Any:
    """Return a copy of a JSON mapping; raises `UserCodeError` for anything else."""
    if not isinstance(state, Mapping):
        raise UserCodeError(f"{what} is a {type(state)}, not a mapping", what=what, kind="invalid_result")
    try:
        return json.loads(json.dumps({**cast("Mapping[str, Any]", state)}, allow_nan=False))
    except (TypeError, ValueError, RecursionError) as exc:
        raise UserCodeError(f"{what} is not JSON: {exc}", what=what, kind="invalid_result") from exc

"""Agents whose handlers are chosen by the type of the message."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Protocol, TypeVar, Union, get_args, get_origin, get_type_hints, overload

from agenticx.logs import get_logger
from agenticx.teams.actors.base_agent import BaseAgent
from agenticx.teams.actors.context import MessageContext
from agenticx.teams.actors.errors import CantHandleException

__all__ = ["RoutedAgent", "event", "message_handler", "rpc"]

HandlerT = TypeVar("HandlerT", bound=Callable[..., Awaitable[Any]])
Match = Callable[[Any, MessageContext], bool]
Kind = Literal["any", "event", "rpc"]

_ROUTE = "_message_route"

_log = get_logger(__name__)


class RoutedAgent(BaseAgent):
    """An agent with a method per message type, marked by `@message_handler`, `@event` or `@rpc`.

    A message goes to the first handler that fits: handlers of its own class before those of a base class, then in the
    order of their definition. Raises TypeError when it is made, if the annotation of a handler's message is no class or
    union of classes.
    """

    def __init__(self, description: str) -> None:
        super().__init__(description)
        self._routes = _routes_of(type(self))
        self._fitting: dict[type[Any], Sequence[_Route]] = {}

    async def on_message_impl(self, message: Any, ctx: MessageContext) -> Any:
        """Return the answer of the first handler that fits; a sent message without one is `CantHandleException`."""
        for route in self._routes_for(message.__class__):
            if route.takes(message, ctx):
                return await getattr(self, route.name)(message, ctx)
        await self.on_unhandled_message(message, ctx)
        if ctx.is_rpc:
            raise CantHandleException(f"agent {self.id} has no handler for a sent {type(message).__name__}")
        return None

    async def on_unhandled_message(self, message: Any, ctx: MessageContext) -> None:
        """Log a message for which there is no handler."""
        _log.info(
            "Unhandled message: no handler takes it",
            agent_id=str(self.id),
            message_type=type(message).__name__,
            topic_id=ctx.topic_id and str(ctx.topic_id),
        )

    def _routes_for(self, message_type: type[Any]) -> Sequence[_Route]:
        if (fitting := self._fitting.get(message_type)) is None:
            distances = [(route, route.distance(message_type)) for route in self._routes]
            ranked = sorted((distance, index) for index, (_, distance) in enumerate(distances) if distance is not None)
            fitting = self._fitting[message_type] = [self._routes[index] for _, index in ranked]
        return fitting


# --- handlers ---------------------------------------------------------------------------------------------------------


class HandlerDecorator(Protocol):
    """A decorator, with or without `(match=…)`, of async methods `(self, message, ctx)`.

    The method handles messages of the annotated type, or of any class of a union. `match(message, ctx)` may refuse a
    message, which then goes to the next handler.
    """

    @overload
    def __call__(self, function: HandlerT, /) -> HandlerT: ...

    @overload
    def __call__(self, *, match: Match | None = None) -> Callable[[HandlerT], HandlerT]: ...


def _decorator(kind: Kind) -> HandlerDecorator:
    def decorate(function: Any = None, /, *, match: Match | None = None) -> Any:
        def mark(handler: Any) -> Any:
            if not inspect.iscoroutinefunction(handler):
                raise TypeError(f"handler {_name(handler)} must be an `async def`")
            _message_parameter(handler)
            setattr(handler, _ROUTE, (kind, match))
            return handler

        return mark if function is None else mark(function)

    return decorate


message_handler = _decorator("any")
"""Mark a handler of messages."""
event = _decorator("event")
"""Mark a handler of published messages only."""
rpc = _decorator("rpc")
"""Mark a handler of sent messages only."""


# --- routes -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Route:
    """A handler: the name of the method, the classes of messages that it takes, and its restrictions."""

    name: str
    classes: tuple[type[Any], ...]
    kind: Kind
    match: Match | None

    def takes(self, message: Any, ctx: MessageContext) -> bool:
        if self.kind != "any" and ctx.is_rpc is not (self.kind == "rpc"):
            return False
        return self.match is None or bool(self.match(message, ctx))

    def distance(self, message_type: type[Any]) -> int | None:
        """Return how near the message's class is to a handled class, 0 if equal; None if no class fits."""
        bases = message_type.__mro__
        fitting = [class_ for class_ in self.classes if issubclass(message_type, class_)]
        return min((bases.index(class_) if class_ in bases else len(bases) for class_ in fitting), default=None)


def _routes_of(class_: type[Any]) -> Sequence[_Route]:
    """Return the handlers of a class, handlers of base classes first; an override needs no decorator."""
    routes: dict[str, _Route] = {}
    for base in reversed(class_.__mro__):
        for name, function in vars(base).items():
            if (marked := getattr(function, _ROUTE, None)) is not None:
                routes[name] = _Route(name, _message_classes(function), *marked)
    return list(routes.values())


def _message_classes(handler: Callable[..., Any]) -> tuple[type[Any], ...]:
    annotation = _message_parameter(handler).annotation
    holder = type("Holder", (), {"__annotations__": {"message": annotation}})
    try:
        hint = get_type_hints(holder, globalns={**handler.__globals__, **_closure(handler)})["message"]
    except NameError as exc:
        raise TypeError(f"the message type of handler {_name(handler)} cannot be resolved: {exc}") from exc
    return tuple(_as_class(option, handler) for option in _options(hint))


def _options(hint: Any) -> Sequence[Any]:
    return [option for part in get_args(hint) for option in _options(part)] if _is_union(hint) else [hint]


def _is_union(hint: Any) -> bool:
    return get_origin(hint) in {Union, UnionType}


def _as_class(hint: Any, handler: Any) -> type[Any]:
    if hint is Any:
        return object
    if hint is None:
        return NoneType
    if get_origin(hint) is Annotated:
        return _as_class(get_args(hint)[0], handler)
    class_ = hint if isinstance(hint, type) else get_origin(hint)
    if not isinstance(class_, type):
        raise TypeError(f"the message of handler {_name(handler)} is annotated with {hint!r}, which is no class")
    return class_


def _message_parameter(handler: Any) -> inspect.Parameter:
    parameters = list(inspect.signature(handler).parameters.values())
    if len(parameters) != 3 or parameters[1].annotation is inspect.Parameter.empty:
        raise TypeError(f"handler {_name(handler)} must read `(self, message: SomeType, ctx: MessageContext)`")
    return parameters[1]


def _closure(function: Any) -> Mapping[str, Any]:
    return dict(inspect.getclosurevars(function).nonlocals) if function.__closure__ else {}


def _name(handler: Any) -> str:
    return getattr(handler, "__qualname__", repr(handler))

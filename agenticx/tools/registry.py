"""Tools made of functions, and the ordered box of tools that a turn works with."""

from __future__ import annotations

import hashlib
import inspect
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache, partial, partialmethod
from typing import Any, cast, overload

from agenticx.errors import ToolError
from agenticx.llms.base import ToolSchema
from agenticx.threads import run_in_thread
from agenticx.tools.base import Assessment, Risk, Tool, ToolContext
from agenticx.tools.schema import CallSchema, read_signature

__all__ = ["Assess", "FunctionTool", "Toolbox", "as_tool", "tool"]

Assess = Callable[[Mapping[str, Any], ToolContext], Assessment]


@dataclass(frozen=True, slots=True, eq=False)
class FunctionTool:
    """A tool that is a function.

    A coroutine function runs on the event loop; a plain function runs in a daemon thread of its own, which is left
    behind when the call is cancelled, so it must not rely on being stopped.
    """

    function: Callable[..., Any]
    signature: CallSchema
    schema: ToolSchema
    schema_digest: str
    risk: Risk
    read_only: bool
    idempotent: bool
    parallel: bool
    timeout: float | None
    assessor: Assess | None

    def assess(self, arguments: Mapping[str, Any], context: ToolContext) -> Assessment:
        """What `assessor` says, else the declared risk; in both cases bound to the schema as it is now."""
        if self.assessor is not None:
            assessment = self.assessor(arguments, context)
        else:
            assessment = Assessment(risk=self.risk, reasons=(_REASONS[self.risk].format(name=self.schema.name),))
        return replace(assessment, binding={**assessment.binding, "schema": self.schema_digest})

    def validate(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """See `CallSchema.validate`."""
        return self.signature.validate(arguments)

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> object:
        """Call the function with validated arguments and what is injected; raises what it raises."""
        keywords = self.signature.inject(arguments, context)
        if _is_coroutine_function(self.function):
            return await self.function(**keywords)
        result = await run_in_thread(self.function, name=f"agx tool {self.schema.name}", **keywords)
        return await result if inspect.isawaitable(result) else result

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The function itself, as if it had not been decorated."""
        return self.function(*args, **kwargs)


_REASONS: Mapping[Risk, str] = {
    "read": "{name} only reads.",
    "write": "{name} changes files or other state.",
    "execute": "{name} is code of this application that may do anything.",
}


def _is_coroutine_function(function: Callable[..., Any]) -> bool:
    while isinstance(function, partial):
        function = function.func
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)


@overload
def tool(
    function: Callable[..., Any],
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    risk: Risk = "execute",
    timeout: float | None = None,
    read_only: bool | None = None,
    idempotent: bool | None = None,
    parallel: bool | None = None,
    assess: Assess | None = None,
) -> FunctionTool: ...
@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    risk: Risk = "execute",
    timeout: float | None = None,
    read_only: bool | None = None,
    idempotent: bool | None = None,
    parallel: bool | None = None,
    assess: Assess | None = None,
) -> Callable[[Callable[..., Any]], FunctionTool]: ...
def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    risk: Risk = "execute",
    timeout: float | None = None,
    read_only: bool | None = None,
    idempotent: bool | None = None,
    parallel: bool | None = None,
    assess: Assess | None = None,
) -> FunctionTool | Callable[[Callable[..., Any]], FunctionTool]:
    """Make a tool of a function, as `@tool`, `@tool(risk="read")` or `tool(function)`.

    Name and description come from the function unless they are given. What is not declared harmless is asked about:
    the default risk is "execute". `read_only` follows from the risk "read" unless it is given, and
    `idempotent` (a call that a crash cut off may be run again) and `parallel` (calls may run beside others of the
    round, at most 8 at a time) from `read_only`; `timeout` is in seconds; `assess` judges each call by its arguments.
    Raises `TypeError` for a generator function, whose calls have no result.

    >>> @tool(risk="read")
    ... def add(left: int, right: int) -> int:
    ...     "Add two numbers."
    ...     return left + right
    >>> add.schema.name, sorted(add.schema.parameters["properties"]), add(1, 2)
    ('add', ['left', 'right'], 3)
    """
    if function is None:
        return partial(
            tool,
            name=name,
            description=description,
            risk=risk,
            timeout=timeout,
            read_only=read_only,
            idempotent=idempotent,
            parallel=parallel,
            assess=assess,
        )
    signature = read_signature(function)
    _refuse_generator(function, name or _name_of(function))
    schema = ToolSchema(
        _validate_name(name or _name_of(function)),
        signature.description if description is None else description,
        signature.parameters,
    )
    only_reads = risk == "read" if read_only is None else read_only
    return FunctionTool(
        function=function,
        signature=signature,
        schema=schema,
        schema_digest=_digest(schema),
        risk=risk,
        read_only=only_reads,
        idempotent=only_reads if idempotent is None else idempotent,
        parallel=only_reads if parallel is None else parallel,
        timeout=timeout,
        assessor=assess,
    )


def as_tool(given: Tool | Callable[..., Any]) -> Tool:
    """`given` if it is a tool, else a tool made of the function that it is."""
    if isinstance(given, Tool):
        _refuse_generator(given.run, given.schema.name)
        return given
    if callable(given):
        return tool(given)
    raise TypeError(f"{given!r} is neither a tool nor a function")


def _refuse_generator(function: Callable[..., Any], name: str) -> None:
    """Raise `TypeError` if calling `function` only makes a generator, under partials, method objects and caches too.

    A wrapper that is a function of its own (`functools.wraps`) may collect what a generator yields: what it returns is
    looked at in each call.
    """
    wrapped: Any = function
    while True:
        if isinstance(wrapped, partial | partialmethod):
            wrapped = cast("Any", wrapped).func
        elif isinstance(wrapped, staticmethod | classmethod | _CACHED):
            wrapped = cast("Any", wrapped).__wrapped__
        else:
            break
    for called in (wrapped, type(wrapped).__call__):
        if inspect.isgeneratorfunction(called) or inspect.isasyncgenfunction(called):
            raise TypeError(
                f"{name!r} is a generator function, and a call of a tool has one result: "
                "return a value, such as a text or a list, instead of yielding"
            )


_CACHED = type(cache(len))


def _name_of(function: Callable[..., Any]) -> str:
    while isinstance(function, partial):
        function = function.func
    return getattr(function, "__name__", type(function).__name__)


def _validate_name(name: str) -> str:
    """The names that every provider accepts."""
    if not re.fullmatch(r"[A-Za-z0-9_-]{1,64}", name):
        raise ValueError(f"{name!r} cannot be a tool's name: use 1 to 64 letters, digits, _ or -, or pass `name=`")
    return name


def _digest(schema: ToolSchema) -> str:
    text = json.dumps([schema.name, schema.description, schema.parameters], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


class Toolbox:
    """Tools by name, in the order they were given, which is the order the model sees them in."""

    def __init__(self, tools: Iterable[Tool | Callable[..., Any]] = ()) -> None:
        if callable(tools):
            raise TypeError(f"tools are given as a sequence; write [{tools!r}]")
        self._tools: dict[str, Tool] = {}
        for given in tools:
            made = as_tool(given)
            if made.schema.name in self._tools:
                raise ValueError(f"two tools are called {made.schema.name!r}; give one of them another name")
            self._tools[made.schema.name] = made
        self._schemas = tuple(made.schema for made in self._tools.values())

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._tools)

    def schemas(self) -> tuple[ToolSchema, ...]:
        """The same tuple each time, so that providers' prompt caches stay warm."""
        return self._schemas

    def find(self, name: str) -> Tool | None:
        """The tool of that name, if there is one."""
        return self._tools.get(name)

    def get(self, name: str) -> Tool:
        """The tool of that name; raises `ToolError` that lists the known ones."""
        found = self._tools.get(name)
        if found is None:
            raise ToolError(f"unknown tool {name!r}; known tools: {', '.join(self._tools) or 'none'}")
        return found

    def only(self, names: Iterable[str]) -> Toolbox:
        """The tools of these names, in this box's order; raises `ToolError` for a name that it does not hold."""
        wanted = {name: self.get(name) for name in names}
        return Toolbox(kept for name, kept in self._tools.items() if name in wanted)

    def __iter__(self) -> Iterator[Tool]:
        return iter(self._tools.values())

    def __len__(self) -> int:
        return len(self._tools)

    def __contains__(self, name: object) -> bool:
        return name in self._tools

    def __repr__(self) -> str:
        return f"Toolbox({', '.join(self._tools)})"

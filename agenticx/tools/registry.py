"""Tools made from functions, and the ordered collection of tools that a turn uses."""

from __future__ import annotations

import hashlib
import inspect
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache, partial, partialmethod
from math import inf
from types import NoneType
from typing import Any, cast, get_args, overload

from agenticx.argument_types import check_callable, check_iterable, check_str, check_type, wrong_type
from agenticx.errors import ToolError
from agenticx.forks import confine_forked_child
from agenticx.llms.base import ToolSchema
from agenticx.llms.growing_arguments import GrowingArguments
from agenticx.threads import run_in_thread
from agenticx.tools.assessments import checked_assessment
from agenticx.tools.base import Assessment, Risk, Tool, ToolContext
from agenticx.tools.schema import CallSchema, read_signature

__all__ = ["Assess", "FunctionTool", "Toolbox", "as_tool", "tool"]

Assess = Callable[[Mapping[str, Any], ToolContext], Assessment]
Preview = Callable[[GrowingArguments], Mapping[str, Any] | None]


@dataclass(frozen=True, slots=True, eq=False)
class FunctionTool:
    """A tool made from a function.

    `risk` is "execute" if it is `undeclared`. A coroutine function runs on the event loop. A plain function runs in a
    daemon thread of its own; the thread continues when the call is cancelled, so the function must not rely on being
    stopped.
    """

    function: Callable[..., Any]
    signature: CallSchema
    schema: ToolSchema
    schema_digest: str
    risk: Risk
    undeclared: bool
    read_only: bool
    idempotent: bool
    parallel: bool
    timeout: float | None
    assessor: Assess | None
    preview: Preview | None

    @property
    def runs_in_thread(self) -> bool:
        """True for a plain function."""
        return not _is_coroutine_function(self.function)

    def assess(self, arguments: Mapping[str, Any], context: ToolContext) -> Assessment:
        """Return the assessment of `assessor`, else one of the declared risk, bound to the current schema.

        Raises `ToolError` if the assessor returns anything but an `Assessment` of the declared types.
        """
        if self.assessor is not None:
            assessment = checked_assessment(self.assessor(arguments, context), self.schema.name)
        else:
            reasons = (_REASONS[self.risk].format(name=self.schema.name),)
            assessment = Assessment(risk=self.risk, undeclared=self.undeclared, reasons=reasons)
        return replace(assessment, binding={**assessment.binding, "schema": self.schema_digest})

    def validate(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments as Python values; see `CallSchema.validate`."""
        return self.signature.validate(arguments)

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> object:
        """Call the function with validated and injected arguments; its exceptions are not caught."""
        keywords = self.signature.inject(arguments, context)
        if not self.runs_in_thread:
            with confine_forked_child():
                return await self.function(**keywords)
        function = partial(self.function, **keywords)
        check = getattr(context, "raise_if_stopped", None)  # applications may pass contexts of their own
        result = await run_in_thread(function, name=f"agx tool {self.schema.name}", check=check)
        return await result if inspect.isawaitable(result) else result

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function itself, as if it had not been decorated."""
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
    risk: Risk | None = None,
    timeout: float | None = None,
    read_only: bool | None = None,
    idempotent: bool | None = None,
    parallel: bool | None = None,
    assess: Assess | None = None,
    preview: Preview | None = None,
) -> FunctionTool: ...
@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    risk: Risk | None = None,
    timeout: float | None = None,
    read_only: bool | None = None,
    idempotent: bool | None = None,
    parallel: bool | None = None,
    assess: Assess | None = None,
    preview: Preview | None = None,
) -> Callable[[Callable[..., Any]], FunctionTool]: ...
def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    risk: Risk | None = None,
    timeout: float | None = None,
    read_only: bool | None = None,
    idempotent: bool | None = None,
    parallel: bool | None = None,
    assess: Assess | None = None,
    preview: Preview | None = None,
) -> FunctionTool | Callable[[Callable[..., Any]], FunctionTool]:
    """Make a tool from a function, as `@tool`, `@tool(risk="read")` or `tool(function)`.

    A plain function runs in a thread, an async one on the event loop. Name and description come from it unless given.
    The user is asked before a tool runs that declares the risk "write" or "execute", and where there is a confirm gate
    also before one that declares none; one of the risk "read" runs unasked. `read_only` follows from the risk "read"
    unless it is given, and `idempotent` (a call that a crash interrupted may be run again) and `parallel` (at most 8
    calls of the round run at a time) from `read_only`; `timeout` is in seconds; `assess` assesses each call by its
    arguments. `preview` shows a file while the model is still writing the call: a pure function of the arguments
    received so far that returns {"path": str, "content": str}, whose content only grows, or None. Raises `TypeError`
    for a generator function, whose calls have no result, and `TypeError` or `ValueError` for an option that cannot be
    used.

    >>> @tool(risk="read")
    ... def add(left: int, right: int) -> int:
    ...     "Add two numbers."
    ...     return left + right
    >>> add.schema.name, sorted(add.schema.parameters["properties"]), add(1, 2)
    ('add', ['left', 'right'], 3)
    """
    defaults = {"read_only": read_only, "idempotent": idempotent, "parallel": parallel}
    _check_options(name, description, risk, timeout, assess, preview, defaults)
    if function is None:
        options = {"risk": risk, "timeout": timeout, "assess": assess, "preview": preview}
        return partial(tool, name=name, description=description, **options, **defaults)
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
        risk=risk or "execute",
        undeclared=risk is None,
        read_only=only_reads,
        idempotent=only_reads if idempotent is None else idempotent,
        parallel=only_reads if parallel is None else parallel,
        timeout=timeout,
        assessor=assess,
        preview=preview,
    )


def _check_options(
    name: object,
    description: object,
    risk: object,
    timeout: object,
    assess: object,
    preview: object,
    flags: Mapping[str, object],
) -> None:
    if name is not None:
        check_str("name", name)
        _validate_name(cast("str", name))
    if description is not None:
        check_str("description", description)
    if timeout is not None:
        _check_timeout(timeout)
    if assess is not None:
        check_callable("assess", assess, "a function or None")
    if preview is not None:
        check_callable("preview", preview, "a function or None")
        if _is_coroutine_function(cast("Callable[..., Any]", preview)):
            raise TypeError(
                "preview must be a plain function, called while a reply is received, not a coroutine function"
            )
    for flag, value in flags.items():
        check_type(flag, value, (bool, NoneType), "True, False or None")
    if risk is not None and risk not in get_args(Risk):
        raise ValueError(f"risk must be one of {', '.join(get_args(Risk))}, not {risk!r}")


def _check_timeout(timeout: object) -> None:
    if isinstance(timeout, bool) or not isinstance(timeout, int | float):
        raise wrong_type("timeout", timeout, "a number of seconds")
    if not 0 < timeout < inf:
        raise ValueError(f"timeout must be a positive number of seconds, not {timeout!r}")


def as_tool(candidate: Tool | Callable[..., Any]) -> Tool:
    """Return `candidate` if it is a tool, else a tool made from it if it is a function; raise `TypeError` otherwise."""
    if isinstance(candidate, FunctionTool):
        return candidate
    if isinstance(candidate, Tool):
        _refuse_generator(candidate.run, candidate.schema.name)
        return candidate
    if callable(candidate):
        return tool(candidate)
    raise TypeError(f"{candidate!r} is neither a tool nor a function")


def _refuse_generator(function: Callable[..., Any], name: str) -> None:
    """Raise `TypeError` if `function` is a generator function, also inside partials, method objects and caches.

    A wrapper that is itself a function (`functools.wraps`) is accepted, because it may collect the items of the
    generator; the engine checks its result in each call.
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
                f"{name!r} is a generator function, but a tool call has one result: "
                "return a value, such as a text or a list, instead of yielding"
            )


_CACHED = type(cache(len))


def _name_of(function: Callable[..., Any]) -> str:
    while isinstance(function, partial):
        function = function.func
    return getattr(function, "__name__", type(function).__name__)


def _validate_name(name: str) -> str:
    """Return `name`; raise `ValueError` unless every provider accepts it."""
    if not re.fullmatch(r"[A-Za-z0-9_-]{1,64}", name):
        raise ValueError(f"{name!r} cannot be a tool's name: use 1 to 64 letters, digits, _ or -, or pass `name=`")
    return name


def _digest(schema: ToolSchema) -> str:
    text = json.dumps([schema.name, schema.description, schema.parameters], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


class Toolbox:
    """A mapping of names to tools, in the order given, which is the order in which the model sees them."""

    def __init__(self, tools: Iterable[Tool | Callable[..., Any]] = ()) -> None:
        if callable(tools):
            raise TypeError(f"tools are given as a sequence; write [{tools!r}]")
        if not isinstance(tools, list | tuple):
            check_iterable("tools", tools, "tools and functions")
        self._tools: dict[str, Tool] = {}
        for candidate in tools:
            added = as_tool(candidate)
            if added.schema.name in self._tools:
                raise ValueError(f"two tools are called {added.schema.name!r}; give one of them another name")
            self._tools[added.schema.name] = added
        self._schemas = tuple(member.schema for member in self._tools.values())

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._tools)

    def schemas(self) -> tuple[ToolSchema, ...]:
        """Return the schemas of all tools, the same tuple each time, so that providers' prompt caches stay valid."""
        return self._schemas

    def find(self, name: str) -> Tool | None:
        """Return the tool of that name, or None."""
        return self._tools.get(name)

    def get(self, name: str) -> Tool:
        """Return the tool of that name; raise `ToolError` that lists the known tools if there is none."""
        tool_ = self._tools.get(name)
        if tool_ is None:
            raise ToolError(f"unknown tool {name!r}; known tools: {', '.join(self._tools) or 'none'}")
        return tool_

    def only(self, names: Iterable[str]) -> Toolbox:
        """Return a toolbox of these tools, in the order of this one; raise `ToolError` for an unknown name."""
        selected = {name: self.get(name) for name in names}
        return Toolbox(member for name, member in self._tools.items() if name in selected)

    def __iter__(self) -> Iterator[Tool]:
        return iter(self._tools.values())

    def __len__(self) -> int:
        return len(self._tools)

    def __contains__(self, name: object) -> bool:
        return name in self._tools

    def __repr__(self) -> str:
        return f"Toolbox({', '.join(self._tools)})"

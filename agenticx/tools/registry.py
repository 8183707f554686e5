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
from types import MethodType, NoneType
from typing import TYPE_CHECKING, Any, Concatenate, Generic, Protocol, cast, get_args, overload

from typing_extensions import ParamSpec, TypeVar

from agenticx.argument_types import check_callable, check_iterable, check_str, check_type, wrong_type
from agenticx.call_errors import explain_calls
from agenticx.errors import ToolError
from agenticx.forks import confine_forked_child
from agenticx.llms.base import ToolSchema
from agenticx.llms.growing_arguments import GrowingArguments
from agenticx.threads import run_in_thread
from agenticx.tools.assessments import checked_assessment
from agenticx.tools.base import Assessment, Risk, Tool
from agenticx.tools.context import ToolContext
from agenticx.tools.schema import CallSchema, read_signature

__all__ = ["Assess", "FunctionTool", "Toolbox", "as_tool", "check_deps", "check_tools", "tool"]

Assess = Callable[[Mapping[str, Any], ToolContext], Assessment]
Preview = Callable[[GrowingArguments], Mapping[str, Any] | None]


P = ParamSpec("P", default=...)
R = TypeVar("R", default=Any, covariant=True)
BoundP = ParamSpec("BoundP")


class _Docstring:
    """The docstring of `FunctionTool`, and for each tool that of its function, as `help(tool)` shows it."""

    def __init__(self, of_class: str | None) -> None:
        self._of_class = of_class

    def __get__(self, instance: FunctionTool | None, owner: type) -> str | None:
        return self._of_class if instance is None else instance.function.__doc__


@dataclass(frozen=True, slots=True, eq=False)
class FunctionTool(Generic[P, R]):
    """A tool made from a function; it can still be called like that function.

    `risk` is "execute" if it is `undeclared`. A coroutine function runs on the event loop. A plain function runs in a
    daemon thread of its own; the thread continues when the call is cancelled, so the function must not rely on being
    stopped. The tool of a method `is_unbound` in its class, and bound when it is taken from an object, `Shop().order`.
    """

    if not TYPE_CHECKING:
        __doc__ = _Docstring(__doc__)

    function: Callable[P, R]
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
    is_unbound: bool
    untrusted: bool
    sends: bool

    @property
    def name(self) -> str:
        """The name that a model calls, `schema.name`."""
        return self.schema.name

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
        binding = {**assessment.binding, "schema": self.schema_digest}
        return replace(assessment, sends=assessment.sends or self.sends, binding=binding)

    def validate(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments as Python values; see `CallSchema.validate`."""
        return self.signature.validate(arguments)

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> object:
        """Call the function with validated and injected arguments; its exceptions are not caught.

        Raises `ToolError` if the deps of the run are not of the class that it takes.
        """
        if self.signature.deps_type is not None:
            try:
                check_deps((self,), context.deps)
            except TypeError as exc:
                raise ToolError(f"Error: {exc}") from exc
        keywords, function = self.signature.inject(arguments, context), cast("Callable[..., Any]", self.function)
        if not self.runs_in_thread:
            with confine_forked_child():
                return await function(**keywords)
        function = partial(function, **keywords)
        check = getattr(context, "raise_if_stopped", None)  # applications may pass contexts of their own
        result = await run_in_thread(function, name=f"agx tool {self.schema.name}", check=check)
        return await result if inspect.isawaitable(result) else result

    @property
    def __name__(self) -> str:
        return _name_of(self.function)

    @property
    def __wrapped__(self) -> Callable[P, R]:
        """The function: `inspect.signature` and `help` show its parameters."""
        return self.function

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function itself, as if it had not been decorated."""
        return self.function(*args, **kwargs)

    @overload
    def __get__(self, instance: None, owner: type) -> FunctionTool[P, R]: ...
    @overload
    def __get__(
        self: FunctionTool[Concatenate[Any, BoundP], R], instance: object, owner: type | None = None
    ) -> FunctionTool[BoundP, R]: ...
    def __get__(self, instance: object | None, owner: type | None = None) -> FunctionTool[..., Any]:
        """Return the tool bound to an object, or to the class for a class method, as Python binds methods."""
        function = cast("Any", self.function)
        if not self.is_unbound or (instance is None and not isinstance(function, classmethod)):
            return self
        return replace(self, function=cast("Any", function).__get__(instance, owner), is_unbound=False)


_REASONS: Mapping[Risk, str] = {
    "read": "{name} changes nothing outside of the session.",
    "write": "{name} changes files or other state.",
    "execute": "{name} is code of this application that may do anything.",
}


def _is_coroutine_function(function: Callable[..., Any]) -> bool:
    while isinstance(function, partial):
        function = function.func
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)


class ToolDecorator(Protocol):
    """The decorator that `@tool(…)` returns."""

    def __call__(self, function: Callable[P, R], /) -> FunctionTool[P, R]: ...


@overload
def tool(
    function: Callable[P, R],
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
    untrusted: bool = False,
    sends: bool = False,
) -> FunctionTool[P, R]: ...
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
    untrusted: bool = False,
    sends: bool = False,
) -> ToolDecorator: ...
@explain_calls
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
    untrusted: bool = False,
    sends: bool = False,
) -> FunctionTool[..., Any] | ToolDecorator:
    """Make a tool from a function, as `@tool`, `@tool(risk="read")` or `tool(function)`.

    Name and description come from the function unless given, and the schema from its parameters, of any types that
    pydantic validates. A parameter is described by `Annotated[int, "text"]` or the docstring, in Google (`Args:`),
    numpy (`Parameters`, underlined) or reST form (`:param name:`); the text before these is the tool's description.
    Two parameters are hidden from the model: one annotated `ToolContext` gets the environment of the call, and one
    called `context_variables` gets the application's own dict. A method is the tool of an object, as in `Shop().order`.

    A plain function runs in a thread, an async one on the event loop. It returns text or anything with a JSON form:
    numbers, dates, enum members, lists, dicts, dataclasses, pydantic models; or images and other files, as
    `load_attachment` returns them, alone or in a list with text: the model gets them as such. Bytes are a file if they
    are an image or a PDF, else text in UTF-8; any others are an error. An exception that it
    raises is reported to the model, a `ToolError` with its text alone.

    The user is asked before a tool runs that declares the risk "write" or "execute", and where there is a confirm gate
    also before one that declares none; one of the risk "read" runs unasked. `read_only` follows from the risk "read"
    unless it is given, and `idempotent` (a call that a crash interrupted may be run again) and `parallel` (at most 8
    calls of the round run at a time) from `read_only`; `timeout` is in seconds; `assess` assesses each call by its
    arguments. `preview` shows a file while the model is still writing the call: a pure function of the arguments
    received so far that returns {"path": str, "content": str}, with a content that only grows, or None.

    `untrusted` says that results have texts of others, as web pages and mails do, and `sends` that a call sends its
    arguments to others, as a search does. Once an untrusted result is in the conversation, a call that sends is asked
    about in every mode, unless the user wrote all that it sends, or has a rule that allows it.

    Raises `TypeError` for a generator function, because its calls have no result, and `TypeError` or `ValueError` for a
    signature without a schema and for an option that cannot be used.

    >>> @tool(risk="read")
    ... def add(left: int, right: int) -> int:
    ...     "Add two numbers."
    ...     return left + right
    >>> add.schema.name, sorted(add.schema.parameters["properties"]), add(1, 2)
    ('add', ['left', 'right'], 3)
    """
    defaults = {"read_only": read_only, "idempotent": idempotent, "parallel": parallel}
    _check_options(name, description, risk, timeout, assess, preview, defaults)
    check_type("untrusted", untrusted, bool, "True or False")
    check_type("sends", sends, bool, "True or False")
    if function is None:
        options = {"risk": risk, "timeout": timeout, "assess": assess, "preview": preview}
        options |= {"untrusted": untrusted, "sends": sends}
        return cast("ToolDecorator", partial(tool, name=name, description=description, **options, **defaults))
    called, is_unbound = _called_function(function)
    described = getattr(called, "__func__", called) if is_unbound else called
    signature = read_signature(described, skip_first=is_unbound)
    _refuse_generator(called, name or _name_of(described))
    schema = ToolSchema(
        _validate_name(name or _name_of(described)),
        signature.description if description is None else description,
        signature.parameters,
    )
    only_reads = risk == "read" if read_only is None else read_only
    return FunctionTool(
        function=called,
        signature=signature,
        schema=schema,
        schema_digest=_schema_digest(schema),
        risk=risk or "execute",
        undeclared=risk is None,
        read_only=only_reads,
        idempotent=only_reads if idempotent is None else idempotent,
        parallel=only_reads if parallel is None else parallel,
        timeout=timeout,
        assessor=assess,
        preview=preview,
        is_unbound=is_unbound,
        untrusted=untrusted,
        sends=sends,
    )


def _called_function(function: Any) -> tuple[Any, bool]:
    """Return the function of a tool, and whether it is a method without its object, as a class body has it."""
    if isinstance(function, MethodType) and isinstance(wrapped := cast("Any", function).__func__, FunctionTool):
        return cast("Any", wrapped.function).__get__(function.__self__), False  # `@classmethod` around `@tool`
    if isinstance(function, classmethod):
        return cast("Any", function), True
    if not inspect.isfunction(function):
        return function, False
    holder = function.__qualname__.rpartition(".")[0]  # the class, or the function in which this one is defined
    names = function.__code__.co_varnames[: function.__code__.co_argcount]
    return function, bool(holder) and not holder.endswith("<locals>") and names[:1] in (("self",), ("cls",))


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
        return _bound(cast("FunctionTool", candidate))
    if isinstance(candidate, Tool):
        _refuse_generator(candidate.run, candidate.schema.name)
        return candidate
    if callable(candidate):
        return _bound(tool(candidate))
    hint = "; give the function itself, not its name" if isinstance(candidate, str) else ""
    raise TypeError(f"{candidate!r} is neither a tool nor a function{hint}")


def _bound(candidate: FunctionTool) -> FunctionTool:
    """Return `candidate`; raise `TypeError` if it is a method without its object."""
    if candidate.is_unbound:
        holder, _, name = candidate.function.__qualname__.rpartition(".")
        raise TypeError(
            f"{name!r} is a method of {holder!r}, and a call of it has no object; give the tool of an object, as in "
            f"{holder.rpartition('.')[2]}(…).{name}"
        )
    return candidate


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


def check_deps(tools: Iterable[Tool], deps: object) -> None:
    """Raise `TypeError` if a tool takes deps of a class, as in `ToolContext[Database]`, and these are not of it."""
    for each in tools:
        expected = each.signature.deps_type if isinstance(each, FunctionTool) else None
        if expected is not None and not isinstance(deps, expected):
            name = expected.__name__
            article = "an" if name[0] in "aeiouAEIOU" else "a"
            what = f"the tool {each.schema.name!r} takes ToolContext[{name}]"
            raise TypeError(f"deps must be {article} {name}, not {type(deps).__name__}: {what}")


def _schema_digest(schema: ToolSchema) -> str:
    text = json.dumps([schema.name, schema.description, schema.parameters], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def check_tools(tools: object) -> None:
    """Raise `TypeError` if `tools` is no list or other iterable of tools; for a single one the error names the list."""
    if callable(tools):
        raise TypeError(f"tools must be a list of tools and functions; write tools=[{_name_of(tools)}]")
    if not isinstance(tools, list | tuple):
        check_iterable("tools", tools, "tools and functions")


class Toolbox:
    """A mapping of names to tools, in the order in which the model sees them."""

    def __init__(self, tools: Iterable[Tool | Callable[..., Any]] = ()) -> None:
        check_tools(tools)
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

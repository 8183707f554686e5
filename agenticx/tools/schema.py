"""JSON Schemas and argument validators made from the signatures and docstrings of functions.

1. Values are JSON, and validation is strict: `"1"` and `1.0` are not integers, `1` is not a boolean; the only widening
   is an integer where a number is expected. The engine converts numbers in another form where nothing is lost
   (`coercion`) and reports it; any other conversion would hide a mistake that the model corrects when it gets the
   error.
2. Unknown arguments are refused: a model that invents a name has misunderstood what the tool does.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, NotRequired, cast, get_args, get_origin, get_type_hints

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.errors import PydanticUserError
from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import PydanticSerializationError, to_jsonable_python
from typing_extensions import TypedDict

from agenticx.errors import InvalidArguments
from agenticx.tools.context import ToolContext
from agenticx.tools.docstrings import read_docstring

__all__ = ["CallSchema", "read_signature"]

_MAX_SHOWN_ERRORS = 3
_MAX_VALUE_CHARS = 60
_MAX_ERRORS_WITH_VALUES = 10
"""With more errors no values are shown, because copying large values for each error would take long."""


@dataclass(frozen=True, slots=True)
class CallSchema:
    """The interface of a function for a model.

    `parameters` is the JSON Schema; `inject` adds the arguments of `context_name` and `takes_variables`, which are
    not part of the schema. `deps_type` is the class X of a parameter `ToolContext[X]`, else None.
    """

    description: str
    parameters: Mapping[str, Any]
    context_name: str | None
    deps_type: type | None
    takes_variables: bool
    adapter: TypeAdapter[dict[str, Any]]

    def validate(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments as Python values; raise `InvalidArguments` that names each wrong field and its type."""
        try:
            text = json.dumps(arguments)
            return self.adapter.validate_json(text, strict=True)
        except ValidationError as exc:
            raise InvalidArguments(_error_text(exc, self.parameters)) from exc
        except (TypeError, ValueError, RecursionError) as exc:
            raise InvalidArguments(f"the arguments are not JSON: {exc}") from exc

    def inject(self, arguments: Mapping[str, Any], context: ToolContext) -> dict[str, Any]:
        """Return the model's arguments and the injected ones as keyword arguments of the function."""
        injected: dict[str, Any] = {}
        if self.context_name is not None:
            injected[self.context_name] = context
        if self.takes_variables:
            injected[_VARIABLES] = context.state.context_variables
        return {**arguments, **injected}


def read_signature(function: Callable[..., Any], *, skip_first: bool = False) -> CallSchema:
    """Return the call schema of `function`; raise `TypeError` if its signature cannot be described.

    Parameters are described by `Annotated[..., "text"]` or `Field(description=…)`, else by the docstring. With
    `skip_first` the first parameter is skipped: a method's `self`.
    """
    description, described = read_docstring(inspect.getdoc(function) or "")
    fields: dict[str, Any] = {}
    context_name: str | None = None
    deps_type: type | None = None
    takes_variables = False
    try:
        signature = inspect.signature(function)
    except ValueError as exc:
        raise TypeError(f"{function!r} cannot be a tool: it has no signature, as a function of your own has") from exc
    for name, parameter in list(signature.parameters.items())[skip_first:]:
        annotation = _annotation(function, parameter)
        if annotation is ToolContext:
            context_name, deps_type = name, _deps_type(function, parameter)
        elif name == _VARIABLES:
            takes_variables = True
        else:
            fields[name] = _field(parameter, annotation, described.get(name))
    adapter, parameters = _described(function, fields)
    return CallSchema(description, parameters, context_name, deps_type, takes_variables, adapter)


_VARIABLES = "context_variables"


# --- the signature ----------------------------------------------------------------------------------------------------


def _annotation(function: Callable[..., Any], parameter: inspect.Parameter) -> Any:
    """Return the parameter's resolved annotation: `ToolContext` for each spelling of it, `Any` if it is missing."""
    annotation = parameter.annotation
    if annotation is parameter.empty:
        return Any
    if isinstance(annotation, str) and _CONTEXT_ANNOTATION.fullmatch(annotation):
        return ToolContext  # it may be imported under TYPE_CHECKING only
    try:
        hint = _resolved(function, parameter)
    except (NameError, SyntaxError) as exc:
        raise TypeError(
            f"the annotation of {_describe_parameter(function, parameter)} cannot be resolved: {exc}"
        ) from exc
    return ToolContext if _context_types(hint) else hint


_CONTEXT_ANNOTATION = re.compile(
    r"(?:\w+\.)*ToolContext(?:\[.*\])?(?:\s*\|\s*None)?|Optional\[(?:\w+\.)*ToolContext(?:\[.*\])?\]"
)


def _resolved(function: Callable[..., Any], parameter: inspect.Parameter) -> Any:
    """Return the annotation with its names resolved; raise `NameError` or `SyntaxError` if they cannot be."""
    owner = _unwrapped_function(function)
    holder = type("Holder", (), {"__annotations__": {parameter.name: parameter.annotation}})
    names = {**getattr(owner, "__globals__", {}), **_closure(owner)}
    return get_type_hints(holder, globalns=names, include_extras=True)[parameter.name]


def _context_types(hint: Any) -> list[Any]:
    """Return the `ToolContext` or `ToolContext[X]` in a hint, also in a union with None."""
    return [one for one in (hint, *get_args(hint)) if one is ToolContext or get_origin(one) is ToolContext]


def _deps_type(function: Callable[..., Any], parameter: inspect.Parameter) -> type | None:
    """Return the class X of a parameter `ToolContext[X]`; None for another type, and for one that is not imported."""
    try:
        found = [get_args(one) for one in _context_types(_resolved(function, parameter))]
    except (NameError, SyntaxError, TypeError):  # it may be imported under TYPE_CHECKING only
        return None
    types: list[object] = [arguments[0] for arguments in found if arguments]
    for deps_type in types:
        if isinstance(deps_type, type) and deps_type is not Any and not getattr(deps_type, "_is_protocol", False):
            return deps_type
    return None


def _unwrapped_function(function: Callable[..., Any]) -> Callable[..., Any]:
    while isinstance(function, partial):
        function = function.func
    function = inspect.unwrap(function)
    if not inspect.isroutine(function):
        function = type(function).__call__
    return getattr(function, "__func__", function)


def _closure(function: Callable[..., Any]) -> Mapping[str, Any]:
    """Return the names and values of the function's closure; a name without a value yet is left out."""
    if not inspect.isfunction(function) or function.__closure__ is None:
        return {}
    names: dict[str, Any] = {}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__, strict=True):
        with suppress(ValueError):  # the cell is empty
            names[name] = cell.cell_contents
    return names


def _field(parameter: inspect.Parameter, annotation: Any, description: str | None) -> Any:
    if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
        raise TypeError(f"parameter {str(parameter)!r} of a tool has no single name; declare each argument by name")
    if isinstance(parameter.default, FieldInfo):
        raise TypeError(f"write parameter {parameter.name!r} of a tool as `Annotated[type, Field(…)] = default`")
    parameter_description = _annotated_description(annotation) or description
    extra: dict[str, Any] = {}
    if parameter.default is not parameter.empty:
        with suppress(PydanticSerializationError):  # a default that is not JSON is left out of the schema
            extra["default"] = to_jsonable_python(parameter.default)
    described = Annotated[annotation, Field(description=parameter_description, json_schema_extra=extra or None)]
    return described if parameter.default is parameter.empty else NotRequired[described]


def _annotated_description(annotation: Any) -> str | None:
    """Return the text of `Annotated[int, "text"]` or `Annotated[int, Field(description="text")]`, else None."""
    if get_origin(annotation) is not Annotated:
        return None
    for extra in get_args(annotation)[1:]:
        if isinstance(extra, str):
            return extra
        if isinstance(extra, FieldInfo) and extra.description:
            return extra.description
    return None


def _describe_parameter(function: Callable[..., Any], parameter: inspect.Parameter) -> str:
    return f"parameter {parameter.name!r} of {getattr(function, '__qualname__', function)!r}"


# --- the schema and the validator -------------------------------------------------------------------------------------


def _described(
    function: Callable[..., Any], fields: Mapping[str, Any]
) -> tuple[TypeAdapter[dict[str, Any]], dict[str, Any]]:
    """Return the validator and the JSON Schema of the arguments; raise `TypeError` if a type has none."""
    try:
        adapter = _adapter(fields)
        return adapter, _json_schema(adapter)
    except PydanticUserError as exc:
        names = [name for name, field in fields.items() if not _has_schema(name, field)]
        place = f"parameter {names[0]!r} of " if names else ""
        raise TypeError(
            f"{place}{getattr(function, '__qualname__', function)!r} has a type without a JSON Schema, so no model can "
            "pass it; take JSON types, a dataclass or a pydantic model, or read an object of your own from "
            "`context.deps` of a parameter `context: ToolContext`"
        ) from exc


def _has_schema(name: str, field: Any) -> bool:
    try:
        _json_schema(_adapter({name: field}))
    except PydanticUserError:
        return False
    return True


def _adapter(fields: Mapping[str, Any]) -> TypeAdapter[dict[str, Any]]:
    """Return a validator of the arguments.

    It is made from a TypedDict rather than a model, so that any parameter name is allowed and the result is the plain
    dict of keyword arguments.
    """
    arguments = cast(Any, TypedDict)("Arguments", dict(fields))
    arguments.__pydantic_config__ = ConfigDict(extra="forbid", allow_inf_nan=False)
    return TypeAdapter(arguments)


class _WithoutTitles(GenerateJsonSchema):
    """A JSON Schema generator without titles: they would only repeat the names in every request."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


def _json_schema(adapter: TypeAdapter[dict[str, Any]]) -> dict[str, Any]:
    schema = adapter.json_schema(schema_generator=_WithoutTitles)
    schema.pop("title", None)
    schema.setdefault("properties", {})
    return schema


# --- the error message ------------------------------------------------------------------------------------------------


def _error_text(exc: ValidationError, parameters: Mapping[str, Any]) -> str:
    include_input = exc.error_count() <= _MAX_ERRORS_WITH_VALUES
    errors = exc.errors(include_url=False, include_context=False, include_input=include_input)
    sentences = [_describe_error(error, parameters) for error in errors[:_MAX_SHOWN_ERRORS]]
    if len(errors) > _MAX_SHOWN_ERRORS:
        sentences.append(f"and {len(errors) - _MAX_SHOWN_ERRORS} more")
    return "; ".join(sentences)


def _describe_error(error: Any, parameters: Mapping[str, Any]) -> str:
    path = ".".join(str(step) for step in error["loc"])
    match error["type"]:
        case "missing":
            parameter_schema = parameters["properties"].get(path, {})
            hint = parameter_schema.get("description") or parameter_schema.get("type") or "it has no default"
            return f"{path!r} is missing: {hint}"
        case "extra_forbidden":
            expected = "" if "." in path else f"; its arguments are: {', '.join(parameters['properties']) or 'none'}"
            return f"{path!r} is not an argument of this tool{expected}"
        case "json_invalid":
            return f"the arguments are not JSON: {error['msg']}"
        case _:
            expectation = error["msg"].removeprefix("Input ")
            sentence = f"{path!r} {expectation[:1].lower()}{expectation[1:]}"
            if "input" not in error:
                return sentence
            value = repr(error["input"])
            return f"{sentence}, not {value if len(value) <= _MAX_VALUE_CHARS else value[:_MAX_VALUE_CHARS] + '…'}"

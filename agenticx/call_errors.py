"""Errors of calls whose arguments do not fit: each says what was given and what would be right.

>>> @explain_calls
... def mix(paint: str, *, water: int = 0) -> None: ...
>>> mix("red", watr=3)
Traceback (most recent call last):
TypeError: mix has no argument watr; did you mean water?
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, cast

from pydantic import AliasChoices, BaseModel, ValidationError

from agenticx.similar_names import similar_name

__all__ = ["ExplainedModel", "explain_calls"]

CallableT = TypeVar("CallableT", bound=Callable[..., Any])

_SYNONYMS = (
    ("model", "llm", "llm_provider", "model_client"),
    ("instructions", "system_prompt", "system_message", "prompt"),
    ("max_iterations", "max_tool_rounds", "max_tool_iterations", "max_turns", "max_rounds", "max_steps"),
    ("output_type", "output_content_type", "result_type", "response_format"),
    ("tools", "functions"),
    ("hooks", "llm_hooks"),
    ("confirm_gate", "gate", "approval"),
    ("participants", "agents"),
    ("answer", "text"),
)
"""Arguments with one meaning, by their names here and in other libraries."""

_EXPECTED = {
    "a valid string": "a str",
    "a valid integer": "an int",
    "a valid number": "a number",
    "a valid boolean": "True or False",
    "a valid dictionary": "a dict",
    "a valid list": "a list",
    "a valid tuple": "a list",
    "callable": "a function",
    "an instance of Sequence": "a list",
}
"""Words of pydantic, after `Input should be`, as other errors here have them."""

_TYPE_ERRORS = ("_type", "_of", "_parsing", "sequence_str")
"""The ends of pydantic's error types for a value of another type."""

_MAX_SHOWN = 60


def explain_calls(target: CallableT) -> CallableT:
    """Have a function or a class raise `TypeError` and `ValueError` that say what would be right, as a decorator.

    An argument that it does not take, one by position that must have a name, and fields that pydantic refuses are
    explained; errors of the function itself pass unchanged.
    """
    changed: Any = target
    if isinstance(changed, type):
        changed.__init__ = _explained(changed.__init__)  # pyright: ignore[reportAttributeAccessIssue]
    else:
        changed = _explained(target)
    return cast("CallableT", changed)


def _explained(function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except TypeError as exc:
            was_called = exc.__traceback__ is not None and exc.__traceback__.tb_next is not None
            if was_called or (problem := _call_problem(function, args, kwargs)) is None:
                raise
            raise TypeError(problem) from None
        except ValidationError as exc:
            owner = cast("type[Any]", type(args[0])) if function.__name__ == "__init__" else None
            if owner is None or exc.title != owner.__name__:
                raise
            raise _field_error(owner, exc) from exc

    @wraps(function)
    async def call_async(*args: Any, **kwargs: Any) -> Any:
        return await call(*args, **kwargs)

    return call_async if inspect.iscoroutinefunction(function) else call


def _call_problem(function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> str | None:
    """Return what is wrong with the arguments, None if that is nothing that can be explained better."""
    parameters = [*inspect.signature(function).parameters.values()]
    owner = function.__name__
    is_constructor = owner == "__init__"
    if parameters and parameters[0].name == "self":
        class_name = type(args[0]).__name__
        owner = class_name if is_constructor else f"{class_name}.{owner}"
        args, parameters = args[1:], parameters[1:]
    named = [one for one in parameters if one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)]
    names = [one.name for one in named]
    if unknown := [name for name in kwargs if name not in names]:
        return _unknown_argument(owner, unknown[0], names)
    by_position = [one for one in parameters if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)]
    by_name = [one for one in named if one.kind is one.KEYWORD_ONLY and one.name not in kwargs]
    if len(args) > len(by_position) and by_name:
        if not by_position:
            required = [one.name for one in by_name if one.default is one.empty]
            likely = required if is_constructor else [*required, *names]
            return _only_by_name(owner, likely[0] if likely else None, args[0], names)
        taken = ", ".join(one.name for one in by_position)
        others = ", ".join(one.name for one in by_name)
        return f"{owner} takes {taken} by position, and its other arguments by name: {others}"
    given = {one.name for one in by_position[: len(args)]} | kwargs.keys()
    missing = [one.name for one in named if one.default is one.empty and one.name not in given]
    return _missing(owner, missing) if missing else None


def _only_by_name(owner: str, meant: str | None, value: object, names: Sequence[str]) -> str:
    example = f", as in {owner}({meant}={_example_value(value)})" if meant else f": {', '.join(names)}"
    return f"{owner} takes its arguments by name{example}"


def _missing(owner: str, names: Sequence[str]) -> str:
    return f"{owner} needs the argument{'s' * (len(names) > 1)} {' and '.join(names)}"


def _unknown_argument(owner: str, unknown: str, names: Sequence[str]) -> str:
    same_meaning = next((words for words in _SYNONYMS if unknown in words), ())
    meant = next((name for name in names if name in same_meaning), None) or similar_name(unknown, names)
    hint = f"did you mean {meant}?" if meant else f"its arguments: {', '.join(names)}"
    return f"{owner} has no argument {unknown}; {hint}"


def _example_value(value: object) -> str:
    text = repr(value) if isinstance(value, str | int | float | None) else ""
    return text if text and len(text) <= _MAX_SHOWN else "…"


class ExplainedModel:
    """A base class before `BaseModel`, whose constructor raises `TypeError` and `ValueError` as `explain_calls` does.

    An assignment to a field of a frozen instance raises `AttributeError`. `model_validate` and the like raise
    `pydantic.ValidationError`, as they do for any model. `by_position` is the field that a value without a name is most
    likely meant for, by default the first one that is required.
    """

    by_position: ClassVar[str] = ""

    if not TYPE_CHECKING:

        def __init__(self, /, *args: Any, **fields: Any) -> None:
            if args:
                model = type(self)
                raise TypeError(_only_by_name(model.__name__, _likely_field(model), args[0], [*model.model_fields]))
            try:
                super().__init__(**fields)
            except ValidationError as exc:
                if exc.title != type(self).__name__:
                    raise
                raise _field_error(type(self), exc) from exc

        def __setattr__(self, name: str, value: object) -> None:
            try:
                super().__setattr__(name, value)
            except ValidationError as exc:
                changed = f"model_copy(update={{{name!r}: {_example_value(value)}}})"
                raise AttributeError(f"{type(self).__name__} is frozen; {changed} returns a changed one") from exc

        __init__.__pydantic_base_init__ = True  # pydantic then validates JSON and dicts without a call of it
        __init__.__signature__ = inspect.signature(BaseModel.__init__)  # of which pydantic makes that of the class


def _likely_field(model: Any) -> str | None:
    required = [name for name, field in model.model_fields.items() if field.is_required()]
    return model.by_position or (required[0] if required else None)


def _field_error(owner: type[Any], exc: ValidationError) -> TypeError | ValueError:
    """Return the error for the fields that pydantic refused; of one kind after another, the first alone."""
    errors = exc.errors(include_url=False)
    names = _argument_names(owner)
    unknown = [error for error in errors if error["type"] in ("extra_forbidden", "unexpected_keyword_argument")]
    if unknown:
        name = str(unknown[0]["loc"][-1])
        if (twin := _other_name(owner, name)) is not None:
            return TypeError(f"{owner.__name__} was given {twin} and {name}, which are one argument; give one of them")
        return TypeError(_unknown_argument(owner.__name__, name, names))
    if missing := [str(error["loc"][0]) for error in errors if error["type"].startswith("missing")]:
        return TypeError(_missing(owner.__name__, missing))
    problems: dict[str, list[Any]] = {}
    for error in errors:
        problems.setdefault(_place(error["loc"], names), []).append(error)
    are_types = all(error["type"].endswith(_TYPE_ERRORS) for error in errors)
    text = "; ".join(_field_problem(name, errors, are_types=are_types) for name, errors in problems.items())
    return TypeError(text) if are_types else ValueError(text)


def _argument_names(owner: type[Any]) -> list[str]:
    return [name for name, one in inspect.signature(owner).parameters.items() if one.kind is not one.VAR_KEYWORD]


def _other_name(owner: Any, name: str) -> str | None:
    """Return the other name of a field that can be given by `name` too: pydantic refuses the second one as unknown."""
    for field in getattr(owner, "model_fields", {}).values():
        if isinstance(field.validation_alias, AliasChoices) and name in field.validation_alias.choices:
            return next((str(choice) for choice in field.validation_alias.choices if choice != name), None)
    return None


def _place(loc: Sequence[str | int], names: Sequence[str]) -> str:
    """Return the name of a field or of an item in it; without the member of a union, which is also in `loc`.

    >>> _place(("tools", 0, "callable"), [])
    'tools[0]'
    """
    if not loc:
        return ""
    first = names[loc[0]] if isinstance(loc[0], int) else loc[0]
    return first + "".join(f"[{one}]" for one in loc[1:] if isinstance(one, int))


def _field_problem(name: str, errors: Sequence[Mapping[str, Any]], *, are_types: bool) -> str:
    """Return one sentence for the errors of a field: those of a union are its members."""
    expected = list[str]()
    for error in errors:
        if error["type"] == "value_error":
            return f"{name}: {error['ctx']['error']}" if name else str(error["ctx"]["error"])
        if error["type"] == "sequence_str":
            return f"{name} must be a list, not str"
        what, should, verb = str(error["msg"]).partition(" should ")
        if not should:
            return f"{name}: {what}"
        if not verb.startswith("be "):
            return f"{name} must {verb}"
        word = verb.removeprefix("be ").removeprefix("a dictionary or ").replace("a valid dictionary or", "an")
        word = word.partition(", unable to parse")[0]
        expected.append(_EXPECTED.get(word, word))
    value = errors[0]["input"]
    given = type(value).__name__ if are_types else f"{str(value)[:_MAX_SHOWN]!r}" if isinstance(value, str) else value
    return f"{name} must be {' or '.join(dict.fromkeys(expected))}, not {given}"

"""Context variables, which belong to the application: their copies, and the instructions that take them."""

from __future__ import annotations

import inspect
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable, Mapping
from contextlib import suppress
from copy import copy
from functools import partial
from typing import Any, cast

__all__ = ["bind_variables", "copied_variables"]

_VARIABLES = "context_variables"
_CONTAINERS = frozenset({dict, list, set, tuple, Counter, OrderedDict, defaultdict})


def copied_variables(variables: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy in which the dicts, lists, sets and tuples at any depth are copies too.

    Other objects are shared, since they may be connections, locks or models.
    """
    copies: dict[int, tuple[Any, Any]] = {}  # each container and its copy, by the container's id
    unfinished: list[Any] = []  # copies whose items may still be those of the original

    def copied(value: Any) -> Any:
        if type(value) not in _CONTAINERS:
            return value
        if id(value) not in copies:
            is_tuple = isinstance(value, tuple)
            result: Any = tuple(map(copied, cast("tuple[Any, ...]", value))) if is_tuple else copy(value)
            copies[id(value)] = value, result
            unfinished.append(result)
        return copies[id(value)][1]

    result = copied(dict(variables))
    for container in unfinished:  # it grows: a loop, so that neither depth nor a cycle matters
        if isinstance(container, list):
            container[:] = map(copied, cast("list[Any]", container))
        elif isinstance(container, dict):
            for key, item in list(cast("dict[Any, Any]", container).items()):
                container[key] = copied(item)
    return result


def bind_variables(function: Callable[..., Any], variables: dict[str, Any]) -> Callable[..., Any]:
    """Return a function of instructions with the variables as its argument, if it takes one.

    The argument is the parameter `context_variables`, else the first one. Raises `ValueError` for a function that needs
    more.
    """
    signature = inspect.signature(function)
    by_name = partial(function, **{_VARIABLES: variables})
    attempts = [partial(function, variables), by_name, partial(function)]
    if _VARIABLES in signature.parameters:
        attempts = [by_name, *attempts]
    for attempt in attempts:
        with suppress(TypeError):
            signature.bind(*attempt.args, **attempt.keywords)
            return attempt
    raise ValueError(f"a function of instructions takes no argument or {_VARIABLES}; others need defaults")

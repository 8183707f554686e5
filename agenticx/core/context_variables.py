"""Copies of context variables, which belong to the application."""

from __future__ import annotations

from collections import Counter, OrderedDict, defaultdict
from collections.abc import Mapping
from copy import copy
from typing import Any, cast

__all__ = ["copied_variables"]

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

"""Rendering of a tool's return value as bounded, encodable text that gives its true size."""

from __future__ import annotations

import json
from collections import ChainMap, UserDict, UserList, deque
from collections.abc import AsyncGenerator, Coroutine, Generator, Iterable, Mapping, MappingView, Sequence
from dataclasses import fields, is_dataclass
from functools import partial
from types import MappingProxyType, SimpleNamespace
from typing import Any, cast

from pydantic import BaseModel

from agenticx.errors import ToolError
from agenticx.messages import clean_text
from agenticx.runtime.turn_agent import TurnChange
from agenticx.threads import LARGE, run_in_thread, run_sized
from agenticx.tools.base import ToolOutput

__all__ = ["is_large", "reject_unfinished", "render_value", "render_value_async", "truncate"]

_ENTRY_CHARS = 16
"""Characters of plain text that take as long to encode as one more entry of a list or object."""

_CONTAINERS = frozenset({dict, list, tuple})
_SCALARS = frozenset({float, bool, type(None)})
_PLAIN = _SCALARS | {str, int, bytes}


def render_value(value: object, limit: int) -> tuple[str, bool]:
    """Return `value` as text of about `limit` characters at most, and whether anything was left out.

    Text is returned as it is, bytes as UTF-8 with replacement characters, None as "", models and JSON values as JSON,
    anything else as its `repr`. May raise any exception of the value's own code: call it as user code.

    Raises `ToolError` for a value that has an agent in it, or another change of the turn: only as the very value that a
    tool returns it has an effect, and what belongs to an agent, such as its instructions, is not for a model to read.
    """
    if not isinstance(value, str):
        _reject_changes_in(value)
    match value:
        case str():
            return truncate(value, limit)
        case ToolOutput():
            text, truncated = truncate(value.text, limit)
            return text, truncated or value.truncated
        case None:
            return "", False
        case bytes() | bytearray():
            return _from_bytes(bytes(value[: 4 * limit + 4]), len(value), limit)
        case BaseModel():
            return truncate(value.model_dump_json(), limit)
        case _:
            return truncate(_as_json(value), limit)


async def render_value_async(value: object, limit: int) -> tuple[str, bool]:
    """Return what `render_value` returns, from a thread if the value `is_large`; raise what it raises."""
    return await run_sized(render_value, value, limit, size=LARGE if is_large(value) else 0, name="agx result")


def is_large(value: object) -> bool:
    """Return whether rendering `value` may take more than a few milliseconds; read no further than needed.

    Text and bytes are cut before they are read. For any value but these and small JSON values the time is unknown, and
    it counts as large: its conversion to JSON or its `repr` runs its own code.
    """
    if isinstance(value, str | bytes | bytearray | ToolOutput):
        return False
    remaining, unread = LARGE, [value]
    while unread and remaining > 0:
        item: Any = unread.pop()
        kind = cast("type[object]", type(item))
        if kind is str:
            remaining -= len(item)
        elif kind is int:
            remaining -= item.bit_length() // 3
        elif kind in _CONTAINERS:
            remaining -= _ENTRY_CHARS * len(item)
            unread += [*item, *item.values()] if kind is dict else item
        elif kind not in _SCALARS:
            return True
    return remaining <= 0


async def reject_unfinished(value: object) -> object:
    """Return what a tool returned; close it and raise `ToolError` if it is a generator or coroutine that was not run.

    Closing may run code of the tool's and raise what that raises: call it as user code.
    """
    match value:
        case AsyncGenerator():
            await cast("AsyncGenerator[object, Any]", value).aclose()
            raise ToolError(_UNFINISHED.format(kind="an async generator", remedy="collect what it yields"))
        case Generator():
            await run_in_thread(cast("Generator[object, Any, object]", value).close, name="agx closing a generator")
            raise ToolError(_UNFINISHED.format(kind="a generator", remedy="collect what it yields"))
        case Coroutine():
            cast("Coroutine[Any, Any, object]", value).close()
            raise ToolError(_UNFINISHED.format(kind="a coroutine", remedy="await it"))
        case _:
            return value


_UNFINISHED = "Error: the tool returned {kind}; it must {remedy} and return that."


def _reject_changes_in(value: object) -> None:
    """Raise `ToolError` if there is a `TurnChange` in containers, data classes, models and partial functions.

    At any depth; the `repr` of any other object shows no more of an agent than its name.
    """
    seen, unread = set[int](), [value]
    while unread:
        item: Any = unread.pop()
        if isinstance(item, TurnChange):
            place = "" if item is value else f" in a {type(value).__name__}"
            raise ToolError(
                f"Error: the tool returned a value of type {type(item).__name__}{place}, which no model may read. To "
                "hand over, return the agent or a Result with it by itself; else return a text or plain values."
            )
        if id(item) not in seen:
            seen.add(id(item))
            unread += [child for child in _children(item) if type(child) not in _PLAIN]


def _children(item: Any) -> Sequence[Any]:
    """Return what is in a container, a data class, a model or a partial function; nothing for any other object."""
    if isinstance(item, dict | MappingProxyType | UserDict):
        mapping = cast("Mapping[Any, Any]", item)
        return [*mapping.keys(), *mapping.values()]
    if isinstance(item, ChainMap):
        return cast("ChainMap[Any, Any]", item).maps
    if isinstance(item, partial):
        function = cast("partial[Any]", item)
        return [function.func, *function.args, *function.keywords.values()]
    if isinstance(item, list | tuple | set | frozenset | deque | UserList | MappingView):
        return [*cast("Iterable[Any]", item)]
    if isinstance(item, BaseModel):
        return [*vars(item).values(), *(item.__pydantic_extra__ or {}).values()]
    if isinstance(item, SimpleNamespace):
        return [*vars(item).values()]
    kind = cast("Any", type(item))
    if (attributes := getattr(kind, "__attrs_attrs__", None)) is not None:  # a class of the library attrs
        return [getattr(item, one.name, None) for one in attributes]
    if is_dataclass(item) and not isinstance(item, type):
        return [getattr(item, one.name, None) for one in fields(item)]
    return ()


def truncate(text: str, limit: int) -> tuple[str, bool]:
    """Return head and tail of a text longer than `limit`, the number of characters left out between them.

    The second value is true if anything was left out.
    """
    if len(text) <= limit:
        return clean_text(text), False
    half = limit // 2
    left_out = len(text) - 2 * half
    note = f"\n[… {left_out} of {len(text)} characters left out …]\n"
    return clean_text(text[:half]) + note + clean_text(text[-half:]), True


def _from_bytes(head: bytes, size: int, limit: int) -> tuple[str, bool]:
    text = head.decode("utf-8", "replace")
    if len(head) == size:
        return truncate(text, limit)
    return f"{text[:limit]}\n[… the value has {size} bytes; the rest is left out …]", True


def _as_json(value: Any) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, default=repr)
    except (TypeError, ValueError, RecursionError):  # odd keys, cycles, depth
        return repr(value)

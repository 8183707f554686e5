"""The result of a call, made of a tool's value: bounded text that gives its true size, and files."""

from __future__ import annotations

import codecs
import json
from collections import ChainMap, UserDict, UserList, deque
from collections.abc import (
    AsyncGenerator,
    Coroutine,
    Generator,
    Iterable,
    Iterator,
    Mapping,
    MappingView,
    Sequence,
    Set,
)
from dataclasses import fields, is_dataclass, replace
from functools import partial
from pathlib import PurePath
from types import MappingProxyType, SimpleNamespace
from typing import Any, cast

from pydantic import BaseModel
from pydantic_core import PydanticSerializationError, to_json

from agenticx.attachments import Attachment, check_attachments, complete_file_type, file_type, make_attachment
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

_MAX_DEPTH = 200
"""The depth of lists and dicts to which files are looked for; `to_json` refuses a little more."""

_RETURNABLE = (
    "A tool may return text, numbers, dates, enum members, paths, lists, sets, dicts, dataclasses and pydantic models, "
    "images and files as load_attachment returns them, and bytes that are UTF-8, or a PNG, JPEG, GIF or WebP image, "
    "or a PDF."
)


def render_value(value: object, limit: int) -> ToolOutput:
    """Return `value` as text of about `limit` characters at most, and the files in it.

    - Text is returned as it is, None as "", and bytes as UTF-8 (only the part that is shown is checked).
    - Anything else is returned as the JSON that pydantic writes for dates, enums, decimals, sets, paths, data classes
      and models, with NaN as "NaN"; a JSON string is returned without quotes.
    - An `Attachment`, and the bytes of an image or a PDF with header and end, are files of the result. In a list or
      dict their name and type replace them.

    Raises `ToolError`, with the types that a tool may return, for any other value, and for a `TurnChange` such as an
    agent inside of a value: no model may read an agent's instructions. Raises `AttachmentRefused` or
    `AttachmentTooLarge` for files that one message cannot have, and any exception of the value's own code: call it as
    user code.
    """
    if isinstance(value, str):
        return _output(value, limit)
    if isinstance(value, ToolOutput):
        check_attachments(value.attachments)
        text, truncated = truncate(value.text, limit)
        return replace(value, text=text, truncated=truncated or value.truncated)
    _reject_parts(value)
    files = _ResultFiles()
    match files.replace_in(value):
        case str() as text:
            output = _output(text, limit)
        case None:
            output = ToolOutput("")
        case bytes() | bytearray() as content:
            output = ToolOutput(*_from_bytes(bytes(content[: 4 * limit + 4]), len(content), limit))
        case other:
            text = _as_json(other)
            output = _output(json.loads(text) if text.startswith('"') else text, limit)
    check_attachments(files.found)
    return replace(output, attachments=tuple(files.found))


async def render_value_async(value: object, limit: int) -> ToolOutput:
    """Return what `render_value` returns, from a thread if the value `is_large`; raise what it raises."""
    return await run_sized(render_value, value, limit, size=LARGE if is_large(value) else 0, name="agx result")


def is_large(value: object) -> bool:
    """Return whether rendering `value` may take more than a few milliseconds; read no further than needed.

    Text and bytes are cut before they are read. For any value but these and small JSON values the time is unknown, and
    it counts as large: its conversion to JSON runs its own code.
    """
    if isinstance(value, str | bytes | bytearray):
        return not isinstance(value, str) and file_type(value[:16]) is not None
    if isinstance(value, ToolOutput):
        return bool(value.attachments)
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


def _output(text: str, limit: int) -> ToolOutput:
    return ToolOutput(*truncate(text, limit))


def _reject_parts(value: object) -> None:
    """Raise `ToolError` for a `TurnChange`, an iterator or a file in an object.

    They are looked for at any depth of containers, data classes, models and partial functions. An iterator, for example
    an open file, may never end, and reading it may have effects.
    """
    seen, unread = set[int](), [value]
    while unread:
        item: Any = unread.pop()
        place = "" if item is value else f" in a {type(value).__name__}"
        if isinstance(item, TurnChange):
            raise ToolError(
                f"Error: the tool returned a value of type {type(item).__name__}{place}, which no model may read. To "
                "hand over, return the agent or a Result with it by itself; else return a text or plain values."
            )
        if isinstance(item, Iterator):
            name = type(cast("object", item)).__name__
            raise ToolError(
                f"Error: the tool returned an iterator of type {name}{place}; it must return a list of its items."
            )
        if id(item) not in seen:
            seen.add(id(item))
            children = [child for child in _children(item) if type(child) not in _PLAIN]
            if type(item) not in _CONTAINERS and any(isinstance(child, Attachment) for child in children):
                name = type(item).__name__
                raise ToolError(
                    f"Error: the tool returned a file in a {name}; return it by itself, in a list or in a dict."
                )
            unread += children


def _children(item: Any) -> Sequence[Any]:
    """Return the items of a container, data class, model or partial function; empty for any other object."""
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


# --- files ------------------------------------------------------------------------------------------------------------


class _ResultFiles:
    """The files of a result, in their order."""

    def __init__(self) -> None:
        self.found: list[Attachment] = []
        self._replaced: dict[int, Any] = {}  # lists and dicts by id, themselves while they are being read

    def replace_in(self, value: Any) -> Any:
        """Return the value with its files replaced by their descriptions, as text if it is a list of these and text."""
        replaced: object = self._replace(value, 0)
        if not (self.found and isinstance(replaced, list)):
            return replaced
        items = cast("list[object]", replaced)
        texts = [item for item in items if isinstance(item, str)]
        return items if len(texts) < len(items) else "\n".join(texts)

    def _replace(self, value: Any, depth: int) -> Any:
        match value:
            case Attachment():
                self.found.append(value)
                return value.description
            case bytes() | bytearray() if (media_type := complete_file_type(value)) is not None:
                name = f"result-{len(self.found) + 1}.{media_type.rpartition('/')[2]}"
                return self._replace(make_attachment(name, bytes(value), media_type), depth)
            case dict() | list() | tuple() if depth < _MAX_DEPTH and type(cast("object", value)) in _CONTAINERS:
                return self._replace_container(cast("Any", value), depth)
            case _:
                return value

    def _replace_container(self, value: Any, depth: int) -> Any:
        key = id(value)
        if key not in self._replaced:
            self._replaced[key] = value
            if isinstance(value, dict):
                members = cast("dict[Any, Any]", value)
                self._replaced[key] = {name: self._replace(item, depth + 1) for name, item in members.items()}
            else:
                self._replaced[key] = [self._replace(item, depth + 1) for item in value]
        return self._replaced[key]


# --- text -------------------------------------------------------------------------------------------------------------


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
    try:
        text = codecs.getincrementaldecoder("utf-8")().decode(head, final=len(head) == size)
    except UnicodeDecodeError as exc:
        raise ToolError(f"Error: the tool returned bytes that are neither text nor a file. {_RETURNABLE}") from exc
    if len(head) == size:
        return truncate(text, limit)
    return f"{text[:limit]}\n[… the value has {size} bytes; the rest is left out …]", True


def _as_json(value: Any) -> str:
    """Return the value as JSON; raise `ToolError` that says what can be returned if there is no JSON of it."""
    unknown = list[str]()

    def plain(item: Any) -> Any:
        """Return what `to_json` writes for a type that it does not know."""
        match item:
            case Mapping():
                return dict(cast("Mapping[Any, Any]", item))
            case Sequence() | Set():
                return list(cast("Iterable[Any]", item))
            case _:
                unknown.append(type(item).__name__)
                raise TypeError

    write = partial(to_json, inf_nan_mode="strings", fallback=plain)
    try:
        try:
            return write(value).decode()
        except PydanticSerializationError as exc:
            if "surrogates not allowed" not in str(exc):
                raise
            return write(_without_surrogates(value)).decode()
    except PydanticSerializationError as exc:
        raise ToolError(f"Error: the tool returned {_problem(value, unknown, str(exc))}. {_RETURNABLE}") from exc


def _without_surrogates(value: Any) -> Any:
    """Return the value with lone surrogates in its text replaced, as in names of files that are not UTF-8."""
    match value:
        case str() | PurePath():
            return clean_text(str(value))
        case dict():
            members = cast("Mapping[Any, Any]", value)
            return {_without_surrogates(key): _without_surrogates(item) for key, item in members.items()}
        case list() | tuple():
            return [_without_surrogates(item) for item in cast("Sequence[Any]", value)]
        case _:
            return value


def _problem(value: object, unknown: Sequence[str], error: str) -> str:
    """Return a clause that says why `value` cannot be written as JSON."""
    name = type(value).__name__
    if unknown:
        place = "" if unknown[0] == name else f" in a {name}"
        return f"a value of type {unknown[0]}{place}, which has no form as text"
    if "Circular reference" in error:
        return f"a {name} that contains itself"
    if "depth exceeded" in error:
        return f"a {name} that is nested too deeply"
    if "utf-8" in error:
        return f"a {name} with bytes or text that are not UTF-8"
    return f"a {name} that cannot be written as JSON ({error.removeprefix('Error serializing to JSON: ')})"

"""The digest that a confirmation and its answer must share.

Its canonical JSON is written in fragments, so that encoding a large value does not block other threads.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import Any, cast

from pydantic_core import to_jsonable_python

__all__ = ["confirm_digest", "jsonable", "write_json"]

_BATCH = 1_000
_SCALARS = frozenset({str, int, float, bool, type(None)})
_encode = json.JSONEncoder(sort_keys=True, ensure_ascii=True, separators=(",", ":")).encode


def confirm_digest(tool: str, arguments: Mapping[str, Any], binding: Mapping[str, Any]) -> str:
    """Return the SHA-256 of a call: the tool, its arguments and all that its assessment bound them to.

    The digest is taken of the compact ASCII JSON of `[tool, arguments, binding]` with sorted keys.
    """
    digest = hashlib.sha256()
    write_json([tool, arguments, binding], lambda text: digest.update(text.encode("ascii")))
    return digest.hexdigest()


def jsonable(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return validated arguments (dates, paths, models, …) as the JSON of events, requests and digests."""
    return to_jsonable_python(dict(arguments), fallback=repr)


def write_json(value: Any, put: Callable[[str], None]) -> None:
    """Call `put` with the fragments of the compact ASCII JSON of `value`, keys sorted, as `json.dumps` writes it.

    Raises what `json.dumps` raises for a value that is not JSON, and `RecursionError` for one that contains itself.

    >>> fragments = []
    >>> write_json({"b": [1, {}], "a": "é"}, fragments.append)
    >>> "".join(fragments)
    '{"a":"\\\\u00e9","b":[1,{}]}'
    """
    if isinstance(value, dict):
        _write_object(cast("dict[Any, Any]", value), put)
    elif isinstance(value, list | tuple):
        _write_array(cast("Sequence[Any]", value), put)
    else:
        put(_encode(value))


def _write_object(value: Mapping[Any, Any], put: Callable[[str], None]) -> None:
    put("{")
    batch: dict[Any, Any] = {}
    comma = ""
    for key, member in sorted(value.items(), key=itemgetter(0)):
        is_scalar = type(member) in _SCALARS
        if batch and (not is_scalar or len(batch) == _BATCH):
            put(comma + _encode(batch)[1:-1])
            comma, batch = ",", {}
        if is_scalar:
            batch[key] = member
        else:
            put(f"{comma}{_encode({key: 0})[1:-2]}")
            write_json(member, put)
            comma = ","
    put((comma + _encode(batch)[1:-1] if batch else "") + "}")


def _write_array(value: Sequence[Any], put: Callable[[str], None]) -> None:
    put("[")
    batch: list[Any] = []
    comma = ""
    for member in value:
        is_scalar = type(member) in _SCALARS
        if batch and (not is_scalar or len(batch) == _BATCH):
            put(comma + _encode(batch)[1:-1])
            comma, batch = ",", []
        if is_scalar:
            batch.append(member)
        else:
            put(comma)
            write_json(member, put)
            comma = ","
    put((comma + _encode(batch)[1:-1] if batch else "") + "]")

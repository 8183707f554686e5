"""Request bodies: read within a limit, parsed without surprises, checked against a schema."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Sequence
from typing import Any, TypeVar, cast

from pydantic import BaseModel, ConfigDict, ValidationError
from starlette.requests import ClientDisconnect, Request

from agenticx.logs import get_logger
from agenticx.messages import clean_text
from studio.problems import Problem

__all__ = ["BODY_BYTES", "Body", "read_body"]

BODY_BYTES = 4 * 1024 * 1024
_DEPTH = 32
_SECONDS = 30.0

_log = get_logger(__name__)


class Body(BaseModel):
    """A request's schema: nothing is coerced, nothing unknown is let through."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


B = TypeVar("B", bound=Body)


async def read_body(request: Request, schema: type[B], *, limit: int = BODY_BYTES) -> B:
    """The request's body, of at most `limit` bytes, as `schema`; no body at all counts as `{}`.

    Raises `Problem`: 415 not JSON by its type, 413 too large, 408 too slow, 400 not JSON by its content (NaN,
    duplicate keys and nesting beyond 32 levels included), 422 not of this schema.
    """
    _check_type(request)
    raw = await _read(request, limit)
    value: Any = _parse(raw) if raw else {}
    try:
        return schema.model_validate(value)
    except ValidationError as exc:
        _log.info("a body broke its schema", schema=schema.__name__, error=str(exc))
        raise _broken(exc, schema) from exc


def _check_type(request: Request) -> None:
    sent = request.headers.getlist("content-type")
    if not sent and _empty(request):
        return
    media_type, _, parameters = ";".join(sent).partition(";")
    charset = parameters.lower().replace('"', "").replace(" ", "")
    if len(sent) != 1 or media_type.strip().lower() != "application/json" or charset not in ("", "charset=utf-8"):
        raise Problem(
            415, "not_json", "Send the body as JSON in UTF-8, with the header Content-Type: application/json."
        )


def _empty(request: Request) -> bool:
    return request.headers.get("content-length", "0") == "0" and "transfer-encoding" not in request.headers


async def _read(request: Request, limit: int) -> bytes:
    too_large = Problem(413, "too_large", f"The body is larger than {limit} bytes, the most that is read.")
    if int(request.headers.get("content-length", "0")) > limit:
        raise too_large
    body = bytearray()
    try:
        async with asyncio.timeout(_SECONDS):
            async for piece in request.stream():
                body += piece
                if len(body) > limit:
                    raise too_large
    except TimeoutError:
        raise Problem(408, "too_slow", f"The body did not arrive within {_SECONDS:g} seconds.") from None
    except ClientDisconnect:
        raise Problem(400, "incomplete", "The connection ended before the body did.") from None
    return bytes(body)


# --- content ----------------------------------------------------------------------------------------------------------


def _parse(raw: bytes) -> Any:
    try:
        text = raw.decode("utf-8")
        value = json.loads(
            text, object_pairs_hook=_object, parse_float=_finite, parse_constant=_finite, parse_int=_whole
        )
        return _clean(value, _DEPTH)
    except UnicodeDecodeError:
        raise _malformed("it is not UTF-8") from None
    except json.JSONDecodeError as exc:
        raise _malformed(f"{exc.msg} at line {exc.lineno}, column {exc.colno}") from None
    except (ValueError, RecursionError) as exc:
        raise _malformed(str(exc) if isinstance(exc, ValueError) else "it is nested too deep") from None


def _malformed(reason: str) -> Problem:
    return Problem(400, "malformed_json", f"The body is no JSON that can be used: {reason}.")


def _object(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        names = [name for name, _ in pairs]
        double = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the key {double!r} stands twice in one object")
    return members


def _finite(literal: str) -> float:
    number = float(literal)
    if not math.isfinite(number):
        raise ValueError(f"{literal[:40]} is not a finite number")
    return number


def _whole(literal: str) -> int:
    if len(literal) > 100:
        raise ValueError("a number has more than 100 digits")
    return int(literal)


def _clean(value: Any, depth: int) -> Any:
    """`value` without lone surrogates; raises ValueError when it is nested deeper than `depth`."""
    if isinstance(value, str):
        return clean_text(value)
    if not isinstance(value, dict | list):
        return value
    if depth == 0:
        raise ValueError(f"it is nested deeper than {_DEPTH} levels")
    if isinstance(value, list):
        return [_clean(inner, depth - 1) for inner in cast("list[Any]", value)]
    return {clean_text(name): _clean(inner, depth - 1) for name, inner in cast("dict[str, Any]", value).items()}


# --- schema -----------------------------------------------------------------------------------------------------------


def _broken(exc: ValidationError, schema: type[Body]) -> Problem:
    """The first thing that is wrong, as a sentence; values are not repeated."""
    error = exc.errors(include_url=False, include_input=False, include_context=False)[0]
    path = ".".join(str(part) for part in error["loc"]) or "body"
    match error["type"]:
        case "missing":
            sentence = f"{path!r} is required."
        case "extra_forbidden":
            sentence = f"{path!r} is unknown; known are: {', '.join(schema.model_fields) or 'no fields at all'}."
        case _:
            reason = error["msg"].removeprefix("Value error, ").removeprefix("Input should be ")
            sentence = f"{path!r} must be {reason}." if error["msg"].startswith("Input") else f"{path!r}: {reason}."
    return Problem(422, "invalid_body", sentence, field=path)

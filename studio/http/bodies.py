"""Request bodies: read within size and time limits, parsed as strict JSON, validated by a schema."""

from __future__ import annotations

import asyncio
import re
from codecs import getincrementaldecoder
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, ValidationError
from starlette.requests import ClientDisconnect, Request

from agenticx.logs import get_logger
from agenticx.similar_names import similar_name
from agenticx.strict_json import read_json
from agenticx.threads import run_sized
from studio.http.problems import Problem

__all__ = ["LARGE_BODY_BYTES", "MAX_TEXT_CHARS", "RequestBody", "read_body"]

LARGE_BODY_BYTES = 4 * 1024 * 1024
"""The limit of bodies with a text of the user."""
MAX_TEXT_CHARS = 4_000_000
"""The limit of that text."""
_MAX_DEPTH = 32
_MAX_ENTRIES = 1000
_MAX_VALUES = 10_000
_MAX_DIGITS = 100
_MAX_SHOWN_CHARS = 80  # of a field name sent by a client
_READ_SECONDS = 30.0
_DECODE_BYTES = 1024 * 1024
_JSON_TYPE = re.compile(r"(?:application|text)/(?:x-|[!#$&^\w.+-]+\+)?json", re.ASCII | re.IGNORECASE)
"""The media types of JSON; a browser sends none of them to another origin without asking there first (CORS)."""
_CHARSET = re.compile(r';\s*charset\s*=\s*("[^"]*"|[^;\s]*)', re.IGNORECASE)
_CHARSETS = {"utf-8": "utf-8-sig", "utf8": "utf-8-sig", "us-ascii": "ascii", "ascii": "ascii"}

_log = get_logger(__name__)


class RequestBody(BaseModel):
    """A request body's schema: no value is coerced, unknown fields are refused, at most `max_bytes` are read."""

    max_bytes: ClassVar[int] = 64 * 1024

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    @classmethod
    def is_required(cls) -> bool:
        """Return True if a request must have a body, because one of the fields is required."""
        return any(field.is_required() for field in cls.model_fields.values())


B = TypeVar("B", bound=RequestBody)


async def read_body(request: Request, schema: type[B]) -> B:
    """Read, parse and validate the request's body; no body counts as `{}` unless the schema requires a field.

    Raises `Problem`: 415 encoded or not JSON by its type, 413 too large, 408 too slow, 400 not JSON by its content
    (NaN, duplicate keys, nesting beyond 32 levels, more than 1000 entries in one object or list and more than 10,000
    values in all included), 422 not of this schema.
    """
    required = schema.is_required()
    expected = required or _declares_body(request)
    encoding = _check_type(request) if expected else "utf-8-sig"
    raw = await _read(request, schema.max_bytes)
    if raw and not expected:  # sent in chunks
        encoding = _check_type(request)
    content = raw if raw or required else b"{}"
    try:
        return await run_sized(_parse, content, encoding, schema, size=len(raw), name="agx body")
    except ValidationError as exc:
        problem = _validation_problem(exc, schema)
        _log.info(
            "invalid request body",
            method=request.method,
            path=request.scope["path"],
            field=problem.field,
            problem=problem.detail,
        )
        raise problem from None


def _declares_body(request: Request) -> bool:
    return request.headers.get("content-length", "0") != "0"


def _check_type(request: Request) -> str:
    """Return the encoding that the header names; raise `Problem` if it cannot be read."""
    encodings = ", ".join(request.headers.getlist("content-encoding")).lower()
    if encodings.strip() not in ("", "identity"):
        sentence = "Send the body as it is, without a Content-Encoding such as gzip."
        raise Problem("encoded_body", sentence, headers={"Accept-Encoding": "identity"})
    sent = request.headers.getlist("content-type")
    if len(sent) != 1 or not _JSON_TYPE.fullmatch(sent[0].partition(";")[0].strip()):
        raise Problem("not_json", "Send the body as JSON in UTF-8, with the header Content-Type: application/json.")
    encoding = None
    for charset in _CHARSET.findall(sent[0]):
        named = _CHARSETS.get(charset.strip('"').lower().replace("_", "-"))
        if named is None or encoding not in (None, named):
            sentence = f"The charset {charset[:_MAX_SHOWN_CHARS]} cannot be read; send the body as JSON in UTF-8."
            raise Problem("not_json", sentence)
        encoding = named
    return encoding or "utf-8-sig"


async def _read(request: Request, max_bytes: int) -> bytes:
    if int(request.headers.get("content-length", "0")) > max_bytes:
        raise _too_large(max_bytes)
    body = bytearray()
    try:
        async with asyncio.timeout(_READ_SECONDS):
            async for chunk in request.stream():
                body += chunk
                if len(body) > max_bytes:
                    raise _too_large(max_bytes)
    except TimeoutError:
        raise Problem("too_slow", f"The body did not arrive within {_READ_SECONDS:g} seconds.") from None
    except ClientDisconnect:
        raise Problem("incomplete", "The connection was closed before the body was complete.") from None
    return bytes(body)


def _too_large(max_bytes: int) -> Problem:
    return Problem("too_large", f"The body is larger than {max_bytes} bytes, the limit of this route.")


# --- content ----------------------------------------------------------------------------------------------------------


def _parse(raw: bytes, encoding: str, schema: type[B]) -> B:
    try:
        value = read_json(
            _decode(raw, encoding),
            max_depth=_MAX_DEPTH,
            max_entries=_MAX_ENTRIES,
            max_digits=_MAX_DIGITS,
            max_values=_MAX_VALUES,
        )
    except ValueError as exc:
        raise Problem("malformed_json", f"The body is not acceptable JSON: {exc}.") from None
    return schema.model_validate(value)


def _decode(raw: bytes, encoding: str) -> str:
    """Decode UTF-8, with a byte order mark or without one, or ASCII.

    In chunks of 1 MiB: a decode call holds the GIL, and other threads run between two calls.
    """
    decoder = getincrementaldecoder(encoding)()
    try:
        texts = [decoder.decode(raw[start : start + _DECODE_BYTES]) for start in range(0, len(raw), _DECODE_BYTES)]
        return "".join([*texts, decoder.decode(b"", final=True)])
    except UnicodeDecodeError:
        raise ValueError(
            "it is not in ASCII, the charset of its Content-Type" if encoding == "ascii" else "it is not UTF-8"
        ) from None


# --- schema -----------------------------------------------------------------------------------------------------------


def _validation_problem(exc: ValidationError, schema: type[RequestBody]) -> Problem:
    """Return the first validation error as a problem with a sentence; it does not repeat submitted values."""
    error = exc.errors(include_url=False, include_input=False)[0]
    path = ".".join(str(part) for part in error["loc"])[:_MAX_SHOWN_CHARS] or "body"
    limits: dict[str, Any] = error.get("ctx", {})
    match error["type"]:
        case "model_type" | "dict_type":
            sentence = f"{'The body' if path == 'body' else repr(path)} must be a JSON object."
        case "missing":
            sentence = f"{path!r} is required."
        case "extra_forbidden":
            sentence = f"Unknown field {path!r}; {_known_fields(schema, error['loc'])}."
        case "value_error":
            sentence = f"{path!r}: {error['msg'].removeprefix('Value error, ')}."
        case "string_pattern_mismatch":
            sentence = f"{path!r} {_PATTERNS[limits['pattern']]}."
        case kind:
            sentence = f"{path!r} {_REQUIREMENTS.get(kind, 'is not valid').format_map(limits)}."
    return Problem("invalid_body", sentence, field=path)


def _known_fields(schema: type[BaseModel], loc: Sequence[int | str]) -> str:
    """Return the fields of the object in which the unknown field at `loc` is, with the one most like it."""
    *outer, unknown = loc
    for part in outer:
        if isinstance(part, str) and (field := schema.model_fields.get(part)) is not None:
            schema = next(_models_in(field.annotation), schema)
    within = ".".join(map(str, outer))
    known = f"known fields{f' of {within!r}' if within else ''}: {', '.join(schema.model_fields) or 'none'}"
    meant = similar_name(str(unknown), schema.model_fields)
    return known if meant is None else f"did you mean {meant!r}? The {known}"


def _models_in(annotation: object) -> Iterator[type[BaseModel]]:
    """Yield the models of which a type is made, such as that of the items of a list."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from _models_in(part)


_REQUIREMENTS = {
    "bool_type": "must be true or false",
    "float_type": "must be a number",
    "int_type": "must be a whole number",
    "list_type": "must be a list",
    "literal_error": "must be {expected}",
    "string_too_long": "must have at most {max_length} characters",
    "string_too_short": "must not be empty",  # no text of the API has another minimum than one character
    "string_type": "must be a text",
    "too_long": "must have at most {max_length} items",
}
"""The sentences for most other errors of pydantic that the bodies of the API can have."""
_PATTERNS = {
    r"\S": "must not be blank",
    "^[0-9a-f]{64}$": "must have 64 hexadecimal digits, in lower case, as the list of files has it",
}
"""The sentences for texts that do not match the pattern of a field."""

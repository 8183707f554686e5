"""Error messages for a row of models.toml; they say what is expected and never repeat a key."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from agenticx.llms.wires.chat_dialect import ChatDialect
from agenticx.llms.wrappers.pricing import LongInputRates, Price

__all__ = ["row_error_messages"]

_TABLE_FIELDS: Mapping[tuple[int | str, ...], Iterable[str]] = {
    ("dialect",): [field.name for field in fields(ChatDialect)],
    ("price",): Price.model_fields,
    ("price", "over"): LongInputRates.model_fields,
}
"""The allowed fields of the tables within a row."""

_EXPECTED_KEY_LIST = 'a list of names of variables that have a key, such as ["ACME_API_KEY"]'


def row_error_messages(kind: type[BaseModel], invalid: ValidationError) -> list[str]:
    """Return a message for each error of a row that was validated as `kind`."""
    return [_message(kind, error) for error in invalid.errors(include_url=False)]


def _message(kind: type[BaseModel], error: ErrorDetails) -> str:
    location = error["loc"]
    name = ".".join(str(part) for part in location if part != "[key]")
    if error["type"] in ("extra_forbidden", "unexpected_keyword_argument"):
        return f"unknown field {name!r}; {_allowed_fields(kind, location[:-1])}"
    if error["type"] == "missing":
        return f"{name} is missing"
    if location[0] == "keys":
        return f"{'keys' if len(location) == 1 else name} should be {_expected_keys(location)}"
    if location == ("base_url",):
        return (
            f"base_url is {error['input']!r}; it needs http:// or https:// and a host, as in http://127.0.0.1:8080/v1"
        )
    return f"{name} is {error['input']!r}; {error['msg'][:1].lower()}{error['msg'][1:]}"


def _allowed_fields(kind: type[BaseModel], table: tuple[int | str, ...]) -> str:
    if table in _TABLE_FIELDS:
        return f"{'.'.join(map(str, table))} may have {', '.join(_TABLE_FIELDS[table])}"
    return f"a row may have {', '.join(field for field in kind.model_fields if field != 'name')}"


def _expected_keys(location: tuple[int | str, ...]) -> str:
    """Return the expected value of `keys` or of an item; the actual one may be a key and is never repeated."""
    if len(location) == 1:
        return _EXPECTED_KEY_LIST
    return "the name of a variable that has the key, such as ACME_API_KEY, not the key itself"

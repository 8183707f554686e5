"""What is wrong with a row of models.toml, in sentences that say what would be right and never repeat a key."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from agenticx.llms.chat_dialect import ChatDialect
from agenticx.llms.pricing import LongRates, Price

__all__ = ["row_mistakes"]

_TABLES: Mapping[tuple[int | str, ...], Iterable[str]] = {
    ("dialect",): [field.name for field in fields(ChatDialect)],
    ("price",): Price.model_fields,
    ("price", "over"): LongRates.model_fields,
}
"""Which fields the tables within a row may have."""

_A_LIST_OF_VARIABLES = 'a list of names of variables that have a key, such as ["ACME_API_KEY"]'


def row_mistakes(kind: type[BaseModel], found: ValidationError) -> list[str]:
    """A sentence for each mistake in a row that should be one of `kind`."""
    return [_sentence(kind, error) for error in found.errors(include_url=False)]


def _sentence(kind: type[BaseModel], error: ErrorDetails) -> str:
    place = error["loc"]
    name = ".".join(str(part) for part in place if part != "[key]")
    if error["type"] in ("extra_forbidden", "unexpected_keyword_argument"):
        return f"{name!r} means nothing here; {_may_have(kind, place[:-1])}"
    if error["type"] == "missing":
        return f"{name} is missing"
    if place[0] == "keys":
        return f"{'keys' if len(place) == 1 else name} should be {_expected_of(place)}"
    if place == ("base_url",):
        return (
            f"base_url is {error['input']!r}; it needs http:// or https:// and a host, as in http://127.0.0.1:8080/v1"
        )
    return f"{name} is {error['input']!r}; {error['msg'][:1].lower()}{error['msg'][1:]}"


def _may_have(kind: type[BaseModel], table: tuple[int | str, ...]) -> str:
    if table in _TABLES:
        return f"{'.'.join(map(str, table))} may have {', '.join(_TABLES[table])}"
    return f"a row may have {', '.join(field for field in kind.model_fields if field != 'name')}"


def _expected_of(place: tuple[int | str, ...]) -> str:
    """What is written there is not repeated: it may be the key itself."""
    if len(place) == 1:
        return _A_LIST_OF_VARIABLES
    return "the name of a variable that has the key, such as ACME_API_KEY, not the key itself"

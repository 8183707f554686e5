"""Texts for `help()`: the events with the keys of their data, made from the declared payloads."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from inspect import cleandoc
from textwrap import wrap
from typing import Annotated, Any, NamedTuple, NotRequired, get_args, get_origin, get_type_hints

__all__ = ["describe_event", "event_table"]

_WIDTH = 100
_NAME_WIDTH = 20
_INDENTED: dict[str, Any] = {"width": _WIDTH, "initial_indent": "    ", "subsequent_indent": "    "}
_MODULE = re.compile(r"\b(?:\w+\.)+(?=\w)")


def event_table(payloads: Mapping[str, type]) -> str:
    """Return a table of all events, given by type with the class of their data, and of the objects in that data."""
    nested = dict(sorted(_nested(payloads.values()).items()))
    return "\n".join(
        [
            "The events of a turn, by type, with the keys of their `data`; keys with a ? may be missing.",
            "",
            'Compare `event.type` with a literal string, as in `if event.type == "token"`: type checkers then know',
            "the keys. Every event also has `agent_id` and `turn_id`.",
            "",
            *(line for type_, payload in payloads.items() for line in _row(type_, payload)),
            "",
            "The objects in them:",
            "",
            *(line for name, payload in nested.items() for line in _row(name, payload)),
        ]
    )


def describe_event(type_: str, payload: type) -> str:
    """Return the description of one event: its keys, and what the declaration of its data says of them."""
    lines = [
        f"The event `{type_}`, with these keys of its `data`; those with a ? may be missing:",
        "",
        *(line for key in _keys(payload) for line in (key.shown, *wrap(key.description, **_INDENTED))),
    ]
    said = payload.__doc__ or ""
    return "\n".join([*lines, "", cleandoc(said)] if said and not said.startswith("dict(") else lines)


class _Key(NamedTuple):
    """A key of the data of an event, with its type, and its description."""

    shown: str
    description: str


def _row(name: str, payload: type) -> Iterator[str]:
    text = ", ".join(key.shown for key in _keys(payload))
    first, *rest = wrap(text, _WIDTH - _NAME_WIDTH, break_on_hyphens=False) or [""]
    yield f"{name:<{_NAME_WIDTH - 1}} {first}"
    yield from (" " * _NAME_WIDTH + line for line in rest)


def _keys(payload: type) -> Iterator[_Key]:
    for key, hint in get_type_hints(payload, include_extras=True).items():
        optional, description = not getattr(payload, "__total__", True), ""
        if get_origin(hint) is NotRequired:
            hint, optional = get_args(hint)[0], True
        if get_origin(hint) is Annotated:
            hint, field = get_args(hint)[:2]
            description = field.description or ""
        shown = hint.__name__ if isinstance(hint, type) and not get_args(hint) else _MODULE.sub("", str(hint))
        yield _Key(f"{key}{'?' if optional else ''}: {shown}", description)


def _nested(payloads: Any) -> dict[str, type]:
    """Return the typed dicts in the values of payloads, by name."""
    found: dict[str, type] = {}
    waiting = [hint for payload in payloads for hint in get_type_hints(payload).values()]
    while waiting:
        hint = waiting.pop()
        if isinstance(hint, type) and hasattr(hint, "__total__") and hint.__name__ not in found:
            found[hint.__name__] = hint
            waiting += get_type_hints(hint).values()
        waiting += get_args(hint)
    return found

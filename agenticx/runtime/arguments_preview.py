"""The arguments of a call as a short text without secrets."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import cast

from agenticx.logs import HIDDEN, excerpt, hidden_members, is_secret_field
from agenticx.secret_detection import is_secret_name, is_secret_value

__all__ = ["preview_arguments"]

_LONGEST_NAME = 200


def preview_arguments(arguments: object, limit: int) -> str:
    """Return the JSON of `arguments` without secrets, cut after about `limit` characters.

    The cost is the same for a megabyte as for a line. Arguments that are a text are no JSON: they are hidden as a whole
    if they name a secret.
    """
    if isinstance(arguments, str):
        return _quote(arguments, limit, hidden=any(map(_is_secret, _NAMES.findall(arguments[: 2 * limit]))))
    fragments, length = list[str](), 0
    for fragment in _json_fragments(arguments, limit):
        fragments.append(fragment)
        length += len(fragment)
        if length > limit:
            break
    text = "".join(fragments)
    return text if length <= limit else f"{text[:limit]}…"


_NAMES = re.compile(r"(?<![\w-])[\w-]++(?=[\"']?\s*[:=])")
"""Names before a colon or an equals sign."""


def _json_fragments(value: object, limit: int) -> Iterator[str]:
    """Yield JSON text from left to right, generated only as far as it is consumed."""
    match value:
        case dict():
            yield "{"
            members = cast("dict[str, object]", value)
            hidden = hidden_members(members, _is_secret)
            for index, (name, inner) in enumerate(members.items()):
                yield f"{', ' if index else ''}{_quote(name, limit)}: "
                if hidden(name):
                    yield f'"{HIDDEN}"'
                else:
                    yield from _json_fragments(inner, limit)
            yield "}"
        case list():
            yield "["
            before: object = None
            for index, inner in enumerate(cast("list[object]", value)):
                yield ", " if index else ""
                if isinstance(inner, str) and _names_secret(before):
                    yield f'"{HIDDEN}"'
                else:
                    yield from _json_fragments(inner, limit)
                before = inner
            yield "]"
        case str():
            yield _quote(value, limit)
        case _:
            yield json.dumps(value)


def _is_secret(name: object) -> bool:
    """Return whether an argument of that name is hidden; in doubt it is."""
    return isinstance(name, str) and (len(name) > _LONGEST_NAME or is_secret_field(name) or is_secret_name(name))


def _names_secret(value: object) -> bool:
    """Return whether a text consists of a secret's name, as in `["--password", "…"]`."""
    return isinstance(value, str) and _NAME.fullmatch(value) is not None and _is_secret(value)


_NAME = re.compile(r"[\w.-]{1,64}")


def _quote(text: str, limit: int, *, hidden: bool = False) -> str:
    """Return a string in quotes; hide all of it if it looks like a secret after known secrets were removed."""
    beginning = excerpt(text, 2 * limit)
    if hidden or is_secret_value(beginning.replace(f"={HIDDEN}", "=hidden").replace(HIDDEN, "")):
        return f'"{HIDDEN}"'
    return json.dumps(beginning, ensure_ascii=False)

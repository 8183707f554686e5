"""Conversion of Gemini's streamed arguments (values with JSON paths) to growing JSON text.

The values arrive in the order of the object's text, so text is only appended. A value out of that order (a
path that returns, a skipped index) leaves the text incomplete: it never parses, and the call is answered as one with
malformed arguments instead of being run on a guess.
"""

from __future__ import annotations

import json
import re
from itertools import pairwise, takewhile
from typing import Any, cast

from agenticx.llms.json_values import text_in

__all__ = ["ArgumentsWriter"]

_MAX_DEPTH = 100
_STEP = re.compile(r"""\.([^.\[\]]+)|\[(\d{1,9})\]|\[(['"])(.*?)\3\]""", re.DOTALL)
_VALUES = ("stringValue", "numberValue", "boolValue", "nullValue")

_Step = str | int


class ArgumentsWriter:
    """A writer of one object; its text begins with the brace in `BEGIN`.

    >>> writer = ArgumentsWriter()
    >>> writer.add({"jsonPath": "$.to.name", "stringValue": "An", "willContinue": True})
    '"to":{"name":"An'
    >>> writer.add({"jsonPath": "$.to.name", "stringValue": "na"}), writer.add({"jsonPath": "$.n", "numberValue": 1})
    ('na', '"},"n":1')
    >>> writer.close()
    '}'
    """

    BEGIN = "{"

    def __init__(self) -> None:
        self._path: list[_Step] = []
        self._taken_steps: list[set[_Step]] = []  # the steps taken in each open container
        self._in_string = False
        self._broken = False

    def add(self, fragment: dict[str, Any]) -> str:
        """Return the text that one element of `partialArgs` adds; one without a value adds nothing."""
        name = next((name for name in _VALUES if name in fragment), None)
        if name is None or self._broken:
            return ""
        path, value = _parse_path(text_in(fragment, "jsonPath")), None if name == "nullValue" else fragment[name]
        if path is not None and path == self._path and self._in_string and isinstance(value, str):
            return _quoted(value)[1:-1]
        if path is None or (prefix := self._move_to(path)) is None:
            self._broken = True
            return ""
        self._in_string = isinstance(value, str)
        return prefix + (_quoted(value)[:-1] if isinstance(value, str) else json.dumps(value))

    def add_object(self, arguments: dict[str, Any]) -> str:
        """Return the text of arguments that arrive whole after all."""
        if self._path or self._broken:
            self._broken = True
            return ""
        text = json.dumps(arguments, ensure_ascii=False, separators=(",", ":"))[1:-1]
        self._path = cast("list[_Step]", [*arguments][-1:])
        self._taken_steps = [set(arguments)]
        return text

    def close(self) -> str:
        """Return the text that completes the object, `""` if it cannot be completed."""
        return "" if self._broken else self._close_to(0) + "}"

    def _move_to(self, path: list[_Step]) -> str | None:
        """Return the text between the last value and one at `path`, None if `path` is out of order."""
        current, shared = self._path, _shared_length(self._path, path)
        new_steps = path[shared + 1 :]
        if (
            shared == len(path)
            or (current and shared == len(current))
            or any(_is_nonzero_index(step) for step in new_steps)
        ):
            return None
        taken_steps = self._taken_steps[: shared + 1] or [set[_Step]()]
        if current and not _may_follow(path[shared], current[shared], taken_steps[shared]):
            return None
        closing = self._close_to(shared + 1) + "," if current else ""
        taken_steps[shared].add(path[shared])
        self._taken_steps = [*taken_steps, *({step} for step in new_steps)]
        self._path = path
        opening = (
            _key_text(outer) + ("[" if isinstance(inner, int) else "{") for outer, inner in pairwise(path[shared:])
        )
        return closing + "".join(opening) + _key_text(path[-1])

    def _close_to(self, depth: int) -> str:
        """Return the text that closes an open string and the containers deeper than `depth` steps."""
        ends = ("]" if isinstance(step, int) else "}" for step in reversed(self._path[max(depth, 1) :]))
        return ('"' if self._in_string else "") + "".join(ends)


def _parse_path(path: str) -> list[_Step] | None:
    """Return the steps of a path like `$.a[0]['b']`, None if it is invalid."""
    if not path.startswith("$"):
        return None
    steps: list[_Step] = []
    position = 1
    while position < len(path):
        step_match = _STEP.match(path, position)
        if step_match is None or len(steps) == _MAX_DEPTH:
            return None
        name, index, _, quoted = step_match.groups()
        steps.append(int(index) if index is not None else name if name is not None else quoted)
        position = step_match.end()
    return steps if steps and isinstance(steps[0], str) else None


def _shared_length(left: list[_Step], right: list[_Step]) -> int:
    """Return the number of leading steps that two paths share."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(left, right, strict=False)))


def _is_nonzero_index(step: _Step) -> bool:
    """Return whether the step is an index that cannot be the first in a container."""
    return isinstance(step, int) and step > 0


def _may_follow(step: _Step, last: _Step, taken_steps: set[_Step]) -> bool:
    """Return whether `step` may come next in a container whose last step was `last`."""
    if isinstance(step, int):
        return isinstance(last, int) and step == last + 1
    return isinstance(last, str) and step not in taken_steps


def _key_text(step: _Step) -> str:
    return "" if isinstance(step, int) else f"{_quoted(step)}:"


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)

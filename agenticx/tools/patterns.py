"""Patterns whose matching time is linear in the text, so that no pattern and no file can hang a search.

Python's `re` backtracks and holds the interpreter while it does. The engine here is the one that pydantic brings along
for its string patterns (Rust's `regex` crate): no look-around, no back-references, no blow-up.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from pydantic_core import SchemaError, SchemaValidator, core_schema

from agenticx.errors import ToolError

__all__ = ["LinearPattern", "compile_glob", "compile_pattern"]


@dataclass(frozen=True, slots=True)
class LinearPattern:
    """A compiled pattern."""

    validator: SchemaValidator

    def found_in(self, text: str) -> bool:
        """Whether the pattern matches anywhere in `text`, which holds no lone surrogates."""
        return self.validator.isinstance_python(text)


def compile_pattern(pattern: str) -> LinearPattern:
    """Compile a regular expression; raises `ToolError` that says what is wrong with it."""
    try:
        schema = core_schema.str_schema(pattern=pattern, regex_engine="rust-regex", strict=True)
        return LinearPattern(SchemaValidator(schema))
    except SchemaError as exc:
        raise ToolError(f"the pattern {pattern!r} cannot be used: {_reason(str(exc))}") from exc


def _reason(message: str) -> str:
    reason = message.strip().rpartition("\n")[2].strip().removeprefix("error: ").removeprefix("SchemaError: ")
    if "look-around" in reason or "backreferences" in reason:
        return f"{reason}; write it without them"
    return f"{reason}; to find these very characters, set `literal`"


def compile_glob(glob: str) -> LinearPattern:
    """A glob over `/`-separated relative paths: `*`, `?`, `[…]`, and `**` for any number of folders."""
    return compile_pattern(f"^(?s:{_translate(glob)})$")


def _translate(glob: str) -> str:
    parts: list[str] = []
    index = 0
    while index < len(glob):
        if glob.startswith("**/", index) and glob[index - 1 : index] in {"", "/"}:
            parts.append("(?:.*/)?")
            index += 3
        elif glob.startswith("**", index):
            parts.append(".*")
            index += 2
        elif glob[index] == "*":
            parts.append("[^/]*")
            index += 1
        elif glob[index] == "?":
            parts.append("[^/]")
            index += 1
        elif bracket := _BRACKET.match(glob, index):
            listed = _SPECIAL_IN_CLASS.sub(r"\\\g<0>", bracket[2])
            parts.append(f"[^/{listed}]" if bracket[1] else f"[{listed}]")
            index = bracket.end()
        else:
            index += glob[index] == "\\" and index + 1 < len(glob)
            parts.append(re.escape(glob[index]))
            index += 1
    return "".join(parts)


_BRACKET = re.compile(r"\[([!^]?)(\]?[^\]/]*)\]")
_SPECIAL_IN_CLASS = re.compile(r"[\[\]\\&~^]")

r"""Regular expressions and globs with linear matching time, so that no search can hang.

Python's `re` backtracks and holds the interpreter lock meanwhile. The engine used here is Rust's `regex` crate, which
pydantic includes for its string patterns: it has no look-around and no back-references, and its matching time is
linear. It compiles a repetition by expanding it, and a class such as `\w` into all letters of Unicode: `\w{1000}` takes
10 MB and a tenth of a second in which no other thread runs. So a pattern is refused if its expansion has more than a
few thousand characters or a hundred such classes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NamedTuple

from pydantic_core import SchemaError, SchemaValidator, core_schema

from agenticx.errors import ToolError

__all__ = ["LinearPattern", "compile_glob", "compile_pattern"]

_MAX_CHARS = 8_192
_MAX_CLASSES = 100
_MAX_PATH_CHARS = 4_096
_SHOWN_CHARS = 200


@dataclass(frozen=True, slots=True)
class LinearPattern:
    """A compiled pattern with linear matching time."""

    validator: SchemaValidator

    def found_in(self, text: str) -> bool:
        """Return whether the pattern matches anywhere in `text`, which must not hold lone surrogates."""
        return self.validator.isinstance_python(text)


def compile_pattern(pattern: str) -> LinearPattern:
    """Compile a regular expression; raise `ToolError` that states the mistake if it is not accepted."""
    _check_size(pattern)
    try:
        schema = core_schema.str_schema(pattern=pattern, regex_engine="rust-regex", strict=True)
        return LinearPattern(SchemaValidator(schema))
    except SchemaError as exc:
        raise ToolError(f"the pattern {_quoted(pattern)} cannot be used: {_reason(str(exc))}") from exc


def _quoted(pattern: str) -> str:
    return repr(pattern) if len(pattern) <= _SHOWN_CHARS else f"{pattern[:_SHOWN_CHARS]!r}…"


def _check_size(pattern: str) -> None:
    """Raise `ToolError` for a pattern that would take long to compile; runs in time linear in its length."""
    if len(pattern) > _MAX_CHARS:
        raise ToolError(f"the pattern has {len(pattern):,} characters; give one of at most {_MAX_CHARS:,}")
    sums, last = [_Size(0, 0)], _Size(0, 0)
    for token in _TOKEN.finditer(pattern):
        match token.lastgroup:
            case "opened":
                sums.append(_Size(0, 0))
                last = _Size(0, 0)
                continue
            case "closed":
                last = sums.pop() if len(sums) > 1 else _Size(0, 0)
                added = last
            case "times":
                more = max(_count(token["least"]), _count(token["most"]), 1) - 1
                added = _Size(last.characters * more, last.classes * more)
                last = _Size(last.characters + added.characters, last.classes + added.classes)
            case _:
                last = added = _Size(1, 1 if _UNICODE_CLASS.search(token[0]) else 0)
        sums[-1] = _Size(sums[-1].characters + added.characters, sums[-1].classes + added.classes)
    characters, classes = sum(size.characters for size in sums), sum(size.classes for size in sums)
    if characters > _MAX_CHARS or classes > _MAX_CLASSES:
        raise ToolError(
            f"the pattern {_quoted(pattern)} repeats too much: written out, it may have {_MAX_CHARS:,} characters and "
            f"{_MAX_CLASSES} classes such as \\w; use + or * instead of counts, or [a-z] instead of \\w"
        )


class _Size(NamedTuple):
    """The numbers of characters and of Unicode classes in the expansion of a part of a pattern."""

    characters: int
    classes: int


def _count(digits: str | None) -> int:
    return min(int((digits or "0")[:9] or 0), 10 * _MAX_CHARS)


_TOKEN = re.compile(
    r"""(?P<opened>\() | (?P<closed>\)) | (?P<times>\{(?P<least>[0-9]+)(?:,(?P<most>[0-9]*))?\})
    | (?P<class>\[\^?\]?(?:\\.|[^\]\\])*+(?:\]|\Z)) | (?P<escape>\\(?:[pPxuU]\{[^{}]*+\}|.)) | (?P<other>.)""",
    re.VERBOSE | re.DOTALL,
)
_UNICODE_CLASS = re.compile(r"\\[pPwWdDsS]")


def _reason(message: str) -> str:
    reason = message.strip().rpartition("\n")[2].strip().removeprefix("error: ").removeprefix("SchemaError: ")
    if "look-around" in reason or "backreferences" in reason:
        return f"{reason}; write it without them"
    return f"{reason}; to find these very characters, set `literal`"


def compile_glob(glob: str) -> LinearPattern:
    """Compile a glob over `/`-separated relative paths: `*`, `?`, `[…]`, and `**` for any number of folders.

    Raises `ToolError` as `compile_pattern` does, and for a glob longer than any path.
    """
    if len(glob) > _MAX_PATH_CHARS:
        raise ToolError(f"the glob has {len(glob):,} characters; give one of at most {_MAX_PATH_CHARS:,}")
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


_BRACKET = re.compile(r"\[([!^]?)(\]?[^\]/]{0,255})\]")  # at most as long as a file name
_SPECIAL_IN_CLASS = re.compile(r"[\[\]\\&~^]")

"""Removal of the quoting of a shell command, with a mark for each special character that is quoted."""

from __future__ import annotations

import re
from bisect import bisect_left
from dataclasses import dataclass

__all__ = ["QUOTED", "UnquotedText", "remove_quoting"]

QUOTED = "\ue000"
"""Replacement for a quoted character that would be special without its quotes."""

_SPECIAL = re.compile(r"[\s;|&<>()`$=:,\[\]{}*?!~#]")
_CODE = re.compile(
    r"""
      \\\n | \\(?s:.) | \$?'  | \$?" | \$\(|[()`] | \n | (?<![^\s;|&()])\#[^\n]*
    | <<-?[ \t]*(?P<delimiter>['"\\]?[\w.+-]+['"]?)
    | <<< | [^\\$'"()`\n\#<]+ | .
    """,
    re.VERBOSE,
)
_ANSI_C = re.compile(r"(?:[^'\\]|\\.)*", re.DOTALL)
_DOUBLE = re.compile(r"\\\n|\\.|\"|\$\(|`|\$\{\w+\}|\$\w*|[^\\\"$`]+|.", re.DOTALL)


@dataclass(frozen=True, slots=True)
class UnquotedText:
    """A command without its quotes; `is_complete` is True if each quote was closed."""

    text: str
    is_complete: bool


def remove_quoting(command: str) -> UnquotedText:
    """Remove quotes and backslashes; quoted characters that would be special are replaced by `QUOTED`."""
    return _Reader(command).read()


class _Reader:
    """A parser that passes once over a command. `_levels` is the nesting of `(…)`, backquotes and double quotes."""

    def __init__(self, command: str) -> None:
        self._command = command
        self._position = 0
        self._levels: list[str] = []
        self._delimiters: list[str] = []
        self._text: list[str] = []
        self._ends: dict[str, list[int]] | None = None
        self._is_complete = True

    def read(self) -> UnquotedText:
        while self._position < len(self._command):
            if self._levels and self._levels[-1] == '"':
                self._read_double_quoted()
            else:
                self._read_code()
        return UnquotedText("".join(self._text), self._is_complete and '"' not in self._levels)

    def _next(self, pattern: re.Pattern[str]) -> re.Match[str]:
        match = pattern.match(self._command, self._position)
        assert match is not None, "the last alternative of each pattern is any character"
        self._position = match.end()
        return match

    def _read_double_quoted(self) -> None:
        token = self._next(_DOUBLE)[0]
        if token == '"':
            self._levels.pop()
        elif token in {"$(", "`"}:
            self._enter_code(token)
        elif token.startswith("$"):
            self._text.append(token)
        elif token != "\\\n":
            is_escape = len(token) == 2 and token[0] == "\\" and token[1] in '$`"\\'
            self._add_quoted(token[1] if is_escape else token)

    def _read_code(self) -> None:
        match = self._next(_CODE)
        token = match[0]
        if match["delimiter"] is not None:
            self._delimiters.append(match["delimiter"].strip("'\"\\"))
        if token.endswith("'") and token in {"'", "$'"}:
            self._read_single_quoted(token == "$'")
        elif token in {'"', '$"'}:
            self._levels.append('"')
        elif token in {"(", "$(", ")", "`"}:
            self._enter_code(token)
        elif token == "\n":
            self._text.append(token)
            self._read_here_documents()
        elif token.startswith("\\"):
            self._add_quoted(token[1:].removeprefix("\n"))
        else:
            self._text.append(token)

    def _read_single_quoted(self, is_ansi_c: bool) -> None:
        end = self._command.find("'", self._position)
        if is_ansi_c:
            end = self._next_ansi_c_end()
        if end < 0:
            self._is_complete = False
            end = len(self._command)
        self._add_quoted(self._command[self._position : end])
        self._position = end + 1

    def _next_ansi_c_end(self) -> int:
        match = _ANSI_C.match(self._command, self._position)
        end = len(self._command) if match is None else match.end()
        return end if end < len(self._command) else -1

    def _enter_code(self, token: str) -> None:
        self._text.append(token)
        closes = {")": "(", "`": "`"}.get(token)
        if closes is not None and self._levels[-1:] == [closes]:
            self._levels.pop()
        elif token != ")":  # an unmatched `)` ends the pattern of a `case`
            self._levels.append("`" if token == "`" else "(")

    def _read_here_documents(self) -> None:
        """Treat the lines up to the delimiters as quoted text; a `<<` without a delimiter line is a bit shift."""
        for delimiter in self._delimiters:
            ends = self._ends_of_lines().get(delimiter, [])
            index = bisect_left(ends, self._position + len(delimiter))
            if index < len(ends):
                self._add_quoted(self._command[self._position : ends[index]])
                self._text.append("\n")
                self._position = ends[index] + 1
        self._delimiters.clear()

    def _ends_of_lines(self) -> dict[str, list[int]]:
        """Return the end offsets of the lines, by their text without tabs around it."""
        if self._ends is None:
            self._ends = {}
            end = -1
            for line in self._command.split("\n"):
                end += len(line) + 1
                self._ends.setdefault(line.strip("\t"), []).append(end)
        return self._ends

    def _add_quoted(self, text: str) -> None:
        self._text.append(_SPECIAL.sub(QUOTED, text))

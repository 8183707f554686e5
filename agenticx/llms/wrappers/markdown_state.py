"""Markdown state of streamed text: a call may begin only at a line start, outside of code."""

from __future__ import annotations

import re

__all__ = ["MarkdownState"]

_FENCE = re.compile(r"[\s>*+-]*+(?:\d{1,9}[.)]\s++)?(`{3,}+(?=[^`]*\Z)|~{3,}+)")
_BACKTICKS = re.compile(r"`++")
_MAX_INDENT = 3  # a Markdown line with a larger indent is code


class MarkdownState:
    """The Markdown state after the text so far, as far as code is concerned.

    >>> state = MarkdownState()
    >>> state.add("Like this:\\n```\\n"), state.call_may_begin
    (None, False)
    >>> state.add("look()\\n```\\n  "), state.call_may_begin
    (None, True)
    """

    def __init__(self) -> None:
        self._line: list[str] = []
        self._is_blank = True
        self._fence = ""
        self._backticks = 0  # in the run that opened inline code; as many close it, and so does the end of a paragraph

    @property
    def call_may_begin(self) -> bool:
        """True if the next character is the first of its line, after at most 3 spaces, and not in code."""
        return self._is_blank and not self._fence and not self._backticks

    def add(self, text: str) -> None:
        """Add a piece of text."""
        head, newline, rest = text.rpartition("\n")
        if newline:
            for line in "".join([*self._line, head]).split("\n"):
                self._end_line(line)
            self._line.clear()
            self._is_blank = True
        if rest:
            self._line.append(rest)
            self._is_blank = self._is_blank and not rest.strip(" ") and sum(map(len, self._line)) <= _MAX_INDENT

    def end_call(self) -> None:
        """Start a new line after a call, outside of inline code."""
        self._line.clear()
        self._is_blank, self._backticks = True, 0

    def _end_line(self, line: str) -> None:
        if self._fence:
            closing = line.strip(" \t\r>")
            if closing.startswith(self._fence) and not closing.strip(self._fence[0]):
                self._fence = ""
        elif fence := _FENCE.match(line):
            self._fence, self._backticks = fence[1], 0
        elif not line.strip():
            self._backticks = 0
        else:
            for run in _BACKTICKS.findall(line):
                if self._backticks == 0:
                    self._backticks = len(run)
                elif self._backticks == len(run):
                    self._backticks = 0

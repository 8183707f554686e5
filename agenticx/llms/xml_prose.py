"""Where in streamed text a call may stand: at the beginning of a line, outside code fences and backticks."""

from __future__ import annotations

import re

__all__ = ["MarkdownState"]

_FENCE = re.compile(r"[\s>*+-]*+(?:\d{1,9}[.)]\s++)?(`{3,}+(?=[^`]*\Z)|~{3,}+)")
_BACKTICKS = re.compile(r"`++")
_MAX_INDENT = 3  # with more of it a line is code, in Markdown


class MarkdownState:
    """What has been said so far, read as Markdown as far as code goes.

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
        self._backticks = 0  # that opened what is code until as many close it, or the paragraph ends

    @property
    def call_may_begin(self) -> bool:
        """Whether what comes next is the first thing in its line, and no code."""
        return self._is_blank and not self._fence and not self._backticks

    def add(self, text: str) -> None:
        """Text follows."""
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
        """A call stands here: what follows it is a line of its own."""
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

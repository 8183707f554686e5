"""The screen around the prompt of a chat: what is written while it is shown appears above it, and it is drawn again.

Whole lines are printed above the prompt; text without its newline, such as an answer that is being written, is shown as
the first lines of the prompt until it ends or is drawn again.
"""

from __future__ import annotations

import sys
from io import TextIOBase
from typing import Protocol, TextIO, cast

__all__ = ["Prompt", "PromptScreen"]

_MAX_UNFINISHED_CHARS = 1_000
"""The most text without a newline that is drawn again; a longer one gets a newline."""
_ERASE_LINE = "\x1b[K"


class Prompt(Protocol):
    """A prompt at the end of the screen."""

    @property
    def is_shown(self) -> bool:
        """True while the prompt is on the screen and can be drawn again."""
        ...

    def erase(self) -> None:
        """Take the prompt off the screen until the next iteration of the event loop."""
        ...

    def show_unfinished(self, text: str) -> None:
        """Show lines, with colours, before the prompt's own; they replace the last ones."""
        ...


class PromptScreen:
    """Standard output and standard error of a chat at a terminal, and the prompt that is shown there at times."""

    def __init__(self) -> None:
        self.out = _stream(self, sys.stdout)
        self.err = _stream(self, sys.stderr)
        self.prompt: Prompt | None = None
        self._terminal = sys.stdout if sys.stdout.isatty() else sys.stderr
        self._text = ""

    @property
    def has_prompt(self) -> bool:
        """True while a prompt is shown."""
        return self.prompt is not None and self.prompt.is_shown

    def add(self, text: str) -> None:
        """Add text, to be shown by `flush`."""
        self._text += text

    def flush(self, unfinished: str | None = None) -> None:
        """Print the whole lines above the prompt, and show the rest, or `unfinished` instead, in its first lines."""
        prompt = self.prompt
        if prompt is None:
            return
        whole, newline, rest = self._text.rpartition("\n")
        rest = rest.rpartition("\r")[2]
        if len(rest) > _MAX_UNFINISHED_CHARS:
            whole, newline, rest = whole + newline + rest, "\n", ""
        self._text = rest
        if newline:
            prompt.erase()
            self._terminal.write(whole + newline)
            self._terminal.flush()
        prompt.show_unfinished(rest.replace(_ERASE_LINE, "") if unfinished is None else unfinished)


class _PromptStream(TextIOBase):
    """A stream of the terminal whose text goes to the screen while a prompt is shown."""

    def __init__(self, screen: PromptScreen, stream: TextIO) -> None:
        self._screen = screen
        self._stream = stream

    @property
    def encoding(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride] - rich reads it
        return self._stream.encoding

    def write(self, text: str, /) -> int:
        if not self._screen.has_prompt:
            return self._stream.write(text)
        self._screen.add(text)
        return len(text)

    def flush(self) -> None:
        if self._screen.has_prompt:
            self._screen.flush()
        else:
            self._stream.flush()

    def isatty(self) -> bool:
        return self._stream.isatty()

    def fileno(self) -> int:
        return self._stream.fileno()


def _stream(screen: PromptScreen, stream: TextIO) -> TextIO:
    """Return the stream as the screen's, if it is a terminal."""
    return cast("TextIO", _PromptStream(screen, stream)) if stream.isatty() else stream

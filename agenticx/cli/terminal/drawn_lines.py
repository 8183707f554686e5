"""The last lines on the screen: lines that are printed for good, and unfinished ones that are drawn again in place."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from rich.cells import get_character_cell_size
from rich.console import Console
from rich.segment import Segment, Segments

from agenticx.cli.terminal.margin import EMPTY_MARGIN, MARGIN, MIN_COLUMNS
from agenticx.cli.terminal.markdown import Line
from agenticx.cli.terminal.prompt_screen import PromptScreen

__all__ = ["DrawnLines", "LinesAbovePrompt", "LinesAtCursor", "lines_with_margin"]


class DrawnLines(Protocol):
    """The last lines on the screen."""

    def show(self, printed: Sequence[Line], unfinished: Sequence[Line]) -> None:
        """Print lines for good and draw others after them, in place of those that were drawn before.

        Only the end of unfinished lines that are higher than the screen is drawn.
        """
        ...

    def end(self) -> None:
        """End the last line."""
        ...


class LinesAtCursor:
    """Lines at the end of a terminal, of which only what differs from the screen is written.

    Between two calls the cursor is at the end of the last line.
    """

    def __init__(self, console: Console, write: Callable[[str], None]) -> None:
        self._console = console
        self._write = write
        self._last_printed: list[Line] = []  # the line before the drawn ones, empty if there is none
        self._drawn: list[Line] = []

    def show(self, printed: Sequence[Line], unfinished: Sequence[Line]) -> None:
        width, height = max(1, self._console.width - 1), self._console.height
        drawn = [tuple(Segment.adjust_line_length(list(line), width, pad=False)) for line in unfinished]
        drawn = drawn[-max(1, height - 2) :]
        before = [*self._last_printed, *self._drawn]
        after = [*self._last_printed, *printed, *drawn]
        if text := self._changes(before, after):
            self._write(text)
        if not drawn and after:
            self._last_printed, self._drawn = after[-1:], []
        else:
            self._last_printed, self._drawn = [*self._last_printed, *printed][-1:], drawn

    def end(self) -> None:
        if self._last_printed:
            self._write("\n")
            self._last_printed = []

    def _changes(self, before: Sequence[Line], after: Sequence[Line]) -> str:
        """Return the text that turns the lines on the screen into other ones."""
        same = next((at for at, (old, new) in enumerate(zip(before, after, strict=False)) if old != new), len(before))
        same = min(same, len(after))
        if same == len(before):
            return ("\n" if before and after[same:] else "") + _ansi(self._console, after[same:])
        if same == len(before) - 1 and same < len(after) and (rest := _addition(before[same], after[same])) is not None:
            return _ansi(self._console, [rest, *after[same + 1 :]])
        column = 0
        if after and same == len(after):  # what follows is removed: to the end of the last line that stays
            same -= 1
            cells = sum(segment.cell_length for segment in after[same])
            column, after = cells - cells // (self._console.width + 1) * self._console.width, ()
        up = len(before) - 1 - same
        return (f"\x1b[{up}A" if up else "") + f"\x1b[{column + 1}G\x1b[J" + _ansi(self._console, after[same:])


class LinesAbovePrompt:
    """Lines that are printed above a prompt, the unfinished ones being its first lines."""

    def __init__(self, console: Console, screen: PromptScreen) -> None:
        self._console = console
        self._screen = screen

    def show(self, printed: Sequence[Line], unfinished: Sequence[Line]) -> None:
        if printed:
            self._screen.add(f"{_ansi(self._console, printed)}\n")
        self._screen.flush(_ansi(self._console, unfinished[-self._console.height :]))

    def end(self) -> None:
        return


def _ansi(console: Console, lines: Sequence[Line]) -> str:
    """Return lines as text with colours, the last one without a newline."""
    segments = [segment for line in lines for segment in (*line, Segment.line())]
    with console.capture() as captured:
        console.print(Segments(segments[:-1]), soft_wrap=True, end="")
    return captured.get()


def _addition(old: Line, new: Line) -> Line | None:
    """Return what must be appended to a line to turn it into another one, or None."""
    if not old:
        return new
    *same, last = old
    if len(new) < len(old) or list(new[: len(same)]) != same:
        return None
    changed = new[len(same)]
    if changed.style != last.style or not changed.text.startswith(last.text):
        return None
    return (Segment(changed.text[len(last.text) :], changed.style), *new[len(old) :])


def lines_with_margin(lines: Sequence[Line], columns: int) -> list[Line]:
    """Return lines with the margin, broken where they have more than `columns`."""
    return [row for line in lines for row in _rows(line, max(columns, MIN_COLUMNS))]


def _rows(line: Line, columns: int) -> list[Line]:
    if not line:
        return [(Segment(EMPTY_MARGIN),)]
    rows, column = [[Segment(MARGIN)]], len(MARGIN)
    for text, style, _ in line:
        begin = 0
        for at, char in enumerate(text):
            cells = get_character_cell_size(char)
            if column + cells > columns and column > len(MARGIN):
                rows[-1].append(Segment(text[begin:at], style))
                rows.append([Segment(MARGIN)])
                begin, column = at, len(MARGIN)
            column += cells
        rows[-1].append(Segment(text[begin:], style))
    return [tuple(segment for segment in row if segment.text) for row in rows]

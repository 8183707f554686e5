"""A terminal's screen: the text that a program's output leaves on it."""

from __future__ import annotations

import re

__all__ = ["Screen"]

_OUTPUT = re.compile(
    r"\x1b\[(?P<number>\d*)(?P<command>[ACDGJK])|\x1b\[[0-9;?]*[a-zA-Z]|(?P<character>[^\x1b])", re.DOTALL
)


class Screen:
    """The rows of a terminal of unlimited height; an unknown control sequence without parameters fails."""

    def __init__(self, width: int) -> None:
        self._width = width
        self._rows: list[list[str]] = [[]]
        self._row = self._column = 0

    def write(self, text: str) -> None:
        """Process output; wide characters are not supported."""
        end = 0
        for part in _OUTPUT.finditer(text):
            assert part.start() == end, f"not understood: {text[end : part.start() + 10]!r}"
            end = part.end()
            if (character := part["character"]) is not None:
                self._put(character)
            elif part["command"]:
                self._control(part["command"], part["number"])
        assert end == len(text)

    def text(self) -> str:
        """Return the rows without blanks at their ends."""
        return "\n".join("".join(row).rstrip() for row in self._rows)

    def _put(self, character: str) -> None:
        if character == "\n" or (character != "\r" and self._column == self._width):
            self._row, self._column = self._row + 1, 0
            while len(self._rows) <= self._row:
                self._rows.append([])
        if character == "\r":
            self._column = 0
        elif character != "\n":
            row = self._rows[self._row]
            row.extend(" " * (self._column + 1 - len(row)))
            row[self._column] = character
            self._column += 1

    def _control(self, command: str, number: str) -> None:
        match command:
            case "A":
                self._row -= int(number or 1)
                assert self._row >= 0, "the cursor left the screen"
            case "C":
                self._column += int(number or 1)
            case "D":
                self._column -= int(number or 1)
            case "G":
                self._column = int(number or 1) - 1
            case "J":
                del self._rows[self._row][self._column :], self._rows[self._row + 1 :]
            case _:
                del self._rows[self._row][self._column :]

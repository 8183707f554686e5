"""The terminal output of a chat: answers appear as rendered Markdown while their text arrives."""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from time import monotonic

from rich.console import Console
from rich.segment import Segment

from agenticx.cli.terminal.drawn_lines import DrawnLines, LinesAbovePrompt, LinesAtCursor, lines_with_margin
from agenticx.cli.terminal.event_text import EventLike, Note
from agenticx.cli.terminal.margin import MARGIN
from agenticx.cli.terminal.markdown import Line, MarkdownBlock, render_markdown, top_level_blocks
from agenticx.cli.terminal.prompt_screen import PromptScreen
from agenticx.cli.terminal.terminal_output import TerminalOutput
from agenticx.log_colors import visible_console
from agenticx.logs import get_logger
from agenticx.runtime.events import EventType
from agenticx.tools.visible import begun_flag, escape_controls

__all__ = ["MarkdownOutput", "MarkdownStream"]

_log = get_logger(__name__)

_MAX_BLOCK_CHARS = 3_000
_MAX_BLOCK_LINES = 30
"""The largest unfinished block that is drawn again; of a larger one the beginning is printed for good."""
_EXAMINED_CHARS = 4 * _MAX_BLOCK_CHARS
"""The characters that are searched for blocks at once."""
_MAX_FRAME_CHARS = 20_000
"""The most that is rendered in one frame, in about a second at worst; what comes before it is printed as it is."""
_FRAME_SECONDS = 0.05
_DRAWING_SHARE = 0.2
"""The longest share of the time that is spent on drawing."""


@dataclass(frozen=True, slots=True)
class _Cut:
    """A place to divide a text: the part before it is final.

    In the rest, `prefix` replaces the first `replaced` characters; it continues a divided block if `inside_block`.
    """

    offset: int
    replaced: int = 0
    prefix: str = ""
    inside_block: bool = False


class MarkdownStream:
    """One message on the screen: its finished blocks are printed once, the unfinished last one is drawn again."""

    def __init__(self, console: Console, lines: DrawnLines, *, has_margin: bool = False) -> None:
        self._console = console
        self._lines = lines
        self._has_margin = has_margin
        self._source = ""  # of the unfinished block
        self._flag = ""  # the beginning of an emoji, escaped when the rest of its tags is there
        self._needs_gap = False  # whether an empty line comes before the unfinished block

    @property
    def unfinished(self) -> str:
        """The text that is not printed for good yet; all of it is there if `draw` or `finish` fails."""
        return self._source + self._flag

    def feed(self, text: str) -> None:
        """Add text without drawing it."""
        text = self._flag + text
        at = begun_flag(text)
        self._source, self._flag = self._source + escape_controls(text[:at]), text[at:]

    def draw(self) -> None:
        """Print what is finished and draw the rest."""
        with self._restored_on_failure():
            printed = self._take_excess()
            while cuts := _find_cuts(self._source):
                offset = 0
                for cut in cuts:
                    printed += self._take(replace(cut, offset=cut.offset - offset))
                    offset = cut.offset
            self._show(printed, self._with_gap(self._source))

    def _show(self, printed: list[Line], unfinished: list[Line]) -> None:
        if self._has_margin:
            columns = self._console.width - 1
            printed, unfinished = lines_with_margin(printed, columns), lines_with_margin(unfinished, columns)
        self._lines.show(printed, unfinished)

    def hold_word(self) -> str:
        """Remove the unfinished last word from the text and return it."""
        self._end_flag()
        at = max(self._source.rfind(" "), self._source.rfind("\n")) + 1
        self._source, word = self._source[:at], self._source[at:]
        return word

    def finish(self) -> str:
        """Print all of the text and end its last line; return the line that reopens a fence it ended in."""
        self._end_flag()
        self.draw()
        block = _last_block(self._source)
        is_open = block is not None and _is_open_fence(block, self._source)
        with self._restored_on_failure():
            self._show(self._take(_Cut(len(self._source))), [])
        self._lines.end()
        return f"{block.markup}{block.info}\n" if block is not None and is_open else ""

    def _end_flag(self) -> None:
        self._source, self._flag = self._source + escape_controls(self._flag), ""

    @contextmanager
    def _restored_on_failure(self) -> Generator[None]:
        """Restore the unfinished text if the block fails: what was taken from it may not have been printed."""
        source = self._source
        try:
            yield
        except Exception:
            self._source = source
            raise

    def _take(self, cut: _Cut) -> list[Line]:
        """Remove what comes before the cut, and return its lines."""
        lines = self._with_gap(self._source[: cut.offset])
        self._source = cut.prefix + self._source[cut.offset + cut.replaced :]
        self._needs_gap = not cut.inside_block and (self._needs_gap or bool(lines))
        return lines

    def _take_excess(self) -> list[Line]:
        """Remove the beginning of a text that is too long for one frame, and return it without rendering it."""
        at = self._source.find("\n", max(0, len(self._source) - _MAX_FRAME_CHARS)) + 1
        if len(self._source) <= _MAX_FRAME_CHARS or not at:
            at = max(0, len(self._source) - _MAX_FRAME_CHARS)
        text, self._source = self._source[:at], self._source[at:]
        return _plain_lines(text.removesuffix("\n")) if text else []

    def _with_gap(self, text: str) -> list[Line]:
        """Return the lines of a text, with an empty one before each block if there is something before it."""
        offsets = [_offset_of_line(text, block.first_line) for block in top_level_blocks(text)[1:]]
        lines: list[Line] = []
        for begin, end in pairwise([0, *offsets, len(text)]):
            block = self._render(text[begin:end])
            if block and (lines or self._needs_gap):
                lines.append(())
            lines += block
        return lines

    def _render(self, text: str) -> list[Line]:
        """Return the lines of a block, without empty ones around it."""
        try:
            width = self._console.width - 1 - (len(MARGIN) if self._has_margin else 0)
            lines = render_markdown(text, self._console, max(20, width))
        except RecursionError:  # too deeply nested
            lines = _plain_lines(text)
        while lines and not lines[0]:
            del lines[0]
        while lines and not lines[-1]:
            lines.pop()
        return lines


def _plain_lines(text: str) -> list[Line]:
    return [(Segment(line),) if line else () for line in text.split("\n")]


# --- blocks that are finished -----------------------------------------------------------------------------------------


def _find_cuts(source: str) -> list[_Cut]:
    """Return the places that divide the final part of the text into blocks, the last one being its end.

    Only whole lines count: the rest of the last one may still change its meaning.
    """
    whole = source[: source.rfind("\n", 0, _EXAMINED_CHARS) + 1]
    blocks = top_level_blocks(whole)
    if len(blocks) > 1:
        return [_Cut(_offset_of_line(whole, block.first_line)) for block in blocks[1:]]
    if blocks and (cut := _cut_inside(blocks[0], whole)) is not None:
        return [cut]
    if len(source) <= _MAX_BLOCK_CHARS:
        return []
    at = max(source.rfind("\n", 0, _MAX_BLOCK_CHARS), source.rfind(" ", 0, _MAX_BLOCK_CHARS)) + 1
    return [_Cut(at or _MAX_BLOCK_CHARS, inside_block=True)]


def _cut_inside(block: MarkdownBlock, whole: str) -> _Cut | None:
    """Return the end of the final part of a long list, table or block of code, or None."""
    lines = whole.count("\n") - block.first_line
    if lines <= _MAX_BLOCK_LINES and len(whole) <= _MAX_BLOCK_CHARS:
        return None
    match block.kind:
        case "fence" if lines > 1 and _is_open_fence(block, whole):
            return _Cut(len(whole), prefix=f"{block.markup}{block.info}\n", inside_block=True)
        case "bullet_list" if len(block.item_lines) > 1:
            return _Cut(_offset_of_line(whole, block.item_lines[-1]), inside_block=True)
        case "ordered_list" if len(block.item_lines) > 1:
            return _cut_numbered(block, whole)
        case "table" if lines > 2:
            head = "".join(whole.splitlines(keepends=True)[block.first_line : block.first_line + 2])
            return _Cut(len(whole), prefix=head, inside_block=True)
        case _:
            return None


def _cut_numbered(block: MarkdownBlock, whole: str) -> _Cut:
    """Return the place before the last item; the rest begins with its number, even if the source has another."""
    offset = _offset_of_line(whole, block.item_lines[-1])
    first = re.match(r"\s*(\d{1,9})", whole[_offset_of_line(whole, block.first_line) :])
    marker = re.match(r" {0,3}\d{1,9}", whole[offset:])
    if first is None or marker is None:
        return _Cut(offset, inside_block=True)
    number = str(int(first[1]) + len(block.item_lines) - 1)[:9].rjust(marker.end())
    return _Cut(offset, marker.end(), number, inside_block=True)


def _last_block(source: str) -> MarkdownBlock | None:
    blocks = top_level_blocks(source)
    return blocks[-1] if blocks else None


def _is_open_fence(block: MarkdownBlock, source: str) -> bool:
    if block.kind != "fence":
        return False
    lines = source.splitlines()[block.first_line + 1 : block.end_line]
    return not (lines and (end := lines[-1].strip()).startswith(block.markup) and not end.strip(block.markup[0]))


def _offset_of_line(text: str, number: int) -> int:
    offset = 0
    for _ in range(number):
        offset = text.index("\n", offset) + 1
    return offset


# --- the output -------------------------------------------------------------------------------------------------------


class MarkdownOutput(TerminalOutput):
    """An output whose model text is rendered Markdown; the screen must be a terminal that can move its cursor.

    If rendering a message fails, its unfinished text and the rest of it are written as they are.
    """

    def __init__(self, screen: PromptScreen) -> None:
        super().__init__(screen.out, screen.err)
        self._screen = screen
        self._markdown_console = visible_console(Console(file=sys.stdout, highlight=False))
        self._stream: MarkdownStream | None = None
        self._plain_message = ""  # the id of the last message whose rendering failed
        self._carried = ""  # what the message's text continues with if a note interrupts it
        self._next_frame = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._error: OSError | None = None

    def show(self, event: EventLike) -> None:
        if self._error is not None:
            raise self._error
        if self._stream is not None and (event.type == EventType.STALL or event.data.get("waiting")):
            self._carried = self._stream.hold_word()  # the message continues after the note
        super().show(event)

    def show_note(self, note: Note) -> None:
        self._end_text()
        super().show_note(note)

    def show_log(self, line: str) -> None:
        if self._stream is not None:
            self._carried = self._stream.hold_word()  # the message continues after the line
        super().show_log(line)

    def show_waiting(self, text: str) -> None:
        if self._stream is None:
            super().show_waiting(text)

    def _write_text(self, text: str, message_id: str) -> None:
        if message_id == self._plain_message:
            super()._write_text(text, message_id)
            return
        self._end_progress()
        if self._message_id != message_id:
            self._end_text()
            self._message_id, self._carried = message_id, ""
        text = (self._carried + text).replace("\r\n", "\n")
        self._carried = "\r" if text.endswith("\r") else ""
        text = text.removesuffix("\r")
        if self._stream is None:
            self._end_open_lines()
            self._stream = MarkdownStream(
                self._markdown_console, self._drawn_lines(), has_margin=self._out_margin is not None
            )
        self._stream.feed(text)
        self._draw_or_wait()

    def _drawn_lines(self) -> DrawnLines:
        if self._screen.has_prompt:
            return LinesAbovePrompt(self._markdown_console, self._screen)
        return LinesAtCursor(self._markdown_console, self._write)

    def _draw_or_wait(self) -> None:
        """Draw now if the last frame was long enough ago, else set a timer for it."""
        now = monotonic()
        if now >= self._next_frame:
            self._draw()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._next_frame - now, self._draw_later)

    def _draw_later(self) -> None:
        try:
            self._draw()
        except OSError as exc:  # the terminal was closed
            self._error = exc

    def _draw(self) -> None:
        self._cancel_timer()
        if self._stream is not None:
            began = monotonic()
            try:
                self._stream.draw()
            except OSError:
                raise
            except Exception as exc:
                self._continue_plainly(self._stream, exc)
            ended = monotonic()
            self._next_frame = ended + max(_FRAME_SECONDS, (ended - began) / _DRAWING_SHARE)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _end_text(self) -> None:
        self._cancel_timer()
        super()._end_text()
        if self._stream is not None:
            stream, self._stream = self._stream, None
            try:
                self._carried = stream.finish() + self._carried
            except OSError:
                raise
            except Exception as exc:
                self._continue_plainly(stream, exc)
                super()._end_text()

    def _continue_plainly(self, stream: MarkdownStream, exc: Exception) -> None:
        """Write the text that the stream has not printed, and from now on the rest of its message, as it is."""
        _log.warning("Markdown cannot be rendered and is written plainly", error=repr(exc), exc_info=True)
        self._stream, self._carried, self._plain_message = None, "", self._message_id
        self._write_out(f"\n{stream.unfinished}")

    def _write(self, text: str) -> None:
        self._out.write(text)
        self._out.flush()

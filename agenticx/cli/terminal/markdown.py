"""Markdown of a model as lines for a terminal, rendered by rich, without control characters.

1. HTML, images and link definitions are shown as they are written: rich would leave them out.
2. A line break stays a line break, as in chat pages; CommonMark would join the lines.
3. A link is shown with its address and is never a terminal hyperlink, whose address cannot be seen.
4. Nothing is padded, and words and lines of code that are wider than the terminal are not split, so that text can be
   copied.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache

from markdown_it import MarkdownIt
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.markdown import BlockQuote, CodeBlock, Heading, ListItem, Markdown, Paragraph, TableElement
from rich.segment import Segment
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text

from agenticx.tools.visible import escape_controls

__all__ = ["Line", "MarkdownBlock", "render_markdown", "top_level_blocks"]

Line = tuple[Segment, ...]
"""A rendered line: text with styles, without control characters and its line break."""

_CODE_THEME = "ansi_dark"  # the terminal's own sixteen colours, without a background
_CODE_INDENT = "  "
_IDEOGRAPH = "\u2e80-\u9fff\uf900-\ufaff\uff00-\uffef\U00020000-\U0003ffff"
_WORD = re.compile(f"[{_IDEOGRAPH}]\\s*|[^\\s{_IDEOGRAPH}]+\\s*|\\s+")
"""What a line is not broken in, with the blanks after it: a word, or a character of a script without word breaks."""


@dataclass(frozen=True, slots=True)
class MarkdownBlock:
    """A top-level block of a text: its kind (a token type of markdown-it), its lines and its markers.

    `item_lines` are the first lines of a list's items; `markup` and `info` come from the opening line of a fence.
    """

    kind: str
    first_line: int
    end_line: int
    item_lines: tuple[int, ...] = ()
    markup: str = ""
    info: str = ""


def top_level_blocks(text: str) -> list[MarkdownBlock]:
    """Return the top-level blocks of a Markdown text, in order; none of a text that is nested too deeply."""
    try:
        tokens = _parser().parse(text)
    except RecursionError:
        return []
    items = [token.map[0] for token in tokens if token.type == "list_item_open" and token.level == 1 and token.map]
    return [
        MarkdownBlock(
            token.type.removesuffix("_open"),
            *token.map,
            item_lines=tuple(line for line in items if token.map[0] <= line < token.map[1]),
            markup=token.markup,
            info=token.info,
        )
        for token in tokens
        if token.level == 0 and token.nesting >= 0 and token.map is not None
    ]


def render_markdown(text: str, console: Console, width: int, *, joins_lines: bool = False) -> list[Line]:
    """Return the lines of a Markdown text; none of them has a control character, whatever the text contains.

    With `joins_lines` the lines of a paragraph are joined, as in a document that is broken at some width. Raises
    `RecursionError` for a text that is nested too deeply.
    """
    rendered = console.render(_TerminalMarkdown(text, joins_lines), console.options.update(width=width))
    return [_escaped(line) for line in Segment.split_lines(rendered)]


def _escaped(line: Iterable[Segment]) -> Line:
    """Return a line without blanks at its end; control characters, also of entities (`&#8238;`), are escaped."""
    segments = [
        Segment(escape_controls(text.replace("\t", "    ").replace("\n", " ")), style)
        for text, style, control in Segment.simplify(line)
        if not control
    ]
    while segments and not segments[-1].text.strip(" "):
        segments.pop()
    if segments:
        segments[-1] = Segment(segments[-1].text.rstrip(" "), segments[-1].style)
    return tuple(segments)


@cache
def _parser() -> MarkdownIt:
    options = {"html": False, "maxNesting": 1_000_000}  # what is nested more deeply would be left out
    parser = MarkdownIt("commonmark", options).enable(["strikethrough", "table"])
    return parser.disable(["image", "reference", "html_block", "html_inline"])


class _TerminalMarkdown(Markdown):
    """rich's Markdown, with the differences that the module's docstring names."""

    def __init__(self, text: str, joins_lines: bool) -> None:
        super().__init__("", code_theme=_CODE_THEME, hyperlinks=False)
        self.parsed = _parser().parse(text)
        for token in () if joins_lines else self.parsed:
            for child in token.children or ():
                if child.type == "softbreak":
                    child.type = "hardbreak"


class _Paragraph(Paragraph):
    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        return _word_wrapped(self.text, options.max_width)


class _Heading(Heading):
    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        return _word_wrapped(self.text, options.max_width)


def _word_wrapped(text: Text, width: int) -> Iterator[Text]:
    """Yield the lines of a text, each as long as its words fit; a word that is too long has a line of its own."""
    for line in text.split("\n", allow_blank=True):
        for part in line.divide(_line_breaks(line.plain, width)):
            part.no_wrap, part.overflow = True, "ignore"
            yield part


def _line_breaks(line: str, width: int) -> list[int]:
    """Return the offsets of the line breaks."""
    breaks: list[int] = []
    column = 0
    for word in _WORD.finditer(line):
        cells = cell_len(word[0].rstrip())
        if column and column + cells > width:
            breaks.append(word.start())
            column = 0
        column += cell_len(word[0])
    return breaks


class _CodeBlock(CodeBlock):
    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        text = Syntax("", self.lexer_name, theme=self.theme).highlight(str(self.text).rstrip())
        text.no_wrap, text.overflow = True, "ignore"
        for line in Segment.split_lines(console.render(text, options)):
            yield Segment(_CODE_INDENT)
            yield from line
            yield Segment.line()


class _BlockQuote(BlockQuote):
    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        margin = Segment("▌ ", self.style)
        return _with_margin(console, options, self, margin, margin)


class _ListItem(ListItem):
    def render_bullet(self, console: Console, options: ConsoleOptions) -> RenderResult:
        style = console.get_style("markdown.item.bullet", default="none")
        return _with_margin(console, options, self, Segment(" • ", style), Segment("   "))

    def render_number(self, console: Console, options: ConsoleOptions, number: int, last_number: int) -> RenderResult:
        width = len(str(last_number)) + 2
        style = console.get_style("markdown.item.number", default="none")
        first = Segment(f"{number}.".rjust(width) + " ", style)
        return _with_margin(console, options, self, first, Segment(" " * first.cell_length))


class _TableElement(TableElement):
    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for table in super().__rich_console__(console, options):
            if isinstance(table, Table):
                for column in table.columns:
                    column.overflow = "fold"  # rich cuts a long word off
            yield table


def _with_margin(
    console: Console, options: ConsoleOptions, element: BlockQuote | ListItem, first: Segment, others: Segment
) -> Iterator[Segment]:
    """Yield the lines inside an element, each after a margin; unlike rich's own they are not cut."""
    inner = options.update(width=max(1, options.max_width - first.cell_length))
    lines: Sequence[Iterable[Segment]] = list(Segment.split_lines(console.render(element.elements, inner)))
    for index, line in enumerate(lines or [[]]):
        yield others if index else first
        yield from Segment.apply_style(line, element.style)
        yield Segment.line()


_TerminalMarkdown.elements = {
    **Markdown.elements,
    "paragraph_open": _Paragraph,
    "heading_open": _Heading,
    "fence": _CodeBlock,
    "code_block": _CodeBlock,
    "blockquote_open": _BlockQuote,
    "list_item_open": _ListItem,
    "table_open": _TableElement,
}

"""The structure of a note: frontmatter, headings, passages, tags and links."""

from __future__ import annotations

import hashlib
import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import islice
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, NamedTuple, TypeGuard, cast
from urllib.parse import unquote

from agenticx.knowledge.words import find_tags, tag_key

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token

__all__ = [
    "MAX_READ_CHARS",
    "CodeLines",
    "NoteText",
    "ParsedNote",
    "Passage",
    "PassageSpan",
    "code_lines",
    "note_lines",
    "parse_note",
    "passage_sha256",
]

MAX_READ_CHARS = 24_000
"""The most of a note, or of a section, that is read as one passage."""

_MAX_FRONTMATTER_CHARS = 64 * 1024
_JOINED_CHARS = 1_200
_SPLIT_CHARS = 1_600
_MAX_PASSAGE_CHARS = 2_000
"""Longer passages are split at the ends of lines where no blank line divides them, so that all of a note is found."""
_MAX_BLOCK_CHARS = 8_000
"""Blocks of code and rows of tables up to this size stay whole."""
_MAX_LINE_CHARS = 4_000
_MAX_PARSED_CHARS = 128 * 1024
"""Longer notes are read line by line: a megabyte of short blocks takes the parser seconds, and collecting its million
objects as garbage stops all threads of the program."""
_MAX_SEARCHED_CHARS = 16 * 1024
_MAX_TEXT_CHARS = 500
_MAX_PLACES = 100
"""Looked at for a passage of which only the beginning and the hash are known."""
_LINK = re.compile(r"(!?)\[\[([^\[\]\n|#^]{1,400})(?:[#^][^\[\]\n|]{0,400})?(?:\|[^\[\]\n]{0,400})?\]\]")
_TARGET = r"\s{0,10}(?:<([^<>\n]{1,800})>|([^\s<>()]{1,400}(?:\([^\s<>()]{1,400}\)[^\s<>()]{1,400})?))"
_MARKDOWN_LINK = re.compile(r"(!?)\[[^\[\]\n]{0,400}\]\(" + _TARGET + r"(?:\s[^()\n]{0,400})?\)")
_REFERENCE = re.compile(r" {0,3}\[[^\[\]\n]{1,400}\]:" + _TARGET)
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]{0,30}:")
_BLOCK_ID = re.compile(r"(?:^|\s)\^([A-Za-z0-9-]{1,100})\s*\Z")
_ITEM = re.compile(r"(?:[-+*]|\d{1,9}[.)])\s|\|")
_CODE_SIGNS = ("```", "~~~", "<", "\0")
_OTHER_LINES = re.compile(
    r"\n(?:[ \t]+[^ \t\n]|[>=]|-+[ \t]*(?![^\n])|(?:[-+*]|\d+[.)])(?:[ \t]{2}|[ \t]?(?![^\n])|[ \t][-+*\d>#]))"
)
"""Signs of blocks that the parser must tell apart: code, HTML, quotes, nested lists, underlined headings."""
_CODE_SPAN = re.compile(r"`[^`]*`")


@dataclass(frozen=True, slots=True)
class Passage:
    """A passage of a note: lines `line_start` to `line_end`, counted from 1 as an editor counts them, both included.

    `heading` is the heading under which it begins, or None before the first one. `text` has "\\n" for all line ends;
    `sha256` is that of `text` in UTF-8. `column` is the character of the first line at which it begins, from 1, unless
    it is a part as notes are cut into passages.
    """

    path: str
    heading: str | None
    line_start: int
    line_end: int
    text: str
    sha256: str
    column: int = 1


class PassageSpan(NamedTuple):
    """The place of a passage in its note.

    `headings` are the headings of all its sections, each with those above it, outermost first. `cut` is the range of
    characters within the text of its lines if it is a part of one very long line, else None.
    """

    line_start: int
    line_end: int
    heading: str | None
    headings: tuple[str, ...]
    cut: tuple[int, int] | None = None

    def text(self, lines: Sequence[str]) -> str:
        """Return the passage's text from the lines of its note."""
        text = "\n".join(lines[self.line_start - 1 : self.line_end])
        return text if self.cut is None else text[self.cut[0] : self.cut[1]]


class HeadingLine(NamedTuple):
    """A heading with its line, from 1, and its level from 1 to 6."""

    heading: str
    line: int
    level: int


@dataclass(frozen=True, slots=True)
class ParsedNote:
    """The structure of a note.

    `tags` are without "#" and in lower case, nested ones with "/"; `links` are the names or paths that `[[links]]` and
    Markdown links to notes give, `embeds` those of `![[embeds]]`. `frontmatter_is_broken` is True if there is a
    frontmatter that is not closed, no valid YAML, no mapping, or too long; its lines are part of the note all the same.
    """

    title: str
    headings: tuple[str, ...]
    tags: tuple[str, ...]
    aliases: tuple[str, ...]
    links: tuple[str, ...]
    embeds: tuple[str, ...]
    block_ids: tuple[str, ...]
    sections: tuple[HeadingLine, ...]
    passages: tuple[PassageSpan, ...]
    lines: tuple[str, ...] = field(repr=False)
    frontmatter_is_broken: bool = False


def note_lines(text: str) -> list[str]:
    """Return the lines of a text as an editor counts them: LF, CRLF and CR end a line."""
    return text.replace("\r\n", "\n").replace("\r", "\n").split("\n")


def passage_sha256(text: str) -> str:
    """Return the SHA-256 of a passage's text."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


class NoteText:
    """The text of a note as it is now, in which passages are found.

    A passage is whole lines, or it begins at its column, or it is a part of one very long line: a part as notes are cut
    into passages, or, if it is as long as most parts are, one between blanks.
    """

    def __init__(self, text: str) -> None:
        self.lines = note_lines(text)
        self._text = "\n".join(["", *self.lines, ""])

    def find(self, passage: Passage) -> int | None:
        """Return the line at which the passage begins: its old one if it is still there, else the first one."""
        count = passage.text.count("\n") + 1

        def is_at(index: int) -> bool:
            is_part = count == 1 and _is_between_blanks(passage.text, "".join(self.lines[index : index + 1]))
            return is_part or passage.text in self._texts_at(index, count, passage.column)

        if is_at(passage.line_start - 1):
            return passage.line_start
        if passage.column == 1 and (at := self._text.find(f"\n{passage.text}\n")) >= 0:
            return self._text.count("\n", 0, at) + 1
        return next((index + 1 for index in self._places(passage) if is_at(index)), None)

    def restore(self, passage: Passage) -> Passage | None:
        """Return a passage, of whose text only the beginning is known, with its text and lines; found by its hash."""
        count = passage.line_end - passage.line_start + 1
        for index in (passage.line_start - 1, *self._places(passage)):
            for text in self._texts_at(index, count, passage.column):
                if passage_sha256(text) == passage.sha256:
                    return replace(passage, text=text, line_start=index + 1, line_end=index + count)
        return None

    def _places(self, passage: Passage) -> Iterator[int]:
        """Return the indexes of lines that have the passage's first line, the first ones of many."""
        first = passage.text.split("\n", 1)[0]
        return islice((index for index, line in enumerate(self.lines) if first in line), _MAX_PLACES)

    def _texts_at(self, index: int, count: int, column: int) -> Sequence[str]:
        """Return the texts that a passage of so many lines may be that begins in this line."""
        lines = self.lines[index : index + count]
        if len(lines) < count:
            return ()
        text = "\n".join(lines)[column - 1 :]
        return (text,) if count > 1 else (text, text[:MAX_READ_CHARS], *_line_parts(lines[0]))


def _is_between_blanks(text: str, line: str) -> bool:
    """Return True if a text as long as most parts of a very long line is one that lies between blanks."""
    if not _SPLIT_CHARS < len(text) < len(line) or len(line) <= _MAX_LINE_CHARS:
        return False
    return (f" {text}" if text.endswith(" ") else f" {text} ") in f" {line} "


def _line_parts(line: str) -> list[str]:
    """Return the parts of a very long line that may be passages; none of another line."""
    if len(line) <= _MAX_LINE_CHARS:
        return []
    return [line[start:end] for start, end in _cuts(line, _SPLIT_CHARS, _MAX_LINE_CHARS)]


def parse_note(path: str, text: str) -> ParsedNote:
    """Return the structure of the note at `path`; takes any text and raises nothing for it."""
    lines = note_lines(text)
    frontmatter = _read_frontmatter(lines)
    headings, code = _read_blocks(lines, frontmatter.lines)
    inline = _read_inline(lines[frontmatter.lines :], code, frontmatter.lines)
    first_heading = headings[0].heading if headings else None
    sections = _sections(headings, frontmatter.lines, len(lines))
    return ParsedNote(
        title=frontmatter.title or first_heading or PurePosixPath(path).stem,
        headings=tuple(heading.heading for heading in headings),
        tags=_unique([*frontmatter.tags, *inline.tags]),
        aliases=frontmatter.aliases,
        links=_unique(inline.links),
        embeds=_unique(inline.embeds),
        block_ids=_unique(inline.block_ids),
        sections=tuple(headings),
        passages=tuple(_passages(lines, sections, code)),
        lines=tuple(lines),
        frontmatter_is_broken=frontmatter.is_broken,
    )


def _unique(items: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(items))


# --- frontmatter ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Frontmatter:
    """The values of a frontmatter that are used, and the number of its lines with its marks; 0 if there is none."""

    lines: int = 0
    title: str | None = None
    tags: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()
    is_broken: bool = False


def _read_frontmatter(lines: list[str]) -> _Frontmatter:
    if lines[0].rstrip() != "---":
        return _Frontmatter()
    end = next((number for number, line in enumerate(lines[1:], start=1) if line.rstrip() in ("---", "...")), None)
    if end is None:
        return _Frontmatter(is_broken=True)
    text = "\n".join(lines[1:end])
    values: Any = None
    if len(text) <= _MAX_FRONTMATTER_CHARS:
        import yaml  # takes 10 ms, and most starts read no note

        try:
            if "*" in text and _has_aliases(text):
                return _Frontmatter(end + 1, is_broken=True)  # a few lines of aliases can stand for gigabytes
            values = yaml.load(text, _yaml_loader())
        except (yaml.YAMLError, ValueError, RecursionError):  # ValueError: a date or number that does not exist
            return _Frontmatter(end + 1, is_broken=True)
        values = {} if values is None else values
    if not _is_mapping(values):
        return _Frontmatter(end + 1, is_broken=True)
    title = values.get("title")
    return _Frontmatter(
        lines=end + 1,
        title=title[:_MAX_TEXT_CHARS] if isinstance(title, str) and title.strip() else None,
        tags=tuple(filter(None, map(tag_key, _texts(values.get("tags", values.get("tag")), r"[,\s]+")))),
        aliases=tuple(_texts(values.get("aliases", values.get("alias")), r"\s*,\s*")),
    )


@cache
def _yaml_loader() -> Any:
    import yaml

    return getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the same in C, which wheels have


def _has_aliases(text: str) -> bool:
    import yaml

    parse = cast(Callable[..., Iterator[object]], yaml.parse)  # pyright: ignore[reportUnknownMemberType]
    return any(isinstance(event, yaml.AliasEvent) for event in parse(text, _yaml_loader()))


def _is_mapping(value: Any) -> TypeGuard[dict[Any, Any]]:
    return isinstance(value, dict)


def _texts(value: Any, separator: str) -> list[str]:
    """Return the texts of a frontmatter's value: a list, or the parts of one text."""
    if isinstance(value, str):
        return [part for part in re.split(separator, value.strip()) if part]
    if isinstance(value, list):
        items = cast("list[object]", value)
        return [str(item)[:_MAX_TEXT_CHARS] for item in items if isinstance(item, str | int | float)]
    return []


# --- sections and passages --------------------------------------------------------------------------------------------


class _Section(NamedTuple):
    """The lines from a heading to the next one, from 0, the end excluded; `path` is the headings down to it."""

    start: int
    end: int
    path: tuple[str, ...]


class CodeLines:
    """The lines of a text, from 0, that lie in fences, code blocks and HTML blocks."""

    def __init__(self, blocks: Iterable[Sequence[int]] = ()) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []
        for start, end in blocks:
            self._starts.append(start)
            self._ends.append(end)

    @classmethod
    def of(cls, tokens: Iterable[Token]) -> CodeLines:
        return cls(token.map for token in tokens if token.type in ("fence", "code_block", "html_block") and token.map)

    def __contains__(self, line: int) -> bool:
        if not self._starts:
            return False
        index = bisect_right(self._starts, line) - 1
        return index >= 0 and line < self._ends[index]

    def end(self, line: int) -> int:
        """Return the line behind the block that holds `line`, which must be in one."""
        return self._ends[bisect_right(self._starts, line) - 1]


def code_lines(text: str) -> CodeLines:
    """Return the lines of a Markdown text that are code or HTML."""
    return CodeLines.of(_parser().parse("\n".join(note_lines(text))))


@cache
def _parser() -> MarkdownIt:
    """Return a parser of blocks only; links and tables are of no use here, and cost a third of the time."""
    from markdown_it import MarkdownIt  # takes 20 ms

    parser = MarkdownIt("commonmark").disable("reference")
    parser.core.ruler.enableOnly(["normalize", "block"])
    return parser


def _read_blocks(lines: Sequence[str], first: int) -> tuple[list[HeadingLine], CodeLines]:
    """Return the headings, and the lines of code, from the line `first` on, from 0."""
    text = "\n".join(lines[first:])
    if not any(sign in text for sign in _CODE_SIGNS) and _OTHER_LINES.search(f"\n{text}") is None:
        return list(_plain_headings(lines, first)), CodeLines()
    if len(text) > _MAX_PARSED_CHARS:
        return _read_large_blocks(lines, first)
    tokens = _parser().parse("\n" * first + text)
    headings = [
        HeadingLine(_heading_text(tokens[index + 1].content), token.map[0] + 1, int(token.tag[1]))
        for index, token in enumerate(tokens)
        if token.type == "heading_open" and token.map and token.level == 0
    ]
    return headings, CodeLines.of(tokens)


def _read_large_blocks(lines: Sequence[str], first: int) -> tuple[list[HeadingLine], CodeLines]:
    """Return the headings and fences that begin in the first column, as `_read_blocks` does for short notes."""
    fences: list[tuple[int, int]] = []
    begin, mark = first, ""
    for number in range(first, len(lines)):
        line = lines[number]
        if mark:
            if line.startswith(mark) and not line.strip(mark[0]).strip():
                fences.append((begin, number + 1))
                mark = ""
        elif line.startswith(("```", "~~~")):
            begin, mark = number, line[: len(line) - len(line.lstrip(line[0]))]
    if mark:
        fences.append((begin, len(lines)))
    code = CodeLines(fences)
    return [heading for heading in _plain_headings(lines, first) if heading.line - 1 not in code], code


def _plain_headings(lines: Sequence[str], first: int) -> Iterator[HeadingLine]:
    """Yield the headings among lines without other blocks than paragraphs and flat lists, as the parser finds them."""
    for number in [number for number in range(first, len(lines)) if lines[number][:1] == "#"]:
        line = lines[number]
        rest = line.lstrip("#")
        level = len(line) - len(rest)
        if level > 6 or (rest and not rest.startswith((" ", "\t"))):
            continue
        rest = rest.rstrip(" \t")
        closed = rest.rstrip("#")
        text = closed if closed.endswith((" ", "\t")) else rest
        yield HeadingLine(_heading_text(text), number + 1, level)


def _heading_text(text: str) -> str:
    return " ".join(text.split())[:_MAX_TEXT_CHARS]


def _sections(headings: Sequence[HeadingLine], first: int, count: int) -> Iterator[_Section]:
    """Yield the sections of a note with `count` lines, whose frontmatter, a section of its own, has `first` lines."""
    if first:
        yield _Section(0, first, ())
    if not headings or headings[0].line - 1 > first:
        yield _Section(first, headings[0].line - 1 if headings else count, ())
    above: list[tuple[int, str]] = []
    for index, (title, line, level) in enumerate(headings):
        while above and above[-1][0] >= level:
            above.pop()
        above.append((level, title))
        end = headings[index + 1].line - 1 if index + 1 < len(headings) else count
        yield _Section(line - 1, end, tuple([text for _, text in above]))


def _passages(lines: list[str], sections: Iterable[_Section], code: CodeLines) -> Iterator[PassageSpan]:
    joined: list[_Section] = []
    chars = 0
    for section in sections:
        text = "\n".join(lines[section.start : section.end])
        if not text.strip():
            continue
        size = len(text) + 1
        if joined and (chars + size > _JOINED_CHARS or not _are_neighbours(joined[0], section)):
            yield from _split(lines, joined, chars, code)
            joined, chars = [], 0
        joined.append(section)
        chars += size
    if joined:
        yield from _split(lines, joined, chars, code)


def _are_neighbours(one: _Section, other: _Section) -> bool:
    """Return True if two sections have the same parent."""
    return len(one.path) == len(other.path) and one.path[:-1] == other.path[:-1]


def _split(lines: list[str], sections: Sequence[_Section], chars: int, code: CodeLines) -> Iterator[PassageSpan]:
    """Yield the passages of joined sections: one, or, if they are long, several that end at blank lines."""
    heading = sections[0].path[-1] if sections[0].path else None
    headings = _unique(text for section in sections for text in section.path)
    start, end = sections[0].start, sections[-1].end
    if chars > _SPLIT_CHARS:
        size = 0
        for number in range(start, end):
            if len(lines[number]) > _most_line_chars(lines[number], is_code=number in code):
                yield from _spans(lines, start, number, heading, headings, code)
                for cut in _cuts(lines[number], _SPLIT_CHARS, _MAX_LINE_CHARS):
                    yield PassageSpan(number + 1, number + 1, heading, headings, cut)
                start, size = number + 1, 0
                continue
            size += len(lines[number]) + 1
            if size >= _SPLIT_CHARS * 3 // 4 and not lines[number].strip() and number not in code:
                yield from _spans(lines, start, number, heading, headings, code)
                start, size = number + 1, 0
    yield from _spans(lines, start, end, heading, headings, code)


def _most_line_chars(line: str, *, is_code: bool) -> int:
    """Return the size from which a line is cut: code and rows of tables are longer than sentences."""
    return _MAX_BLOCK_CHARS if is_code or "|" in line else _MAX_LINE_CHARS


def _spans(
    lines: list[str], start: int, end: int, heading: str | None, headings: tuple[str, ...], code: CodeLines
) -> Iterator[PassageSpan]:
    """Yield the passages of the lines from `start` to `end`, from 0, without blank lines at their ends."""
    for first, last in _parts(lines, start, end, code):
        while first < last and not lines[first].strip():
            first += 1
        while first < last and not lines[last - 1].strip():
            last -= 1
        if first < last:
            yield PassageSpan(first + 1, last, heading, headings)


def _parts(lines: list[str], start: int, end: int, code: CodeLines) -> Iterator[tuple[int, int]]:
    """Yield ranges of lines near 1,600 characters, which end at blank lines, else before items or rows, or anywhere.

    A block of code is not divided unless it is very long.
    """
    left = sum(map(len, lines[start:end])) + end - start
    if left <= _MAX_PASSAGE_CHARS:
        yield start, end
        return
    size, ends = 0, dict[int, tuple[int, int]]()  # by rank: where the range may end, and its size then
    for number, after in _units(lines, start, end, code):
        chars = sum(map(len, lines[number:after])) + after - number
        if size >= _SPLIT_CHARS // 2:
            ends[2 if not lines[number - 1].strip() else bool(_ITEM.match(lines[number]))] = number, size
        if ends and size + chars > _SPLIT_CHARS and left > _MAX_PASSAGE_CHARS:
            cut, taken = ends[max(ends)]
            yield start, cut
            start, size, left = cut, size - taken, left - taken
            ends.clear()
        size += chars
    yield start, end


def _units(lines: list[str], start: int, end: int, code: CodeLines) -> Iterator[tuple[int, int]]:
    """Yield the ranges of lines that stay together: a block of code, and else each line."""
    number, whole_until = start, start
    while number < end:
        after = number + 1
        if number in code and number >= whole_until:
            whole_until = min(code.end(number), end)
            if sum(map(len, lines[number:whole_until])) + whole_until - number <= _MAX_BLOCK_CHARS:
                after = whole_until
        yield number, after
        number = after


def _cuts(line: str, least: int, most: int) -> Iterator[tuple[int, int]]:
    """Yield the ranges of a long line's parts, which end at blanks where there are any; a short line is one part."""
    start = 0
    while len(line) - start > most:
        blank = line.rfind(" ", start + least, start + most)
        end = blank + 1 if blank > 0 else start + most
        yield start, end
        start = end
    yield start, len(line)


# --- tags, links and block ids ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Inline:
    """The marks found in a note's lines, in their order."""

    tags: list[str] = field(default_factory=list[str])
    links: list[str] = field(default_factory=list[str])
    embeds: list[str] = field(default_factory=list[str])
    block_ids: list[str] = field(default_factory=list[str])

    def add(self, text: str) -> None:
        if "#" in text:
            self.tags.extend(find_tags(text))
        if "[[" in text:
            for mark, name in _LINK.findall(text):
                (self.embeds if mark else self.links).append(name.strip())
        if "](" in text:
            found = (bracketed or plain for mark, bracketed, plain in _MARKDOWN_LINK.findall(text) if not mark)
            self.links.extend(target for each in found if (target := _note_target(each)) is not None)
        reference = _REFERENCE.match(text) if "]:" in text else None
        if reference is not None and (target := _note_target(reference[1] or reference[2])) is not None:
            self.links.append(target)


def _note_target(target: str) -> str | None:
    """Return the path of a note to which a Markdown link leads, as it is written; None for any other target."""
    path = unquote(target.partition("#")[0]).strip()
    is_note = path.lower().endswith((".md", ".markdown", ".txt")) and not _SCHEME.match(path) and "\n" not in path
    return path if is_note else None


def _read_inline(lines: Iterable[str], code: CodeLines, first: int) -> _Inline:
    found = _Inline()
    for number, line in enumerate(lines, start=first):
        if ("#" not in line and "[" not in line and "^" not in line) or number in code:
            continue
        if "`" in line:
            line = _CODE_SPAN.sub(" ", line)
        if len(line) <= _MAX_SEARCHED_CHARS:
            found.add(line)
        else:
            for start, end in _cuts(line, _MAX_SEARCHED_CHARS // 2, _MAX_SEARCHED_CHARS):
                found.add(line[start:end])
        if "^" in line[-200:] and (block_id := _BLOCK_ID.search(line[-200:])):
            found.block_ids.append(block_id[1])
    return found

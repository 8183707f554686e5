"""Citations: the markers of a reply, each compared with the passage that it names.

A model is given numbered passages and writes `[^n]` after a statement from passage n. The meaning of a sentence is not
judged. Numbers, dates, quoted text and code spans are checked, since this needs no model. They are compared after NFKC
and case folding, without the signs of Markdown and with white space collapsed.

1. The claim of a marker is the sentence that contains it, or that ends just before it. Items of a list, cells of a
   table and headings are sentences of their own.
2. A number is compared as a number: "40,000", "40.000" and "40000" are one; "1.2" may be a part of "1.2 to 1.8". The
   numbers of list items and of markers are no facts, neither in the sentence nor in the passage.
3. A date is compared as a whole, in digits or with the name of a month: "2024-03-11" has "11 March", "March 2024" and
   "March 11, 2024", and no other day or month. The year may stand elsewhere in the passage, as under a heading "2024".
4. Markers in code and in definitions (`[^1]: …`, also `> [^1]: …`) are not citations; nor are markers with a number
   that no passage has.
5. A marker inside quotation marks or on a quoted line (`> …`) belongs to the note, and is not a citation, if a passage
   has the quotation with that marker. Any other marker there is the reply's own: many replies cite before the closing
   mark, or at the end of a quoted line. A marker after the quotation is always the reply's own.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from agenticx.knowledge.dates import Date, dates_meant, find_dates
from agenticx.knowledge.parsing import NoteText, Passage, code_lines, note_lines

__all__ = ["CheckedCitation", "CitationStatus", "check_citations"]

CitationStatus = Literal["verified", "located", "unsupported", "changed"]
"""`verified`: the passage has every checkable fact of the sentence, and there is one. `located`: there is none.
`unsupported`: the passage lacks one. `changed`: the passage is no longer in its note, or the note cannot be read."""


@dataclass(frozen=True, slots=True)
class CheckedCitation:
    """A marker of a reply with the result of its check.

    `quote` is the line of the passage that has most of the facts, verbatim, else its first line. `line_start` and
    `line_end` are the passage's lines and `quote_line` that of the quote: in the note as it is now, or as they were at
    retrieval if it has `changed`.
    """

    marker: int
    status: CitationStatus
    quote: str
    path: str
    heading: str | None
    line_start: int
    line_end: int
    sha256: str
    quote_line: int


def check_citations(
    reply: str, passages: Mapping[int, Passage], read: Callable[[str], str | None]
) -> list[CheckedCitation]:
    """Return the citations of a reply in the order of their markers, one for each number in a sentence.

    `passages` has the passages that the model was given, by number. `read` returns the present text of a note, or None
    if the note is gone; it is called once for each path.
    """
    notes: dict[str, NoteText | None] = {}
    compared: dict[int, _ComparedPassage] = {}
    checked: list[CheckedCitation] = []
    for claim, markers in _claims(reply, _NoteMarkers(passages.values())):
        facts = _facts(claim)
        for marker in markers:
            if (passage := passages.get(marker)) is None:
                continue
            if marker not in compared:
                if passage.path not in notes:
                    text = read(passage.path)
                    notes[passage.path] = None if text is None else NoteText(text)
                compared[marker] = _ComparedPassage(passage, notes[passage.path])
            checked.append(compared[marker].check(marker, facts))
    return checked


class _ComparedPassage:
    """A passage with its content, and its place in the note as it is now; read once for all sentences that cite it."""

    def __init__(self, passage: Passage, note: NoteText | None) -> None:
        self._passage = passage
        self._first_line = None if note is None else note.find(passage)
        self._content = _Content(passage.text)
        self._lines = passage.text.split("\n")

    def check(self, marker: int, facts: Sequence[_Fact]) -> CheckedCitation:
        """Return the citation of a sentence with these facts."""
        passage, status = self._passage, self._status(facts)
        start = passage.line_start if self._first_line is None else self._first_line
        best = self._best_line(facts)
        return CheckedCitation(
            marker=marker,
            status=status,
            quote=self._lines[best],
            path=passage.path,
            heading=passage.heading,
            line_start=start,
            line_end=start + passage.line_end - passage.line_start,
            sha256=passage.sha256,
            quote_line=start + best,
        )

    def _status(self, facts: Sequence[_Fact]) -> CitationStatus:
        if self._first_line is None:
            return "changed"
        if not facts:
            return "located"
        return "verified" if all(map(self._content.has, facts)) else "unsupported"

    def _best_line(self, facts: Sequence[_Fact]) -> int:
        """Return the index of the line with most of the facts, the first of several."""
        if not facts:
            return 0
        counts = [sum(map(content.has, facts)) for content in self._line_contents]
        return counts.index(max(counts))

    @cached_property
    def _line_contents(self) -> list[_Content]:
        return list(map(_Content, self._lines))


# --- claims: sentences with markers -----------------------------------------------------------------------------------

_MARKER = re.compile(r"(?<!\\)\[\^(\d{1,9})\]")
_MARKER_BEHIND = re.compile(r"\s*\[\^\d{1,9}\]")
_BLOCK_START = re.compile(r"\s{0,12}(?:[-*+•]\s|\d{1,9}[.)]\s|#{1,6}\s|>\s?|\|)")
_ITEM_SIGN = re.compile(r"\A(?:\s*(?:[-*+•]|\d{1,9}[.)]|#{1,6}|>)\s+)+")
_DEFINITION = re.compile(r" {0,3}\[\^[^\]\s]{1,100}\]:")
_QUOTE_SIGNS = re.compile(r"(?: {0,3}> ?){0,9}")
_CODE_SPAN = re.compile(r"(?<!`)(`{1,3})(?!`)([^`\n]{1,1000})\1(?!`)")
_QUOTE_PAIRS = ('""', "“”", "„“", "„”", "«»", "»«", "‹›", "「」", "『』", "‘’", "《》")
_QUOTED = re.compile(
    "|".join(f"{a}([^{a}{b}\n]{{1,2000}}){b}" for a, b in _QUOTE_PAIRS)
    + r"|(?<![\w'’])'(?=[^\W\d])([^'\n.!?]{1,200}[.!?]?)(?<=\S)'(?![\w'])"  # no apostrophe
)
_VERBATIM = re.compile(f"{_CODE_SPAN.pattern}|{_QUOTED.pattern}")
"""Code, or a quotation, which may have code in it."""
_SENTENCE_END = re.compile(r"(?:[.!?…]+[)\]\"'”’»]*(?=\s|\[\^)|[。！？]+[」』）”]*)")
_ABBREVIATION = re.compile(
    r"(?:\b[A-Za-z]|\b(?:Dr|Mr|Mrs|Ms|Prof|St|Sr|Jr|No|Nr|Abs|Art|Bd|Fig|Vol|pp|ca|approx|resp|bzw|vgl|usw|etc|vs|cf|e\.g|"
    r"i\.e|z\. ?B|d\. ?h|u\. ?a))\.\Z",
    re.IGNORECASE,
)
_FOLLOWING = re.compile(r"\s*(\S?)")
_HIDDEN = "\0"
_AROUND = ' .,;:!?"'
_MAX_QUOTATIONS = 200
"""Looked for in passages, per reply; markers in any more are taken for the reply's own."""
_MAX_OWN_MARKERS = 5
"""Behind one another at the end of a quoted line."""


def _claims(reply: str, notes: _NoteMarkers) -> Iterator[tuple[str, list[int]]]:
    """Yield the sentences that have markers of the reply, in order, with the distinct numbers of these."""
    for block in _blocks(reply):
        if "[^" not in block:
            continue
        is_quoted = block.lstrip().startswith(">")
        for sentence in _sentences(block):
            own = notes.mask(_CODE_SPAN.sub(_mask_markers, sentence), is_quoted=is_quoted)
            if markers := list(dict.fromkeys(int(number) for number in _MARKER.findall(own))):
                yield sentence, markers


class _NoteMarkers:
    """The markers in the texts of passages, to recognize copies of them in a reply."""

    def __init__(self, passages: Iterable[Passage]) -> None:
        self._text = "\n".join(_plain(_normalized(passage.text)) for passage in passages if "[^" in passage.text)
        self._left = _MAX_QUOTATIONS

    def mask(self, sentence: str, *, is_quoted: bool) -> str:
        """Return a sentence with what quotations in it have of a passage, up to its last marker there, masked."""
        if not self._text or not _MARKER.search(sentence):
            return sentence
        if is_quoted:
            sentence = self._masked(sentence)
        return _QUOTED.sub(lambda match: self._masked(match[0]), sentence)

    def _masked(self, quotation: str) -> str:
        ends = [match.end() for match in _MARKER.finditer(quotation)][-_MAX_OWN_MARKERS:]
        for end in reversed(ends):  # the last ones may be the reply's own
            self._left -= 1
            if self._left < 0:
                break
            if all(map(self._has, filter(_MARKER.search, _ELLIPSIS.split(quotation[:end])))):
                return _HIDDEN * end + quotation[end:]
        return quotation

    def _has(self, part: str) -> bool:
        """Return True if a passage has a part of a quotation; the part has words, not only markers."""
        text = _plain(_normalized(part)).strip(_AROUND)
        return _plain(_MARKER.sub("", part)).strip(_AROUND) != "" and _occurs(text, self._text)


def _blocks(reply: str) -> Iterator[str]:
    """Yield the texts of paragraphs, list items, headings and table cells; code and definitions are left out."""
    lines = note_lines(reply)
    code = code_lines(reply)
    current: list[str] = []
    in_definition = False
    for number, line in enumerate(lines):
        content = _QUOTE_SIGNS.sub("", line, count=1)
        in_definition = bool(_DEFINITION.match(content)) or (in_definition and content.startswith(("    ", "\t")))
        is_left_out = in_definition or number in code
        if is_left_out or not line.strip() or _BLOCK_START.match(line):
            yield " ".join(current)
            current = []
        if is_left_out:
            continue
        if line.lstrip().startswith("|"):
            yield from line.strip().strip("|").split("|")
        else:
            current.append(line.strip())
    yield " ".join(current)


def _sentences(block: str) -> Iterator[str]:
    """Yield the sentences of a block; markers behind the end of a sentence belong to it."""
    # The ends of sentences within quotations, code and dates are not ends; equal lengths keep all positions.
    masked = _mask_dates(_QUOTED.sub(_mask, _CODE_SPAN.sub(_mask, block)))
    start = sign.end() if (sign := _ITEM_SIGN.match(masked)) else 0
    for end in _SENTENCE_END.finditer(masked):
        if end.start() < start or _ABBREVIATION.search(masked[max(start, end.end() - 12) : end.end()]):
            continue
        stop = end.end()
        while marker := _MARKER_BEHIND.match(masked, stop):
            stop = marker.end()
        if (following := _FOLLOWING.match(masked, stop)) and following[1].islower():
            continue
        yield block[start:stop]
        start = stop
    yield block[start:]


def _mask(match: re.Match[str]) -> str:
    return _HIDDEN * len(match[0])


def _mask_markers(match: re.Match[str]) -> str:
    return match[0].replace("[^", _HIDDEN * 2)


def _mask_dates(text: str) -> str:
    signs = list(text)
    for date in find_dates(text):
        signs[date.start : date.end] = _HIDDEN * (date.end - date.start)
    return "".join(signs)


# --- facts ------------------------------------------------------------------------------------------------------------

_DIGITS = re.compile(r"\d+(?:[.,:/'’]\d+)*")
_SPACED_GROUPS = re.compile(r"(?<![\d.,:/])\d{1,3}(?: \d{3})+(?:[.,]\d{1,9})?(?!\d)")
_MAX_DIGITS = 40
_RAISED = re.compile(r"(?<=\d)(?=[¼-¾²³¹⅐-⅞⁰⁴-⁹₀-₉])")
_OTHER_DIGIT = re.compile(r"(?![0-9])\d")
_FOOTNOTE = re.compile(rf"{_CODE_SPAN.pattern}|\s?(?<!\\)\[\^[\w-]{{1,100}}\]")
_ITEM_NUMBER = re.compile(r"[ \t>*+•-]{0,20}(\d{1,9})[.)](?=\s|\Z)")
_ELLIPSIS = re.compile(r"\s*\[?(?:…|\.\.\.)\]?\s*")
_MARKDOWN_SIGNS = re.compile(r"[*_`~#>|\[\]\\]+")
_PLAIN_SIGNS = str.maketrans(
    dict.fromkeys("‐‑‒–—−", "-") | dict.fromkeys("“”„«»「」『』‹›《》", '"') | dict.fromkeys("’‘‚", "'")
)


@dataclass(frozen=True, slots=True)
class _Number:
    """A number with its readings; the passage must have all values of one reading."""

    readings: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class _DateFact:
    """A date with its readings; the passage must have one of them."""

    readings: tuple[Date, ...]


@dataclass(frozen=True, slots=True)
class _Text:
    """Quoted text or code that the passage must have."""

    text: str


_Fact = _Number | _DateFact | _Text


def _facts(claim: str) -> list[_Fact]:
    """Return the checkable facts of a sentence."""
    rest = _normalized(_without_footnotes(claim))
    facts: list[_Fact] = []
    for match in _VERBATIM.finditer(rest):
        text = next(group for group in reversed(match.groups()) if group is not None)
        parts = (_plain(part).strip(" .,;:!?") for part in _ELLIPSIS.split(text))
        facts += [_Text(part) for part in parts if part]
    rest = _VERBATIM.sub(_HIDDEN, rest)
    facts += [_DateFact(date.readings) for date in find_dates(rest)]
    rest = _mask_dates(rest)
    for match in _SPACED_GROUPS.finditer(rest):
        parts = match[0].split()
        apart = tuple(_values(part)[0] for part in parts)
        facts.append(_Number((*((value,) for value in _values("".join(parts))), apart)))
    rest = _SPACED_GROUPS.sub(_HIDDEN, rest)
    facts += [_Number(tuple((value,) for value in values)) for values in _numbers(rest)]
    return facts


class _Content:
    """The checkable content of a text."""

    def __init__(self, text: str) -> None:
        whole = _normalized(text)
        text = _without_footnotes(whole)
        self._texts = {_plain(text), _plain(whole)}  # code may have what looks like a marker
        self._code = {_plain(match[2]).strip(" .,;:!?") for match in _CODE_SPAN.finditer(whole)}
        self._dates = dates_meant(text)
        self._parts = {part for date in self._dates for part in (date._replace(year=None), date._replace(day=None))}
        yearless = [date for date in self._dates if date.year is None]
        self._yearless = {part for date in yearless for part in (date, date._replace(day=None))}
        dates = [text[date.start : date.end] for date in find_dates(text)]
        text = _without_item_numbers(_mask_dates(text))
        self._numbers = {_integer(part) for date in dates for part in re.findall(r"\d+", date)}
        for match in _SPACED_GROUPS.finditer(text):
            self._numbers.update(_values(match[0].replace(" ", "")))
        self._numbers.update(value for values in _numbers(text) for value in values)

    def has(self, fact: _Fact) -> bool:
        """Return True if the text has the fact."""
        match fact:
            case _Number(readings):
                return any(self._numbers.issuperset(reading) for reading in readings)
            case _DateFact(readings):
                return any(map(self._has_date, readings))
            case _Text(text):
                return text in self._code or any(_occurs(text, each) for each in self._texts)

    def _has_date(self, date: Date) -> bool:
        if date in self._dates or date in self._parts:
            return True
        # What the passage says without a year: a day, or for "March 2024" a month; the year may stand elsewhere.
        return date.year is not None and str(date.year) in self._numbers and date._replace(year=None) in self._yearless


def _numbers(text: str) -> Iterator[tuple[str, ...]]:
    """Yield the numbers of a text, each with the values that it may mean; digits within a word are none."""
    for match in _DIGITS.finditer(text):
        before, start = text[max(match.start() - 2, 0) : match.start()], match.start()
        if _is_word(text[start - 1 : start]) and not (before[-1:] in "vV" and not _is_word(before[:-1])):
            continue
        is_negative = before[-1:] in ("-", "−") and not before[:-1].isalnum()
        yield tuple(f"-{value}" if is_negative else value for value in _values(match[0]))


def _values(token: str) -> tuple[str, ...]:
    """Return the values that digits with separators may mean, for example 1200 and 1.2 for "1,200"."""
    signs = re.sub(r"\d", "", token)
    groups = re.split(r"\D", token)
    if not signs:
        return (_integer(token),)
    if len(token) > _MAX_DIGITS or set(signs) & set(":/"):
        return (re.sub(r"0*(\d+)", r"\1", token),)  # a time, a fraction or the like
    is_grouped = len(groups[0]) <= 3 and all(len(group) == 3 for group in groups[1:])
    if len(set(signs)) == 1 and is_grouped:
        grouped = _integer("".join(groups))
        return (grouped, _decimal(*groups)) if signs == "." and groups[1] != "000" else (grouped,)
    if len(groups) == 2:
        return (_decimal(*groups),)
    if len(set(signs)) == 2 and signs[-1] != signs[0] and len(set(signs[:-1])) == 1:
        return (_decimal("".join(groups[:-1]), groups[-1]),)
    return (".".join(map(_integer, groups)),)  # a version


def _without_item_numbers(text: str) -> str:
    """Return a text without the numbers of ordered lists: the first of a list is 1, or follows no other line."""
    lines: list[str] = []
    is_in_list, before = False, ""
    for line in text.split("\n"):
        number = _ITEM_NUMBER.match(line)
        if number and (is_in_list or number[1] == "1" or not before.strip()):
            is_in_list = True
            lines.append(line[number.end() :])
        else:
            is_in_list = is_in_list and bool(line.strip())
            lines.append(line)
        before = line
    return "\n".join(lines)


def _integer(digits: str) -> str:
    return digits.lstrip("0") or "0"


def _decimal(whole: str, fraction: str) -> str:
    return f"{_integer(whole)}.{fraction}".rstrip("0").rstrip(".")


def _normalized(text: str) -> str:
    """Return a text in NFKC with the digits 0 to 9; "2½" becomes "2 1/2", and "40¹" does not become 401."""
    if text.isascii():
        return text
    text = unicodedata.normalize("NFKC", _RAISED.sub(" ", text)).replace("\u2044", "/")
    return _OTHER_DIGIT.sub(lambda match: str(unicodedata.decimal(match[0])), text)


def _without_footnotes(text: str) -> str:
    """Return a text without the markers of footnotes outside of code."""
    return _FOOTNOTE.sub(lambda match: match[0] if match[1] else "", text)


def _plain(text: str) -> str:
    text = _MARKDOWN_SIGNS.sub("", text.translate(_PLAIN_SIGNS))
    return " ".join(text.casefold().split())


def _occurs(part: str, text: str) -> bool:
    """Return True if `part` occurs in `text` as whole words."""
    at = text.find(part)
    while at >= 0:
        end = at + len(part)
        begins_within = at > 0 and _is_word(text[at - 1]) and _is_word(part[0])
        ends_within = _is_word(text[end : end + 1]) and _is_word(part[-1])
        if not begins_within and not ends_within:
            return True
        at = text.find(part, at + 1)
    return False


def _is_word(sign: str) -> bool:
    """Return True for a letter or digit of a script that puts blanks between words."""
    return sign == "_" or (sign.isalnum() and sign < "\u2e80")

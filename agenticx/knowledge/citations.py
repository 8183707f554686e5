"""Citations: the markers of a reply, each compared with the passage that it names.

A model is given numbered passages and writes `[^n]` behind what it takes from one. Nothing judges the meaning of a
sentence; what can be checked without a model is: numbers and dates, quoted text and code spans. They are compared after
NFKC and case folding, without the signs of Markdown and with white space collapsed.

1. The claim of a marker is the sentence in which it stands, or that ends just before it. The items of a list, the cells
   of a table and headings are sentences of their own.
2. A number is compared as a number: "40,000", "40.000" and "40000" are one; "1.2" may be a part of "1.2 to 1.8". A date
   such as 2024-03-11 is compared as a whole, and its parts support "March 2024". The number of a list item is no fact.
3. Markers in code and in definitions (`[^1]: …`) are no citations, and neither are numbers that no passage has.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from agenticx.knowledge.parsing import Passage, code_lines, note_lines

__all__ = ["CheckedCitation", "CitationStatus", "check_citations"]

CitationStatus = Literal["verified", "located", "unsupported", "changed"]
"""`verified`: the passage has every checkable fact of the sentence, and there is one. `located`: there is none.
`unsupported`: the passage lacks one. `changed`: the passage is no longer in its note."""


@dataclass(frozen=True, slots=True)
class CheckedCitation:
    """A marker of a reply with what became of it.

    `quote` is the line of the passage that has most of the facts, verbatim, else its first line; `line_start` and
    `line_end` are the passage's lines in the note as it is now, or those of retrieval if it has `changed`.
    """

    marker: int
    status: CitationStatus
    quote: str
    path: str
    heading: str | None
    line_start: int
    line_end: int
    sha256: str


def check_citations(
    reply: str, passages: Mapping[int, Passage], read: Callable[[str], str | None]
) -> list[CheckedCitation]:
    """Return the citations of a reply in the order of their markers, one for each number in a sentence.

    `passages` are those that the model was given, by number; `read` returns the text of a note as it is now, or None if
    it is gone, and is called once for each path.
    """
    notes: dict[str, list[str] | None] = {}
    checked: list[CheckedCitation] = []
    for claim, markers in _claims(reply):
        facts = _facts(claim)
        for marker in markers:
            if (passage := passages.get(marker)) is None:
                continue
            if passage.path not in notes:
                text = read(passage.path)
                notes[passage.path] = None if text is None else note_lines(text)
            checked.append(_check(marker, facts, passage, notes[passage.path]))
    return checked


def _check(marker: int, facts: Sequence[_Fact], passage: Passage, note: Sequence[str] | None) -> CheckedCitation:
    first_line = None if note is None else _find_passage(passage, note)
    content = _Content(passage.text)
    status: CitationStatus
    if first_line is None:
        status = "changed"
    elif not facts:
        status = "located"
    else:
        status = "verified" if all(content.has(fact) for fact in facts) else "unsupported"
    moved = 0 if first_line is None else first_line - passage.line_start
    return CheckedCitation(
        marker,
        status,
        _best_line(passage.text, facts),
        passage.path,
        passage.heading,
        passage.line_start + moved,
        passage.line_end + moved,
        passage.sha256,
    )


def _find_passage(passage: Passage, note: Sequence[str]) -> int | None:
    """Return the line at which the passage begins in the note as it is now: at its old place, else at its first one."""
    lines = passage.text.split("\n")
    count = len(lines)
    if count == 1:  # it may be a part of a very long line
        places = (number for number, line in enumerate(note, start=1) if lines[0] in line)
        here = passage.line_start <= len(note) and lines[0] in note[passage.line_start - 1]
        return passage.line_start if here else next(places, None)
    places = [number for number, line in enumerate(note, start=1) if line == lines[0]]
    places.sort(key=lambda number: number != passage.line_start)
    return next((number for number in places if list(note[number - 1 : number - 1 + count]) == lines), None)


def _best_line(text: str, facts: Sequence[_Fact]) -> str:
    lines = text.split("\n")
    if not facts:
        return lines[0]
    counts = [sum(map(_Content(line).has, facts)) for line in lines]
    return lines[counts.index(max(counts))]


# --- claims: sentences with markers -----------------------------------------------------------------------------------

_MARKER = re.compile(r"(?<!\\)\[\^(\d{1,9})\](?!:)")
_MARKER_BEHIND = re.compile(r"\s*\[\^\d{1,9}\](?!:)")
_BLOCK_START = re.compile(r"\s{0,12}(?:[-*+•]\s|\d{1,9}[.)]\s|#{1,6}\s|>\s?|\|)")
_ITEM_SIGN = re.compile(r"\A(?:\s*(?:[-*+•]|\d{1,9}[.)]|#{1,6}|>)\s+)+")
_DEFINITION = re.compile(r"\s{0,3}\[\^[^\]\s]{1,100}\]:")
_CODE_SPAN = re.compile(r"(?<!`)(`{1,3})(?!`)([^`\n]{1,1000})\1(?!`)")
_QUOTE_PAIRS = ('""', "“”", "„“", "„”", "«»", "»«", "‹›", "「」", "『』", "‘’", "《》")
_QUOTED = re.compile("|".join(f"{a}([^{a}{b}\n]{{1,2000}}){b}" for a, b in _QUOTE_PAIRS))
_VERBATIM = re.compile(f"{_CODE_SPAN.pattern}|{_QUOTED.pattern}")
"""Code, or a quotation, which may have code in it."""
_SENTENCE_END = re.compile(r"(?:[.!?…]+[)\]\"'”’»]*(?=\s|\[\^)|[。！？]+[」』）”]*)")
_ABBREVIATION = re.compile(
    r"(?:\b[A-Za-z]|\b(?:Dr|Mr|Mrs|Ms|Prof|St|Sr|Jr|No|Nr|Abs|Art|Bd|Fig|Vol|pp|ca|approx|resp|bzw|vgl|usw|etc|vs|cf|e\.g|"
    r"i\.e|z\. ?B|d\. ?h|u\. ?a))\.\Z",
    re.IGNORECASE,
)
_HIDDEN = "\0"


def _claims(reply: str) -> Iterator[tuple[str, list[int]]]:
    """Yield the sentences that have markers, in order, with the distinct numbers of their markers."""
    for block in _blocks(reply):
        if "[^" not in block:
            continue
        for sentence in _sentences(block):
            hidden = _CODE_SPAN.sub("", sentence)
            markers = list(dict.fromkeys(int(number) for number in _MARKER.findall(hidden)))
            if markers:
                yield _MARKER.sub("", sentence), markers


def _blocks(reply: str) -> Iterator[str]:
    """Yield the texts of paragraphs, list items, headings and table cells; code and definitions are left out."""
    lines = note_lines(reply)
    code = code_lines(reply)
    current: list[str] = []
    in_definition = False
    for number, line in enumerate(lines):
        in_definition = bool(_DEFINITION.match(line)) or (in_definition and line.startswith(("    ", "\t")))
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
    block = _ITEM_SIGN.sub("", block)
    # The ends of sentences within quotations and code are not ends; equal lengths keep all positions.
    masked = _QUOTED.sub(_mask, _CODE_SPAN.sub(_mask, block))
    start = 0
    for end in _SENTENCE_END.finditer(masked):
        if end.start() < start or _ABBREVIATION.search(masked[max(start, end.end() - 12) : end.end()]):
            continue
        stop = end.end()
        while marker := _MARKER_BEHIND.match(masked, stop):
            stop = marker.end()
        following = masked[stop:].lstrip()[:1]
        if following.islower():
            continue
        yield block[start:stop]
        start = stop
    yield block[start:]


def _mask(match: re.Match[str]) -> str:
    return _HIDDEN * len(match[0])


# --- facts ------------------------------------------------------------------------------------------------------------

_DATE = re.compile(
    r"(?<![\d.-])(?P<year>\d{4})-(?P<month>\d{1,2})-(?P<day>\d{1,2})(?![\d-])"
    r"|(?<![\d./])(?P<first>\d{1,2})(?P<sign>[./])(?P<second>\d{1,2})(?P=sign)(?P<last>\d{4})(?![\d/])"
)
_DIGITS = re.compile(r"\d+(?:[.,:/'’]\d+)*")
_SPACED_GROUPS = re.compile(r"(?<![\d.,:/])\d{1,3}(?: \d{3})+(?!\d)")
_MAX_DIGITS = 40
_ELLIPSIS = re.compile(r"\s*\[?(?:…|\.\.\.)\]?\s*")
_MARKDOWN_SIGNS = re.compile(r"[*_`~#>|\[\]\\]+")
_PLAIN_SIGNS = str.maketrans(
    dict.fromkeys("‐‑‒–—−", "-") | dict.fromkeys("“”„«»「」『』‹›《》", '"') | dict.fromkeys("’‘‚", "'")
)


@dataclass(frozen=True, slots=True)
class _Fact:
    """A checkable part of a sentence: of several `choices` the passage must have one, with all its values."""

    kind: Literal["number", "date", "text"]
    choices: tuple[tuple[str, ...], ...]


def _facts(claim: str) -> list[_Fact]:
    """Return the checkable facts of a sentence."""
    rest = unicodedata.normalize("NFKC", claim)
    facts: list[_Fact] = []
    for match in _VERBATIM.finditer(rest):
        text = next(group for group in reversed(match.groups()) if group is not None)
        parts = (_plain(part).strip(" .,;:!?") for part in _ELLIPSIS.split(text))
        facts += [_Fact("text", ((part,),)) for part in parts if part]
    rest = _VERBATIM.sub(_HIDDEN, rest)
    facts += [_Fact("date", tuple((date,) for date in dates)) for dates in _dates(rest)]
    rest = _DATE.sub(_HIDDEN, rest)
    for match in _SPACED_GROUPS.finditer(rest):
        parts = match[0].split()
        facts.append(_Fact("number", (("".join(parts).lstrip("0") or "0",), tuple(map(_integer, parts)))))
    rest = _SPACED_GROUPS.sub(_HIDDEN, rest)
    facts += [_Fact("number", tuple((value,) for value in values)) for values in _numbers(rest)]
    return facts


class _Content:
    """The checkable content of a text."""

    def __init__(self, text: str) -> None:
        text = unicodedata.normalize("NFKC", text)
        self._text = _plain(text)
        self._dates = {date for dates in _dates(text) for date in dates}
        self._numbers = {_integer(part) for date in _DATE.finditer(text) for part in re.findall(r"\d+", date[0])}
        self._numbers.update(_integer(match[0].replace(" ", "")) for match in _SPACED_GROUPS.finditer(text))
        self._numbers.update(value for values in _numbers(_DATE.sub(_HIDDEN, text)) for value in values)

    def has(self, fact: _Fact) -> bool:
        """Return True if the text has the fact."""
        match fact.kind:
            case "number":
                return any(self._numbers.issuperset(choice) for choice in fact.choices)
            case "date":
                return any(self._dates.issuperset(choice) for choice in fact.choices)
            case "text":
                return all(_occurs(part, self._text) for part in fact.choices[0])


def _dates(text: str) -> Iterator[tuple[str, ...]]:
    """Yield the dates of a text as year-month-day: two readings where day and month may be either."""
    for match in _DATE.finditer(text):
        if match["year"]:
            yield (f"{match['year']}-{int(match['month'])}-{int(match['day'])}",)
        else:
            first, second = int(match["first"]), int(match["second"])
            readings = [(second, first)] if match["sign"] == "." else [(second, first), (first, second)]
            yield tuple(f"{match['last']}-{month}-{day}" for month, day in readings)


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


def _integer(digits: str) -> str:
    return digits.lstrip("0") or "0"


def _decimal(whole: str, fraction: str) -> str:
    return f"{_integer(whole)}.{fraction}".rstrip("0").rstrip(".")


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

"""The semantics of search: words without case and accents, and excerpts of the texts that match.

1. A query is terms separated by blanks; a text matches if it has all of them. A term is found at the beginning of
   words: "conf" finds "confirm", "firm" does not. A term of several words ("file_write") is found where they follow
   each other.
2. Scripts that put no blanks between words (Chinese, Japanese, Korean, Thai, …) are searched character by character, so
   that a term of one or two characters finds them anywhere. So are signs such as emoji.
3. `normalize_words` returns a text as its words with blanks between them. An index over that, which breaks at blanks
   and nowhere else, finds exactly the texts for which `SearchQuery.matches` is true.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from agenticx.sessions.log.searchable_texts import Role, SearchableText

__all__ = [
    "MATCHES_SHOWN",
    "MAX_SEARCHED_CHARS",
    "SEARCH_VERSION",
    "SearchExcerpt",
    "SearchQuery",
    "normalize_words",
]

SEARCH_VERSION = f"1 unicode {unicodedata.unidata_version}"
"""The version of the word rules: an index of another version must be rebuilt."""

MATCHES_SHOWN = 3
"""The number of matching texts of a session that a result shows."""

MAX_SEARCHED_CHARS = 200_000
"""The characters at the start of a text in which a search looks."""

_MAX_WORD_CHARS = 64
_MAX_WORDS = 32
_MAX_QUERY_CHARS = 8_000
_CHARS_BEFORE, _CHARS_AFTER = 60, 120
_CHUNK_CHARS, _OVERLAP_CHARS = 8_000, 1_000
_UNSPACED_SCRIPTS = (
    *((0x0E00, 0x0EFF), (0x1000, 0x109F), (0x1780, 0x17FF)),  # Thai, Lao, Burmese, Khmer
    *((0x1100, 0x11FF), (0x2E80, 0x2FDF), (0x3005, 0x3007), (0x3040, 0x31FF)),  # jamo, radicals, kana, bopomofo
    *((0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0xAC00, 0xD7FF), (0xF900, 0xFAFF), (0x20000, 0x3FFFF)),  # Han, Hangul
)
_ACCENTS = ((0x0300, 0x036F), (0x0591, 0x05C7), (0x064B, 0x065F), (0x0670, 0x0670))


@dataclass(frozen=True, slots=True)
class SearchExcerpt:
    """The place of a match: a line of the text around the first match, in three parts."""

    message_id: str | None
    role: Role
    before: str
    found: str
    after: str


def normalize_words(text: str) -> str:
    """Return the words of a text, folded, with a blank between each two.

    >>> normalize_words("Ünïcode's 会议, file_write!")
    'unicode s 会 议 file write'
    """
    normal = unicodedata.normalize("NFC", text[:MAX_SEARCHED_CHARS])
    return " ".join(word[:_MAX_WORD_CHARS] for word in normal.translate(_FOLDED).split())


@dataclass(frozen=True, slots=True)
class SearchQuery:
    """A parsed query: each phrase is the words that must follow each other; the last word is a prefix."""

    phrases: tuple[tuple[str, ...], ...]

    @classmethod
    def parse(cls, query: str) -> SearchQuery:
        """Return the terms of the user's input; none if it contains nothing searchable."""
        phrases: list[tuple[str, ...]] = []
        room = _MAX_WORDS
        for term in query[:_MAX_QUERY_CHARS].split():
            words = tuple(normalize_words(term).split())[:room]
            room -= len(words)
            if words:
                phrases.append(words)
        return cls(tuple(phrases))

    def matches(self, text: str) -> bool:
        """Return True if the text has all terms."""
        words = normalize_words(text).split()
        return bool(self.phrases) and all(
            any(True for _ in _phrase_positions(words, phrase)) for phrase in self.phrases
        )

    def excerpt(self, source: SearchableText) -> SearchExcerpt:
        """Return an excerpt around the first match in a text."""
        text = unicodedata.normalize("NFC", source.text[:MAX_SEARCHED_CHARS])
        offset, chunk = self._first_matching_chunk(text)
        spans = _word_spans(chunk)
        words = [word for word, _, _ in spans]
        start, phrase = min((place, phrase) for phrase in self.phrases for place in _phrase_positions(words, phrase))
        begin, end = offset + spans[start][1], offset + spans[start + len(phrase) - 1][2]
        before, after = text[max(begin - _CHARS_BEFORE, 0) : begin], text[end : end + _CHARS_AFTER]
        return SearchExcerpt(
            source.message_id,
            source.role,
            ("…" if begin > _CHARS_BEFORE else "") + _blanks_only(before),
            _blanks_only(text[begin:end]),
            _blanks_only(after) + ("…" if end + _CHARS_AFTER < len(text) else ""),
        )

    def _first_matching_chunk(self, text: str) -> tuple[int, str]:
        """Return the offset and text of the first chunk that has one of the terms, to split little of a long text."""
        for start in range(0, len(text), _CHUNK_CHARS):
            chunk = text[start : start + _CHUNK_CHARS + _OVERLAP_CHARS]
            skipped = chunk.find(" ", 0, _OVERLAP_CHARS) + 1 if start else 0  # not to begin within a word
            words = normalize_words(chunk[skipped:]).split()
            if any(True for phrase in self.phrases for _ in _phrase_positions(words, phrase)):
                return start + skipped, chunk[skipped:]
        return 0, text


def _phrase_positions(words: Sequence[str], phrase: Sequence[str]) -> Iterator[int]:
    """Yield the indexes in `words` at which the phrase begins."""
    *whole, last = phrase
    for place in range(len(words) - len(phrase) + 1):
        if words[place + len(whole)].startswith(last) and list(words[place : place + len(whole)]) == whole:
            yield place


def _word_spans(text: str) -> list[tuple[str, int, int]]:
    """Return the words of `normalize_words`, each with its start and end in the text."""
    spans: list[tuple[str, int, int]] = []
    word, start, end = "", 0, 0
    for place, character in enumerate(f"{text} "):
        for folded in _FOLDED[ord(character)]:
            if folded != " ":
                word, start, end = word + folded, (start if word else place), place + 1
            elif word:
                spans.append((word[:_MAX_WORD_CHARS], start, end))
                word = ""
    return spans


def _blanks_only(text: str) -> str:
    return "".join(" " if character.isspace() else character for character in text)


class _FoldingTable(dict[int, str]):
    """A cache of the folded form of each character, filled on first use."""

    def __missing__(self, code: int) -> str:
        self[code] = folded = _fold(chr(code))
        return folded


def _fold(character: str) -> str:
    if _in_ranges(character, _UNSPACED_SCRIPTS):
        decomposed = unicodedata.normalize("NFKC", character)
    else:
        decomposed = unicodedata.normalize("NFKD", unicodedata.normalize("NFKD", character).casefold())
    return "".join(_folded_part(part) for part in decomposed)


def _folded_part(character: str) -> str:
    """Return the character as part of a word, as a word of its own, as nothing, or as a separator of words."""
    kind = unicodedata.category(character)
    if _in_ranges(character, _ACCENTS):
        return ""
    if kind[0] in "LMN":
        return f" {character} " if _in_ranges(character, _UNSPACED_SCRIPTS) else character
    if kind[0] == "S" and not character.isascii():
        return f" {character} "
    return " "


def _in_ranges(character: str, ranges: Sequence[tuple[int, int]]) -> bool:
    return any(first <= ord(character) <= last for first, last in ranges)


_FOLDED = _FoldingTable()

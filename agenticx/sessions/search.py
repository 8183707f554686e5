"""What a search means: words without case and accents, and where in a text they stand.

1. A query is terms separated by blanks; a text matches if it has all of them. A term is found at the beginning of
   words: "conf" finds "confirm", "firm" does not. A term of several words ("file_write") is found where they follow
   each other.
2. Scripts that put no blanks between words (Chinese, Japanese, Korean, Thai, …) are searched character by character,
   so that a term of one or two characters finds them anywhere. So are signs such as emoji.
3. `spread` writes a text as its words with blanks between them. An index over that, which breaks at blanks and nowhere
   else, finds exactly what `Terms.match` finds.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from agenticx.messages import AssistantMessage, Message, UserMessage

__all__ = ["MATCHES_SHOWN", "SEARCH_VERSION", "Excerpt", "Said", "Terms", "said_in", "spread"]

SEARCH_VERSION = f"1 unicode {unicodedata.unidata_version}"
"""Changes when words may be cut differently: an index of another version must be made anew."""

MATCHES_SHOWN = 3
"""How many of a session's texts are shown that match."""

_SEARCHED_CHARS = 200_000
_WORD_CHARS = 64
_MOST_WORDS = 32
_QUERY_CHARS = 8_000
_BEFORE, _AFTER = 60, 120
_STRETCH, _OVERLAP = 8_000, 1_000
_DENSE = (
    *((0x0E00, 0x0EFF), (0x1000, 0x109F), (0x1780, 0x17FF)),  # Thai, Lao, Burmese, Khmer
    *((0x1100, 0x11FF), (0x2E80, 0x2FDF), (0x3005, 0x3007), (0x3040, 0x31FF)),  # jamo, radicals, kana, bopomofo
    *((0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0xAC00, 0xD7FF), (0xF900, 0xFAFF), (0x20000, 0x3FFFF)),  # Han, Hangul
)
_ACCENTS = ((0x0300, 0x036F), (0x0591, 0x05C7), (0x064B, 0x065F), (0x0670, 0x0670))

Role = Literal["name", "user", "assistant"]


@dataclass(frozen=True, slots=True)
class Said:
    """A text that can be found: a message of the person or of the model, or the session's name, without an id."""

    message_id: str | None
    role: Role
    text: str


@dataclass(frozen=True, slots=True)
class Excerpt:
    """Where a session was found: a line of the text around the first place, in three pieces."""

    message_id: str | None
    role: Role
    before: str
    found: str
    after: str


def said_in(messages: Sequence[Message]) -> list[Said]:
    """The texts of a conversation that can be found: what was said, not what tools returned or the engine added."""
    texts: list[Said] = []
    for message in messages:
        if isinstance(message, UserMessage) and not message.injected and message.content:
            texts.append(Said(message.message_id, "user", message.content))
        elif isinstance(message, AssistantMessage) and message.content:
            texts.append(Said(message.message_id, "assistant", message.content))
    return texts


def spread(text: str) -> str:
    """The words of a text, folded, with a blank between each two.

    >>> spread("Ünïcode's 会议, file_write!")
    'unicode s 会 议 file write'
    """
    normal = unicodedata.normalize("NFC", text[:_SEARCHED_CHARS])
    return " ".join(word[:_WORD_CHARS] for word in normal.translate(_FOLDED).split())


@dataclass(frozen=True, slots=True)
class Terms:
    """A query: each term is the words that must follow each other, of the last only the beginning."""

    phrases: tuple[tuple[str, ...], ...]

    @classmethod
    def of(cls, query: str) -> Terms:
        """The terms of what a person typed; none if it holds nothing that could be found."""
        phrases: list[tuple[str, ...]] = []
        room = _MOST_WORDS
        for term in query[:_QUERY_CHARS].split():
            words = tuple(spread(term).split())[:room]
            room -= len(words)
            if words:
                phrases.append(words)
        return cls(tuple(phrases))

    def match(self, text: str) -> bool:
        """Whether the text has all of them."""
        words = spread(text).split()
        return bool(self.phrases) and all(any(True for _ in _places(words, phrase)) for phrase in self.phrases)

    def excerpt(self, said: Said) -> Excerpt:
        """The first place in a text that matches."""
        text = unicodedata.normalize("NFC", said.text[:_SEARCHED_CHARS])
        offset, stretch = self._stretch(text)
        spans = _spans(stretch)
        words = [word for word, _, _ in spans]
        start, phrase = min((place, phrase) for phrase in self.phrases for place in _places(words, phrase))
        begin, end = offset + spans[start][1], offset + spans[start + len(phrase) - 1][2]
        before, after = text[max(begin - _BEFORE, 0) : begin], text[end : end + _AFTER]
        return Excerpt(
            said.message_id,
            said.role,
            ("…" if begin > _BEFORE else "") + _one_line(before),
            _one_line(text[begin:end]),
            _one_line(after) + ("…" if end + _AFTER < len(text) else ""),
        )

    def _stretch(self, text: str) -> tuple[int, str]:
        """The first stretch that has one of the terms, and where it begins: little of a long text is cut up."""
        for start in range(0, len(text), _STRETCH):
            stretch = text[start : start + _STRETCH + _OVERLAP]
            skipped = stretch.find(" ", 0, _OVERLAP) + 1 if start else 0  # not to begin within a word
            words = spread(stretch[skipped:]).split()
            if any(True for phrase in self.phrases for _ in _places(words, phrase)):
                return start + skipped, stretch[skipped:]
        return 0, text


def _places(words: Sequence[str], phrase: Sequence[str]) -> Iterator[int]:
    """Where in `words` the phrase begins."""
    *whole, last = phrase
    for place in range(len(words) - len(phrase) + 1):
        if words[place + len(whole)].startswith(last) and list(words[place : place + len(whole)]) == whole:
            yield place


def _spans(text: str) -> list[tuple[str, int, int]]:
    """The words of `spread`, each with the place in the text where it begins and ends."""
    spans: list[tuple[str, int, int]] = []
    word, start, end = "", 0, 0
    for place, character in enumerate(f"{text} "):
        for folded in _FOLDED[ord(character)]:
            if folded != " ":
                word, start, end = word + folded, (start if word else place), place + 1
            elif word:
                spans.append((word[:_WORD_CHARS], start, end))
                word = ""
    return spans


def _one_line(text: str) -> str:
    return "".join(" " if character.isspace() else character for character in text)


class _Folding(dict[int, str]):
    """What each character is searched as, worked out when it is first met."""

    def __missing__(self, code: int) -> str:
        self[code] = folded = _fold(chr(code))
        return folded


def _fold(character: str) -> str:
    if _within(character, _DENSE):
        decomposed = unicodedata.normalize("NFKC", character)
    else:
        decomposed = unicodedata.normalize("NFKD", unicodedata.normalize("NFKD", character).casefold())
    return "".join(_folded_part(part) for part in decomposed)


def _folded_part(character: str) -> str:
    """As part of a word, as a word of its own, as nothing, or as what separates words."""
    kind = unicodedata.category(character)
    if _within(character, _ACCENTS):
        return ""
    if kind[0] in "LMN":
        return f" {character} " if _within(character, _DENSE) else character
    if kind[0] == "S" and not character.isascii():
        return f" {character} "
    return " "


def _within(character: str, ranges: Sequence[tuple[int, int]]) -> bool:
    return any(first <= ord(character) <= last for first, last in ranges)


_FOLDED = _Folding()

"""Names of participants in a model's reply."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

__all__ = ["MAX_REPLY_CHARS", "named_candidates"]

MAX_REPLY_CHARS = 4_000
"""The characters of a reply that may name somebody; a choice of a speaker is short."""

_HYPHENS = "-\N{HYPHEN}"  # NFKC makes one of U+2011, which models write too


class _Word(NamedTuple):
    """A run of letters, digits and marks; `joint` is what stands between it and the word before."""

    folded: str
    start: int
    end: int
    joint: str

    @property
    def is_joined(self) -> bool:
        """True if it may be a further part of a name, as in `code_writer`, `code-writer` or `code writer`."""
        return self.is_attached or (self.joint != "" and self.joint.isspace())

    @property
    def is_attached(self) -> bool:
        """True if it and the word before are parts of one identifier."""
        return self.joint != "" and (not self.joint.strip("_") or self.joint in _HYPHENS)


@dataclass(slots=True)
class _Names:
    """A node of a tree of names by words: candidates that end here, and child nodes by the next word."""

    alike: list[str] = field(default_factory=list[str])
    longer: dict[str, _Names] = field(default_factory=lambda: dict[str, _Names]())


def named_candidates(text: str, candidates: Sequence[str]) -> list[str]:
    """Return the candidates that `text` names, each once; none for more than `MAX_REPLY_CHARS`.

    Underscores may be escaped or written as spaces or hyphens, and stand around a name as emphasis. Case and
    separators count only between candidates that differ in nothing else. The longest name counts where several match.

    >>> named_candidates("I think **Code\\\\_Writer** should go on.", ["code_writer", "critic"])
    ['code_writer']
    >>> named_candidates("writer, then Critic", ["writer", "critic", "writer_2"])
    ['writer', 'critic']
    """
    text = unicodedata.normalize("NFKC", text[: MAX_REPLY_CHARS + 1])
    if len(text) > MAX_REPLY_CHARS:
        return []
    text = text.replace("\\_", "_").replace("\\-", "-")
    words, known = [*_words(text)], _by_words(candidates)
    named: dict[str, None] = {}
    at = 0
    while at < len(words):
        alike, end = _longest_name(words, at, known)
        named |= dict.fromkeys(_as_written(alike, text, words[at:end]) if alike else ())
        at = end
    return list(named)


def _longest_name(words: Sequence[_Word], at: int, known: _Names) -> tuple[Sequence[str], int]:
    """Return the candidates with the longest name that begins at a word, and the index after the name or the word."""
    found, found_end = list[str](), at
    if words[at].is_attached:
        return found, at + 1
    end, names = at, known
    while end < len(words) and (end == at or words[end].is_joined) and words[end].folded in names.longer:
        names = names.longer[words[end].folded]
        end += 1
        if names.alike and not (end < len(words) and words[end].is_attached):
            found, found_end = names.alike, end
    return found, found_end if found else at + 1


def _words(text: str) -> Iterator[_Word]:
    """Yield the words of a text; underscores and hyphens are between them."""
    start, after = -1, len(text)  # of the word that is being read, -1 between words; the end of the one before
    for at, char in enumerate(f"{text} "):
        is_part = char != "_" and f"a{char}".isidentifier()
        if is_part and start < 0:
            start = at
        elif not is_part and start >= 0:
            yield _Word(text[start:at].casefold(), start, at, text[after:start])
            start, after = -1, at


def _by_words(candidates: Sequence[str]) -> _Names:
    """Return the candidates by the words of their names."""
    known = _Names()
    for name in candidates:
        names = known
        for word in _words(unicodedata.normalize("NFKC", name)):
            names = names.longer.setdefault(word.folded, _Names())
        if names is not known:
            names.alike.append(name)
    return known


def _as_written(alike: Sequence[str], text: str, words: Sequence[_Word]) -> Sequence[str]:
    """Return the candidates whose case and separators match the text exactly; all if there is none."""
    start, end = words[0].start, words[-1].end
    left, right = start, end  # of the underscores around it too
    while left > 0 and text[left - 1] == "_":
        left -= 1
    while right < len(text) and text[right] == "_":
        right += 1
    for written in (text[left:right], text[start:end]):
        if exact := [name for name in alike if unicodedata.normalize("NFKC", name) == written]:
            return exact
    spaced = _with_spaces(text[start:end])
    return [name for name in alike if _with_spaces(unicodedata.normalize("NFKC", name)) == spaced] or alike


def _with_spaces(name: str) -> str:
    """Return a name with single spaces as its separators."""
    return " ".join(name[word.start : word.end] for word in _words(name))

"""The words of texts as PostgreSQL indexes them, and a query in the language of that index.

An entry of the index is a word of `normalize_words`, or two neighbouring words. The index has no positions, since a
`tsvector` holds few of them: it finds a few texts too many, and each text is compared again.
"""

from __future__ import annotations

from collections.abc import Collection
from itertools import pairwise

from agenticx.sessions.store.search import SearchQuery, normalize_words

__all__ = ["expression", "lexemes", "pair_expression"]

_MAX_VECTOR_BYTES = 1_000_000  # a `tsvector` holds 1,048,575


def lexemes(text: str) -> tuple[list[str] | None, bool]:
    """Return the distinct words of a text and its pairs of words, and whether it has the pairs.

    A text with too many for an index has only the words, or None: then each search looks at the text itself.
    """
    words = normalize_words(text).split()
    single = dict.fromkeys(words)
    both = single | dict.fromkeys(f"{first} {second}" for first, second in pairwise(words))
    if _fits(both):
        return [*both], True
    return [*single] if _fits(single) else None, False


def _fits(words: Collection[str]) -> bool:
    return sum(len(word.encode()) + 1 for word in words) <= _MAX_VECTOR_BYTES


def expression(query: SearchQuery) -> str:
    """Return the `tsquery` for the texts that have all words of the query."""
    return " & ".join(
        _quoted(word, is_prefix=place == len(phrase))
        for phrase in query.phrases
        for place, word in enumerate(phrase, 1)
    )


def pair_expression(query: SearchQuery) -> str | None:
    """Return the `tsquery` for the texts that have all pairs of words of the query, None if it has no pair."""
    pairs = [
        _quoted(f"{first} {second}", is_prefix=place == len(phrase))
        for phrase in query.phrases
        for place, (first, second) in enumerate(pairwise(phrase), 2)
    ]
    return " & ".join(pairs) or None


def _quoted(word: str, *, is_prefix: bool) -> str:
    """Return a word, which has no quote and no backslash, in the syntax of a `tsquery`."""
    return f"'{word}'{':*' if is_prefix else ''}"

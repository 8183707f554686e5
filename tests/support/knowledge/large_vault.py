"""A vault of many random notes, for measurements."""

from __future__ import annotations

import random
from itertools import accumulate
from pathlib import Path

__all__ = ["random_words", "write_large_vault"]

_SYLLABLES = [consonant + vowel for consonant in "bcdfghklmnprstvz" for vowel in "aeiou"]


def random_words(count: int) -> list[str]:
    """Return so many different words."""
    rng = random.Random(1)
    words: dict[str, None] = {}
    while len(words) < count:
        words["".join(rng.choices(_SYLLABLES, k=rng.randint(2, 4)))] = None
    return list(words)


def write_large_vault(root: Path, *, notes: int, chars: int = 2_000) -> int:
    """Write notes with headings, lists, links and tags into folders of 100, and return the bytes of all.

    Words are as frequent as in a language: the n-th has 1/n of the first one's occurrences (Zipf).
    """
    rng = random.Random(2)
    words = random_words(20_000)
    weights = list(accumulate(1 / rank for rank in range(1, len(words) + 1)))

    def text(count: int) -> str:
        return " ".join(rng.choices(words, cum_weights=weights, k=count))

    size = 0
    for number in range(notes):
        parts = [f"---\ntags: [{text(1)}, {text(1)}]\n---\n# {text(3).title()} {number}\n"]
        while sum(map(len, parts)) < chars:
            link = f"[[{text(3).title()} {rng.randrange(notes)}]]"
            parts.append(f"## {text(3)}\n\n{text(60)}\n{text(40)} {link}.\n\n- {text(6)}\n- {text(6)} #{text(1)}\n")
        file = root / f"{number // 100:03}" / f"{text(1)} {number}.md"
        file.parent.mkdir(parents=True, exist_ok=True)
        content = "\n".join(parts)[:chars].encode()
        file.write_bytes(content)
        size += len(content)
    return size

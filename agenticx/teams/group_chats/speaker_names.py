"""Names of participants in a model's reply."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

__all__ = ["named_candidates"]

_EMPHASIS = re.compile(r"(?<![\w\\])(?:\\?_)+(?=\w)|(?<=[^\W_])(?:\\?_)+(?!\w)")  # as in _writer_ or \_writer\_


def named_candidates(text: str, candidates: Sequence[str]) -> list[str]:
    """Return the candidates that `text` names, each once.

    Underscores may be escaped or written as spaces, and stand around a name as emphasis. Case counts only between
    candidates that differ in nothing else. The longest name counts where several match.

    >>> named_candidates("I think **Code\\\\_Writer** should go on.", ["code_writer", "critic"])
    ['code_writer']
    >>> named_candidates("writer, then Critic", ["writer", "critic", "writer_2"])
    ['writer', 'critic']
    """
    text = unicodedata.normalize("NFKC", text)
    return _named(text, candidates) or _named(_EMPHASIS.sub("", text), candidates)


def _named(text: str, candidates: Sequence[str]) -> list[str]:
    if not candidates:
        return []
    by_key: dict[str, list[str]] = {}
    for name in sorted(candidates, key=len, reverse=True):
        by_key.setdefault(unicodedata.normalize("NFKC", name).casefold(), []).append(name)
    pattern = "|".join(f"({_pattern(names[0])})" for names in by_key.values())
    groups = [*by_key.values()]
    named: dict[str, None] = {}
    for match in re.finditer(rf"(?<!\w)(?:{pattern})(?!\w)", text, re.IGNORECASE):
        assert match.lastindex is not None
        alike = groups[match.lastindex - 1]
        exact = [name for name in alike if len(alike) == 1 or re.fullmatch(_pattern(name), match[0])]
        named |= dict.fromkeys(exact or alike)
    return list(named)


def _pattern(name: str) -> str:
    return r"(?:\\?_|\s+)".join(map(re.escape, unicodedata.normalize("NFKC", name).split("_")))

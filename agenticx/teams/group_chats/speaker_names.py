"""Names of participants in a model's reply."""

from __future__ import annotations

import re
from collections.abc import Sequence

__all__ = ["named_candidates"]


def named_candidates(text: str, candidates: Sequence[str]) -> list[str]:
    """Return the candidates that `text` names, each once.

    Underscores may be escaped or written as spaces. Case counts only if it must: a text that names candidates as they
    are written names no others. The longest name counts where several match.

    >>> named_candidates("I think **Code\\\\_Writer** should go on.", ["code_writer", "critic"])
    ['code_writer']
    >>> named_candidates("writer, then critic", ["writer", "critic", "writer_2"])
    ['writer', 'critic']
    """
    return _named(text, candidates, re.NOFLAG) or _named(text, candidates, re.IGNORECASE)


def _named(text: str, candidates: Sequence[str], flags: re.RegexFlag) -> list[str]:
    if not candidates:
        return []
    longest_first = sorted(candidates, key=len, reverse=True)
    pattern = "|".join(f"({_pattern(name)})" for name in longest_first)
    found = re.finditer(rf"(?<!\w)(?:{pattern})(?!\w)", text, flags)
    return list(dict.fromkeys(longest_first[match.lastindex - 1] for match in found if match.lastindex))


def _pattern(name: str) -> str:
    return r"(?:\\?_| )".join(map(re.escape, name.split("_")))

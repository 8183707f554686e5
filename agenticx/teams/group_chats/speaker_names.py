"""Names of participants in a model's reply."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

__all__ = ["named_candidates"]

_HYPHEN = "[-\N{HYPHEN}]"  # NFKC makes one of U+2011, which models write too
_SEPARATOR = rf"(?:\\?(?:_|{_HYPHEN})|\s+)"
_EMPHASIS = re.compile(r"(?<![\w\\])(?:\\?_)+(?=\w)|(?<=[^\W_])(?:\\?_)+(?!\w)")  # as in _writer_ or \_writer\_


def named_candidates(text: str, candidates: Sequence[str]) -> list[str]:
    """Return the candidates that `text` names, each once.

    Underscores may be escaped or written as spaces or hyphens, and stand around a name as emphasis. Case and
    separators count only between candidates that differ in nothing else. The longest name counts where several match.

    >>> named_candidates("I think **Code\\\\_Writer** should go on.", ["code_writer", "critic"])
    ['code_writer']
    >>> named_candidates("writer, then Critic", ["writer", "critic", "writer_2"])
    ['writer', 'critic']
    """
    text = _normalized(text)
    return _named(text, candidates) or _named(_EMPHASIS.sub("", text), candidates)


def _named(text: str, candidates: Sequence[str]) -> list[str]:
    if not candidates:
        return []
    by_key: dict[str, list[str]] = {}
    for name in sorted(candidates, key=len, reverse=True):
        by_key.setdefault(_with_spaces(name).casefold(), []).append(name)
    groups = [*by_key.values()]
    pattern = "|".join(f"({_pattern(names[0])})" for names in groups)
    named: dict[str, None] = {}
    for match in re.finditer(rf"(?<!\w)(?<!\w{_HYPHEN})(?:{pattern})(?!{_HYPHEN}?\w)", text, re.IGNORECASE):
        assert match.lastindex is not None
        alike, spelled = groups[match.lastindex - 1], match[0].replace("\\", "")
        exact = [name for name in alike if len(alike) == 1 or _normalized(name) == spelled]
        exact = exact or [name for name in alike if _with_spaces(name) == _with_spaces(spelled)]
        named |= dict.fromkeys(exact or alike)
    return list(named)


def _normalized(text: str) -> str:
    return unicodedata.normalize("NFKC", text)


def _with_spaces(name: str) -> str:
    """Return a name with single spaces as its separators."""
    return re.sub(_SEPARATOR, " ", _normalized(name))


def _pattern(name: str) -> str:
    return _SEPARATOR.join(map(re.escape, re.split(_SEPARATOR, _normalized(name))))

"""The names that a misspelt one may mean."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["similar_name", "similar_names"]

_CUTOFF = 0.6
_MAX_CHARS = 100


def similar_name(word: str, names: Iterable[str], *, cutoff: float = _CUTOFF) -> str | None:
    """Return the name most like `word`, None if none is similar.

    Two letters that changed places count less than one that is missing; `cutoff` is a ratio as in `difflib`, 0 to 1.

    >>> similar_name("modle", ["mode", "model"])
    'model'
    """
    names = list(names)
    same_letters = [name for name in names if len(name) == len(word) and sorted(name) == sorted(word)]
    return next(iter(similar_names(word, same_letters or names, number=1, cutoff=cutoff)), None)


def similar_names(word: str, names: Iterable[str], *, number: int, cutoff: float = _CUTOFF) -> list[str]:
    """Return up to `number` names like `word`, the most similar first.

    >>> similar_names("modle", ["keys", "mode", "model"], number=2)
    ['mode', 'model']
    """
    if len(word) > _MAX_CHARS:
        return []
    from difflib import get_close_matches  # imported only for an unknown name

    return get_close_matches(word, list(names), n=number, cutoff=cutoff)

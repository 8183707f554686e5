"""The name that a misspelt one may mean."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["similar_name"]

_CUTOFF = 0.6
_MAX_CHARS = 100


def similar_name(word: str, names: Iterable[str], *, cutoff: float = _CUTOFF) -> str | None:
    """Return the one of `names` that is most like `word`, None if none is.

    Two letters that changed places count less than one that is missing; `cutoff` is a ratio as in `difflib`, 0 to 1.

    >>> similar_name("modle", ["mode", "model"])
    'model'
    """
    if len(word) > _MAX_CHARS:
        return None
    from difflib import get_close_matches  # imported only for an unknown name

    names = list(names)
    same_letters = [name for name in names if sorted(name) == sorted(word)]
    return next(iter(get_close_matches(word, same_letters or names, n=1, cutoff=cutoff)), None)

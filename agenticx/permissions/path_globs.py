"""Globs of paths in rules: `*` matches within a name, `**` also folders."""

from __future__ import annotations

import re
from functools import lru_cache

__all__ = ["may_match_below", "path_matches"]


def path_matches(pattern: str, path: str) -> bool:
    """Return whether a path matches a glob; the work is at most the product of their numbers of names.

    >>> [path_matches("src/**", path) for path in ("src/a.py", "src/b/c.py", "src", "lib/a.py")]
    [True, True, False, False]
    >>> [path_matches("**/*.md", path) for path in ("a.md", "docs/a.md", "a.mdx")]
    [True, True, False]
    """
    names = pattern.split("/")
    places = _after_any(names, {0})
    for name in path.split("/"):
        places = _after_any(names, _next_places(names, places, name))
    return len(names) in places or (
        len(names) - 1 in places and names[-1] == "**" and path.count("/") >= len(names) - 1
    )


def may_match_below(pattern: str, folder: str, levels: int | None) -> bool:
    """Return whether a glob may match a file in a folder, at most `levels` below it; the workspace's own folder is "".

    >>> [may_match_below("src/*/a.md", folder, 1) for folder in ("", "src", "src/b", "lib")]
    [False, False, True, False]
    """
    names = pattern.split("/")
    places = _after_any(names, {0})
    for name in folder.split("/") if folder else ():
        places = _after_any(names, _next_places(names, places, name))
    shortest = (sum(name != "**" for name in names[place:]) for place in places if place < len(names))
    return any(levels is None or count + (names[-1] == "**") <= levels for count in shortest)


def _next_places(names: list[str], places: set[int], name: str) -> set[int]:
    return {
        place if names[place] == "**" else place + 1
        for place in places
        if place < len(names) and (names[place] == "**" or _name_regex(names[place]).fullmatch(name))
    }


def _after_any(names: list[str], places: set[int]) -> set[int]:
    """Return the places in a glob, including the place after a `**` that matches no more names, except at its end."""
    found = set(places)
    for place in range(len(names) - 1):
        if place in found and names[place] == "**":
            found.add(place + 1)
    return found


@lru_cache(maxsize=512)
def _name_regex(glob: str) -> re.Pattern[str]:
    """Return the regular expression of a glob of names; each `*` takes the first match of what follows it."""
    first, *rest = (re.escape(part).replace(r"\?", ".") for part in re.split(r"\*+", glob))
    if not rest:
        return re.compile(first, re.DOTALL)
    *middle, last = rest
    # A lookahead and its group stand for an atomic group, which Python before 3.11.5 matches wrongly.
    first_matches = (f"(?=(?P<part{n}>.*?{part}))(?P=part{n})" for n, part in enumerate(middle))
    return re.compile(f"{first}{''.join(first_matches)}.*{last}", re.DOTALL)

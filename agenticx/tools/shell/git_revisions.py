"""The objects that a word of a git command may name: a commit, a range, or a file in a commit.

Git takes the first reading of a word that exists: `a..b` is a range, else the name of a file. All readings are looked
up. Each that exists must be a commit, or a file by its path in a commit: an object named by its hash could be a secret
file, or a folder whose name makes its files secret.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from agenticx.secret_detection import is_secret_file
from agenticx.tools.base import Obstacle
from agenticx.tools.visible import visible_line

__all__ = ["EMPTY_TREES", "NamedObject", "Readings", "read_revision"]

EMPTY_TREES = frozenset(
    {
        "4b825dc642cb6eb9a060e54bf8d69288fbee4904",
        "6ef19b41225c5369f1c104d45d8d85efa9b057b53b14b4b9b939dd74decc5321",
    }
)

_MAX_SPLITS = 8
_SHOWN_CHARS = 200
_SUFFIX = re.compile(r"\^(?:@|!|-[0-9]*)\Z")
_STAGE = re.compile(r"\A[0-3]:")
_PATHSPEC = re.compile(r":|.*[*?\[\\]", re.DOTALL)


@dataclass(frozen=True, slots=True)
class NamedObject:
    """An expression for one object: a revision, or with a `path` a file in it; without a revision, a file of the index.

    The path is as written; it may be relative, as in `./a` and `../a`.
    """

    expression: str
    revision: str
    path: str | None = None

    @property
    def commit(self) -> str:
        """The expression for the commit that the revision must be; `X^{tree}` is the whole tree of one."""
        return f"{self.revision.removesuffix('^{tree}')}^{{}}"

    def find_obstacle(self, types: Mapping[str, str], prefix: str, *, takes_folders: bool) -> Obstacle | None:
        """Return None if the object is missing, a commit, or a file of a commit without secrets, else the obstacle."""
        kind = types.get(self.expression)
        if kind is None or self.expression.startswith(":/"):
            return None
        if self.path is None:
            kind = types.get(self.commit)
            return None if kind in ("commit", "empty tree") else _unproved(self.revision)
        if self.revision and types.get(self.commit) != "commit":
            return _unproved(self.revision)
        path = os.path.normpath(os.path.join(prefix, self.path) if self.path[:1] == "." else self.path)
        if is_secret_file(*path.split("/")):
            return Obstacle(f"it would show `{_shown(path)}`, which usually holds keys or passwords", is_secret=True)
        if kind == "tree" and path != "." and not takes_folders:
            return Obstacle(f"of the files in the folder `{_shown(self.expression)}` it would not show the whole names")
        return None


@dataclass(frozen=True, slots=True)
class Readings:
    """The readings of a word: as one object, perhaps with `^` in front or `^!` behind, and as ranges.

    `is_pathspec` is True for a pattern of paths, for which no file need exist.
    """

    whole: tuple[NamedObject, ...]
    ranges: tuple[tuple[NamedObject, NamedObject], ...]
    is_pathspec: bool

    def objects(self) -> Iterator[NamedObject]:
        """Yield all objects that the word may name."""
        yield from self.whole
        for pair in self.ranges:
            yield from pair

    def names_any(self, types: Mapping[str, str]) -> bool:
        """Return whether the word names objects that exist, of these `types`."""
        return any(one.expression in types for one in self.whole) or any(
            first.expression in types and second.expression in types for first, second in self.ranges
        )

    def is_file(self, types: Mapping[str, str]) -> bool:
        """Return whether the word names one file or folder by its path in a commit or the index."""
        return self.whole[0].path is not None and self.whole[0].expression in types


def _unproved(revision: str) -> Obstacle:
    return Obstacle(f"`{_shown(revision)}` is not known to be a commit: it may be a file, with keys for example")


def _shown(text: str) -> str:
    return visible_line(text, _SHOWN_CHARS)


def read_revision(word: str) -> Readings | None:
    """Return the readings of a word; None for one that is not read: with a line break, or many times `..`.

    >>> [[one.expression for one in pair] for pair in read_revision("main..HEAD:a.py").ranges]
    [['main', 'HEAD:a.py']]
    """
    places = [match.start() for match in re.finditer(r"(?=\.\.)", word)]
    if "\n" in word or len(places) > _MAX_SPLITS:
        return None
    plain = word.removeprefix("^")
    names = dict.fromkeys((word, plain, _SUFFIX.sub("", word), _SUFFIX.sub("", plain)))
    ranges = list[tuple[NamedObject, NamedObject]]()
    for place in places:
        first, second = word[:place].removeprefix("^"), word[place + 2 :]
        ranges += [
            (_object(first or "HEAD"), _object(end or "HEAD"))
            for end in dict.fromkeys((second, second.removeprefix(".")))
        ]
    return Readings(tuple(map(_object, filter(None, names))), tuple(ranges), _PATHSPEC.match(word) is not None)


def _object(expression: str) -> NamedObject:
    """Split an expression at its first colon outside of braces, as git does; `:/text` is a commit by its message."""
    depth = 0
    for place, character in enumerate(expression):
        if character == ":" and not depth and not expression.startswith(":/"):
            path = expression[place + 1 :]
            return NamedObject(expression, expression[:place], path if place else _STAGE.sub("", path))
        depth = max(depth + (character == "{") - (character == "}"), 0)
    return NamedObject(expression, expression)

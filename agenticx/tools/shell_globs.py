"""Globs of one path component as bash matches them: `*`, `?` and `[…]`, in bounded time."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["ShellGlob", "is_glob"]

_SPECIAL = re.compile(r"[*?[]")
_STAR = "*"


@dataclass(frozen=True, slots=True)
class _Class:
    """One character of a `[…]`: single characters and ranges."""

    negated: bool
    characters: frozenset[str]
    ranges: tuple[tuple[str, str], ...]

    def holds(self, character: str) -> bool:
        found = character in self.characters or any(low <= character <= high for low, high in self.ranges)
        return found is not self.negated


_Token = str | _Class
"""`*`, `?`, a class, or any other character, which stands for itself."""


def is_glob(text: str) -> bool:
    """Return whether `text` holds a character that bash may expand."""
    return _SPECIAL.search(text) is not None


@dataclass(frozen=True, slots=True)
class ShellGlob:
    """A parsed glob. `prefix` and `suffix` are its literal beginning and end."""

    tokens: tuple[_Token, ...]
    prefix: str
    suffix: str
    shortest: int

    @classmethod
    def parse(cls, text: str) -> ShellGlob:
        """Parse a glob; a `[` that is never closed stands for itself, as in bash."""
        tokens = tuple(_tokens(text))
        prefix = _literals(tokens)
        suffix = "" if len(prefix) == len(tokens) else _literals(tokens[::-1])[::-1]
        return cls(tokens, prefix, suffix, sum(token != _STAR for token in tokens))

    def matches(self, name: str, spend: Callable[[int], None]) -> bool:
        """Return whether the glob matches all of `name`. `spend` is told the steps that it took, and may raise.

        A leading `*`, `?` or `[` matches no dot.
        """
        spend(1)
        if len(name) < self.shortest or not name.startswith(self.prefix) or not name.endswith(self.suffix):
            return False
        if name.startswith(".") and not self.prefix:
            return False
        middle = self.tokens[len(self.prefix) : len(self.tokens) - len(self.suffix)]
        if middle == (_STAR,):
            return True
        return _matches(middle, name[len(self.prefix) : len(name) - len(self.suffix)], spend)


def _matches(tokens: tuple[_Token, ...], text: str, spend: Callable[[int], None]) -> bool:
    """Match with one place to come back to: behind the last star, one character further each time."""
    position = place = 0
    star: int | None = None
    retried = 0
    while place < len(text):
        spend(1)
        token = tokens[position] if position < len(tokens) else None
        if token == _STAR:
            star, retried = position, place
            position += 1
        elif token is not None and _fits(token, text[place], spend):
            position, place = position + 1, place + 1
        elif star is not None:
            retried += 1
            position, place = star + 1, retried
        else:
            return False
    return all(token == _STAR for token in tokens[position:])


def _fits(token: _Token, character: str, spend: Callable[[int], None]) -> bool:
    match token:
        case _Class():
            spend(len(token.ranges))
            return token.holds(character)
        case _:
            return token in ("?", character)


def _literals(tokens: tuple[_Token, ...]) -> str:
    """Return the characters that `tokens` begin with, up to the first that is special."""
    characters: list[str] = []
    for token in tokens:
        if isinstance(token, _Class) or token in "*?":
            break
        characters.append(token)
    return "".join(characters)


def _tokens(text: str) -> list[_Token]:
    tokens: list[_Token] = []
    index = 0
    unclosed = False
    while index < len(text):
        character = text[index]
        end = -1
        if character == "[" and not unclosed:
            start = index + 1 + (text[index + 1 : index + 2] in {"!", "^"})
            end = text.find("]", start + 1)  # a `]` in first place belongs to the class
            unclosed = end < 0
        if end >= 0:
            tokens.append(_class(text[index + 1 : end]))
            index = end
        elif character != _STAR or tokens[-1:] != [_STAR]:
            tokens.append(character)
        index += 1
    return tokens


def _class(body: str) -> _Class:
    negated = body[:1] in {"!", "^"}
    rest = body[negated:]
    characters: set[str] = set()
    ranges: list[tuple[str, str]] = []
    index = 0
    while index < len(rest):
        if rest[index + 1 : index + 2] == "-" and index + 2 < len(rest):
            ranges.append((rest[index], rest[index + 2]))
            index += 3
        else:
            characters.add(rest[index])
            index += 1
    return _Class(negated, frozenset(characters), tuple(ranges))

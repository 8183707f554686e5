"""Matching of bash globs of one path component (`*`, `?` and `[…]`) in bounded time.

A `[…]` with a named class (`[:alpha:]`, `[.x.]` or `[=x=]`) is treated as matching any character, so that the
glob may match too much but never too little.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["ShellGlob", "is_glob", "simplify_classes"]

_SPECIAL = re.compile(r"[*?[]")
_NAMED_CLASSES = (":", ".", "=")
_SEPARATOR_OR_CLASS = re.compile(r"[\s;|&<>()`$=:,\ue000[]")
_STAR = "*"


@dataclass(frozen=True, slots=True)
class _Class:
    """A parsed `[…]`, to match one character: single characters and ranges."""

    negated: bool
    characters: frozenset[str]
    ranges: tuple[tuple[str, str], ...]

    def contains(self, character: str) -> bool:
        found = character in self.characters or any(low <= character <= high for low, high in self.ranges)
        return found is not self.negated


_Token = str | _Class
"""`*`, `?`, a class, or a literal character."""


def is_glob(text: str) -> bool:
    """Return whether `text` holds a character that may begin a glob."""
    return _SPECIAL.search(text) is not None


def simplify_classes(path: str) -> str:
    """Return `path` with `?` for each `[…]` that holds a word separator, a quoted character or a named class."""
    return "/".join(map(_simplify_part, path.split("/")))


def _simplify_part(part: str) -> str:
    parts: list[str] = []
    position = 0
    last = _last_class_ends(part)
    while (start := part.find("[", position)) >= 0 and (end := _end_of_class(part, start, last)) >= 0:
        is_simple = _SEPARATOR_OR_CLASS.search(part, start + 1, end) is None
        parts += (part[position:start], part[start : end + 1] if is_simple else "?")
        position = end + 1
    return "".join([*parts, part[position:]])


@dataclass(frozen=True, slots=True)
class ShellGlob:
    """A parsed glob. `prefix` and `suffix` are literal; `min_length` is the length of the shortest match."""

    tokens: tuple[_Token, ...]
    prefix: str
    suffix: str
    min_length: int

    @classmethod
    def parse(cls, text: str) -> ShellGlob:
        """Parse a glob; an unclosed `[` is a literal character, as in bash."""
        tokens = tuple(_tokens(text))
        prefix = _literals(tokens)
        suffix = "" if len(prefix) == len(tokens) else _literals(tokens[::-1])[::-1]
        return cls(tokens, prefix, suffix, sum(token != _STAR for token in tokens))

    def match(self, name: str, spend: Callable[[int], None]) -> bool:
        """Match all of `name`. `spend` is called with the steps taken, and may raise.

        A leading `*`, `?` or `[` does not match a dot.
        """
        spend(1)
        if len(name) < self.min_length or not name.startswith(self.prefix) or not name.endswith(self.suffix):
            return False
        if name.startswith(".") and not self.prefix:
            return False
        middle = self.tokens[len(self.prefix) : len(self.tokens) - len(self.suffix)]
        if middle == (_STAR,):
            return True
        return _match_tokens(middle, name[len(self.prefix) : len(name) - len(self.suffix)], spend)

    def fixed_prefix_length(self, beginning: str, spend: Callable[[int], None]) -> int:
        """Return how many characters of `beginning` the glob fixes, or 0 if no matching name can begin with it."""
        for position, character in enumerate(beginning):
            spend(1)
            token = self.tokens[position] if position < len(self.tokens) else None
            if token == _STAR:
                return position
            if token is None or not _match_token(token, character, spend):
                return 0
        return len(beginning)

    def fixed_count(self) -> int:
        """Return the number of characters that the glob fixes, by a literal or by a `[…]` that is not negated."""
        return _count_fixed(self.tokens)

    def fixed_stem_count(self) -> int:
        """Return `fixed_count()`, or 0 if all fixed characters are in the ending after the last dot."""
        dots = [index for index, token in enumerate(self.tokens) if token == "."]
        stem = self.tokens[: dots[-1]] if dots else self.tokens
        return _count_fixed(self.tokens) if _count_fixed(stem) else 0


def _count_fixed(tokens: tuple[_Token, ...]) -> int:
    return sum(not token.negated if isinstance(token, _Class) else token not in "*?" for token in tokens)


def _match_tokens(tokens: tuple[_Token, ...], text: str, spend: Callable[[int], None]) -> bool:
    """Match with a single backtracking point: after the last star, one character further for each retry."""
    token_index = index = 0
    star: int | None = None
    retried = 0
    while index < len(text):
        spend(1)
        token = tokens[token_index] if token_index < len(tokens) else None
        if token == _STAR:
            star, retried = token_index, index
            token_index += 1
        elif token is not None and _match_token(token, text[index], spend):
            token_index, index = token_index + 1, index + 1
        elif star is not None:
            retried += 1
            token_index, index = star + 1, retried
        else:
            return False
    return all(token == _STAR for token in tokens[token_index:])


def _match_token(token: _Token, character: str, spend: Callable[[int], None]) -> bool:
    match token:
        case _Class():
            spend(len(token.ranges))
            return token.contains(character)
        case _:
            return token in ("?", character)


def _literals(tokens: tuple[_Token, ...]) -> str:
    """Return the literal characters at the beginning of `tokens`."""
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
    last = _last_class_ends(text)
    while index < len(text):
        character = text[index]
        end = -1
        if character == "[" and not unclosed:
            end = _end_of_class(text, index, last)
            unclosed = end < 0
        if end >= 0:
            tokens.append(_class(text[index + 1 : end]))
            index = end
        elif character != _STAR or tokens[-1:] != [_STAR]:
            tokens.append(character)
        index += 1
    return tokens


def _last_class_ends(text: str) -> dict[str, int]:
    """Return the offsets of the last `:]`, `.]` and `=]`, each -1 if there is none."""
    return {sign: text.rfind(f"{sign}]") for sign in _NAMED_CLASSES}


def _end_of_class(text: str, start: int, last: dict[str, int]) -> int:
    """Return the offset of the `]` that ends the `[…]` at `start`, or -1; a `]` in first position is literal."""
    index = start + 1 + (text[start + 1 : start + 2] in {"!", "^"})
    index += text[index : index + 1] == "]"
    while index < len(text):
        if text[index] == "]":
            return index
        sign = text[index + 1 : index + 2]
        if text[index] == "[" and last.get(sign, -1) >= index + 2:
            index = text.find(f"{sign}]", index + 2) + 2
        else:
            index += 1
    return -1


def _class(body: str) -> _Class:
    if any(f"[{sign}" in body for sign in _NAMED_CLASSES):
        return _Class(True, frozenset(), ())
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

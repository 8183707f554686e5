"""Tool names and call ids in the form that a provider accepts, and their original names.

A model may call a tool by any name, and another provider's ids may have any form; a server that refuses one of them
refuses every later request of the session. So identifiers are always sent in the form of the wire's rule:

1. An identifier that fits is sent as it is. Any other keeps its allowed characters, and a digest of it is appended.
2. Within a request no two originals are sent under one identifier, and no two calls under one id.
3. The same history always gives the same identifiers, and a longer history begins with the same ones, so that the
   providers' prompt caches apply.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from agenticx.llms.base import ModelRequest

__all__ = ["CallIds", "IdentifierRule", "ToolNames"]

_DIGEST_CHARS = 8


@dataclass(frozen=True, slots=True)
class IdentifierRule:
    """A provider's rule for identifiers: `min_length` to `max_length` characters of the class `characters`.

    `characters` and `first` are the inside of a regular expression's brackets; `first` is the class of the first
    character if that is narrower, and `prefix` is put before an identifier that begins otherwise.
    """

    characters: str
    max_length: int
    first: str = ""
    prefix: str = "_"
    min_length: int = 1
    _allowed: re.Pattern[str] = field(init=False, repr=False)
    _all_allowed: re.Pattern[str] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        length = f"{{{self.min_length},{self.max_length}}}"
        pattern = f"(?=[{self.first or self.characters}])[{self.characters}]{length}"
        object.__setattr__(self, "_allowed", re.compile(pattern))
        object.__setattr__(self, "_all_allowed", re.compile(f"[{self.characters}]*"))

    def allows(self, text: str) -> bool:
        """Return whether `text` may be sent as it is."""
        return self._allowed.fullmatch(text) is not None

    def fit(self, text: str, number: int = 1) -> str:
        """Return the `number`th identifier for `text`; the first is `text` itself if that fits.

        >>> rule = IdentifierRule("a-zA-Z0-9_-", 64)
        >>> rule.fit("look"), rule.fit("look", 2), rule.fit("multi_tool_use.parallel")
        ('look', 'look_2', 'multi_tool_use_parallel_41c06c9e')
        """
        if number == 1 and self.allows(text):
            return text
        suffix = "" if number == 1 else f"_{number}"
        if self.allows(text) and len(text) + len(suffix) <= self.max_length and self._all_allowed.fullmatch(suffix):
            return text + suffix
        digest = hashlib.sha256(f"{text}{suffix}".encode("utf-8", "surrogatepass")).hexdigest()
        if not self._all_allowed.fullmatch("_"):
            return digest[: self.max_length]
        cleaned = re.sub(f"[^{self.characters}]", "_", text[: self.max_length]) or "unnamed"
        if self.first and not re.match(f"[{self.first}]", cleaned):
            cleaned = f"{self.prefix}{cleaned}"
        end = f"_{digest[:_DIGEST_CHARS]}{suffix}"
        return cleaned[: self.max_length - len(end)] + end


class _IdentifierAllocator:
    """An allocator of distinct identifiers that fit a rule."""

    def __init__(self, rule: IdentifierRule) -> None:
        self._rule = rule
        self._assigned: set[str] = set()
        self._numbers: dict[str, int] = {}

    def allocate(self, original: str) -> str:
        """Return an identifier for `original` that differs from all identifiers returned before."""
        number = self._numbers.get(original, 0) + 1
        while (fitted := self._rule.fit(original, number)) in self._assigned:
            number += 1
        self._numbers[original] = number
        self._assigned.add(fitted)
        return fitted

    def reserve(self, identifier: str) -> bool:
        """Take `identifier` as it is; return False if it was taken before."""
        is_free = identifier not in self._assigned
        self._assigned.add(identifier)
        return is_free


class ToolNames:
    """The tool names in one request: of the tools that it declares, then of the calls in its history.

    A declared tool with a name that fits is always sent under that name.
    """

    def __init__(self, rule: IdentifierRule, request: ModelRequest) -> None:
        self._allocator = _IdentifierAllocator(rule)
        self._sent_names: dict[str, str] = {}
        declared = [tool.name for tool in request.tools]
        for name in (*filter(rule.allows, declared), *declared, *dict.fromkeys(_called_names(request))):
            self.sent_name(name)

    def sent_name(self, name: str) -> str:
        """Return the name to send for the tool `name`."""
        if (fitted := self._sent_names.get(name)) is None:
            fitted = self._sent_names[name] = self._allocator.allocate(name)
        return fitted

    @property
    def originals(self) -> Mapping[str, str]:
        """The original names by the sent ones, where they differ; replies are parsed with them."""
        return {fitted: name for name, fitted in self._sent_names.items() if fitted != name}


def _called_names(request: ModelRequest) -> Iterator[str]:
    for message in request.messages:
        if message.role == "assistant":
            for call in message.tool_calls:
                yield call.name
        elif message.role == "tool":
            yield message.name


class CallIds:
    """The ids of the calls in one request; the sent id of a result is found by the id in the history."""

    def __init__(self, rule: IdentifierRule) -> None:
        self._allocator = _IdentifierAllocator(rule)
        self._unanswered: dict[str, str] = {}

    def assign(self, call_id: str, *, unchanged: bool = False) -> str:
        """Return the id to send for the next call, distinct from the ids of all other calls in the request.

        With `unchanged` it is `call_id` itself, whatever the rule, unless another call has it.
        """
        is_kept = unchanged and self._allocator.reserve(call_id)
        sent_id = self._unanswered[call_id] = call_id if is_kept else self._allocator.allocate(call_id)
        return sent_id

    def pop(self, call_id: str) -> str | None:
        """Return the sent id of the latest call `call_id` and mark it as answered, None if none awaits a result."""
        return self._unanswered.pop(call_id, None)

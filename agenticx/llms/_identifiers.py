"""Names of tools and ids of calls as a provider takes them: one rule per wire, and the way back to our own names.

A model may call a tool by any name, and another provider's ids may be of any form; a server that refuses one of them
refuses every later request of the session. So what is sent always fits the wire's rule:

1. What fits is sent as it is. What does not keeps the characters that fit, and a digest of the whole is added.
2. Within a request no two originals are sent alike, and no two calls under the same id.
3. The same history is always sent alike, and a longer one begins like a shorter one, so that prompt caches stay warm.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from agenticx.llms.base import ModelRequest
from agenticx.messages import AssistantMessage, ToolMessage

__all__ = ["CallIds", "IdentifierRule", "ToolNames"]

_DIGEST_CHARS = 8


@dataclass(frozen=True, slots=True)
class IdentifierRule:
    """A provider's rule for identifiers: `shortest` to `longest` characters of the class `characters`.

    `characters` and `first` are the inside of a regular expression's brackets; `first` says what an identifier may
    begin with, where that is less than all of them, and `prefix` is put before one that begins otherwise.
    """

    characters: str
    longest: int
    first: str = ""
    prefix: str = "_"
    shortest: int = 1

    def takes(self, text: str) -> bool:
        """Return whether `text` may be sent as it is."""
        if not self.shortest <= len(text) <= self.longest:
            return False
        return bool(re.match(f"[{self.first or self.characters}]", text) and self._all_fit(text))

    def fitted(self, text: str, number: int = 1) -> str:
        """Return the `number`th way to send `text`; the first is `text` itself if that fits.

        >>> rule = IdentifierRule("a-zA-Z0-9_-", 64)
        >>> rule.fitted("look"), rule.fitted("look", 2), rule.fitted("multi_tool_use.parallel")
        ('look', 'look_2', 'multi_tool_use_parallel_41c06c9e')
        """
        suffix = "" if number == 1 else f"_{number}"
        if self.takes(text) and len(text) + len(suffix) <= self.longest and self._all_fit(suffix):
            return text + suffix
        digest = hashlib.sha256(f"{text}{suffix}".encode("utf-8", "surrogatepass")).hexdigest()
        if not self._all_fit("_"):
            return digest[: self.longest]
        cleaned = re.sub(f"[^{self.characters}]", "_", text[: self.longest]) or "unnamed"
        if self.first and not re.match(f"[{self.first}]", cleaned):
            cleaned = f"{self.prefix}{cleaned}"
        end = f"_{digest[:_DIGEST_CHARS]}{suffix}"
        return cleaned[: self.longest - len(end)] + end

    def _all_fit(self, text: str) -> bool:
        return re.fullmatch(f"[{self.characters}]*", text) is not None


class _Unique:
    """An allocator of identifiers that fit a rule; it gives out none twice."""

    def __init__(self, rule: IdentifierRule) -> None:
        self._rule = rule
        self._taken: set[str] = set()
        self._numbers: dict[str, int] = {}

    def next(self, original: str) -> str:
        """Return what to send for `original`, which differs from all that was returned before."""
        number = self._numbers.get(original, 0) + 1
        while (fitted := self._rule.fitted(original, number)) in self._taken:
            number += 1
        self._numbers[original] = number
        self._taken.add(fitted)
        return fitted


class ToolNames:
    """The names in one request: those of the tools it declares, then those that its history calls.

    A declared tool whose name fits is always sent under it.
    """

    def __init__(self, rule: IdentifierRule, request: ModelRequest) -> None:
        self._unique = _Unique(rule)
        self._sent: dict[str, str] = {}
        declared = [tool.name for tool in request.tools]
        for name in (*filter(rule.takes, declared), *declared, *_names_called(request)):
            self.sent(name)

    def sent(self, name: str) -> str:
        """Return the name under which the provider knows the tool `name`."""
        if (fitted := self._sent.get(name)) is None:
            fitted = self._sent[name] = self._unique.next(name)
        return fitted

    @property
    def originals(self) -> Mapping[str, str]:
        """Our names by those that are sent, as far as they differ: a reply is read with them."""
        return {fitted: name for name, fitted in self._sent.items() if fitted != name}


def _names_called(request: ModelRequest) -> Iterator[str]:
    for message in request.messages:
        if isinstance(message, AssistantMessage):
            yield from (call.name for call in message.tool_calls)
        elif isinstance(message, ToolMessage):
            yield message.name


class CallIds:
    """The ids of the calls in one request; the result of a call is found by the id that our history has."""

    def __init__(self, rule: IdentifierRule) -> None:
        self._unique = _Unique(rule)
        self._awaited: dict[str, str] = {}

    def call(self, call_id: str) -> str:
        """Return the id to send for the next call, which no other call of the request has."""
        sent = self._awaited[call_id] = self._unique.next(call_id)
        return sent

    def result(self, call_id: str) -> str | None:
        """Return the id that the latest call of `call_id` was sent under, None if no such call awaits a result."""
        return self._awaited.pop(call_id, None)

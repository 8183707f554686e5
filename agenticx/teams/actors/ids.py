"""The identities of the actor runtime: agents, their types, and topics."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields

from agenticx.argument_types import check_str, check_type

__all__ = ["AgentId", "AgentMetadata", "AgentType", "TopicId"]

_AGENT_TYPE = re.compile(r"[\w.-]+")
_TOPIC_TYPE = re.compile(r"[\w.:=-]+")


@dataclass(frozen=True, slots=True)
class AgentType:
    """The name under which agents are registered: letters, digits, `_`, `-` and `.`; raises `ValueError`."""

    type: str

    def __post_init__(self) -> None:
        if not _AGENT_TYPE.fullmatch(self.type):
            raise ValueError(f"agent type {self.type!r} has other characters than letters, digits and _ - .")

    def __str__(self) -> str:
        return self.type


@dataclass(frozen=True, slots=True, init=False)
class AgentId:
    """One agent: its type, and a key that distinguishes it from the other agents of that type."""

    type: str
    key: str

    def __init__(self, type: str | AgentType, key: str) -> None:
        check_type("type", type, (str, AgentType), "a str or an AgentType")
        check_str("key", key)
        object.__setattr__(self, "type", str(AgentType(str(type))))
        object.__setattr__(self, "key", key)

    @classmethod
    def from_str(cls, text: str) -> AgentId:
        """Return the id that `str()` wrote as `type/key`; raises `ValueError`."""
        return cls(*_parts(text, "an agent id"))

    def __str__(self) -> str:
        return f"{self.type}/{self.key}"


@dataclass(frozen=True, slots=True, eq=False)
class TopicId:
    """The address of a published message: a topic type, and the source, which becomes the key of its receivers.

    A type has letters, digits, `_`, `-`, `.`, `:` and `=`. Raises `ValueError`.
    """

    type: str
    source: str

    def __post_init__(self) -> None:
        if not _TOPIC_TYPE.fullmatch(self.type):
            raise ValueError(
                f"topic type {self.type!r} has other characters than letters, digits, '_', '-', '.', ':', '='"
            )

    @classmethod
    def from_str(cls, text: str) -> TopicId:
        """Return the topic that `str()` wrote as `type/source`; raises `ValueError`."""
        return TopicId(*_parts(text, "a topic id"))

    def __str__(self) -> str:
        return f"{self.type}/{self.source}"

    def __eq__(self, other: object) -> bool:  # also equal to a subclass
        return isinstance(other, TopicId) and (self.type, self.source) == (other.type, other.source)

    def __hash__(self) -> int:
        return hash((self.type, self.source))


@dataclass(frozen=True, slots=True, eq=False)
class AgentMetadata(Mapping[str, str]):
    """The key, type and description of an agent, as attributes and as a mapping."""

    key: str
    type: str
    description: str

    def __getitem__(self, name: str) -> str:
        if name not in set(self):
            raise KeyError(name)
        return getattr(self, name)

    def __iter__(self) -> Iterator[str]:
        return (field.name for field in fields(self))

    def __len__(self) -> int:
        return len(fields(self))


def _parts(text: str, what: str) -> tuple[str, str]:
    type_, separator, rest = text.partition("/")
    if not separator:
        raise ValueError(f"{text!r} is not {what}; it would read 'type/key'")
    return type_, rest

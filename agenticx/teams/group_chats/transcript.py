"""The messages of a team, and those that are new to a participant."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast, get_args

import pydantic

from agenticx.teams.messages import AgentEvent, BaseAgentEvent, BaseChatMessage, ChatMessage

__all__ = ["MessageTypes", "TeamTranscript"]

_KNOWN: Sequence[type[BaseChatMessage | BaseAgentEvent]] = [
    type_ for annotated in (ChatMessage, AgentEvent) for type_ in get_args(get_args(annotated)[0])
]


class MessageTypes:
    """The types of messages that a team accepts."""

    def __init__(self, custom: Iterable[type[BaseChatMessage | BaseAgentEvent]]) -> None:
        self._types: dict[str, type[BaseChatMessage | BaseAgentEvent]] = {
            str(type_.model_fields["type"].default or type_.__name__): type_ for type_ in (*_KNOWN, *custom)
        }
        self._known = {*self._types.values()}

    def problem(self, message: BaseChatMessage | BaseAgentEvent) -> str | None:
        """Return the reason to refuse a message, None for one of a known type."""
        if type(message) in self._known:
            return None
        return f"Message type {type(message)} is not registered with this team; list it in custom_message_types"

    def load(self, data: Mapping[str, Any]) -> BaseChatMessage | BaseAgentEvent:
        """Return the message that `dump` wrote; raises ValueError."""
        name = data.get("type")
        if name not in self._types:
            raise ValueError(f"Message type {name!r} is not registered with this team; list it in custom_message_types")
        return self._types[name].load(data)


@dataclass(frozen=True, slots=True)
class _Entry:
    """A message and the participant whose speech it is part of, None for a task.

    `shared` marks those that other participants get.
    """

    message: BaseChatMessage | BaseAgentEvent
    speaker: str | None
    shared: bool


class TeamTranscript:
    """The messages of all runs of a team since its reset, with the number that each participant has seen."""

    def __init__(self) -> None:
        self._entries: list[_Entry] = []
        self._seen: dict[str, int] = {}
        self.speaker: str | None = None
        """The participant that spoke last."""

    @property
    def messages(self) -> Sequence[BaseChatMessage | BaseAgentEvent]:
        return [entry.message for entry in self._entries]

    def chat_messages(self) -> Sequence[BaseChatMessage]:
        """Return what the participants have said to each other."""
        return [cast("BaseChatMessage", entry.message) for entry in self._entries if entry.shared]

    def said_by_others(self, name: str) -> Sequence[BaseChatMessage]:
        """Return what participants other than `name` have said, and the tasks."""
        shared = (entry for entry in self._entries if entry.shared and entry.speaker != name)
        return [cast("BaseChatMessage", entry.message) for entry in shared]

    @property
    def speakers(self) -> set[str]:
        """The names of all participants that have spoken."""
        return {entry.speaker for entry in self._entries if entry.speaker is not None}

    def unseen(self, name: str) -> Sequence[BaseChatMessage]:
        """Return what others have said since the participant `name` spoke last."""
        new = self._entries[self._seen.get(name, 0) :]
        return [cast("BaseChatMessage", entry.message) for entry in new if entry.shared and entry.speaker != name]

    def add_task(self, messages: Sequence[BaseChatMessage]) -> None:
        self._entries += [_Entry(message, None, True) for message in messages]

    def add_speech(self, name: str, messages: Sequence[BaseChatMessage | BaseAgentEvent], said: int) -> None:
        """Add the messages of a speech; `said` is the number of entries that the participant had been sent."""
        self._entries += [_Entry(message, name, False) for message in messages[:-1]]
        self._entries.append(_Entry(messages[-1], name, True))
        self._seen[name] = said
        self.speaker = name

    def __len__(self) -> int:
        return len(self._entries)

    def dump(self) -> Mapping[str, Any]:
        """Return the transcript as a JSON mapping."""
        entries = [
            {"message": dict(entry.message.dump()), "speaker": entry.speaker, "shared": entry.shared}
            for entry in self._entries
        ]
        return {"entries": entries, "seen": dict(self._seen), "speaker": self.speaker}

    @classmethod
    def load(cls, data: Mapping[str, Any], types: MessageTypes) -> TeamTranscript:
        """Return the transcript that `dump` wrote; raises ValueError."""
        loaded = cls()
        try:
            loaded._entries = [
                _Entry(types.load(entry["message"]), entry["speaker"], entry["shared"]) for entry in data["entries"]
            ]
            loaded._seen, loaded.speaker = dict(data["seen"]), data["speaker"]
        except (pydantic.ValidationError, KeyError, TypeError) as exc:
            raise ValueError(f"the state of the team cannot be read: {exc}") from exc
        return loaded

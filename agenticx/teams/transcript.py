"""The messages of a team, and how many of them each participant has seen."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast, get_args

import pydantic
from pydantic import BaseModel, NonNegativeInt

from agenticx.llms.base import Usage
from agenticx.messages import new_id
from agenticx.teams.messages import AgentEvent, BaseAgentEvent, BaseChatMessage, ChatMessage

__all__ = ["EarlierRun", "MessageTypes", "TeamTranscript"]

_M = TypeVar("_M", bound=BaseChatMessage | BaseAgentEvent)

_KNOWN: Sequence[type[BaseChatMessage | BaseAgentEvent]] = [
    type_ for annotated in (ChatMessage, AgentEvent) for type_ in get_args(get_args(annotated)[0])
]


class MessageTypes:
    """The types of messages that a team accepts."""

    def __init__(self, custom: Iterable[type[BaseChatMessage | BaseAgentEvent]]) -> None:
        self._known: set[type[BaseChatMessage | BaseAgentEvent]] = set()
        self._named: dict[object, list[type[BaseChatMessage | BaseAgentEvent]]] = {}  # several types can share a name
        self.add((*_KNOWN, *custom))

    def add(self, types: Iterable[type[BaseChatMessage | BaseAgentEvent]]) -> None:
        """Accept further types; TypeError for anything else than a class of messages or events."""
        for type_ in types:
            if not _is_message_type(type_):
                raise TypeError(f"custom_message_types must be subclasses of BaseChatMessage, not {type_!r}")
            if type_ not in self._known:
                self._known.add(type_)
                self._named.setdefault(type_.model_fields["type"].default or type_.__name__, []).append(type_)

    @property
    def custom(self) -> Sequence[type[BaseChatMessage | BaseAgentEvent]]:
        """The types that `agenticx.teams` does not define."""
        return [type_ for type_ in self._known if type_ not in _KNOWN]

    def problem(self, message: BaseChatMessage | BaseAgentEvent) -> str | None:
        """Return the reason to refuse a message, None for one of a known type."""
        if type(message) in self._known:
            return None
        return f"Message type {type(message)} is not registered with this team; list it in custom_message_types"

    def checked(self, messages: Sequence[BaseChatMessage]) -> Sequence[BaseChatMessage]:
        """Return the messages; raises ValueError for one of an unknown type."""
        for problem in filter(None, map(self.problem, messages)):
            raise ValueError(problem)
        return messages

    def load(self, data: Mapping[str, Any]) -> BaseChatMessage | BaseAgentEvent:
        """Return the message that `dump` wrote; raises ValueError."""
        name, problem = data.get("type"), None
        for type_ in self._named.get(name, ()):
            try:
                return type_.load(data)
            except pydantic.ValidationError as exc:
                problem = exc
        if problem is not None:
            raise ValueError(f"a {name} cannot be read: {problem}") from problem
        raise ValueError(f"Message type {name!r} is not registered with this team; list it in custom_message_types")


def _is_message_type(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, BaseChatMessage | BaseAgentEvent)


@dataclass(frozen=True, slots=True)
class _Entry:
    """A message, with the participant in whose speech it is, None for a task; others get it if it is `shared`."""

    message: BaseChatMessage | BaseAgentEvent
    speaker: str | None
    shared: bool


@dataclass(slots=True, kw_only=True)
class EarlierRun:
    """A run that goes on in the next one.

    - `messages`: all of its messages, as conditions see them.
    - `given`: the task, and the messages that the user sent meanwhile.
    - `said`: the messages of its finished speeches, of which there were `speeches`; `usages` of their model calls.
    - `turn_id`: its turn, if the next run goes on in that.
    """

    turn_id: str | None = None
    messages: list[BaseAgentEvent | BaseChatMessage] = field(default_factory=list[BaseAgentEvent | BaseChatMessage])
    given: list[BaseChatMessage] = field(default_factory=list[BaseChatMessage])
    said: list[BaseAgentEvent | BaseChatMessage] = field(default_factory=list[BaseAgentEvent | BaseChatMessage])
    speeches: int = 0
    usages: Sequence[Usage] = ()


class TeamTranscript:
    """The messages of all runs of a team since its reset, with the number that each participant has seen."""

    def __init__(self) -> None:
        self._entries: list[_Entry] = []
        self._ids: set[str] = set()  # the ids of all messages
        self._seen: dict[str, int] = {}
        self._unfinished: set[str] = set()  # the ids of the tasks since the last run that was finished
        self._began = 0  # the number of entries before the last run
        self.speaker: str | None = None
        """The participant that spoke last."""

    @property
    def messages(self) -> Sequence[BaseChatMessage | BaseAgentEvent]:
        return [entry.message for entry in self._entries]

    def chat_messages(self) -> Sequence[BaseChatMessage]:
        """Return the tasks and the messages that the participants have sent each other."""
        return [cast("BaseChatMessage", entry.message) for entry in self._entries if entry.shared]

    def said_by_others(self, name: str) -> Sequence[BaseChatMessage]:
        """Return the tasks and the messages of all participants except `name`."""
        shared = (entry for entry in self._entries if entry.shared and entry.speaker != name)
        return [cast("BaseChatMessage", entry.message) for entry in shared]

    @property
    def speakers(self) -> set[str]:
        """The names of all participants that have spoken."""
        return {entry.speaker for entry in self._entries if entry.speaker is not None}

    def unseen(self, name: str) -> Sequence[BaseChatMessage]:
        """Return the tasks and the messages of others since the participant `name` spoke last."""
        new = self._entries[self._seen.get(name, 0) :]
        return [cast("BaseChatMessage", entry.message) for entry in new if entry.shared and entry.speaker != name]

    def begin_task(self, messages: Sequence[BaseChatMessage]) -> tuple[list[BaseChatMessage], list[BaseChatMessage]]:
        """Add the task of a run; return its messages, and the ones that were added.

        A message of a run that was not finished, which an outer team may send again, is in the transcript already. A
        message of a finished run is added as a new one, with a new id.
        """
        self._began = self._first_of({message.id for message in messages if message.id in self._unfinished})
        task: list[BaseChatMessage] = []
        added: list[BaseChatMessage] = []
        for message in messages:
            if message.id in self._unfinished:
                task.append(message)
                continue
            new = self.with_own_id(message)
            self._ids.add(new.id)
            task.append(new)
            added.append(new)
        self.add_task(added)
        return task, added

    def with_own_id(self, message: _M) -> _M:
        """Return the message, with a new id if the transcript has a message of its id."""
        return message.model_copy(update={"id": new_id("msg")}) if message.id in self._ids else message

    def finish_task(self) -> None:
        """End the run: a message of its task that is sent again counts as a new one from now on."""
        self._unfinished.clear()

    def _first_of(self, ids: Collection[str]) -> int:
        """Return the position of the first message with one of these ids; without one the number of messages."""
        found = (at for at, entry in enumerate(self._entries) if entry.message.id in ids)
        return next(found, len(self._entries))

    def last_run(self, task: Sequence[BaseChatMessage]) -> EarlierRun | None:
        """Return the last run, None if `task` has a message that is not in its task."""
        entries = self._entries[self._began :]
        said = [entry.message for entry in entries if entry.speaker is not None]
        given = [cast("BaseChatMessage", entry.message) for entry in entries if entry.speaker is None]
        if not {message.id for message in given}.issuperset(message.id for message in task):
            return None
        speeches = sum(entry.shared and entry.speaker is not None for entry in entries)
        return EarlierRun(messages=[entry.message for entry in entries], given=given, said=said, speeches=speeches)

    def add_task(self, messages: Sequence[BaseChatMessage]) -> None:
        """Add messages of the user."""
        self._add(_Entry(message, None, True) for message in messages)
        self._unfinished.update(message.id for message in messages)

    def add_speech(self, name: str, messages: Sequence[BaseChatMessage | BaseAgentEvent], seen: int) -> None:
        """Add the messages of a speech; `seen` is the number of entries that the participant had got."""
        self._add(_Entry(message, name, False) for message in messages[:-1])
        self._add([_Entry(messages[-1], name, True)])
        self._seen[name] = seen
        self.speaker = name

    def _add(self, entries: Iterable[_Entry]) -> None:
        for entry in entries:
            self._entries.append(entry)
            self._ids.add(entry.message.id)

    def __len__(self) -> int:
        return len(self._entries)

    def dump(self) -> Mapping[str, Any]:
        """Return the transcript as a JSON mapping."""
        entries = [
            {"message": dict(entry.message.dump()), "speaker": entry.speaker, "shared": entry.shared}
            for entry in self._entries
        ]
        return {
            "entries": entries,
            "seen": dict(self._seen),
            "speaker": self.speaker,
            "unfinished": sorted(self._unfinished),
            "began": self._began,
        }

    @classmethod
    def load(cls, data: object, types: MessageTypes, participants: Collection[str]) -> TeamTranscript:
        """Return the transcript that `dump` wrote; raises ValueError, also for speakers that are not participants."""
        loaded = cls()
        try:
            saved = _SavedTranscript.model_validate(data)
            loaded._add(_Entry(types.load(entry.message), entry.speaker, entry.shared) for entry in saved.entries)
        except pydantic.ValidationError as exc:
            raise ValueError(f"the state of the team cannot be read: {exc}") from exc
        loaded._seen, loaded.speaker, loaded._unfinished = saved.seen, saved.speaker, set(saved.unfinished)
        loaded._began = saved.began
        speakers = {*loaded.speakers, *saved.seen, *([] if saved.speaker is None else [saved.speaker])}
        if unknown := sorted(speakers - set(participants)):
            raise ValueError(f"the state has speeches of {unknown}, who do not take part in the team")
        if any(entry.shared and not isinstance(entry.message, BaseChatMessage) for entry in loaded._entries):
            raise ValueError("the state of the team has events in the place of chat messages")
        return loaded


class _SavedEntry(BaseModel, strict=True, extra="forbid"):
    message: dict[str, Any]
    speaker: str | None
    shared: bool


class _SavedTranscript(BaseModel, strict=True, extra="forbid"):
    entries: list[_SavedEntry]
    seen: dict[str, NonNegativeInt]
    speaker: str | None
    unfinished: list[str]
    began: NonNegativeInt = 0

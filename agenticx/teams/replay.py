"""The runs of a team and the answers of its participants, read from the log of a session."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from agenticx.llms.base import Usage
from agenticx.runtime.budgets.usage_payload import usage_from_data
from agenticx.runtime.events import (
    Event,
    FinalEvent,
    SessionChangedEvent,
    SpeakerSelectedEvent,
    SteeredEvent,
    TeamMessageEvent,
    TurnStartedEvent,
    UsageEvent,
)
from agenticx.teams.messages import BaseChatMessage
from agenticx.teams.transcript import EarlierRun, MessageTypes, TeamTranscript

if TYPE_CHECKING:
    from agenticx.sessions.log.events import SessionEvent
    from agenticx.sessions.log.turn_tree import TurnTree

__all__ = ["StoredTurns", "TeamReplay", "events_at", "events_since_reset", "replay_team", "uncommitted_answer"]


class StoredTurns:
    """The events of a team in a session: `own` has the events of its runs' turns, `events` also of their child turns.

    A turn of the team has messages of the team, and no parent among the given events. So an inner or outer team may
    have the same name as this team, and their participants may have equal names.
    """

    def __init__(self, events: Sequence[SessionEvent], team: str) -> None:
        self._tree = _turn_tree(events)
        talk = (one.event for one in events if isinstance(one.event, SpeakerSelectedEvent | TeamMessageEvent))
        top = (event for event in talk if self._tree.is_root(event.turn_id))
        turn_ids = {event.turn_id for event in top if event.data["team"] == team}
        self.own = _of_turns(events, turn_ids)
        self.events = _of_turns(events, turn_ids | self._tree.within(turn_ids))
        self._participants = self._tree.children(turn_ids)

    def of_agents(self) -> Sequence[SessionEvent]:
        """Return the events of the team's turns and of their direct child turns."""
        turn_ids = {event.turn_id for event in self.own}
        return _of_turns(self.events, turn_ids | {turn.id for turn in self._participants})

    def finished_usages(self, turn_id: str | None) -> list[Usage]:
        """Return the usages of a run's own model calls, such as choices of speakers, and of its ended child turns."""
        ended = {entry.turn_id for entry in self.events if entry.event.terminal}
        counted = {turn_id}
        for turn in self._tree.turns.values():  # parents come before their children
            if turn.id in ended and turn.parent_id is not None and turn.parent_id in counted:
                counted.add(turn.id)
        usages = (entry.event for entry in self.events if isinstance(entry.event, UsageEvent))
        return [usage_from_data(event.data) for event in usages if event.turn_id in counted]

    def of_team(self, name: str) -> Sequence[SessionEvent]:
        """Return the events of an inner team's turns and of all their child turns."""
        turn_ids = {turn.id for turn in self._participants if turn.agent_id == name}
        return _of_turns(self.events, self._tree.within(turn_ids))


def events_at(events: Sequence[SessionEvent], path: Sequence[str]) -> list[SessionEvent]:
    """Return the events of an agent's turns and of all their child turns; `path` ends with the agent."""
    tree = _turn_tree(events)
    return _of_turns(events, [id_ for id_ in tree.turns if tree.agent_path(id_)[: len(path)] == tuple(path)])


def _turn_tree(events: Iterable[SessionEvent]) -> TurnTree:
    from agenticx.sessions.log.turn_tree import TurnTree  # on first use: it imports the stores

    return TurnTree.of(entry.event for entry in events if entry.event.type == "turn_started")


def events_since_reset(events: Sequence[SessionEvent], team: str) -> list[SessionEvent]:
    """Return the events behind the last reset of a team, all of them if there is none."""
    changes = ((one.seq, one.event) for one in events if isinstance(one.event, SessionChangedEvent))
    last = max((seq for seq, change in changes if change.data.get("team_reset") == team), default=0)
    return [event for event in events if event.seq > last]


def _of_turns(events: Sequence[SessionEvent], turn_ids: Collection[str | None]) -> list[SessionEvent]:
    return [event for event in events if event.turn_id in turn_ids]


@dataclass(slots=True)
class TeamReplay:
    """The runs of a team so far; `selected` is the speaker of a speech that was not finished, None if there is none."""

    transcript: TeamTranscript = field(default_factory=TeamTranscript)
    last_run: EarlierRun = field(default_factory=EarlierRun)
    selected: str | None = None


def replay_team(turns: StoredTurns, types: MessageTypes) -> TeamReplay:
    """Return the runs of a team; a speech that was not finished is not part of the transcript.

    Raises ValueError for messages of unknown types and `DamagedData` for events that cannot be read.
    """
    talk = TeamReplay()
    finished = {event.turn_id for event in turns.own if event.event.type == "final"}
    for turn_id, speaker, messages in _speeches(turns.own):
        loaded = [types.load(message) for message in messages]
        if turn_id != talk.last_run.turn_id:
            if is_over := talk.last_run.turn_id in finished:
                talk.transcript.finish_task()
            if is_over or speaker is None:  # else a run of an earlier process that went on in another turn
                talk.transcript.begin_task(())
            talk.last_run = EarlierRun(turn_id=turn_id)
        talk.last_run.messages += loaded
        talk.selected = None
        if speaker is None:
            given = [message for message in loaded if isinstance(message, BaseChatMessage)]
            talk.last_run.given += given
            talk.transcript.add_task(given)
        elif not loaded:
            talk.selected = speaker
        else:
            talk.transcript.add_speech(speaker, loaded, len(talk.transcript))
            talk.last_run.speeches += 1
    if talk.last_run.turn_id in finished:
        talk.transcript.finish_task()
    talk.last_run.usages = turns.finished_usages(talk.last_run.turn_id)
    return talk


def _speeches(events: Sequence[SessionEvent]) -> Iterator[tuple[str | None, str | None, Sequence[Mapping[str, Any]]]]:
    """Yield the turn, the speaker and the messages of each task, whose speaker is None, and of each speech.

    One that was not finished has no messages. A message that the user sent during a run (`steered`) is a task too.
    """
    speaker: str | None = None
    messages: list[Mapping[str, Any]] = []
    turn_id: str | None = None
    for event in (entry.event for entry in events):
        if not isinstance(event, SpeakerSelectedEvent | TeamMessageEvent | SteeredEvent):
            continue
        if not isinstance(event, TeamMessageEvent) or event.turn_id != turn_id:
            if messages or speaker is not None:
                yield turn_id, speaker, messages
            speaker, messages, turn_id = None, [], event.turn_id
        if isinstance(event, SpeakerSelectedEvent):
            speaker = event.data["speakers"][0]
        elif isinstance(event, TeamMessageEvent):
            messages.append(event.data["message"])
    if messages or speaker is not None:
        yield turn_id, speaker, messages


def uncommitted_answer(events: Sequence[SessionEvent], agent_id: str) -> Sequence[Event] | None:
    """Return the last turn of the agent if it ended with an answer that is not in the log as `team_message`, else None.

    A speech is stored after the turn in which it was made, so a process can die between the two.
    """
    turn_id: str | None = None
    is_uncommitted = False
    for entry in events:
        match entry.event:
            case TeamMessageEvent(data=data):
                is_uncommitted = is_uncommitted and data["message"]["source"] != agent_id
            case TurnStartedEvent(agent_id=name) if name == agent_id:
                turn_id, is_uncommitted = entry.turn_id, False
            case TurnStartedEvent() | FinalEvent() if entry.turn_id == turn_id:
                is_uncommitted = True  # the last event, of the agent or of one that has taken over
            case _:
                pass
    return [entry.event for entry in events if entry.turn_id == turn_id] if is_uncommitted else None

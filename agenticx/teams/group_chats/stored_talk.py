"""The runs of a team in a session, read from its log."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from agenticx.llms.base import Usage
from agenticx.runtime.budgets.usage_payload import usage_from_data
from agenticx.teams.group_chats.transcript import EarlierRun, MessageTypes, TeamTranscript
from agenticx.teams.messages import BaseChatMessage

if TYPE_CHECKING:
    from agenticx.sessions.store.records import StoredEvent

__all__ = ["TALK_EVENTS", "StoredTalk", "StoredTurns", "events_at", "events_since_reset", "read_talk"]

TALK_EVENTS = frozenset(
    {
        *("speaker_selected", "team_message", "usage", "handoff", "error", "subagent_paused", "session_changed"),
        *("turn_started", "steered", "round_start", "token", "thinking", "tool_call", "tool_result", "final"),
    }
)
"""The events from which a team and its participants are restored."""


class StoredTurns:
    """The events of a team in a session: `own` are those of the turns of its runs, `events` also of all below them.

    Its turns have its messages and are below no other turn among the given events. So other teams, also one above it or
    one that takes part in it, can have its name, and their participants the names of its own.
    """

    def __init__(self, events: Sequence[StoredEvent], team: str) -> None:
        started = {event.turn_id: _envelope(event) for event in events if event.type == "turn_started"}
        self._agents = {turn_id: envelope["agent_id"] for turn_id, envelope in started.items()}
        self._parents = {turn_id: envelope["data"].get("parent_turn_id") for turn_id, envelope in started.items()}
        talk = (event for event in events if event.type in ("speaker_selected", "team_message"))
        top = (event for event in talk if self._parents.get(event.turn_id) not in started)
        turn_ids = {event.turn_id for event in top if _data(event)["team"] == team}
        self.own = _of_turns(events, turn_ids)
        self.events = self._with_those_below(events, turn_ids)
        self._participants = [turn_id for turn_id, parent in self._parents.items() if parent in turn_ids]

    def of_agents(self) -> Sequence[StoredEvent]:
        """Return the events of the team's turns, and of the turns right below them."""
        return _of_turns(self.events, {*(event.turn_id for event in self.own), *self._participants})

    def of_team(self, name: str) -> Sequence[StoredEvent]:
        """Return the events of the turns of a team that takes part, and of all below them."""
        turn_ids = {turn_id for turn_id in self._participants if self._agents[turn_id] == name}
        return self._with_those_below(self.events, turn_ids)

    def _with_those_below(self, events: Sequence[StoredEvent], turn_ids: Collection[str | None]) -> list[StoredEvent]:
        found = set(turn_ids)
        for turn_id, parent in self._parents.items():  # in the order in which they began
            if parent in found:
                found.add(turn_id)
        return _of_turns(events, found)


def events_at(events: Sequence[StoredEvent], path: Sequence[str]) -> list[StoredEvent]:
    """Return the events of the turns of an agent, where `path` names it after those above it, and of all below them."""
    paths: dict[str | None, Sequence[str]] = {}
    for event in events:
        if event.type == "turn_started":
            envelope = _envelope(event)
            paths[event.turn_id] = (*paths.get(envelope["data"].get("parent_turn_id"), ()), envelope["agent_id"])
    return _of_turns(events, [turn_id for turn_id, known in paths.items() if known[: len(path)] == path])


def events_since_reset(events: Sequence[StoredEvent], team: str) -> list[StoredEvent]:
    """Return the events behind the last reset of a team, all of them if there is none."""
    resets = (event for event in events if event.type == "session_changed")
    last = max((event.seq for event in resets if _data(event).get("team_reset") == team), default=0)
    return [event for event in events if event.seq > last]


def _of_turns(events: Sequence[StoredEvent], turn_ids: Collection[str | None]) -> list[StoredEvent]:
    return [event for event in events if event.turn_id in turn_ids]


@dataclass(slots=True)
class StoredTalk:
    """The runs of a team so far; `selected` is the speaker of a speech that was not finished, None if there is none."""

    transcript: TeamTranscript = field(default_factory=TeamTranscript)
    last_run: EarlierRun = field(default_factory=EarlierRun)
    selected: str | None = None


def read_talk(turns: StoredTurns, types: MessageTypes) -> StoredTalk:
    """Return the runs of a team; a speech that was not finished is not part of the transcript.

    Raises ValueError for messages of unknown types and `DamagedData` for events that cannot be read.
    """
    talk = StoredTalk()
    finished = {event.turn_id for event in turns.own if event.type == "final"}
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
    talk.last_run.usages = list(_finished_usages(turns.events, talk.last_run.turn_id))
    return talk


def _speeches(events: Sequence[StoredEvent]) -> Iterator[tuple[str | None, str | None, Sequence[Mapping[str, Any]]]]:
    """Yield the turn, the speaker and the messages of each task, whose speaker is None, and of each speech.

    One that was not finished has no messages. A message that the user sent during a run (`steered`) is a task too.
    """
    speaker: str | None = None
    messages: list[Mapping[str, Any]] = []
    turn_id: str | None = None
    for event in events:
        if event.type not in ("speaker_selected", "team_message", "steered"):
            continue
        data = _data(event)
        if event.type != "team_message" or event.turn_id != turn_id:
            if messages or speaker is not None:
                yield turn_id, speaker, messages
            speaker, messages, turn_id = None, [], event.turn_id
        if event.type == "speaker_selected":
            speaker = data["speakers"][0]
        elif event.type == "team_message":
            messages.append(data["message"])
    if messages or speaker is not None:
        yield turn_id, speaker, messages


def _finished_usages(events: Sequence[StoredEvent], turn_id: str | None) -> Iterator[Usage]:
    """Yield the model calls of a run: its own, such as choices of speakers, and those of the ended turns below it."""
    counted = {turn_id}
    ended = {event.turn_id for event in events if event.terminal}
    for event in events:
        if event.type == "turn_started" and event.turn_id in ended and _data(event).get("parent_turn_id") in counted:
            counted.add(event.turn_id)
        elif event.type == "usage" and event.turn_id in counted:
            yield usage_from_data(_data(event))


def _data(event: StoredEvent) -> Mapping[str, Any]:
    return _envelope(event)["data"]


def _envelope(event: StoredEvent) -> Mapping[str, Any]:
    from agenticx.sessions.store.damage import map_decode_errors  # on first use: it imports the stores

    with map_decode_errors("the log of a session"):
        return json.loads(event.frame_json)

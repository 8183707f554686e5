"""The runs of a team in a session, read from its log."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from agenticx.llms.base import Usage
from agenticx.runtime.turn import usage_from_data
from agenticx.teams.group_chats.transcript import EarlierRun, MessageTypes, TeamTranscript
from agenticx.teams.messages import BaseChatMessage

if TYPE_CHECKING:
    from agenticx.sessions.store.records import StoredEvent

__all__ = ["TALK_EVENTS", "StoredTalk", "read_talk"]

TALK_EVENTS = frozenset(
    {
        *("speaker_selected", "team_message", "usage", "error", "subagent_paused"),
        *("turn_started", "steered", "round_start", "token", "thinking", "tool_call", "tool_result", "final"),
    }
)
"""The events from which a team and its participants are restored."""


@dataclass(slots=True)
class StoredTalk:
    """The runs of a team so far; `selected` is the speaker of a speech that was not finished, None if there is none."""

    transcript: TeamTranscript = field(default_factory=TeamTranscript)
    last_run: EarlierRun = field(default_factory=EarlierRun)
    selected: str | None = None


def read_talk(events: Sequence[StoredEvent], team: str, types: MessageTypes) -> StoredTalk:
    """Return the runs of `team`; a speech that was not finished is not part of the transcript.

    Raises ValueError for messages of unknown types and `DamagedData` for events that cannot be read.
    """
    talk = StoredTalk()
    finished = {event.turn_id for event in events if event.type == "final"}
    for turn_id, speaker, messages in _speeches(events, team):
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
            talk.transcript.add_task([message for message in loaded if isinstance(message, BaseChatMessage)])
        elif not loaded:
            talk.selected = speaker
        else:
            talk.transcript.add_speech(speaker, loaded, len(talk.transcript))
            talk.last_run.speeches += 1
    if talk.last_run.turn_id in finished:
        talk.transcript.finish_task()
    talk.last_run.usages = list(_finished_usages(events, talk.last_run.turn_id))
    return talk


def _speeches(
    events: Sequence[StoredEvent], team: str
) -> Iterator[tuple[str | None, str | None, Sequence[Mapping[str, Any]]]]:
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
        if data.get("team", team) != team or (event.type == "steered" and event.turn_id != turn_id):
            continue
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
    from agenticx.sessions.store.damage import map_decode_errors  # on first use: it imports the stores

    with map_decode_errors("the log of a session"):
        return json.loads(event.frame_json)["data"]

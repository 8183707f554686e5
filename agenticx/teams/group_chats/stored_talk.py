"""The speeches of a team in a session, read from its log."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from agenticx.teams.group_chats.transcript import MessageTypes, TeamTranscript
from agenticx.teams.messages import BaseChatMessage

if TYPE_CHECKING:
    from agenticx.sessions.store.records import StoredEvent

__all__ = ["transcript_from_log"]


def transcript_from_log(events: Sequence[StoredEvent], team: str, types: MessageTypes) -> TeamTranscript:
    """Return the transcript of the runs of `team`; a speech that was not finished is not part of it.

    Raises ValueError for messages of unknown types and `DamagedData` for events that cannot be read.
    """
    transcript = TeamTranscript()
    for speaker, messages in _speeches(events, team):
        loaded = [types.load(message) for message in messages]
        if speaker is None:
            transcript.add_task([message for message in loaded if isinstance(message, BaseChatMessage)])
        else:
            transcript.add_speech(speaker, loaded, len(transcript))
    return transcript


def _speeches(events: Sequence[StoredEvent], team: str) -> Iterator[tuple[str | None, list[dict[str, Any]]]]:
    """Yield the messages of each task, whose speaker is None, and of each speech."""
    from agenticx.sessions.store.damage import map_decode_errors  # on first use: it imports the stores

    speaker: str | None = None
    messages: list[dict[str, Any]] = []
    turn_id: str | None = None
    for event in events:
        if event.type not in ("speaker_selected", "team_message"):
            continue
        with map_decode_errors("the log of a session"):
            data = json.loads(event.frame_json)["data"]
            if data["team"] != team:
                continue
            if messages and (event.type == "speaker_selected" or event.turn_id != turn_id):
                yield speaker, messages
                messages = []
            if event.type == "speaker_selected":
                speaker = data["speakers"][0]
            else:
                speaker = speaker if event.turn_id == turn_id else None
                messages.append(data["message"])
            turn_id = event.turn_id
    if messages:
        yield speaker, messages

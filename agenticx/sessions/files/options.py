"""The options of a session: in its state, and how each has ended, as its log has it."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal

from agenticx.errors import AgenticXError
from agenticx.foreign_text import MATERIAL, frame_text, one_line
from agenticx.runtime import Session
from agenticx.runtime.events import ErrorEvent, FinalEvent, UsageEvent
from agenticx.runtime.session import Option
from agenticx.sessions.files.artifacts import SessionContents
from agenticx.sessions.store.base import SessionLog, read_log_pages
from agenticx.sessions.store.blobs import Blobs
from agenticx.sessions.store.damage import map_decode_errors
from agenticx.sessions.store.entries import StoredEvent, decode
from agenticx.tools.session_files import Artifacts, UnknownArtifact, is_image_type

__all__ = [
    "OptionNotDone",
    "OptionState",
    "UnknownOption",
    "find_option",
    "forked_options",
    "load_options",
    "option_states",
    "options_data",
    "pick_text",
    "stored_session_files",
]


class UnknownOption(AgenticXError):
    """Raised for the number of an option that a session does not have."""


class OptionNotDone(AgenticXError):
    """Raised for an option that cannot be picked, because it has no answer."""


_SHOWN_BYTES = 32_000
_TYPES = frozenset({"final", "error", "usage"})


@dataclass(slots=True)
class OptionState:
    """The state of an option; `reason` says why it is not done.

    `cost_usd` is what its model calls have cost, None if no price is known.
    """

    state: Literal["running", "done", "failed", "stopped", "interrupted"]
    reason: str = ""
    cost_usd: Decimal | None = None


def find_option(options: Sequence[Option], number: int) -> Option:
    """Return the option of that number; raise `UnknownOption`."""
    for option in options:
        if option.number == number:
            return option
    numbers = ", ".join(str(option.number) for option in options) or "none"
    raise UnknownOption(f"the session has no option {number}; it has {numbers}")


async def pick_text(option: Option) -> str:
    """Return what the model is told of a pick, with the files as far as there is room, so that it can edit them."""
    artifacts, room = option.artifacts, _SHOWN_BYTES
    parts = [f"[options] Option {option.number} goes on."]
    if files := artifacts.summary():
        parts[0] += f" Its files are the files of this session now: {files}."
    if option.text.strip():
        parts.append(f"What was said about it: {option.text}")
    for artifact in artifacts.listed():
        content = None
        if artifact.size <= room and not is_image_type(artifact.media_type):
            with suppress(UnknownArtifact):  # lost, which reading it will say
                content = await artifacts.read(artifact)
        if content is None:
            parts.append(f"{one_line(artifact.path)} is not shown here; artifact_read returns the text of a file.")
        else:
            room -= artifact.size
            parts.append(frame_text(f"{artifact.path} of option {option.number}", content.decode(), MATERIAL))
    return "\n".join(parts)


def options_data(session: Session) -> dict[str, Any]:
    """Return the options of a session as JSON, with the revisions of their files."""
    if not session.options:
        return {}
    rows = [
        [each.number, each.model, each.turn_id, each.run_id, each.artifacts.branch_data(), each.text]
        for each in session.options
    ]
    return {"rows": rows, "next": session.next_option, "is_due": session.is_option_due}


def load_options(session: Session, data: Mapping[str, Any]) -> None:
    """Give a session the options of `options_data`."""
    session.options = [
        Option(number, model, turn_id, run_id, session.artifacts.branch_of(files), text)
        for number, model, turn_id, run_id, files, text in data.get("rows", ())
    ]
    session.next_option, session.is_option_due = data.get("next", 1), data.get("is_due", False)


def stored_session_files(state_json: str | None, blobs: Blobs, session_id: str) -> Session:
    """Return a session with the files and options that its stored state has, and nothing else; raises `DamagedData`."""
    contents = SessionContents(blobs, session_id)
    session = Session(artifacts=Artifacts(contents))
    if state_json is not None:
        with map_decode_errors("the state of a session"):
            state = json.loads(state_json)
            session.artifacts = Artifacts.from_json(state["artifacts"], contents)
            load_options(session, state["options"])
    return session


def forked_options(session: Session, turn_ids: Mapping[str, str]) -> dict[str, Any]:
    """Return the options of a fork as `options_data` does: those whose turns it has, under the ids they have there."""
    rows = [
        [*row[:2], turn_ids[row[2]], turn_ids[row[3]], *row[4:]]
        for row in options_data(session).get("rows", ())
        if row[2] in turn_ids and row[3] in turn_ids
    ]
    is_due = session.is_option_due and bool(rows) and rows[-1][0] == session.options[-1].number
    return {"rows": rows, "next": session.next_option, "is_due": is_due}


async def option_states(
    log: SessionLog, session_id: str, turn_ids: Collection[str], *, running: Collection[str]
) -> dict[str, OptionState]:
    """Return how the options with these turns stand; those of `running` without an end still run.

    Raises `DamagedData`.
    """
    states = {turn_id: OptionState("running" if turn_id in running else "interrupted") for turn_id in turn_ids}
    if states:
        async for page in read_log_pages(log, session_id):
            with map_decode_errors("the log of a session"):
                _fold(states, page)
    for state in states.values():
        if state.state == "interrupted" and not state.reason:
            state.reason = "The program ended before it was done."
    return states


def _fold(states: Mapping[str, OptionState], events: Iterable[StoredEvent]) -> None:
    for event in events:
        if event.type not in _TYPES or (state := states.get(event.turn_id or "")) is None:
            continue
        match decode(event).event:
            case UsageEvent(data={"cost_usd": cost}):
                state.cost_usd = (state.cost_usd or Decimal(0)) + Decimal(cost)
            case FinalEvent():
                state.state = "done"
            case ErrorEvent(data=data) if data["fatal"]:
                code = data["code"]
                state.state = code if code == "stopped" or code == "interrupted" else "failed"
                state.reason = data["text"]
            case _:
                pass

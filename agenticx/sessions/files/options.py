"""The options of a session: in its state, and how each has ended, as its log has it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Literal

from agenticx.errors import AgenticXError
from agenticx.runtime import Session
from agenticx.runtime.events import ErrorEvent, FinalEvent, UsageEvent
from agenticx.runtime.session import Option
from agenticx.sessions.files.artifacts import SessionContents
from agenticx.sessions.log.damage import map_decode_errors
from agenticx.sessions.log.events import StoredEvent, decode
from agenticx.sessions.log.tool_state import Parts, load_files
from agenticx.sessions.store.base import SessionLog, read_log_pages
from agenticx.sessions.store.blobs import Blobs
from agenticx.tools.artifacts.files import Artifacts, UnknownArtifact, is_image_type
from agenticx.untrusted_text import MATERIAL, frame_text, one_line

__all__ = [
    "OptionNotDone",
    "OptionState",
    "UnknownOption",
    "find_option",
    "fork_options",
    "option_states",
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

    `cost_usd` is the cost of its model calls, None if no price is known.
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
    """Return the message to the model about a pick, with the files that it can edit as far as there is room."""
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


def stored_session_files(parts: Parts, blobs: Blobs, session_id: str) -> Session:
    """Return a session with the files and options that its stored state has, and nothing else; raises `DamagedData`."""
    session = Session(artifacts=Artifacts(SessionContents(blobs, session_id)))
    with map_decode_errors("the state of a session"):
        load_files(session, parts)
    return session


def fork_options(session: Session, turn_ids: Mapping[str, str]) -> None:
    """Keep the options of a session whose turns a fork has, under the ids that they have there."""
    last = session.options[-1].number if session.options else None
    session.options = [
        replace(option, turn_id=turn_ids[option.turn_id], run_id=turn_ids[option.run_id])
        for option in session.options
        if option.turn_id in turn_ids and option.run_id in turn_ids
    ]
    has_last = bool(session.options) and session.options[-1].number == last
    session.is_option_due = session.is_option_due and has_last


async def option_states(
    log: SessionLog, session_id: str, turn_ids: Collection[str], *, running: Collection[str]
) -> dict[str, OptionState]:
    """Return the states of the options with these turns; a turn of `running` without an end still runs.

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

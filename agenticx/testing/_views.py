"""A uniform view of events from `run_turn`, from the store or from SSE frames."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, cast

from agenticx.runtime.events import RuntimeEvent

__all__ = ["AnyEvent", "View", "label", "view", "views"]

AnyEvent = RuntimeEvent | Mapping[str, Any]
"""A `RuntimeEvent`, or an envelope as JSON gives it."""


@dataclass(frozen=True, slots=True)
class View:
    """The fields of an event that this package reads; `envelope` is None for a `RuntimeEvent`."""

    type: str
    data: Mapping[str, Any]
    agent_id: str
    turn_id: str | None = None
    envelope: Mapping[str, Any] | None = None


def view(event: AnyEvent) -> View:
    """Return the view of an event; raise `TypeError` for anything else."""
    if isinstance(event, RuntimeEvent):
        return View(event.type.value, event.data, event.agent_id, event.turn_id)
    envelope = cast("object", event)  # at run time it may be anything
    if not isinstance(envelope, Mapping) or "type" not in envelope:
        raise TypeError(f"neither a RuntimeEvent nor an envelope: {envelope!r}")
    frame = cast("Mapping[str, Any]", envelope)
    agent_id, turn_id = str(frame.get("agent_id", "")), frame.get("turn_id")
    return View(str(frame["type"]), frame.get("data") or {}, agent_id, turn_id, frame)


def views(events: Iterable[AnyEvent]) -> list[View]:
    return [view(event) for event in events]


def label(event: View) -> str:
    """Return the event's type and, if there is one, the word that distinguishes it from others of its type.

    `tool_call:add`, `tool_result:denied`, `confirm_response:approved`, `error:stopped`, `final:answer`,
    `state:planning`, `token:waiting`, `stall:heartbeat`; other events are their type alone.
    """
    word = _word(event.type, event.data)
    return event.type if word is None else f"{event.type}:{word}"


def _word(type_: str, data: Mapping[str, Any]) -> object | None:
    match type_:
        case "state":
            return data.get("state")
        case "token":
            return "waiting" if data.get("waiting") else None
        case "tool_call":
            return data.get("name")
        case "tool_result":
            return data.get("outcome")
        case "confirm_response":
            return "approved" if data.get("approved") else "denied"
        case "error":
            return data.get("code")
        case "final":
            return data.get("reason")
        case "stall":
            return data.get("phase")
        case _:
            return None

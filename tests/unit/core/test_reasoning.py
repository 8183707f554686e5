"""The steps of a turn, folded from its events."""

from __future__ import annotations

from typing import Any

from agenticx.core.reasoning import Reasoning, add_event, reasoning_of
from agenticx.runtime.events import EVENT_CLASSES, EventType


def events(*rows: tuple[str, dict[str, Any]], turn_id: str = "turn_a") -> list[tuple[Any, float]]:
    started: list[tuple[str, dict[str, Any]]] = [("turn_started", {"input": "hi"}), *rows]
    made = [EVENT_CLASSES[EventType(type_)](EventType(type_), data, "meta", turn_id) for type_, data in started]
    return [(event, 100.0 + 0.5 * at) for at, event in enumerate(made)]


def think(text: str) -> tuple[str, dict[str, Any]]:
    return "thinking", {"text": text, "message_id": "m", "offset": 0}


def called(number: int, name: str, **arguments: Any) -> tuple[str, dict[str, Any]]:
    return "tool_call", {"tool_call_id": f"c{number}", "name": name, "arguments": arguments}


def result(number: int, name: str, text: str, outcome: str = "ok") -> tuple[str, dict[str, Any]]:
    is_error = outcome != "ok"
    return "tool_result", {
        "tool_call_id": f"c{number}",
        "name": name,
        "result": text,
        "is_error": is_error,
        "outcome": outcome,
    }


FOUND = "\n".join(f"[passage {number}: Lease.md, boundary 0]\n[passage" for number in (1, 2, 3))
WORK = (
    think("The user wants "),
    think("the end of the lease. First I search."),
    called(1, "note_search", query="lease\x1b"),
    called(2, "look", where="here"),
    result(2, "look", "", "denied"),
    result(1, "note_search", FOUND),
    think("Now I read it"),
    called(3, "note_read", path="Lease.md"),
)
FINAL = ("final", {"text": "2027", "message_id": "m", "reason": "answer"})


def test_a_running_turn_shows_its_last_four_steps_and_one_that_has_ended_all() -> None:
    running, ended = reasoning_of(events(*WORK)), reasoning_of(events(*WORK, FINAL))

    steps = [
        "The user wants the end of the lease",
        "Searched notes for 'lease': 3 found",
        "Called look: not allowed",
        "Now I read it",
        "Reading the note 'Lease.md'",
    ]
    assert running.to_json() == {"elapsed_seconds": 4.0, "steps": steps[1:], "done": False}
    assert ended.to_json() == {"elapsed_seconds": 4.5, "steps": [ended.steps[0], *steps], "done": True}


def test_the_first_step_follows_from_the_turns_id_and_is_one_of_twelve() -> None:
    firsts = {reasoning_of(events(turn_id=f"turn_{number}")).steps for number in range(300)}

    assert len(firsts) == 12
    assert reasoning_of(events()) == reasoning_of(events())


def test_other_turns_and_what_follows_the_end_change_nothing() -> None:
    stopped = reasoning_of(events(called(1, "look"), ("error", {"text": "s", "code": "stopped", "fatal": True})))
    ((child, at),) = events(turn_id="turn_b")

    assert stopped.steps[1:] == ("Calling look", "Stopped")
    assert add_event(stopped, *events(FINAL)[1]) is stopped
    running = reasoning_of(events())
    assert add_event(running, child, at) is running
    assert add_event(Reasoning(), *events(FINAL)[1]) == Reasoning()

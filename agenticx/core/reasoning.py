"""Reasoning steps: the events of a turn as short sentences that a client shows while it runs.

`studio/web/reasoning.js` is the same fold for the page, and gives the same sentences.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, cast

from agenticx.foreign_text import one_line
from agenticx.runtime.events import EventType

__all__ = ["Reasoning", "add_event", "reasoning_of"]

_SHOWN_STEPS = 4
_MAX_STEPS = 500
_THOUGHT_CHARS = 400
_SENTENCE_CHARS = 120
_VALUE_CHARS = 40
_FIRST_STEPS = (
    "Reading your message",
    "Thinking about it",
    "Looking at what you ask",
    "Working out where to begin",
    "Taking it step by step",
    "Considering the question",
    "Making a plan",
    "Sorting out what is needed",
    "Getting an overview",
    "Looking for a way in",
    "Weighing what to do first",
    "Beginning with the question",
)
_TOOLS: Mapping[str, tuple[str, str, str]] = {
    "note_search": ("Searching notes for", "Searched notes for", "query"),
    "note_read": ("Reading the note", "Read the note", "path"),
    "note_links": ("Following links of", "Followed links of", "path"),
    "note_list": ("Listing notes", "Listed notes", "path"),
    "note_write": ("Writing the note", "Wrote the note", "path"),
    "note_append": ("Adding to the note", "Added to the note", "path"),
    "file_search": ("Searching files for", "Searched files for", "pattern"),
    "file_read": ("Reading the file", "Read the file", "path"),
    "file_write": ("Writing the file", "Wrote the file", "path"),
    "file_edit": ("Editing the file", "Edited the file", "path"),
    "list_files": ("Listing files", "Listed files", "path"),
    "bash_exec": ("Running", "Ran", "command"),
}
"""For a call and its result the beginning of their sentences, and the argument that ends these."""
_OUTCOMES = {"ok": "", "denied": ": not allowed", "cancelled": ": stopped", "timed_out": ": took too long"}
_PASSAGE = re.compile(r"^\[passage [0-9]{1,9}: ", re.MULTILINE)
_SENTENCE_END = re.compile(r"[.!?…](?=\s|$)|[。！？]")


class EventInTurn(Protocol):
    """The fields of an event that are looked at."""

    @property
    def type(self) -> str: ...
    @property
    def data(self) -> Mapping[str, Any]: ...
    @property
    def turn_id(self) -> str | None: ...


@dataclass(frozen=True, slots=True)
class Reasoning:
    """The steps of a turn so far: its seconds, one sentence for each thinking block and each call, and its end.

    The sentence of a call becomes that of its result.
    """

    elapsed_seconds: float = 0.0
    steps: tuple[str, ...] = ()
    done: bool = False
    turn_id: str | None = field(default=None, repr=False)
    began_at: float = field(default=0.0, repr=False)
    thought: str | None = field(default=None, repr=False)
    open_calls: Mapping[str, tuple[int, Mapping[str, Any]]] = field(
        default_factory=dict[str, tuple[int, Mapping[str, Any]]], repr=False
    )

    @property
    def shown(self) -> tuple[str, ...]:
        """The steps to show: the last four while the turn runs, afterwards all."""
        return self.steps if self.done else self.steps[-_SHOWN_STEPS:]

    def to_json(self) -> dict[str, Any]:
        """Return `{elapsed_seconds, steps, done}`, with the steps to show."""
        return {"elapsed_seconds": self.elapsed_seconds, "steps": list(self.shown), "done": self.done}


def reasoning_of(events: Iterable[tuple[EventInTurn, float]]) -> Reasoning:
    """Return the reasoning of the first turn among events, each given with its time in seconds."""
    reasoning = Reasoning()
    for event, at in events:
        reasoning = add_event(reasoning, event, at)
    return reasoning


def add_event(reasoning: Reasoning, event: EventInTurn, at: float) -> Reasoning:
    """Return the reasoning with one more event, which happened `at` that time in seconds. Pure.

    Events before the first `turn_started`, of other turns, and after the turn's end change nothing.
    """
    if reasoning.turn_id is None:
        if event.type != EventType.TURN_STARTED or event.turn_id is None:
            return reasoning
        return Reasoning(steps=(_first_step(event.turn_id),), turn_id=event.turn_id, began_at=at)
    if event.turn_id != reasoning.turn_id or reasoning.done:
        return reasoning
    reasoning = replace(reasoning, elapsed_seconds=max(0.0, round(at - reasoning.began_at, 3)))
    data = event.data
    match event.type:
        case EventType.THINKING:
            return _with_thought(reasoning, data["text"])
        case EventType.TOOL_CALL:
            given: Any = data["arguments"]
            arguments = cast("dict[str, Any]", given) if isinstance(given, dict) else {}
            return _with_call(reasoning, data["tool_call_id"], data["name"], arguments)
        case EventType.TOOL_RESULT:
            return _with_result(reasoning, data)
        case EventType.TOKEN:
            return replace(reasoning, thought=None) if data["text"] else reasoning
        case EventType.FINAL | EventType.SUBAGENT_PAUSED:
            return replace(reasoning, done=True)
        case EventType.ERROR if data["fatal"]:
            ended = _with_step(reasoning, "Stopped") if data["code"] == "stopped" else reasoning
            return replace(ended, done=True)
        case _:
            return reasoning


def _with_thought(reasoning: Reasoning, text: str) -> Reasoning:
    """Return the reasoning with more text of a thinking block, whose first sentence is its step."""
    if reasoning.thought is None:
        sentence = _first_sentence(text[:_THOUGHT_CHARS])
        return replace(_with_step(reasoning, sentence or "Thinking"), thought=text[:_THOUGHT_CHARS])
    if len(reasoning.thought) >= _THOUGHT_CHARS:
        return reasoning
    thought = (reasoning.thought + text)[:_THOUGHT_CHARS]
    step = _first_sentence(thought) or "Thinking"
    return replace(reasoning, steps=(*reasoning.steps[:-1], step), thought=thought)


def _with_call(reasoning: Reasoning, call_id: str, name: str, arguments: Mapping[str, Any]) -> Reasoning:
    added = _with_step(reasoning, _call_sentence(name, arguments, is_done=False))
    calls = dict(reasoning.open_calls)
    if len(calls) < _MAX_STEPS:
        calls[call_id] = (len(added.steps) - 1, arguments)
    return replace(added, open_calls=calls, thought=None)


def _with_result(reasoning: Reasoning, data: Mapping[str, Any]) -> Reasoning:
    """Return the reasoning with the result of a call, in place of the call's sentence."""
    name, call_id = data["name"], data["tool_call_id"]
    index, arguments = reasoning.open_calls.get(call_id, (len(reasoning.steps), {}))
    end = _OUTCOMES.get(data["outcome"], ": failed")
    if name == "note_search" and not end:
        end = f": {len(_PASSAGE.findall(data['result']))} found"
    sentence = _call_sentence(name, arguments, is_done=True) + end
    steps = (*reasoning.steps[:index], sentence, *reasoning.steps[index + 1 :])
    calls = {key: call for key, call in reasoning.open_calls.items() if key != call_id}
    return replace(reasoning, steps=steps[:_MAX_STEPS], open_calls=calls, thought=None)


def _with_step(reasoning: Reasoning, sentence: str) -> Reasoning:
    steps = reasoning.steps if len(reasoning.steps) < _MAX_STEPS else reasoning.steps[: _MAX_STEPS - 1]
    return replace(reasoning, steps=(*steps, sentence))


def _call_sentence(name: str, arguments: Mapping[str, Any], *, is_done: bool) -> str:
    if name not in _TOOLS:
        return f"{'Called' if is_done else 'Calling'} {_short(name)}"
    doing, done, key = _TOOLS[name]
    given = arguments.get(key)
    value = _short(given) if isinstance(given, str) else ""
    quoted = f" '{value}'" if value else ""
    return f"{done if is_done else doing}{quoted}"


def _short(text: str) -> str:
    line = " ".join(one_line(text[: 4 * _VALUE_CHARS]).split())
    return line if len(line) <= _VALUE_CHARS else f"{line[: _VALUE_CHARS - 1]}…"


def _first_sentence(text: str) -> str:
    line = " ".join(one_line(text).replace("*", "").split())
    end = _SENTENCE_END.search(line, 0, _SENTENCE_CHARS)
    if end is not None:
        return line[: end.end()].rstrip(".")
    return line if len(line) <= _SENTENCE_CHARS else f"{line[: _SENTENCE_CHARS - 1]}…"


def _first_step(turn_id: str) -> str:
    return _FIRST_STEPS[sum(map(ord, turn_id)) % len(_FIRST_STEPS)]

"""Reasoning steps: the events of a turn as short sentences that a client shows while it runs.

`studio/web/state/reasoning.js` is the same fold for the page, and gives the same sentences.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, cast

from agenticx.runtime.events import EventType
from agenticx.tools.visible import visible
from agenticx.untrusted_text import one_line

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
_TOOLS: Mapping[str, tuple[str, str, str, str]] = {
    "note_search": ("Searching notes for", "Searched notes for", "Search notes for", "query"),
    "note_read": ("Reading the note", "Read the note", "Read the note", "path"),
    "note_links": ("Following links of", "Followed links of", "Follow links of", "path"),
    "note_list": ("Listing notes", "Listed notes", "List notes", "path"),
    "note_write": ("Writing the note", "Wrote the note", "Write the note", "path"),
    "note_append": ("Adding to the note", "Added to the note", "Add to the note", "path"),
    "file_search": ("Searching files for", "Searched files for", "Search files for", "pattern"),
    "file_read": ("Reading the file", "Read the file", "Read the file", "path"),
    "file_write": ("Writing the file", "Wrote the file", "Write the file", "path"),
    "file_edit": ("Editing the file", "Edited the file", "Edit the file", "path"),
    "list_files": ("Listing files", "Listed files", "List files", "path"),
    "bash_exec": ("Running", "Ran", "Run", "command"),
    "web_search": ("Searching the web for", "Searched the web for", "Search the web for", "query"),
    "web_fetch": ("Fetching", "Fetched", "Fetch", "url"),
    "ask_user": ("Asking you", "Asked you", "Ask you", ""),
    "todo_write": ("Updating the list of tasks", "Updated the list of tasks", "Update the list of tasks", ""),
    "spawn_subagent": ("Beginning a sub-agent", "Began a sub-agent", "Begin a sub-agent", "name"),
    "wait_subagents": ("Waiting for sub-agents", "Waited for sub-agents", "Wait for sub-agents", ""),
    "query_subagent_status": (
        "Looking after the sub-agent",
        "Looked after the sub-agent",
        "Look after the sub-agent",
        "agent_id",
    ),
    "cancel_subagent": ("Stopping the sub-agent", "Stopped the sub-agent", "Stop the sub-agent", "agent_id"),
    "message_subagent": ("Writing to the sub-agent", "Wrote to the sub-agent", "Write to the sub-agent", "agent_id"),
    "memory_save": ("Remembering", "Remembered something", "Remember something", ""),
    "create_file": ("Writing the file", "Wrote the file", "Write the file", "path"),
    "edit_file": ("Editing the file", "Edited the file", "Edit the file", "path"),
    "artifact_read": ("Reading the file", "Read the file", "Read the file", "path"),
    "artifact_save": ("Saving the file", "Saved the file", "Save the file", "path"),
    "scratchpad_write": ("Writing to the scratchpad", "Wrote to the scratchpad", "Write to the scratchpad", ""),
    "scratchpad_read": ("Reading the scratchpad", "Read the scratchpad", "Read the scratchpad", ""),
    "list_subagents": ("Listing sub-agents", "Listed sub-agents", "List sub-agents", ""),
    "retry_subagent": ("Retrying the sub-agent", "Retried the sub-agent", "Retry the sub-agent", "agent_id"),
    "check_resources": (
        "Looking at what the sub-agents use",
        "Looked at what the sub-agents use",
        "Look at what the sub-agents use",
        "",
    ),
    "memory_search": ("Searching the memory for", "Searched the memory for", "Search the memory for", "query"),
    "conversation_search": (
        "Searching earlier sessions for",
        "Searched earlier sessions for",
        "Search earlier sessions for",
        "query",
    ),
    "run_variants": ("Making options", "Made options", "Make options", ""),
    "generate_images": ("Making images", "Made images", "Make images", ""),
    "remove_background": ("Removing the background", "Removed the background", "Remove the background", ""),
    "retrieve_option": ("Looking at an option", "Looked at an option", "Look at an option", ""),
}
"""The beginning of the sentence by `form` of `_call_sentence`, and the argument that ends it."""
# Tools of which several calls side by side run at the same time.
_CONCURRENT = frozenset(
    {
        *("list_files", "file_read", "file_search", "artifact_read", "note_search", "note_read", "note_links"),
        *("note_list", "scratchpad_read", "memory_search", "conversation_search", "retrieve_option"),
        *("spawn_subagent", "ask_user"),
    }
)
_RUNNING, _DONE, _NOT_DONE, _WAITING = range(4)
_OUTCOMES = {"ok": "", "denied": ": not allowed", "cancelled": ": stopped", "timed_out": ": took too long"}
_BLANKS = re.compile(r"[ \t\n\r\v\f]+")  # other ones are shown as what they are
_SPACES = re.compile(r" {2,}")
_PASSAGE = re.compile(r"^\[passage [0-9]{1,9}: ", re.MULTILINE)
_SENTENCE_END = re.compile(r"[.!?…](?=\s|$)|[。！？]")


class EventInTurn(Protocol):
    """The fields of an event that this module reads."""

    @property
    def type(self) -> str: ...
    @property
    def data(self) -> Mapping[str, Any]: ...
    @property
    def turn_id(self) -> str | None: ...


@dataclass(frozen=True, slots=True)
class _OpenCall:
    """A call without a result; `index` is that of its step, `approved` the answer to a confirmation."""

    index: int
    name: str
    arguments: Mapping[str, Any]
    approved: bool | None = None

    def sentence(self, *, asks: bool, waits: bool) -> str:
        """Return its sentence, while it `asks` the user or `waits` for its turn."""
        form = _WAITING if waits else _RUNNING
        if asks:
            form = _RUNNING if self.name == "ask_user" else _WAITING
        elif self.approved is not None:
            form = _RUNNING if self.approved else _NOT_DONE
        return _call_sentence(self.name, self.arguments, form)


@dataclass(frozen=True, slots=True)
class Reasoning:
    """The steps of a turn so far: its seconds, one sentence for each thinking block and each call, and its end.

    While a call is asked about, or has not begun as one before it has not ended, its sentence says that it waits. That
    of its result replaces it.
    """

    elapsed_seconds: float = 0.0
    steps: tuple[str, ...] = ()
    done: bool = False
    turn_id: str | None = field(default=None, repr=False)
    began_at: float = field(default=0.0, repr=False)
    thought: str | None = field(default=None, repr=False)
    open_calls: Mapping[str, _OpenCall] = field(default_factory=dict[str, "_OpenCall"], repr=False)
    asking_calls: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    """The id of the call that each open confirmation or question is about."""

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
        case EventType.TOKEN:
            return replace(reasoning, thought=None) if data["text"] else reasoning
        case EventType.FINAL | EventType.SUBAGENT_PAUSED:
            return replace(reasoning, done=True)
        case EventType.ERROR if data["fatal"]:
            ended = _with_step(reasoning, "Stopped") if data["code"] == "stopped" else reasoning
            return replace(ended, done=True)
        case _:
            return _with_call_event(reasoning, event.type, data)


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


def _with_call_event(reasoning: Reasoning, type_: str, data: Mapping[str, Any]) -> Reasoning:
    """Return the reasoning with an event of a call or of a confirmation about one; others change nothing."""
    match type_:
        case EventType.TOOL_CALL:
            given: Any = data["arguments"]
            arguments = cast("dict[str, Any]", given) if isinstance(given, dict) else {}
            return _with_call(reasoning, data["tool_call_id"], data["name"], arguments)
        case EventType.CONFIRM_REQUIRED:
            return _with_request(reasoning, data["id"], data["context"].get("tool_call_id", ""))
        case EventType.QUESTION_ASKED:
            return _with_request(reasoning, data["id"], data.get("tool_call_id", ""))
        case EventType.CONFIRM_RESPONSE | EventType.QUESTION_ANSWERED:
            return _with_answer(reasoning, data)
        case EventType.TOOL_RESULT:
            return _with_result(reasoning, data)
        case _:
            return reasoning


def _with_call(reasoning: Reasoning, call_id: str, name: str, arguments: Mapping[str, Any]) -> Reasoning:
    added = _with_step(reasoning, _call_sentence(name, arguments, _RUNNING))
    calls = dict(reasoning.open_calls)
    if len(calls) < _MAX_STEPS:
        calls[call_id] = _OpenCall(len(added.steps) - 1, name, arguments)
    return _with_open_calls(replace(added, thought=None), reasoning.asking_calls, calls)


def _with_request(reasoning: Reasoning, request_id: str, call_id: str) -> Reasoning:
    if len(reasoning.asking_calls) >= _MAX_STEPS:
        return reasoning
    return _with_open_calls(reasoning, {**reasoning.asking_calls, request_id: call_id}, reasoning.open_calls)


def _with_answer(reasoning: Reasoning, data: Mapping[str, Any]) -> Reasoning:
    """Return the reasoning with the answer to a request; other arguments replace those of the call."""
    asking, calls = dict(reasoning.asking_calls), dict(reasoning.open_calls)
    call_id = asking.pop(data["id"], "")
    if (call := calls.get(call_id)) is not None:
        arguments = data.get("arguments", call.arguments)
        calls[call_id] = replace(call, arguments=arguments, approved=data.get("approved"))
    return _with_open_calls(reasoning, asking, calls)


def _with_open_calls(reasoning: Reasoning, asking: Mapping[str, str], calls: Mapping[str, _OpenCall]) -> Reasoning:
    """Return the reasoning with these open requests and calls, and the sentences of these calls.

    A call waits behind one that asks, and behind any other one unless both run at the same time.
    """
    steps, asked = list(reasoning.steps), set(asking.values())
    is_first, waits = True, False
    for id_, call in calls.items():
        is_alone = call.name not in _CONCURRENT
        waits = waits or (is_alone and not is_first)
        steps[call.index] = call.sentence(asks=id_ in asked, waits=waits)
        is_first, waits = False, waits or is_alone or id_ in asked
    return replace(reasoning, steps=tuple(steps), asking_calls=asking, open_calls=calls)


def _with_result(reasoning: Reasoning, data: Mapping[str, Any]) -> Reasoning:
    """Return the reasoning with the result of a call, in place of the call's sentence."""
    name, call_id = data["name"], data["tool_call_id"]
    call = reasoning.open_calls.get(call_id, _OpenCall(len(reasoning.steps), name, {}))
    end = _OUTCOMES.get(data["outcome"], ": failed")
    if data["outcome"] == "cancelled" and "duration_ms" not in data:
        end = ": not run"
    is_error = end != ""
    if name == "note_search" and not is_error:
        end = f": {len(_PASSAGE.findall(data['result']))} found"
    sentence = _call_sentence(name, call.arguments, _NOT_DONE if is_error else _DONE) + end
    steps = (*reasoning.steps[: call.index], sentence, *reasoning.steps[call.index + 1 :])
    calls = {key: call for key, call in reasoning.open_calls.items() if key != call_id}
    told = replace(reasoning, steps=steps[:_MAX_STEPS], thought=None)
    return _with_open_calls(told, reasoning.asking_calls, calls)


def _with_step(reasoning: Reasoning, sentence: str) -> Reasoning:
    steps = reasoning.steps if len(reasoning.steps) < _MAX_STEPS else reasoning.steps[: _MAX_STEPS - 1]
    return replace(reasoning, steps=(*steps, sentence))


def _call_sentence(name: str, arguments: Mapping[str, Any], form: int) -> str:
    """Return the sentence of a call; `form` is `_NOT_DONE` if it was denied or failed, `_WAITING` until it begins."""
    if form == _WAITING:
        sentence = _call_sentence(name, arguments, _NOT_DONE)
        return f"Wants to {sentence[0].lower()}{sentence[1:]}"
    if name not in _TOOLS:
        return f"{('Calling', 'Called', 'Call')[form]} {_short(name)}"
    *beginnings, key = _TOOLS[name]
    given = arguments.get(key)
    value = _short(given if key == "command" else _with_spaces(given)) if isinstance(given, str) else ""
    quoted = f" '{value}'" if value else ""
    return f"{beginnings[form]}{quoted}"


def _with_spaces(name: str) -> str:
    """Return the beginning of a name, in which spaces side by side are told by their number: they are part of it."""
    beginning = name[: 4 * _VALUE_CHARS]
    told = _SPACES.sub(lambda spaces: f"⟨{len(spaces[0])} spaces⟩", beginning.rstrip(" "))
    return told if beginning == name else f"{told}…"


def _short(text: str) -> str:
    line = visible(_BLANKS.sub(" ", text[: 4 * _VALUE_CHARS]).strip(" "))
    return line if len(line) <= _VALUE_CHARS else f"{line[: _VALUE_CHARS - 1]}…"


def _first_sentence(text: str) -> str:
    line = " ".join(one_line(text).replace("*", "").split())
    end = _SENTENCE_END.search(line, 0, _SENTENCE_CHARS)
    if end is not None:
        return line[: end.end()].rstrip(".")
    return line if len(line) <= _SENTENCE_CHARS else f"{line[: _SENTENCE_CHARS - 1]}…"


def _first_step(turn_id: str) -> str:
    return _FIRST_STEPS[sum(map(ord, turn_id)) % len(_FIRST_STEPS)]

"""The text shown to the user for an event: one short line, or nothing."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal, Protocol

from agenticx.messages import MAIN_AGENT
from agenticx.runtime.events import OWNER_CLOSED, EventType
from agenticx.runtime.user_requests.request_text import RequestLine, confirm_lines, describe_size, question_lines
from agenticx.runtime.user_requests.requests import ASKED_ANEW
from agenticx.tools.plurals import pluralize
from agenticx.tools.visible import visible, visible_line, visible_path

__all__ = [
    "ALLOWED_BY_YES",
    "NO_TERMINAL",
    "PAYLOAD_ERRORS",
    "EventLike",
    "Note",
    "Tone",
    "artifact_line",
    "citation_line",
    "citation_note",
    "event_note",
    "kinds_of",
    "one_line",
    "option_note",
    "option_of",
    "request_notes",
    "request_payload",
    "retry_note",
    "unreadable_event_note",
    "user_message_note",
]

PAYLOAD_ERRORS = (KeyError, TypeError, ValueError, AttributeError, OverflowError)
"""The exceptions that formatting raises for a payload of another release, or one that fits no release."""

ALLOWED_BY_YES = "allowed by --yes"
NO_TERMINAL = "there is no terminal to ask at; --yes would allow it"
"""The reasons of answers that a terminal gave without asking; none of them is an answer of the user."""

Tone = Literal["quiet", "call", "good", "bad", "warning", "strong", "added", "removed"]

_NAME_CHARS = 100
_CALL_CHARS = 400
_SENTENCE_CHARS = 2_000


@dataclass(frozen=True, slots=True)
class Note:
    """A line, or several for a multi-line text, and its tone: a terminal has a colour for each."""

    text: str
    tone: Tone = "quiet"


class EventLike(Protocol):
    """The fields of an event that are formatted."""

    @property
    def type(self) -> str: ...
    @property
    def data(self) -> Mapping[str, Any]: ...
    @property
    def agent_id(self) -> str: ...
    @property
    def turn_id(self) -> str | None: ...
    @property
    def terminal(self) -> bool: ...


def event_note(event: EventLike, *, is_from_elsewhere: bool = False) -> Note | None:
    """Return the line for an event, or None if it is shown otherwise (text, requests) or not at all.

    With `is_from_elsewhere` it is an answer that the user gave, but not at this terminal.
    Raise one of `PAYLOAD_ERRORS` for a payload that does not have the fields of its type.
    """
    line = _FORMATTERS.get(event.type)
    if line is not None:
        return line({**event.data, "by": "elsewhere"} if is_from_elsewhere else event.data)
    return None if event.type in _TYPES else unreadable_event_note(event)


def unreadable_event_note(event: EventLike) -> Note:
    """Return the line for an event that this release does not know, or whose payload it cannot read."""
    return Note(f"· {visible_line(event.type, _NAME_CHARS)} {one_line(json.dumps(event.data), _CALL_CHARS)}")


def user_message_note(text: str) -> Note:
    """Return the line for a user message in a conversation that is shown again; a team also runs without one."""
    return Note(f"› {visible(text) or '(without a message)'}", "strong")


def _token(data: Mapping[str, Any]) -> Note | None:
    if not data.get("waiting"):
        return None
    return Note(f"… waiting for the model ({data.get('elapsed_seconds', 0):.0f} s)")


def _tool_call(data: Mapping[str, Any]) -> Note:
    name, arguments = visible_line(data["name"], _NAME_CHARS), data["arguments"]
    if isinstance(arguments, str):
        return Note(f"→ {name} {one_line(arguments)}", "call")
    pairs = (f"{one_line(key, 30)}={_short(value)}" for key, value in arguments.items())
    return Note(f"→ {one_line(' '.join((name, *pairs)), _CALL_CHARS)}", "call")


def one_line(text: str, width: int = 100) -> str:
    """Return the beginning of `text` on one visible line of at most `width` characters."""
    line = visible(" ".join(text[: 4 * width].split()))
    return line if len(line) <= width and len(text) <= 4 * width else line[: width - 1] + "…"


def _short(value: Any) -> str:
    if not isinstance(value, str):
        return one_line(json.dumps(value), 60)
    lines = (line.strip() for line in value.split("\n"))
    return one_line(" ⏎ ".join(line for line in lines if line), 60)  # two commands are not read as one


def _tool_result(data: Mapping[str, Any]) -> Note:
    outcome = visible_line(data["outcome"], _NAME_CHARS)
    duration = f", {data['duration_ms']:.0f} ms" if "duration_ms" in data else ""
    name, text = visible_line(data["name"], _NAME_CHARS), data["result"]
    lines = text.count("\n") + 1
    size = f"{lines} lines" if lines > 1 else describe_size(text)
    files = "".join(f" [attached: {visible_line(file['name'], _NAME_CHARS)}]" for file in data.get("attachments", ()))
    head = f"← {name} {outcome}{duration}, {size}: {one_line(text, 80)}{files}"
    return Note(head, "bad" if data["is_error"] else "good")


def _tool_progress(data: Mapping[str, Any]) -> Note | None:
    if data.get("output"):  # streamed by the output itself
        return None
    name = visible_line(data["name"], _NAME_CHARS)
    return Note(f"  … {name} is still running ({data['elapsed_seconds']:.0f} s)")


def _confirm_response(data: Mapping[str, Any]) -> Note:
    if data.get("reason") == ASKED_ANEW:
        return Note(f"  {ASKED_ANEW}", "warning")
    word = "allowed" if data["approved"] else "denied"
    reason = f": {visible_line(data['reason'])}" if data.get("reason") else ""
    changed = data.get("arguments")
    arguments = "" if changed is None else f", with the arguments {one_line(json.dumps(changed), _CALL_CHARS)}"
    remembered = _REMEMBERED.get(data.get("remember", "once"), "") if data["approved"] else ""
    return Note(
        f"  {word}{_decided_by(data)}{remembered}{arguments}{reason}", "good" if data["approved"] else "warning"
    )


def _decided_by(data: Mapping[str, Any]) -> str:
    return " elsewhere" if data["by"] == "elsewhere" else f" by {_DECIDERS[data['by']]}"


_REMEMBERED = {"session": " for this session", "always": " always"}
_DECIDERS = {"user": "you", "policy": "policy", "timeout": "time-out", "stop": "stop", "restart": "restart"}


def _stall(data: Mapping[str, Any]) -> Note:
    problem = _STALL_TEXTS[data["phase"]]
    match data["action"]:
        case "waiting" if data["phase"] == "tool":
            rest = max(data["limit_seconds"] - data["elapsed_seconds"], 0)
            return Note(f"… not finished yet, asking again in {rest:.0f} s")
        case "retrying" if "reason" in data:
            reason, model = visible_line(data["reason"]), visible_line(data["model"], _NAME_CHARS)
            return Note(f"… {reason}; asking {model}", "warning")
        case "retrying":
            return Note(f"… {problem} after {data['elapsed_seconds']:.0f} s, asking again")
        case "failed":
            return Note(f"… {problem} within {data['limit_seconds']:g} s", "warning")
        case _:
            return Note(f"… {problem} for {data['elapsed_seconds']:.0f} s")


_STALL_TEXTS = {
    "first_chunk": "no output from the model",
    "heartbeat": "no further output from the model",
    "hard": "no complete reply",
    "tool": "no result from the tool",
    "confirm": "no answer to the question",
}


def retry_note(data: Mapping[str, Any], number: int) -> Note:
    """Return the line for a `stall` that announces the `number`-th attempt at the same model again, with its wait."""
    wait = (datetime.fromisoformat(data["retry_at"]) - datetime.now(UTC)).total_seconds()
    when = f" in {wait:.0f} s" if wait > 0 else ""  # else it is shown later
    return Note(f"… {visible_line(data['reason'])}; retry {number}{when}", "warning")


def _error(data: Mapping[str, Any]) -> Note:
    if data["code"] == "stopped" and data["fatal"]:
        why = f": {OWNER_CLOSED}" if data["text"] == OWNER_CLOSED else ""
        return Note(f"the turn was stopped{why}", "warning")
    word, tone = ("error", "bad") if data["fatal"] else ("warning", "warning")
    code, text = visible_line(data["code"], _NAME_CHARS), visible_line(data["text"], _SENTENCE_CHARS)
    return Note(f"{word} ({code}): {text}", tone)


def _session_changed(data: Mapping[str, Any]) -> Note:
    if "picked" in data:
        return Note(f"… option {data['picked']:d} goes on")
    shown = {**data, "agent": "the main agent"} if "agent" in data and data["agent"] is None else data
    return Note(f"… {one_line(', '.join(f'{name}: {_short(value)}' for name, value in shown.items()), _CALL_CHARS)}")


def _handoff(data: Mapping[str, Any]) -> Note:
    giving, taking = (visible_line(data[name], _NAME_CHARS) for name in ("from_agent", "to_agent"))
    reason = f": {visible_line(data['reason'], _SENTENCE_CHARS)}" if "reason" in data else ""
    return Note(f"… {giving} hands over to {taking}{reason}")


def _speaker_selected(data: Mapping[str, Any]) -> Note:
    speakers = one_line(", ".join(data["speakers"]))
    if "fallback" not in data:
        return Note(f"{speakers}:", "call")
    words = one_line(data["fallback"])
    return Note(f"… the model named no one speaker, so {speakers} speaks; it said: {words}\n{speakers}:", "call")


def _question_answered(data: Mapping[str, Any]) -> Note:
    if data["answer"]:
        return Note(f"  answered{_decided_by(data)}: {visible_line(data['answer'], _SENTENCE_CHARS)}", "good")
    return Note(f"  no answer{_decided_by(data)}", "warning")


def citation_line(data: Mapping[str, Any], *, names_vault: bool = False) -> str:
    """Return a citation on one line: its marker, status, place and quote with its line; its vault if there are more."""
    place = visible_line(str(data.get("path") or data.get("url")), _NAME_CHARS)
    if names_vault and "vault" in data:
        place = f"{visible_line(data['vault'], _NAME_CHARS)}: {place}"
    quote = visible_line(data["quote"].strip(), _SENTENCE_CHARS)
    line = data.get("quote_line", data["line_start"])
    return f"[^{data['marker']}] {data['status']}  {place}:{line}  {quote}"


_CITATION_TONES: Mapping[str, Tone] = {"verified": "good", "unsupported": "warning", "changed": "warning"}


def citation_note(data: Mapping[str, Any], *, names_vault: bool = False) -> Note:
    """Return a citation as a note, coloured by its status."""
    return Note(citation_line(data, names_vault=names_vault), _CITATION_TONES.get(data["status"], "quiet"))


def artifact_line(data: Mapping[str, Any], *, path_width: int = 0) -> str:
    """Return the path of a file that lives in a session, padded to `path_width`, and its size and revision if known."""
    size, revision = data.get("size"), data.get("revision")
    if size is None and "content" in data:
        size = len(data["content"].encode(errors="surrogatepass"))
    facts = [] if size is None else [pluralize(size, "byte")]
    facts += [] if revision is None else [f"revision {revision:d}"]
    return f"{visible_path(data['path']):<{path_width}}  {', '.join(facts)}".rstrip()


_OPTION_AGENT = re.compile(r"option-([0-9]{1,9})")


def option_of(event: EventLike) -> int | None:
    """Return the number of the option whose turn an event is of, None for an event of any other turn."""
    found = _OPTION_AGENT.fullmatch(event.agent_id)
    return None if found is None else int(found[1])


def option_note(note: Note, option: int) -> Note:
    """Return a note about a file of an option, with the option's number in front."""
    return Note(f"option {option:d}  {note.text}", note.tone)


def _artifact(data: Mapping[str, Any]) -> Note | None:
    if not data["final"]:  # drawn in place by a terminal
        return None
    if data.get("dropped"):
        return Note(f"{visible_path(data['path'])}  dropped, nothing of it is stored", "warning")
    return Note(artifact_line(data), "good")


def _final(data: Mapping[str, Any]) -> Note | None:
    if "stop_reason" in data:
        return Note(f"the team stopped: {visible_line(data['stop_reason'], _SENTENCE_CHARS)}")
    if data["reason"] == "answer":
        return None if data["text"].strip() else Note("the model's answer is empty", "warning")
    if data["reason"] == "partial":
        return Note("the answer is incomplete: it was cut off, or its model calls or its time were used up", "warning")
    return Note(f"the turn ended with reason {visible_line(data['reason'], _NAME_CHARS)!r}", "warning")


_TYPES = frozenset(EventType)
_FORMATTERS: Mapping[str, Callable[[Mapping[str, Any]], Note | None]] = {
    EventType.TOKEN: _token,
    EventType.TOOL_CALL: _tool_call,
    EventType.TOOL_PROGRESS: _tool_progress,
    EventType.TOOL_RESULT: _tool_result,
    EventType.CONFIRM_RESPONSE: _confirm_response,
    EventType.QUESTION_ANSWERED: _question_answered,
    EventType.CITATION: citation_note,
    EventType.ARTIFACT: _artifact,
    EventType.HANDOFF: _handoff,
    EventType.SPEAKER_SELECTED: _speaker_selected,
    EventType.STEERED: lambda data: user_message_note(data["text"]),
    EventType.HANDED_BACK: lambda data: Note(
        f"{'removed' if data.get('removed') else 'returned unsent'}: {visible(data['input'])}", "warning"
    ),
    EventType.SESSION_CHANGED: _session_changed,
    EventType.COMPACTION: lambda data: Note(
        f"… {data['compacted_count']:d} earlier messages are now a summary"
        if data["compacted_count"]
        else "… long texts were shortened"
    ),
    EventType.STALL: _stall,
    EventType.ERROR: _error,
    EventType.FINAL: _final,
}


def request_payload(event: EventLike) -> Mapping[str, Any]:
    """Return the payload of a `confirm_required` or `question_asked`, with `agent_path` unless the main agent asks."""
    is_complete = event.agent_id == MAIN_AGENT or "agent_path" in event.data
    return event.data if is_complete else {**event.data, "agent_path": [event.agent_id]}


def request_notes(data: Mapping[str, Any]) -> Iterator[Note]:
    """Yield the lines of a `confirm_required` or `question_asked` payload, the same on every terminal."""
    agent_path = data.get("agent_path", ())
    if "context" not in data:
        yield from _notes(question_lines(data["text"], data.get("options", ()), agent_path))
        return
    yield from _notes(confirm_lines(data["question"], data["context"], agent_path))
    for kind in kinds_of(data["context"]):
        yield Note(f"  kind     {kind}")


def _notes(lines: Iterator[RequestLine]) -> Iterator[Note]:
    return (Note(line.text, line.tone) for line in lines)


def kinds_of(context: Mapping[str, Any]) -> Sequence[str]:
    """Return what a yes to a confirmation can cover, a text on one line for each rule; empty if it counts once."""
    rules = context.get("rules", ())
    if len(rules) == 1 and rules == [context.get("exact_rule")] and rules[0].get("exact"):
        return ["exactly this call"]
    return [visible_line(kind, _CALL_CHARS) for kind in context.get("kinds", ())] if rules else []

"""A checker of the event contract (payloads, order, error codes) for the events of real turns."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError

from agenticx.messages import MAIN_AGENT
from agenticx.runtime.events import DELTAS, EventType, envelope_adapter
from agenticx.testing._views import AnyEvent, View, label, views

__all__ = ["GrammarError", "check_grammar"]

_FATAL = frozenset(
    {
        "stopped",
        *(f"timeout.{clock}" for clock in ("first_chunk", "heartbeat", "hard", "turn")),
        *(f"provider.{kind}" for kind in ("auth", "rate_limited", "bad_request", "bad_reply", "overloaded")),
        *(f"provider.{kind}" for kind in ("truncated", "content_filter", "transport")),
        *("context_overflow", "loop_detected", "max_rounds", "budget_exceeded", "hook_failed"),
        *("team_unavailable", "storage", "interrupted", "internal"),
    }
)
_NOT_FATAL = frozenset({"loop_warning", "hook_failed", "tool_failed", "rule_not_stored"})
_MODEL_EVENTS = DELTAS | {"steered", "round_start"}
_OUTSIDE_TURNS = frozenset(
    {"queued", "handed_back", "session_changed"} | {type_.value for type_ in EventType if type_.startswith("subagent_")}
)


_QUEUE_EVENTS = frozenset({"queued", "turn_started", "steered", "handed_back"})


class GrammarError(AssertionError):
    """Raised when events violate the contract; `violations` has one sentence per violation."""

    def __init__(self, violations: Sequence[str]) -> None:
        super().__init__("the events break the grammar:\n  " + "\n  ".join(violations))
        self.violations = tuple(violations)


def check_grammar(events: Iterable[AnyEvent], *, complete: bool = True) -> None:
    """Raise `GrammarError` with every violation in `events`.

    Takes the `RuntimeEvent`s of one turn, or envelopes of any number of turns, interleaved or not. With
    `complete=False` the turns may still be running.

    1. `turn_started` is a turn's first event and occurs once.
    2. One terminal event ends a turn; nothing of the turn follows it. It is `final`, a fatal `error`, or the
       `subagent_paused` of the turn's own agent, which is not `meta`.
    3. `round_start` counts up from 1.
    4. All calls of a round come before any of them runs. Each has an id that is unique within the session and exactly
       one `tool_result`, in call order, before a `steered`, the next model call and the turn's end.
    5. `tool_progress` and a `stall` of a tool occur between a call and its result; an `artifact` with a `tool_call_id`
       between the call's first `tool_call_delta` and its result, one without before `state done`.
    6. A confirmation or question is asked about a call without a result, or a question without a `tool_call_id` by the
       turn's work, and answered once, by an event of its own kind, before the turn ends.
    7. `token` and `thinking` offsets continue where that message's text ended, in Unicode code points; text is empty
       only in a waiting token, of which a model call has one at most.
    8. `state` events are changes, never `idle`; `done` comes just before the terminal event.
    9. `final` repeats the streamed text of its message. Only that of a team's run, a turn without rounds, has a
       `stop_reason`. With the reason `handoff` it comes after a `handoff` from its agent.
    10. Every payload has the keys and types of the contract and no others, and error codes are known.
    11. The `seq` of a session counts up.
    12. A message that is `queued` starts the turn named by its last `queued`, or is `steered` into it, or is
        `handed_back`; it has no event afterwards.
    13. A child turn, which its `turn_started` names as `parent_turn_id`, keeps these rules by itself. It
        begins after the turn above it, has an agent of its own, not `meta`, and may end later.
    """
    turns: dict[object, _Turn] = {}
    sequences: dict[object, int] = {}
    call_ids: dict[object, set[str]] = {}  # unique within a session
    parents: dict[object, object] = {}
    messages: dict[object, str | None] = {}  # the turn for which each message is queued, None once it has an outcome
    violations: list[str] = []
    for number, event in enumerate(views(events), 1):
        prefix = f"event {number} ({label(event)})"
        violations += [f"{prefix}: {problem}" for problem in _payload_problems(event)]
        violations += [f"{prefix}: {problem}" for problem in _order_problems(event, sequences)]
        violations += [f"{prefix}: {problem}" for problem in _outcome_problems(event, messages)]
        if event.envelope is not None and event.turn_id is None:
            if event.type not in _OUTSIDE_TURNS:
                violations.append(f"{prefix}: belongs to a turn, but its turn_id is null")
            continue
        session = None if event.envelope is None else event.envelope.get("session_id")
        violations += [f"{prefix}: {problem}" for problem in _parent_problems(event, parents, turns.keys())]
        turn = turns.setdefault(event.turn_id, _Turn(call_ids.setdefault(session, set())))
        violations += [f"{prefix}: {problem}" for problem in turn.check(event)]
    if complete:
        for turn_id, turn in turns.items():
            named = "the turn" if turn_id is None else f"turn {turn_id}"
            violations += [f"{named}: {problem}" for problem in turn.check_end()]
        if not turns:
            violations.append("there is no event of any turn")
    if violations:
        raise GrammarError(violations)


def _payload_problems(event: View) -> list[str]:
    frame = event.envelope or {
        "type": event.type,
        "data": event.data,
        "agent_id": event.agent_id,
        "session_id": "",
        "turn_id": None,
        "seq": 1,
        "ts": "",
    }
    try:
        validated: Mapping[str, Any] = envelope_adapter().validate_python(frame, strict=True)["data"]
    except ValidationError as exc:
        return [
            f"{'.'.join(str(step) for step in problem['loc'][1:]) or 'the envelope'}: {problem['msg']}"
            for problem in exc.errors(include_url=False)
        ]
    return [f"data.{key}: is not in the contract" for key in event.data if key not in validated]


def _order_problems(event: View, sequences: dict[object, int]) -> list[str]:
    if event.envelope is None or not isinstance(seq := event.envelope.get("seq"), int):
        return []
    session = event.envelope.get("session_id")
    before, sequences[session] = sequences.get(session, 0), seq
    return [] if seq > before else [f"seq {seq} does not come after {before}"]


def _outcome_problems(event: View, messages: dict[object, str | None]) -> list[str]:
    if event.envelope is None or event.type not in _QUEUE_EVENTS or event.data.get("parent_turn_id"):
        return []
    message_id = event.data.get("message_id")
    message = (event.envelope.get("session_id"), message_id)
    if event.type != "queued" and message not in messages:
        return []
    named = messages.get(message, "")
    messages[message] = event.data.get("turn_id") if event.type == "queued" else None
    if named is None:
        return [f"{message_id} already has an outcome"]
    begins = event.type in ("turn_started", "steered") and event.turn_id != named
    return [f"{message_id} was queued for {named}"] if begins else []


def _parent_problems(event: View, parents: dict[object, object], begun: Collection[object]) -> list[str]:
    parent = event.data.get("parent_turn_id") if event.type == "turn_started" else None
    is_late = event.type == "turn_started" and event.turn_id in parents.values() and event.turn_id not in begun
    problems = ["a child turn began earlier"] if is_late else []
    if parent is None:
        return problems
    parents[event.turn_id] = parent
    return problems + (["a child turn has an agent of its own"] if event.agent_id == MAIN_AGENT else [])


# --- one turn ------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Turn:
    """The state of a turn so far, as needed by the rules; `call_ids` are those of the whole session."""

    call_ids: set[str]
    agent_id: str = ""
    started: bool = False
    has_handed_over: bool = False
    ended_by: str | None = None
    round: int = 0
    state: str | None = None
    previous: str = ""
    open_calls: dict[str, str] = field(default_factory=dict[str, str])
    written_calls: set[str] = field(default_factory=set[str])
    running: bool = False
    requests: dict[str, tuple[str, bool]] = field(default_factory=dict[str, tuple[str, bool]])
    texts: dict[tuple[str, str], list[str]] = field(default_factory=dict[tuple[str, str], list[str]])
    lengths: dict[tuple[str, str], int] = field(default_factory=dict[tuple[str, str], int])
    waiting_tokens: set[str] = field(default_factory=set[str])

    def check(self, event: View) -> list[str]:
        """Add the next event and return the problems with it."""
        problems = [*self._check_place(event), *self._check_open_calls(event)]
        rule = _RULE_BY_TYPE.get(event.type)
        if rule is not None:
            problems += rule(self, event)
        if self._is_terminal(event):
            problems += self._check_terminal(event)
        self.previous = event.type
        return problems

    def check_end(self) -> list[str]:
        """Return the problems of a turn that has no further events."""
        return [] if self.ended_by else ["ends without a terminal event"]

    def _check_place(self, event: View) -> list[str]:
        if self.ended_by is not None:
            return [f"comes after the terminal event {self.ended_by}"]
        if event.type == "turn_started":
            was_started, self.started, self.agent_id = self.started, True, event.agent_id
            return ["a turn starts once"] if was_started else []
        if not self.started:
            self.started, self.agent_id = True, event.agent_id
            return ["turn_started must come first"]
        return []

    def _check_open_calls(self, event: View) -> list[str]:
        if event.type not in _MODEL_EVENTS or not self.open_calls:
            return []
        return [f"the model continues while {self._unanswered()}"]

    def _unanswered(self) -> str:
        calls = ", ".join(f"{name} ({id_})" for id_, name in self.open_calls.items())
        return f"these calls have no result: {calls}"

    def check_round_start(self, event: View) -> list[str]:
        expected, self.round, self.running = self.round + 1, event.data.get("round", 0), False
        return [] if self.round == expected else [f"round {self.round} where {expected} was due"]

    def check_state(self, event: View) -> list[str]:
        before, self.state = self.state, event.data.get("state")
        if self.state == before:
            return [f"state {before} does not change"]
        if self.state == "idle":
            return ["idle is for the time between turns"]
        return [f"state {self.state} after done"] if before == "done" else []

    def check_text(self, event: View) -> list[str]:
        message_id, text = str(event.data.get("message_id")), str(event.data.get("text", ""))
        key, offset = (event.type, message_id), event.data.get("offset")
        expected = self.lengths.get(key, 0)
        problems = [] if offset == expected else [f"offset {offset} where {expected} was due"]
        if event.data.get("waiting"):
            problems += ["a waiting token has no text"] if text else []
            problems += ["a second waiting token for this model call"] if message_id in self.waiting_tokens else []
            self.waiting_tokens.add(message_id)
        elif not text:
            problems.append("empty text")
        self.lengths[key] = (offset if isinstance(offset, int) else expected) + len(text)
        self.texts.setdefault(key, []).append(text)
        return problems

    def check_tool_call(self, event: View) -> list[str]:
        id_, name = str(event.data.get("tool_call_id")), str(event.data.get("name"))
        problems = [f"tool_call_id {id_} is used twice"] if id_ in self.call_ids else []
        problems += ["a call is announced after a call of its round began"] if self.running else []
        self.call_ids.add(id_)
        self.open_calls[id_] = name
        return problems

    def check_tool_call_delta(self, event: View) -> list[str]:
        id_ = event.data.get("tool_call_id")
        self.written_calls.add(str(id_))
        return [f"arguments of {id_} continue after its tool_call"] if id_ in self.call_ids else []

    def check_tool_progress(self, event: View) -> list[str]:
        id_ = str(event.data.get("tool_call_id"))
        if id_ not in self.open_calls:
            return [f"{id_} is not a call without a result"]
        self.running = True
        return self._check_name(id_, event.data)

    def check_tool_result(self, event: View) -> list[str]:
        id_, self.running = str(event.data.get("tool_call_id")), True
        if id_ not in self.open_calls:
            return [f"{id_} already has its result" if id_ in self.call_ids else f"{id_} was never called"]
        first = next(iter(self.open_calls))
        problems = [] if id_ == first else [f"result of {id_} before that of {first}, which was called earlier"]
        problems += self._check_name(id_, event.data)
        del self.open_calls[id_]
        outcome = event.data.get("outcome")
        if event.data.get("is_error") is not (outcome != "ok"):
            problems.append(f"is_error is {event.data.get('is_error')} for outcome {outcome}")
        return problems

    def _check_name(self, id_: str, data: Mapping[str, Any]) -> list[str]:
        name, called = data.get("name"), self.open_calls[id_]
        return [] if name == called else [f"is named {name!r}, its call {called!r}"]

    def check_during_call(self, event: View) -> list[str]:
        self.running = True
        return [] if self.open_calls else [f"{event.type} outside of any call"]

    def check_artifact(self, event: View) -> list[str]:
        if self.state == "done":
            return ["artifact after state done"]
        id_ = str(event.data.get("tool_call_id"))
        is_written = id_ in self.written_calls and id_ not in self.call_ids
        has_place = "tool_call_id" not in event.data or is_written or id_ in self.open_calls
        problems = [] if has_place else [f"{id_} is not written and does not run"]
        if (offset := event.data.get("offset")) is not None:
            key, delta = ("artifact", id_), event.data.get("delta")
            expected = self.lengths.get(key, 0)
            problems += [] if offset == expected else [f"offset {offset} where {expected} was due"]
            self.lengths[key] = expected + len(str(delta))
        return problems

    def check_stall(self, event: View) -> list[str]:
        return self.check_during_call(event) if event.data.get("phase") == "tool" else []

    def check_request(self, event: View) -> list[str]:
        id_ = str(event.data.get("id"))
        tool, call_id = event.data.get("context", {}).get("tool"), event.data.get("tool_call_id")
        asks_for_work = event.type == "question_asked" and call_id is None
        problems = [] if asks_for_work else self.check_during_call(event)
        problems += [f"{id_} is asked twice"] if id_ in self.requests else []
        if event.type == "confirm_required" and tool not in self.open_calls.values():
            problems.append(f"no call of {tool!r} waits for its result")
        if call_id is not None and call_id not in self.open_calls:
            problems.append(f"{call_id} is not a call without a result")
        self.requests[id_] = (event.type, False)
        return problems

    def check_answer(self, event: View) -> list[str]:
        id_ = str(event.data.get("id"))
        asked_by, answered = self.requests.get(id_, (None, False))
        right = "confirm_required" if event.type == "confirm_response" else "question_asked"
        self.requests[id_] = (right, True)
        if asked_by is None:
            return [f"{id_} was never asked"]
        if asked_by != right:
            return [f"{id_} was asked by {asked_by}"]
        return [f"{id_} is answered twice"] if answered else []

    def check_handoff(self, event: View) -> list[str]:
        self.has_handed_over = True
        return []

    # -- the end --

    def _is_terminal(self, event: View) -> bool:
        if event.type == "subagent_paused":
            return event.agent_id == self.agent_id and event.agent_id != MAIN_AGENT
        return event.type == "final" or (event.type == "error" and event.data.get("fatal") is True)

    def _check_terminal(self, event: View) -> list[str]:
        self.ended_by = label(event)
        problems = [f"the turn ends while {self._unanswered()}"] if self.open_calls else []
        problems += [f"{id_} is still unanswered" for id_, (_, answered) in self.requests.items() if not answered]
        if self.state is not None and (self.state, self.previous) != ("done", "state"):
            problems.append(f"state done must come just before it; the state is {self.state}")
        if event.type == "final":
            problems += self._check_final_text(event.data)
            is_handoff = event.data.get("reason") == "handoff"
            problems += ["there is no handoff before it"] if is_handoff and not self.has_handed_over else []
            problems += ["a turn with rounds has no stop_reason"] if self.round and "stop_reason" in event.data else []
        return problems

    def _check_final_text(self, data: Mapping[str, Any]) -> list[str]:
        streamed = "".join(self.texts.get(("token", str(data.get("message_id"))), ()))
        return [] if data.get("text") == streamed else [f"its text differs from the streamed {streamed!r}"]


def _check_error(_turn: _Turn, event: View) -> list[str]:
    codes = _FATAL if event.data.get("fatal") else _NOT_FATAL
    return [] if event.data.get("code") in codes else [f"code {event.data.get('code')!r} is not in the contract"]


_RULE_BY_TYPE: Mapping[str, Callable[[_Turn, View], list[str]]] = {
    "round_start": _Turn.check_round_start,
    "state": _Turn.check_state,
    "token": _Turn.check_text,
    "thinking": _Turn.check_text,
    "tool_call": _Turn.check_tool_call,
    "tool_call_delta": _Turn.check_tool_call_delta,
    "tool_progress": _Turn.check_tool_progress,
    "tool_result": _Turn.check_tool_result,
    "artifact": _Turn.check_artifact,
    "stall": _Turn.check_stall,
    "confirm_required": _Turn.check_request,
    "confirm_response": _Turn.check_answer,
    "question_asked": _Turn.check_request,
    "question_answered": _Turn.check_answer,
    "handoff": _Turn.check_handoff,
    "error": _check_error,
}

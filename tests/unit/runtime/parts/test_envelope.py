"""encode_envelope: one line of ASCII that any JSON parser reads back unchanged."""

from __future__ import annotations

import inspect
import json
import pydoc
import re

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from agenticx.runtime import Event, EventType, RuntimeEvent, encode_envelope, envelope_adapter, envelope_schema
from agenticx.runtime.events import StallEvent, TokenEvent

TS = "2026-11-21T10:00:00.000Z"
pytestmark = pytest.mark.promise("B8")

_text = st.text(st.characters(exclude_categories=("Cs",)))
_odd = st.sampled_from(
    [
        "\r",
        "\n",
        "\r\n\r\n",
        "\x00",
        "\u2028",
        "\u2029",
        "\u0085",
        "\x0b",
        "\x0c",
        "\x1c",
        '"',
        "\\",
        "</script>",
        "\ufeff",
        "data: x\n\n",
        "\nid: 7\n",
        "😀",
        "\U0010ffff",
        "\x7f",
        "{",
        "a" * 10_000,
    ]
)
_strings = _text | st.lists(_text | _odd, max_size=4).map("".join)
_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | _strings,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_strings, inner, max_size=4),
    max_leaves=12,
)
_token = st.builds(
    lambda text, message_id, offset: {"text": text, "message_id": message_id, "offset": offset},
    _strings, _strings, st.integers(0, 2**53),
)  # fmt: skip
_events = st.builds(RuntimeEvent, st.sampled_from(EventType), st.dictionaries(_strings, _values), _strings) | st.builds(
    RuntimeEvent, st.sampled_from([EventType.TOKEN, EventType.THINKING]), _token, _strings
)


def envelope(event, session_id="s", turn_id="t", seq=1):
    frame = encode_envelope(event, session_id=session_id, turn_id=turn_id, seq=seq, ts=TS)
    return frame, {
        "type": event.type.value,
        "data": event.data,
        "agent_id": event.agent_id,
        "session_id": session_id,
        "turn_id": turn_id,
        "seq": seq,
        "ts": TS,
    }


@given(_events, _strings, st.none() | _strings, st.integers(1, 2**53))
def test_a_parsed_frame_equals_the_sent_event(event, session_id, turn_id, seq):
    frame, sent = envelope(event, session_id, turn_id, seq)
    assert json.loads(frame) == orjson.loads(frame) == sent
    assert list(json.loads(frame)) == ["type", "data", "agent_id", "session_id", "turn_id", "seq", "ts"]


@given(_events, _strings)
def test_a_frame_is_one_line_of_ascii_equal_to_that_of_json_dumps(event, session_id):
    frame, sent = envelope(event, session_id)
    assert frame.decode("ascii") == json.dumps(sent, separators=(",", ":"))
    assert len(frame.splitlines()) == 1
    assert min(frame) >= 0x20


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_a_non_finite_number_is_refused(value):
    with pytest.raises(ValueError, match="not JSON compliant"):
        envelope(RuntimeEvent(EventType.ARTIFACT, {"path": "a", "final": True, "content": value}))


def test_a_value_that_is_not_json_is_refused():
    with pytest.raises(TypeError):
        envelope(RuntimeEvent(EventType.ARTIFACT, {"path": {1, 2}}))


def test_a_megabyte_of_odd_text_round_trips():
    text = "\n\u2028\x00é" * 250_000
    frame, _ = envelope(RuntimeEvent(EventType.TOKEN, {"text": text, "message_id": "m", "offset": 0}))
    assert json.loads(frame)["data"]["text"] == text


PAYLOADS = {
    "speaker_selected": {"team": "Team", "speakers": ["a"]},
    "team_message": {"team": "Team", "message": {"type": "TextMessage", "content": "x"}},
    "turn_started": {"input": "hi", "model": "demo", "message_id": "m"},
    "round_start": {"round": 1, "max_rounds": 10},
    "state": {"state": "planning"},
    "token": {"text": "a", "message_id": "m", "offset": 0},
    "thinking": {"text": "a", "message_id": "m", "offset": 0},
    "tool_call_delta": {"tool_call_id": "c", "name": "add", "arguments_delta": "{"},
    "tool_call": {"tool_call_id": "c", "name": "add", "arguments": {"a": [1, None]}},
    "tool_progress": {"tool_call_id": "c", "name": "add", "elapsed_seconds": 2.5},
    "tool_result": {"tool_call_id": "c", "name": "add", "result": "3", "is_error": False, "outcome": "ok"},
    "confirm_required": {
        "id": "q", "question": "Allow?", "digest": "d", "expires_at": TS,
        "context": {"tool": "add", "tool_call_id": "c", "arguments": {}, "risk": "execute", "reasons": ["It adds."]},
    },
    "confirm_response": {"id": "q", "approved": True, "by": "user"},
    "question_asked": {"id": "q", "text": "Which?", "expires_at": TS},
    "question_answered": {"id": "q", "answer": "this", "by": "user"},
    "compaction": {"compacted_count": 3, "summary": "s", "tokens_before": 9, "tokens_after": 4, "tokens_spent": 7},
    "usage": {"input_tokens": 3, "output_tokens": None, "model": "demo"},
    "stall": {"phase": "tool", "elapsed_seconds": 1, "limit_seconds": 1, "action": "failed"},
    "queued": {"turn_id": "t", "message_id": "m", "input": "hi"},
    "handed_back": {"turn_id": "t", "message_id": "m", "input": "hi"},
    "steered": {"message_id": "m", "text": "hi"},
    "artifact": {"path": "a", "content": "x", "final": True},
    "citation": {
        "message_id": "m", "marker": 1, "status": "located", "vault": "v", "path": "a", "line_start": 1, "line_end": 2,
        "quote": "q", "quote_line": 2,
    },
    "handoff": {"from_agent": "a", "to_agent": "b"},
    "subagent_started": {"task": "t", "parent_agent_id": "meta", "depth": 1},
    "subagent_progress": {"text": "t", "parent_agent_id": "meta", "depth": 1},
    "subagent_checkpoint": {"round": 8, "max_rounds": 10, "parent_agent_id": None, "depth": 0},
    "subagent_paused": {"round": 8, "max_rounds": 10, "checkpoint": {}, "parent_agent_id": None, "depth": 0},
    "subagent_completed": {"result": "r", "parent_agent_id": "meta", "depth": 1},
    "subagent_error": {"text": "t", "code": "internal", "parent_agent_id": "meta", "depth": 1},
    "subagent_message": {
        "message_id": "m", "text": "hi", "from_agent_id": None, "parent_agent_id": "meta", "depth": 1,
    },
    "session_changed": {"name": "new"},
    "final": {"text": "a", "message_id": "m", "reason": "answer", "usage": {"input_tokens": 3, "output_tokens": 1}},
    "error": {"text": "t", "code": "stopped", "fatal": True},
}  # fmt: skip


def test_every_event_type_has_a_payload_in_the_contract():
    assert set(PAYLOADS) == {type_.value for type_ in EventType}


@pytest.mark.parametrize("type_", PAYLOADS)
def test_payloads_of_the_contract_are_accepted_by_adapter_and_schema(type_):
    frame, sent = envelope(RuntimeEvent(EventType(type_), PAYLOADS[type_]))
    assert envelope_adapter().validate_json(frame) == sent
    Draft202012Validator(envelope_schema()).validate(sent)


@pytest.mark.parametrize("type_", sorted(set(PAYLOADS) - {"session_changed"}))
def test_a_payload_without_a_required_key_is_refused(type_):
    data = dict(PAYLOADS[type_])
    required = next(iter(data))
    del data[required]
    _, sent = envelope(RuntimeEvent(EventType(type_), data))
    with pytest.raises(ValueError, match="Field required"):
        envelope_adapter().validate_python(sent)


@pytest.mark.parametrize("odd", [{"tool_call_id": 1}, {"rule": 1}, {"sandboxed": "maybe"}])
def test_a_question_with_a_context_of_a_wrong_type_is_refused(odd):
    data = PAYLOADS["confirm_required"]
    _, sent = envelope(RuntimeEvent(EventType.CONFIRM_REQUIRED, {**data, "context": {**data["context"], **odd}}))
    with pytest.raises(ValueError, match=f"context.{next(iter(odd))}"):
        envelope_adapter().validate_python(sent)


def test_the_schema_is_a_valid_json_schema():
    Draft202012Validator.check_schema(envelope_schema())


def test_help_shows_the_fields_of_all_events_and_of_each():
    table = inspect.getdoc(Event) or ""
    for type_ in EventType:
        assert re.search(rf"^{type_} +\w+\??: ", table, re.MULTILINE)
    assert "\nhandoff             from_agent: str, to_agent: str, reason?: str\n" in table
    assert "\nAttachmentData      name: str, media_type: str, size: int, sha256: str\n" in table
    described = inspect.getdoc(TokenEvent) or ""
    assert "\nmessage_id: str\n    The id of the message, unique in the session.\noffset: int\n" in described
    assert "offset: int" in pydoc.render_doc(TokenEvent)
    assert "If `action` is `retrying`, `reason` is the failure" in (inspect.getdoc(StallEvent) or "")

"""Requests to the user and their answers: both kinds are read from the log as they were written."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import get_args

from hypothesis import given
from hypothesis import strategies as st

from agenticx.runtime import (
    AnsweredBy,
    ConfirmAnswer,
    ConfirmRequest,
    QuestionAnswer,
    QuestionRequest,
    Remember,
    RuntimeEvent,
    UserAnswer,
    UserRequest,
)
from agenticx.runtime.events import check_payload
from agenticx.runtime.events.types import AskingEvent
from agenticx.runtime.user_requests.kinds import kind_of, kind_of_event
from agenticx.sessions.hub.commands import Answer, decode_command, decode_result, encode_command, encode_result
from agenticx.sessions.log.events import asked_request, decode, encode, given_answer
from agenticx.sessions.log.records import RequestAnswered, decode_record, encode_record

_texts = st.text(st.characters(exclude_categories=("Cs",)))
_names = st.text("abc_", min_size=1)
_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | _texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_texts, inner, max_size=3),
    max_leaves=8,
)
_arguments = st.dictionaries(_texts, _values, max_size=4)
_times = st.datetimes(timezones=st.just(UTC)).map(
    lambda time: time.replace(microsecond=time.microsecond // 1000 * 1000)
)
_agents = {
    "id": _names,
    "expires_at": _times | st.just(datetime.max.replace(tzinfo=UTC, microsecond=0)),
    "session_id": _names,
    "agent_id": _names,
    "agent_path": st.lists(_names, max_size=3).map(tuple),
}
_contexts = st.fixed_dictionaries(
    {
        "tool": _names,
        "tool_call_id": _names,
        "arguments": _arguments,
        "risk": st.sampled_from(["write", "execute"]),
        "reasons": st.lists(_texts),
    },
    optional={"command": _texts, "path": _texts, "diff": _texts},
)
_requests = st.builds(ConfirmRequest, question=_texts, context=_contexts, digest=_names, **_agents) | st.builds(
    QuestionRequest,
    text=_texts,
    options=st.lists(_texts, max_size=3).map(tuple),
    tool_call_id=_names | st.just(""),
    **_agents,
)
_deciders = st.sampled_from(get_args(AnsweredBy))
_answers = st.builds(
    ConfirmAnswer,
    approved=st.booleans(),
    by=_deciders,
    remember=st.sampled_from(get_args(Remember)),
    arguments=st.none() | _arguments,
    reason=st.none() | _texts,
) | st.builds(QuestionAnswer, answer=_texts, by=_deciders)


def stored(event: RuntimeEvent) -> RuntimeEvent:
    """Return an event as it is read from the log."""
    check_payload(event.type, event.data)
    return decode(
        encode(event, session_id="ses_1", turn_id="turn_1", seq=1, position=1, ts="2126-01-01T00:00:00Z")
    ).event


@given(_requests)
def test_a_request_is_read_from_its_event_as_it_was_made(request: UserRequest) -> None:
    kind = kind_of(request)
    event = stored(RuntimeEvent(kind.asked, kind.request_data(request), request.agent_id))
    assert kind_of_event(event.type) is kind
    assert isinstance(event, AskingEvent)
    assert asked_request(event, request.session_id) == request


@given(_answers)
def test_an_answer_is_read_from_event_record_and_command_as_it_was_given(answer: UserAnswer) -> None:
    kind = kind_of(answer)
    event = stored(RuntimeEvent(kind.answered, {"id": "req_1", **kind.answer_data(answer)}))
    assert given_answer(event) == answer
    fact = RequestAnswered(key="req_1", turn_id="turn_1", answer=answer)
    assert decode_record(fact.kind, fact.key, fact.turn_id, encode_record(fact)) == fact
    command = Answer(request_id="req_1", answer=answer, digest="d")
    assert decode_command(encode_command(command)) == command
    assert decode_result(command, encode_result(command, answer)) == answer

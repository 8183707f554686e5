"""Envelopes: the events as they are stored and sent, their one JSON encoding and their JSON Schema."""

from __future__ import annotations

import json
from functools import cache
from json.encoder import encode_basestring_ascii as _quote
from typing import Annotated, Any, Literal, Union

from pydantic import Field, TypeAdapter, ValidationError
from typing_extensions import TypedDict

from agenticx.runtime.events.types import PAYLOADS, EventType, RuntimeEvent

__all__ = ["check_payload", "encode_envelope", "envelope_adapter", "envelope_schema"]

_encode = json.JSONEncoder(ensure_ascii=True, allow_nan=False, separators=(",", ":")).encode


def encode_envelope(event: RuntimeEvent, *, session_id: str, turn_id: str | None, seq: int, ts: str) -> bytes:
    """Return the envelope as one line of ASCII JSON, without a newline. `ts` is RFC 3339, UTC, ending in Z.

    Raises ValueError for a non-finite number and TypeError for a value that JSON does not have.
    """
    data = event.data
    if len(data) == 3 and "offset" in data:  # token and thinking: the hot path
        payload = (
            f'{{"text":{_quote(data["text"])},"message_id":{_quote(data["message_id"])},"offset":{data["offset"]}}}'
        )
    else:
        payload = _encode(data)
    turn = "null" if turn_id is None else _quote(turn_id)
    return (
        f'{{"type":"{event.type}","data":{payload},"agent_id":{_quote(event.agent_id)},'
        f'"session_id":{_quote(session_id)},"turn_id":{turn},"seq":{seq},"ts":"{ts}"}}'
    ).encode("ascii")


@cache
def envelope_adapter() -> TypeAdapter[Any]:
    """Return the validator of envelopes that are read back; it raises `pydantic.ValidationError`."""
    members = tuple(_envelope_type(type_, payload) for type_, payload in PAYLOADS.items())
    any_of: Any = Union  # subscripted at run time: a type checker cannot follow
    annotated: Any = Annotated
    return TypeAdapter(annotated[any_of[members], Field(discriminator="type")])


def _envelope_type(type_: EventType, payload: type) -> Any:
    """Return the TypedDict of one event type's envelope, named like the event's class.

    It is made at run time, because its literal tag comes from the enum.
    """
    make: Any = TypedDict
    name = f"{type_.value.title().replace('_', '')}Event"
    return make(name, {"type": Literal[type_.value], "data": payload, **_COMMON_FIELDS})


_COMMON_FIELDS: dict[str, Any] = {
    "agent_id": Annotated[str, Field(description="The agent whose event it is.")],
    "session_id": Annotated[str, Field(description="The session in whose log it is.")],
    "turn_id": Annotated[str | None, Field(description="The turn that it belongs to; null for an event of no turn.")],
    "seq": Annotated[int, Field(description="The number of the event in its session, from 1, without gaps.")],
    "ts": Annotated[str, Field(description="The time of the event, in RFC 3339, UTC.")],
}


@cache
def _payload_adapter(type_: EventType) -> TypeAdapter[dict[str, Any]]:
    return TypeAdapter(PAYLOADS[type_])


def check_payload(type_: EventType, data: dict[str, Any]) -> None:
    """Raise ValueError with one sentence unless `data` is a payload of that type without additional keys."""
    try:
        validated = _payload_adapter(type_).validate_python(data, strict=True)
    except ValidationError as exc:
        problem = exc.errors(include_url=False, include_input=False)[0]
        raise ValueError(f"{'.'.join(str(step) for step in problem['loc'])}: {problem['msg']}") from None
    if unknown_keys := data.keys() - validated.keys():
        raise ValueError(f"{sorted(unknown_keys)[0]}: unknown key")


@cache
def envelope_schema() -> dict[str, Any]:
    """Return the JSON Schema of all envelopes, as in the OpenAPI document."""
    return envelope_adapter().json_schema()

"""Fields that a provider adds to its calls, for example a signature: they are kept and sent back with the call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from agenticx.llms.json_values import fields_in, items_in, text_in
from agenticx.messages import ToolCall

__all__ = ["SIGNED_ID", "CallFields", "call_states", "fields_of_calls", "merge_fields", "provider_fields"]

_OWN_FIELDS = frozenset({"id", "type", "index", "function", "custom", "name", "arguments", "input"})
_OWN_FUNCTION_FIELDS = frozenset({"name", "arguments", "index", "input"})


@dataclass(frozen=True, slots=True)
class CallFields:
    """The provider's fields of one call and of its `function`."""

    call: dict[str, Any] = field(default_factory=dict[str, Any])
    function: dict[str, Any] = field(default_factory=dict[str, Any])

    def add(self, call: Mapping[str, Any], function: Mapping[str, Any]) -> dict[str, Any]:
        """Add the provider's fields of a fragment; return what was added, {} for almost all fragments."""
        if call.keys() <= _OWN_FIELDS and function.keys() <= _OWN_FUNCTION_FIELDS:
            return {}
        in_call, in_function = provider_fields(call, _OWN_FIELDS), provider_fields(function, _OWN_FUNCTION_FIELDS)
        merge_fields(self.call, in_call)
        if function is not call:
            merge_fields(self.function, in_function)
        return {**in_call, **in_function}

    def state(self) -> dict[str, Any]:
        """Return the fields as a part of a provider state, {} if there are none."""
        parts = {"call": self.call, "function": self.function}
        return {name: fields for name, fields in parts.items() if fields}


SIGNED_ID = "__thought__"
"""In ids of LiteLLM, before a signature that it reads from the id; https://github.com/BerriAI/litellm/pull/16895"""


def provider_fields(fields: Mapping[str, Any], own: frozenset[str]) -> dict[str, Any]:
    """Return the fields that are not among `own` and say something; providers refuse the nulls that they send."""
    return {name: value for name, value in fields.items() if name not in own and value not in (None, "", [], {})}


def merge_fields(into: dict[str, Any], fields: Mapping[str, Any]) -> None:
    """Update `into`, and copies of the objects within it: a later fragment may have the rest of one."""
    for name, value in fields.items():
        if isinstance(value, dict):
            earlier = into.get(name)
            into[name] = cast("dict[str, Any]", earlier) if isinstance(earlier, dict) else {}
            merge_fields(into[name], cast("dict[str, Any]", value))
        else:
            into[name] = value


def call_states(calls: Sequence[tuple[str, CallFields]]) -> list[dict[str, Any]]:
    """Return the states of a reply's calls, given by their ids and fields; empty if there is nothing to send back."""
    states = [{"id": id_, **fields.state()} for id_, fields in calls]
    return states if any(len(state) > 1 or SIGNED_ID in state["id"] for state in states) else []


def fields_of_calls(payload: dict[str, Any], calls: Sequence[ToolCall]) -> list[CallFields]:
    """Return the fields of each call of a message from its provider state `payload`.

    Calls are in the order of the reply; if some of it are missing, they are found by their ids.
    """
    states = items_in(payload, "calls")
    if len(states) != len(calls):
        by_id = {text_in(state, "id"): state for state in states}
        states = [by_id.get(call.id, {}) for call in calls]
    return [CallFields(fields_in(state, "call"), fields_in(state, "function")) for state in states]

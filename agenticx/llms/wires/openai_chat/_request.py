"""A `ModelRequest` as the JSON body of a Chat Completions request."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, get_args

from agenticx.llms.base import ModelRequest
from agenticx.llms.call_fields import SIGNED_ID, CallFields, fields_of_calls
from agenticx.llms.identifiers import CallIds, IdentifierRule, ToolNames
from agenticx.llms.json_values import fields_in, items_in, text_in
from agenticx.llms.message_attachments import (
    DOCUMENT_TYPES,
    IMAGE_TYPES,
    chat_part,
    content_parts,
    with_files_after_results,
)
from agenticx.llms.openai_rows import GIVEN_IN_ROW, MESSAGE_FIELDS, WIRE
from agenticx.llms.sampling import NO_SAMPLING, ReasoningEffort
from agenticx.llms.wires.chat_dialect import ChatDialect
from agenticx.llms.wires.openai_chat._reply import REASONING_FIELDS
from agenticx.llms.wires.openai_chat._roles import STOPPED, alternating_rows, rows_without_system
from agenticx.llms.wires.request_body import arguments_text, body_bytes, encode_tools
from agenticx.llms.wires.sampling_rules import SamplingRules
from agenticx.llms.wires.strict_schema import schema_fields
from agenticx.messages import AssistantMessage, Message, ToolCall, UserMessage

__all__ = ["TOOL_NAMES", "encode_messages", "request_body", "sampling_rules"]

_UNKNOWN_REASONING = "(not known)"
"""The reasoning of an answer that has none; Moonshot treats an empty one as missing."""

_STOPPED = AssistantMessage(content=STOPPED, message_id="msg_stopped")

TOOL_NAMES = IdentifierRule("a-zA-Z0-9_-", 64)
"""OpenAI's, DeepSeek's and Mistral's: "does not match '^[a-zA-Z0-9_-]{1,64}$'".

https://github.com/microsoft/semantic-kernel/issues/4447, https://github.com/Kochava-Studios/witsy/pull/164
"""

_IDS = IdentifierRule("a-zA-Z0-9_-", 40)
"""OpenAI: "Expected a string with maximum length 40", of the characters of its names.

https://github.com/vercel/ai/issues/8132, https://github.com/langgenius/dify/issues/28987
"""

_DOTTED_IDS = IdentifierRule("a-zA-Z0-9_.:-", 40, first="a-zA-Z0-9", prefix="call_")
"""Kimi: `functions.NAME:NUMBER`; its template reads them again."""

_SHORT_IDS = IdentifierRule("a-zA-Z0-9", 9, min_length=9)
"""Mistral: "must be a-z, A-Z, 0-9, with a length of 9"; https://github.com/jackmpcollins/magentic/issues/276"""

_SKIP_SIGNATURE = "skip_thought_signature_validator"

_OWN_KEYS = (
    *("model", "messages", "stream", "stream_options", "tools", "tool_choice", "parallel_tool_calls"),
    *("response_format", "max_tokens", "max_completion_tokens", "seed", "random_seed"),
)


def request_body(
    request: ModelRequest,
    *,
    model: str,
    dialect: ChatDialect,
    stream: bool,
    replay_state: bool = True,
    names: ToolNames | None = None,
) -> bytes:
    """Return the body as UTF-8, lone surrogates as U+FFFD; without `replay_state` no reasoning is sent back.

    `names` are the tool names of the request, if they are known.
    """
    names = names or ToolNames(TOOL_NAMES, request)
    body: dict[str, Any] = {
        "model": model,
        "messages": encode_messages(
            request.messages, model=model if replay_state else None, dialect=dialect, names=names
        ),
        "stream": stream,
    }
    if stream and dialect.stream_options:
        body["stream_options"] = {"include_usage": True}
    if request.tools and (dialect.tool_choice or request.tool_choice != "none"):
        body["tools"] = encode_tools(request.tools, names)
        if request.tool_choice == "none" or (request.tool_choice == "required" and dialect.required_calls):
            body["tool_choice"] = _tool_choice(request, names)
        if dialect.one_call and not request.parallel_calls:
            body["parallel_tool_calls"] = False
    if request.output_schema is not None and dialect.output_schemas:
        body["response_format"] = {"type": "json_schema", "json_schema": schema_fields(request.output_schema)}
    if request.sampling is not NO_SAMPLING:
        sampling_rules(dialect).add_to(body, request.sampling)
    return body_bytes(body)


def _tool_choice(request: ModelRequest, names: ToolNames) -> str | dict[str, Any]:
    if request.tool_choice == "required" and request.required_tool:
        return {"type": "function", "function": {"name": names.sent_name(request.required_tool)}}
    return request.tool_choice


@cache
def sampling_rules(dialect: ChatDialect) -> SamplingRules:
    """Return the sampling of Chat Completions; the server refuses levels of effort that a model does not have."""
    return SamplingRules(
        api="Chat Completions",
        parameters={
            "temperature": "temperature",
            "top_p": "top_p",
            "max_output_tokens": dialect.output_limit,
            "stop": "stop",
            "seed": dialect.seed,
            "reasoning_effort": "reasoning_effort",
        },
        efforts={effort: effort for effort in get_args(ReasoningEffort)},
        other_keys=_OWN_KEYS,
        renamed=("max_output_tokens",),
    )


def encode_messages(
    messages: Sequence[Message], *, model: str | None, dialect: ChatDialect, names: ToolNames
) -> list[dict[str, Any]]:
    """Return the messages in the format of Chat Completions; `model` gets its own reasoning back."""
    encoder = _MessageEncoder(model, dialect, names)
    rows = [encoder.encode(message) for message in with_files_after_results(messages)]
    if dialect.alternating_roles or not dialect.system_rows:
        rows = alternating_rows(rows, encoder.encode(_STOPPED))
    return rows if dialect.system_rows else rows_without_system(rows)


def _id_rule(dialect: ChatDialect) -> IdentifierRule:
    if dialect.short_call_ids:
        return _SHORT_IDS
    return _DOTTED_IDS if dialect.dotted_call_ids else _IDS


class _MessageEncoder:
    """An encoder of one request's messages, with the ids of its calls and its dialect."""

    def __init__(self, model: str | None, dialect: ChatDialect, names: ToolNames) -> None:
        self._model = model
        self._dialect = dialect
        self._names = names
        self._ids = CallIds(_id_rule(dialect))

    def encode(self, message: Message) -> dict[str, Any]:
        if message.role == "assistant":
            return self._encode_reply(message)
        if message.role == "tool":
            id_ = self._ids.pop(message.tool_call_id) or self._ids.assign(message.tool_call_id)
            return {"role": "tool", "tool_call_id": id_, "content": message.content}
        if message.role == "user":
            return {"role": "user", "content": _user_content(message, self._dialect)}
        return {"role": "system", "content": message.content}

    def _encode_reply(self, message: AssistantMessage) -> dict[str, Any]:
        fields: dict[str, Any] = {"role": "assistant", "content": message.content}
        payload = _own_payload(message, self._model)
        ids: Sequence[str] = ()
        if message.tool_calls:
            is_own = bool(payload)
            ids = [self._ids.assign(call.id, unchanged=is_own and SIGNED_ID in call.id) for call in message.tool_calls]
            fields["content"] = message.content or None
            calls = zip(message.tool_calls, ids, fields_of_calls(payload, message.tool_calls), strict=True)
            fields["tool_calls"] = [self._encode_call(*call) for call in calls]
            if self._dialect.call_signatures:
                _add_signature(fields["tool_calls"][0])
        reasoning: dict[str, Any] = {}
        if details := items_in(payload, "details"):  # whatever the dialect: no server sends them and refuses them
            sent_ids = {call.id: id_ for call, id_ in zip(message.tool_calls, ids, strict=True)}
            reasoning["reasoning_details"] = [_with_sent_id(detail, sent_ids) for detail in details]
        elif self._dialect.returns_reasoning and (field := text_in(payload, "field")) in REASONING_FIELDS:
            reasoning[field] = message.reasoning
        if self._dialect.needs_reasoning and not reasoning.get("reasoning_content"):
            reasoning["reasoning_content"] = (
                message.reasoning if reasoning and message.reasoning else _UNKNOWN_REASONING
            )
        fields |= reasoning
        if kept := fields_in(payload, "message"):
            fields |= {name: kept[name] for name in MESSAGE_FIELDS if name in kept}
        return fields

    def _encode_call(self, call: ToolCall, id_: str, extra: CallFields) -> dict[str, Any]:
        function = {"name": self._names.sent_name(call.name), "arguments": arguments_text(call.arguments)}
        return {**extra.call, "id": id_, "type": "function", "function": {**extra.function, **function}}


def _user_content(message: UserMessage, dialect: ChatDialect) -> str | list[dict[str, Any]]:
    if not message.attachments:
        return message.content
    supported = [*(IMAGE_TYPES if dialect.images else ()), *(DOCUMENT_TYPES if dialect.files else ())]
    return [chat_part(part) for part in content_parts(message, supported)]


def _own_payload(message: AssistantMessage, model: str | None) -> dict[str, Any]:
    """Return the provider state of a reply that this model made, or that was given as a row; {} for others."""
    state = message.provider_state
    is_own = state is not None and model is not None and state.wire == WIRE and state.model in (model, GIVEN_IN_ROW)
    return state.payload if state is not None and is_own else {}


def _add_signature(call: dict[str, Any]) -> None:
    """Add the documented stand-in for the signature that a call of another model lacks."""
    call.setdefault("extra_content", {"google": {"thought_signature": _SKIP_SIGNATURE}})


def _with_sent_id(detail: dict[str, Any], sent_ids: Mapping[str, str]) -> dict[str, Any]:
    """Return a detail in which the id of a call is replaced by the sent one; `sent_ids` are by the original ids."""
    sent_id = sent_ids.get(text_in(detail, "id"))
    return detail if sent_id is None else {**detail, "id": sent_id}

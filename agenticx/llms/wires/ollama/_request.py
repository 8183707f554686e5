"""A `ModelRequest` as the JSON body of an Ollama `/api/chat` request."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, assert_never, cast

from pydantic_core import to_json

from agenticx.llms.base import ModelRequest, OutputSchema
from agenticx.llms.call_fields import CallFields, fields_of_calls
from agenticx.llms.identifiers import CallIds, IdentifierRule, ToolNames
from agenticx.llms.message_attachments import content_parts, with_files_after_results
from agenticx.llms.sampling import NO_SAMPLING
from agenticx.llms.wires.ollama._reply import WIRE
from agenticx.llms.wires.request_body import arguments_object, body_bytes, encode_tools
from agenticx.llms.wires.sampling_rules import SamplingRules
from agenticx.messages import AssistantMessage, Attachment, Message, SystemMessage, ToolCall, ToolMessage, UserMessage

__all__ = ["SAMPLING", "TOOL_NAMES", "encode_messages", "request_body"]

_IMAGE_TYPES = frozenset({"image/png", "image/jpeg", "image/webp"})

TOOL_NAMES = IdentifierRule("a-zA-Z0-9_-", 64)
"""The server has no rule of its own, but templates and the providers of its cloud models may.

All of them accept the names that OpenAI accepts.
"""

_IDS = IdentifierRule("a-zA-Z0-9_-", 40)
"""OpenAI's rule for call ids in messages, for the same reason."""

SAMPLING = SamplingRules(
    api="Ollama's API",
    parameters={
        "temperature": "options.temperature",
        "top_p": "options.top_p",
        "max_output_tokens": "options.num_predict",
        "stop": "options.stop",
        "seed": "options.seed",
        "reasoning_effort": "think",
    },
    efforts={"none": False, "low": "low", "medium": "medium", "high": "high"},
    other_keys=("model", "messages", "stream", "tools", "format", "options.num_ctx"),
)
"""The levels of `think` that the server documents; models that only think or not take each level as yes."""


def request_body(
    request: ModelRequest, *, model: str, context_window: int | None, names: ToolNames | None = None
) -> bytes:
    """Return the body as UTF-8; lone surrogates in it become U+FFFD.

    The server truncates a history that does not fit its window, silently and from the front, so a known window is
    requested. It cannot require a call; with `tool_choice` none the tools are not sent. It enforces an output schema,
    but does not show the schema to the model. `names` are the tool names of the request, if they are known.
    """
    names = names or ToolNames(TOOL_NAMES, request)
    body: dict[str, Any] = {
        "model": model,
        "messages": encode_messages(request.messages, model=model, names=names),
        "stream": True,
    }
    if request.output_schema is not None:
        body["format"] = _without_formats(request.output_schema.schema)
        body["messages"].append(_schema_row(request.output_schema))
    if request.tools and request.tool_choice != "none":
        body["tools"] = encode_tools(request.tools, names)
    if context_window is not None:
        body["options"] = {"num_ctx": context_window}
    if request.sampling is not NO_SAMPLING:
        SAMPLING.add_to(body, request.sampling)
    return body_bytes(body)


def _without_formats(schema: Any) -> Any:
    """Return the schema without patterns and formats, because the server's grammars fail on them."""
    if isinstance(schema, list):
        return [_without_formats(inner) for inner in cast("list[object]", schema)]
    if not isinstance(schema, dict):
        return schema
    fields = cast("dict[str, Any]", schema)
    is_schema = not isinstance(fields.get("pattern"), dict)  # a property may have that name
    return {
        name: _without_formats(value)
        for name, value in fields.items()
        if not (is_schema and name in ("pattern", "format") and isinstance(value, str))
    }


def _schema_row(output: OutputSchema) -> dict[str, Any]:
    text = f"Answer with one JSON object of this schema and nothing else:\n{to_json(dict(output.schema)).decode()}"
    return {"role": "system", "content": text}


def encode_messages(messages: Sequence[Message], *, model: str, names: ToolNames) -> list[dict[str, Any]]:
    """Return the messages in Ollama's format; `model` gets its own thoughts back.

    The files of results are in a message behind them: models do not see the images of a result
    (https://github.com/ollama/ollama/issues/16038).
    """
    ids = CallIds(_IDS)
    return [_encode_message(message, model, names, ids) for message in with_files_after_results(messages)]


def _encode_message(message: Message, model: str, names: ToolNames, ids: CallIds) -> dict[str, Any]:
    match message:
        case SystemMessage():
            return {"role": "system", "content": message.content}
        case UserMessage():
            return _encode_user_message(message)
        case ToolMessage():
            return {
                "role": "tool",
                "content": message.content,
                "tool_name": names.sent_name(message.name),
                "tool_call_id": ids.pop(message.tool_call_id) or ids.assign(message.tool_call_id),
            }
        case AssistantMessage():
            return _encode_reply(message, model, names, ids)
        case _:
            assert_never(message)


def _encode_user_message(message: UserMessage) -> dict[str, Any]:
    parts = content_parts(message, _IMAGE_TYPES)
    fields = {"role": "user", "content": "\n\n".join(part for part in parts if isinstance(part, str))}
    images = [part.data for part in parts if isinstance(part, Attachment)]
    return {**fields, "images": images} if images else fields


def _encode_reply(message: AssistantMessage, model: str, names: ToolNames, ids: CallIds) -> dict[str, Any]:
    fields: dict[str, Any] = {"role": "assistant", "content": message.content}
    state = message.provider_state
    payload = {} if state is None or (state.wire, state.model) != (WIRE, model) else state.payload
    if payload.get("thinking") is True and message.reasoning:
        fields["thinking"] = message.reasoning
    if message.tool_calls:
        extra = fields_of_calls(payload, message.tool_calls)
        fields["tool_calls"] = [
            _encode_call(index, call, extra[index], names, ids) for index, call in enumerate(message.tool_calls)
        ]
    return fields


def _encode_call(index: int, call: ToolCall, extra: CallFields, names: ToolNames, ids: CallIds) -> dict[str, Any]:
    function = {"index": index, "name": names.sent_name(call.name), "arguments": arguments_object(call.arguments)}
    return {**extra.call, "id": ids.assign(call.id), "function": {**extra.function, **function}}

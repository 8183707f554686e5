"""A `ModelRequest` as the JSON body of a Responses request; nothing is stored at the provider.

A model's output is sent back to it item by item, as received: encrypted reasoning with the calls that it led to. The
replies of another model, and replies that were changed since, are sent as plain messages and calls.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, assert_never, get_args

from agenticx.llms.base import ModelRequest, ToolSchema
from agenticx.llms.identifiers import CallIds, IdentifierRule, ToolNames
from agenticx.llms.json_values import items_in, text_in
from agenticx.llms.message_attachments import DOCUMENT_TYPES, IMAGE_TYPES, content_parts, data_url, result_parts
from agenticx.llms.sampling import NO_SAMPLING, ReasoningEffort
from agenticx.llms.wires.openai_responses._reply import WIRE
from agenticx.llms.wires.request_body import arguments_text, body_bytes
from agenticx.llms.wires.sampling_rules import SamplingRules
from agenticx.llms.wires.strict_schema import schema_fields
from agenticx.messages import AssistantMessage, Attachment, Message, SystemMessage, ToolCall, ToolMessage, UserMessage

__all__ = ["SAMPLING", "TOOL_NAMES", "ResponsesDialect", "encode_tools", "input_items", "request_body"]

TOOL_NAMES = IdentifierRule("a-zA-Z0-9_-", 64)
"""OpenAI: "does not match '^[a-zA-Z0-9_-]{1,64}$'"."""

_IDS = IdentifierRule("a-zA-Z0-9_.:|-", 64, first="a-zA-Z0-9", prefix="call_")
"""OpenAI: "Invalid 'input[3].call_id': string too long. Expected a string with maximum length 64".

https://github.com/AnswerDotAI/fastllm/issues/45, https://github.com/orchidfiles/ungate/pull/41
"""

_ITEM_ID = re.compile(r"[a-zA-Z0-9_.:|-]{1,64}")
"""Items' own ids have the same limit; gateways give longer ones. Nothing is stored, so calls and texts need none.

Reasoning always keeps its id: encrypted content is bound to it
(https://github.com/openclaw/openclaw/pull/71448).
"""

_ID_OPTIONAL = ("message", "function_call", "custom_tool_call", "compaction")

SAMPLING = SamplingRules(
    api="the Responses API",
    parameters={
        "temperature": "temperature",
        "top_p": "top_p",
        "max_output_tokens": "max_output_tokens",
        "reasoning_effort": "reasoning.effort",
    },
    efforts={effort: effort for effort in get_args(ReasoningEffort)},
    other_keys=(
        *("model", "input", "stream", "store", "include", "tools", "tool_choice", "parallel_tool_calls"),
        *("reasoning.summary", "text.format"),
    ),
    min_output_tokens=16,
)
"""It has neither `stop` nor `seed`; the server refuses levels of effort that a model does not have."""

_REPLAYABLE_TYPES = frozenset(
    {
        "message",
        "reasoning",
        "function_call",
        "custom_tool_call",
        "web_search_call",
        "file_search_call",
        "code_interpreter_call",
        "image_generation_call",
        "mcp_call",
        "mcp_list_tools",
        "compaction",
    }
)
"""Items that may be in an input without a result from the client (calls: with the result that follows them)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponsesDialect:
    """The features that only some servers and models support."""

    encrypted_reasoning: bool = True
    """True to request the reasoning in encrypted form; models that do not reason refuse."""

    reasoning_summary: bool = False
    """True to request summaries of the reasoning; models that do not reason and unverified accounts are refused."""

    output_schemas: bool = True
    """True if output schemas are enforced; models older than gpt-4o refuse."""


def request_body(
    request: ModelRequest,
    *,
    model: str,
    dialect: ResponsesDialect,
    stream: bool,
    replay_state: bool = True,
    names: ToolNames | None = None,
) -> bytes:
    """Return the body as UTF-8, lone surrogates as U+FFFD; without `replay_state` replies are plain text and calls.

    `names` are the tool names of the request, if they are known.
    """
    names = names or ToolNames(TOOL_NAMES, request)
    body: dict[str, Any] = {
        "model": model,
        "input": input_items(request.messages, model=model if replay_state else None, names=names),
        "stream": stream,
        "store": False,
    }
    if dialect.encrypted_reasoning:
        body["include"] = ["reasoning.encrypted_content"]
    if dialect.reasoning_summary:
        body["reasoning"] = {"summary": "auto"}
    if request.tools:
        body["tools"] = encode_tools(request.tools, names)
        if request.tool_choice != "auto":
            body["tool_choice"] = _tool_choice(request, names)
        if not request.parallel_calls:
            body["parallel_tool_calls"] = False
    if request.output_schema is not None and dialect.output_schemas:
        body["text"] = {"format": {"type": "json_schema", **schema_fields(request.output_schema)}}
    if request.sampling is not NO_SAMPLING:
        SAMPLING.add_to(body, request.sampling)
    return body_bytes(body)


def _tool_choice(request: ModelRequest, names: ToolNames) -> str | dict[str, Any]:
    if request.tool_choice == "required" and request.required_tool:
        return {"type": "function", "name": names.sent_name(request.required_tool)}
    return request.tool_choice


def input_items(messages: Sequence[Message], *, model: str | None, names: ToolNames) -> list[dict[str, Any]]:
    """Return the conversation in the format of Responses; `model` gets its own output back as received."""
    sent = _SentIdentifiers(names)
    return [item for message in messages for item in _message_items(message, model, sent)]


def encode_tools(tools: Sequence[ToolSchema], names: ToolNames) -> list[dict[str, Any]]:
    """Return the tools in the format of Responses; not strict, because that forbids optional parameters."""
    return [
        {
            "type": "function",
            "name": names.sent_name(tool.name),
            "description": tool.description,
            "parameters": dict(tool.parameters),
            "strict": False,
        }
        for tool in tools
    ]


def _message_items(message: Message, model: str | None, sent: _SentIdentifiers) -> Iterator[dict[str, Any]]:
    match message:
        case SystemMessage():
            yield {"type": "message", "role": "system", "content": message.content}
        case UserMessage():
            yield {"type": "message", "role": "user", "content": _user_content(message)}
        case ToolMessage():
            yield sent.output_item(message)
        case AssistantMessage():
            replayable = _replayable_items(message, model, sent.names)
            if replayable is not None and sent.add_items(replayable):
                yield from _replayed_items(replayable, message, sent)
            else:
                yield from _plain_items(message, sent)
        case _:
            assert_never(message)


def _user_content(message: UserMessage) -> str | list[dict[str, Any]]:
    if not message.attachments:
        return message.content
    return [_wire_part(part) for part in content_parts(message, IMAGE_TYPES | DOCUMENT_TYPES)]


def _wire_part(part: str | Attachment) -> dict[str, Any]:
    if isinstance(part, str):
        return {"type": "input_text", "text": part}
    if part.kind == "image":
        return {"type": "input_image", "image_url": data_url(part), "detail": "auto"}
    return {"type": "input_file", "filename": part.name, "file_data": data_url(part)}


def _plain_items(message: AssistantMessage, sent: _SentIdentifiers) -> Iterator[dict[str, Any]]:
    if message.content:
        yield {"type": "message", "role": "assistant", "content": message.content}
    for call in message.tool_calls:
        yield {
            "type": "function_call",
            "call_id": sent.add_call(call),
            "name": sent.names.sent_name(call.name),
            "arguments": arguments_text(call.arguments),
        }


def _replayed_items(
    replayable: list[dict[str, Any]], message: AssistantMessage, sent: _SentIdentifiers
) -> Iterator[dict[str, Any]]:
    """Yield the items as received; calls get valid ids, names and arguments."""
    calls = iter(message.tool_calls)
    for item in replayable:
        if item["type"] == "custom_tool_call":
            call = next(calls)
            yield {**item, "call_id": sent.add_call(call, custom=True), "name": sent.names.sent_name(call.name)}
        elif item["type"] == "function_call":
            call = next(calls)
            named = {"call_id": sent.add_call(call), "name": sent.names.sent_name(call.name)}
            yield {**item, **named, "arguments": arguments_text(call.arguments)}
        else:
            yield item


# --- replay of a model's own output


def _replayable_items(message: AssistantMessage, model: str | None, names: ToolNames) -> list[dict[str, Any]] | None:
    """Return the stored items of a message, None if they are another model's or the message was changed since."""
    state = message.provider_state
    if state is None or (state.wire, state.model) != (WIRE, model):
        return None
    output = [_without_output_only_fields(item) for item in items_in(state.payload, "output")]
    if not all(_is_replayable(item) for item in output) or not _matches_message(output, message, names):
        return None
    return _without_unusable_reasoning([row for item in output if (row := _plain_if_no_id(item)) is not None]) or None


def _without_output_only_fields(item: dict[str, Any]) -> dict[str, Any]:
    """Return an item without fields that the provider sends and does not accept: nulls, and invalid ids."""
    drops_id = text_in(item, "type") in _ID_OPTIONAL and not _ITEM_ID.fullmatch(text_in(item, "id"))
    return {name: value for name, value in item.items() if value is not None and not (drops_id and name == "id")}


def _is_replayable(item: dict[str, Any]) -> bool:
    """Return whether an item may be sent in an input as it is."""
    kind, id_ = text_in(item, "type"), text_in(item, "id")
    return kind in _REPLAYABLE_TYPES and (kind == "reasoning" or not id_ or bool(_ITEM_ID.fullmatch(id_)))


def _plain_if_no_id(item: dict[str, Any]) -> dict[str, Any] | None:
    """Return an item, a message without an id in the form that needs none, None for one without text."""
    if item["type"] != "message" or "id" in item:
        return item
    text = "".join(text_in(part, "text") or text_in(part, "refusal") for part in items_in(item, "content"))
    return {"type": "message", "role": "assistant", "content": text} if text else None


def _matches_message(output: list[dict[str, Any]], message: AssistantMessage, names: ToolNames) -> bool:
    """Return whether items and message have the same text and calls: a hook or repair may have changed them."""
    parts = [part for item in output if item["type"] == "message" for part in items_in(item, "content")]
    text = "".join(text_in(part, "text") or text_in(part, "refusal") for part in parts)
    called = [_call_signature(item) for item in output if item["type"] in ("function_call", "custom_tool_call")]
    if text != message.content or len(called) != len(message.tool_calls):
        return False
    return all(
        name in (call.name, names.sent_name(call.name)) and arguments == call.arguments
        for (name, arguments), call in zip(called, message.tool_calls, strict=True)
    )


def _call_signature(item: dict[str, Any]) -> tuple[str, str]:
    if item["type"] == "custom_tool_call":
        return text_in(item, "name"), json.dumps(text_in(item, "input"), ensure_ascii=False)
    return text_in(item, "name"), text_in(item, "arguments")


def _without_unusable_reasoning(output: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the items without unusable reasoning: with no content, or with no output after it.

    The server would look up reasoning without content, and nothing is stored there.
    """
    usable = [
        item
        for item in output
        if item["type"] != "reasoning" or item.get("encrypted_content") or items_in(item, "content")
    ]
    while usable and usable[-1]["type"] == "reasoning":
        usable.pop()
    return usable


# --- calls and their outputs


class _SentIdentifiers:
    """The names and ids sent in a request; ids are distinct within it, even if the history's are not."""

    def __init__(self, names: ToolNames) -> None:
        self.names = names
        self._items: set[str] = set()
        self._ids = CallIds(_IDS)
        self._custom: set[str] = set()

    def add_items(self, items: list[dict[str, Any]]) -> bool:
        """Register the ids of these items; return False if one is in the request already, as for a duplicate reply."""
        ids = [id_ for item in items if (id_ := text_in(item, "id"))]
        if len(set(ids)) < len(ids) or not self._items.isdisjoint(ids):
            return False
        self._items.update(ids)
        return True

    def add_call(self, call: ToolCall, *, custom: bool = False) -> str:
        """Register a call and return the id to send for it and for its output."""
        call_id = self._ids.assign(call.id)
        if custom:
            self._custom.add(call_id)
        return call_id

    def output_item(self, result: ToolMessage) -> dict[str, Any]:
        """Return the result of the latest call of its id; with files it is a list of parts, as in a message."""
        call_id = self._ids.pop(result.tool_call_id) or self._ids.assign(result.tool_call_id)
        kind = "custom_tool_call_output" if call_id in self._custom else "function_call_output"
        text, files = result_parts(result, IMAGE_TYPES | DOCUMENT_TYPES)
        output = [*([_wire_part(text)] if text else []), *map(_wire_part, files)] if files else text
        return {"type": kind, "call_id": call_id, "output": output}

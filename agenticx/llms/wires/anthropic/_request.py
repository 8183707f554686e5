"""A `ModelRequest` as the JSON body of an Anthropic Messages request.

The API's own rules that a conversation is adapted to:

1. Leading system messages go to the top level; user and assistant alternate, so neighbours are merged; the first
   message and the last one are the user's (newer models refuse to continue an assistant's).
2. The results of an answer's calls come first in the message after it; images and PDFs are part of a result. Ids of
   calls are unique in the whole conversation and, like the names of tools, made of letters, digits, `_` and `-`.
3. No text is blank, no error result is empty, no assistant message ends with a thought.
4. A conversation with calls in it declares tools, even if none may be called any more.
5. With thinking, a turn must begin with a thought; thinking is off in a turn that another model began.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import takewhile
from typing import Any, Literal, cast

from agenticx.llms.base import ModelRequest, OutputSchema, ToolSchema
from agenticx.llms.identifiers import CallIds, IdentifierRule, ToolNames
from agenticx.llms.json_values import items_in, text_in
from agenticx.llms.message_attachments import DOCUMENT_TYPES, IMAGE_TYPES, content_parts, result_parts
from agenticx.llms.sampling import NO_SAMPLING
from agenticx.llms.wires.anthropic._reply import WIRE
from agenticx.llms.wires.request_body import arguments_object, body_bytes
from agenticx.llms.wires.sampling_rules import SamplingRules
from agenticx.llms.wires.strict_schema import strict_schema
from agenticx.messages import AssistantMessage, Attachment, Message, SystemMessage, ToolCall, ToolMessage, UserMessage

__all__ = ["NEWER_SAMPLING", "SAMPLING", "TOOL_NAMES", "accepted_output_schema", "request_body"]

_Block = dict[str, Any]
_Role = Literal["user", "assistant"]

_FIRST_USER_TEXT = "[The conversation begins with your own words.]"
_LAST_USER_TEXT = "[Go on.]"
_THINKING_TYPES = ("thinking", "redacted_thinking")
_SERVER_CALL_IDS = ("id", "tool_use_id")  # of calls that the provider runs itself
_TOP_LEVEL_UNSUPPORTED = ("oneOf", "anyOf", "allOf")
_CACHE_CONTROL: _Block = {"type": "ephemeral"}

TOOL_NAMES = IdentifierRule("a-zA-Z0-9_-", 64)
"""The API takes `^[a-zA-Z0-9_-]{1,128}$` now; 64 was its limit, and is that of Bedrock and of compatible servers."""

_IDS = IdentifierRule("a-zA-Z0-9_-", 64)
"""`^[a-zA-Z0-9_-]+$`; Bedrock and compatible servers take no more than 64."""

SAMPLING = SamplingRules(
    api="the Messages API",
    parameters={
        "temperature": "temperature",
        "top_p": "top_p",
        "max_output_tokens": "max_tokens",
        "stop": "stop_sequences",
        "reasoning_effort": "output_config.effort",
    },
    efforts={effort: effort for effort in ("low", "medium", "high", "xhigh", "max")},
    other_keys=("model", "messages", "stream", "system", "tools", "tool_choice", "output_config.format"),
    max_temperature=1,
)
"""There is no `seed`. The effort is `output_config.effort`, with thinking and without: Opus 4.5 and the models since
4.6 accept it. `thinking` itself can be part of an extra body.

Read on 2026-11-23: https://platform.claude.com/docs/en/build-with-claude/effort, the types of Anthropic's SDK 2.12.
"""

NEWER_SAMPLING = replace(
    SAMPLING,
    api="the Messages API since Opus 4.7",
    parameters={key: name for key, name in SAMPLING.parameters.items() if key not in ("temperature", "top_p")},
    other_keys=(*SAMPLING.other_keys, "temperature", "top_p"),
)
"""The sampling of models that refuse `temperature` and `top_p`, in every version of the API.

Read on 2026-11-23: https://platform.claude.com/docs/en/about-claude/models/migration-guide
"""


def request_body(
    request: ModelRequest,
    *,
    model: str,
    max_tokens: int,
    thinking: Mapping[str, Any] | None = None,
    output_schemas: bool = True,
    replay_state: bool = True,
    names: ToolNames | None = None,
) -> bytes:
    """Return the body as UTF-8; lone surrogates in it become U+FFFD. `thinking` is sent where the API permits it.

    `max_tokens` is the limit of a request without one. Without `output_schemas` an output schema is left out, for
    models that refuse one. Without `replay_state` the model's earlier replies are sent as text and calls, without its
    thoughts. `names` are the tool names of the request, if they are known.
    """
    leading = list(takewhile(lambda message: isinstance(message, SystemMessage), request.messages))
    system = [block for message in leading for block in _text_blocks(message.content)]
    names = names or ToolNames(TOOL_NAMES, request)
    encoded = _encode_messages(request.messages[len(leading) :], model if replay_state else None, names)
    _add_cache_control(system, encoded)
    body: dict[str, Any] = {"model": model, "max_tokens": max_tokens, "stream": True, "messages": encoded}
    if system:
        body["system"] = system
    if tools := [_tool(tool, names) for tool in request.tools] or _declare_used_tools(encoded):
        body["tools"] = tools
        if choice := _tool_choice(request, names):
            body["tool_choice"] = choice
    if output_schemas and request.output_schema and (schema := accepted_output_schema(request.output_schema)):
        body["output_config"] = {"format": {"type": "json_schema", "schema": schema}}
    if request.sampling is not NO_SAMPLING:
        SAMPLING.add_to(body, request.sampling)
    if thinking and "thinking" not in body and _is_thinking_allowed(thinking, body):
        body["thinking"] = dict(thinking)
    return body_bytes(body)


def accepted_output_schema(output: OutputSchema) -> dict[str, Any] | None:
    """Return the schema in the form that the API accepts, None if it accepts none: recursive ones are refused."""
    schema = strict_schema(output.schema)
    return None if schema is None or _is_recursive(schema) else schema


# --- messages -------------------------------------------------------------------------------------------------------


def _encode_messages(messages: Sequence[Message], model: str | None, names: ToolNames) -> list[dict[str, Any]]:
    ids = CallIds(_IDS)
    encoded: list[dict[str, Any]] = []

    def add(role: _Role, blocks: list[_Block]) -> None:
        if encoded and encoded[-1]["role"] == role:
            encoded[-1]["content"].extend(blocks)
        elif blocks:
            encoded.append({"role": role, "content": blocks})

    for message in messages:
        if isinstance(message, AssistantMessage):
            blocks = _assistant_blocks(message, model, names, ids)
            if blocks and not encoded:
                add("user", _text_blocks(_FIRST_USER_TEXT))
            add("assistant", blocks)
        else:
            add("user", _user_blocks(message, ids))
    if not encoded or encoded[-1]["role"] == "assistant":
        add("user", _text_blocks(_LAST_USER_TEXT))
    return encoded


def _user_blocks(message: UserMessage | SystemMessage | ToolMessage, ids: CallIds) -> list[_Block]:
    if isinstance(message, UserMessage):
        return [block for part in content_parts(message, IMAGE_TYPES | DOCUMENT_TYPES) for block in _part_blocks(part)]
    if isinstance(message, SystemMessage):
        return _text_blocks(message.content)
    call_id = ids.pop(message.tool_call_id)
    if call_id is None:
        content, files = result_parts(message, IMAGE_TYPES | DOCUMENT_TYPES)
        text = _text_blocks(f"[result of {message.name}] {content}")
        return [*text, *(inner for file in files for inner in _part_blocks(file))]
    block: _Block = {"type": "tool_result", "tool_use_id": call_id}
    content, files = result_parts(message, IMAGE_TYPES | DOCUMENT_TYPES)
    if message.outcome != "ok":
        block["is_error"] = True
        content = content if content.strip() else message.outcome.replace("_", " ")
    if files:
        block["content"] = [*_text_blocks(content), *(inner for file in files for inner in _part_blocks(file))]
    elif content.strip():
        block["content"] = content
    return [block]


def _part_blocks(part: str | Attachment) -> list[_Block]:
    if isinstance(part, str):
        return _text_blocks(part)
    source = {"type": "base64", "media_type": part.media_type, "data": part.data}
    if part.kind == "image":
        return [{"type": "image", "source": source}]
    return [{"type": "document", "source": source, "title": part.name}]


def _assistant_blocks(message: AssistantMessage, model: str | None, names: ToolNames, ids: CallIds) -> list[_Block]:
    calls = [_call_block(call, names, ids) for call in message.tool_calls]
    blocks = _replayed_blocks(message, model, calls)
    if blocks is None:
        blocks = [*_text_blocks(message.content), *calls]
    while blocks and blocks[-1]["type"] in _THINKING_TYPES:
        blocks.pop()
    return blocks


def _replayed_blocks(message: AssistantMessage, model: str | None, calls: list[_Block]) -> list[_Block] | None:
    """Return the blocks of this model's own reply, None if it is another model's or the message was changed since.

    Blocks are returned as they were received, without blank texts.
    """
    state = message.provider_state
    if state is None or (state.wire, state.model) != (WIRE, model):
        return None
    content = [block for block in items_in(state.payload, "content") if text_in(block, "type")]
    texts = [text_in(block, "text") for block in content if block["type"] == "text"]
    count = sum(block["type"] == "tool_use" for block in content)
    if not content or "".join(texts) != message.content or count != len(calls):
        return None
    if not all(_IDS.allows(text_in(block, name)) for block in content for name in _SERVER_CALL_IDS if name in block):
        return None
    remaining = iter(calls)
    replayed = [{**block, **next(remaining)} if block["type"] == "tool_use" else dict(block) for block in content]
    return [block for block in replayed if block["type"] != "text" or block["text"].strip()]


def _text_blocks(text: str) -> list[_Block]:
    return [{"type": "text", "text": text}] if text.strip() else []


def _call_block(call: ToolCall, names: ToolNames, ids: CallIds) -> _Block:
    return {
        "type": "tool_use",
        "id": ids.assign(call.id),
        "name": names.sent_name(call.name),
        "input": arguments_object(call.arguments),
    }


# --- tools, schemas and thinking ------------------------------------------------------------------------------------


def _tool(tool: ToolSchema, names: ToolNames) -> dict[str, Any]:
    schema = {name: value for name, value in tool.parameters.items() if name not in _TOP_LEVEL_UNSUPPORTED}
    return {
        "name": names.sent_name(tool.name),
        "description": tool.description,
        "input_schema": {**schema, "type": "object"},
    }


def _is_recursive(schema: Mapping[str, Any]) -> bool:
    """Return whether one of the schema's definitions refers to itself, directly or through others."""
    direct = {name: _references(inner) for name, inner in schema.get("$defs", {}).items()}
    reachable = direct
    for _ in direct:
        reachable = {
            name: names.union(*(direct.get(name, frozenset()) for name in names)) for name, names in reachable.items()
        }
    return any(name in names for name, names in reachable.items())


def _references(schema: object) -> frozenset[str]:
    """Return the names of the definitions that a schema refers to."""
    if isinstance(schema, dict):
        fields = cast("dict[str, object]", schema)
        own = {reference.rpartition("/")[2]} if isinstance(reference := fields.get("$ref"), str) else set[str]()
        return frozenset(own).union(*map(_references, fields.values()))
    if isinstance(schema, list):
        return frozenset[str]().union(*map(_references, cast("list[object]", schema)))
    return frozenset()


def _declare_used_tools(encoded: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return declarations of the tools called in a conversation that declares none."""
    names = {block["name"]: None for message in encoded for block in message["content"] if block["type"] == "tool_use"}
    return [{"name": name, "input_schema": {"type": "object"}} for name in names]


def _tool_choice(request: ModelRequest, names: ToolNames) -> dict[str, Any] | None:
    if not request.tools or request.tool_choice == "none":
        return {"type": "none"}
    choice: dict[str, Any] = {"type": "any" if request.tool_choice == "required" else "auto"}
    if choice["type"] == "any" and request.required_tool:
        choice = {"type": "tool", "name": names.sent_name(request.required_tool)}
    if not request.parallel_calls:
        return {**choice, "disable_parallel_tool_use": True}
    return None if choice["type"] == "auto" else choice


def _add_cache_control(system: list[_Block], encoded: list[dict[str, Any]]) -> None:
    """Mark the common beginning of this and the next request for caching: tools and system, and the conversation."""
    if system:
        system[-1]["cache_control"] = _CACHE_CONTROL
    encoded[-1]["content"][-1]["cache_control"] = _CACHE_CONTROL


def _is_thinking_allowed(thinking: Mapping[str, Any], body: dict[str, Any]) -> bool:
    if (
        body.get("tool_choice", {}).get("type") in ("any", "tool")
        or thinking.get("budget_tokens", 0) >= body["max_tokens"]
    ):
        return False
    first_blocks: list[_Block] | None = None  # of the turn that is under way
    for message in reversed(body["messages"]):
        if message["role"] == "assistant":
            first_blocks = message["content"]
        elif not any(block["type"] == "tool_result" for block in message["content"]):
            break
    return first_blocks is None or first_blocks[0]["type"] in _THINKING_TYPES

"""A `ModelRequest` as the JSON body of an Anthropic Messages request.

The rules of the API that a conversation must be bent to, beyond those that every provider has:

1. Leading system rows go to the top level; user and assistant alternate, so neighbours are merged; the first message
   and the last one are the user's (newer models refuse to continue an assistant's).
2. The results of an answer's calls come first in the message after it. Ids of calls are unique in the whole
   conversation and, like the names of tools, made of letters, digits, `_` and `-`.
3. No text is blank, no error result is empty, no assistant message ends with a thought.
4. A conversation with calls in it declares tools, even if none may be called any more.
5. A turn that is thought through begins with a thought: where a turn was begun by another model, it is not.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import takewhile
from typing import Any, Literal, cast

from agenticx.llms._attachments import DOCUMENTS, IMAGES, message_pieces
from agenticx.llms._bodies import arguments_object, body_bytes
from agenticx.llms._identifiers import CallIds, IdentifierRule, ToolNames
from agenticx.llms._strict_schema import strict_schema
from agenticx.llms._values import items_in, text_in
from agenticx.llms.anthropic._reply import WIRE
from agenticx.llms.base import ModelRequest, OutputSchema, ToolSchema
from agenticx.messages import AssistantMessage, Attachment, Message, SystemMessage, ToolCall, ToolMessage, UserMessage

__all__ = ["held_schema", "request_body", "sent_names"]

_Block = dict[str, Any]
_Role = Literal["user", "assistant"]

_OPENING = "[The conversation begins with your own words.]"
_CLOSING = "[Go on.]"
_THOUGHTS = ("thinking", "redacted_thinking")
_OWN_IDS = ("id", "tool_use_id")  # of calls that the provider runs itself
_NOT_AT_THE_TOP = ("oneOf", "anyOf", "allOf")
_CACHED: _Block = {"type": "ephemeral"}

_NAMES = IdentifierRule("a-zA-Z0-9_-", 64)
"""The API takes `^[a-zA-Z0-9_-]{1,128}$` now; 64 was its limit, and is that of Bedrock and of compatible servers."""

_IDS = IdentifierRule("a-zA-Z0-9_-", 64)
"""`^[a-zA-Z0-9_-]+$`; Bedrock and compatible servers take no more than 64."""


def request_body(
    request: ModelRequest,
    *,
    model: str,
    max_tokens: int,
    thinking: Mapping[str, Any] | None = None,
    output_schemas: bool = True,
    native: bool = True,
) -> bytes:
    """The body, UTF-8; lone surrogates in it become U+FFFD. `thinking` goes along where the API permits it.

    Without `output_schemas` an output schema is left out, for models that refuse one. Without `native` nothing goes
    back as it came: of what the model said that is text and calls, thoughts are left out.
    """
    leading = list(takewhile(lambda message: isinstance(message, SystemMessage), request.messages))
    system = [block for message in leading for block in _text(message.content)]
    names = sent_names(request)
    rows = _rows(request.messages[len(leading) :], model if native else None, names)
    _mark_for_cache(system, rows)
    body: dict[str, Any] = {"model": model, "max_tokens": max_tokens, "stream": True, "messages": rows}
    if system:
        body["system"] = system
    if tools := [_tool(tool, names) for tool in request.tools] or _bygone_tools(rows):
        body["tools"] = tools
        if choice := _tool_choice(request):
            body["tool_choice"] = choice
    if thinking and _may_think(thinking, body):
        body["thinking"] = dict(thinking)
    if output_schemas and request.output_schema and (schema := held_schema(request.output_schema)):
        body["output_config"] = {"format": {"type": "json_schema", "schema": schema}}
    return body_bytes(body)


def held_schema(output: OutputSchema) -> dict[str, Any] | None:
    """The schema as the API takes it, None if it takes none like it: those that contain themselves are refused."""
    schema = strict_schema(output.schema)
    return None if schema is None or _recurs(schema) else schema


def sent_names(request: ModelRequest) -> ToolNames:
    """Return the names in `request` as the API takes them."""
    return ToolNames(_NAMES, request)


# --- messages -------------------------------------------------------------------------------------------------------


def _rows(messages: Sequence[Message], model: str | None, names: ToolNames) -> list[dict[str, Any]]:
    ids = CallIds(_IDS)
    rows: list[dict[str, Any]] = []

    def add(role: _Role, blocks: list[_Block]) -> None:
        if rows and rows[-1]["role"] == role:
            rows[-1]["content"].extend(blocks)
        elif blocks:
            rows.append({"role": role, "content": blocks})

    for message in messages:
        if isinstance(message, AssistantMessage):
            blocks = _assistant_blocks(message, model, names, ids)
            if blocks and not rows:
                add("user", _text(_OPENING))
            add("assistant", blocks)
        else:
            add("user", _user_blocks(message, ids))
    if not rows or rows[-1]["role"] == "assistant":
        add("user", _text(_CLOSING))
    return rows


def _user_blocks(message: UserMessage | SystemMessage | ToolMessage, ids: CallIds) -> list[_Block]:
    if isinstance(message, UserMessage):
        return [block for piece in message_pieces(message, IMAGES | DOCUMENTS) for block in _piece_blocks(piece)]
    if isinstance(message, SystemMessage):
        return _text(message.content)
    call_id = ids.result(message.tool_call_id)
    if call_id is None:
        return _text(f"[result of {message.name}] {message.content}")
    block: _Block = {"type": "tool_result", "tool_use_id": call_id}
    content = message.content
    if message.outcome != "ok":
        block["is_error"] = True
        content = content if content.strip() else message.outcome.replace("_", " ")
    if content.strip():
        block["content"] = content
    return [block]


def _piece_blocks(piece: str | Attachment) -> list[_Block]:
    if isinstance(piece, str):
        return _text(piece)
    source = {"type": "base64", "media_type": piece.media_type, "data": piece.data}
    if piece.kind == "image":
        return [{"type": "image", "source": source}]
    return [{"type": "document", "source": source, "title": piece.name}]


def _assistant_blocks(message: AssistantMessage, model: str | None, names: ToolNames, ids: CallIds) -> list[_Block]:
    calls = [_call(call, names, ids) for call in message.tool_calls]
    blocks = _own_blocks(message, model, calls)
    if blocks is None:
        blocks = [*_text(message.content), *calls]
    while blocks and blocks[-1]["type"] in _THOUGHTS:
        blocks.pop()
    return blocks


def _own_blocks(message: AssistantMessage, model: str | None, calls: list[_Block]) -> list[_Block] | None:
    """What this very model said, block by block; None if it did not, or said something else than the message now does.

    Blocks go back as they came, blank texts excepted.
    """
    state = message.provider_state
    if state is None or (state.wire, state.model) != (WIRE, model):
        return None
    content = [block for block in items_in(state.payload, "content") if text_in(block, "type")]
    texts = [text_in(block, "text") for block in content if block["type"] == "text"]
    count = sum(block["type"] == "tool_use" for block in content)
    if not content or "".join(texts) != message.content or count != len(calls):
        return None
    if not all(_IDS.takes(text_in(block, name)) for block in content for name in _OWN_IDS if name in block):
        return None
    left = iter(calls)
    own = [{**block, **next(left)} if block["type"] == "tool_use" else dict(block) for block in content]
    return [block for block in own if block["type"] != "text" or block["text"].strip()]


def _text(text: str) -> list[_Block]:
    return [{"type": "text", "text": text}] if text.strip() else []


def _call(call: ToolCall, names: ToolNames, ids: CallIds) -> _Block:
    return {
        "type": "tool_use",
        "id": ids.call(call.id),
        "name": names.sent(call.name),
        "input": arguments_object(call.arguments),
    }


# --- tools, schemas and thinking ------------------------------------------------------------------------------------


def _tool(tool: ToolSchema, names: ToolNames) -> dict[str, Any]:
    schema = {name: value for name, value in tool.parameters.items() if name not in _NOT_AT_THE_TOP}
    return {
        "name": names.sent(tool.name),
        "description": tool.description,
        "input_schema": {**schema, "type": "object"},
    }


def _recurs(schema: Mapping[str, Any]) -> bool:
    """Whether one of its definitions leads to itself."""
    leads = {name: _references(inner) for name, inner in schema.get("$defs", {}).items()}
    reached = leads
    for _ in leads:
        reached = {
            name: names.union(*(leads.get(name, frozenset()) for name in names)) for name, names in reached.items()
        }
    return any(name in names for name, names in reached.items())


def _references(schema: object) -> frozenset[str]:
    """The definitions that a schema names."""
    if isinstance(schema, dict):
        fields = cast("dict[str, object]", schema)
        own = {reference.rpartition("/")[2]} if isinstance(reference := fields.get("$ref"), str) else set[str]()
        return frozenset(own).union(*map(_references, fields.values()))
    if isinstance(schema, list):
        return frozenset[str]().union(*map(_references, cast("list[object]", schema)))
    return frozenset()


def _bygone_tools(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Declarations of the tools that a conversation without tools has used."""
    names = {block["name"]: None for row in rows for block in row["content"] if block["type"] == "tool_use"}
    return [{"name": name, "input_schema": {"type": "object"}} for name in names]


def _tool_choice(request: ModelRequest) -> dict[str, Any] | None:
    if not request.tools or request.tool_choice == "none":
        return {"type": "none"}
    choice = {"type": "any" if request.tool_choice == "required" else "auto"}
    if not request.parallel_calls:
        return {**choice, "disable_parallel_tool_use": True}
    return None if choice["type"] == "auto" else choice


def _mark_for_cache(system: list[_Block], rows: list[dict[str, Any]]) -> None:
    """Have the provider keep what the next request will begin with: tools and system, and the conversation so far."""
    if system:
        system[-1]["cache_control"] = _CACHED
    rows[-1]["content"][-1]["cache_control"] = _CACHED


def _may_think(thinking: Mapping[str, Any], body: dict[str, Any]) -> bool:
    if body.get("tool_choice", {}).get("type") == "any" or thinking.get("budget_tokens", 0) >= body["max_tokens"]:
        return False
    first: list[_Block] | None = None  # of the turn that is under way
    for row in reversed(body["messages"]):
        if row["role"] == "assistant":
            first = row["content"]
        elif not any(block["type"] == "tool_result" for block in row["content"]):
            break
    return first is None or first[0]["type"] in _THOUGHTS

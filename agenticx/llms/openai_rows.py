"""Messages as the dict rows of Chat Completions, the form of histories in most libraries.

A row is `{"role", "content", …}`, see https://platform.openai.com/docs/api-reference/chat/create. Content is a
string or a list of parts of type `text`, `image_url` and `file` with `data:` URLs; the content of assistants and tools
may be None.
"""

from __future__ import annotations

import json
import re
from base64 import b64decode
from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any, TypeGuard, assert_never, cast

from agenticx.attachments import make_attachment
from agenticx.errors import AttachmentRefused
from agenticx.llms.call_fields import CallFields, call_states, fields_of_calls
from agenticx.llms.json_values import cleaned, fields_in, items_in
from agenticx.llms.message_attachments import (
    DOCUMENT_TYPES,
    IMAGE_TYPES,
    chat_part,
    content_parts,
    with_files_after_results,
)
from agenticx.messages import (
    AssistantMessage,
    Attachment,
    Message,
    ProviderState,
    SystemMessage,
    ToolCall,
    ToolMessage,
    UserMessage,
    clean_text,
)

__all__ = [
    "GIVEN_IN_ROW",
    "MESSAGE_FIELDS",
    "WIRE",
    "in_given_shape",
    "messages_from_rows",
    "messages_to_rows",
    "user_message",
]

WIRE = "openai-chat"
"""The wire of Chat Completions, in provider states."""

GIVEN_IN_ROW = ""
"""The model in the provider state of a row without one: each model on the wire gets the fields as given."""

MESSAGE_FIELDS = ("provider_specific_fields", "thinking_blocks", "reasoning_opaque")
"""Fields of a message that its provider expects back: LiteLLM; GitHub Copilot."""

_MESSAGE_TYPES = frozenset({SystemMessage, UserMessage, AssistantMessage, ToolMessage})
_TEXT_PARTS = frozenset({"text", "input_text", "output_text"})
_KEYS = {
    "system": {"role", "content", "name"},
    "developer": {"role", "content", "name"},
    "user": {"role", "content", "name"},
    "assistant": {
        *("role", "content", "name", "tool_calls", "reasoning_content", "refusal", "sender", "reasoning_details"),
        *MESSAGE_FIELDS,
    },
    "tool": {"role", "content", "name", "tool_call_id"},
}
_WRITTEN = frozenset({"system", "developer", "user"})
_CONTENT_KEYS = ("tool_calls", "refusal", "reasoning_content")
_MAX_FIELDS_CHARS = 16 * 1024 * 1024
_MAX_FIELDS_LEVELS = 100  # of nesting; a message that is nested more than 200 deep could not be stored
_DATA_URL = re.compile(r"data:(?P<type>[\w.+/-]*)(?:;[\w=.-]+)*?;base64,(?P<data>.*)", re.DOTALL)


def user_message(value: object) -> UserMessage:
    """Return a str, a `UserMessage` or a dict row with role `user` as a message; raises `TypeError` for others."""
    if isinstance(value, UserMessage):
        return value
    if isinstance(value, str):
        return UserMessage(content=clean_text(value))
    if not _is_row(value) or value.get("role") != "user":
        given = f"a row with role {value.get('role')!r}" if _is_row(value) else type(value).__name__
        raise TypeError(f"user_input must be a str, a UserMessage or a dict row with role 'user', not {given}")
    message = _message(value, "user_input", {})
    assert isinstance(message, UserMessage)
    return message


def messages_from_rows(rows: Sequence[object]) -> list[Message]:
    """Return messages and dict rows as messages; raises `TypeError` for anything else, naming its index."""
    if _MESSAGE_TYPES.issuperset(map(type, rows)):
        return cast("list[Message]", list(rows))
    messages: list[Message] = []
    tool_names: dict[str, str] = {}
    for index, row in enumerate(rows):
        if isinstance(row, SystemMessage | UserMessage | AssistantMessage | ToolMessage):
            message = row
        elif _is_row(row):
            message = _message(row, f"messages[{index}]", tool_names)
        else:
            raise TypeError(
                f"messages[{index}] must be a message of agenticx.messages or a dict row with a role and content, "
                f"not {type(row).__name__}"
            )
        if isinstance(message, AssistantMessage):
            tool_names.update({call.id: call.name for call in message.tool_calls})
        messages.append(message)
    return messages


def messages_to_rows(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Return `messages` as dict rows; images and PDF files become parts, text files part of the text.

    The files of results are in a row of the user behind them, as Chat Completions takes only text in a result.

    Fields that a Chat Completions server added to a reply or its calls, such as a signature, are in its row, since it
    expects them back. Message ids, outcomes of calls, and the state of other wires are left out: rows have no place for
    them.
    """
    return [_row(message) for message in with_files_after_results(messages)]


def in_given_shape(given: Sequence[object], read: Sequence[Message], result: Sequence[Message]) -> list[Any]:
    """Return `result` with each message that was `read` from `given` replaced by its original there.

    New messages are rows if `given` has any rows.
    """
    # The first is for speed, as in `_is_row`: looking at each of 100,000 messages would hold the loop.
    if _MESSAGE_TYPES.issuperset(map(type, given)) or not any(map(_is_row, given)):
        return list(result)
    originals = {id(message): original for message, original in zip(read, given, strict=True)}
    return [originals[id(message)] if id(message) in originals else _row(message) for message in result]


# --- rows to messages -------------------------------------------------------------------------------------------------


def _is_row(value: object) -> TypeGuard[Mapping[str, Any]]:
    # The first is for speed: an instance check against an abstract class takes long in a history of 100,000 messages.
    return type(value) not in _MESSAGE_TYPES and isinstance(value, Mapping)


def _message(row: Mapping[str, Any], place: str, tool_names: Mapping[str, str]) -> Message:
    role = row.get("role")
    if role not in _KEYS:
        raise TypeError(f"{place}: the role must be one of {', '.join(_KEYS)}, not {role!r}")
    unknown = [key for key, value in row.items() if key not in _KEYS[role] and value not in (None, [], {}, "")]
    if unknown:
        raise TypeError(f"{place}: unknown key {unknown[0]!r}; a row with role {role!r} has {_listed(_KEYS[role])}")
    if _lacks_content(row):
        raise TypeError(f"{place}: the row with role {role!r} has no content; content must be a str or a list of parts")
    texts, attachments = _content(row.get("content"), place)
    text = "".join(texts) if role == "assistant" else "\n".join(texts)
    if attachments and role != "user":
        raise TypeError(f"{place}: only a row with role 'user' can have images and files")
    name = _text(row.get("name"), f"{place}.name") or None
    match role:
        case "user":
            return UserMessage(content=text, attachments=attachments, name=name)
        case "assistant":
            tool_calls = _tool_calls(row.get("tool_calls"), place)
            return AssistantMessage(
                content=text or _text(row.get("refusal"), f"{place}.refusal"),
                reasoning=_text(row.get("reasoning_content"), f"{place}.reasoning_content"),
                tool_calls=tool_calls,
                provider_state=_provider_state(row, tool_calls, place),
                sender=_text(row.get("sender"), f"{place}.sender") or None,
                name=name,
            )
        case "tool":
            call_id = row.get("tool_call_id")
            if not isinstance(call_id, str):
                raise TypeError(f"{place}: a row with role 'tool' needs the str 'tool_call_id' of its call")
            name = tool_names.get(call_id) or name or "tool"
            return ToolMessage(tool_call_id=clean_text(call_id), name=name, content=text)
        case _:
            return SystemMessage(content=text, developer=role == "developer", name=name)


def _lacks_content(row: Mapping[str, Any]) -> bool:
    """Return whether the row says nothing: None is the content of calls, and of replies and results without a text."""
    if row.get("content") is not None:
        return False
    return row["role"] in _WRITTEN or ("content" not in row and not any(row.get(key) for key in _CONTENT_KEYS))


def _content(content: object, place: str) -> tuple[list[str], tuple[Attachment, ...]]:
    """Return the texts and the attachments of a row's content."""
    if content is None or isinstance(content, str):
        return [_text(content, place)], ()
    if not isinstance(content, Sequence):
        raise TypeError(f"{place}: content must be a str, None or a list of parts, not {type(content).__name__}")
    texts: list[str] = []
    attachments: list[Attachment] = []
    for index, part in enumerate(cast("Sequence[object]", content)):
        part_place = f"{place}.content[{index}]"
        kind = part.get("type") if _is_row(part) else None
        if _is_row(part) and kind in _TEXT_PARTS:
            texts.append(_text(part.get("text"), part_place))
        elif _is_row(part) and kind == "image_url":
            image = part.get("image_url")
            attachments.append(
                _attachment(f"image{index + 1}", image.get("url") if _is_row(image) else image, part_place)
            )
        elif _is_row(part) and kind == "file" and _is_row(file := part.get("file")):
            name = _text(file.get("filename"), part_place) or f"file{index + 1}"
            attachments.append(_attachment(name, file.get("file_data"), part_place))
        else:
            raise TypeError(f"{part_place} must be a part of type text, image_url or file, not {kind!r}")
    return texts, tuple(attachments)


def _attachment(name: str, url: object, place: str) -> Attachment:
    found = _DATA_URL.fullmatch(url) if isinstance(url, str) else None
    if found is None:
        raise TypeError(f"{place}: images and files must be given as base64 data: URLs, nothing is fetched")
    try:
        return make_attachment(name, b64decode(found["data"], validate=True), found["type"] or None)
    except (AttachmentRefused, ValueError) as exc:
        raise TypeError(f"{place}: {exc}") from exc


def _tool_calls(calls: object, place: str) -> tuple[ToolCall, ...]:
    if calls is None:
        return ()
    if not isinstance(calls, Sequence) or isinstance(calls, str):
        raise TypeError(f"{place}: tool_calls must be a list, not {type(calls).__name__}")
    return tuple(
        _tool_call(call, f"{place}.tool_calls[{index}]") for index, call in enumerate(cast("Sequence[object]", calls))
    )


def _tool_call(call: object, place: str) -> ToolCall:
    if isinstance(call, ToolCall):
        return call
    function = call.get("function") if _is_row(call) else None
    if not (_is_row(call) and _is_row(function) and isinstance(call.get("id"), str)):
        raise TypeError(f"{place} must be {{'id', 'type': 'function', 'function': {{'name', 'arguments'}}}}")
    name, arguments = function.get("name"), function.get("arguments", "{}")
    if not (isinstance(name, str) and isinstance(arguments, str)):
        raise TypeError(f"{place}.function must have the str 'name' and its arguments as the str 'arguments'")
    return ToolCall(id=clean_text(call["id"]), name=clean_text(name), arguments=clean_text(arguments))


def _provider_state(row: Mapping[str, Any], tool_calls: Sequence[ToolCall], place: str) -> ProviderState | None:
    """Return the fields that a provider added to a reply and its calls, None if there are none."""
    calls: list[tuple[str, CallFields]] = []
    for call, given in zip(tool_calls, cast("Sequence[object]", row.get("tool_calls") or ()), strict=True):
        fields = CallFields()
        if _is_row(given):
            fields.add(given, given["function"])
        calls.append((call.id, fields))
    payload = {
        "calls": call_states(calls),
        "details": row.get("reasoning_details"),
        "message": {name: value for name in MESSAGE_FIELDS if (value := row.get(name))},
    }
    payload = {name: value for name, value in payload.items() if value}
    return ProviderState(wire=WIRE, model=GIVEN_IN_ROW, payload=_as_json(payload, place)) if payload else None


def _as_json(fields: dict[str, Any], place: str) -> dict[str, Any]:
    """Return a copy of a provider's fields; raise `TypeError` if they could not be stored and sent."""
    try:
        text = json.dumps(fields, allow_nan=False)
        copy = cleaned(json.loads(text), _MAX_FIELDS_LEVELS)
    except (TypeError, ValueError, RecursionError) as exc:
        raise TypeError(f"{place}: fields that a provider added must be JSON: {exc}") from exc
    if len(text) > _MAX_FIELDS_CHARS:
        raise TypeError(f"{place}: fields that a provider added have {len(text)} characters, over {_MAX_FIELDS_CHARS}")
    return copy


def _text(value: object, place: str) -> str:
    if value is None:
        return ""
    if not isinstance(value, str):
        raise TypeError(f"{place} must be a str, not {type(value).__name__}")
    return clean_text(value)


def _listed(keys: set[str]) -> str:
    return ", ".join(sorted(keys))


# --- messages to rows -------------------------------------------------------------------------------------------------


def _row(message: Message) -> dict[str, Any]:
    match message:
        case SystemMessage():
            role = "developer" if message.developer else "system"
            return {"role": role, "content": message.content, **_name(message)}
        case UserMessage():
            return {"role": "user", "content": _user_content(message), **_name(message)}
        case ToolMessage():
            return {"role": "tool", "tool_call_id": message.tool_call_id, "content": message.content}
        case AssistantMessage():
            payload = _payload(message)
            row: dict[str, Any] = {"role": "assistant", "content": message.content, **_name(message)}
            if message.tool_calls:
                row["content"] = message.content or None
                row["tool_calls"] = [
                    _call_row(call, fields)
                    for call, fields in zip(
                        message.tool_calls, fields_of_calls(payload, message.tool_calls), strict=True
                    )
                ]
            return row | _message_fields(payload)
        case _:
            assert_never(message)


def _name(message: SystemMessage | UserMessage | AssistantMessage) -> dict[str, str]:
    return {} if message.name is None else {"name": message.name}


def _user_content(message: UserMessage) -> str | list[dict[str, Any]]:
    if not message.attachments:
        return message.content
    parts = content_parts(message, IMAGE_TYPES | DOCUMENT_TYPES)
    if message.content:  # the text first, as in OpenAI's examples; requests have it last
        parts = [parts[-1], *parts[:-1]]
    return [chat_part(part) for part in parts]


def _payload(message: AssistantMessage) -> dict[str, Any]:
    """Return a copy of the state that a provider of Chat Completions expects back with its reply, else {}."""
    state = message.provider_state
    return deepcopy(state.payload) if state is not None and state.wire == WIRE else {}


def _message_fields(payload: dict[str, Any]) -> dict[str, Any]:
    kept = fields_in(payload, "message")
    fields = {name: kept[name] for name in MESSAGE_FIELDS if name in kept}
    details = items_in(payload, "details")
    return {**fields, "reasoning_details": details} if details else fields


def _call_row(call: ToolCall, fields: CallFields) -> dict[str, Any]:
    function = {"name": call.name, "arguments": call.arguments}
    return {"id": call.id, "type": "function", **fields.call, "function": {**function, **fields.function}}

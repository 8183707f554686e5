"""A `ModelRequest` as the JSON body of a Gemini `streamGenerateContent` request.

A model's reply is sent back to the same model part by part, as received, thought signatures included; to any other, and
after a change of the message, as plain text and calls. Turns alternate and a user's is first, as the API requires:
adjacent messages of one role are one content, so that the results of parallel calls are in one content.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, assert_never

from agenticx.llms.base import ModelRequest, ToolSchema
from agenticx.llms.identifiers import CallIds, IdentifierRule, ToolNames
from agenticx.llms.json_values import fields_in, items_in, text_in
from agenticx.llms.message_attachments import content_parts, result_parts, with_files_after_results
from agenticx.llms.sampling import NO_SAMPLING, ReasoningEffort
from agenticx.llms.wires.gemini._reply import WIRE
from agenticx.llms.wires.gemini._schema import accepted_schema
from agenticx.llms.wires.request_body import arguments_object, body_bytes
from agenticx.llms.wires.sampling_rules import SamplingRules
from agenticx.messages import AssistantMessage, Attachment, Message, SystemMessage, ToolCall, ToolMessage, UserMessage

__all__ = ["TOOL_NAMES", "GeminiDialect", "contents", "function_declarations", "request_body", "sampling_rules"]

_FIRST_USER_TEXT, _LAST_USER_TEXT = "[The conversation begins here.]", "[Go on.]"
"""User messages for a history that does not begin or end with one: the API refuses that."""

_SKIP_SIGNATURE = "skip_thought_signature_validator"
"""Documented for calls without a signature, such as another model's: newer models refuse them as they are."""

_NO_SIGNATURES = re.compile(r"(^|/)(gemini-[12]\b|gemma|learnlm)")
_FILE_TYPES = frozenset({"image/png", "image/jpeg", "image/webp", "application/pdf"})
"""The media types of attachments that the API accepts."""

_MODES = {"auto": "AUTO", "none": "NONE", "required": "ANY"}

TOOL_NAMES = IdentifierRule("a-zA-Z0-9_.:-", 64, first="a-zA-Z_")
"""The API: "Must start with a letter or an underscore. Must be a-z, A-Z, 0-9, or contain underscores (_), dots (.),
colons (:), or dashes (-), with a maximum length of 64"; https://github.com/kaitranntt/ccs/issues/25
"""

_IDS = IdentifierRule("a-zA-Z0-9_.:|-", 64)
"""No rule is documented for ids. Only ids that the API gave are sent, and they are of this form."""

_THINKING_LEVELS: Mapping[ReasoningEffort, str] = {
    "minimal": "MINIMAL",
    "low": "LOW",
    "medium": "MEDIUM",
    "high": "HIGH",
    "xhigh": "XHIGH",
}
"""The levels in the types of Google's SDK 3.4; each model has some of them, and none can be told not to think."""

_THINKING_BUDGETS: Mapping[ReasoningEffort, int] = {
    "none": 0,
    "minimal": 1024,
    "low": 1024,
    "medium": 8192,
    "high": 24_576,
}
"""The budgets that Google's own Chat Completions layer has for these levels (https://ai.google.dev/gemini-api/docs/openai)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GeminiDialect:
    """The features that only some models support."""

    include_thoughts: bool = True
    """True to request summaries of the thoughts; models that do not think refuse."""

    system_instruction: bool = True
    """True to send instructions in their own field; for Gemma models they are sent in the user's first turn."""

    output_schemas: Literal["always", "without_tools", "never"] = "without_tools"
    """Support of output schemas; models before Gemini 3 refuse them together with tools."""

    result_files: bool = False
    """True if results of calls may have images and PDFs, as since Gemini 3; before, these stand behind the results."""

    thinking_levels: bool = False
    """True if the effort is a level, as since Gemini 3; before, it is a budget in tokens."""


def request_body(
    request: ModelRequest,
    *,
    model: str,
    dialect: GeminiDialect,
    replay_state: bool = True,
    names: ToolNames | None = None,
) -> bytes:
    """Return the body as UTF-8, lone surrogates as U+FFFD; without `replay_state` replies are plain text and calls.

    `names` are the tool names of the request, if they are known.
    """
    instructions, rest = _split_instructions(request.messages)
    body: dict[str, Any] = {}
    if instructions and dialect.system_instruction:
        body["systemInstruction"] = {"parts": instructions}
    leading_parts = [] if dialect.system_instruction else instructions
    names = names or ToolNames(TOOL_NAMES, request)
    rest = rest if dialect.result_files else with_files_after_results(rest)
    body["contents"] = contents(rest, model=model, names=names, leading_parts=leading_parts, replay_state=replay_state)
    if request.tools:
        body["tools"] = [{"functionDeclarations": function_declarations(request.tools, names)}]
        if request.tool_choice != "auto":
            config = dict[str, Any](mode=_MODES[request.tool_choice])
            if request.tool_choice == "required" and request.required_tool:
                config["allowedFunctionNames"] = [names.sent_name(request.required_tool)]
            body["toolConfig"] = {"functionCallingConfig": config}
    if config := _generation_config(request, dialect):
        body["generationConfig"] = config
    if request.sampling is not NO_SAMPLING:
        sampling_rules(dialect).add_to(body, request.sampling)
    return body_bytes(body)


def _split_instructions(messages: Sequence[Message]) -> tuple[list[dict[str, Any]], Sequence[Message]]:
    """Return the leading instructions of a history as parts, and the messages after them."""
    instructions: list[dict[str, Any]] = []
    for index, message in enumerate(messages):
        if not isinstance(message, SystemMessage):
            return instructions, messages[index:]
        instructions.extend(_text_parts(message.content))
    return instructions, ()


def _generation_config(request: ModelRequest, dialect: GeminiDialect) -> dict[str, Any]:
    config: dict[str, Any] = {}
    if dialect.include_thoughts and request.sampling.reasoning_effort != "none":  # there are none to include then
        config["thinkingConfig"] = {"includeThoughts": True}
    if request.output_schema is not None and dialect.output_schemas != "never":
        config["responseMimeType"] = "application/json"
        config["responseJsonSchema"] = accepted_schema(request.output_schema.schema)
    return config


@cache
def sampling_rules(dialect: GeminiDialect) -> SamplingRules:
    """Return the sampling of Gemini; both spellings of its keys are known, as the API accepts both."""
    config = ("temperature", "topP", "maxOutputTokens", "stopSequences", "seed")
    other = ("thinkingConfig", "responseMimeType", "responseJsonSchema", "responseSchema")
    keys = ("contents", "systemInstruction", "tools", "toolConfig", *(f"generationConfig.{key}" for key in other))
    spelled = (f"generationConfig.{_snake_case(key)}" for key in (*config, *other))
    thinking = "generationConfig.thinkingConfig"
    return SamplingRules(
        api="the Gemini API",
        parameters={
            "temperature": "generationConfig.temperature",
            "top_p": "generationConfig.topP",
            "max_output_tokens": "generationConfig.maxOutputTokens",
            "stop": "generationConfig.stopSequences",
            "seed": "generationConfig.seed",
            "reasoning_effort": f"{thinking}.{'thinkingLevel' if dialect.thinking_levels else 'thinkingBudget'}",
        },
        efforts=_THINKING_LEVELS if dialect.thinking_levels else _THINKING_BUDGETS,
        other_keys={*keys, *spelled, *map(_snake_case, keys[:4]), "generation_config"},
    )


def _snake_case(key: str) -> str:
    return re.sub("[A-Z]", lambda letter: f"_{letter[0].lower()}", key)


# --- tools


def function_declarations(tools: Sequence[ToolSchema], names: ToolNames) -> list[dict[str, Any]]:
    """Return the tools in Gemini's format; one without parameters has no schema at all."""
    return [_declaration(tool, names) for tool in tools]


def _declaration(tool: ToolSchema, names: ToolNames) -> dict[str, Any]:
    row: dict[str, Any] = {"name": names.sent_name(tool.name), "description": tool.description}
    if tool.parameters.get("properties"):
        row["parametersJsonSchema"] = accepted_schema(tool.parameters)
    return row


# --- contents


def contents(
    messages: Sequence[Message],
    *,
    model: str,
    names: ToolNames,
    leading_parts: Sequence[dict[str, Any]] = (),
    replay_state: bool = True,
) -> list[dict[str, Any]]:
    """Return the conversation in Gemini's format, `leading_parts` before it in the user's turn."""
    builder, ids = _ContentsBuilder(), CallIds(_IDS)
    builder.add("user", leading_parts)
    calls_by_id: dict[str, dict[str, Any]] = {}
    for message in messages:
        match message:
            case SystemMessage():
                builder.add("user", _text_parts(message.content))
            case UserMessage():
                builder.add(
                    "user", [part for found in content_parts(message, _FILE_TYPES) for part in _wire_parts(found)]
                )
            case AssistantMessage():
                replayed = _replayed_parts(message, model, names, ids) if replay_state else None
                parts = _with_signature(list(_plain_parts(message, names)) if replayed is None else replayed, model)
                sent_calls = [part["functionCall"] for part in parts if "functionCall" in part]
                calls_by_id |= {
                    call.id: identity for call, identity in zip(message.tool_calls, sent_calls, strict=True)
                }
                builder.add("model", parts)
            case ToolMessage():
                builder.add("user", [_function_response(message, calls_by_id.get(message.tool_call_id, {}), names)])
            case _:
                assert_never(message)
    builder.close()
    return builder.contents


class _ContentsBuilder:
    """Contents whose roles alternate, the user's first and last."""

    def __init__(self) -> None:
        self.contents: list[dict[str, Any]] = []

    def add(self, role: str, parts: Sequence[dict[str, Any]]) -> None:
        """Add `parts` in this role, to the last content if that has the same role."""
        if not parts:
            return
        if not self.contents and role != "user":
            self.add("user", _text_parts(_FIRST_USER_TEXT))
        if not self.contents or self.contents[-1]["role"] != role:
            self.contents.append({"role": role, "parts": []})
        self.contents[-1]["parts"].extend(parts)

    def close(self) -> None:
        """Add a user's content if the last one is not the user's."""
        if not self.contents or self.contents[-1]["role"] != "user":
            self.add("user", _text_parts(_LAST_USER_TEXT))


def _text_parts(text: str) -> list[dict[str, Any]]:
    """Return `text` as parts; the API refuses a part without text."""
    return [{"text": text}] if text else []


def _wire_parts(part: str | Attachment) -> list[dict[str, Any]]:
    if isinstance(part, str):
        return _text_parts(part)
    return [{"inlineData": {"mimeType": part.media_type, "data": part.data}}]


def _plain_parts(message: AssistantMessage, names: ToolNames) -> Iterator[dict[str, Any]]:
    yield from _text_parts(message.content)
    for call in message.tool_calls:
        yield {"functionCall": {"name": names.sent_name(call.name), "args": arguments_object(call.arguments)}}


def _with_signature(parts: list[dict[str, Any]], model: str) -> list[dict[str, Any]]:
    """Return the parts with a signature on the first call, where newer models require one."""
    first = next((index for index, part in enumerate(parts) if "functionCall" in part), None)
    if first is None or parts[first].get("thoughtSignature") or _NO_SIGNATURES.search(model):
        return parts
    return [*parts[:first], {**parts[first], "thoughtSignature": _SKIP_SIGNATURE}, *parts[first + 1 :]]


def _replayed_parts(
    message: AssistantMessage, model: str, names: ToolNames, ids: CallIds
) -> list[dict[str, Any]] | None:
    """Return the stored parts of a message, None if they are another model's or the message was changed since."""
    state = message.provider_state
    if state is None or (state.wire, state.model) != (WIRE, model):
        return None
    parts = items_in(state.payload, "parts")
    text = "".join(text_in(part, "text") for part in parts if not part.get("thought"))
    called = [text_in(fields_in(part, "functionCall"), "name") for part in parts if "functionCall" in part]
    if text != message.content or len(called) != len(message.tool_calls):
        return None
    if any(
        name not in (call.name, names.sent_name(call.name))
        for name, call in zip(called, message.tool_calls, strict=True)
    ):
        return None
    calls = iter(message.tool_calls)
    return [_with_arguments(part, next(calls), names, ids) if "functionCall" in part else part for part in parts]


def _with_arguments(part: Mapping[str, Any], call: ToolCall, names: ToolNames, ids: CallIds) -> dict[str, Any]:
    sent_call = fields_in(dict(part), "functionCall")
    sent_id = {"id": ids.assign(id_)} if (id_ := text_in(sent_call, "id")) else {}
    sent_call = {name: value for name, value in sent_call.items() if name != "id"}
    named = {"name": names.sent_name(call.name), "args": arguments_object(call.arguments)}
    return {**part, "functionCall": {**sent_call, **sent_id, **named}}


def _function_response(result: ToolMessage, call: Mapping[str, Any], names: ToolNames) -> dict[str, Any]:
    """Return the result of a call, with the sent name and, where it has one, the sent id of the call."""
    key = "output" if result.outcome == "ok" else "error"
    text, files = result_parts(result, _FILE_TYPES)
    response: dict[str, Any] = {
        "name": call.get("name") or names.sent_name(result.name),
        "response": {key: text},
    }
    if files:
        response["parts"] = [part for file in files for part in _wire_parts(file)]
    if "id" in call:
        response["id"] = call["id"]
    return {"functionResponse": response}

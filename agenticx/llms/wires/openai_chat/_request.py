"""A `ModelRequest` as the JSON body of a Chat Completions request."""

from __future__ import annotations

from typing import Any

from agenticx.llms.base import ModelRequest, OutputSchema
from agenticx.llms.wires.chat_dialect import ChatDialect
from agenticx.llms.wires.openai_chat.rows import encode_messages, encode_tools, sent_tool_names
from agenticx.llms.wires.request_body import body_bytes
from agenticx.llms.wires.strict_schema import strict_schema

__all__ = ["request_body"]


def request_body(
    request: ModelRequest, *, model: str, dialect: ChatDialect, stream: bool, replay_state: bool = True
) -> bytes:
    """Return the body as UTF-8, lone surrogates as U+FFFD; without `replay_state` no reasoning is sent back."""
    names = sent_tool_names(request)
    body: dict[str, Any] = {
        "model": model,
        "messages": encode_messages(
            request.messages, model=model if replay_state else None, dialect=dialect, names=names
        ),
        "stream": stream,
    }
    if stream and dialect.stream_options:
        body["stream_options"] = {"include_usage": True}
    if request.tools:
        body["tools"] = encode_tools(request.tools, names)
        if request.tool_choice != "auto":
            body["tool_choice"] = request.tool_choice
        if dialect.one_call and not request.parallel_calls:
            body["parallel_tool_calls"] = False
    if request.max_output_tokens is not None:
        body[dialect.output_limit] = request.max_output_tokens
    if request.output_schema is not None and dialect.output_schemas:
        body["response_format"] = _response_format(request.output_schema)
    return body_bytes(body)


def _response_format(output: OutputSchema) -> dict[str, Any]:
    strict = strict_schema(output.schema)
    schema = dict(output.schema) if strict is None else strict
    return {
        "type": "json_schema",
        "json_schema": {"name": output.name, "schema": schema, "strict": strict is not None},
    }

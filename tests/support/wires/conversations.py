"""Conversations over each wire: replies with calls, their results, and the provider state in them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from agenticx import UserMessage
from agenticx.llms import ToolSchema
from agenticx.messages import AssistantMessage, Message, SystemMessage, ToolMessage
from tests.support.wires.replies import sse
from tests.support.wires.wires import WireUnderTest, read

LOOK = ToolSchema("look", "Look.", {"type": "object", "properties": {"at": {"type": "string"}}})


SECRET = "c2VjcmV0IHNpZ25hdHVyZQ=="
"""Part of the provider state of each wire: a signature, encrypted reasoning, or a field of that wire alone."""


def _chat(ids: Sequence[str]) -> bytes:
    calls = [
        {"index": n, "id": id_, "function": {"name": "look", "arguments": json.dumps({"at": id_})}}
        for n, id_ in enumerate(ids)
    ]
    details = [{"type": "reasoning.encrypted", "data": SECRET, "index": 0}]
    deltas = [{"reasoning": "hm", "reasoning_details": details}, {"content": "Let me see."}, {"tool_calls": calls}]
    return sse(
        *({"choices": [{"index": 0, "delta": delta}]} for delta in deltas),
        {"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]},
    )


def _responses(ids: Sequence[str]) -> bytes:
    text = {"type": "output_text", "text": "Let me see.", "annotations": []}
    summary = [{"type": "summary_text", "text": "hm"}]
    output = [
        {"type": "reasoning", "id": f"rs_{ids[0]}", "summary": summary, "encrypted_content": SECRET},
        {"type": "message", "id": f"msg_{ids[0]}", "role": "assistant", "status": "completed", "content": [text]},
        *(
            {"type": "function_call", "id": f"fc_{n}{id_}", "call_id": id_, "name": "look", "status": "completed"}
            | {"arguments": json.dumps({"at": id_})}
            for n, id_ in enumerate(ids)
        ),
    ]
    done = [
        {"type": "response.output_item.done", "output_index": place, "item": item} for place, item in enumerate(output)
    ]
    return sse(*done, {"type": "response.completed", "response": {"status": "completed", "output": output}})


def _anthropic(ids: Sequence[str]) -> bytes:
    blocks = [
        {"type": "thinking", "thinking": "hm", "signature": SECRET},
        {"type": "text", "text": "Let me see."},
        *({"type": "tool_use", "id": id_, "name": "look", "input": {"at": id_}} for id_ in ids),
    ]
    begun = [
        {"type": "content_block_start", "index": place, "content_block": block} for place, block in enumerate(blocks)
    ]
    return sse(*begun, {"type": "message_delta", "delta": {"stop_reason": "tool_use"}}, {"type": "message_stop"})


def _gemini(ids: Sequence[str]) -> bytes:
    calls: list[dict[str, Any]] = [{"functionCall": {"name": "look", "id": id_, "args": {"at": id_}}} for id_ in ids]
    calls[0]["thoughtSignature"] = SECRET
    parts = [{"text": "hm", "thought": True}, {"text": "Let me see."}, *calls]
    return sse({"candidates": [{"content": {"role": "model", "parts": parts}, "finishReason": "STOP"}]})


def _ollama(ids: Sequence[str]) -> bytes:
    calls = [{"id": id_, "function": {"name": "look", "arguments": {"at": id_}}} for id_ in ids]
    message = {"role": "assistant", "content": "Let me see.", "thinking": "hm", "tool_calls": calls}
    return json.dumps({"message": message, "done": True, "done_reason": "stop"}).encode() + b"\n"


REPLY_BODIES = {
    "openai_chat": _chat,
    "openai_responses": _responses,
    "anthropic": _anthropic,
    "gemini": _gemini,
    "ollama": _ollama,
}


IDS = {
    "openai_chat": "call_{}",
    "openai_responses": "call_{}",
    "anthropic": "toolu_{}",
    "gemini": "g{}",
    "ollama": "call_o{}",
}


def reply_with_calls(wire: WireUnderTest, ids: Sequence[str], *, model: str = "m") -> AssistantMessage:
    """Return the stored message of a reply of this wire that calls `look` once per id."""
    reply, error = read(wire.parser(model), [REPLY_BODIES[wire.name](ids)])
    assert (error, reply.complete, len(reply.tool_calls), bool(reply.provider_state)) == (None, True, len(ids), True)
    calls = tuple(call.model_copy(update={"id": id_}) for call, id_ in zip(reply.tool_calls, ids, strict=True))
    return AssistantMessage(
        content=reply.text, reasoning=reply.reasoning, tool_calls=calls, provider_state=reply.provider_state
    )


def reply_with_names(wire: WireUnderTest, names: Sequence[str], ids: Sequence[str]) -> AssistantMessage:
    """Return the stored message of a reply of this wire whose calls have these names."""
    message = reply_with_calls(wire, ids)
    calls = tuple(call.model_copy(update={"name": name}) for call, name in zip(message.tool_calls, names, strict=True))
    state = message.provider_state
    assert state is not None
    payload = json.loads(json.dumps(state.payload))
    rows = [item for item in payload.get("output", ()) if item["type"] == "function_call"]
    rows += [part["functionCall"] for part in payload.get("parts", ()) if "functionCall" in part]
    for row, name in zip(rows, names, strict=False):
        row["name"] = name
    state = state.model_copy(update={"payload": payload})
    return message.model_copy(update={"tool_calls": calls, "provider_state": state})


def results_of(message: AssistantMessage) -> list[Message]:
    return [ToolMessage(tool_call_id=call.id, name=call.name, content="seen") for call in message.tool_calls]


def conversation(wire: WireUnderTest, *ids_of_rounds: Sequence[str]) -> list[Message]:
    """Return a history with a question and rounds of calls over this wire, one for each list of ids."""
    history: list[Message] = [SystemMessage(content="Be brief."), UserMessage(content="Look around.")]
    for ids in ids_of_rounds:
        message = reply_with_calls(wire, ids)
        history += [message, *results_of(message)]
    return history


def own_ids(wire: WireUnderTest, count: int, start: int = 0) -> list[str]:
    return [IDS[wire.name].format(start + n) for n in range(count)]


def text_of(body: dict[str, Any]) -> str:
    return json.dumps(body, ensure_ascii=False)


def is_replayed(wire: WireUnderTest, messages: Sequence[Message], *, model: str = "m") -> bool:
    """Return whether a request of the wire has its own provider state."""
    body = text_of(wire.request(messages, model=model, tools=[LOOK]))
    return SECRET in body or (wire.name == "ollama" and '"thinking": "hm"' in body)

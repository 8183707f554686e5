"""A stateless model that carries out the plan in the user's message, so that restarts do not matter."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any

from agenticx import UserMessage
from agenticx.clocks import SystemClock
from agenticx.llms import Delta, Finished, ModelRequest, TextDelta, ToolCallDelta, Usage, UsageDelta
from agenticx.messages import AssistantMessage, Message

WORD_SECONDS = 0.002


def plan(*rounds: tuple[int, Sequence[str]]) -> str:
    """Return the message for a plan of these rounds, each with its number of words and the tools that it calls."""
    return json.dumps([{"words": words, "calls": list(calls)} for words, calls in rounds])


@dataclass(frozen=True)
class PlanModel:
    """A `ChatModel` whose call ids are the same in every session and turn: `call_0`, `call_1` and so on."""

    name: str = "plan"
    context_window: int | None = None

    async def stream(self, request: ModelRequest) -> AsyncIterator[Sequence[Delta]]:
        round_ = _this_round(request)
        for number in range(round_["words"]):
            await SystemClock().sleep(WORD_SECONDS)
            yield (TextDelta(f"word {number} "),)
        calls = round_["calls"]
        for index, name in enumerate(calls):
            yield (ToolCallDelta(index, f"call_{index}", name, "{}"),)
        yield (
            UsageDelta(Usage(input_tokens=1, output_tokens=round_["words"])),
            Finished("tool_calls", "tool_calls") if calls else Finished("end", "stop"),
        )


def _this_round(request: ModelRequest) -> dict[str, Any]:
    messages = request.messages
    asked = max((index for index, message in enumerate(messages) if _is_asked(message)), default=None)
    if asked is None:
        return {"words": 5, "calls": []}
    done = sum(isinstance(message, AssistantMessage) for message in messages[asked:])
    if request.tool_choice == "none" and not done:  # the conversation is to be summarised
        return {"words": 5, "calls": []}
    rounds: list[dict[str, Any]] = json.loads(messages[asked].content)
    return rounds[done] if done < len(rounds) else {"words": 1, "calls": []}


def _is_asked(message: Message) -> bool:
    return isinstance(message, UserMessage) and not message.injected

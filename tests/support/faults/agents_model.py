"""A stateless model of agents that start others, wait, ask and act, and that records what it is sent."""

from __future__ import annotations

import json
import os
import random
import re
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agenticx import UserMessage
from agenticx.clocks import SystemClock
from agenticx.llms import Delta, Finished, ModelRequest, TextDelta, ToolCallDelta
from agenticx.messages import AssistantMessage, Message, SystemMessage
from tests.support.endings import told_endings

__all__ = ["LAST", "AgentsModel"]

LAST = "last"
"""The beginning of a message that is answered at once."""

_WORD_SECONDS = 0.002
_DEEPEST = 2


@dataclass(frozen=True)
class AgentsModel:
    """A `ChatModel` whose replies depend on the last message and the rounds since then only.

    Each request is a line of the file `requests` before it is answered: {reader, session, users, told}, where `reader`
    is "main", the task of a sub-agent or the name of a participant, and `told` the endings in it. Messages of the user
    and tasks have a label, such as `ses_1#7`.
    """

    requests: Path
    name: str = "agents"
    context_window: int | None = None

    async def stream(self, request: ModelRequest) -> AsyncIterator[Sequence[Delta]]:
        messages = request.messages
        users = [one.content for one in messages if isinstance(one, UserMessage) and not one.injected]
        self._record(messages, users)
        asked = max((index for index, one in enumerate(messages) if _is_asked(one)), default=0)
        done = sum(isinstance(message, AssistantMessage) for message in messages[asked:])
        rng = random.Random(f"{users[-1:]} {done}")
        for number in range(rng.randint(1, 8)):
            await SystemClock().sleep(_WORD_SECONDS)
            yield (TextDelta(f"word {number} "),)
        calls = self._calls(users, done, rng, {one.name for one in request.tools})
        for index, (name, arguments) in enumerate(calls):
            yield (ToolCallDelta(index, f"call_{index}", name, json.dumps(arguments)),)
        yield (Finished("tool_calls", "tool_calls") if calls else Finished("end", "stop"),)

    def _calls(
        self, users: Sequence[str], done: int, rng: random.Random, tools: set[str]
    ) -> list[tuple[str, dict[str, Any]]]:
        asked, label = users[-1], _labels(users)[-1]
        depth = int(asked.split()[1]) if asked.startswith("work ") else 0
        steps: list[list[tuple[str, dict[str, Any]]]] = [
            [("mark", {})],
            [("ask_user", {"text": "Which?"})],
            [("wait_subagents", {})],
            [("look", {}), ("mark", {})],
        ]
        if any(text.startswith(LAST) for text in users) or done > 3 or rng.random() < 0.15:
            return []
        if done == 0 and depth < _DEEPEST and "spawn_subagent" in tools:
            tasks = [f"work {depth + 1} {label}.{number}" for number in range(rng.randint(1, 2))]
            return [("spawn_subagent", {"task": task, "name": "w"}) for task in tasks]
        return [call for call in rng.choice(steps) if call[0] in tools]

    def _record(self, messages: Sequence[Message], users: Sequence[str]) -> None:
        prompt = next((one.content for one in messages if isinstance(one, SystemMessage)), "")
        participants = [name for name in ("lead", "critic") if prompt.startswith(f"You are the {name}.")]
        works = [text for text in users[:1] if text.startswith("work ")]
        told = told_endings(*(one.content for one in messages if isinstance(one, UserMessage) and one.injected))
        session = _labels(users)[-1].partition("#")[0]
        line = {"reader": [*works, *participants, "main"][0], "session": session, "users": users, "told": told}
        file = os.open(self.requests, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.write(file, json.dumps(line).encode() + b"\n")
        os.close(file)


def _labels(texts: Sequence[str]) -> list[str]:
    """Return the sessions and numbers in texts, such as `ses_1#7` or `ses_1#7.0.1`."""
    return re.findall(r"ses_\w+#[\d.]+", "\n".join(texts))


def _is_asked(message: Message) -> bool:
    return isinstance(message, UserMessage) and not message.injected

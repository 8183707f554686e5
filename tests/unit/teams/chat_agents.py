"""Participants for the tests of teams."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any

import pytest

from agenticx.teams import (
    BaseAgentEvent,
    BaseChatAgent,
    BaseChatMessage,
    CancellationToken,
    HandoffMessage,
    RequestUsage,
    Response,
    Team,
    TextMessage,
    ThoughtEvent,
)

__all__ = ["Handing", "Saying", "Thinking", "Waiting", "cancel_while_waiting", "lines"]


def lines(messages: Sequence[BaseAgentEvent | BaseChatMessage]) -> list[str]:
    """Return each message as `source: text`."""
    return [f"{message.source}: {message.to_text()}" for message in messages]


class Saying(BaseChatAgent):
    """An agent that says one text after the other, the last one again and again; `sent` are the messages it got.

    A text that is an exception is raised, once.
    """

    def __init__(self, name: str, *texts: str | BaseException, usage: RequestUsage | None = None) -> None:
        super().__init__(name, f"{name} of the team")
        self._texts = texts or (f"{name} here",)
        self._usage = usage
        self.spoken = 0
        self.sent: list[list[str]] = []
        self.calls: list[str] = []

    @property
    def produced_message_types(self) -> Sequence[type[BaseChatMessage]]:
        return (TextMessage,)

    async def on_messages(self, messages: Sequence[BaseChatMessage], cancellation_token: CancellationToken) -> Response:
        self.sent.append(lines(messages))
        text = self._texts[min(self.spoken, len(self._texts) - 1)]
        self.spoken += 1
        if isinstance(text, BaseException):
            raise text
        return Response(chat_message=TextMessage(content=text, source=self.name, models_usage=self._usage))

    async def on_reset(self, cancellation_token: CancellationToken) -> None:
        self.spoken = 0

    async def on_pause(self, cancellation_token: CancellationToken) -> None:
        self.calls.append("pause")

    async def on_resume(self, cancellation_token: CancellationToken) -> None:
        self.calls.append("resume")

    async def save_state(self) -> Mapping[str, Any]:
        return {"spoken": self.spoken}

    async def load_state(self, state: Mapping[str, Any]) -> None:
        self.spoken = state["spoken"]


class Thinking(Saying):
    """An agent that has a thought before each text."""

    async def on_messages_stream(
        self, messages: Sequence[BaseChatMessage], cancellation_token: CancellationToken
    ) -> AsyncGenerator[BaseAgentEvent | BaseChatMessage | Response, None]:
        yield ThoughtEvent(content="Hm.", source=self.name)
        yield await self.on_messages(messages, cancellation_token)


class Handing(Saying):
    """An agent that hands over to one target after the other."""

    async def on_messages(self, messages: Sequence[BaseChatMessage], cancellation_token: CancellationToken) -> Response:
        message = (await super().on_messages(messages, cancellation_token)).chat_message
        target = message.to_text()
        return Response(chat_message=HandoffMessage(content=f"To {target}", target=target, source=self.name))


class Waiting(Saying):
    """An agent that waits before each text, the first time for ever; `begun` is set when it does.

    With `stubborn` it ignores its cancellation.
    """

    def __init__(self, name: str, *texts: str | BaseException, stubborn: bool = False) -> None:
        super().__init__(name, *texts)
        self._stubborn = stubborn
        self.begun = asyncio.Event()

    async def on_messages(self, messages: Sequence[BaseChatMessage], cancellation_token: CancellationToken) -> Response:
        if not self.begun.is_set():
            self.begun.set()
            self.sent.append(lines(messages))
            try:
                await asyncio.get_running_loop().create_future()
            except asyncio.CancelledError:
                if not self._stubborn:
                    raise
        return await super().on_messages(messages, cancellation_token)


async def cancel_while_waiting(team: Team, agent: Waiting) -> None:
    """Run a team until that agent waits, and cancel the run."""
    token = CancellationToken()
    run = asyncio.ensure_future(team.run(task="go", cancellation_token=token))
    await agent.begun.wait()
    token.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run

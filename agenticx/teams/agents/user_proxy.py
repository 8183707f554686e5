"""A person as a participant."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence

from agenticx import user_code
from agenticx.errors import AgenticXError
from agenticx.messages import new_id
from agenticx.teams.actors.cancellation import CancellationToken
from agenticx.teams.agents.base_chat_agent import BaseChatAgent
from agenticx.teams.agents.protocols import first_of
from agenticx.teams.agents.spending import waiting_for_person
from agenticx.teams.messages import (
    BaseAgentEvent,
    BaseChatMessage,
    HandoffMessage,
    Response,
    TextMessage,
    UserInputRequestedEvent,
)

__all__ = ["UserInputFailed", "UserProxyAgent"]

InputFunction = Callable[..., str | Awaitable[str]]


class UserInputFailed(AgenticXError, RuntimeError):
    """A person that could not be asked."""


class UserProxyAgent(BaseChatAgent):
    """A participant whose answers a person gives, through `input_func(prompt)` or `(prompt, cancellation_token)`.

    The function is plain, and then runs in a thread, or async. ValueError without one: questions of a session, which
    need none, are not implemented yet. After a handoff to this agent the answer hands back to its source.
    """

    def __init__(
        self, name: str, *, description: str = "A human user", input_func: InputFunction | None = None
    ) -> None:
        super().__init__(name, description)
        if input_func is None:
            raise ValueError(
                "a UserProxyAgent needs an input_func, such as `input`; questions that wait in a session, which "
                "will take its place, are not implemented yet"
            )
        self._input = input_func
        self._takes_token = _takes_token(input_func)

    @property
    def produced_message_types(self) -> Sequence[type[BaseChatMessage]]:
        return (TextMessage, HandoffMessage)

    async def on_messages(self, messages: Sequence[BaseChatMessage], cancellation_token: CancellationToken) -> Response:
        return await first_of(Response, self.on_messages_stream(messages, cancellation_token))

    async def on_messages_stream(
        self, messages: Sequence[BaseChatMessage], cancellation_token: CancellationToken
    ) -> AsyncGenerator[BaseAgentEvent | BaseChatMessage | Response, None]:
        """Yield the question as an event, then the answer.

        Raises `UserInputFailed` if `input_func` does, and RuntimeError if the last message hands over to someone else.
        """
        handoff = messages[-1] if messages and isinstance(messages[-1], HandoffMessage) else None
        if handoff is not None and handoff.target != self.name:
            raise RuntimeError(f"the last message hands over to {handoff.target!r}, not to {self.name!r}")
        prompt = f"Handoff received from {handoff.source}. " if handoff is not None else ""
        asked = UserInputRequestedEvent(request_id=new_id("req"), source=self.name)
        yield asked
        with waiting_for_person():
            text = await self._ask(f"{prompt}Enter your response: ", cancellation_token)
        answer = (
            HandoffMessage(content=text, target=handoff.source, source=self.name)
            if handoff is not None
            else TextMessage(content=text, source=self.name)
        )
        yield Response(chat_message=answer, inner_messages=[asked])

    async def _ask(self, prompt: str, token: CancellationToken) -> str:
        arguments = (prompt, token) if self._takes_token else (prompt,)
        asking = token.link_future(asyncio.ensure_future(user_code.call(self._input, *arguments, what="input_func")))
        try:
            text: object = await asking
        except AgenticXError as exc:
            raise UserInputFailed(f"Failed to get user input: {exc}") from (exc.__cause__ or exc)
        if not isinstance(text, str):
            raise UserInputFailed(f"Failed to get user input: input_func returned a {type(text)}, not text")
        return text

    async def on_reset(self, cancellation_token: CancellationToken) -> None:
        return


def _takes_token(function: InputFunction) -> bool:
    """Return whether a function takes two positional arguments."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except ValueError:  # a builtin without a signature
        return False
    positional = [p for p in parameters if p.kind in {p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD}]
    return len(positional) > 1 or any(p.kind is p.VAR_POSITIONAL for p in parameters)

"""The runtimes of sub-agents, by the names of their models."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import Any, Protocol, runtime_checkable

from agenticx import user_code
from agenticx.argument_types import check_callable
from agenticx.clocks import Clock
from agenticx.errors import AgenticXError, StoreError, UserCodeError
from agenticx.runtime import AgentRuntime
from agenticx.settings import Settings
from agenticx.subagents.records import ModelUnavailable

__all__ = ["RunnableAgent", "RuntimeSource", "Runtimes"]


@runtime_checkable
class RunnableAgent(Protocol):
    """An agent that makes a runtime of itself, as an `Agent` does."""

    def runtime(self, *, settings: Settings | None = None, clock: Clock | None = None) -> AgentRuntime: ...


RuntimeSource = AgentRuntime | RunnableAgent | Callable[[str | None], AgentRuntime | Awaitable[AgentRuntime]]
"""The `Agent` or runtime of all sub-agents, or a function that returns the runtime for a model name.

The name is None for the default model."""


class Runtimes:
    """The runtimes from a `RuntimeSource`; raises `TypeError` for anything else."""

    def __init__(self, source: RuntimeSource, settings: Settings, clock: Clock) -> None:
        if isinstance(source, RunnableAgent):
            source = source.runtime(settings=settings, clock=clock)
        if not isinstance(source, AgentRuntime):
            check_callable("runtime_for", source, "an Agent, an AgentRuntime or a function that returns one")
        self._source = source

    @property
    def is_fixed(self) -> bool:
        """True if all sub-agents have one runtime, so that no model can be chosen."""
        return isinstance(self._source, AgentRuntime)

    async def get(self, model: str | None) -> AgentRuntime:
        """Return the runtime for a model.

        Raises `ModelUnavailable`, `StoreError`, and `UserCodeError` for a function that fails in another way.
        """
        if isinstance(self._source, AgentRuntime):
            if model is not None:
                raise ModelUnavailable(f"the model {model!r} cannot be chosen: all sub-agents have the same one")
            return self._source
        try:
            with user_code.translated_errors("runtime_for"):
                returned = self._source(model)
                made: Any = await returned if inspect.isawaitable(returned) else returned
        except (StoreError, UserCodeError):
            raise
        except AgenticXError as exc:
            raise ModelUnavailable(str(exc)) from exc
        if not isinstance(made, AgentRuntime):
            text = f"runtime_for returned a {type(made).__name__}; it must return an AgentRuntime"
            raise UserCodeError(text, what="runtime_for", kind="invalid_result")
        return made

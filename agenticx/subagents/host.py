"""The session in which sub-agents run, as their manager uses it, with records of runs and endings."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol

from agenticx.messages import Message, UserMessage
from agenticx.runtime import RuntimeEvent
from agenticx.runtime.budgets.budget import Spent
from agenticx.runtime.turn import Turn
from agenticx.subagents.records import SubagentEnding, SubagentRun

__all__ = ["MemoryHost", "SubagentHost"]


class SubagentHost(Protocol):
    """The session of a tree of sub-agents. What a method has recorded is durable once it has returned."""

    @property
    def is_durable(self) -> bool:
        """True if runs can outlive the turns above them, and records the process."""
        ...

    @property
    def session_model_names(self) -> tuple[str, ...]:
        """The names of the session's model, the chosen one and its own; empty if they are unknown."""
        ...

    def find_model_name(self, model: str, /) -> str | None:
        """Return the own name of the model that a sub-agent gets by the name `model`, None if it is unknown.

        Raises `ModelUnavailable` if there is none.
        """
        ...

    async def record_run(self, run: SubagentRun, started: RuntimeEvent, taken: Sequence[str], /) -> None:
        """Record a run before it begins, and append the event of its start with it, as `write` does.

        `taken` are the ids of the messages that it begins with.
        """
        ...

    async def record_message(self, agent_id: str, message: UserMessage, /) -> None:
        """Record a message for an agent; a `steered` event of its turn records that it was taken."""
        ...

    async def record_ending(self, ending: SubagentEnding, /) -> None:
        """Record an ending of which no turn has a terminal event.

        The terminal event of a turn is recorded as the ending of its run with the event itself.
        """
        ...

    async def write(self, event: RuntimeEvent, /, *, ending_of: str | None = None) -> None:
        """Append an event to its turn, which has not ended, or with the `turn_id` "" to none.

        With `ending_of`, the id of a run, it is recorded that the log has the event of the ending of that run.
        """
        ...

    async def read_messages(self, agent_id: str, turn_ids: Collection[str], /) -> list[Message]:
        """Return the conversation of an agent in these turns."""
        ...

    async def read_spent(self, agent_id: str, /) -> Spent:
        """Return what an agent, with those below it, has spent in all its runs."""
        ...

    async def turn_above(self, run: SubagentRun, /) -> Turn | None:
        """Return the turn below which a run begins that no turn starts."""
        ...


class MemoryHost:
    """A session in memory, of which nothing is recorded."""

    is_durable = False
    session_model_names = ()

    def find_model_name(self, model: str, /) -> str | None:
        return None

    async def record_run(self, run: SubagentRun, started: RuntimeEvent, taken: Sequence[str], /) -> None:
        return None

    async def record_message(self, agent_id: str, message: UserMessage, /) -> None:
        return None

    async def record_ending(self, ending: SubagentEnding, /) -> None:
        return None

    async def write(self, event: RuntimeEvent, /, *, ending_of: str | None = None) -> None:
        return None

    async def read_messages(self, agent_id: str, turn_ids: Collection[str], /) -> list[Message]:
        return []

    async def read_spent(self, agent_id: str, /) -> Spent:
        return Spent()

    async def turn_above(self, run: SubagentRun, /) -> Turn | None:
        return None

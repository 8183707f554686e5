"""The session in which sub-agents run: it keeps the records of their runs and endings."""

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
    """The session of a tree of sub-agents. A record is durable once the method that wrote it has returned."""

    @property
    def is_durable(self) -> bool:
        """True if a run can outlive its parent turn, and a record the process."""
        ...

    @property
    def session_model_names(self) -> tuple[str, ...]:
        """The names of the session's model, the chosen one and its own; empty if they are unknown."""
        ...

    def find_model_name(self, model: str, /) -> str | None:
        """Return the model's own name for the chosen name `model`, None if it is unknown.

        Raises `ModelUnavailable` if no model has the name `model`.
        """
        ...

    async def record_run(self, run: SubagentRun, events: Sequence[RuntimeEvent], taken: Sequence[str], /) -> None:
        """Record a run before it begins, and append the events of its start, all of one turn, in the same write.

        `taken` are the ids of the messages with which the run begins.
        """
        ...

    async def record_message(self, agent_id: str, message: UserMessage, event: RuntimeEvent, /) -> None:
        """Record a message for an agent, and append its event in the same write.

        A `steered` event of the agent's turn records that the agent took it.
        """
        ...

    async def record_ending(self, ending: SubagentEnding, /) -> None:
        """Record the ending of a run whose turn has no terminal event, for example a run that never began.

        A terminal event is itself the record of the ending.
        """
        ...

    async def write(self, event: RuntimeEvent, /, *, ending_of: str | None = None) -> None:
        """Append an event to its turn, which has not ended; an event with the `turn_id` "" belongs to no turn.

        With `ending_of`, the id of a run, the event reports the ending of that run, and is recorded as that report.
        """
        ...

    async def read_messages(self, agent_id: str, turn_ids: Collection[str], /) -> list[Message]:
        """Return the conversation of an agent in these turns."""
        ...

    async def read_spent(self, agent_id: str, /) -> Spent:
        """Return what an agent and its sub-agents, at all levels, have spent in all runs."""
        ...

    async def find_parent_turn(self, run: SubagentRun, /) -> Turn | None:
        """Return the parent turn of a run that no turn starts, for example one that goes on after a restart."""
        ...


class MemoryHost:
    """A session in memory; it records nothing."""

    is_durable = False
    session_model_names = ()

    def find_model_name(self, model: str, /) -> str | None:
        return None

    async def record_run(self, run: SubagentRun, events: Sequence[RuntimeEvent], taken: Sequence[str], /) -> None:
        return None

    async def record_message(self, agent_id: str, message: UserMessage, event: RuntimeEvent, /) -> None:
        return None

    async def record_ending(self, ending: SubagentEnding, /) -> None:
        return None

    async def write(self, event: RuntimeEvent, /, *, ending_of: str | None = None) -> None:
        return None

    async def read_messages(self, agent_id: str, turn_ids: Collection[str], /) -> list[Message]:
        return []

    async def read_spent(self, agent_id: str, /) -> Spent:
        return Spent()

    async def find_parent_turn(self, run: SubagentRun, /) -> Turn | None:
        return None

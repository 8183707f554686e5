"""The methods of a hub for sub-agents."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from agenticx.argument_types import check_str
from agenticx.messages import clean_text
from agenticx.sessions.hub.commands import Command, DirectSubagent, ListSubagents

__all__ = ["SubagentMethods"]


class SubagentMethods(ABC):
    """A base class of hubs with what a user can do with the sub-agents of a session."""

    @abstractmethod
    async def _perform(self, session_id: str, command: Command) -> Any: ...

    async def subagents(self, session_id: str) -> Sequence[dict[str, Any]]:
        """Return the states of all sub-agents of a session, in the order of their starts.

        Each is {agent_id, state, rounds, task, parent_agent_id, depth}, with the `code` of an error, the `activity` of
        one that works, and `waits_for_user` where a question is open. `state` is queued, running, paused, completed or
        error.
        """
        return await self._perform(session_id, ListSubagents())

    async def cancel_subagent(self, session_id: str, agent_id: str) -> dict[str, Any]:
        """Stop a sub-agent and those below it, and return its state; nothing changes if it has ended.

        Raises `SessionNotFound`, `SubagentNotFound`.
        """
        check_str("agent_id", agent_id)
        return await self._perform(session_id, DirectSubagent(agent_id=agent_id, action="cancel"))

    async def retry_subagent(self, session_id: str, agent_id: str) -> dict[str, Any]:
        """Have a sub-agent that has ended begin its task anew, with an empty conversation, and return its state.

        Raises `SessionNotFound`, `SubagentNotFound`, `SubagentBusy` if it works, `SubagentLimitReached`, `HubClosed`.
        """
        check_str("agent_id", agent_id)
        return await self._perform(session_id, DirectSubagent(agent_id=agent_id, action="retry"))

    async def message_subagent(self, session_id: str, agent_id: str, text: str) -> dict[str, Any]:
        """Send a message to a sub-agent and return its state; one that has ended, or is being stopped, goes on with it.

        Raises `SessionNotFound`, `SubagentNotFound`, `SubagentLimitReached`, `HubClosed`.
        """
        for name, value in (("agent_id", agent_id), ("text", text)):
            check_str(name, value)
        command = DirectSubagent(agent_id=agent_id, action="message", text=clean_text(text))
        return await self._perform(session_id, command)

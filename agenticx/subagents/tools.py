"""The tools by which an agent starts sub-agents and talks to them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, Protocol

from agenticx.errors import ToolError
from agenticx.runtime import current_turn
from agenticx.runtime.calls.result_rendering import render_value
from agenticx.subagents.disclosure import ModelNames, asks_before_disclosing
from agenticx.tools.base import ToolOutput
from agenticx.tools.registry import FunctionTool, tool

if TYPE_CHECKING:
    from agenticx.subagents.manager import AgentTeamManager

__all__ = ["CURRENT_OWNER", "meta_tools", "session_tools"]

_WAIT_SECONDS = 86_400.0
_MAX_CHARS = 10_000_000  # the limit for all results applies later


FindManager = Callable[[], "AgentTeamManager"]
"""A function that returns the manager of the turn in which it is called."""


class ManagerOwner(Protocol):
    """A session of a hub; it makes its manager on first use."""

    @property
    def manager(self) -> AgentTeamManager: ...


CURRENT_OWNER: ContextVar[ManagerOwner | None] = ContextVar("agenticx_subagents", default=None)
"""The session of a hub in whose turn the code runs."""


@cache
def session_tools() -> Sequence[FunctionTool]:
    """Return the tools for all sessions of a hub; each session has its own manager."""
    return meta_tools(_find_current)


def _find_current() -> AgentTeamManager:
    if (owner := CURRENT_OWNER.get()) is None:
        raise ToolError("sub-agents work in the sessions of a hub only; elsewhere use the tools of an AgentTeamManager")
    return owner.manager


def meta_tools(find: FindManager) -> Sequence[FunctionTool]:
    """Return the tools of the manager that `find` returns, for the agents of its tree.

    They ask the user only before text is sent to another provider than the session's.
    """
    return (*_control_tools(find), *_query_tools(find))


def _control_tools(find: FindManager) -> Sequence[FunctionTool]:
    """Return the tools that start sub-agents and change what they do."""

    def names_of_agent(arguments: Mapping[str, Any]) -> ModelNames | None:
        return find().model_names_of(arguments["agent_id"])

    @asks_before_disclosing(lambda arguments: find().model_names(arguments.get("model")), "The task")
    @tool(risk="read", read_only=False, parallel=True)
    async def spawn_subagent(
        task: str, name: str = "agent", tools: list[str] | None = None, model: str | None = None
    ) -> dict[str, Any]:
        """Start a sub-agent that works on a task beside you, and return its id.

        Describe the task fully: the sub-agent does not see this conversation. You get its result by itself once it has
        ended. `tools` are the names of your tools that it may use, by default all of them.
        """
        return {"agent_id": await find().spawn(task, name=name, tools=tools, model=model)}

    @tool(risk="read", read_only=False)
    async def cancel_subagent(agent_id: str) -> str:
        """Stop a sub-agent and those that it has started."""
        await find().cancel(agent_id)
        return f"{agent_id} is being stopped"

    @asks_before_disclosing(names_of_agent, "Its task")
    @tool(risk="read", read_only=False)
    async def retry_subagent(agent_id: str) -> str:
        """Have a sub-agent that has ended begin its task anew, with an empty conversation.

        Messages that it has not read follow the task.
        """
        await find().retry(agent_id)
        return f"{agent_id} has begun anew"

    @asks_before_disclosing(names_of_agent, "The message")
    @tool(risk="read", read_only=False)
    async def message_subagent(agent_id: str, text: str) -> str:
        """Send a message to a sub-agent; one that is paused or has ended goes on with it."""
        await find().message(agent_id, text)
        return f"{agent_id} gets the message"

    return (spawn_subagent, cancel_subagent, retry_subagent, message_subagent)


def _report(manager: AgentTeamManager, value: Sequence[Any] | Mapping[str, Any]) -> ToolOutput:
    """Return ids or states of sub-agents, with the sources of their tasks, which may quote texts of others."""
    rows: list[Any] = list(value) if isinstance(value, Sequence) else [value]
    ids: list[str] = [row if isinstance(row, str) else row["agent_id"] for row in rows]
    return ToolOutput(render_value(value, _MAX_CHARS).text, sources=manager.sources_of(ids))


def _query_tools(find: FindManager) -> Sequence[FunctionTool]:
    """Return the tools that list sub-agents and their states, and wait for them."""

    @tool(risk="read", read_only=False, idempotent=True)
    async def query_subagent_status(agent_id: str | None = None) -> ToolOutput:
        """Return the state of a sub-agent, or of all of them. Few queries are allowed; prefer wait_subagents."""
        manager = find()
        manager.status_queries.count(current_turn())
        return _report(manager, manager.list() if agent_id is None else manager.status(agent_id))

    @tool(risk="read", read_only=False, idempotent=True)
    async def list_subagents() -> ToolOutput:
        """Return the ids of the sub-agents that you have started, and of their own sub-agents."""
        return _report(find(), [status["agent_id"] for status in find().list()])

    @tool(risk="read", read_only=False, idempotent=True, timeout=_WAIT_SECONDS)
    async def wait_subagents(
        ids: list[str] | None = None,
        mode: Literal["any", "all"] = "all",
        timeout: float | None = None,
    ) -> ToolOutput:
        """Wait until one or all of the sub-agents have ended and return their states; by default all that you started.

        Their results follow in a message. `timeout` is in seconds.
        """
        return _report(find(), await find().wait(ids, mode, timeout))

    @tool(risk="read", read_only=False, idempotent=True)
    async def check_resources() -> dict[str, Any]:
        """Return how many sub-agents are at work and queued, the limits, and what is used of the budget."""
        return find().resources()

    return (query_subagent_status, list_subagents, wait_subagents, check_resources)

"""Tools that run other agents below the turn that calls them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from agenticx.llms import ScriptedModel
from agenticx.runtime import AgentRuntime, AutoApproveConfirmGate, RuntimeEvent, Session, TurnContext, current_turn
from agenticx.settings import load_settings
from agenticx.tools import Tool, tool

__all__ = ["asks", "turns_by_agent"]


def asks(
    name: str,
    script: Sequence[Any],
    tools: Sequence[Any] = (),
    *,
    make_runtime: Callable[[Any], Any] | None = None,
    **context: Any,
) -> Tool:
    """Return a tool `ask_NAME` that has the agent `name` answer below the turn that calls it.

    `make_runtime` makes the agent's runtime of its model; `context` are fields of its `TurnContext`.
    """
    model = ScriptedModel(script)

    @tool(name=f"ask_{name}", risk="read", parallel=True, idempotent=False)
    async def ask(question: str = "go") -> str:
        """Ask another agent."""
        if make_runtime is None:
            runtime = AgentRuntime(model, AutoApproveConfirmGate(), settings=load_settings())
        else:
            runtime = make_runtime(model)
        below = TurnContext(parent=current_turn(), **context)
        return (await runtime.run(question, Session(), agent_id=name, tools=tools, context=below)).text

    return ask


def turns_by_agent(events: Sequence[RuntimeEvent]) -> dict[str, list[RuntimeEvent]]:
    """Return the events of each turn by the name of the agent that begins it."""
    names = {event.turn_id: event.agent_id for event in events if event.type == "turn_started"}
    return {name: [event for event in events if event.turn_id == id_] for id_, name in names.items()}

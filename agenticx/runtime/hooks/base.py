"""The base class of hooks: six methods to override, plain or async."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from agenticx.argument_types import check_str

if TYPE_CHECKING:
    from agenticx.llms.base import Reply
    from agenticx.messages import Message

__all__ = ["AgentHook", "Block", "HookContext"]


@dataclass(frozen=True, slots=True)
class HookContext:
    """The place in which a hook runs: session, turn, agent, the name of its model, and the round, from 1 on.

    `call_id` is the id of the tool call in `before_tool_call` and `after_tool_call`, else None. `context_variables` is
    the application's dict itself, as tools get it, so that all see a change of it.
    """

    session_id: str
    agent_id: str
    round: int
    turn_id: str = ""
    model: str = ""
    call_id: str | None = None
    context_variables: dict[str, Any] = field(default_factory=dict[str, Any], repr=False)


@dataclass(frozen=True, slots=True)
class Block:
    """The return value of `before_tool_call` that keeps a call from running; the model reads the reason."""

    reason: str

    def __post_init__(self) -> None:
        check_str("reason", self.reason)


class AgentHook:
    """A base class for hooks. Override the methods you need; the others cost nothing.

    Each may be plain (it runs in a thread) or async.
    """

    def before_model(self, messages: Sequence[Message], context: HookContext) -> Any:
        """Guard the model call, after compaction and sanitizing; return new messages, or None to keep them.

        `messages` is what would be sent to the model, the system prompt included; the session's history stays as it is.
        Returned messages may be dict rows of Chat Completions.
        """

    def after_model(self, reply: Reply, context: HookContext) -> Any:
        """Observe a complete reply."""

    def before_tool_call(self, name: str, arguments: Mapping[str, Any], context: HookContext) -> Any:
        """Guard a tool call; return `Block(reason)` to keep it from running, or None."""

    def after_tool_call(self, name: str, arguments: Mapping[str, Any], result: str, context: HookContext) -> Any:
        """Guard a result; return the text that is sent to the model instead of `result`, or None."""

    def on_compaction(self, compacted_count: int, summary: str, context: HookContext) -> Any:
        """Observe a compaction of the history."""

    def on_agent_end(self, reason: str, text: str, context: HookContext) -> Any:
        """Observe every ending, right before the terminal event.

        `reason` is the reason of `final`, or the error's code.
        """

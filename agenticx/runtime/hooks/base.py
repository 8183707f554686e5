"""What a hook is: six methods, each of which may be overridden, plain or async."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agenticx.llms.base import Reply
from agenticx.messages import Message

__all__ = ["AgentHook", "Block", "HookContext"]


@dataclass(frozen=True, slots=True)
class HookContext:
    """Where in which turn a hook runs."""

    session_id: str
    agent_id: str
    round: int


@dataclass(frozen=True, slots=True)
class Block:
    """What `before_tool_call` returns to keep a call from running; the model reads the reason."""

    reason: str


class AgentHook:
    """Override what you need; a method left alone costs nothing. Each may be plain (it runs in a thread) or async."""

    def before_model(self, messages: Sequence[Message], context: HookContext) -> Any:
        """Guard, after compaction and sanitising, right before the call. Return new messages, or None.

        `messages` is what the model would be sent, the system prompt included; the session's history stays as it is.
        """

    def after_model(self, reply: Reply, context: HookContext) -> Any:
        """Observer: a complete reply was received."""

    def before_tool_call(self, name: str, arguments: Mapping[str, Any], context: HookContext) -> Any:
        """Guard: return `Block(reason)` to keep the call from running, or None."""

    def after_tool_call(self, name: str, arguments: Mapping[str, Any], result: str, context: HookContext) -> Any:
        """Guard: return the text that the model shall read instead of `result`, or None."""

    def on_compaction(self, compacted_count: int, summary: str, context: HookContext) -> Any:
        """Observer: history was compacted."""

    def on_agent_end(self, reason: str, text: str, context: HookContext) -> Any:
        """Observer, on every ending, right before the terminal event: the reason of `final`, or the error's code."""

"""Hooks: the six points at which user code watches or changes a turn, and the registry that runs them.

Guards decide what happens, so they fail closed: if `before_model` fails the model is not called, if `before_tool_call`
fails the call is blocked, if `after_tool_call` fails the result is withheld. Observers (`after_model`, `on_compaction`,
`on_agent_end`) fail open and are reported as a non-fatal `error{hook_failed}` event.
"""

from __future__ import annotations

from agenticx.runtime.hooks.base import AgentHook, Block, HookContext
from agenticx.runtime.hooks.registry import HookRegistry

__all__ = ["AgentHook", "Block", "HookContext", "HookRegistry"]

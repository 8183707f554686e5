"""Anthropic Messages: the wire of Claude and of the servers that are compatible with it."""

from __future__ import annotations

from agenticx.llms.wires.anthropic.model import ANTHROPIC_BASE_URL, AnthropicModel

__all__ = ["ANTHROPIC_BASE_URL", "AnthropicModel"]

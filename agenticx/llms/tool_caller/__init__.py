"""A model for tests that calls every tool once, and the values with which it calls them."""

from __future__ import annotations

from agenticx.llms.tool_caller.model import TestModel

__all__ = ["TestModel"]

"""The offline demo model, and the sentences that it knows."""

from __future__ import annotations

from agenticx.llms.demo.model import DemoModel

__all__ = ["DemoModel"]

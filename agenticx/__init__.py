"""The engine of an agent desktop app: turns, events, confirm gates, tools and models."""

from __future__ import annotations

__all__ = ["__version__"]

__version__ = "0.1.0"  # the same as in pyproject.toml; a test compares them

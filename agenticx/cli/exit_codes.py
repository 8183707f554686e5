"""The exit codes of `agx`."""

from __future__ import annotations

from typing import Final

from agenticx.resource_exhaustion import OUT_OF_MEMORY_EXIT_CODE

__all__ = ["DONE", "FAILED", "OUT_OF_MEMORY_EXIT_CODE", "STOPPED", "USAGE"]

DONE: Final = 0
FAILED: Final = 1
"""A fatal error event, a failed model call, or a problem that `doctor` found."""
USAGE: Final = 2
STOPPED: Final = 130
"""Stopped by Ctrl-C: 128 + SIGINT, as a shell reports it."""

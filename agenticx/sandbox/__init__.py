"""The sandbox for commands of agents: its probe, its profiles, and the failures that it causes.

`find_sandbox(SandboxOptions())` says which sandbox commands run in on this machine, or why there is none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agenticx.lazy_imports import lazy_imports

if TYPE_CHECKING:
    from agenticx.sandbox.options import SandboxOptions
    from agenticx.sandbox.probe import SandboxStatus, find_sandbox

__all__ = [
    "SandboxOptions",
    "SandboxStatus",
    "find_sandbox",
]

__getattr__, __dir__ = lazy_imports(
    __name__,
    {
        "agenticx.sandbox.options": ["SandboxOptions"],
        "agenticx.sandbox.probe": ["SandboxStatus", "find_sandbox"],
    },
)

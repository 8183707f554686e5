"""The limits of an `AgentChainRunner`, and of a turn about notes whose mode a person has chosen."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from agenticx.logs import get_logger
from agenticx.runtime.turn_context import OnExhausted
from agenticx.settings import Settings
from agenticx.tools.base import Tool
from agenticx.tools.registry import Toolbox

__all__ = ["CHAIN_TURN_SECONDS", "ChainLimits"]

CHAIN_TURN_SECONDS = 300.0

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class ChainLimits:
    """The largest number of model calls, the longest time in seconds, and the names of the tools, empty for all.

    A turn that is out of either says what was found so far.
    """

    max_rounds: int
    tool_names: tuple[str, ...] = ()
    turn_seconds: float = CHAIN_TURN_SECONDS
    on_exhausted: OnExhausted = "partial"

    @classmethod
    def from_settings(cls, settings: Settings) -> ChainLimits:
        """Return the limits that the settings have."""
        return cls(settings.autonomous_agent_max_iterations, settings.autonomous_agent_enabled_tool_ids)

    def enabled(self, tools: Iterable[Tool]) -> Toolbox:
        """Return the tools that a turn may use; a name that none of them has is logged."""
        toolbox = tools if isinstance(tools, Toolbox) else Toolbox(tools)
        if not self.tool_names:
            return toolbox
        if unknown := [name for name in self.tool_names if name not in toolbox]:
            _log.warning("AGX_AUTONOMOUS_AGENT_ENABLED_TOOL_IDS names tools that are not there", names=unknown)
        return toolbox.only(name for name in self.tool_names if name in toolbox)

"""What an agent is told about where it works, for those who give it no words of their own."""

from __future__ import annotations

import platform
from datetime import date
from pathlib import Path

from agenticx.settings import prompt_text

__all__ = ["default_system_prompt"]


def default_system_prompt(workspace: Path, today: date) -> str:
    """`config/prompts/system.md` (or the person's own) filled in. The same all day, so that prompt caches stay warm."""
    filled = prompt_text("system").replace("{workspace}", str(workspace)).replace("{platform}", platform.system())
    return filled.replace("{date}", today.isoformat())

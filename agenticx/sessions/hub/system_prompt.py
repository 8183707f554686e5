"""The default system prompt, for agents that have no prompt of their own."""

from __future__ import annotations

import platform
from datetime import date
from pathlib import Path

from agenticx.settings import prompt_text

__all__ = ["default_system_prompt"]


def default_system_prompt(workspace: Path, today: date) -> str:
    """Return `config/prompts/system.md` (or the user's own file) with its placeholders filled in.

    The text is the same all day, so that prompt caches stay valid.
    """
    filled = prompt_text("system").replace("{workspace}", str(workspace)).replace("{platform}", platform.system())
    return filled.replace("{date}", today.isoformat())

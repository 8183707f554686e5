"""The texts by which agents are told of the endings of sub-agents."""

from __future__ import annotations

import re

from agenticx.untrusted_text import frame_text

__all__ = ["ending_text", "told_endings"]


def ending_text(what: str, text: str) -> str:
    """Return the text for an agent and its state, such as `scout-1 completed`, and its result.

    >>> ending_text("scout-1 completed", "It rains.").splitlines()[1]
    'It rains.'
    """
    return frame_text(f"sub-agent {what}", text, "its words, not the user's")


def told_endings(*texts: str) -> list[str]:
    """Return the agents and their states that the first lines of endings in these texts name, sorted.

    >>> told_endings(ending_text("scout-1 completed", "It rains."))
    ['scout-1 completed']
    """
    return sorted(re.findall(r"^\[sub-agent (.*), boundary ", "\n".join(texts), re.MULTILINE))

"""What a person says, from the command line or stdin: never empty, and no longer than a server takes it."""

from __future__ import annotations

import sys

from agenticx.errors import SettingsError
from agenticx.messages import clean_text

__all__ = ["MAX_PROMPT_CHARS", "read_prompt", "validate_prompt"]

MAX_PROMPT_CHARS = 4_000_000
"""Of one message, as the server has it."""


def read_prompt(argument: str) -> str:
    """What is said by `word`; `-` is what stdin has. Raises `SettingsError` as `checked` does, and for nothing."""
    prompt = sys.stdin.read(MAX_PROMPT_CHARS + 1) if argument == "-" else argument
    if not prompt.strip():
        raise SettingsError("the prompt is empty; say what to do, or pipe it in with -")
    return validate_prompt(prompt)


def validate_prompt(text: str) -> str:
    """The text as a message holds it; raises `SettingsError` for one that is too long."""
    if len(text) > MAX_PROMPT_CHARS:
        raise SettingsError(f"a message has at most {MAX_PROMPT_CHARS:,} characters; put what is longer into a file")
    return clean_text(text)

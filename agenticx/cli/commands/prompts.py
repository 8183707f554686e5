"""User prompts from the command line or stdin, checked for emptiness and length."""

from __future__ import annotations

import sys

from agenticx.errors import SettingsError
from agenticx.messages import clean_text

__all__ = ["MAX_PROMPT_CHARS", "read_prompt", "validate_prompt"]

MAX_PROMPT_CHARS = 4_000_000
"""The most characters of one message, the same as the server's limit."""


def read_prompt(argument: str) -> str:
    """Return the prompt, read from stdin if `argument` is `-`; raise `SettingsError` if it is empty or too long."""
    prompt = sys.stdin.read(MAX_PROMPT_CHARS + 1) if argument == "-" else argument
    if not prompt.strip():
        raise SettingsError("the prompt is empty; pass it as an argument, or - to read it from stdin")
    return validate_prompt(prompt)


def validate_prompt(text: str) -> str:
    """Return the text as a message stores it; raise `SettingsError` if it is too long."""
    if len(text) > MAX_PROMPT_CHARS:
        raise SettingsError(f"a message has at most {MAX_PROMPT_CHARS:,} characters; put longer text into a file")
    return clean_text(text)

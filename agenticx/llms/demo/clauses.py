"""A planned call of the demo model, and helpers of its grammar's patterns."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from agenticx.llms.demo.pages import NewPage, PageChange

__all__ = ["PlannedCall", "compile_clause", "unquoted"]


@dataclass(frozen=True, slots=True)
class PlannedCall:
    """One call: the tool, its exact arguments, and the phrase that announces it.

    When the call is due, its arguments are made from `page`, a new page or a change of one. `done` is the sentence that
    reports a successful call in place of its result.
    """

    tool: str
    arguments: Mapping[str, Any]
    intent: str
    page: NewPage | PageChange | None = None
    done: str = ""


def compile_clause(pattern: str) -> re.Pattern[str]:
    """Compile the pattern of a clause: `.` matches any character, and case is ignored."""
    return re.compile(pattern, re.IGNORECASE | re.DOTALL)


def unquoted(text: str) -> str:
    """Return a text without the quotation marks around it."""
    text = text.strip()
    if len(text) > 1 and (text[0], text[-1]) in {('"', '"'), ("'", "'"), ("`", "`"), ("“", "”")}:
        return text[1:-1]
    return text

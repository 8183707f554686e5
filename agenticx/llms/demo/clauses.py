"""A planned call of the demo model, and what the patterns of its grammar share."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from agenticx.llms.demo.pages import NewPage, PageChange

__all__ = ["PlannedCall", "compile_clause", "unquoted"]


@dataclass(frozen=True, slots=True)
class PlannedCall:
    """One call: the tool, its exact arguments, and a phrase in which the demo announces it.

    `page` is the page, or the change of one, from which the arguments are made when the call is due. `done` is the
    sentence that reports the call, if it succeeds, in place of its result.
    """

    tool: str
    arguments: Mapping[str, Any]
    intent: str
    page: NewPage | PageChange | None = None
    done: str = ""


def compile_clause(pattern: str) -> re.Pattern[str]:
    """Return the pattern of a clause, for which `.` is any character, and upper case the same as lower case."""
    return re.compile(pattern, re.IGNORECASE | re.DOTALL)


def unquoted(text: str) -> str:
    """Return a text without the quotation marks around it."""
    text = text.strip()
    if len(text) > 1 and (text[0], text[-1]) in {('"', '"'), ("'", "'"), ("`", "`"), ("“", "”")}:
        return text[1:-1]
    return text

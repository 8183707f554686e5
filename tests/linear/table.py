"""The table: every pure function on the way of what a model wrote."""

from __future__ import annotations

from tests.linear.llm_cases import LLM_CASES
from tests.linear.runtime_cases import RUNTIME_CASES
from tests.linear.session_cases import SESSION_CASES
from tests.linear.tool_cases import TOOL_CASES
from tests.linear.wire_cases import WIRE_CASES

__all__ = ["CASES"]

CASES = [*WIRE_CASES, *LLM_CASES, *RUNTIME_CASES, *TOOL_CASES, *SESSION_CASES]

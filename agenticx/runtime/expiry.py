"""The errors of expired model-call clocks, naming the setting that allows more time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from agenticx.errors import ClockExpired, ModelErrorCode

__all__ = ["FatalExpiry", "clock_expired"]

FatalExpiry = Literal["first_chunk", "heartbeat", "hard"]

_ERRORS: Mapping[FatalExpiry, tuple[ModelErrorCode, str, str]] = {
    "first_chunk": ("timeout.first_chunk", "sent nothing within", "AGX_LLM_INVOKE_TIMEOUT_SECONDS"),
    "heartbeat": ("timeout.heartbeat", "fell silent for", "AGX_LLM_HEARTBEAT_TIMEOUT_SECONDS"),
    "hard": ("timeout.hard", "took longer than", "AGX_LLM_HARD_TIMEOUT_SECONDS"),
}


def clock_expired(expiry: FatalExpiry, elapsed: float, limit: float) -> ClockExpired:
    """Return the error for a model that was waited for `elapsed` seconds, of which it may have `limit`."""
    code, what, setting = _ERRORS[expiry]
    text = f"the model {what} {limit:g} s ({setting})"
    return ClockExpired(text, code=code, elapsed_seconds=round(elapsed, 3), limit_seconds=limit)

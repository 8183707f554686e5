"""A model as turns use it: found by name, its think blocks lifted, asked again when it fails, with fallbacks."""

from __future__ import annotations

from agenticx.clocks import Clock, SystemClock
from agenticx.llms.base import ChatModel
from agenticx.llms.catalog import resolve_model
from agenticx.llms.retrying import RetryingModel, RetryPolicy
from agenticx.llms.think_blocks import ThinkBlockModel
from agenticx.settings import Settings

__all__ = ["assemble_model"]


def assemble_model(
    spec: str, settings: Settings, *, base_url: str | None = None, clock: Clock | None = None
) -> ChatModel:
    """The model that `spec` names, with the retries and fallbacks of `settings`; `base_url` is for the first alone.

    Raises `SettingsError` for a name that means nothing here, a fallback's included.
    """
    policy = RetryPolicy(attempts=settings.llm_attempts, longest_retry_after=settings.llm_retry_after_ceiling_seconds)
    return RetryingModel(
        ThinkBlockModel(resolve_model(spec, base_url=base_url)),
        [ThinkBlockModel(resolve_model(name)) for name in settings.fallback_models if name != spec],
        policy,
        clock or SystemClock(),
    )

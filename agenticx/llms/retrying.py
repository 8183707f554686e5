"""A wrapper that asks again, or asks a fallback model, as long as nobody has seen anything of the reply.

It is the only layer that retries. Each wait and each change of model comes out as an `Attempt` before it begins, and
cancelling the reader ends a wait at once. Once a delta was handed out, whatever happens ends the call. Counts of tokens
are no part of the reply: some providers send them before they know whether they can answer, so they wait for its first.
"""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from dataclasses import dataclass, field

from agenticx.clocks import Clock, SystemClock
from agenticx.errors import ClockExpired, ModelError
from agenticx.llms.base import (
    Attempt,
    ChatModel,
    Delta,
    Finished,
    InlineForm,
    ModelRequest,
    OutputSchema,
    Usage,
    UsageDelta,
    close_model,
    failed_reply_error,
    inline_forms,
    takes_output_schema,
)
from agenticx.llms.wrapping import open_stream
from agenticx.logs import get_logger

__all__ = ["RetryPolicy", "RetryingModel"]

_NO_FALLBACK = frozenset({"provider.bad_request", "provider.content_filter", "context_overflow"})
"""Failures of the request itself: another model would be sent the same."""

_NOT_FOUND = 404
_NO_SUCH_MODEL = re.compile(
    r"model.{0,120}?(not[ _]?found|not exist|decommissioned|deprecated|retired|discontinued)"
    r"|model.{0,120}?no longer (available|supported)|(invalid|unknown|no such|not found the) model|not a valid model",
    re.IGNORECASE,
)
"""What is wrong with this model alone, not with the request; several providers say it with another status than 404."""

_JITTER = 1.25
_MAX_DOUBLINGS = 30

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """How often and how patiently one model is asked; seconds. Attempts and waits are those of the MetaChain page.

    Waits double from the shortest to the longest and are drawn a quarter apart, so that not all clients come back at
    once.
    A provider's own Retry-After counts instead of the wait, up to `longest_retry_after`; one that asks for more is not
    waited for.
    """

    attempts: int = 3
    shortest_wait: float = 4.0
    longest_wait: float = 10.0
    longest_retry_after: float = 60.0

    def wait(self, error: ModelError, failed_attempts: int) -> float | None:
        """Seconds until the next attempt after `failed` ones, None if there is none."""
        if not error.retryable or failed_attempts >= self.attempts:
            return None
        if error.retry_after is not None:
            return error.retry_after if error.retry_after <= self.longest_retry_after else None
        doubled = self.shortest_wait * 2.0 ** min(failed_attempts - 1, _MAX_DOUBLINGS)
        least = max(self.shortest_wait, min(doubled, self.longest_wait / _JITTER))
        return random.uniform(least, min(self.longest_wait, least * _JITTER))


@dataclass(slots=True)
class _AttemptPlan:
    """Which model is asked next, and after which wait."""

    models: Sequence[ChatModel]
    policy: RetryPolicy
    index: int = 0
    failed_attempts: int = 0
    earlier_failures: list[str] = field(default_factory=list[str])

    @property
    def model(self) -> ChatModel:
        return self.models[self.index]

    @property
    def has_fallback(self) -> bool:
        return self.index + 1 < len(self.models)

    def attempt(self, wait: float = 0.0, reason: str | None = None) -> Attempt:
        return Attempt(self.model.name, wait, reason, bounded=self.has_fallback)

    def next_attempt(self, error: ModelError) -> Attempt:
        """The next attempt; raises `error` if there is none, with what the models before this one failed with."""
        self.failed_attempts += 1
        wait = self.policy.wait(error, self.failed_attempts)
        if wait is not None:
            return self.attempt(wait, str(error))
        if not self.has_fallback or not _may_fall_back(error):
            error.args = ("; ".join([str(error), *self.earlier_failures]),)
            raise error
        self.earlier_failures.append(f"{self.model.name} had failed before: {error}")
        self.index, self.failed_attempts = self.index + 1, 0
        return self.attempt(0.0, str(error))


@dataclass(frozen=True)
class RetryingModel:
    """`model`, retried by `policy`, then each of `fallbacks` likewise. It goes by the first model's name."""

    model: ChatModel
    fallbacks: Sequence[ChatModel] = ()
    policy: RetryPolicy = field(default_factory=RetryPolicy)
    clock: Clock = field(default_factory=SystemClock)

    @property
    def name(self) -> str:
        return self.model.name

    @property
    def context_window(self) -> int | None:
        """The smallest known one, so that a fallback can take over."""
        windows = [model.context_window for model in (self.model, *self.fallbacks)]
        return min((window for window in windows if window is not None), default=None)

    @property
    def inline_calls(self) -> Sequence[InlineForm]:
        """The forms of the first model; `model_named` finds the others."""
        return inline_forms(self.model)

    def model_named(self, name: str) -> ChatModel:
        """Return the one of these models that goes by `name`, the first if none does."""
        return next((model for model in (self.model, *self.fallbacks) if model.name == name), self.model)

    async def stream(self, request: ModelRequest) -> AsyncIterator[Sequence[Delta]]:
        """The first attempt that gives anything out, whole."""
        plan = _AttemptPlan((self.model, *self.fallbacks), self.policy)
        if plan.has_fallback:
            yield [plan.attempt()]
        while True:
            source = open_stream(plan.model, request)
            try:
                first = await self._first_batch(source, request, plan)
            except ModelError as error:
                attempt = plan.next_attempt(error)
                _log_retry(plan, attempt, error)
            else:
                yield first
                async for batch in source:
                    yield batch
                return
            finally:
                await source.aclose()
            yield [attempt]
            await self.clock.sleep(attempt.wait_seconds)

    def takes_output_schema(self, output: OutputSchema, *, with_tools: bool) -> bool:
        """Whether all of them do, so that a fallback can take over."""
        models = (self.model, *self.fallbacks)
        return all(takes_output_schema(model, output, with_tools=with_tools) for model in models)

    async def aclose(self) -> None:
        for model in (self.model, *self.fallbacks):
            await close_model(model)

    async def _first_batch(
        self, source: AsyncGenerator[Sequence[Delta]], request: ModelRequest, plan: _AttemptPlan
    ) -> Sequence[Delta]:
        """The attempt up to what shows anything; raises `ModelError` for one that shows nothing."""
        seconds = request.attempt_seconds if plan.has_fallback else None
        try:
            async with asyncio.timeout(None if seconds is None else self.clock.real(seconds)):
                first = await _first_reply_batch(source, plan.model.name)
        except TimeoutError as exc:
            raise _first_chunk_timeout(plan.model.name, seconds or 0.0) from exc
        if first is None:
            text = f"{plan.model.name} ended its answer before it began"
            raise ModelError(text, code="provider.truncated", retryable=True)
        return first


def _log_retry(plan: _AttemptPlan, attempt: Attempt, error: ModelError) -> None:
    """Log that another attempt follows. `attempt` counts those of one model: that of a fallback's first is 1."""
    fields = {
        "attempt": plan.failed_attempts + 1,
        "model": attempt.model,
        "wait_seconds": round(attempt.wait_seconds, 3),
    }
    _log.info("retry", **fields, code=error.code, error=str(error))


async def _first_reply_batch(source: AsyncGenerator[Sequence[Delta]], name: str) -> Sequence[Delta] | None:
    """The first batch with a part of the reply, with the counts that came before it; None if there is none."""
    counts: Usage | None = None
    async for batch in source:
        if any(_is_part(delta, name) for delta in batch):
            return batch if counts is None else [UsageDelta(counts), *batch]
        for delta in batch:
            if isinstance(delta, UsageDelta):
                counts = delta.usage if counts is None else counts.updated(delta.usage)
    return None


def _is_part(delta: Delta, name: str) -> bool:
    """Whether the reply has begun with it; raises `ModelError` where it says that the provider gave up."""
    if isinstance(delta, Finished) and delta.stop == "failed":
        raise failed_reply_error(name, delta.finish_reason)
    return delta.complete if isinstance(delta, Finished) else not isinstance(delta, UsageDelta)


def _may_fall_back(error: ModelError) -> bool:
    """Whether another model may take what this one did not."""
    missing = error.status == _NOT_FOUND or _NO_SUCH_MODEL.search(f"{error.provider_type} {error}")
    return error.code not in _NO_FALLBACK or (error.code == "provider.bad_request" and bool(missing))


def _first_chunk_timeout(name: str, seconds: float) -> ClockExpired:
    """An expired clock is not retried with the same model; only a fallback may take over."""
    error = ClockExpired(
        f"{name} sent nothing within {seconds:g} s",
        code="timeout.first_chunk",
        elapsed_seconds=seconds,
        limit_seconds=seconds,
    )
    error.retryable = False
    return error

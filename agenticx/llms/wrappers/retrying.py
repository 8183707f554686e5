"""A wrapper that retries a call, or calls a fallback model, until the first delta of a reply.

It is the only layer that retries. An `Attempt` is yielded before each wait and each change of model, and cancelling the
reader ends a wait at once. After the first delta of the reply an error ends the call. Token counts are not part of the
reply: some providers send them before they know whether they can answer, so they are held back until its first delta.
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
from agenticx.llms.wrappers.base import open_stream
from agenticx.logs import get_logger

__all__ = ["RetryPolicy", "RetryingModel"]

_NO_FALLBACK = frozenset({"provider.bad_request", "provider.content_filter", "context_overflow"})
"""Codes of errors in the request itself, which would fail with a fallback model as well."""

_NOT_FOUND = 404
_NO_SUCH_MODEL = re.compile(
    r"model.{0,120}?(not[ _]?found|not exist|decommissioned|deprecated|retired|discontinued)"
    r"|model.{0,120}?no longer (available|supported)|(invalid|unknown|no such|not found the) model|not a valid model",
    re.IGNORECASE,
)
"""Messages about a missing or retired model; several providers send them with another status than 404."""

_JITTER = 1.25
_MAX_DOUBLINGS = 30

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """The attempts per model and the waits between them in seconds; the defaults are those of the published MetaChain.

    Waits double from the shortest to the longest, with a random addition of up to a quarter, so that not all clients
    retry at once. A provider's Retry-After replaces the wait, up to `longest_retry_after`; if it is longer, the model
    is not retried.
    """

    attempts: int = 3
    shortest_wait: float = 4.0
    longest_wait: float = 10.0
    longest_retry_after: float = 60.0

    def wait(self, error: ModelError, failed_attempts: int) -> float | None:
        """Return the seconds to wait after `failed_attempts` failures, None if there is no further attempt."""
        if not error.retryable or failed_attempts >= self.attempts:
            return None
        if error.retry_after is not None:
            return error.retry_after if error.retry_after <= self.longest_retry_after else None
        doubled = self.shortest_wait * 2.0 ** min(failed_attempts - 1, _MAX_DOUBLINGS)
        min_wait = max(self.shortest_wait, min(doubled, self.longest_wait / _JITTER))
        return random.uniform(min_wait, min(self.longest_wait, min_wait * _JITTER))


@dataclass(slots=True)
class _AttemptPlan:
    """The state of a call's attempts: the current model, its failures, and the errors of the models before it."""

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
        """Return the next attempt; if there is none, raise `error`, extended by the errors of earlier models."""
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
    """A model retried by `policy`, then each of `fallbacks` likewise; its name is that of `model`."""

    model: ChatModel
    fallbacks: Sequence[ChatModel] = ()
    policy: RetryPolicy = field(default_factory=RetryPolicy)
    clock: Clock = field(default_factory=SystemClock)

    @property
    def name(self) -> str:
        return self.model.name

    @property
    def context_window(self) -> int | None:
        """The smallest known window of all models, so that every fallback can take over."""
        windows = [model.context_window for model in (self.model, *self.fallbacks)]
        return min((window for window in windows if window is not None), default=None)

    @property
    def inline_calls(self) -> Sequence[InlineForm]:
        """The forms of the first model; `model_named` returns the others."""
        return inline_forms(self.model)

    def model_named(self, name: str) -> ChatModel:
        """Return the one of these models that is called `name`, else the first."""
        return next((model for model in (self.model, *self.fallbacks) if model.name == name), self.model)

    async def stream(self, request: ModelRequest) -> AsyncIterator[Sequence[Delta]]:
        """Yield `Attempt`s, then the reply of the first attempt that sends a delta."""
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
        """Return whether all of these models can be constrained to the schema, so that every fallback can take over."""
        models = (self.model, *self.fallbacks)
        return all(takes_output_schema(model, output, with_tools=with_tools) for model in models)

    async def aclose(self) -> None:
        for model in (self.model, *self.fallbacks):
            await close_model(model)

    async def _first_batch(
        self, source: AsyncGenerator[Sequence[Delta]], request: ModelRequest, plan: _AttemptPlan
    ) -> Sequence[Delta]:
        """Read an attempt up to its first batch with a part of the reply; raises `ModelError` if there is none."""
        seconds = request.attempt_seconds if plan.has_fallback else None
        try:
            async with asyncio.timeout(None if seconds is None else self.clock.real(seconds)):
                first = await _first_reply_batch(source, plan.model.name)
        except TimeoutError as exc:
            raise _first_chunk_timeout(plan.model.name, seconds or 0.0) from exc
        if first is None:
            text = f"{plan.model.name} ended its reply without sending any of it"
            raise ModelError(text, code="provider.truncated", retryable=True)
        return first


def _log_retry(plan: _AttemptPlan, attempt: Attempt, error: ModelError) -> None:
    """Log that another attempt follows; `attempt` is counted per model, so that of a fallback's first is 1."""
    fields = {
        "attempt": plan.failed_attempts + 1,
        "model": attempt.model,
        "wait_seconds": round(attempt.wait_seconds, 3),
    }
    _log.info("retry", **fields, code=error.code, error=str(error))


async def _first_reply_batch(source: AsyncGenerator[Sequence[Delta]], name: str) -> Sequence[Delta] | None:
    """Return the first batch with a part of the reply, preceded by earlier token counts; None if there is none."""
    counts: Usage | None = None
    async for batch in source:
        _check_not_failed(batch, name)
        if any(_is_part(delta) for delta in batch):
            return batch if counts is None else [UsageDelta(counts), *batch]
        for delta in batch:
            if isinstance(delta, UsageDelta):
                counts = delta.usage if counts is None else counts.updated(delta.usage)
    return None


def _check_not_failed(batch: Sequence[Delta], name: str) -> None:
    """Raise `ModelError` if the reply ends in this batch, before any part of it, because the provider failed."""
    for delta in batch:
        if isinstance(delta, Finished) and delta.stop == "failed":
            raise failed_reply_error(name, delta.finish_reason)
        if _is_part(delta):
            return


def _is_part(delta: Delta) -> bool:
    """Return whether `delta` is a part of the reply, such as text or an end marker, and not a token count."""
    return delta.complete if isinstance(delta, Finished) else not isinstance(delta, UsageDelta)


def _may_fall_back(error: ModelError) -> bool:
    """Return whether a fallback model may succeed with the request that failed with `error`."""
    missing = error.status == _NOT_FOUND or _NO_SUCH_MODEL.search(f"{error.provider_type} {error}")
    return error.code not in _NO_FALLBACK or (error.code == "provider.bad_request" and bool(missing))


def _first_chunk_timeout(name: str, seconds: float) -> ClockExpired:
    """Return the error for a model that sent nothing; it is not retryable, so that only a fallback takes over."""
    error = ClockExpired(
        f"{name} sent nothing within {seconds:g} s",
        code="timeout.first_chunk",
        elapsed_seconds=seconds,
        limit_seconds=seconds,
    )
    error.retryable = False
    return error

"""Downgrades, retries and fallbacks: functions around `open_reply` that end when a reply is open."""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from agenticx.clocks import Clock
from agenticx.errors import ClockExpired, ModelError
from agenticx.llms.base import (
    Attempt,
    ChatModel,
    Delta,
    Finished,
    ModelRequest,
    Usage,
    UsageDelta,
    failed_reply_error,
    largest_cost,
)
from agenticx.llms.file_refusals import without_refused_files
from agenticx.llms.opening import OpenReply, open_reply
from agenticx.logs import get_logger

__all__ = ["AttemptPlan", "RetryPolicy", "open_next_attempt", "open_with_downgrades", "send_with_downgrades"]

Form = TypeVar("Form")
Response = TypeVar("Response")

_NO_FALLBACK = frozenset({"provider.bad_request", "provider.content_filter", "context_overflow"})
"""Codes of errors in the request itself: a fallback model would fail as well."""

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


# --- downgrades -------------------------------------------------------------------------------------------------------


async def send_with_downgrades(
    next_form: Callable[[], Form],
    send: Callable[[Form], Awaitable[Response]],
    try_downgrade: Callable[[Form, ModelError], bool],
) -> Response:
    """Return the response to a request in the form `next_form()`; send it again if it fails and can be downgraded.

    `try_downgrade` gets the form and the error; it changes what `next_form` returns, or returns False.
    """
    while True:
        form = next_form()
        try:
            return await send(form)
        except ModelError as error:
            if not try_downgrade(form, error):
                raise


async def open_with_downgrades(
    next_request: Callable[[], tuple[ChatModel, ModelRequest]],
    try_downgrade: Callable[[ChatModel, ModelRequest, ModelError], bool],
) -> OpenReply:
    """Open the reply to `next_request()`; request again if it fails before its first batch and can be downgraded.

    `try_downgrade` gets the model, the request and the error; it changes what `next_request` returns, or returns False.
    """
    return await send_with_downgrades(
        next_request, lambda form: open_reply(*form), lambda form, error: try_downgrade(*form, error)
    )


# --- retries and fallbacks --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """The attempts per model and the waits between them in seconds; the defaults are the published MetaChain's.

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
class AttemptPlan:
    """The state of a call's attempts: the current model, its failures, and the errors of the models before it.

    `announced` is the announced next attempt, None before the first attempt of a model without fallback. `counts` are
    the token counts that the current attempt has reported before any part of its reply.
    """

    models: Sequence[ChatModel]
    policy: RetryPolicy
    announced: Attempt | None = None
    counts: Usage | None = None
    index: int = 0
    failed_attempts: int = 0
    earlier_failures: list[str] = field(default_factory=list[str])

    @property
    def model(self) -> ChatModel:
        return self.models[self.index]

    @property
    def has_fallback(self) -> bool:
        return self.index + 1 < len(self.models)

    def announce(self, wait: float = 0.0, error: ModelError | None = None, spent: Usage | None = None) -> Attempt:
        """Return the next attempt, with the current model; the one before failed with `error`."""
        reason, code = (None, None) if error is None else (str(error), error.code)
        self.announced = Attempt(self.model.name, wait, reason, bounded=self.has_fallback, spent=spent, code=code)
        return self.announced

    def announce_after(self, error: ModelError, spent: Usage | None) -> Attempt | None:
        """Return the attempt after a failed one; if there is none, add the errors of earlier models to `error`."""
        self.failed_attempts += 1
        wait = self.policy.wait(error, self.failed_attempts)
        if wait is not None:
            return self.announce(wait, error, spent)
        if not self.has_fallback or not _may_fall_back(error):
            error.args = ("; ".join([str(error), *self.earlier_failures]),)
            return None
        self.earlier_failures.append(f"{self.model.name} had failed before: {error}")
        self.index, self.failed_attempts = self.index + 1, 0
        return self.announce(0.0, error, spent)

    def count(self, batch: Sequence[Delta]) -> None:
        """Add the counts of a batch to the current attempt's."""
        for delta in batch:
            if isinstance(delta, UsageDelta):
                self.counts = delta.usage if self.counts is None else self.counts.updated(delta.usage)

    def take_spent(self) -> Usage | None:
        """Return the counts of a failed attempt, with its cost if that is known, and reset them."""
        counts, self.counts = self.counts, None
        if counts is None or counts.cost_usd is not None:
            return counts
        known = replace(counts, input_tokens=counts.input_tokens or 0, output_tokens=counts.output_tokens or 0)
        return replace(counts, cost_usd=largest_cost(self.model, known))


async def open_next_attempt(plan: AttemptPlan, request: ModelRequest, clock: Clock) -> OpenReply | Attempt:
    """Make the next attempt after its wait; return its reply, or if it fails, the announcement of one more attempt.

    The reply returned has a part of the reply in its first batch. A first attempt that may be replaced by a fallback is
    announced before it is made. Raises the `ModelError` of the last attempt; if that reported counts, a reply is
    returned that has them and then fails.
    """
    if plan.announced is None and plan.has_fallback:
        return plan.announce()
    if plan.announced is not None and plan.announced.reason is not None:
        await clock.sleep(plan.announced.wait_seconds)
    try:
        return await _open_in_time(plan, request, clock)
    except ModelError as error:
        spent = plan.take_spent()
        attempt = plan.announce_after(error, spent)
        if attempt is not None:
            _log_retry(plan, attempt, error)
            return attempt
        if spent is None:
            raise
        failed = OpenReply(_failing(error))
        failed.first = [UsageDelta(spent)]
        return failed


async def _failing(error: ModelError) -> AsyncIterator[Sequence[Delta]]:
    raise error
    yield ()


async def _open_in_time(plan: AttemptPlan, request: ModelRequest, clock: Clock) -> OpenReply:
    """Open the reply of the current model, within `attempt_seconds` if there is a fallback."""
    seconds = request.attempt_seconds if plan.has_fallback else None
    try:
        async with asyncio.timeout(None if seconds is None else clock.real(seconds)):
            return await _open_first_part(plan, request)
    except TimeoutError as exc:
        raise _first_chunk_timeout(plan.model.name, seconds or 0.0) from exc


async def _open_first_part(plan: AttemptPlan, request: ModelRequest) -> OpenReply:
    """Return the reply once a part of it has arrived; raise `ModelError` if none arrives."""
    if plan.index:  # the request was made for the first model
        request = replace(request, messages=without_refused_files(request.messages, plan.model.name))
    reply = await open_reply(plan.model, request)
    try:
        reply.first = await _first_part(reply, plan)
    except BaseException:
        await reply.aclose()
        raise
    return reply


async def _first_part(reply: OpenReply, plan: AttemptPlan) -> Sequence[Delta]:
    """Read up to the first batch with a part of the reply and return it; raises `ModelError` if there is none.

    Token counts are no part of the reply, since some providers send them before they know whether they can answer; the
    batch returned begins with the counts of earlier batches.
    """
    batch = reply.first
    while batch is not None:
        earlier = plan.counts
        plan.count(batch)
        _check_not_failed(batch, plan.model.name)
        if any(_is_part(delta) for delta in batch):
            return batch if earlier is None else [UsageDelta(earlier), *batch]
        batch = await anext(reply, None)
    text = f"{plan.model.name} ended its reply without sending any of it"
    raise ModelError(text, code="provider.truncated", retryable=True)


def _log_retry(plan: AttemptPlan, attempt: Attempt, error: ModelError) -> None:
    """Log that another attempt follows; attempts are counted per model, from 1."""
    fields = {
        "attempt": plan.failed_attempts + 1,
        "model": attempt.model,
        "wait_seconds": round(attempt.wait_seconds, 3),
    }
    _log.info("retry", **fields, code=error.code, error=str(error))


def _check_not_failed(batch: Sequence[Delta], name: str) -> None:
    """Raise `ModelError` if the reply ends in this batch, before any part of it, because the provider failed."""
    for delta in batch:
        if isinstance(delta, Finished) and delta.stop == "failed":
            raise failed_reply_error(name, delta.finish_reason)
        if _is_part(delta):
            return


def _is_part(delta: Delta) -> bool:
    """Return whether `delta` is a part of the reply (for example text or an end marker), not a token count."""
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

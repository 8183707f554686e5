"""Durable answers to requests to the user: the first one counts, also across a restart."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime

from agenticx.runtime import AsyncConfirmGate
from agenticx.runtime.user_requests.kinds import kind_of
from agenticx.runtime.user_requests.requests import GIVEN_BY, UserAnswer
from agenticx.sessions.log.events import stored_request
from agenticx.sessions.log.records import Fact, RequestAnswered, RequestAsked, RequestDecided
from agenticx.sessions.store.base import Lease, Log, find_fact, read_event

__all__ = ["store_answer"]


async def store_answer(
    lease: Lease,
    log: Log,
    store_fact: Callable[[Fact], Awaitable[None]],
    gate_of: Callable[[str], AsyncConfirmGate | None],
    request_id: str,
    answer: UserAnswer,
    digest: str,
    *,
    workspace: str,
    now: datetime,
) -> UserAnswer:
    """Give an answer and return the one that counts: the first valid answer, also if this is a repetition.

    A session's answers must be given one at a time. The gate decides at once which answer counts; it is returned only
    once it is stored. The turn's reaction is stored later, since the commits of a session keep their order.

    `gate_of` returns the gate of the turn that asked, None for a turn that is not here: it reads the answer when it is
    resumed, if that was given before the request expired. `digest` is the digest of a confirmation, and rules in the
    answer hold in `workspace`.

    Raises `UnknownConfirm`, `DigestMismatch`, or `ConfirmClosed` for another answer that comes too late;
    `UnknownQuestion` and `QuestionClosed` for questions of agents; `RememberUnavailable` and `RuleTooWide` for rules
    that cannot be stored.
    """
    kind = kind_of(answer)
    await lease.check()
    asked = await find_fact(log, lease.session_id, RequestAsked, request_id)
    if asked is None:
        raise kind.unknown_id(request_id)
    request = stored_request(await read_event(log, lease.session_id, asked.seq))
    if not isinstance(request, kind.request_type):
        raise kind.unknown_id(request_id)
    kind.check_digest(request_id, request.digest, digest)
    answer = kind.completed_answer(request, answer, workspace)
    gate = gate_of(asked.turn_id)
    is_too_late = gate is None and request.expires_at <= now
    first = await _store(lease, log, store_fact, gate, asked, None if is_too_late else answer)
    return kind.effective_answer(request_id, first, answer)


async def _store(
    lease: Lease,
    log: Log,
    store_fact: Callable[[Fact], Awaitable[None]],
    gate: AsyncConfirmGate | None,
    asked: RequestAsked,
    answer: UserAnswer | None,
) -> UserAnswer | None:
    """Store the answer unless another one counts, and return the one that counts; None if closed without one.

    If `answer` is None nothing is stored.
    """
    await lease.check()
    answers = await log.facts(lease.session_id, RequestAnswered, RequestDecided, key=asked.key)
    stored = {type(fact): fact.answer for fact in answers}
    if (closed := stored.get(RequestDecided)) is not None:
        return closed if closed.by in GIVEN_BY else None
    if (earlier := stored.get(RequestAnswered)) is not None:
        return earlier
    # The record is queued without an await after the gate decides, so it is before all that the turn stores then.
    decided = answer if gate is None or answer is None else gate.decide(asked.key, answer)
    if decided is not None:
        await store_fact(RequestAnswered(key=asked.key, turn_id=asked.turn_id, answer=decided))
    return decided

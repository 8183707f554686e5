"""Durable answers to questions: the first one counts, also across a restart."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

from agenticx.runtime import AsyncConfirmGate, ConfirmAnswer, ConfirmClosed, ConfirmRequest, DigestMismatch
from agenticx.runtime.confirm import UnknownConfirm
from agenticx.sessions.history.interrupted import answer_from_data, answer_to_data, confirm_request
from agenticx.sessions.store.base import Lease
from agenticx.sessions.store.records import Fact, StoredEvent

__all__ = ["answer_question", "open_question", "unknown_confirm"]

_ANSWERED_BY = frozenset({"user", "policy"})
"""The deciders that answer through `answer_question`; a question with another one was closed without an answer."""


async def answer_question(
    lease: Lease,
    store_fact: Callable[[Fact], Awaitable[None]],
    gate: AsyncConfirmGate | None,
    request_id: str,
    answer: ConfirmAnswer,
    digest: str,
) -> ConfirmAnswer:
    """Give an answer and return the decision; the first valid one counts, and repeating it returns it again.

    A session's answers must be given one at a time. The gate decides at once which answer counts, and it is returned
    only once it is stored. The turn's reaction to it is stored later, as a session's commits keep their order. Without
    a gate the turn is not here: it takes the answer when it resumes. Raises `UnknownConfirm`, `DigestMismatch`, or
    `ConfirmClosed` for any other answer that comes too late.
    """
    question = await lease.fact("question_asked", request_id)
    if question is None:
        raise unknown_confirm(request_id)
    if question.data["digest"] != digest:
        raise DigestMismatch(f"the digest is not the one of confirmation {request_id!r}; read the question again")
    decision = await _store_answer(lease, store_fact, gate, question, answer)
    if decision is None or replace(decision, reason=None) != replace(answer, reason=None):
        raise ConfirmClosed(f"confirmation {request_id!r} is closed: it was answered, it expired, or its turn ended")
    return decision


def unknown_confirm(request_id: str) -> UnknownConfirm:
    """Return the error for an id that no question has."""
    return UnknownConfirm(f"no confirmation has the id {request_id!r}")


async def _store_answer(
    lease: Lease,
    store_fact: Callable[[Fact], Awaitable[None]],
    gate: AsyncConfirmGate | None,
    question: Fact,
    answer: ConfirmAnswer,
) -> ConfirmAnswer | None:
    """Store the answer unless another one counts, and return the one that counts; None if closed without one."""
    closed = await lease.fact("question_closed", question.key)
    if closed is not None:
        return answer_from_data(closed.data) if closed.data["by"] in _ANSWERED_BY else None
    earlier = await lease.fact("question_answered", question.key)
    if earlier is not None:
        return answer_from_data(earlier.data)
    decided = answer if gate is None else _decide(gate, question.key, answer)  # its write is queued without an await
    if decided is not None:
        await store_fact(replace(question, kind="question_answered", data=answer_to_data(decided)))
    return decided


def _decide(gate: AsyncConfirmGate, request_id: str, answer: ConfirmAnswer) -> ConfirmAnswer | None:
    """Return the answer that counts for a question of this process; None if it was closed without one."""
    if any(request.id == request_id for request in gate.pending()):
        gate.resolve(
            request_id,
            answer.approved,
            by="policy" if answer.by == "policy" else "user",
            remember=answer.remember,
            arguments=answer.arguments,
            reason=answer.reason,
        )
    return gate.decided(request_id)


def open_question(event: StoredEvent) -> ConfirmRequest:
    """Return the question of a `confirm_required` event."""
    envelope: dict[str, Any] = json.loads(event.frame_json)
    return confirm_request(envelope["data"], event.session_id, envelope["agent_id"])

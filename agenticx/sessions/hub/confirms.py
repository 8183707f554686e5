"""Durable answers to confirmations: the first one counts, also across a restart."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from agenticx.runtime import AsyncConfirmGate, ConfirmAnswer, ConfirmClosed, ConfirmRequest, DigestMismatch
from agenticx.runtime.confirm import UnknownConfirm
from agenticx.sessions.history.interrupted import answer_from_data, answer_to_data
from agenticx.sessions.store.base import JournalEntry, Store

__all__ = ["DurableConfirmations"]


class DurableConfirmations:
    """The questions of one gate, with their answers kept in one store.

    The gate decides at once which answer counts, and the answer is returned only once the store has it. The
    turn's reaction to the answer is passed to the store later, and a store keeps the order of its writes.
    """

    def __init__(self, gate: AsyncConfirmGate, store: Store) -> None:
        self._gate = gate
        self._store = store
        self._left_open: dict[str, ConfirmRequest] = {}

    async def pending(self, session_id: str | None = None) -> list[ConfirmRequest]:
        """Return the open questions whose `confirm_required` is stored, oldest first."""
        left_open = [request for request in self._left_open.values() if session_id in {None, request.session_id}]
        in_gate = (request for request in self._gate.pending(session_id) if request.id not in self._left_open)
        return [
            request
            for request in (*left_open, *in_gate)
            if await self._store.journal_entry("asked", request.id) is not None
        ]

    def leave_open(self, requests: Iterable[ConfirmRequest]) -> None:
        """Keep `requests` open until their turns resume after the next start; until then the store takes answers."""
        self._left_open.update((request.id, request) for request in requests)

    async def answer(self, request_id: str, answer: ConfirmAnswer, *, digest: str) -> ConfirmAnswer:
        """Give an answer and return the decision; the first valid one counts, and repeating it returns it again.

        Raises `UnknownConfirm`, `DigestMismatch`, or `ConfirmClosed` for any other answer that comes too late.
        """
        question = await self._store.journal_entry("asked", request_id)
        if question is None:
            raise UnknownConfirm(f"no confirmation has the id {request_id!r}")
        if question.data["digest"] != digest:
            raise DigestMismatch(f"the digest is not the one of confirmation {request_id!r}; read the question again")
        decision = await self._record_answer(question, answer)
        if decision is None or replace(decision, reason=None) != replace(answer, reason=None):
            raise ConfirmClosed(
                f"confirmation {request_id!r} is closed: it was answered, it expired, or its turn ended"
            )
        return decision

    async def _record_answer(self, question: JournalEntry, answer: ConfirmAnswer) -> ConfirmAnswer | None:
        """Store the answer unless another one counts, and return the one that counts; None if closed without one."""
        closed = await self._store.journal_entry("closed", question.key)
        if closed is not None:
            return answer_from_data(closed.data) if closed.data["by"] == "user" else None
        decided = self._decide(question.key, answer)  # no await between the decision and queueing its write
        if decided is not None:
            entry = await self._store.add_journal_entry(
                replace(question, kind="answered", data=answer_to_data(decided))
            )
        else:
            entry = await self._store.journal_entry("answered", question.key)
        return None if entry is None else answer_from_data(entry.data)

    def _decide(self, request_id: str, answer: ConfirmAnswer) -> ConfirmAnswer | None:
        """Return the answer that counts for a question of this process; None if it was closed without one."""
        if request_id in self._left_open:
            return answer  # `Store.add_journal_entry` returns an earlier answer instead, if there is one
        if any(request.id == request_id for request in self._gate.pending()):
            self._gate.resolve(
                request_id,
                answer.approved,
                remember=answer.remember,
                arguments=answer.arguments,
                reason=answer.reason,
            )
        return self._gate.decided(request_id)

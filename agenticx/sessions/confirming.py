"""Answers of a person: durable before they have an effect, the first one counting, and the same after a restart."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from agenticx.runtime import AsyncConfirmGate, ConfirmAnswer, ConfirmClosed, ConfirmRequest, DigestMismatch
from agenticx.runtime.confirm import UnknownConfirm
from agenticx.sessions.base import JournalEntry, Store
from agenticx.sessions.recovery import answer_data, answer_of

__all__ = ["Confirming"]


class Confirming:
    """The questions of one gate, kept in one store.

    The gate decides at once which answer counts, and nobody is told of it before the store has it. What the turn makes
    of the answer is handed to the store later, and a store keeps the order of its writes.
    """

    def __init__(self, gate: AsyncConfirmGate, store: Store) -> None:
        self._gate = gate
        self._store = store
        self._left: dict[str, ConfirmRequest] = {}

    async def pending(self, session_id: str | None = None) -> list[ConfirmRequest]:
        """The questions that wait and that their readers can know of, oldest first."""
        left = [one for one in self._left.values() if session_id in {None, one.session_id}]
        waiting = [*left, *(one for one in self._gate.pending(session_id) if one.id not in self._left)]
        return [request for request in waiting if await self._store.journal_entry("asked", request.id) is not None]

    def leave_open(self, requests: Iterable[ConfirmRequest]) -> None:
        """Their turns go on after the next start: until then the store alone takes their answers."""
        self._left.update((request.id, request) for request in requests)

    async def answer(self, request_id: str, answer: ConfirmAnswer, *, digest: str) -> ConfirmAnswer:
        """Give an answer and return the decision; the first valid one counts, and the same again returns it.

        Raises `UnknownConfirm`, `DigestMismatch`, or `ConfirmClosed` for any other answer that comes too late.
        """
        asked = await self._store.journal_entry("asked", request_id)
        if asked is None:
            raise UnknownConfirm(f"no confirmation has the id {request_id!r}")
        if asked.data["digest"] != digest:
            raise DigestMismatch(f"the digest is not the one of confirmation {request_id!r}; read the question again")
        standing = await self._standing(asked, answer)
        if standing is None or replace(standing, reason=None) != replace(answer, reason=None):
            raise ConfirmClosed(
                f"confirmation {request_id!r} is closed: it was answered, it expired, or its turn ended"
            )
        return standing

    async def _standing(self, asked: JournalEntry, answer: ConfirmAnswer) -> ConfirmAnswer | None:
        """The person's answer that counts, this one or an earlier one; None if the question was closed without."""
        closed = await self._store.journal_entry("closed", asked.key)
        if closed is not None:
            return answer_of(closed.data) if closed.data["by"] == "user" else None
        decided = self._decide(asked.key, answer)  # no wait between this and its place among the writes
        if decided is not None:
            entry = await self._store.add_journal_entry(replace(asked, kind="answered", data=answer_data(decided)))
        else:
            entry = await self._store.journal_entry("answered", asked.key)
        return None if entry is None else answer_of(entry.data)

    def _decide(self, request_id: str, answer: ConfirmAnswer) -> ConfirmAnswer | None:
        """The answer that counts for a question that this process has put, if it was not closed without one."""
        if request_id in self._left:
            return answer  # unless the store has another one
        if any(request.id == request_id for request in self._gate.pending()):
            self._gate.resolve(
                request_id,
                answer.approved,
                remember=answer.remember,
                arguments=answer.arguments,
                reason=answer.reason,
            )
        return self._gate.decided(request_id)

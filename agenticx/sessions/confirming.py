"""Answers of a person: durable before they have an effect, the first one counting, and the same after a restart."""

from __future__ import annotations

from dataclasses import replace

from agenticx.runtime import AsyncConfirmGate, ConfirmAnswer, ConfirmClosed, ConfirmRequest, DigestMismatch
from agenticx.runtime.confirm import UnknownConfirm
from agenticx.sessions.base import Journalled, Store
from agenticx.sessions.recovery import answer_data, answer_of

__all__ = ["Confirming"]


class Confirming:
    """The questions of one gate, kept in one store."""

    def __init__(self, gate: AsyncConfirmGate, store: Store) -> None:
        self._gate = gate
        self._store = store

    async def pending(self, session_id: str | None = None) -> list[ConfirmRequest]:
        """The questions that wait and that their readers can know of, oldest first."""
        waiting = self._gate.pending(session_id)
        return [request for request in waiting if await self._store.journalled("asked", request.id) is not None]

    async def answer(self, request_id: str, answer: ConfirmAnswer, *, digest: str) -> ConfirmAnswer:
        """Give an answer and return the decision; the first valid one counts, and the same again returns it.

        Raises `UnknownConfirm`, `DigestMismatch`, or `ConfirmClosed` for any other answer that comes too late.
        """
        asked = await self._store.journalled("asked", request_id)
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

    async def _standing(self, asked: Journalled, answer: ConfirmAnswer) -> ConfirmAnswer | None:
        """The person's answer that counts, this one or an earlier one; None if the question was closed without."""
        if await self._store.journalled("closed", asked.key) is None and self._waits(asked.key):
            entry = await self._store.journal(replace(asked, kind="answered", data=answer_data(answer)))
            standing = answer_of(entry.data)
            if self._waits(asked.key):
                self._gate.resolve(
                    asked.key,
                    standing.approved,
                    remember=standing.remember,
                    arguments=standing.arguments,
                    reason=standing.reason,
                )
                return standing
        return await self._given(asked.key)

    async def _given(self, request_id: str) -> ConfirmAnswer | None:
        """The person's answer that came into effect."""
        closed = await self._store.journalled("closed", request_id)
        if closed is not None:
            return answer_of(closed.data) if closed.data["by"] == "user" else None
        entry = await self._store.journalled("answered", request_id)
        decided = self._gate.decided(request_id)
        return answer_of(entry.data) if entry is not None and decided is not None else None

    def _waits(self, request_id: str) -> bool:
        return any(request.id == request_id for request in self._gate.pending())

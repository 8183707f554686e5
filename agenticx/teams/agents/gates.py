"""The gate that is asked about the risky calls of an agent."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import AbstractContextManager
from contextvars import ContextVar
from typing import Any

from agenticx.runtime import AutoApproveConfirmGate, ConfirmGate, SyncConfirmGate
from agenticx.runtime.confirm import ConfirmAnswer, ConfirmRequest
from agenticx.runtime.questions.user_question import QuestionAnswer, QuestionRequest
from agenticx.runtime.turn import Turn
from agenticx.teams.context_scopes import scoped

__all__ = ["DefaultGate", "ParticipantsOwnGate", "asked_at", "asks_own_gate", "team_gate"]

_team_gate: ContextVar[ConfirmGate | None] = ContextVar("agenticx_team_gate", default=None)


def team_gate() -> ConfirmGate | None:
    """Return the gate of the innermost team with one in which the code runs."""
    return _team_gate.get()


def asked_at(gate: ConfirmGate | None) -> AbstractContextManager[None]:
    """Let `gate` be that of the team in which the block is at work."""
    return scoped(_team_gate, gate)


def asks_own_gate(parent: Turn) -> bool:
    """Return whether an agent below a turn asks the gate that it has itself: that of its team, or its default one.

    It does where no gate was given to the turn or to one above it; else it asks that of the turn.
    """
    return team_gate() is not None or isinstance(parent.gate, DefaultGate | ParticipantsOwnGate)


class DefaultGate(ConfirmGate):
    """The gate of an agent that was given none: that of its team.

    Without one it approves the functions of the application, `names`, and asks at the terminal about built-in tools.
    """

    def __init__(self, names: Collection[str]) -> None:
        self._names = names
        self._approving = AutoApproveConfirmGate()
        self._terminal = SyncConfirmGate()

    def request_confirm(
        self, question: str, context: Mapping[str, Any]
    ) -> bool | ConfirmAnswer | Awaitable[bool | ConfirmAnswer]:
        return self._chosen(context).request_confirm(question, context)

    async def ask(self, request: ConfirmRequest, announce: Callable[[], None]) -> ConfirmAnswer:
        return await self._chosen(request.context).ask(request, announce)

    def decided(self, request_id: str) -> ConfirmAnswer | None:
        gate = team_gate()
        return None if gate is None else gate.decided(request_id)

    async def ask_question(self, request: QuestionRequest, announce: Callable[[], None]) -> QuestionAnswer:
        return await (team_gate() or self._terminal).ask_question(request, announce)

    def answered(self, question_id: str) -> QuestionAnswer | None:
        gate = team_gate()
        return None if gate is None else gate.answered(question_id)

    def _chosen(self, context: Mapping[str, Any]) -> ConfirmGate:
        if (gate := team_gate()) is not None:
            return gate
        return self._approving if context.get("tool") in self._names else self._terminal


class ParticipantsOwnGate(ConfirmGate):
    """The gate of a team's turn in a session that has none: each participant asks its own; this one denies."""

    def request_confirm(self, question: str, context: Mapping[str, Any]) -> bool:
        return False

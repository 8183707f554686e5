"""The confirm gate of the team in which code runs."""

from __future__ import annotations

from contextlib import AbstractContextManager
from contextvars import ContextVar

from agenticx.runtime import ConfirmGate
from agenticx.teams.context_scopes import scoped

__all__ = ["asked_at", "team_gate"]

_team_gate: ContextVar[ConfirmGate | None] = ContextVar("agenticx_team_gate", default=None)


def team_gate() -> ConfirmGate | None:
    """Return the gate of the innermost team with one in which the code runs."""
    return _team_gate.get()


def asked_at(gate: ConfirmGate | None) -> AbstractContextManager[None]:
    """Make `gate` the gate of the current team in the block."""
    return scoped(_team_gate, gate)

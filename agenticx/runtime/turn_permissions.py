"""The permissions of a turn: its mode, confirm gate, stored rules, and the consent to mode auto."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from agenticx.permissions.rule_stores import RuleStore, file_rules
from agenticx.permissions.rules import Rule
from agenticx.permissions.verdict import EVERY_MODE_RULES, PermissionMode, stricter_mode
from agenticx.runtime.gates.base import ConfirmGate
from agenticx.runtime.session import Session
from agenticx.runtime.user_requests.requests import QuestionRequest, UserRequest
from agenticx.threads import retrieve_exception, run_in_thread

__all__ = ["TurnPermissions"]


class TurnPermissions:
    """The permissions of a turn; `parent` are those of its parent turn.

    - `turn_gate` is the gate for agents without one of their own.
    - `agent_gate` is the gate of the acting agent, else of the one that handed over to it; None for `turn_gate`.
    - `rule_store` has the rules of the user for all sessions, by default the parent's; None outside of a hub, where
      those of `home`, AGX_HOME, hold that ask or deny.
    - `began_with_auto_consent`: an earlier process began the turn with the consent of a person to mode auto.
    """

    def __init__(
        self,
        session: Session,
        turn_gate: ConfirmGate,
        *,
        home: Path,
        parent: TurnPermissions | None = None,
        mode: PermissionMode | None = None,
        rule_store: RuleStore | None = None,
    ) -> None:
        self.turn_gate = turn_gate
        self.agent_gate: ConfirmGate | None = None
        self.began_with_auto_consent = False
        if rule_store is None and parent is not None:
            self.rule_store, self._reads = parent.rule_store, parent._reads
        else:
            self.rule_store = rule_store
            self._reads = _SharedReads(_without_allow(home) if rule_store is None else rule_store.list)
        self._session = session
        self._parent = parent
        self._mode: PermissionMode | None = mode
        self._has_gate_of_caller = parent is not None and parent.has_own_gate and parent.gate is turn_gate

    @property
    def mode(self) -> PermissionMode:
        """The turn's own mode, else the session's, which may change while the turn runs.

        It permits no more than the parent's mode.
        """
        mode = self._mode or self._session.permission_mode
        return mode if self._parent is None else stricter_mode(mode, self._parent.mode)

    @property
    def has_auto_consent(self) -> bool:
        """True if a person has agreed to mode auto since the program was started, or before this turn began.

        A child turn has the consent of its ancestors. A turn that is resumed keeps that with which it began.
        """
        if self.began_with_auto_consent:
            return True
        return self._session.auto_consent.is_given if self._parent is None else self._parent.has_auto_consent

    @property
    def gate(self) -> ConfirmGate:
        """The gate that is asked before risky calls: that of the acting agent, else `turn_gate`."""
        return self.agent_gate or self.turn_gate

    @property
    def has_own_gate(self) -> bool:
        """True if the gate is that of an agent, which then decides instead of rules and modes that allow.

        It is the acting agent's own, or that of the agent which handed over to it or whose tool runs it.
        """
        return self.agent_gate is not None or self._has_gate_of_caller

    async def stored_rules(self) -> Sequence[Rule]:
        """Return the stored rules that hold now; raises `RulesUnusable`.

        Outside of a hub the application decides what runs without a question: rules that allow do not hold.
        """
        return await self._reads.read()

    def gate_for(self, request: UserRequest) -> ConfirmGate:
        """Return the gate for a request.

        A call that is asked about in every mode, such as a call that touches a protected path, is not for the agent's
        own gate: the outermost gate that was given for this turn or an ancestor is asked. A question of the agent is
        for the nearest gate that answers questions.
        """
        if isinstance(request, QuestionRequest):
            gates = [self.gate, *self._turn_gates()]
            return next((gate for gate in gates if gate.answers_questions), self.gate)
        if request.decided_by not in (*EVERY_MODE_RULES, "rule"):
            return self.gate
        given = [gate for gate in self._turn_gates() if gate.is_given]
        return given[-1] if given else self.gate

    def _turn_gates(self) -> Iterator[ConfirmGate]:
        """Yield the `turn_gate` of the turn and of its ancestors, the parent first."""
        permissions: TurnPermissions | None = self
        while permissions is not None:
            yield permissions.turn_gate
            permissions = permissions._parent


def _without_allow(home: Path) -> Callable[[], Sequence[Rule]]:
    """Return a function that reads the rules in AGX_HOME that ask or deny."""
    return lambda: [rule for rule in file_rules(home).list() if rule.decision != "allow"]


class _SharedReads:
    """Reads of the rules in threads: calls that need them at the same time share one read and go on in their order."""

    def __init__(self, read_rules: Callable[[], Sequence[Rule]]) -> None:
        self._read_rules = read_rules
        self._next: _Read | None = None  # that has not begun

    async def read(self) -> Sequence[Rule]:
        """Return the rules as a read returns them that begins after this call."""
        if self._next is None:
            self._next = _Read(asyncio.create_task(self._begin(), name="agx rules"))
            self._next.task.add_done_callback(retrieve_exception)
        read = self._next
        read.waiting += 1
        try:
            return await asyncio.shield(read.task)
        finally:
            read.waiting -= 1
            if not read.waiting and not read.task.done():  # all that waited are cancelled
                self._next = None if self._next is read else self._next
                read.task.cancel()
                await asyncio.wait({read.task})

    async def _begin(self) -> Sequence[Rule]:
        self._next = None
        return await run_in_thread(self._read_rules, name="agx rules")


@dataclass(slots=True)
class _Read:
    """A read of the rules, and how many calls wait for it."""

    task: asyncio.Task[Sequence[Rule]]
    waiting: int = 0

"""The public names of the turn engine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agenticx.lazy_names import lazy_names

if TYPE_CHECKING:
    from agenticx.runtime.agent_runtime import AgentRuntime
    from agenticx.runtime.budgets.budget import Budget, BudgetExceeded
    from agenticx.runtime.calls.asking import ask_person
    from agenticx.runtime.compactor import ContextCompactor
    from agenticx.runtime.events import (
        Event,
        EventType,
        RuntimeEvent,
        encode_envelope,
        envelope_adapter,
        envelope_schema,
    )
    from agenticx.runtime.gates.base import AutoApproveConfirmGate, ConfirmGate
    from agenticx.runtime.gates.pending import AsyncConfirmGate
    from agenticx.runtime.gates.terminal import SyncConfirmGate
    from agenticx.runtime.hooks import AgentHook, Block, HookContext, HookRegistry
    from agenticx.runtime.interrupts import StopSignal
    from agenticx.runtime.loop_detector import LoopDetector
    from agenticx.runtime.run_results import RunResult, TurnError
    from agenticx.runtime.sanitizing import sanitize
    from agenticx.runtime.session import Session
    from agenticx.runtime.steering import Steering
    from agenticx.runtime.turn import current_turn
    from agenticx.runtime.turn_context import TurnContext
    from agenticx.runtime.user_requests.requests import (
        ConfirmAnswer,
        ConfirmClosed,
        ConfirmRequest,
        DigestMismatch,
        QuestionAnswer,
        QuestionClosed,
        QuestionRequest,
        UnknownConfirm,
        UnknownQuestion,
        UserAnswer,
        UserRequest,
    )

__all__ = [
    "AgentHook",
    "AgentRuntime",
    "AsyncConfirmGate",
    "AutoApproveConfirmGate",
    "Block",
    "Budget",
    "BudgetExceeded",
    "ConfirmAnswer",
    "ConfirmClosed",
    "ConfirmGate",
    "ConfirmRequest",
    "ContextCompactor",
    "DigestMismatch",
    "Event",
    "EventType",
    "HookContext",
    "HookRegistry",
    "LoopDetector",
    "QuestionAnswer",
    "QuestionClosed",
    "QuestionRequest",
    "RunResult",
    "RuntimeEvent",
    "Session",
    "Steering",
    "StopSignal",
    "SyncConfirmGate",
    "TurnContext",
    "TurnError",
    "UnknownConfirm",
    "UnknownQuestion",
    "UserAnswer",
    "UserRequest",
    "ask_person",
    "current_turn",
    "encode_envelope",
    "envelope_adapter",
    "envelope_schema",
    "sanitize",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "agenticx.runtime.agent_runtime": ["AgentRuntime"],
        "agenticx.runtime.budgets.budget": ["Budget", "BudgetExceeded"],
        "agenticx.runtime.calls.asking": ["ask_person"],
        "agenticx.runtime.compactor": ["ContextCompactor"],
        "agenticx.runtime.events": [
            "Event",
            "EventType",
            "RuntimeEvent",
            "encode_envelope",
            "envelope_adapter",
            "envelope_schema",
        ],
        "agenticx.runtime.gates.base": ["AutoApproveConfirmGate", "ConfirmGate"],
        "agenticx.runtime.gates.pending": ["AsyncConfirmGate"],
        "agenticx.runtime.gates.terminal": ["SyncConfirmGate"],
        "agenticx.runtime.hooks": ["AgentHook", "Block", "HookContext", "HookRegistry"],
        "agenticx.runtime.interrupts": ["StopSignal"],
        "agenticx.runtime.loop_detector": ["LoopDetector"],
        "agenticx.runtime.run_results": ["RunResult", "TurnError"],
        "agenticx.runtime.sanitizing": ["sanitize"],
        "agenticx.runtime.session": ["Session"],
        "agenticx.runtime.steering": ["Steering"],
        "agenticx.runtime.turn": ["current_turn"],
        "agenticx.runtime.turn_context": ["TurnContext"],
        "agenticx.runtime.user_requests.requests": [
            "ConfirmAnswer",
            "ConfirmClosed",
            "ConfirmRequest",
            "DigestMismatch",
            "QuestionAnswer",
            "QuestionClosed",
            "QuestionRequest",
            "UnknownConfirm",
            "UnknownQuestion",
            "UserAnswer",
            "UserRequest",
        ],
    },
)

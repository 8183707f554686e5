"""The public names of the turn engine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agenticx.lazy_imports import lazy_imports

if TYPE_CHECKING:
    from agenticx.runtime.agent_runtime import AgentRuntime
    from agenticx.runtime.budgets.budget import Budget, BudgetExceeded
    from agenticx.runtime.calls.questions import ask_person
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
    from agenticx.runtime.interrupts import StopSignal, TurnInterrupted
    from agenticx.runtime.loop_detector import LoopDetector, LoopVerdict, RecordedCall
    from agenticx.runtime.run_results import RunResult, TurnError
    from agenticx.runtime.sanitizing import sanitize
    from agenticx.runtime.session import Option, Session
    from agenticx.runtime.steering import Steering
    from agenticx.runtime.summaries import is_summary
    from agenticx.runtime.turn import Turn, current_turn
    from agenticx.runtime.turn_context import TurnContext, TurnWork, WorkResult
    from agenticx.runtime.user_requests.requests import (
        AnsweredBy,
        ConfirmAnswer,
        ConfirmClosed,
        ConfirmRequest,
        DigestMismatch,
        QuestionAnswer,
        QuestionClosed,
        QuestionRequest,
        Remember,
        UnknownConfirm,
        UnknownQuestion,
        UserAnswer,
        UserRequest,
    )

__all__ = [
    "AgentHook",
    "AgentRuntime",
    "AnsweredBy",
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
    "LoopVerdict",
    "Option",
    "QuestionAnswer",
    "QuestionClosed",
    "QuestionRequest",
    "RecordedCall",
    "Remember",
    "RunResult",
    "RuntimeEvent",
    "Session",
    "Steering",
    "StopSignal",
    "SyncConfirmGate",
    "Turn",
    "TurnContext",
    "TurnError",
    "TurnInterrupted",
    "TurnWork",
    "UnknownConfirm",
    "UnknownQuestion",
    "UserAnswer",
    "UserRequest",
    "WorkResult",
    "ask_person",
    "current_turn",
    "encode_envelope",
    "envelope_adapter",
    "envelope_schema",
    "is_summary",
    "sanitize",
]

__getattr__, __dir__ = lazy_imports(
    __name__,
    {
        "agenticx.runtime.agent_runtime": ["AgentRuntime"],
        "agenticx.runtime.budgets.budget": ["Budget", "BudgetExceeded"],
        "agenticx.runtime.calls.questions": ["ask_person"],
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
        "agenticx.runtime.interrupts": ["StopSignal", "TurnInterrupted"],
        "agenticx.runtime.loop_detector": ["LoopDetector", "LoopVerdict", "RecordedCall"],
        "agenticx.runtime.run_results": ["RunResult", "TurnError"],
        "agenticx.runtime.sanitizing": ["sanitize"],
        "agenticx.runtime.session": ["Option", "Session"],
        "agenticx.runtime.steering": ["Steering"],
        "agenticx.runtime.summaries": ["is_summary"],
        "agenticx.runtime.turn": ["Turn", "current_turn"],
        "agenticx.runtime.turn_context": ["TurnContext", "TurnWork", "WorkResult"],
        "agenticx.runtime.user_requests.requests": [
            "AnsweredBy",
            "ConfirmAnswer",
            "ConfirmClosed",
            "ConfirmRequest",
            "DigestMismatch",
            "QuestionAnswer",
            "QuestionClosed",
            "QuestionRequest",
            "Remember",
            "UnknownConfirm",
            "UnknownQuestion",
            "UserAnswer",
            "UserRequest",
        ],
    },
)

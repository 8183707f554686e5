"""The check of a finished round of calls for loops."""

from __future__ import annotations

from collections.abc import Sequence

from agenticx.errors import AgenticXError
from agenticx.messages import ToolCall
from agenticx.runtime.calls.validation import CallOutcome
from agenticx.runtime.events import EventType
from agenticx.runtime.repetition.loop_detector import RecordedCall
from agenticx.runtime.turn import Turn
from agenticx.threads import run_sized

__all__ = ["LoopStopped", "check_for_loop"]


class LoopStopped(AgenticXError):
    """Raised when the loop detector's verdict is critical, to end the turn."""

    def __init__(self, message: str, detector: str) -> None:
        super().__init__(message)
        self.detector = detector


async def check_for_loop(turn: Turn, calls: Sequence[ToolCall], outcomes: Sequence[CallOutcome]) -> None:
    """Check the finished round for loops: a warning appends a reminder after the results, a loop ends the turn."""
    turn.loops.record_state(*turn.session.state.plan)
    recorded = [_recorded_call(turn, call, outcome) for call, outcome in zip(calls, outcomes, strict=True)]
    turn.read_only_calls.clear()
    size = sum(len(call.arguments) + len(call.result) for call in recorded)
    await run_sized(turn.loops.record_round, recorded, size=size, name="agx loop detector")
    verdict = turn.loops.check()
    if verdict is None:
        return
    if verdict.level == "critical":
        raise LoopStopped(f"The turn was ended because {verdict.text}.", verdict.detector)
    data = {"text": f"Loop warning: {verdict.text}.", "code": "loop_warning", "fatal": False}
    turn.emit(EventType.ERROR, data | {"detector": verdict.detector})
    turn.append_reminder(f"{verdict.text}. Try something else, or answer with what you have and say what is missing.")


def _recorded_call(turn: Turn, call: ToolCall, outcome: CallOutcome) -> RecordedCall:
    """Return the call as it is compared: a handoff by its two agents and its result, as its reason is no work."""
    if outcome.effect is not None and (next_agent := outcome.effect.handover) is not None:
        return RecordedCall(tool="handoff", arguments=f"{turn.agent.name} → {next_agent.name}", result=outcome.text)
    return RecordedCall(
        tool=call.name,
        arguments=call.arguments,
        result=outcome.text,
        outcome=outcome.outcome,
        read_only=turn.is_read_only(call),
    )

"""The check of a finished round of calls for loops."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress

from agenticx.errors import AgenticXError
from agenticx.llms.arguments import parse_arguments
from agenticx.messages import AssistantMessage, ToolCall
from agenticx.runtime.calls.validation import CallOutcome
from agenticx.runtime.events import EventType
from agenticx.runtime.loop_detector import LoopDetector, RecordedCall
from agenticx.runtime.turn import Turn
from agenticx.runtime.turn_agent import TurnAgent
from agenticx.threads import run_sized

__all__ = ["LoopStopped", "check_for_loop"]


class LoopStopped(AgenticXError):
    """Raised when the loop detector's verdict is critical, to end the turn."""

    def __init__(self, message: str, detector: str) -> None:
        super().__init__(message)
        self.detector = detector


async def check_for_loop(turn: Turn, calls: Sequence[ToolCall], outcomes: Sequence[CallOutcome]) -> None:
    """Check the finished round for loops: a warning appends a reminder after the results, a loop ends the turn."""
    state = turn.session.state
    turn.loop_detector.record_state(*state.plan)
    turn.loop_detector.record_variables(state.context_variables)
    handoffs = [call for call, outcome in zip(calls, outcomes, strict=True) if _next_agent(outcome) is not None]
    text = _text_before_handoff(turn, handoffs[0]) if handoffs else ""
    recorded = [_recorded_call(turn, call, outcome) for call, outcome in zip(calls, outcomes, strict=True)]
    turn.read_only_calls.clear()
    size = sum(len(call.arguments) + len(call.result) for call in recorded) + len(text)
    size += sum(len(call.arguments) for call in handoffs)
    await run_sized(_record, turn.loop_detector, recorded, handoffs, text, size=size, name="agx loop detector")
    verdict = turn.loop_detector.check()
    if verdict is None:
        return
    if verdict.level == "critical":
        raise LoopStopped(f"The turn was ended because {verdict.text}.", verdict.detector)
    data = {"text": f"Loop warning: {verdict.text}.", "code": "loop_warning", "fatal": False}
    turn.emit(EventType.ERROR, data | {"detector": verdict.detector})
    advice = "Try something else, or answer with what you have and say what is missing."
    turn.history.append_reminder(f"{verdict.text}. {advice}")


def _record(loops: LoopDetector, calls: Sequence[RecordedCall], handoffs: Sequence[ToolCall], text: str) -> None:
    for handoff in handoffs:
        loops.record_text(text)
        loops.record_text(_handoff_arguments(handoff))
    loops.record_round(calls)


def _next_agent(outcome: CallOutcome) -> TurnAgent | None:
    return None if outcome.effect is None else outcome.effect.next_agent


def _text_before_handoff(turn: Turn, call: ToolCall) -> str:
    """Return the text of the acting agent's replies with calls, up to the reply with the handoff."""
    replies = [message for message in turn.session.messages if isinstance(message, AssistantMessage)]
    own = [reply for reply in replies if reply.message_id in turn.calling_replies or call in reply.tool_calls]
    return "\n".join(reply.content for reply in own)


def _handoff_arguments(call: ToolCall) -> str:
    """Return the arguments of a handoff without its reason, because models word that differently each time."""
    with suppress(AgenticXError):
        arguments = parse_arguments(call.arguments)
        return json.dumps({name: value for name, value in arguments.items() if name != "reason"} or "")
    return ""


def _recorded_call(turn: Turn, call: ToolCall, outcome: CallOutcome) -> RecordedCall:
    """Return the call as the detector compares it: a handoff only by its two agents and its result."""
    if (next_agent := _next_agent(outcome)) is not None:
        return RecordedCall(tool="handoff", arguments=f"{turn.agent.name} → {next_agent.name}", result=outcome.text)
    return RecordedCall(
        tool=call.name,
        arguments=call.arguments,
        result=outcome.text,
        outcome=outcome.outcome,
        read_only=turn.is_read_only(call),
    )

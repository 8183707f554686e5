"""Questions to the user: of a tool such as `ask_user`, whose call the answer is the result of, and of a turn's work."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from agenticx.argument_types import check_sequence
from agenticx.errors import AgenticXError
from agenticx.messages import clean_text, new_id
from agenticx.runtime.calls.asking import Asker
from agenticx.runtime.calls.concurrency import slots
from agenticx.runtime.calls.result_rendering import truncate
from agenticx.runtime.calls.validation import CallOutcome, PendingCall
from agenticx.runtime.resume import ResumedRequest
from agenticx.runtime.turn import Turn, current_turn
from agenticx.runtime.user_requests.kinds import QUESTION
from agenticx.runtime.user_requests.requests import AnsweredBy, QuestionAnswer, QuestionRequest
from agenticx.tools.base import UserQuestion

__all__ = ["ask_for_call", "ask_person"]


async def ask_for_call(turn: Turn, pending: PendingCall, question: UserQuestion, asker: Asker) -> CallOutcome:
    """Ask the question of a call and return the answer, once it is stored, as the call's outcome.

    A turn that is stopped meanwhile finds in `pending` what the call is answered with.
    """
    pending.outcome = CallOutcome(_result(QUESTION.no_answer("stop")), "cancelled")
    await asker.slot.release_to_ask()
    request = await asker.open(QUESTION, _request(turn, pending.call.id, question))
    try:
        answer = await request.answer()
    finally:
        if request.final_answer.by != "stop":
            pending.outcome = None
            if request.final_answer.answer:
                pending.value = request.final_answer.answer
    await asker.slot.acquire()
    await turn.channel.wait_until_written()
    text, truncated = truncate(clean_text(_result(answer)), turn.settings.tool_result_chars)
    return CallOutcome(text, truncated=truncated)


async def ask_person(text: str, options: Sequence[str] = ()) -> QuestionAnswer:
    """Put a question to the user, who may choose one of `options` or answer in other words, and return the answer.

    Only the `work` of a turn (`TurnContext`) may call it. The turn's gate is asked, and the question is the event
    `question_asked` of the turn. If the answer has no text, its `by` says why: `timeout` after
    `question_timeout_seconds`, `policy` if nobody can be asked. In a session of a hub the question is stored, and
    answered once: work that runs again after a restart and asks the same gets that answer. A stop of the turn cancels
    the caller.

    Raises `AgenticXError` outside of such work, and `TypeError` for one text as `options`.
    """
    check_sequence("options", options, "texts")
    turn = current_turn()
    if turn is None or turn.context.work is None or not turn.children.is_open:
        raise AgenticXError("ask_person must be called by the work of a turn that runs; a tool asks by its assessment")
    question = UserQuestion(clean_text(text), tuple(map(clean_text, options)))
    async with Asker(turn, slots(1)[0], _take_asked_earlier(turn, question)) as asker:
        request = await asker.open(QUESTION, _request(turn, "", question))
        answer = await request.answer()
    await turn.channel.wait_until_written()
    return answer


def _take_asked_earlier(turn: Turn, question: UserQuestion) -> ResumedRequest | None:
    """Remove and return the first such question that an earlier process asked, None if there is none."""
    for id_, resumed in turn.resumed_requests.items():
        asked = resumed.request
        if isinstance(asked, QuestionRequest) and UserQuestion(asked.text, asked.options) == question:
            return turn.resumed_requests.pop(id_)
    return None


def _request(turn: Turn, call_id: str, question: UserQuestion) -> QuestionRequest:
    """Return the request for a question that a call asks, or with the id "" the work of the turn."""
    return QuestionRequest(
        id=new_id("qst"),
        text=turn.lineage.with_title(clean_text(question.text)),
        options=tuple(map(clean_text, question.options)),
        expires_at=turn.clock.now() + timedelta(seconds=QUESTION.timeout_seconds(turn.settings)),
        session_id=turn.session_id,
        agent_id=turn.agent_id,
        tool_call_id=call_id,
        agent_path=turn.lineage.asking_path,
    )


def _result(answer: QuestionAnswer) -> str:
    """Return the result of the call that asked a question."""
    return answer.answer or _NO_ANSWER[answer.by]


_NO_ANSWER: dict[AnsweredBy, str] = {
    "user": "No answer: the user did not want to give one.",
    "policy": "No answer: nobody can be asked now. Go on without it, or say in your reply what you need to know.",
    "timeout": "No answer: none was given in time. Go on without it, or say in your reply what you need to know.",
    "stop": "No answer: the turn was stopped.",
    "restart": "No answer: the program was restarted before one was given.",
}

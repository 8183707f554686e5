"""Questions to the user that the `work` of a turn asks, without a call of a model."""

from __future__ import annotations

from collections.abc import Sequence

from agenticx.argument_types import check_sequence
from agenticx.errors import AgenticXError
from agenticx.messages import clean_text
from agenticx.runtime.calls.asking import Asker, ClosingAnswer, question_request
from agenticx.runtime.calls.concurrency import slots
from agenticx.runtime.interrupts import cancel_and_wait
from agenticx.runtime.resume import ResumedRequest
from agenticx.runtime.turn import Turn, current_turn
from agenticx.runtime.user_requests.kinds import QUESTION
from agenticx.runtime.user_requests.requests import QuestionAnswer, QuestionRequest
from agenticx.tools.base import UserQuestion

__all__ = ["ask_person"]


async def ask_person(text: str, options: Sequence[str] = ()) -> QuestionAnswer:
    """Put a question to the user, who may choose one of `options` or answer in other words, and return the answer.

    It is called by the `work` of a turn (see `TurnContext`), and is an event of that turn (`question_asked`), which
    asks the turn's gate. An answer without text says by whom there is none: `timeout` after
    `question_timeout_seconds`, `policy` if nobody can be asked. In a session of a hub the question is stored, and
    answered once: work that runs again after a restart and asks the same gets that answer. A stop of the turn cancels
    the caller.

    Raises `AgenticXError` outside of such work, and `TypeError` for one text as `options`.
    """
    check_sequence("options", options, "texts")
    turn = current_turn()
    if turn is None or turn.context.work is None or not turn.accepts_children:
        raise AgenticXError("ask_person must be called by the work of a turn that runs; a tool asks by its assessment")
    asker = Asker(QUESTION, turn.gate, turn.settings, turn.clock)
    question = UserQuestion(clean_text(text), tuple(map(clean_text, options)))
    if (resumed := _resumed_question(turn, question)) is not None:
        answer = await _answer_resumed(turn, asker, resumed)
    else:
        closing = ClosingAnswer(QUESTION.no_answer("stop"))
        answer = await asker.ask(turn, question_request(turn, "", question), slots(1)[0], closing)
    await turn.channel.wait_until_written()
    return answer


def _resumed_question(turn: Turn, question: UserQuestion) -> ResumedRequest | None:
    """Remove and return the first such question that an earlier process asked, None if there is none."""
    for id_, resumed in turn.resumed_requests.items():
        asked = resumed.request
        if isinstance(asked, QuestionRequest) and UserQuestion(asked.text, asked.options) == question:
            return turn.resumed_requests.pop(id_)
    return None


async def _answer_resumed(
    turn: Turn, asker: Asker[QuestionRequest, QuestionAnswer], resumed: ResumedRequest
) -> QuestionAnswer:
    assert isinstance(resumed.request, QuestionRequest)
    if isinstance(resumed.answer, QuestionAnswer):
        return await asker.answer_again(turn, resumed, None, resumed.answer)
    open_request = asker.ask_again(turn, resumed, resumed.request, slots(1)[0])
    try:
        return await open_request.task
    finally:
        await cancel_and_wait(open_request.task)
        resumed.asked.set()

"""Answers that the user gave before the program was restarted, if the call would no longer be asked about."""

from __future__ import annotations

from datetime import timedelta

import pytest

from agenticx import UserMessage
from agenticx.messages import AssistantMessage, ToolCall
from agenticx.runtime import ConfirmAnswer, ConfirmRequest
from agenticx.runtime.resume import ResumedRequest, ResumePoint
from agenticx.runtime.user_requests.confirm_digest import confirm_digest
from agenticx.testing import ScriptedModel
from agenticx.tools import tool
from tests.support.jumping_clock import LoopClock
from tests.support.turn_player import collector

pytestmark = [pytest.mark.anyio, pytest.mark.promise("E3")]

YES, NO = ConfirmAnswer(approved=True), ConfirmAnswer(approved=False)
EDITED = ConfirmAnswer(approved=True, arguments={"text": "bye"})


@pytest.mark.parametrize("is_logged", [True, False])
@pytest.mark.parametrize(
    ("mode", "answer", "kept", "outcome", "logged"),
    [
        ("auto", NO, [], "denied", (False, "user")),
        ("auto", YES, ["hi"], "ok", (True, "user")),
        ("auto", EDITED, ["bye"], "ok", (True, "user")),
        ("plan", YES, [], "denied", (False, "policy")),
    ],
)
async def test_an_answer_from_before_a_restart_counts_if_the_mode_now_allows_the_call(
    play, mode, answer, kept, outcome, logged, is_logged
):
    notes: list[str] = []

    @tool(risk="write")
    async def note(text: str) -> str:
        """Keep a note."""
        notes.append(text)
        return "kept"

    request = ConfirmRequest(
        id="cnf_1",
        question="Allow note?",
        context={"tool": "note", "tool_call_id": "call_1"},
        digest=confirm_digest("note", {"text": "hi"}, {"schema": note.schema_digest}),
        expires_at=LoopClock().now() + timedelta(hours=1),
    )
    made = ToolCall(id="call_1", name="note", arguments='{"text": "hi"}')
    resumed = ResumedRequest(request=request, answer=answer, is_response_logged=is_logged)
    point = ResumePoint(round=1, calls=(made,), requests={"call_1": resumed})
    session = play.session(messages=[UserMessage(content="go"), AssistantMessage(tool_calls=(made,))])
    session.permission_mode = mode
    events = []
    await play.runtime(ScriptedModel(["ok"])).write_turn(point, session, collector(events), tools=[note])

    assert [event.data["outcome"] for event in events if event.type == "tool_result"] == [outcome]
    responses = [(event.data["approved"], event.data["by"]) for event in events if event.type == "confirm_response"]
    assert (notes, responses) == (kept, [] if is_logged else [logged])

"""Attachments in a turn: checked before it, named in its first event, kept in history and compaction."""

from __future__ import annotations

import pytest

from agenticx import UserMessage
from agenticx.errors import AttachmentRefused
from agenticx.llms import OpenAIChatModel
from agenticx.messages import Message
from agenticx.runtime import ContextCompactor
from agenticx.runtime.history_sizes import estimate_tokens
from agenticx.testing import FakeOpenAIServer, ScriptedModel, call, collect, say
from agenticx.tools import tool
from tests.support.histories import assistant, result, system, user
from tests.support.wires.files import PDF, PNG, TEXT

pytestmark = [pytest.mark.anyio, pytest.mark.promise("B7")]


@tool(risk="read")
def look() -> str:
    """Look."""
    return "seen"


async def test_files_are_named_in_the_log_and_sent_in_every_round(play):
    message = UserMessage(content="What is it?", attachments=(PNG, TEXT))
    async with FakeOpenAIServer([call("look"), say("A dot.")]) as server:
        model = OpenAIChatModel("m", base_url=server.base_url)
        run = await play(model, user=message, tools=[look])
        await model.aclose()

    assert run.outline == [
        *["turn_started", "round_start", "tool_call_delta", "tool_call:look", "tool_result:ok"],
        *["round_start", "token", "final:answer"],
    ]
    assert run.events[0].data == {
        "input": "What is it?",
        "model": "openai-chat:m",
        "message_id": message.message_id,
        "attachments": [
            {"name": "a.png", "media_type": "image/png", "size": 67, "sha256": PNG.digest},
            {"name": "f.txt", "media_type": "text/plain", "size": 8, "sha256": TEXT.digest},
        ],
    }
    assert run.session.messages[0] == message
    for request in server.requests:
        kinds = [part["type"] for part in request.json["messages"][0]["content"]]
        assert kinds == ["image_url", "text", "text"]


async def test_invalid_attachments_are_refused_before_the_turn_begins(play):
    session = play.session()
    lie = PNG.model_copy(update={"media_type": "image/jpeg"})
    with pytest.raises(AttachmentRefused, match=r"'a\.png' is image/png, not image/jpeg"):
        await collect(play.runtime(ScriptedModel()).run_turn(UserMessage(content="go", attachments=(lie,)), session))
    assert session.messages == []


# --- compaction -------------------------------------------------------------------------------------------------------


def rounds(count: int) -> list[Message]:
    return [row for number in range(count) for row in (assistant("", f"c{number}"), result(f"c{number}", "seen " * 99))]


def test_attachments_count_towards_the_size_of_a_history():
    assert estimate_tokens([user("go", attachments=(PNG,))]) == 1500
    assert estimate_tokens([user("go", attachments=(TEXT, TEXT))]) == (2 + 16) // 4
    assert ContextCompactor(threshold_chars=10_000).is_due([user("go", attachments=(PNG, PDF))], ScriptedModel())


async def test_the_current_request_keeps_its_attachments():
    request = user("go", attachments=(PNG,))
    history = [user("before"), assistant("yes"), request, *rounds(12)]
    compacted = await ContextCompactor().maybe_compact(history, ScriptedModel(["what was done"]))
    assert compacted is not None
    assert compacted.messages[1:] == [request, *history[-8:]]
    assert compacted.messages[0].content == "[compacted] Summary of 18 earlier messages:\nwhat was done"
    assert compacted.compacted_count == 18

    later = [*compacted.messages, *rounds(12)]
    again = await ContextCompactor().maybe_compact(later, ScriptedModel(["and more"]))
    assert again is not None
    assert again.messages[:3] == [compacted.messages[0], again.messages[1], request]


async def test_files_of_earlier_requests_are_named_in_what_is_summarised():
    model = ScriptedModel(["summary"])
    history = [user("see", attachments=(PNG, TEXT)), assistant("yes"), *rounds(10), user("next"), system("x")]
    assert await ContextCompactor().maybe_compact(history, model) is not None
    content = model.requests[0].messages[1].content
    first = f"user: see\n[attached {PNG.description}]\n{TEXT.framed_text}\n"
    assert content.startswith(first)
    assert "\ngrüße\n" in first

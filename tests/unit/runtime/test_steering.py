"""Messages for a running turn: received between rounds, before its answer ends it, or not at all."""

from __future__ import annotations

import pytest

from agenticx import UserMessage
from agenticx.errors import AttachmentRefused
from agenticx.messages import Attachment
from agenticx.runtime import RuntimeEvent, Steering, StopSignal
from agenticx.testing import ScriptedModel, call, hang, pause, say
from agenticx.tools import tool
from tests.support.wires.files import PNG

pytestmark = pytest.mark.anyio


@tool(risk="read")
def look() -> str:
    """Look around."""
    return "a door"


async def test_a_message_is_received_after_the_results_of_the_running_round(play):
    steering = Steering()

    def speak(event: RuntimeEvent) -> None:
        if event.type == "tool_call":
            assert steering.put("use the window")

    run = await play([call("look", {}), "Out."], tools=[look], on=speak, steering=steering)

    assert run.outline == [
        "turn_started",
        "round_start",
        "tool_call_delta",
        "tool_call:look",
        "tool_result:ok",
        "steered",
        "round_start",
        "token",
        "final:answer",
    ]
    assert run.rows == [
        ("user", "go"),
        ("assistant", "", ["look"]),
        ("tool", run.results[0][0], "ok", "a door"),
        ("user", "use the window"),
        ("assistant", "Out."),
    ]
    assert run.events_of("steered")[0].data == {
        "message_id": run.session.messages[3].message_id,
        "text": "use the window",
    }
    assert [message.content for message in run.model.requests[1].messages[-1:]] == ["use the window"]
    assert steering.left == ()


async def test_messages_are_received_together_in_order(play):
    steering = Steering()
    for text in ("one", "two"):
        steering.put(text)

    run = await play(["Yes."], steering=steering)

    assert run.outline == ["turn_started", "steered", "steered", "round_start", "token", "final:answer"]
    assert run.rows == [("user", "go"), ("user", "one"), ("user", "two"), ("assistant", "Yes.")]


async def test_an_answer_does_not_end_the_turn_while_a_message_is_pending(play):
    steering = Steering()

    def speak(event: RuntimeEvent) -> None:
        if event.type == "token" and event.data["text"] == "Here.":
            steering.put("and there?")

    run = await play([[say("Here."), pause(0.05)], "There."], on=speak, steering=steering)

    assert run.outline == [
        "turn_started",
        "round_start",
        "token",
        "steered",
        "round_start",
        "token",
        "final:answer",
    ]
    assert run.rows == [("user", "go"), ("assistant", "Here."), ("user", "and there?"), ("assistant", "There.")]
    assert run.terminal["text"] == "There."


async def test_a_message_may_have_attachments_and_invalid_ones_are_refused(play):
    steering = Steering()
    steering.put(UserMessage(content="see", attachments=(PNG,)))
    with pytest.raises(AttachmentRefused):
        steering.put(UserMessage(content="see", attachments=(Attachment(name="x", media_type="image/png", data="?"),)))

    run = await play(["Seen."], steering=steering)

    assert run.events_of("steered")[0].data["attachments"] == [PNG.summary]
    assert run.session.messages[1].attachments == (PNG,)


async def test_a_turn_without_a_round_left_ends_with_its_answer_and_leaves_the_message(play):
    steering = Steering()

    def speak(event: RuntimeEvent) -> None:
        if event.type == "token":
            steering.put("more")

    run = await play([[say("Enough."), pause(0.05)]], on=speak, steering=steering, max_tool_rounds=1)

    assert run.outline == ["turn_started", "round_start", "token", "final:answer"]
    assert [message.content for message in steering.left] == ["more"]


@pytest.mark.parametrize("ending", ["answer", "stop"])
async def test_a_finished_turn_refuses_messages(play, ending: str):
    steering, stop = Steering(), StopSignal()
    model = ScriptedModel(["Done."] if ending == "answer" else [[say("So"), hang()]])

    def speak(event: RuntimeEvent) -> None:
        if event.type == "token" and ending == "stop":
            steering.put("wait")
            stop.set()
        if event.terminal:
            assert not steering.put("too late")

    run = await play(model, on=speak, steering=steering, stop=stop)

    assert run.outline[-1] == {"answer": "final:answer", "stop": "error:stopped"}[ending]
    assert [message.content for message in steering.left] == {"answer": [], "stop": ["wait"]}[ending]

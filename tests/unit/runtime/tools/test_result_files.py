"""Tests of images and files that tools return: sent to the model, stored, resumed and shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from agenticx import UserMessage, load_attachment, open_hub
from agenticx.attachments import Attachment, make_attachment
from agenticx.llms.file_limits import FileLimits
from agenticx.llms.wrappers.file_limits import FileLimitModel
from agenticx.messages import ToolMessage
from agenticx.runtime import ConfirmAnswer, ConfirmRequest
from agenticx.sessions import export_markdown
from agenticx.testing import ScriptedModel, call
from agenticx.tools import tool
from tests.support.wires.files import GIF, SMALLEST_PNG, TEXT, contents

pytestmark = pytest.mark.anyio

LARGE = make_attachment("large.png", contents["image/png"] + bytes(40_000))  # stored by its digest


@tool(risk="read")
def draw(name: str) -> list[str | Attachment]:
    """Draw."""
    return ["Here it is.", {"large": LARGE, "gif": GIF}[name]]


@tool(risk="write")
def publish() -> str:
    """Publish."""
    return "published"


def files_by_call(messages) -> dict[str, tuple[Attachment, ...]]:
    return {message.tool_call_id: message.attachments for message in messages if isinstance(message, ToolMessage)}


async def test_a_file_that_a_tool_loads_and_bytes_of_an_image_are_files_of_its_result(play, tmp_path):
    (tmp_path / "f.txt").write_bytes(TEXT.content())

    @tool(risk="read")
    def load() -> tuple[Attachment, bytes]:
        """Load."""
        return load_attachment(tmp_path / "f.txt"), SMALLEST_PNG

    model = ScriptedModel([call("load"), "Seen."])
    run = await play(model, tools=[load])

    image = make_attachment("result-2.png", SMALLEST_PNG)
    assert files_by_call(model.requests[1].messages) == {"call_1": (TEXT, image)}
    [result] = run.events_of("tool_result")
    assert result.data["attachments"] == [TEXT.summary, image.summary]
    assert result.data["result"] == "f.txt (text/plain, 8 bytes)\nresult-2.png (image/png, 67 bytes)"


async def test_files_of_results_are_stored_listed_and_sent_again_after_a_restart(tmp_path: Path) -> None:
    calls = [call("draw", {"name": "large"}), call("draw", {"name": "gif"})]
    model = ScriptedModel([calls, "Nice.", "As before."])
    url = f"sqlite:///{tmp_path / 'chat.db'}"
    async with open_hub(url, model=model, tools=[draw], workspace=tmp_path) as hub:
        session = (await hub.create()).id
        _ = [event async for event in hub.run_turn(session, "Draw.")]
    async with open_hub(url, model=model, tools=[draw], workspace=tmp_path) as hub:
        _ = [event async for event in hub.run_turn(session, "Again?")]
        shown = [message.get("attachments") for message in await hub.messages(session) if message["role"] == "tool"]
        exported = await export_markdown(hub.store.log, await hub.store.catalog.get(session))
    for request in model.requests[1:]:
        assert files_by_call(request.messages) == {"call_1": (LARGE,), "call_2": (GIF,)}
    assert shown == [[LARGE.summary], [GIF.summary]]
    assert "*Attached: large.png*" in exported


async def test_files_of_a_result_survive_a_restart_while_another_call_waits_for_the_user(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'chat.db'}"
    first = ScriptedModel([[call("draw", {"name": "large"}), call("publish")]])
    second = ScriptedModel(["Published."])
    async with open_hub(url, model=first, tools=[draw, publish], workspace=tmp_path) as hub:
        session = (await hub.create()).id
        turn = hub.run_turn(session, "Draw and publish.")
        async for event in turn:
            if event.type == "confirm_required":
                break
        await turn.aclose()
    async with open_hub(url, model=second, tools=[draw, publish], workspace=tmp_path) as hub:
        await hub.recover()
        [pending] = await hub.open_requests(session)
        assert isinstance(pending, ConfirmRequest)
        await hub.answer(pending.id, ConfirmAnswer(approved=True), digest=pending.digest)
        async for event in hub.follow(session):
            if event.event.type == "final":
                break
    assert files_by_call(second.requests[0].messages) == {"call_1": (LARGE,), "call_2": ()}


async def test_an_image_of_a_result_that_the_provider_does_not_take_is_replaced_by_a_note(play):
    inner = ScriptedModel([call("draw", {"name": "gif"}), "Nice."])
    limits = FileLimits(image_types=("image/png",))
    run = await play(FileLimitModel(inner, limits), tools=[draw])
    assert run.terminal["text"] == "Nice."
    sent = inner.requests[1].messages[-1]
    assert isinstance(sent, ToolMessage)
    assert (sent.attachments, sent.content.partition(": its content")[0]) == (
        (),
        "[attached file 'c.gif' (image/gif, 14 bytes)",
    )


async def test_a_hook_that_changes_a_result_removes_its_files_and_files_that_cannot_be_sent_are_an_error(play):
    @tool(risk="read")
    def broken() -> Attachment:
        """Return a file that is none."""
        return Attachment(name="x.png", media_type="image/png", data="*")

    model = ScriptedModel([call("broken"), "Seen."])
    run = await play(model, user=UserMessage(content="go"), tools=[broken])
    [(_, outcome, text)] = run.results
    assert (outcome, text.partition(":")[0]) == ("error", "Error")
    assert "the data of 'x.png' is not base64" in text
    assert files_by_call(model.requests[1].messages) == {"call_1": ()}

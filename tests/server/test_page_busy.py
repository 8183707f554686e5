"""The page while a turn runs: messages are shown as queued, steer, interrupt, or are handed back."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from agenticx.llms import ScriptedModel
from agenticx.messages import UserMessage
from agenticx.testing import call, hang, say
from tests.support.server.chromium import CHROMIUM, Tab, browser_tab
from tests.support.server.page import SHOWN, add_files, enter, file_parts, send_message
from tests.support.server.running_studio import StudioMaker
from tests.support.wires.files import PNG

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed"),
]

QUEUED = "document.getElementById('queued').innerText"
INPUT = "document.getElementById('input').value"


@pytest.fixture
async def tab() -> AsyncIterator[Tab]:
    async with browser_tab() as tab:
        yield tab


async def press_enter(tab: Tab, text: str, *keys: str) -> None:
    """Write `text` and press Enter with `ctrlKey`, `shiftKey` held down."""
    held = "".join(f", {key}: true" for key in keys)
    await tab.evaluate(f"{INPUT} = {text!r}")
    event = f"new KeyboardEvent('keydown', {{key: 'Enter', bubbles: true, cancelable: true{held}}})"
    await tab.evaluate(f"document.getElementById('input').dispatchEvent({event})")


@pytest.mark.ci_lane
async def test_a_message_sent_during_a_turn_is_shown_as_queued_and_runs_later(
    make_studio: StudioMaker, tab: Tab
) -> None:
    model = ScriptedModel([call("note", {"text": "x"}), "first done", "second done"])
    async with make_studio(model) as studio:
        await enter(tab, studio)
        await send_message(tab, "one")
        await tab.wait_for("document.querySelector('.allow')")
        assert await tab.evaluate("document.getElementById('send').textContent") == "Queue"
        await add_files(tab, "picked", (PNG.name, file_parts(PNG.data)))
        await tab.wait_for("document.querySelectorAll('#attached li').length === 1")
        await press_enter(tab, "two")
        await tab.wait_for(f"{QUEUED}.includes('two')")
        await press_enter(tab, "mind <b>the step</b>", "ctrlKey")
        shown = await tab.wait_for(f"{QUEUED}.includes('step') && {QUEUED}")
        assert shown.splitlines() == [
            f"after this turn two · {PNG.name} ({PNG.size} bytes)",
            "into this turn mind <b>the step</b>",
        ]
        await tab.evaluate("document.querySelector('.allow').click()")
        log = await tab.wait_for(f"document.getElementById('stop').hidden && {SHOWN}.includes('second') && {SHOWN}")
        expected = ["one", "mind <b>the step</b>", "first done", "two", "second done"]
        assert [line for line in log.splitlines() if line in expected] == expected
        assert await tab.evaluate("document.getElementById('queued').hidden")
        assert await tab.evaluate("document.getElementById('send').textContent") == "Send"
        before = await tab.evaluate(SHOWN)
        await tab.reload()
        await tab.wait_for(f"{SHOWN} === {before!r}")
        assert await tab.evaluate("document.getElementById('queued').hidden")
        assert tab.errors == []
    last = [message for message in model.requests[-1].messages if isinstance(message, UserMessage)][-1]
    assert (last.content, [file.data for file in last.attachments]) == ("two", [PNG.data])


@pytest.mark.ci_lane
async def test_ctrl_shift_enter_interrupts(make_studio: StudioMaker, tab: Tab) -> None:
    async with make_studio(ScriptedModel([[say("so"), hang()], "instead"])) as studio:
        await enter(tab, studio)
        await send_message(tab, "one")
        await tab.wait_for(f"{SHOWN}.includes('so')")
        await press_enter(tab, "two", "ctrlKey", "shiftKey")
        log = await tab.wait_for(f"{SHOWN}.includes('instead') && {SHOWN}")
        assert [line for line in log.splitlines() if line] == ["one", "so", "Stopped.", "two", "instead"]


@pytest.mark.ci_lane
async def test_a_stop_returns_queued_messages_and_files_to_the_input_box(make_studio: StudioMaker, tab: Tab) -> None:
    async with make_studio(ScriptedModel([[say("so"), hang()]])) as studio:
        await enter(tab, studio)
        await send_message(tab, "one")
        await tab.wait_for(f"{SHOWN}.includes('so')")
        await add_files(tab, "picked", (PNG.name, file_parts(PNG.data)))
        await tab.wait_for("document.querySelectorAll('#attached li').length === 1")
        await press_enter(tab, "two")
        await tab.wait_for(f"{QUEUED}.includes('two')")
        await tab.evaluate(
            "(() => { const mode = document.getElementById('when-busy'); mode.value = 'steer';"
            "mode.dispatchEvent(new Event('change')); })()"
        )
        await press_enter(tab, "three")
        await tab.wait_for(f"{QUEUED}.includes('three')")
        await tab.evaluate(f"{INPUT} = 'half a sent'")
        await tab.evaluate("document.getElementById('stop').click()")
        back = await tab.wait_for(f"{INPUT}.includes('three') && {INPUT}")
        assert back == "half a sent\n\ntwo\n\nthree"
        assert await tab.evaluate("document.querySelectorAll('#attached li').length") == 1
        assert await tab.evaluate("document.getElementById('queued').hidden")

        await tab.reload()
        await tab.wait_for("document.querySelectorAll('.unsent').length === 2")
        assert await tab.evaluate(INPUT) == ""
        await tab.evaluate("document.querySelector('.unsent button').click()")
        assert await tab.evaluate(INPUT) == "two"
        assert tab.errors == []

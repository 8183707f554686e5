"""The page while a turn runs: messages are shown as queued, steer, interrupt, or are handed back."""

from __future__ import annotations

import asyncio

import pytest

from agenticx import UserMessage
from agenticx.llms import ChatModel, ScriptedModel
from agenticx.subagents import session_tools
from agenticx.testing import call, hang, say
from tests.support.server.chromium import CHROMIUM, Tab
from tests.support.server.conversations import ByAgent
from tests.support.server.page import (
    DECISION,
    INPUT,
    SHOWN,
    STOPPED,
    add_files,
    button,
    click,
    enter,
    file_parts,
    fill,
    press_button,
    send_and_be_asked,
    send_message,
    text_of,
    wait_for_focus,
    write,
)
from tests.support.server.running_studio import StudioMaker, note
from tests.support.wires.files import PNG

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed"),
]

QUEUED = "[...document.querySelectorAll('#queued li')].map((row) => row.innerText.split('\\n').join(' '))"


async def press_enter(tab: Tab, text: str, *held: str) -> None:
    """Write `text` and press Enter while other keys are held down."""
    await write(tab, text)
    await tab.evaluate("document.getElementById('input').focus()")
    await tab.press("Enter", held=held)


@pytest.mark.ci_lane
async def test_a_message_sent_during_a_turn_is_shown_as_queued_and_runs_later(
    make_studio: StudioMaker, tab: Tab
) -> None:
    model = ScriptedModel([call("note", {"text": "x"}), "first done", "second done"])
    async with make_studio(model) as studio:
        await enter(tab, studio)
        await send_and_be_asked(tab, "one")
        placeholder = await tab.evaluate("document.getElementById('input').placeholder")
        assert placeholder == "Answer above first, or write a message for after this turn"
        await add_files(tab, "picked", (PNG.name, file_parts(PNG.data)))
        await tab.wait_for("document.querySelectorAll('#attached li').length === 1")
        await press_enter(tab, "two")
        await tab.wait_for(f"{QUEUED}.length === 1 && {QUEUED}[0].startsWith('Queued')")
        await press_enter(tab, "mind <b>the step</b>", "Control")
        shown = await tab.wait_for(f"{QUEUED}.length === 2 && {QUEUED}[1].startsWith('Will') && {QUEUED}")
        assert shown[0].startswith(f"Queued two · {PNG.name} ({PNG.size} bytes)")
        assert shown[1].startswith("Will be read in this turn mind <b>the step</b>")
        await click(tab, "Allow once", DECISION)
        log = await tab.wait_for(f"{STOPPED} && {SHOWN}.includes('second') && {SHOWN}")
        expected = ["one", "mind <b>the step</b>", "first done", "two", "second done"]
        assert [line for line in log.splitlines() if line in expected] == expected
        assert await tab.evaluate("document.getElementById('queued')") is None
        before = await tab.evaluate(SHOWN)
        await tab.reload()
        await tab.wait_for(f"{SHOWN} === {before!r}")
        assert await tab.evaluate("document.getElementById('queued')") is None
        assert tab.errors == []
    last = [message for message in model.requests[-1].messages if isinstance(message, UserMessage)][-1]
    assert (last.content, [file.data for file in last.attachments]) == ("two", [PNG.data])


@pytest.mark.ci_lane
async def test_ctrl_shift_enter_interrupts(make_studio: StudioMaker, tab: Tab) -> None:
    async with make_studio(ScriptedModel([[say("so"), hang()], "instead"])) as studio:
        await enter(tab, studio)
        await send_message(tab, "one")
        await tab.wait_for(f"{SHOWN}.includes('so')")
        await press_enter(tab, "two", "Control", "Shift")
        log = await tab.wait_for(f"{SHOWN}.includes('instead') && {SHOWN}")
        lines = [line for line in log.splitlines() if line]
        assert lines[:2] == ["one", "so"]
        assert lines[2].startswith("Stopped by you")
        assert lines[3:] == ["two", "instead"]


@pytest.mark.ci_lane
async def test_a_stop_offers_queued_messages_and_files_to_be_edited_also_after_a_reload(
    make_studio: StudioMaker, tab: Tab
) -> None:
    async with make_studio(ScriptedModel([[say("so"), hang()]])) as studio:
        await enter(tab, studio)
        await send_message(tab, "one")
        await tab.wait_for(f"{SHOWN}.includes('so')")
        await add_files(tab, "picked", (PNG.name, file_parts(PNG.data)))
        await tab.wait_for("document.querySelectorAll('#attached li').length === 1")
        await press_enter(tab, "two")
        await tab.wait_for(f"{QUEUED}.length === 1 && {QUEUED}[0].startsWith('Queued')")
        await fill(tab, "How to send", "steer")
        await press_enter(tab, "/chat three")
        await tab.wait_for(f"{QUEUED}.length === 2 && {QUEUED}[1].startsWith('Will')")
        await write(tab, "half a sent")
        await click(tab, "Stop")
        await tab.wait_for(f"{QUEUED}.filter((row) => row.startsWith('Not sent')).length === 2")
        assert await tab.evaluate(INPUT) == "half a sent"
        await tab.reload()
        await tab.wait_for(f"{QUEUED}.filter((row) => row.startsWith('Not sent')).length === 2")
        await tab.block("*/api/*")  # all: any answer takes the message away, as may one that is on its way
        await asyncio.gather(
            tab.wait_for(f"{text_of('#message')} && {QUEUED}.length === 2"),  # begun before the click
            click(tab, "Send", "document.querySelector('#queued li')"),
        )
        assert await tab.evaluate(f"{QUEUED}.length") == 2  # it is not lost
        await tab.block()
        await click(tab, "Edit", "document.querySelector('#queued li')")
        await tab.wait_for(f"{INPUT} === 'half a sent\\n\\ntwo' && {QUEUED}.length === 1")
        assert await tab.wait_for(text_of("#attachment-error")) == f"Attach again: {PNG.name}"
        await press_button(tab, "Remove this message", "document.querySelector('#queued li')")
        await tab.wait_for("!document.getElementById('queued')")
        await wait_for_focus(tab, "#input")
        expected = ("404", "ERR_BLOCKED")  # the studio keeps no files of such messages
        assert [error for error in tab.errors if not any(one in error for one in expected)] == []


@pytest.mark.ci_lane
async def test_messages_that_were_not_sent_can_be_sent_and_removed_after_a_later_turn_too(
    make_studio: StudioMaker, tab: Tab
) -> None:
    async with make_studio(ScriptedModel([[say("so"), hang()], "and on", "answered"])) as studio:
        await enter(tab, studio)
        await send_message(tab, "one")
        await tab.wait_for(f"{SHOWN}.includes('so')")
        for state, text, keys in (("Queued", "two", ()), ("Will", "three", ("Control",))):
            await press_enter(tab, text, *keys)
            await tab.wait_for(f"{QUEUED}.some((row) => row.startsWith({state!r}) && row.includes({text!r}))")
        await click(tab, "Stop")
        await tab.wait_for(f"{QUEUED}.filter((row) => row.startsWith('Not sent')).length === 2")
        await click(tab, "Continue")
        unsent = "[...document.querySelectorAll('#log .unsent')]"
        await tab.wait_for(f"{STOPPED} && {SHOWN}.includes('and on') && {unsent}.length === 2")
        await press_button(tab, "Remove this message", f"{unsent}.find((row) => row.innerText.includes('three'))")
        await tab.wait_for(f"{unsent}.length === 1")
        await wait_for_focus(tab, "#input")
        await press_button(tab, "Send", f"{unsent}[0]")
        log = await tab.wait_for(f"{STOPPED} && {SHOWN}.includes('answered') && !{unsent}.length && {SHOWN}")
        assert log.splitlines()[-2:] == ["two", "answered"]
        await tab.reload()
        await tab.wait_for(f"{SHOWN} === {log!r}")
        assert tab.errors == []


@pytest.mark.ci_lane
async def test_an_edited_message_that_was_sent_meanwhile_leaves_its_text_in_the_box(
    make_studio: StudioMaker, tab: Tab
) -> None:
    model = ScriptedModel([call("note", {"text": "x"}), "first done", "second done"])
    async with make_studio(model) as studio:
        await enter(tab, studio)
        await send_and_be_asked(tab, "one")
        await press_enter(tab, "two")
        await click(tab, "Edit", "document.getElementById('queued')")
        await tab.wait_for("document.activeElement.matches('#queued textarea')")
        await tab.press("Escape")
        await tab.wait_for("document.activeElement.matches('#queued button')")
        assert await tab.evaluate(text_of("#message")) == ""  # the turn is not about to be stopped
        await click(tab, "Edit", "document.getElementById('queued')")
        await fill(tab, "Queued message", "second", "document.getElementById('queued')")
        await tab.press("Escape")
        await tab.wait_for("document.activeElement.matches('#queued button')")
        await click(tab, "Go on editing", "document.getElementById('queued')")
        await tab.wait_for("document.activeElement.value === 'second'")  # nothing typed is lost
        here = await tab.evaluate("location.hash")
        for elsewhere in ("#/settings/page", f"#/s/{await studio.session()}"):
            await tab.evaluate(f"location.hash = {elsewhere!r}")
            await tab.wait_for("!document.getElementById('queued')")
            await tab.evaluate(f"location.hash = {here!r}")
            await tab.wait_for("document.querySelector('#queued textarea')?.value === 'second'")
        await tab.reload()
        await tab.wait_for("document.querySelector('#queued textarea')?.value === 'second'")
        await tab.wait_for("document.activeElement.matches('#input, [aria-label=Decision] h2')")
        await click(tab, "Allow once", DECISION)
        await tab.wait_for(f"{STOPPED} && {SHOWN}.includes('second done') && {INPUT} === 'second'")
        assert await tab.wait_for(text_of("#attachment-error")) == "The message was already sent; your text is below."
        assert tab.errors == []


@pytest.mark.ci_lane
async def test_a_waiting_message_is_edited_sent_now_and_removed(make_studio: StudioMaker, tab: Tab) -> None:
    model = ScriptedModel([call("note", {"text": "x"}), "first done"])
    async with make_studio(model) as studio:
        await enter(tab, studio)
        await send_and_be_asked(tab, "one")
        for number, text in enumerate(("two" + " words" * 50, "three"), start=1):
            await press_enter(tab, text)
            await tab.wait_for(f"{QUEUED}.filter((row) => row.startsWith('Queued')).length === {number}")
        await tab.resize(390, 844)
        lines = "(({offsetHeight}, {lineHeight}) => Math.round(offsetHeight / parseFloat(lineHeight)))"
        excerpt = "document.querySelector('#queued .excerpt')"
        await tab.wait_for(f"innerWidth === 390 && {lines}({excerpt}, getComputedStyle({excerpt})) === 2")
        await click(tab, "Edit", "document.getElementById('queued')")
        edited = "document.querySelector('#queued textarea')"
        heights = f"[{edited}.offsetHeight, {button('Save message')}.getBoundingClientRect().bottom]"
        height, bottom = await tab.wait_for(f"{edited} && {heights}")
        assert height > 60
        assert bottom <= await tab.evaluate("document.getElementById('queued').getBoundingClientRect().bottom")
        await tab.resize(1280, 800)
        fits = f"{edited}.scrollHeight <= {edited}.clientHeight"
        await tab.wait_for(f"innerWidth === 1280 && {edited}.offsetHeight < 120 && {fits}")
        await fill(tab, "Queued message", "second", "document.getElementById('queued')")
        await tab.wait_for(f"{edited}.offsetHeight < 50")
        await tab.evaluate(LOST_ANSWERS)
        await tab.evaluate(f"{edited}.focus()")
        await tab.press("Enter")  # as in the message box
        await tab.wait_for(f"window.isAnswered && {QUEUED}.some((row) => row.startsWith('Queued second'))")
        await tab.reload()
        await tab.wait_for(f"{QUEUED}.some((row) => row.startsWith('Queued second'))")
        await click(tab, "Send now", "document.getElementById('queued')")
        await tab.wait_for(f"{QUEUED}.some((row) => row.startsWith('Will be read in this turn second'))")
        await click(
            tab, "Remove", "[...document.querySelectorAll('#queued li')].find((row) => /three/.test(row.innerText))"
        )
        await tab.wait_for(f"{QUEUED}.length === 1")
        await click(tab, "Allow once", DECISION)
        log = await tab.wait_for(f"{STOPPED} && {SHOWN}.includes('first done') && {SHOWN}")
        assert [line for line in log.splitlines() if line in ("one", "two", "second", "three")] == ["one", "second"]
        assert await tab.evaluate("document.getElementById('queued')") is None
        assert tab.errors == []


LOST_ANSWERS = """{
    const request = window.fetch;
    window.fetch = async (url, options) => {
        const response = await request(url, options);
        if (!/queue|message$/.test(url)) return response;
        window.isAnswered = true;
        return new Promise(() => {});
    };
}"""
"""JavaScript that loses the answers about messages that wait."""


async def test_a_message_to_a_subagent_is_shown_until_it_is_read_also_by_a_retry(
    make_studio: StudioMaker, tab: Tab
) -> None:
    spawn = call("spawn_subagent", {"task": "Find it", "name": "helper"})
    look = call("note", {"text": "a"})
    model: ChatModel = ByAgent([spawn, "Later."], [hang(), look, "Found it."])  # type: ignore[assignment]
    async with make_studio(model, tools=[*session_tools(), note]) as studio:
        session_id = await studio.session()
        await enter(tab, studio, f"#/s/{session_id}")
        await send_message(tab, "go")
        card = "document.querySelector('#log [data-agent]')"
        unread = f"[...{card}.querySelectorAll('.unread li')].map((row) => row.innerText).join()"

        async def begin(text: str) -> None:
            await click(tab, "Message", card)
            await tab.evaluate(f"{card}.querySelector('textarea').focus()")
            await tab.type(text)

        async def tell(text: str) -> None:
            await begin(text)
            await tab.press("Enter")
            await tab.wait_for(f"!{card}.querySelector('form')")

        await tab.wait_for(f"{card}?.innerText.includes('Waiting for the model')")
        await begin("please hurry")
        await tab.reload()
        await tab.wait_for(f"{card}?.querySelector('textarea')?.value === 'please hurry'")
        await tab.evaluate(f"{card}.querySelector('textarea').focus(); {LOST_ANSWERS}")
        await tab.press("Enter")
        await tab.wait_for(f"window.isAnswered && {unread} === 'Will be read in this turn please hurry'")
        await tab.reload()
        await tab.wait_for(f"{card}?.querySelector('textarea')?.value === 'please hurry'")
        await tab.evaluate(f"{card}.querySelector('textarea').focus()")
        await tab.press("Enter")  # again: it is the same message
        await tab.wait_for(f"!{card}.querySelector('form')")
        await tab.wait_for(f"{unread} === 'Will be read in this turn please hurry'")
        await tab.reload()
        await tab.wait_for(f"{card} && {unread} === 'Will be read in this turn please hurry'")
        assert not await tab.evaluate(f"Boolean({card}.querySelector('form'))")
        await press_button(tab, "Cancel", card)
        await tab.wait_for(f"{unread} === 'Not read please hurry'")
        await wait_for_focus(tab, ".card.agent", "helper-1 stopped")
        await tab.press("Enter")  # which is not for Retry, in the place of Cancel
        assert await tab.evaluate(unread) == "Not read please hurry"
        await click(tab, "Retry", card)
        await tab.wait_for(f"{card}.innerText.includes('waits for you') && {unread} === ''")
        await tell("and well")
        await tab.wait_for(f"{unread} === 'Will be read in this turn and well'")
        await click(tab, "Allow once", DECISION)
        await tab.wait_for(f"{card}.innerText.includes('done') && {unread} === ''")
        await click(tab, "Show", card)
        work = await tab.wait_for(
            f"{text_of('#pane .agent-work')}.includes('Found it.') && {text_of('#pane .agent-work')}"
        )
        assert "You, into this turn and well" in work
        await tab.reload()
        await tab.wait_for(f"{card}?.innerText.includes('done') && {unread} === ''")
    (_, retried, told) = model.worker.requests  # type: ignore[attr-defined]
    said = [row.content for row in told.messages if isinstance(row, UserMessage)]
    assert [row.content for row in retried.messages if isinstance(row, UserMessage)] == said[:1]
    assert said == ["Find it\n\nplease hurry", "and well"]

"""Tests of the parts of the page, and of the events of a session, that it loads after its first paint."""

from __future__ import annotations

import pytest

from agenticx import builtin_tools
from agenticx.llms import ScriptedModel
from agenticx.runtime import EventType, RuntimeEvent
from agenticx.testing import call
from tests.support.commits import append
from tests.support.server.chromium import CHROMIUM, Tab
from tests.support.server.conversations import run_turn
from tests.support.server.page import (
    DECISION,
    FIND_STATUS,
    INPUT,
    LOG,
    PARTS_LOADED,
    STOPPED,
    TITLE,
    button,
    click,
    enter,
    find_words,
    send_message,
    text_of,
    write,
)
from tests.support.server.running_studio import RunningStudio, StudioMaker

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed"),
]

ALERT = text_of("[role=alert].error")
SETTINGS = "document.getElementById('settings-title') && true"
TRY_AGAIN = f"{button('Try again')}?.click()"
"""JavaScript for a click, unless the page was idle first and has tried again by itself."""


async def test_a_part_that_cannot_be_loaded_says_so_and_can_be_tried_again(make_studio: StudioMaker, tab: Tab) -> None:
    async with make_studio() as studio:
        await enter(tab, studio)
        await tab.block("*/settings_models.js")
        await tab.reload()
        await tab.evaluate("location.hash = '#/settings/models'")
        assert "could not be loaded" in await tab.wait_for(ALERT)
        await tab.block()
        await tab.evaluate(TRY_AGAIN)
        await tab.wait_for(SETTINGS)


@pytest.mark.ci_lane
async def test_a_decision_that_cannot_be_shown_is_shown_once_its_part_is_loaded(
    make_studio: StudioMaker, tab: Tab
) -> None:
    script = [[call("file_write", {"path": "a.txt", "content": "a"})], "done"]
    async with make_studio(ScriptedModel(script), tools=builtin_tools()) as studio:
        await enter(tab, studio)
        await tab.block("*/conversation.js", "*/dock.js")
        await tab.reload()
        await tab.wait_for("document.getElementById('input') && true")
        await send_message(tab, "Write")
        await tab.wait_for(f"{ALERT}.includes('could not be loaded')")
        await write(tab, "a begun message")
        await tab.evaluate("document.getElementById('input').focus()")
        await tab.block()
        await tab.evaluate(TRY_AGAIN)
        await click(tab, "Allow once", DECISION)
        await tab.wait_for(f"{STOPPED} && {LOG}.includes('done')")
        assert await tab.evaluate(INPUT) == "a begun message"


@pytest.mark.ci_lane
async def test_parts_are_there_though_the_studio_has_ended_after_the_page_was_idle(
    make_studio: StudioMaker, tab: Tab
) -> None:
    async with make_studio() as studio:
        await enter(tab, studio)
        await tab.wait_for(PARTS_LOADED)
        await tab.block("*/assets/*")
        await tab.evaluate("document.activeElement.blur()")
        await tab.press("?")
        await tab.wait_for("document.querySelector('#keys[open]') && true")
        await click(tab, "Close")
        await tab.press("k", held=["Control"])
        assert await tab.evaluate("document.activeElement?.closest('#finder') !== null")  # before the next key
        await tab.press("Escape")
        await tab.evaluate("location.hash = '#/settings/models'")
        await tab.wait_for(SETTINGS)


HOLD_STREAMS = """{
    const { fetch } = window, held = new Promise((resolve) => { window.releaseStreams = resolve; });
    window.fetch = async (...given) => (/sessions\\/.*\\/events$/.test(given[0]) && await held, fetch(...given));
}"""
TURNS = "[...document.querySelectorAll('#log article')].map((one) => one.ariaLabel).join()"


async def add_turn(studio: RunningStudio, session_id: str, number: int, tokens: int) -> None:
    """Add a turn with an answer of that many events."""
    begin = {"input": f"message {number}", "model": "m", "message_id": f"user_{number}"}
    texts = [{"text": "x", "message_id": f"msg_{number}", "offset": offset} for offset in range(tokens)]
    end = {"text": f"Answer {number}", "message_id": f"end_{number}", "reason": "answer", "usage": {}}
    events = [
        RuntimeEvent(EventType.TURN_STARTED, begin),
        *(RuntimeEvent(EventType.TOKEN, text) for text in texts),
        RuntimeEvent(EventType.FINAL, end),
    ]
    await append(studio.services.store, session_id, f"turn_{number}", events)


async def test_the_newest_turn_of_a_long_session_is_shown_while_the_others_are_read(
    make_studio: StudioMaker, tab: Tab
) -> None:
    async with make_studio() as studio:
        session_id = await studio.session(name=None)
        for number, tokens in enumerate((9, 900, 900)):
            await add_turn(studio, session_id, number, tokens)
        await enter(tab, studio, "#/new")
        await tab.evaluate(HOLD_STREAMS)
        await tab.evaluate(f"location.hash = '#/s/{session_id}'")
        await tab.wait_for(f"{LOG}.includes('Answer 2')")
        assert await tab.evaluate(TURNS) == "message 2"
        await click(tab, "Edit", "document.querySelector('#log .user')")
        await tab.wait_for(f"{INPUT} === 'message 2'")
        await click(tab, "Send")
        await tab.wait_for(f"{ALERT}.includes('still being read')")  # what precedes the message is not known yet
        assert (await tab.evaluate(INPUT), await tab.evaluate(TITLE) == "message 2") == ("message 2", False)

        await tab.evaluate("releaseStreams()")
        await tab.wait_for(f"{TITLE} === 'message 0' && {TURNS}.includes('message 1,message 2')")
        await find_words(tab, "message 0")
        await tab.wait_for(f"{FIND_STATUS} === '1 of 1'")
        assert tab.errors == []


@pytest.mark.ci_lane
async def test_a_tab_that_waits_for_its_stream_shows_what_is_stored_meanwhile(
    make_studio: StudioMaker, tab: Tab
) -> None:
    async with make_studio(ScriptedModel(["One.", "Two.", "Three."])) as studio:
        session_id = await studio.session()
        await run_turn(studio, session_id, "first")
        await enter(tab, studio, "#/new")
        await tab.evaluate("""Promise.all([0, 1, 2, 3].map((number) => new Promise((taken) => {
            const held = new Promise((resolve) => { (window.releases ??= []).push(resolve); });
            navigator.locks.request(`agenticx.stream.${number}`, () => { taken(); return held; });
        }))).then(() => {})""")
        await tab.evaluate(f"location.hash = '#/s/{session_id}'")
        await tab.wait_for(f"{LOG}.includes('One.')")
        await run_turn(studio, session_id, "second")
        await tab.wait_for(f"{LOG}.includes('Two.') && {STOPPED}")
        await tab.evaluate("releases[2]()")
        await run_turn(studio, session_id, "third")
        await tab.wait_for(f"{LOG}.includes('Three.')")
        assert await tab.evaluate(TURNS) == "first,second,third"
        assert tab.errors == []

"""The page in a real browser: in by ticket, a turn with a question, back after a reload, inert to content."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from agenticx.llms.scripted import ScriptedModel, call
from agenticx.tools.builtin import builtin_tools
from tests.studio.chromium import CHROMIUM, Tab, browser_tab
from tests.studio.running import Studio, StudioMaker

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed"),
]

SHOWN = "document.getElementById('log').innerText"


@pytest.fixture
async def tab(tmp_path: Path) -> AsyncIterator[Tab]:
    async with browser_tab(tmp_path / "profile") as tab:
        yield tab


async def enter(tab: Tab, studio: Studio) -> None:
    """Open the page with a fresh ticket and wait until it shows a session."""
    await tab.open(f"http://127.0.0.1:{studio.port}/#{studio.services.tickets.issue()}")
    await tab.wait_for("document.querySelector('#sessions [aria-current]')?.textContent")


async def say(tab: Tab, text: str) -> None:
    await tab.evaluate(f"document.getElementById('input').value = {text!r}")
    await tab.evaluate("document.getElementById('send').click()")


async def test_a_person_enters_by_ticket_allows_a_write_and_reads_the_answer(
    make_studio: StudioMaker, tab: Tab
) -> None:
    async with make_studio(tools=builtin_tools(), model="demo") as studio:
        await enter(tab, studio)
        assert await tab.evaluate("location.href") == f"http://127.0.0.1:{studio.port}/"
        await say(tab, "Write hello.txt with the text Good morning")
        await tab.wait_for("document.querySelector('.allow')")
        assert "hello.txt" in await tab.evaluate("document.querySelector('.ask').innerText")
        assert "Good morning" in await tab.evaluate("document.querySelector('.ask').innerText")
        assert not (studio.workspace / "hello.txt").exists()
        await tab.evaluate("document.querySelector('.allow').click()")
        await tab.wait_for("document.getElementById('stop').hidden && document.querySelectorAll('.assistant')[1]")
        assert (studio.workspace / "hello.txt").read_text() == "Good morning"
        before = await tab.evaluate(SHOWN)
        assert "Allowed." in before

        await tab.reload()
        await tab.wait_for(f"{SHOWN} === {before!r}")
        assert tab.complaints == []


async def test_a_tab_without_a_key_says_how_to_get_one(make_studio: StudioMaker, tab: Tab) -> None:
    async with make_studio() as studio:
        await tab.open(f"http://127.0.0.1:{studio.port}/")
        shown = "document.getElementById('locked').innerText"
        assert "agx open" in await tab.wait_for(f"!document.getElementById('locked').hidden && {shown}")
        await tab.evaluate("location.hash = 'a-ticket-that-never-was'")
        assert "used already" in await tab.wait_for(f"{shown}.includes('used already') && {shown}")
        assert await tab.evaluate("location.hash") == ""


async def test_stop_ends_the_turn_and_a_denied_call_does_not_run(make_studio: StudioMaker, tab: Tab) -> None:
    model = ScriptedModel([call("note", {"text": "x"}), "so not.", call("note", {"text": "y"})])
    async with make_studio(model) as studio:
        await enter(tab, studio)
        await say(tab, "one")
        await tab.wait_for("document.querySelector('.deny')")
        await tab.evaluate("document.querySelector('.deny').click()")
        assert "Denied." in await tab.wait_for(f"{SHOWN}.includes('so not.') && {SHOWN}")
        await tab.wait_for("document.getElementById('stop').hidden")
        await say(tab, "two")
        await tab.wait_for("document.querySelector('.deny')")
        await tab.evaluate("document.getElementById('stop').click()")
        assert "Stopped." in await tab.wait_for(f"{SHOWN}.includes('Stopped.') && {SHOWN}")


PAYLOADS = (
    "<img src=x onerror=window.hit=1>",
    "<script>window.hit=1</script>",
    "<svg onload=window.hit=1>",
    "[x](javascript:window.hit=1)",
    "</div><iframe srcdoc='<script>parent.hit=1</script>'>",
)


@pytest.mark.promise("E6")
@pytest.mark.promise("I3")
async def test_content_is_text_and_hidden_characters_are_written_out(make_studio: StudioMaker, tab: Tab) -> None:
    odd = " ".join(PAYLOADS)
    hidden = "rm \u202etxt.exe\u200b \x1b[31m"
    model = ScriptedModel([[odd, call("note", {"text": odd + hidden})], odd])
    async with make_studio(model) as studio:
        await enter(tab, studio)
        await say(tab, odd)
        asked = await tab.wait_for("document.querySelector('.ask')?.textContent")
        assert PAYLOADS[0] in asked
        assert "\u202e" not in asked
        assert "\u200b" not in asked
        assert "\x1b" not in asked
        await tab.evaluate("document.querySelector('.allow').click()")
        await tab.wait_for("document.querySelectorAll('.assistant').length === 2")
        await tab.wait_for("document.getElementById('stop').hidden")
        assert await tab.evaluate("document.querySelector('#log :is(img, script, svg, iframe)')") is None
        assert await tab.evaluate("window.hit ?? null") is None
        assert tab.complaints == []
